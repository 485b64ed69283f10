package mongo

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// filled is a store with messages in every state, claims and an inbox, and what it answers
// about them.
type filled struct {
	t    *testing.T
	c    Config
	keys []postdate.Key
	want []string
}

const filledNow = postdate.Time(1_900_000_000_000)

func fill(t *testing.T, uri string) *filled {
	f := &filled{t: t, c: DefaultConfig(uri)}
	f.c.Buckets, f.c.Log = 8, slog.New(slog.DiscardHandler)
	s := f.open()
	var all []postdate.Message
	for i := range 30 {
		m := postdate.Message{
			Key: bucket.KeyOf("default", fmt.Sprint("m", i), 8), Channel: "inbox:a", ExecutionTime: filledNow + postdate.Time(i),
			CreatedAt: filledNow - 1000, Payload: []byte("{}"),
		}
		if i%2 == 0 {
			m.ExpiresAt = filledNow + 100_000
		}
		m.Digest = postdate.DigestOf(&m, "")
		all, f.keys = append(all, m), append(f.keys, m.Key)
	}
	for _, r := range s.Insert(t.Context(), all) {
		f.must(r.Err)
	}
	var settle []store.Settlement
	for b := range 8 {
		got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}})
		f.must(err)
		r := s.Claim(t.Context(), []store.Claim{{
			Bucket: b, Scan: store.Scan{Limit: 3, BytesMax: 1000},
			Claim: bucket.Claim{
				Token: got[0].Partition.Token, Number: 1, Checkpoint: filledNow - 5, To: bucket.UpTo(filledNow + 20),
				Behind: map[postdate.Route]bucket.Position{"inbox:b": {Time: filledNow, ScheduleID: "x"}},
			},
		}})[0]
		f.must(r.Err)
		for i, due := range r.Due {
			settle = append(settle, store.Settlement{
				Key: due.Key, ExecutionTime: due.ExecutionTime, Version: due.Version, Token: 1, At: filledNow + 7, AttemptTime: filledNow + 5000,
				DownSince: filledNow, Attempts: 1, How: []store.Settling{store.SettleDelivered, store.SettleRetry, store.SettlePark}[i%3],
			})
		}
	}
	f.must(s.Settle(t.Context(), settle))
	f.must(s.AppendInbox(t.Context(), []store.InboxMessage{
		{Tenant: "default", Inbox: "a", ScheduleID: "1", ExecutionTime: filledNow, DeliveredAt: filledNow + 1, Payload: []byte("1")},
		{Tenant: "default", Inbox: "a", ScheduleID: "2", ExecutionTime: filledNow, DeliveredAt: filledNow + 2, Payload: []byte("2")},
	}))
	f.want = f.answers(s)
	f.must(s.Close())
	return f
}

func (f *filled) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *filled) open() *Store {
	f.t.Helper()
	s, err := Open(f.t.Context(), f.c)
	f.must(err)
	return s
}

// answers is all that a store says of what was filled in.
func (f *filled) answers(s *Store) (all []string) {
	f.t.Helper()
	ctx := f.t.Context()
	for _, key := range f.keys {
		rec, err := s.Get(ctx, key)
		f.must(err)
		all = append(all, fmt.Sprintf("%+v", rec))
	}
	page, err := s.List(ctx, store.ListQuery{Tenant: "default", Limit: 100})
	f.must(err)
	all = append(all, fmt.Sprintf("%+v", page))
	letters, _, err := s.ReadInbox(ctx, "default", "a", "", 10)
	f.must(err)
	all = append(all, fmt.Sprintf("%+v", letters))
	for b := range 8 {
		records, _, err := s.Look(ctx, []int{b})
		f.must(err)
		all = append(all, fmt.Sprintf("%+v", records))
	}
	return all
}

// same holds what a store says against what it said before.
func (f *filled) same(s *Store) {
	f.t.Helper()
	for i, got := range f.answers(s) {
		if got != f.want[i] {
			f.t.Errorf("it says\n%s, and said\n%s", got, f.want[i])
		}
	}
}

// registered wants every id in the registry.
func (f *filled) registered(s *Store) {
	f.t.Helper()
	if n, err := s.registry.CountDocuments(f.t.Context(), doc()); n != int64(len(f.keys)) || err != nil {
		f.t.Errorf("%d ids are registered, %v; want %d", n, err, len(f.keys))
	}
}

