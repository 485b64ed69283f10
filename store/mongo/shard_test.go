package mongo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

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
	return opened(t, c)
}

// opened is the store of a configuration behind the model of a mongos.
func opened(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !s.sharded {
		t.Fatal("the store is not behind a mongos")
	}
	return s
}

// TestStoreSharded checks each command of the whole suite against the rules of a mongos. Each check
// has its own model of one, which fails it if a command breaks a rule.
func TestStoreSharded(t *testing.T) {
	t.Parallel()
	behind := func(t *testing.T, uri string) (*routertest.Router, Config) {
		r := routertest.Start(t, uri)
		c := DefaultConfig(r.URI())
		c.Buckets = 8
		return r, c
	}
	database := mongotest.Reusing(t, 1, func(uri string) {
		_, c := behind(t, uri)
		if err := opened(t, c).Close(); err != nil {
			t.Error(err)
		}
	})
	storetest.Run(t, func(t *testing.T) store.Store {
		uri := database(t)
		r, c := behind(t, uri)
		db := uri[strings.LastIndex(uri, "/")+1 : strings.LastIndex(uri, "?")]
		r.Shard(db+".messages", messagesKey) // another model knows that it is
		r.Shard(db+".registry", registryKey)
		return opened(t, c)
	})
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
			rec, err := storetest.Replace(t.Context(), s, message("a", postdate.Time(2000+i), "3"), created.Version)
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

// TestSlowExpirer stops an expirer between its look and its deletion. Meanwhile another one
// deletes the message, and its id is used again. The new message keeps its id.
func TestSlowExpirer(t *testing.T) {
	c, _ := behindRouter(t)
	quick, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Close()
	var expiring atomic.Bool
	var meanwhile func()
	monitor := &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "find" && expiring.CompareAndSwap(true, false) {
			meanwhile()
		}
	}}
	slow, err := OpenWatched(t.Context(), c, monitor)
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

// insertInBucket inserts messages of one bucket, due at 1000.
func insertInBucket(t *testing.T, s *Store, b, count int) (all []postdate.Message) {
	t.Helper()
	for i := 0; len(all) < count; i++ {
		m := postdate.Message{Key: bucket.KeyOf("default", fmt.Sprint("m", i), 8), Channel: "inbox:a", ExecutionTime: 1000}
		if m.Bucket == b {
			all = append(all, m)
		}
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return all
}

// TestClaimBesideAHeldMessage holds a marked message in a transaction, like a node that died
// while it rescheduled the message. A claim leaves that message out and says so. It hands out
// the others, though all bear the same mark, like those of one batch of cancels.
func TestClaimBesideAHeldMessage(t *testing.T) {
	c, _ := behindRouter(t)
	c.Attempt = time.Minute // only the bound of overtaking ends the wait
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := insertInBucket(t, s, 1, aloneMax+4) // more than are overtaken at a time
	slices.SortFunc(all, func(a, b postdate.Message) int { return strings.Compare(a.ScheduleID, b.ScheduleID) })
	last := all[len(all)-1]
	if got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: 1, Owner: "n", Lease: "l"}}); err != nil || !got[0].OK {
		t.Fatalf("Acquire: %+v, %v", got, err)
	}
	var marked []target
	for _, m := range all[:len(all)-1] {
		marked = append(marked, target{key: m.Key, execution: m.ExecutionTime})
	}
	if err := s.within(t.Context(), func(ctx context.Context) error { return s.withdrawal().markAll(ctx, marked, nil) }); err != nil {
		t.Fatal(err)
	}
	session, err := s.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	if err := session.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot())); err != nil {
		t.Fatal(err)
	}
	held := driver.NewSessionContext(t.Context(), session)
	if r, err := s.messages.DeleteOne(held, target{key: all[0].Key, execution: 1000}.shardKey()); err != nil || r.DeletedCount != 1 {
		t.Fatalf("DeleteOne: %+v, %v", r, err)
	}
	claim := func(number uint64) (ids []string, left bucket.Position) {
		r := s.Claim(t.Context(), []store.Claim{{
			Bucket: 1, Claim: bucket.Claim{Token: 1, Number: number, To: bucket.UpTo(1000)}, Scan: store.Scan{Limit: 100, BytesMax: 1000},
		}})[0]
		if r.Err != nil || !r.Complete {
			t.Fatalf("Claim: %+v", r)
		}
		for _, due := range r.Due {
			ids = append(ids, due.ScheduleID)
		}
		return ids, r.LeftOut
	}
	got, left := claim(1)
	if slices.Contains(got, all[0].ScheduleID) || !slices.Contains(got, all[1].ScheduleID) || !slices.Contains(got, last.ScheduleID) {
		t.Errorf("beside %q, which is held, %q are due", all[0].ScheduleID, got)
	}
	if want := bucket.PositionOf(all[0].Key, 1000); left != want {
		t.Errorf("the claim says that it left out %v, want %v: the checkpoint would pass it", left, want)
	}
	// That one is not tried again immediately; those with its mark that had no try have theirs.
	kept := maps.Clone(s.kept.until)
	if got, left := claim(2); len(got) != len(all)-1 || slices.Contains(got, all[0].ScheduleID) || left == (bucket.Position{}) {
		t.Errorf("right after that %q are due, and left out is %v", got, left)
	}
	if len(kept) != 1 || !maps.Equal(kept, s.kept.until) {
		t.Errorf("kept is %v after the first claim and %v after the second one, want the same message, tried once", kept, s.kept.until)
	}
	if err := session.AbortTransaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kept.until = nil // the pause is over
	got, left = claim(3)
	if len(got) != len(all) || left != (bucket.Position{}) {
		t.Errorf("when it is not held any more, %q are due, and left out is %v, want all %d", got, left, len(all))
	}
}

