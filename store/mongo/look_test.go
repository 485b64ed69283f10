package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// examined counts the documents that the finds in a collection examine, and what they return, by
// explaining each right before it runs.
type examined struct {
	t  *testing.T
	db *driver.Database

	finds, documents map[string]*atomic.Int64 // by collection
	returned         atomic.Int64             // from all of these
	most             atomic.Int64             // documents that one of the finds examined
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
		n, ok := v.AsInt64OK()
		switch {
		case !ok || in != "executionStats":
		case name == "totalDocsExamined":
			x.documents[collection].Add(n)
			for most := x.most.Load(); n > most && !x.most.CompareAndSwap(most, n); most = x.most.Load() {
			}
		case name == "nReturned":
			x.returned.Add(n)
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

// examining is a store whose buckets are owned, and what its finds of messages examine.
func examining(t *testing.T) (*examined, *mongo.Store) {
	uri := mongotest.Fresh(t)
	x := &examined{t: t, db: database(t, uri), finds: map[string]*atomic.Int64{"messages": {}}, documents: map[string]*atomic.Int64{"messages": {}}}
	s := openWatched(t, config(uri), &event.CommandMonitor{Started: x.see})
	t.Cleanup(func() { s.Close() })
	acquireAll(t, s)
	return x, s
}

// A claim of one channel examines few messages more than it takes if most of what it finds is of that
// channel, and finds those that lie far behind others all the same.
func TestACatchUpExaminesFew(t *testing.T) {
	x, s := examining(t)
	var all []postdate.Message
	for i := range 900 {
		m := postdate.Message{Key: postdate.Key{Tenant: postdate.DefaultTenant, ScheduleID: fmt.Sprint(i)}, Channel: "inbox:full", ExecutionTime: postdate.Time(100 + i)}
		if i%300 == 299 {
			m.Channel = "inbox:rare"
		}
		all = append(all, m)
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	behind := map[postdate.Route]bucket.Position{"inbox:full": {}, "inbox:rare": {}}
	for i, test := range []struct {
		only postdate.Route
		want []postdate.Time
		most int64 // documents
	}{
		{"inbox:full", []postdate.Time{100, 101, 102}, 30},
		{"inbox:rare", []postdate.Time{399, 699, 999}, 1_900}, // a second look and the read go over all
	} {
		// The first claim moves the bucket's claimed, and takes nothing.
		for n, only := range []postdate.Route{"", test.only} {
			x.documents["messages"].Store(0)
			c := store.Claim{Bucket: 0, Claim: bucket.Claim{Token: 1, Number: uint64(2*i + n + 1), To: bucket.UpTo(2_000), Only: only, Behind: behind},
				Scan: store.Scan{Limit: 3, BytesMax: 1 << 20}}
			r := s.Claim(t.Context(), []store.Claim{c})[0]
			var got []postdate.Time
			for _, rec := range r.Due {
				got = append(got, rec.ExecutionTime)
			}
			if only != "" && !slices.Equal(got, test.want) || only == "" && len(got) > 0 || r.Err != nil {
				t.Errorf("a claim of %q finds %v (%v)", only, got, r.Err)
			}
		}
		if n := x.documents["messages"].Load(); n > test.most {
			t.Errorf("a claim of %s examines %d messages, want at most %d", test.only, n, test.most)
		}
	}
}

// A sweep over a backlog brings little of it to the node, neither in its look nor in its read, goes over a
// thousand at a time, and takes what lies before it, among it and behind it.
func TestASweepLeavesABacklog(t *testing.T) {
	x, s := examining(t)
	const n = 2_500 // several looks
	all := make([]postdate.Message, n)
	var want []postdate.Time
	for i := range all {
		at := postdate.Time(100 + i)
		all[i] = postdate.Message{Key: postdate.Key{Tenant: "b", ScheduleID: fmt.Sprint(i)}, Channel: "inbox:full", ExecutionTime: at}
		if i%500 == 499 {
			all[i].Tenant = "a"
		}
		if i < 3 || i%500 == 499 {
			want = append(want, at)
		}
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	route, tenant, place := postdate.RouteOf("b", "inbox:full"), postdate.AllOf("b"), bucket.UpTo(102)
	c := store.Claim{Bucket: 0, Claim: bucket.Claim{Token: 1, To: bucket.UpTo(5_000)}, Scan: store.Scan{Limit: 100, BytesMax: 1 << 20}}
	for _, behind := range []map[postdate.Route]bucket.Position{
		{route: place}, {tenant: place}, {route: place, tenant: bucket.UpTo(3_000)},
		{tenant: place, postdate.RouteOf("b", "inbox:other"): {}},
	} {
		x.returned.Store(0)
		x.most.Store(0)
		c.Behind, c.Scan.After = behind, bucket.Position{}
		var got []postdate.Time
		for done := false; !done; {
			c.Number++
			r := s.Claim(t.Context(), []store.Claim{c})[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			for _, rec := range r.Due {
				got = append(got, rec.ExecutionTime)
			}
			done, c.Scan.After = r.Complete, r.Ended
		}
		if !slices.Equal(got, want) {
			t.Errorf("behind %v: the sweep finds %v, want %v", behind, got, want)
		}
		if got := x.returned.Load(); got > 100 {
			t.Errorf("behind %v: a sweep over %d messages brings %d to the node, want 100 at most", behind, n, got)
		}
		if got := x.most.Load(); got > 1_200 {
			t.Errorf("behind %v: a find of a sweep goes over %d messages, want 1,200 at most", behind, got)
		}
	}
}
