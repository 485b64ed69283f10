package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	"github.com/postdate/postdate/store/mongo/routertest"
	"github.com/postdate/postdate/store/storetest"
)

// statement is one question to the server about messages: a find, an aggregate, or
// one of the statements of an update or a delete.
type statement struct {
	command string
	filter  bson.Raw
	hint    string
	covered bool   // it asks for what lies in the due index, and for nothing else
	skip    int64  // messages
	explain bson.D // the command that explains it
}

// statementsOf takes a command apart. It knows every command that may touch
// messages; an unknown one is an error.
func statementsOf(command bson.Raw) (all []statement, err error) {
	elements, err := command.Elements()
	if err != nil {
		return nil, err
	}
	name := elements[0].Key()
	collection := elements[0].Value().StringValue()
	text := func(r bson.Raw, key string) string { s, _ := r.Lookup(key).StringValueOK(); return s }
	switch name {
	case "insert", "createIndexes", "drop", "listIndexes", "killCursors":
		return nil, nil
	case "find":
		filter, _ := command.Lookup("filter").DocumentOK()
		_, channelErr := command.LookupErr("projection", "channel")
		_, dueErr := command.LookupErr("projection", "due")
		skip, _ := command.Lookup("skip").AsInt64OK()
		return []statement{{name, filter, text(command, "hint"), channelErr != nil && dueErr == nil, skip, bare(command)}}, nil
	case "aggregate":
		stages, err := command.Lookup("pipeline").Array().Values()
		if err != nil || len(stages) == 0 {
			return nil, fmt.Errorf("an aggregate without stages: %v", err)
		}
		match, _ := stages[0].Document().Lookup("$match").DocumentOK()
		return []statement{{name, match, text(command, "hint"), false, 0, bare(command)}}, nil
	case "update", "delete":
		list := map[string]string{"update": "updates", "delete": "deletes"}[name]
		values, err := command.Lookup(list).Array().Values()
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			d := v.Document()
			all = append(all, statement{name, d.Lookup("q").Document(), text(d, "hint"), false, 0,
				bson.D{{Key: name, Value: collection}, {Key: list, Value: bson.A{d}}}})
		}
		return all, nil
	}
	return nil, fmt.Errorf("the command %s is not known to this test", name)
}

// bare is a command without what belongs to its session.
func bare(command bson.Raw) (d bson.D) {
	elements, _ := command.Elements()
	for _, e := range elements {
		if !slices.Contains([]string{"lsid", "txnNumber", "$clusterTime", "$db", "readConcern", "writeConcern", "maxTimeMS",
			"autocommit", "startTransaction"}, e.Key()) {
			d = append(d, bson.E{Key: e.Key(), Value: e.Value()})
		}
	}
	return d
}

// namesBucket says whether a filter names its buckets, in each of its branches.
func namesBucket(filter bson.Raw) bool {
	if _, err := filter.LookupErr("bucket"); err == nil {
		return true
	}
	branches, ok := filter.Lookup("$or").ArrayOK()
	if !ok {
		return false
	}
	values, err := branches.Values()
	return err == nil && len(values) > 0 && !slices.ContainsFunc(values, func(v bson.RawValue) bool { return !namesBucket(v.Document()) })
}

// onMessages calls f with every command on messages.
func onMessages(f func(command bson.Raw)) *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if elements, err := e.Command.Elements(); err == nil && len(elements) > 0 {
			if c, ok := elements[0].Value().StringValueOK(); ok && c == "messages" {
				f(e.Command)
			}
		}
	}}
}

// strict fails the test if a command on messages names no bucket or no index. Lists are exempt:
// they are for people, and cover all buckets.
func strict(t testing.TB) *event.CommandMonitor {
	return onMessages(func(command bson.Raw) {
		all, err := statementsOf(command)
		if err != nil {
			t.Errorf("%v: %v", err, command)
		}
		for _, s := range all {
			if s.hint == "" {
				t.Errorf("this %s leaves its index to the planner: %v", s.command, command)
			}
			if !namesBucket(s.filter) && !slices.Contains([]string{"list", "label", "series", "failed"}, s.hint) {
				t.Errorf("this %s names no bucket: %v", s.command, command)
			}
		}
	})
}

// TestStrictIsStrict shows that strict sees such a command.
func TestStrictIsStrict(t *testing.T) {
	for _, filter := range []bson.D{
		{{Key: "_id", Value: 1}},
		{{Key: "$or", Value: bson.A{bson.D{{Key: "bucket", Value: 1}}, bson.D{{Key: "_id", Value: 1}}}}},
	} {
		raw, err := bson.Marshal(filter)
		if err != nil || namesBucket(raw) {
			t.Errorf("%v is taken for one that names its buckets (%v)", filter, err)
		}
	}
}

