package mongo

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
	"github.com/postdate/postdate/store/storetest"
)

// behindRouter is the configuration of a store behind the model of a mongos.
func behindRouter(t *testing.T) (Config, *routertest.Router) {
	t.Helper()
	r := routertest.Start(t, mongotest.Fresh(t))
	c := DefaultConfig(r.URI())
	c.Buckets = 8
	return c, r
}

func openSharded(t *testing.T) *Store {
	t.Helper()
	c, _ := behindRouter(t)
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !s.sharded {
		t.Fatal("the store is not behind a mongos")
	}
	return s
}

// TestStoreSharded holds each command of the whole suite against the rules of a mongos.
func TestStoreSharded(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return openSharded(t) })
}

func TestSharded(t *testing.T) {
	s := openSharded(t)
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
	if n, err := s.Expire(t.Context(), store.Expiry{Buckets: []int{a.Bucket}, SettledBefore: 10, Limit: 10}); n != 1 || err != nil {
		t.Fatalf("Expire: %d, %v", n, err)
	}
	if r := s.Insert(t.Context(), []postdate.Message{message("a", 1, "4")})[0]; !r.Created {
		t.Fatalf("an id that expired is not free: %+v", r)
	}
}

// TestSlowExpirer stops an expirer between its look and its deletion: meanwhile another
// one deletes the message, and its id is taken anew. The new message keeps its id.
func TestSlowExpirer(t *testing.T) {
	c, _ := behindRouter(t)
	quick, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Close()
	var expiring atomic.Bool
	var meanwhile func()
	c.Monitor = &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "find" && expiring.CompareAndSwap(true, false) {
			meanwhile()
		}
	}}
	slow, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	m := postdate.Message{Key: bucket.KeyOf("default", "a", 8), Channel: "inbox:a", ExecutionTime: 1000}
	insert := func() {
		if r := quick.Insert(t.Context(), []postdate.Message{m})[0]; !r.Created || r.Err != nil {
			t.Fatalf("Insert: %+v", r)
		}
	}
	e := store.Expiry{Buckets: []int{m.Bucket}, SettledBefore: 10, Limit: 10}
	meanwhile = func() {
		if n, err := quick.Expire(t.Context(), e); n != 1 || err != nil {
			t.Errorf("the quick one: %d, %v", n, err)
		}
		insert()
	}
	insert()
	if r := quick.Cancel(t.Context(), []postdate.Key{m.Key}, 5)[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	expiring.Store(true)
	if n, err := slow.Expire(t.Context(), e); n != 0 || err != nil {
		t.Errorf("the slow one: %d, %v; want nothing left to delete", n, err)
	}
	if r, err := quick.Get(t.Context(), m.Key); err != nil || r.Status != postdate.Pending {
		t.Errorf("the new message: %+v, %v", r, err)
	}
	if n, err := quick.registry.CountDocuments(t.Context(), doc("_id", idOf(m.Key))); n != 1 || err != nil {
		t.Errorf("the id of the new message lies %d times in the registry, %v; want once", n, err)
	}
}