// old makes the store one of an earlier layout: 1 and 2 had numbers for dates.
func (f *filled) old(layout int) {
	f.t.Helper()
	s := f.open()
	defer s.Close()
	ctx := f.t.Context()
	if layout >= layoutDates {
		_, err := s.births().UpdateOne(ctx, doc(), bson.A{doc("$set", doc("layout", layout))})
		f.must(err)
		return
	}
	if layout == 1 { // it claimed whole milliseconds
		_, err := s.partitions.UpdateMany(ctx, doc(), doc("$set", doc("claimed.id", "")))
		f.must(err)
		f.want = f.answers(s)
	}
	number := func(field string) bson.D {
		return doc("$cond", bson.A{doc("$eq", bson.A{doc("$type", field), "date"}), doc("$toLong", field), field})
	}
	fields := bson.D{}
	for _, name := range []string{"executionTime", "attemptTime", "due", "downSince", "settledAt", "expiresAt", "createdAt"} {
		fields = append(fields, bson.E{Key: name, Value: number("$" + name)})
	}
	_, err := s.messages.UpdateMany(ctx, doc(), bson.A{doc("$set", fields)})
	f.must(err)
	letter := doc("$mergeObjects", bson.A{"$$m", doc("at", number("$$m.at"), "executionTime", number("$$m.executionTime"))})
	_, err = s.inboxes.UpdateMany(ctx, doc(), bson.A{doc("$set", doc("oldest", number("$oldest"),
		"messages", doc("$map", doc("input", "$messages", "as", "m", "in", letter))))})
	f.must(err)
	claimed := any(doc("t", number("$claimed.t"), "id", "$claimed.id"))
	if layout == 1 { // the whole of the millisecond before
		claimed = doc("$subtract", bson.A{number("$claimed.t"), 1})
	}
	_, err = s.partitions.UpdateMany(ctx, doc(), bson.A{doc("$set", doc("checkpoint", number("$checkpoint"), "claimed", claimed,
		"behind", doc("$map", doc("input", "$behind", "as", "b", "in", doc("channel", "$$b.channel", "to", doc("t", number("$$b.to.t"), "id", "$$b.to.id"))))))})
	f.must(err)
	_, err = s.births().UpdateOne(ctx, doc(), bson.A{doc("$set", doc("layout", layout)), doc("$unset", "sharded")})
	f.must(err)
	if n, err := s.messages.CountDocuments(ctx, doc("executionTime", doc("$type", "date"))); n != 0 || err != nil {
		f.t.Fatalf("%d messages have dates, %v", n, err)
	}
}

func (f *filled) refused(words string) {
	f.t.Helper()
	s, err := Open(f.t.Context(), f.c)
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), words) {
		f.t.Errorf("opening it: %v; want %q", err, words)
	}
}

// TestConvert converts stores of all earlier layouts: their answers stay the same.
func TestConvert(t *testing.T) {
	for layout := 1; layout <= 5; layout++ {
		t.Run(fmt.Sprint("layout ", layout), func(t *testing.T) {
			f := fill(t, mongotest.Fresh(t))
			f.old(layout)
			f.refused("store init")
			for range 2 { // the second time nothing is left to do
				f.must(Convert(t.Context(), f.c))
				s := f.open()
				f.same(s)
				f.must(s.Close())
			}
		})
	}
}

// TestConvertIsInterrupted stops a conversion at each of its commands, and continues it.
func TestConvertIsInterrupted(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.old(2)
	f.c.URI = routertest.Start(t, uri).URI()
	for left := 0; ; left++ {
		ctx, cancel := context.WithCancel(t.Context())
		count := left
		stopped := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if count--; count < 0 {
				cancel()
			}
		}}
		err := convertWatched(ctx, f.c, stopped)
		cancel()
		if err == nil {
			break
		}
		if left > 100 {
			t.Fatalf("it never comes to its end: %v", err)
		}
	}
	s := f.open()
	defer s.Close()
	f.same(s)
	f.registered(s)
}

// TestConvertToSharded puts a store that was made on a replica set behind a mongos: its answers
// stay the same, and its ids are taken.
func TestConvertToSharded(t *testing.T) {
	for _, layout := range []int{1, 3, 4, 5, 6} {
		t.Run(fmt.Sprint("layout ", layout), func(t *testing.T) {
			uri := mongotest.Fresh(t)
			f := fill(t, uri)
			if layout < 6 {
				f.old(layout)
			}
			f.c.URI = routertest.Start(t, uri).URI()
			f.refused("store init")
			f.must(Convert(t.Context(), f.c))
			s := f.open()
			defer s.Close()
			f.same(s)
			f.registered(s)
			other := postdate.Message{Key: f.keys[3], Channel: "inbox:b", ExecutionTime: 5}
			other.Digest = postdate.DigestOf(&other, "")
			if r := s.Insert(t.Context(), []postdate.Message{other})[0]; postdate.KindOf(r.Err) != postdate.KindExists {
				t.Errorf("the same id again, at another time: %+v", r)
			}
			names, err := s.messages.Indexes().ListSpecifications(t.Context())
			f.must(err)
			for _, index := range names {
				if index.Name == indexDue {
					t.Error("the index that is of no use behind a mongos is still there")
				}
			}
		})
	}
}

