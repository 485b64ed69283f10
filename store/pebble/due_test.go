package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// ownedBuckets is a store in memory whose buckets are held under token 1.
func ownedBuckets(t *testing.T, buckets int) *Store {
	t.Helper()
	c := DefaultConfig("store")
	c.Buckets = buckets
	s, err := OpenWith(c, Parts{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	acquireAll(t, s)
	return s
}

// acquireAll makes one node the owner of every bucket, with token 1 in a new store.
func acquireAll(t *testing.T, s *Store) {
	t.Helper()
	for b := range s.Buckets() {
		if got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "n/1"}}); err != nil || !got[0].OK {
			t.Fatal(got, err)
		}
	}
}

// owned is such a store of one bucket, with a message that is due at 1000.
func owned(t *testing.T) (*Store, postdate.Message) {
	t.Helper()
	s := ownedBuckets(t, 1)
	return s, insertAt(t, s, 0, "m", 1000)
}

func claimTo(number uint64, to postdate.Time) store.Claim {
	c := store.Claim{Scan: store.Scan{Limit: 10, BytesMax: 1 << 20}}
	c.Token, c.Number, c.To = 1, number, bucket.UpTo(to)
	return c
}

// Between the write of a claim and its read, a later claim that covers less can be written.
// What that leaves out may be cancelled, so the first claim returns nothing.
func TestAClaimThatIsFollowedReadsNothing(t *testing.T) {
	s, m := owned(t)
	first, second := claimTo(1, 2000), claimTo(2, 2000)
	second.Behind = map[postdate.Route]bucket.Position{m.Route(): bucket.UpTo(500)}
	claims, results := []store.Claim{first}, make([]store.ClaimResult, 1)
	found, err := s.look(claims, results)
	if err != nil || found[0] != 1 {
		t.Fatal(found, err)
	}
	s.writeClaims(t.Context(), claims, found, results)
	// The first one would read now.
	if r := s.Claim(t.Context(), []store.Claim{second}); r[0].Err != nil || len(r[0].Due) > 0 {
		t.Fatal(r)
	}
	if r := s.Cancel(t.Context(), []postdate.Key{m.Key}, 1); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if err := s.read(claims, found, results); err != nil {
		t.Fatal(err)
	}
	if r := results[0]; postdate.KindOf(r.Err) != postdate.KindConflict || len(r.Due) > 0 {
		t.Errorf("the claim that was followed answers %+v", r)
	}
}

// A claim that ends with the last message of its page has seen everything.
func TestAClaimThatEndsWithItsPage(t *testing.T) {
	s, m := owned(t)
	c := claimTo(1, 0)
	c.To, c.Scan.Limit = bucket.PositionOf(m.Key, m.ExecutionTime), 1
	if r := s.Claim(t.Context(), []store.Claim{c})[0]; r.Err != nil || !r.Complete || r.Next != postdate.Far || len(r.Due) != 1 {
		t.Errorf("a claim that ends with the last message of its page answers %+v", r)
	}
}
