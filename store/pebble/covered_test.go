package pebble

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// TestWalksCoverWhatClaimsDo compares what walks of one scanner find with [bucket.Claim.Covers]: tenants, channels
// and priorities that are alike, and claims that leave any of them behind.
func TestWalksCoverWhatClaimsDo(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := ownedBuckets(t, 2)
		messages := alikeMessages(t, r, s)
		walk, err := s.scanner(nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c := anyClaim(r, messages)
			var want, got []string
			for _, m := range messages {
				if at := bucket.PositionOf(m.Key, m.ExecutionTime); !c.To.Before(at) && c.Covers(m.Route(), at) {
					want = append(want, m.ScheduleID)
				}
			}
			for walk.start(&c, bucket.Position{}); walk.next(); {
				got = append(got, walk.at().ScheduleID)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(want, got) {
				t.Errorf("seed %d, claim %+v: found %v, want %v", seed, c, got, want)
			}
		}
		walk.close()
	}
}

// alikeMessages inserts messages into two buckets, and returns those in the first.
func alikeMessages(t *testing.T, r *rand.Rand, s *Store) (in []postdate.Message) {
	t.Helper()
	for i := range 40 {
		m := postdate.Message{
			Key:           postdate.Key{Bucket: i % 2, Tenant: anyTenant(r), ScheduleID: fmt.Sprint("id", r.IntN(1000), "-", i)},
			ExecutionTime: postdate.Time(1000 + r.IntN(6)),
			Channel:       []postdate.Channel{"inbox:x", "inbox:xy", "inbox:y"}[r.IntN(3)], Priority: postdate.Priority(r.IntN(3)),
		}
		if got := s.Insert(t.Context(), []postdate.Message{m}); got[0].Err != nil {
			t.Fatal(got[0].Err)
		}
		if m.Bucket == 0 {
			in = append(in, m)
		}
	}
	return in
}

func anyTenant(r *rand.Rand) string {
	return []string{postdate.DefaultTenant, "a", "ab", "a\x01", "b"}[r.IntN(5)]
}

// anyClaim leaves some routes of messages, and all of some tenants, behind.
func anyClaim(r *rand.Rand, messages []postdate.Message) store.Claim {
	somewhere := func() bucket.Position {
		switch r.IntN(5) {
		case 0:
			return bucket.Position{}
		case 1:
			return bucket.UpTo(postdate.Time(998 + r.IntN(9)))
		case 2:
			return bucket.Position{Time: postdate.Far}
		}
		m := messages[r.IntN(len(messages))]
		return bucket.PositionOf(m.Key, m.ExecutionTime)
	}
	c := store.Claim{Claim: bucket.Claim{To: somewhere(), Behind: map[postdate.Route]bucket.Position{}}}
	for range r.IntN(5) {
		route := messages[r.IntN(len(messages))].Route()
		if r.IntN(3) == 0 {
			route = postdate.AllOf(anyTenant(r))
		}
		c.Behind[route] = somewhere()
	}
	if routes := slices.Sorted(maps.Keys(c.Behind)); len(routes) > 0 && r.IntN(3) == 0 {
		c.Only = routes[r.IntN(len(routes))]
	}
	return c
}
