package pebble

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// sweep is a scan of bucket 0 from its very start.
func sweep(t *testing.T, s *Store, number uint64) store.ClaimResult {
	t.Helper()
	c := claimTo(number, 1_000_000)
	c.Scan.Limit, c.IfDue = 100_000, true
	r := s.Claim(t.Context(), []store.Claim{c})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return r
}

// settleAll settles what a claim returned.
func settleAll(t *testing.T, s *Store, due []postdate.Record, how store.Settling, at postdate.Time) {
	t.Helper()
	var all []store.Settlement
	for _, r := range due {
		all = append(all, store.Settlement{Key: r.Key, Version: r.Version, Token: 1, How: how, At: 1, AttemptTime: at, Attempts: 1})
	}
	if err := s.Settle(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

// stepped is how many keys the look of a sweep steps over, including deleted ones.
func stepped(t *testing.T, s *Store) uint64 {
	t.Helper()
	claims := make([]store.Claim, s.c.Buckets)
	for b := range claims {
		claims[b] = claimTo(0, 1_000_000)
		claims[b].Bucket = b
	}
	r, err := s.scanner(claims)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.look(claims, make([]store.ClaimResult, len(claims))); err != nil {
		t.Fatal(err)
	}
	stats := r.due.Stats()
	return stats.InternalStats.PointCount
}

func insertAt(t *testing.T, s *Store, b int, id string, at postdate.Time) postdate.Message {
	t.Helper()
	m := postdate.Message{Key: postdate.Key{Bucket: b, Tenant: postdate.DefaultTenant, ScheduleID: id}, Channel: "inbox:a", ExecutionTime: at}
	if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	return m
}

// The cost of a sweep depends on what waits, not on what was delivered: deleted keys stay in
// the store until they are merged away, and a sweep from the start would step over them.
func TestASweepPassesOverNothingSettled(t *testing.T) {
	const count = 3_000
	s := ownedBuckets(t, 2)
	for i := range count {
		insertAt(t, s, i%2, fmt.Sprint(i), 1000+postdate.Time(i))
	}
	for b := range 2 {
		c := claimTo(1, 1_000_000)
		c.Bucket, c.Scan.Limit, c.Scan.BytesMax = b, count, 1<<30
		r := s.Claim(t.Context(), []store.Claim{c})[0]
		if r.Err != nil || len(r.Due) != count/2 {
			t.Fatal(r.Err, len(r.Due))
		}
		settleAll(t, s, r.Due, store.SettleDelivered, 0)
	}
	first := stepped(t, s)
	if again := stepped(t, s); again > 20 {
		t.Errorf("a sweep of two buckets in which nothing waits steps over %d keys, after one that stepped over %d; %d messages were delivered", again, first, count)
	}
}

func wantSwept(t *testing.T, s *Store, number uint64, want ...postdate.Message) []postdate.Record {
	t.Helper()
	got := map[string]bool{}
	due := sweep(t, s, number).Due
	for _, r := range due {
		got[r.ScheduleID] = true
	}
	for _, m := range want {
		if !got[m.ScheduleID] {
			t.Errorf("the sweep does not find %q", m.ScheduleID)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the sweep finds %d messages, want %d", len(got), len(want))
	}
	return due
}

// The next sweep finds whatever comes to wait before the first message that a sweep saw.
func TestASweepFindsWhatComesBehind(t *testing.T) {
	s, first := owned(t)
	last := insertAt(t, s, 0, "last", 900_000)
	due := wantSwept(t, s, 1, first, last)
	settleAll(t, s, due[:1], store.SettleDelivered, 0)
	settleAll(t, s, due[1:], store.SettlePark, 950_000)
	number := uint64(2)
	swept := func(what string, want ...postdate.Message) []postdate.Record {
		t.Helper()
		t.Log("after", what)
		number++
		return wantSwept(t, s, number, want...)
	}
	swept("a drain to a parked one", last)
	if n, _, err := s.Unpark(t.Context(), store.Unpark{Token: 1, Route: "inbox:a", At: 500_000, Limit: 9}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	due = swept("an unpark", last)
	settleAll(t, s, due, store.SettleRetry, 400_000)
	swept("a retry", last)
	early := insertAt(t, s, 0, "early", 2000)
	due = swept("an insert", early, last)
	settleAll(t, s, due, store.SettleDelivered, 0)
	swept("a drain")
	later := insertAt(t, s, 0, "later", 2_000_000)
	swept("an insert that is not due")
	later.ExecutionTime = 1500
	rec, err := s.Get(t.Context(), later.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Replace(t.Context(), s, later, rec.Version); err != nil {
		t.Fatal(err)
	}
	swept("a replace", later)
}

// A look sees what was there when it began. The next one finds what comes before the look ends
// and waits before all that it saw, even if two looks overlap.
func TestASweepBesideWrites(t *testing.T) {
	s, m := owned(t)
	settleAll(t, s, wantSwept(t, s, 1, m), store.SettleDelivered, 0)
	claims := []store.Claim{claimTo(2, 1_000_000)}
	begin := func() *scanner {
		r, err := s.scanner(claims)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.close)
		return r
	}
	end := func(r *scanner) {
		if _, err := r.look(claims, make([]store.ClaimResult, 1)); err != nil {
			t.Fatal(err)
		}
	}
	first := begin()
	one := insertAt(t, s, 0, "one", 10)
	end(begin())
	end(first)
	wantSwept(t, s, 2, one)
	third := begin()
	two := insertAt(t, s, 0, "two", 5)
	end(third)
	wantSwept(t, s, 3, one, two)
}

// TestSweepsAndWritesAtOnce writes from many goroutines while sweeps raise the mark: in the end
// a sweep finds everything that waits.
func TestSweepsAndWritesAtOnce(t *testing.T) {
	const writers, each = 4, 200
	s := ownedBuckets(t, 1)
	seed := testrun.Seed(t)
	var all sync.Map
	var writing, sweeping sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		sweeping.Go(func() {
			for {
				if _, err := s.look([]store.Claim{claimTo(0, 1_000_000)}, make([]store.ClaimResult, 1)); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		writing.Go(func() {
			for i := range each {
				m := insertAt(t, s, 0, fmt.Sprint(w, "-", i), postdate.Time(1+random.IntN(1000)))
				if random.IntN(3) > 0 {
					if r := s.Cancel(t.Context(), []postdate.Key{m.Key}, 1); r[0].Err != nil {
						t.Error(r[0].Err)
					}
					continue
				}
				all.Store(m.ScheduleID, m)
			}
		})
	}
	writing.Wait()
	close(done)
	sweeping.Wait()
	var want []postdate.Message
	all.Range(func(_, m any) bool {
		want = append(want, m.(postdate.Message))
		return true
	})
	wantSwept(t, s, 1, want...)
}