// bare is a client of the store as it is, whatever its layout.
func (f *filled) bare(uri string) *Store {
	f.t.Helper()
	c := f.c
	c.URI = uri
	client, err := driver.Connect(clientOptions(c))
	f.must(err)
	f.t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return newStore(c, client)
}

// TestConvertBesideANode: a conversion is refused while a node may run, because its lease was
// renewed a moment ago, or is long and has not ended.
func TestConvertBesideANode(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.old(2)
	s := f.bare(uri)
	for _, node := range []struct {
		lasts, ago time.Duration
		runs       bool
	}{{time.Second, 0, true}, {time.Second, 29 * time.Second, true}, {5 * time.Minute, 4 * time.Minute, true}, {5 * time.Minute, 6 * time.Minute, false}} {
		_, err := s.Renew(t.Context(), bucket.Lease{ID: "n/1", Renewals: 1, Lasts: node.lasts})
		f.must(err)
		_, err = s.leases.UpdateOne(t.Context(), doc("_id", "n/1"), bson.A{doc("$set", doc("at", doc("$subtract", bson.A{"$$NOW", node.ago.Milliseconds()})))})
		f.must(err)
		err = Convert(t.Context(), f.c)
		if runs := err != nil && postdate.KindOf(err) == postdate.KindConflict && strings.Contains(err.Error(), "stop all nodes"); runs != node.runs {
			t.Errorf("a lease of %v that was renewed %v ago: %v", node.lasts, node.ago, err)
		}
	}
	if n, err := s.leases.CountDocuments(t.Context(), doc("_id", doc("$ne", "n/1"))); n != 0 || err != nil {
		t.Errorf("the conversion left %d leases, %v", n, err)
	}
}

// during has do run once, right before a conversion's command on a collection.
func during(command, collection string, do func()) *event.CommandMonitor {
	var once sync.Once
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if on, _ := e.Command.Lookup(command).StringValueOK(); on == collection {
			once.Do(do)
		}
	}}
}

// renewAsBefore renews a lease as layout 3 did.
func renewAsBefore(ctx context.Context, s *Store) error {
	_, err := s.leases.UpdateOne(ctx, doc("_id", "old/1"),
		bson.A{doc("$set", doc("renewals", 1, "lasts", 1000, "at", "$$NOW"))}, options.UpdateOne().SetUpsert(true))
	return err
}

// TestConvertBesideANodeThatComes: a node of an earlier version gets its lease just before such leases
// are refused. The conversion stops, and can be run again when the node has ended.
func TestConvertBesideANodeThatComes(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.old(3)
	node := f.bare(uri)
	come := func() { f.must(renewAsBefore(t.Context(), node)) }
	err := convertWatched(t.Context(), f.c, during("update", "birth", come))
	if postdate.KindOf(err) != postdate.KindConflict || !strings.Contains(err.Error(), "old/1") {
		t.Errorf("beside a node: %v", err)
	}
	f.refused("store init")
	_, err = node.leases.DeleteOne(t.Context(), doc("_id", "old/1"))
	f.must(err)
	f.must(Convert(t.Context(), f.c))
	s := f.open()
	defer s.Close()
	f.same(s)
}

// TestNoLeaseForAnEarlierVersion: a node of an earlier version reads the birth record before the
// conversion, and asks for its lease during it or later. It gets none, and so no bucket.
func TestNoLeaseForAnEarlierVersion(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.old(3)
	node := f.bare(uri)
	renew := func() {
		t.Helper()
		if err := renewAsBefore(t.Context(), node); !refused(err) {
			t.Errorf("a lease of an earlier layout: %v; want it refused", err)
		}
	}
	updates := 0
	atItsEnd := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if on, _ := e.Command.Lookup("update").StringValueOK(); on == "birth" {
			if updates++; updates == 2 { // the first says that the conversion is under way
				renew()
			}
		}
	}}
	f.must(convertWatched(t.Context(), f.c, atItsEnd))
	renew()
	s := f.open()
	defer s.Close()
	f.same(s)
	if _, err := s.Renew(t.Context(), bucket.Lease{ID: "new/1", Renewals: 1, Lasts: time.Second}); err != nil {
		t.Errorf("the lease of a new node: %v", err)
	}
}