// explainer explains each statement on messages right before it runs, and notes
// what it examines.
type explainer struct {
	t  *testing.T
	db *driver.Database

	mu    sync.Mutex
	on    bool
	count int
}

func (x *explainer) see(command bson.Raw) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.on {
		return
	}
	all, err := statementsOf(command)
	if err != nil {
		x.t.Error(err)
	}
	for _, s := range all {
		x.count++
		var answer bson.Raw
		if err := x.db.RunCommand(context.Background(), bson.D{{Key: "explain", Value: s.explain}, {Key: "verbosity", Value: "executionStats"}}).Decode(&answer); err != nil {
			x.t.Errorf("explaining %v: %v", s.explain, err)
			continue
		}
		x.check(s, answer)
	}
}

// check compares what was examined with what was asked for: the messages returned or named, and
// a step for each bucket.
func (x *explainer) check(s statement, answer bson.Raw) {
	keys, docs, returned := int64(0), int64(0), int64(0)
	walk("", answer, func(in, name string, v bson.RawValue) {
		n, ok := v.AsInt64OK()
		if !ok {
			return
		}
		switch {
		case name == "totalKeysExamined":
			keys = max(keys, n)
		case name == "totalDocsExamined":
			docs = max(docs, n)
		case in == "executionStats" && name == "nReturned", name == "nMatched", name == "nWouldDelete": // of the whole, not of a stage
			returned = max(returned, n)
		}
	})
	if s.covered && docs > 0 {
		x.t.Errorf("a %s reads %d messages for what lies in its index: %v", s.command, docs, s.filter)
	}
	asked := returned + s.skip + named(s.filter, "_id") + named(s.filter, "bucket")
	if keys > 3*asked+20 || docs > 2*asked+10 {
		x.t.Errorf("a %s examines %d keys and %d messages for %d: %v", s.command, keys, docs, asked, s.filter)
	}
}

// named counts the values that a filter names in a field.
func named(filter bson.Raw, field string) int64 {
	if in, ok := filter.Lookup(field, "$in").ArrayOK(); ok {
		values, _ := in.Values()
		return int64(len(values))
	}
	if branches, ok := filter.Lookup("$or").ArrayOK(); ok {
		values, _ := branches.Values()
		return int64(len(values))
	}
	return 1
}

// walk visits every number in a document, and what it lies in.
func walk(in string, d bson.Raw, visit func(in, name string, v bson.RawValue)) {
	elements, _ := d.Elements()
	for _, e := range elements {
		switch v := e.Value(); v.Type {
		case bson.TypeEmbeddedDocument:
			walk(e.Key(), v.Document(), visit)
		case bson.TypeArray:
			walk(e.Key(), bson.Raw(v.Array()), visit)
		default:
			visit(in, e.Key(), v)
		}
	}
}

// TestOperationsExamineWhatTheyReturn runs every operation on a store with many messages in
// every state, and explains each of its commands, as sent to a replica set and as sent to a
// mongos.
func TestOperationsExamineWhatTheyReturn(t *testing.T) {
	t.Run("replica set", func(t *testing.T) {
		uri := mongotest.Fresh(t)
		examine(t, uri, uri)
	})
	t.Run("behind a mongos", func(t *testing.T) {
		uri := mongotest.Fresh(t)
		examine(t, uri, routertest.Start(t, uri).URI())
	})
}

