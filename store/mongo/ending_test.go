package mongo

import (
	"context"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// Of two series that are told to end, one has advanced, so that nobody can tell which ends. If the server is gone then,
// nobody is told that surely nothing was done.
func TestCancelOfSeriesThatMayEnd(t *testing.T) {
	s, err := Open(t.Context(), DefaultConfig(mongotest.Fresh(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var keys keyed
	var some []store.Versioned
	for _, id := range []string{"a", "b"} {
		m := dueMessage(bucket.KeyOf("default", id, s.c.Buckets))
		m.First, m.Recurrence = m.ExecutionTime, &postdate.Recurrence{Every: 1000, Anchor: 1000}
		if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
			t.Fatal(err)
		}
		keys.add(m.Key)
		some = append(some, store.Versioned{Key: m.Key})
	}
	found, err := s.read(t.Context(), &keys, sizedFields)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.messages.UpdateByID(t.Context(), idOf(some[1].Key), doc("$inc", doc("version", 1))); err != nil {
		t.Fatal(err)
	}
	c := cancelling{withdrawal: s.withdrawal(), some: some, results: make([]store.Cancelled, 2), unsure: map[int]bool{}}
	left := c.end(t.Context(), []int{0, 1}, found)
	if rec, err := s.Get(t.Context(), some[0].Key); err != nil || !rec.Ending || len(left) != 2 {
		t.Fatalf("%d are left, and the first one is %+v: this test shows nothing: %v", len(left), rec.State, err)
	}
	c.fail(left, unreachable("cancelling", context.DeadlineExceeded))
	for i, r := range c.results {
		if postdate.KindOf(r.Err) != postdate.KindUnknown {
			t.Errorf("series %d: %v", i, r.Err)
		}
	}
}
