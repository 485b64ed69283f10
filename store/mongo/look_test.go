package mongo_test

import (
	"context"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// examined counts the documents that the finds in a collection examine, by explaining
// each right before it runs.
type examined struct {
	t  *testing.T
	db *driver.Database

	finds, documents map[string]*atomic.Int64 // by collection
}

func (x *examined) see(_ context.Context, e *event.CommandStartedEvent) {
	collection, _ := e.Command.Lookup("find").StringValueOK()
	if x.finds[collection] == nil {
		return
	}
	x.finds[collection].Add(1)
	var answer bson.Raw
	command := bson.D{{Key: "explain", Value: bare(e.Command)}, {Key: "verbosity", Value: "executionStats"}}
	if err := x.db.RunCommand(context.Background(), command).Decode(&answer); err != nil {
		x.t.Errorf("explaining %v: %v", e.Command, err)
	}
	walk("", answer, func(in, name string, v bson.RawValue) {
		if n, ok := v.AsInt64OK(); ok && in == "executionStats" && name == "totalDocsExamined" {
			x.documents[collection].Add(n)
		}
	})
}

// A look examines the leases and the partition records that it names, whatever was claimed
// meanwhile. If it names none, it does not query the collection.
func TestALookExaminesWhatItNames(t *testing.T) {
	uri := mongotest.Fresh(t)
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	x := &examined{t: t, db: client.Database(databaseOf(t, uri)), finds: map[string]*atomic.Int64{}, documents: map[string]*atomic.Int64{}}
	for _, collection := range []string{"partitions", "leases"} {
		x.finds[collection], x.documents[collection] = new(atomic.Int64), new(atomic.Int64)
	}
	s := openWatched(t, config(uri), &event.CommandMonitor{Started: x.see})
	defer s.Close()
	e := explained{t: t, s: s, x: &explainer{t: t}, now: 1_900_000_000_000}
	e.fill()
	for _, lease := range []string{"a/1", "b/1", "c/1"} {
		if _, err := s.Renew(t.Context(), bucket.Lease{ID: lease, Renewals: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, look := range [][]int{nil, {3}, {6, 1, 4}, allOf(s)} {
		for _, n := range []*atomic.Int64{x.finds["partitions"], x.documents["partitions"], x.finds["leases"], x.documents["leases"]} {
			n.Store(0)
		}
		records, leases, err := s.Look(t.Context(), look)
		if err != nil || len(records) != len(look) || len(leases) != 3 {
			t.Fatalf("a look at %v: %+v, %+v, %v", look, records, leases, err)
		}
		if finds, n := x.finds["partitions"].Load(), x.documents["partitions"].Load(); finds != int64(min(len(look), 1)) || n != int64(len(look)) {
			t.Errorf("a look at %v asks for partition records %d times, and %d are examined", look, finds, n)
		}
		if finds, n := x.finds["leases"].Load(), x.documents["leases"].Load(); finds != 1 || n != 3 {
			t.Errorf("a look at %v asks for leases %d times, and %d are examined", look, finds, n)
		}
	}
}