func examine(t *testing.T, direct, uri string) {
	client, err := driver.Connect(options.Client().ApplyURI(direct))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	x := &explainer{t: t, db: client.Database(databaseOf(t, direct))}
	s := openWatched(t, config(uri), onMessages(x.see))
	defer s.Close()
	e := explained{t: t, s: s, x: x, now: 1_900_000_000_000}
	e.fill()
	for name, operation := range e.operations() {
		before := x.count
		x.mu.Lock()
		x.on = true
		x.mu.Unlock()
		if err := operation(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		x.mu.Lock()
		x.on = false
		x.mu.Unlock()
		if x.count == before && name != "insert" {
			t.Errorf("%s: no command was explained", name)
		}
	}
}

type explained struct {
	t      *testing.T
	s      *mongo.Store
	x      *explainer
	now    postdate.Time
	all    []postdate.Message
	series []postdate.Message
	tokens []uint64
	claims []store.Claim
	number uint64 // of the latest claim
}

// fill makes 4,000 messages: a sixth each parked, delivered and cancelled, some failed, the rest
// PENDING over a long time.
func (e *explained) fill() {
	n := e.s.Buckets()
	for i := range 4000 {
		m := testMessage(fmt.Sprintf("m%05d", i), n, e.now+postdate.Time(i))
		if i%7 == 0 {
			m.Labels = []string{"a", "b"}
		}
		e.all = append(e.all, m)
	}
	for from := 0; from < len(e.all); from += 1000 {
		for _, r := range e.s.Insert(e.t.Context(), e.all[from:from+1000]) {
			if r.Err != nil {
				e.t.Fatal(r.Err)
			}
		}
	}
	for i := range 40 {
		e.series = append(e.series, seriesMessage(fmt.Sprintf("s%02d", i), n, e.now+1_000_000))
	}
	e.s.Insert(e.t.Context(), e.series)
	var cancel []postdate.Key
	var settle []store.Settlement
	e.tokens = make([]uint64, n)
	for b := range n {
		got, err := e.s.Acquire(e.t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}})
		if err != nil || !got[0].OK {
			e.t.Fatalf("Acquire: %+v, %v", got, err)
		}
		e.tokens[b] = got[0].Partition.Token
		e.claims = append(e.claims, store.Claim{
			Bucket: b, Claim: bucket.Claim{Token: e.tokens[b], Checkpoint: e.now, To: bucket.UpTo(e.now + 50)},
			Scan: store.Scan{Limit: 100, BytesMax: 1 << 20},
		})
	}
	for i, m := range e.all {
		switch i % 6 {
		case 1:
			settle = append(settle, e.settlement(m, store.SettlePark))
		case 2:
			settle = append(settle, e.settlement(m, store.SettleDelivered))
		case 3:
			cancel = append(cancel, m.Key)
		case 5:
			if i%60 == 5 {
				settle = append(settle, e.settlement(m, store.SettleFailed))
			}
		}
	}
	for _, r := range e.s.Cancel(e.t.Context(), cancel, e.now) {
		if r.Err != nil {
			e.t.Fatal(r.Err)
		}
	}
	if err := e.s.Settle(e.t.Context(), settle); err != nil {
		e.t.Fatal(err)
	}
}

func (e *explained) settlement(m postdate.Message, how store.Settling) store.Settlement {
	return store.Settlement{Key: m.Key, ExecutionTime: m.ExecutionTime, Version: e.version(m), Token: e.tokens[m.Bucket], How: how, At: e.now, AttemptTime: e.now + 9000, Attempts: 1}
}

func (e *explained) version(m postdate.Message) uint64 {
	rec, err := e.s.Get(e.t.Context(), m.Key)
	if err != nil {
		e.t.Fatal(err)
	}
	return rec.Version
}

