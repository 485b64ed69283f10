package mongo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// acquireAll takes every bucket of a store, whose tokens are 1 then.
func acquireAll(t testing.TB, s *mongo.Store) {
	t.Helper()
	for b := range s.Buckets() {
		if got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}}); err != nil || !got[0].OK {
			t.Fatalf("Acquire: %+v, %v", got, err)
		}
	}
}

// database connects to the server of a store as somebody else.
func database(t *testing.T, uri string) *driver.Database {
	t.Helper()
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Disconnect(context.Background()) })
	return client.Database(databaseOf(t, uri))
}

// recordOf is a bucket's record.
func recordOf(t testing.TB, s store.Store, b int) bucket.Partition {
	t.Helper()
	found, _, err := s.Look(t.Context(), []int{b})
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

// oddChannels have names that no field could have.
var oddChannels = []postdate.Channel{"inbox:a", "inbox:$a.b", "rabbitmq:$x/y..z", "https://example.org/a?b=$1&c.d", "$", "inbox:ä\u00a0"}

// TestClaimsAsTheRule makes claims of all kinds, including late and repeated ones: the store's
// record is always that of bucket.Partition.Claim.
func TestClaimsAsTheRule(t *testing.T) {
	uri := mongotest.Fresh(t)
	s := open(t, config(uri))
	defer s.Close()
	acquireAll(t, s)
	n := s.Buckets()
	model := make([]bucket.Partition, n)
	for b := range model {
		first := store.Claim{Bucket: b, Claim: bucket.Claim{Token: 1, Number: 1, To: bucket.UpTo(19)}, Scan: store.Scan{Limit: 10, BytesMax: 1000}}
		if got := s.Claim(t.Context(), []store.Claim{first})[0]; got.Err != nil {
			t.Fatal(got.Err)
		}
		model[b] = recordOf(t, s, b)
	}
	r := testrun.Random(t)
	place := func() bucket.Position {
		at := bucket.Position{Time: postdate.Time(10 + r.IntN(20))}
		if r.IntN(3) > 0 {
			at.Tenant, at.ScheduleID = []string{"a", "ab", "ü"}[r.IntN(3)], []string{"", "b", "B", "é", "$b.c"}[r.IntN(5)]
		}
		return at
	}
	for range 60 {
		claims := make([]store.Claim, n)
		for b := range claims {
			c := bucket.Claim{Token: 1, Number: model[b].Claims + uint64(r.IntN(4)), Checkpoint: postdate.Time(r.IntN(10)), To: place()}
			if c.Number += 1; c.Number > 2 && r.IntN(2) == 0 {
				c.Number -= 2 // late, or a repetition
			}
			for _, channel := range oddChannels {
				if r.IntN(4) == 0 {
					if c.Behind == nil {
						c.Behind = map[postdate.Route]bucket.Position{}
					}
					if c.Behind[postdate.Route(channel)] = place(); r.IntN(3) == 0 {
						c.Only = postdate.Route(channel)
					}
				}
			}
			c.Token += uint64(r.IntN(20) / 19)
			claims[b] = store.Claim{Bucket: b, Claim: c, Scan: store.Scan{Limit: 10, BytesMax: 1000}}
		}
		for b, got := range s.Claim(t.Context(), claims) {
			next, err := model[b].Claim(claims[b].Claim)
			if postdate.KindOf(err) != postdate.KindOf(got.Err) || (err == nil) != (got.Err == nil) {
				t.Fatalf("%+v on %+v: %v, want %v", claims[b], model[b], got.Err, err)
			}
			if record := recordOf(t, s, b); !record.Equal(next) {
				t.Fatalf("%+v on\n%+v makes\n%+v, want\n%+v", claims[b], model[b], record, next)
			}
			model[b] = next
		}
	}
}

// steps notes the names of a store's commands on messages and partition records, and
// calls before where one begins.
type steps struct {
	mu     sync.Mutex
	names  []string
	before func(name string)
}

func (x *steps) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		on, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		if on != "messages" && on != "partitions" {
			return
		}
		name := e.CommandName + " " + on
		x.mu.Lock()
		x.names = append(x.names, name)
		before := x.before
		x.mu.Unlock()
		if before != nil {
			before(name)
		}
	}}
}