// TestConvertBesideANodeThatLookedBefore: a node of an earlier version reads the birth record
// before the conversion, and begins to write at its end. That is refused, not acknowledged, even
// after the conversion.
func TestConvertBesideANodeThatLookedBefore(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.old(2)
	client, err := driver.Connect(clientOptions(f.c).SetRegistry(bson.NewRegistry())) // which writes times as numbers
	f.must(err)
	defer client.Disconnect(context.Background())
	node := newStore(f.c, client)
	m := postdate.Message{Key: bucket.KeyOf("default", "late", f.c.Buckets), Channel: "inbox:a", ExecutionTime: filledNow}
	st := postdate.NewState(&m, firstVersion())
	write := func() {
		t.Helper()
		if _, err := node.messages.InsertOne(t.Context(), documentOf(&m, &st)); !refused(err) {
			t.Errorf("a message with times that are numbers: %v; want it refused", err)
		}
		_, err := node.messages.UpdateOne(t.Context(), doc("_id", idOf(f.keys[0])), doc("$set", doc("settledAt", filledNow)))
		if !refused(err) {
			t.Errorf("a settlement at a time that is a number: %v; want it refused", err)
		}
	}
	f.must(convertWatched(t.Context(), f.c, during("update", "partitions", write))) // every message is converted
	write()
	s := f.open()
	defer s.Close()
	f.same(s)
}

// TestConvertAgain converts a message that an earlier run left with both dates and numbers.
func TestConvertAgain(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.old(2)
	_, err := f.bare(uri).messages.UpdateMany(t.Context(), doc(), bson.A{doc("$set", doc("executionTime", dateOf("$executionTime")))})
	f.must(err)
	f.must(Convert(t.Context(), f.c))
	s := f.open()
	defer s.Close()
	f.same(s)
}

// TestTwoConversions: one is slow between its look and its first note. Meanwhile another one
// ends, and a node may have started. The slow one changes nothing.
func TestTwoConversions(t *testing.T) {
	for _, starts := range []bool{true, false} { // it finds a lease, or another layout
		t.Run(fmt.Sprint("a node starts: ", starts), func(t *testing.T) {
			uri := mongotest.Fresh(t)
			f := fill(t, uri)
			f.old(2)
			f.c.URI = routertest.Start(t, uri).URI()
			slow := during("find", "leases", func() {
				f.must(Convert(t.Context(), f.c))
				s := f.open()
				defer s.Close()
				if starts {
					_, err := s.Renew(t.Context(), bucket.Lease{ID: "a", Renewals: 1, Lasts: time.Second})
					f.must(err)
				}
			})
			if err := convertWatched(t.Context(), f.c, slow); postdate.KindOf(err) != postdate.KindConflict {
				t.Errorf("the slow one: %v", err)
			}
			s := f.open()
			defer s.Close()
			f.same(s)
		})
	}
}

// TestConvertPastTheMongos continues an interrupted conversion at the address of the shard:
// that is refused, and so is a node.
func TestConvertPastTheMongos(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.c.URI = routertest.Start(t, uri).URI()
	ctx, cut := context.WithCancel(t.Context())
	if err := convertWatched(ctx, f.c, during("aggregate", "messages", cut)); err == nil {
		t.Error("it was not interrupted")
	}
	direct := f.c
	direct.URI = uri
	if err := Convert(t.Context(), direct); err == nil || !strings.Contains(err.Error(), "past the mongos") {
		t.Errorf("past the mongos: %v", err)
	}
	behind := f.c
	f.c = direct
	f.refused("past the mongos")
	f.c = behind
	f.must(Convert(t.Context(), f.c))
	s := f.open()
	defer s.Close()
	f.same(s)
}

// TestConvertOfAShardedStore: a store of an earlier layout that is already sharded is refused
// and not changed, because its shard key contains times.
func TestConvertOfAShardedStore(t *testing.T) {
	uri := mongotest.Fresh(t)
	f := fill(t, uri)
	f.old(2)
	r := routertest.Start(t, uri)
	f.c.URI = r.URI()
	r.Shard(f.c.URI[strings.LastIndex(f.c.URI, "/")+1:]+".messages", messagesKey)
	if err := Convert(t.Context(), f.c); postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), "begin a new database") {
		t.Errorf("converting it: %v", err)
	}
	f.refused("layout 2")
}
