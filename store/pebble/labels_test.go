package pebble

import (
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// labelsKept counts the keys in the space of labels.
func labelsKept(t *testing.T, s *Store) (n int) {
	t.Helper()
	iter, err := s.db.NewIter(spaceOnly(spaceLabel))
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		n++
	}
	return n
}

// Nothing is left of labels once everything has expired, whatever became of the messages.
func TestLabelsExpireWithTheirMessages(t *testing.T) {
	s := ownedBuckets(t, 4)
	message := func(id string, at postdate.Time) postdate.Message {
		m := postdate.Message{Key: bucket.KeyOf("default", id, 4), Channel: "inbox:a", ExecutionTime: at, Labels: []string{"a", "b"}}
		m.Digest = postdate.DigestOf(&m, "")
		return m
	}
	series := message("series", 1000)
	series.First, series.Recurrence = 1000, &postdate.Recurrence{Every: 1000, Anchor: 1000}
	all := []postdate.Message{message("sent", 1000), message("moved", 1000), message("parked", 1000),
		message("forgotten", 1000), series}
	s.Insert(t.Context(), all)
	version := func(key postdate.Key) uint64 {
		r, err := s.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return r.Version
	}
	next := message("moved", 2000)
	next.Labels = []string{"b", "c"}
	if _, err := storetest.Replace(t.Context(), s, next, version(next.Key)); err != nil {
		t.Fatal(err)
	}
	settle := func(key postdate.Key, how store.Settling, occurrence postdate.Time, next store.Next) {
		t.Helper()
		err := s.Settle(t.Context(), []store.Settlement{{Key: key, ExecutionTime: 1000, Version: version(key), Token: 1,
			How: how, At: 3000, AttemptTime: 3000, Attempts: 1, Occurrence: occurrence, Next: next}})
		if err != nil {
			t.Fatal(err)
		}
	}
	settle(series.Key, store.SettleRetry, 1000, store.Next{Occurrence: 2000, AttemptTime: 2000})
	if err := s.Trigger(t.Context(), series.Key, version(series.Key), 1500); err != nil {
		t.Fatal(err)
	}
	retried, extra := series.Alone(1000), series.Alone(1500)
	settle(all[2].Key, store.SettlePark, 0, store.Next{})
	if n := labelsKept(t, s); n != 2*(len(all)+2) {
		t.Errorf("%d labels are kept of %d messages with two each", n, len(all)+2)
	}
	settle(all[0].Key, store.SettleDelivered, 0, store.Next{})
	settle(retried.Key, store.SettleFailed, 0, store.Next{})
	for _, r := range s.Cancel(t.Context(), []postdate.Key{next.Key, all[2].Key, all[3].Key, series.Key, extra.Key}, 3000) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if err := s.Forget(t.Context(), all[3].Key, version(all[3].Key)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Expire(t.Context(), store.Expiry{Buckets: []int{0, 1, 2, 3}, SettledBefore: 3001, Limit: 100}); n != 6 || err != nil {
		t.Fatalf("%d expired, %v; want 6", n, err)
	}
	if n := labelsKept(t, s); n != 0 {
		t.Errorf("%d labels are left of nothing", n)
	}
}