// reset forgets what was noted, and has before called from now on.
func (x *steps) reset(before func(name string)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.names, x.before = nil, before
}

// want expects what a claim sends, in any order.
func (x *steps) want(t *testing.T, what string, names ...string) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	slices.Sort(names)
	slices.Sort(x.names)
	if !slices.Equal(x.names, names) {
		t.Errorf("%s sends %q, want %q", what, x.names, names)
	}
}

const (
	toFind  = "find messages"
	toWrite = "update partitions"
	toCheck = "find partitions"
)

// claimer claims all buckets of a store up to a time again and again.
type claimer struct {
	t      *testing.T
	s      *mongo.Store
	number uint64
	limit  int
	ifDue  bool
}

func (c *claimer) claim(to postdate.Time) (due []postdate.Record, results []store.ClaimResult) {
	c.t.Helper()
	c.number++
	var claims []store.Claim
	for b := range c.s.Buckets() {
		claims = append(claims, store.Claim{Bucket: b, IfDue: c.ifDue, Claim: bucket.Claim{Token: 1, Number: c.number, To: bucket.UpTo(to)},
			Scan: store.Scan{Limit: c.limit, BytesMax: 1 << 20}})
	}
	results = c.s.Claim(c.t.Context(), claims)
	for _, r := range results {
		if r.Err != nil {
			c.t.Fatal(r.Err)
		}
		due = append(due, r.Due...)
	}
	return due, results
}

// watched is a store whose commands are noted, its owner, and clients elsewhere.
type watched struct {
	claimer
	*steps
	others *mongo.Store
}

func newWatched(t *testing.T) *watched {
	uri := mongotest.Fresh(t)
	w := &watched{steps: &steps{}, others: open(t, config(uri))}
	w.claimer = claimer{t: t, s: openWatched(t, config(uri), w.monitor()), limit: 10}
	t.Cleanup(func() { w.s.Close(); w.others.Close() })
	acquireAll(t, w.s)
	return w
}

func (w *watched) insert(id string, at postdate.Time) postdate.Message {
	m := testMessage(id, w.s.Buckets(), at)
	if r := w.others.Insert(w.t.Context(), []postdate.Message{m})[0]; r.Err != nil {
		w.t.Error(r.Err)
	}
	return m
}

func (w *watched) cancel(m postdate.Message) error {
	return w.others.Cancel(w.t.Context(), []postdate.Key{m.Key}, 1)[0].Err
}

// TestWhatAClaimSends counts the commands of a round of all buckets.
func TestWhatAClaimSends(t *testing.T) {
	w := newWatched(t)
	later := w.insert("later", 5000)
	w.reset(nil)
	due, results := w.claim(1000)
	w.want(t, "a quiet round", toFind, toWrite, toFind)
	if r := results[later.Bucket]; len(due) > 0 || !r.Complete || r.Next != 5000 {
		t.Errorf("a quiet round finds %d messages, and %+v", len(due), r)
	}

	w.ifDue = true
	w.reset(nil)
	_, results = w.claim(1100)
	w.want(t, "a round in which nothing has to be written", toFind, toFind)
	for b, r := range results {
		want := store.ClaimResult{Ended: bucket.UpTo(1100), Complete: true, Next: postdate.Far}
		if b == later.Bucket {
			want.Next = 5000
		}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("a round in which nothing has to be written says %+v, want %+v", r, want)
		}
		if record := recordOf(t, w.s, b); record.Claimed != bucket.UpTo(1000) || record.Claims != 1 {
			t.Errorf("nothing had to be written, and the record is %+v", record)
		}
	}

	ready := w.insert("ready", 1500)
	w.reset(nil)
	due, results = w.claim(2000)
	if len(due) != 1 || results[later.Bucket].Next != 5000 || results[ready.Bucket].To != bucket.UpTo(2000) {
		t.Errorf("what is due is read as %v, %+v", due, results)
	}
	w.ifDue = false
	w.reset(nil)
	w.claim(2000)
	w.want(t, "a busy round", toFind, toWrite, toFind, toFind)
}