// TestTakenIDsInABatch: taken ids make a batch take one more transaction, however many they
// are.
func TestTakenIDsInABatch(t *testing.T) {
	c, _ := behindRouter(t)
	var commits atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "commitTransaction" {
			commits.Add(1)
		}
	}}
	s, err := OpenWatched(t.Context(), c, monitor)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all []postdate.Message
	for i := range 60 {
		all = append(all, postdate.Message{Key: bucket.KeyOf("default", fmt.Sprint("m", i), 8), Channel: "inbox:a", ExecutionTime: 1000})
	}
	s.Insert(t.Context(), all[20:25])
	commits.Store(0)
	for i, r := range s.Insert(t.Context(), all) {
		if taken := i >= 20 && i < 25; r.Err != nil || r.Created == taken {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if n := commits.Load(); n != 1 {
		t.Errorf("it took %d transactions that were committed, want 1", n)
	}
}

// wantRefused expects that a store cannot be opened, with these words in the error.
func wantRefused(t *testing.T, c Config, words ...string) {
	t.Helper()
	s, err := Open(t.Context(), c)
	if err == nil {
		s.Close()
		t.Fatalf("it was opened; want %q", words)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("it says %q, and not %q", err, w)
		}
	}
}

// TestShardKeys: stores sharded by another key or made elsewhere are refused.
func TestShardKeys(t *testing.T) {
	opened := func(t *testing.T, c Config) {
		t.Helper()
		s, err := Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	namespace := func(c Config, collection string) string {
		return c.URI[strings.LastIndex(c.URI, "/")+1:] + "." + collection
	}
	t.Run("another key of the messages", func(t *testing.T) {
		c, r := behindRouter(t)
		r.Shard(namespace(c, "messages"), doc("bucket", 1))
		wantRefused(t, c, "messages is sharded by", "must be by", "hashed")
	})
	t.Run("another key of the registry", func(t *testing.T) {
		c, r := behindRouter(t)
		r.Shard(namespace(c, "registry"), doc("_id", 1))
		wantRefused(t, c, "registry is sharded by")
	})
	t.Run("an old mongos", func(t *testing.T) {
		c, r := behindRouter(t)
		r.Version(5, 0, 31, 0)
		wantRefused(t, c, "needs MongoDB 6.0 or later")
	})
	t.Run("sharding is not enabled", func(t *testing.T) {
		c, r := behindRouter(t)
		r.NotEnabled()
		wantRefused(t, c, "cannot be sharded", "sharding not enabled")
		if r.Key(namespace(c, "messages")) != nil {
			t.Error("it is sharded all the same")
		}
	})
	t.Run("who may not look", func(t *testing.T) {
		c, r := behindRouter(t)
		opened(t, c)
		r.DenyConfig()
		opened(t, c) // somebody who may has looked
		d, r := behindRouter(t)
		r.DenyConfig()
		wantRefused(t, d, "store init", "clusterManager")
	})
	t.Run("made on a replica set, or behind a mongos", func(t *testing.T) {
		uri := mongotest.Fresh(t)
		r := routertest.Start(t, uri)
		c := DefaultConfig(uri)
		c.Buckets = 8
		opened(t, c)
		c.URI = r.URI()
		wantRefused(t, c, "made on a replica set", "store init")
		uri = mongotest.Fresh(t)
		c.URI = routertest.Start(t, uri).URI()
		opened(t, c)
		opened(t, c)
		c.URI = uri
		wantRefused(t, c, "leads past the mongos")
	})
}

// TestAMessageThatMoves looks for a message while it moves from one shard to another: a read
// that finds it on neither looks again, because its id is taken.
func TestAMessageThatMoves(t *testing.T) {
	c, _ := behindRouter(t)
	m := postdate.Message{Key: bucket.KeyOf("default", "m", 8), Channel: "inbox:a", ExecutionTime: 1000}
	var moving atomic.Bool
	var arrive func()
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if on, _ := e.Command.Lookup("find").StringValueOK(); on == "registry" && moving.CompareAndSwap(true, false) {
			arrive()
		}
	}}
	s, err := OpenWatched(t.Context(), c, monitor)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := s.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	leave := func() {
		t.Helper()
		var d document
		if err := s.messages.FindOneAndDelete(t.Context(), target{key: m.Key, execution: 1000}.shardKey()).Decode(&d); err != nil {
			t.Fatal(err)
		}
		arrive = func() {
			if _, err := s.messages.InsertOne(t.Context(), &d); err != nil {
				t.Error(err)
			}
		}
		moving.Store(true)
	}
	leave()
	if _, err := s.Get(t.Context(), m.Key); err != nil {
		t.Errorf("Get: %v", err)
	}
	leave()
	if r := s.Cancel(t.Context(), []postdate.Key{m.Key}, 5)[0]; r.Err != nil {
		t.Errorf("Cancel: %v", r.Err)
	}
	other := postdate.Key{Bucket: m.Bucket, Tenant: "default", ScheduleID: "never"}
	if _, err := s.Get(t.Context(), other); postdate.KindOf(err) != postdate.KindNotFound {
		t.Errorf("Get of what was never scheduled: %v", err)
	}
}
