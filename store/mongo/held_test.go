package mongo

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
	"github.com/postdate/postdate/store/storetest"
)

// abandoned runs f in a transaction that is left open until the test ends, like that of a node
// that died.
func abandoned(t *testing.T, s *Store, f func(ctx context.Context) error) {
	t.Helper()
	session, err := s.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.EndSession(context.Background()) })
	if err := session.StartTransaction(options.Transaction().SetReadConcern(readconcern.Snapshot())); err != nil {
		t.Fatal(err)
	}
	if err := f(driver.NewSessionContext(t.Context(), session)); err != nil {
		t.Fatal(err)
	}
}

func dueMessage(key postdate.Key) postdate.Message {
	m := postdate.Message{Key: key, Channel: "inbox:a", ExecutionTime: 1000}
	m.Digest = postdate.DigestOf(&m, "")
	return m
}

// TestInsertBesideAHeldID: a node died after it registered an id and before its commit. Who
// schedules that id again is told to try again, and holds up nobody.
func TestInsertBesideAHeldID(t *testing.T) {
	s := openSharded(t)
	var all []postdate.Message
	for _, id := range []string{"a", "b", "held", "c", "d", "e", "f"} {
		all = append(all, dueMessage(bucket.KeyOf("default", id, s.c.Buckets)))
	}
	abandoned(t, s, func(ctx context.Context) error {
		_, err := s.registry.InsertOne(ctx, registered{idOf(all[2].Key)})
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i, r := range s.Insert(ctx, all) {
		switch {
		case i == 2 && (r.Err == nil || postdate.KindOf(r.Err) != postdate.KindUnavailable):
			t.Errorf("the one whose id is held: %+v, want KindUnavailable", r)
		case i != 2 && (r.Err != nil || !r.Created):
			t.Errorf("message %s: %+v", all[i].ScheduleID, r)
		}
	}
}

// TestOrphans: a shard has not yet removed its copy of a message that it gave away, and refuses
// another one with the same id. The client is told to try again, and nothing is changed.
func TestOrphans(t *testing.T) {
	set := mongotest.Start(t, 1)
	s, err := Open(t.Context(), DefaultConfig(routertest.Start(t, set.URI()).URI()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refusing := func(mode string) {
		set.FailCommands(mode, doc(
			"failCommands", bson.A{"insert"}, "errorCode", codeTaken,
			"errorExtraInfo", doc("keyPattern", doc("_id", 1), "keyValue", doc("_id", "a")),
			"namespace", s.messages.Database().Name()+"."+s.messages.Name(),
		))
	}
	m := dueMessage(bucket.KeyOf("default", "a", s.c.Buckets))
	later := m
	later.ExecutionTime = 2000
	defer refusing("off")
	refusing("alwaysOn")
	if r := s.Insert(t.Context(), []postdate.Message{m})[0]; r.Err == nil || postdate.KindOf(r.Err) != postdate.KindUnavailable {
		t.Errorf("Insert: %+v, want KindUnavailable", r)
	}
	refusing("off")
	if r := s.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil || !r.Created {
		t.Errorf("the next Insert: %+v", r)
	}
	rec, err := s.Get(t.Context(), m.Key)
	if err != nil {
		t.Fatal(err)
	}
	refusing("alwaysOn")
	if _, err := storetest.Replace(t.Context(), s, later, rec.Version); err == nil || postdate.KindOf(err) != postdate.KindUnavailable {
		t.Errorf("Replace: %v, want KindUnavailable", err)
	}
	refusing("off")
	if rec, err := s.Get(t.Context(), m.Key); err != nil || rec.ExecutionTime != m.ExecutionTime {
		t.Errorf("%+v, %v; want it as it was", rec.State, err)
	}
	if _, err := storetest.Replace(t.Context(), s, later, rec.Version); err != nil {
		t.Errorf("the next Replace: %v", err)
	}
}