// TestWhatComesAndGoesDuringAClaim lets messages come and go between look and write.
func TestWhatComesAndGoesDuringAClaim(t *testing.T) {
	w := newWatched(t)
	later := w.insert("later", 5000)
	var came postdate.Message
	w.reset(func(name string) {
		if name == toWrite {
			came = w.insert("came", 1500)
		}
	})
	due, results := w.claim(2000)
	w.want(t, "a round in which something comes", toFind, toWrite, toFind, toFind, toFind)
	if len(due) != 1 || due[0].ScheduleID != "came" || results[later.Bucket].Next != 5000 {
		t.Errorf("what came after the look was claimed, and the read returns %v, %+v", due, results[later.Bucket])
	}
	if err := w.cancel(came); postdate.KindOf(err) != postdate.KindTooLate {
		t.Errorf("a cancel of what was handed out: %v", err)
	}

	gone := w.insert("gone", 2500)
	w.reset(func(name string) {
		if name == toWrite {
			if err := w.cancel(gone); err != nil {
				t.Errorf("a cancel after the look, before the claim: %v", err)
			}
		}
	})
	due, _ = w.claim(3000)
	if slices.ContainsFunc(due, func(r postdate.Record) bool { return r.ScheduleID == "gone" }) {
		t.Error("a cancel answered nil, and the claim's read returns the message")
	}
}

// TestClaimWhoseAnswerWasLost loses the answer to the claim's write: the write is repeated, and
// finds the claim written.
func TestClaimWhoseAnswerWasLost(t *testing.T) {
	set := mongotest.Start(t, 1)
	x := &steps{}
	s := openWatched(t, config(set.Fresh()+soon), x.monitor())
	defer s.Close()
	acquireAll(t, s)
	var all []postdate.Message
	for i := range 40 {
		all = append(all, testMessage(fmt.Sprintf("m%02d", i), s.Buckets(), 1000))
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	loseAnAnswer(set)
	x.reset(nil)
	owner := claimer{t: t, s: s, limit: 2}
	due, results := owner.claim(2000)
	if written := slices.DeleteFunc(x.names, func(name string) bool { return name == toFind }); !slices.Equal(written, []string{toWrite, toWrite, toCheck}) {
		t.Errorf("the claim was written and looked at by %q", written)
	}
	if want := 2 * s.Buckets(); len(due) != want {
		t.Errorf("it returns %d messages, want %d", len(due), want)
	}
	for b, r := range results {
		if record := recordOf(t, s, b); record.Claimed != r.To || r.Ended != r.To || r.Complete {
			t.Errorf("it says %+v, and the record %+v", r, record)
		}
	}
}

// TestManyRanges reads as many buckets as share a command, each of which begins and ends within
// a millisecond: the server examines no more than it returns.
func TestManyRanges(t *testing.T) {
	uri := mongotest.Fresh(t)
	x := &explainer{t: t, db: database(t, uri)}
	c := config(uri)
	c.Buckets = 128
	s := openWatched(t, c, onMessages(x.see))
	defer s.Close()
	acquireAll(t, s)
	var all []postdate.Message
	byBucket := map[int][]postdate.Message{}
	for i := 0; len(byBucket) < c.Buckets || i < 2000; i++ {
		m := testMessage(fmt.Sprintf("m%05d", i), c.Buckets, 1000+postdate.Time(rand.IntN(6)))
		byBucket[m.Bucket] = append(byBucket[m.Bucket], m)
		all = append(all, m)
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	claims := make([]store.Claim, c.Buckets)
	want := 0
	for b := range claims {
		places := []bucket.Position{}
		for _, m := range byBucket[b] {
			places = append(places, bucket.PositionOf(m.Key, m.ExecutionTime))
		}
		slices.SortFunc(places, bucket.Position.Compare)
		last := places[len(places)-1]
		claims[b] = store.Claim{Bucket: b, Claim: bucket.Claim{Token: 1, Number: 1, To: last}, Scan: store.Scan{After: places[0], Limit: 500, BytesMax: 1 << 20}}
		want += len(places) - 1
	}
	x.mu.Lock()
	x.on = true
	x.mu.Unlock()
	found := 0
	for _, r := range s.Claim(t.Context(), claims) {
		if r.Err != nil || !r.Complete {
			t.Fatalf("%+v", r)
		}
		found += len(r.Due)
	}
	if found != want {
		t.Errorf("%d messages were found, want %d", found, want)
	}
}
