package mongo

import (
	"os"
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/storetest"
)

// openAsSharded is a store that does everything as behind a mongos, on a replica
// set: the transactions are tried so, and what a mongos makes of them is not.
func openAsSharded(t *testing.T) *Store {
	t.Helper()
	c := DefaultConfig(mongotest.Fresh(t))
	c.Buckets = 8
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s.sharded = true
	return s
}

// TestAsSharded runs the whole suite where POSTDATE_TEST_EXPERIMENTS is set, and else
// what differs.
func TestAsSharded(t *testing.T) {
	if os.Getenv("POSTDATE_TEST_EXPERIMENTS") != "" {
		storetest.Run(t, func(t *testing.T) store.Store { return openAsSharded(t) })
		return
	}
	s := openAsSharded(t)
	defer s.Close()
	message := func(id string, at postdate.Time, text string) postdate.Message {
		m := postdate.Message{Key: bucket.KeyOf("default", id, 8), Channel: "inbox:a", ExecutionTime: at, Payload: []byte(text)}
		m.Digest = postdate.DigestOf(&m, "")
		return m
	}
	a, b, c := message("a", 1000, "1"), message("b", 1000, "1"), message("c", 1000, "1")
	if r := s.Insert(t.Context(), []postdate.Message{a})[0]; !r.Created || r.Err != nil {
		t.Fatalf("Insert: %+v", r)
	}
	r := s.Insert(t.Context(), []postdate.Message{b, a, message("a", 1000, "2"), c})
	if !r[0].Created || r[1].Created || r[1].Err != nil || postdate.KindOf(r[2].Err) != postdate.KindExists || !r[3].Created {
		t.Fatalf("Insert of a batch: %+v", r)
	}
	created, err := s.Get(t.Context(), a.Key)
	if err != nil {
		t.Fatal(err)
	}
	won := make(chan postdate.Record, 8)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			rec, err := s.Replace(t.Context(), message("a", postdate.Time(2000+i), "3"), created.Version)
			if err == nil {
				won <- rec
			} else if postdate.KindOf(err) != postdate.KindConflict {
				t.Errorf("Replace: %v", err)
			}
		})
	}
	group.Wait()
	close(won)
	first, ok := <-won
	if _, second := <-won; !ok || second {
		t.Fatal("not exactly one replaced the first version")
	}
	if rec, err := s.Get(t.Context(), a.Key); err != nil || rec.Version != created.Version+1 || rec.ExecutionTime != first.ExecutionTime {
		t.Fatalf("after a replace: %+v, %v; want %+v", rec, err, first)
	}
	if r := s.Cancel(t.Context(), []postdate.Key{a.Key}, 5)[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	if n, err := s.Expire(t.Context(), 10, 0, 10); n != 1 || err != nil {
		t.Fatalf("Expire: %d, %v", n, err)
	}
	if r := s.Insert(t.Context(), []postdate.Message{message("a", 1, "4")})[0]; !r.Created {
		t.Fatalf("an id that expired is not free: %+v", r)
	}
}
