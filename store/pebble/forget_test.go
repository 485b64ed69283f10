package pebble

import (
	"bytes"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Of what is forgotten no key stays, and none of what expires.
func TestForgetLeavesNothing(t *testing.T) {
	s := ownedBuckets(t, 1)
	forgotten, expired := insertAt(t, s, 0, "gone-1", 1000), insertAt(t, s, 0, "gone-2", 2000)
	s.Cancel(t.Context(), []postdate.Key{forgotten.Key, expired.Key}, 5)
	rec, err := s.Get(t.Context(), forgotten.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(t.Context(), forgotten.Key, rec.Version); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Expire(t.Context(), store.Expiry{Buckets: []int{0}, SettledBefore: 6, Limit: 10}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	iter, err := s.db.NewIter(&lsm.IterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		if bytes.Contains(iter.Key(), []byte("gone-")) {
			t.Errorf("the key %q is there", iter.Key())
		}
	}
}

// While a scan reads, its message is settled and forgotten, and its id is used again for the same time. The scan
// returns what it found, and not the new message under the old one's version.
func TestAScanBesideAForget(t *testing.T) {
	s, m := owned(t)
	was, err := s.Get(t.Context(), m.Key)
	if err != nil {
		t.Fatal(err)
	}
	claims := []store.Claim{claimTo(1, 2000)}
	r, err := s.scanner(claims)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	settled := store.Settlement{Key: m.Key, ExecutionTime: 1000, Version: was.Version, Token: 1, How: store.SettleDelivered, At: 1001}
	if err := s.Settle(t.Context(), []store.Settlement{settled}); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(t.Context(), m.Key, was.Version); err != nil {
		t.Fatal(err)
	}
	next := m
	next.Payload = []byte("another one")
	if got := s.Insert(t.Context(), []postdate.Message{next})[0]; got.Err != nil || !got.Created {
		t.Fatal(got)
	}
	var result store.ClaimResult
	if err := r.page(&claims[0], bucket.Position{}, &result); err != nil {
		t.Fatal(err)
	}
	if len(result.Due) != 1 || result.Due[0].Version != was.Version || string(result.Due[0].Payload) != string(was.Payload) {
		t.Errorf("the scan returns %+v", result.Due)
	}
}