func (e *explained) operations() map[string]func() error {
	ctx := e.t.Context()
	claim := func(claims []store.Claim) error {
		e.number++
		for i := range claims {
			claims[i].Number = e.number
		}
		for _, r := range e.s.Claim(ctx, claims) {
			if r.Err != nil {
				return r.Err
			}
		}
		return nil
	}
	goOn := slices.Clone(e.claims)
	for i := range goOn {
		goOn[i].Scan.After = bucket.Position{Time: e.now + 4, Tenant: "default", ScheduleID: "m00004"}
	}
	pages, behind, only := slices.Clone(e.claims), slices.Clone(e.claims), slices.Clone(e.claims)
	for i := range e.claims {
		pages[i].Scan.Limit = 3
		behind[i].Behind = map[postdate.Route]bucket.Position{"inbox:b": {}, "inbox:c": {}}
		only[i].Only, only[i].Behind = "inbox:a", map[postdate.Route]bucket.Position{"inbox:a": bucket.UpTo(e.now)}
	}
	some := func(rest int) (ms []postdate.Message) {
		for i := 3000 + rest; i < 3120; i += 6 {
			ms = append(ms, e.all[i])
		}
		return ms
	}
	version, cancelled, paused, triggered := e.version(e.all[2004]), e.version(e.all[3009]), e.version(e.series[7]), e.version(e.series[9])
	return map[string]func() error{
		"insert":       func() error { return e.s.Insert(ctx, some(0))[0].Err },
		"get":          func() error { _, err := e.s.Get(ctx, e.all[700].Key); return err },
		"forget":       func() error { return e.s.Forget(ctx, e.all[3009].Key, cancelled) },
		"retried":      func() error { _, err := e.s.Retried(ctx, e.all[700].Key); return err },
		"claim":        func() error { return claim(e.claims) },
		"claim one":    func() error { return claim(e.claims[:1]) },
		"pages":        func() error { return errors.Join(claim(pages), claim(pages)) }, // the second one knows that they are full
		"claim others": func() error { return claim(behind) },
		"claim only":   func() error { return claim(only) },
		"go on":        func() error { return claim(goOn) },
		"cancel":       func() error { return e.s.Cancel(ctx, keysOf(some(4)), e.now)[0].Err },
		"replace":      func() error { _, err := storetest.Replace(ctx, e.s, e.all[2004], version); return err },
		"pause":        func() error { return e.s.Pause(ctx, e.series[7].Key, paused) },
		"trigger":      func() error { return e.s.Trigger(ctx, e.series[9].Key, triggered, e.now+2_000_000) },
		"change":       func() error { return e.change(e.series[11].Key) },
		"parked":       func() error { _, err := e.s.Parked(ctx, []int{0, 1, 2, 3, 4, 5, 6, 7}); return err },
		"list":         func() error { return e.list(store.ListQuery{Tenant: "default", Limit: 20}) },
		"list a range": func() error { return e.list(store.ListQuery{Tenant: "default", From: e.now + 1000, Limit: 20}) },
		"list on": func() error {
			return e.list(store.ListQuery{Tenant: "default", Limit: 20, After: &store.ListPosition{ExecutionTime: e.now + 2000, Bucket: 3, ScheduleID: "m02000"}})
		},
		"list a label": func() error { return e.listOn(store.ListQuery{Label: "a", To: e.now + 3000}) },
		"list series":  func() error { return e.listOn(store.ListQuery{Recurring: store.OnlyRecurring}) },
		"list failed":  func() error { return e.listOn(store.ListQuery{Status: postdate.DeliveryFailed}) },
		"unpark": func() error {
			_, _, err := e.s.Unpark(ctx, store.Unpark{Bucket: 1, Token: e.tokens[1], Route: "inbox:a", At: e.now, Limit: 10})
			return err
		},
		"settle": func() error {
			var all []store.Settlement
			for i, m := range some(0) {
				all = append(all, e.settlement(m, []store.Settling{store.SettleDelivered, store.SettleRetry, store.SettleFailed, store.SettlePark}[i%4]))
			}
			return e.s.Settle(ctx, all)
		},
		"expire": e.expire,
	}
}

// change pauses a series, and changes it.
func (e *explained) change(key postdate.Key) error {
	was, err := e.s.Get(e.t.Context(), key)
	if err != nil {
		return err
	}
	if err := e.s.Pause(e.t.Context(), key, was.Version); err != nil {
		return err
	}
	was.Paused = true
	next := was
	next.Version, next.Changes, next.Paused = was.Version+1, 1, false
	_, err = e.s.Replace(e.t.Context(), next, was)
	return err
}

func (e *explained) expire() error {
	_, err := e.s.Expire(e.t.Context(), store.Expiry{Buckets: []int{1, 4, 6}, SettledBefore: e.now + 1, Limit: 10})
	return err
}

// listOn lists a page and the next one.
func (e *explained) listOn(q store.ListQuery) error {
	q.Tenant, q.Limit = "default", 20
	page, err := e.s.List(e.t.Context(), q)
	if err != nil || page.Next == nil {
		return fmt.Errorf("%d messages listed: %w", len(page.Records), err)
	}
	q.After = page.Next
	return e.list(q)
}

func (e *explained) list(q store.ListQuery) error {
	page, err := e.s.List(e.t.Context(), q)
	if err == nil && len(page.Records) != q.Limit {
		err = fmt.Errorf("%d messages listed", len(page.Records))
	}
	return err
}

// allOf lists all buckets of a store.
func allOf(s store.Store) (buckets []int) {
	for b := range s.Buckets() {
		buckets = append(buckets, b)
	}
	return buckets
}

func keysOf(messages []postdate.Message) (keys []postdate.Key) {
	for _, m := range messages {
		keys = append(keys, m.Key)
	}
	return keys
}

func testMessage(id string, buckets int, due postdate.Time) postdate.Message {
	m := postdate.Message{
		Key: bucket.KeyOf(postdate.DefaultTenant, id, buckets), Channel: "inbox:a", ExecutionTime: due, CreatedAt: due, Payload: []byte("{}"),
	}
	m.Digest = postdate.DigestOf(&m, "")
	return m
}
