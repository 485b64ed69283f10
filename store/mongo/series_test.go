package mongo_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
	"github.com/postdate/postdate/store/storetest"
)

func seriesMessage(id string, buckets int, first postdate.Time) postdate.Message {
	m := testMessage(id, buckets, first+3)
	m.First = first
	m.Recurrence = &postdate.Recurrence{Every: 100 * time.Millisecond, Anchor: first, Jitter: 20 * time.Millisecond,
		Misfire: postdate.MisfireSkip, Cron: "* * * * *", Timezone: "UTC", MaxRuns: 7, End: postdate.Far}
	m.Digest = postdate.DigestOf(&m, "")
	return m
}

// TestSeriesAsTheModel makes the same random calls to the store and to the model, on a replica set and
// behind a mongos, and compares all that they answer.
func TestSeriesAsTheModel(t *testing.T) {
	t.Run("replica set", func(t *testing.T) {
		s := openWatched(t, config(mongotest.Fresh(t)), strict(t))
		defer s.Close()
		compareWithModel(t, s, 1, 250)
	})
	t.Run("behind a mongos", func(t *testing.T) {
		s := open(t, config(routertest.Start(t, mongotest.Fresh(t)).URI()))
		defer s.Close()
		compareWithModel(t, s, 2, 80)
	})
}

// twins are a store and the model of one, which are called alike.
type twins struct {
	*testing.T
	r      *rand.Rand
	store  store.Store
	model  *storetest.Mem
	now    postdate.Time
	number uint64
	ids    []string
}

func compareWithModel(t *testing.T, s store.Store, seed uint64, steps int) {
	x := &twins{T: t, r: rand.New(rand.NewPCG(seed, 0)), store: s, model: storetest.NewMem(s.Buckets()),
		now: 1_900_000_000_000, ids: []string{"a", "b", "c", "d", "e", "once", "twice"}}
	for b := range s.Buckets() {
		for _, s := range []store.Store{x.store, x.model} {
			_, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}})
			x.must(err)
		}
	}
	calls := []func(){x.insert, x.claim, x.claim, x.settle, x.settle, x.settle, x.settle, x.cancel, x.unpark, x.expire,
		x.forget, x.pause, x.trigger, x.trigger, x.change}
	for step := range steps {
		calls[x.r.IntN(len(calls))]()
		if x.compare(); t.Failed() {
			t.Fatalf("that was step %d", step)
		}
	}
}

func (x *twins) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// same compares what the two answered.
func (x *twins) same(what string, got, want any) {
	x.Helper()
	a, err := json.Marshal(got)
	x.must(err)
	b, err := json.Marshal(want)
	x.must(err)
	if string(a) != string(b) {
		x.Errorf("%s: the store says\n%s\nand the model\n%s", what, a, b)
	}
}

// plain is a record without what differs: each store draws its own versions.
func plain(rec postdate.Record) postdate.Record {
	rec.Version &= 1<<14 - 1
	return rec
}

func (x *twins) insert() {
	var all []postdate.Message
	for _, id := range x.ids {
		if len(id) == 1 {
			all = append(all, seriesMessage(id, x.store.Buckets(), x.now+postdate.Time(x.r.IntN(100))))
		} else {
			all = append(all, testMessage(id, x.store.Buckets(), x.now+postdate.Time(x.r.IntN(100))))
		}
	}
	got, want := x.store.Insert(x.Context(), all), x.model.Insert(x.Context(), all)
	for i := range all {
		x.same("insert", postdate.KindOf(got[i].Err), postdate.KindOf(want[i].Err))
		if postdate.KindOf(want[i].Err) == postdate.KindExists && x.r.IntN(5) == 0 {
			x.replace(all[i])
		}
	}
}

func (x *twins) replace(m postdate.Message) {
	rec, err := x.store.Get(x.Context(), m.Key)
	x.must(err)
	got, gotErr := storetest.Replace(x.Context(), x.store, m, rec.Version)
	want, wantErr := storetest.Replace(x.Context(), x.model, m, x.model.Rows[m.Key].Version)
	x.same("replace", plain(got), plain(want))
	x.same("replace", postdate.KindOf(gotErr), postdate.KindOf(wantErr))
}

func (x *twins) claim() {
	x.now += postdate.Time(x.r.IntN(80))
	x.number++
	var claims []store.Claim
	for b := range x.store.Buckets() {
		claims = append(claims, store.Claim{Bucket: b, Scan: store.Scan{Limit: 100, BytesMax: 1 << 20},
			Claim: bucket.Claim{Token: 1, Number: x.number, To: bucket.UpTo(x.now)}})
	}
	got, want := x.store.Claim(x.Context(), claims), x.model.Claim(x.Context(), claims)
	for b := range claims {
		x.must(got[b].Err)
		var a, m []postdate.Record
		for _, rec := range got[b].Due {
			a = append(a, plain(rec))
		}
		for _, rec := range want[b].Due {
			rec.Series = postdate.Series{}
			m = append(m, plain(rec))
		}
		x.same("claim", a, m)
	}
}

// rows are some of the model's messages, each once.
func (x *twins) rows() []*storetest.Row {
	all := slices.SortedFunc(maps.Values(x.model.Rows),
		func(a, b *storetest.Row) int { return cmp.Compare(a.ScheduleID, b.ScheduleID) })
	x.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), 1+x.r.IntN(6))]
}

func (x *twins) settle() {
	var mine, models []store.Settlement
	for _, row := range x.rows() {
		s := x.settlement(row)
		models = append(models, s)
		rec, err := x.store.Get(x.Context(), row.Key)
		x.must(err)
		s.Version += rec.Version - row.Version
		mine = append(mine, s)
	}
	for range 1 + x.r.IntN(2) { // it can be repeated
		x.must(x.store.Settle(x.Context(), mine))
		x.must(x.model.Settle(x.Context(), models))
	}
}

func (x *twins) settlement(row *storetest.Row) store.Settlement {
	s := store.Settlement{
		Key: row.Key, ExecutionTime: row.ExecutionTime, Version: row.Version, Token: 1, At: x.now, Occurrence: row.Occurrence,
		How:      store.Settling(1 + x.r.IntN(int(store.SettlePark))),
		Attempts: x.r.IntN(3), PossibleDuplicate: x.r.IntN(4) == 0, AttemptTime: x.now + postdate.Time(x.r.IntN(60)-10),
	}
	if x.r.IntN(3) == 0 {
		s.Reason = "the broker said $no"
	}
	switch x.r.IntN(15) { // these change nothing
	case 0:
		s.Version++
	case 1:
		s.Token = 7
	case 2:
		s.Occurrence += 5
	case 3:
		s.Occurrence = 0
	}
	if s.How == store.SettlePark {
		s.DownSince = x.now - 1
	}
	if row.Paused && x.r.IntN(3) == 0 {
		s.How = store.SettleRest
	}
	if row.Occurrence == 0 || s.How == store.SettlePark || s.How == store.SettleRest || x.r.IntN(6) == 0 {
		return s
	}
	s.Next = store.Next{Occurrence: row.Occurrence + 100, AttemptTime: row.Occurrence + 103}
	if x.r.IntN(8) == 0 {
		s.Next = store.Next{Over: true}
	}
	if x.r.IntN(5) == 0 {
		s.How, s.Next.Skipped = store.SettleSkip, 1+x.r.Int64N(3)
	}
	return s
}

func (x *twins) cancel() {
	var keys []postdate.Key
	for _, row := range x.rows() {
		keys = append(keys, row.Key)
	}
	got, want := x.store.Cancel(x.Context(), keys, x.now), x.model.Cancel(x.Context(), keys, x.now)
	for i := range keys {
		x.same("cancel", plain(postdate.Record{State: got[i].State}), plain(postdate.Record{State: want[i].State}))
		x.same("cancel", postdate.KindOf(got[i].Err), postdate.KindOf(want[i].Err))
		x.same("cancel", got[i].Changed, want[i].Changed)
	}
}

// one is a message of the model, and the same one of the store.
func (x *twins) one() (row postdate.Record, rec postdate.Record) {
	all := x.rows()
	if len(all) == 0 {
		return row, rec
	}
	rec, err := x.store.Get(x.Context(), all[0].Key)
	x.must(err)
	return all[0].Record, rec
}

func (x *twins) pause() {
	row, rec := x.one()
	other := uint64(x.r.IntN(6) / 5)
	x.same("pause", postdate.KindOf(x.store.Pause(x.Context(), rec.Key, rec.Version+other)),
		postdate.KindOf(x.model.Pause(x.Context(), row.Key, row.Version+other)))
}

func (x *twins) trigger() {
	row, rec := x.one()
	other, at := uint64(x.r.IntN(6)/5), x.now/10*10+postdate.Time(x.r.IntN(3)) // some of these are there already
	x.same("trigger", postdate.KindOf(x.store.Trigger(x.Context(), rec.Key, rec.Version+other, at)),
		postdate.KindOf(x.model.Trigger(x.Context(), row.Key, row.Version+other, at)))
}

// change changes a series: its payload, its times, and whether it is paused.
func (x *twins) change() {
	row, rec := x.one()
	if row.Occurrence == 0 {
		return
	}
	payload, place, paused, spoil := make([]byte, x.r.IntN(6000)), postdate.Time(x.r.IntN(3)*40), x.r.IntN(2) == 0, x.r.IntN(8)
	at := max(row.Occurrence, x.now) + postdate.Time(x.r.IntN(200))
	answer := func(s store.Store, was postdate.Record) (postdate.Record, postdate.Kind) {
		next := was
		next.Payload, next.ExecutionTime = payload, was.ExecutionTime+place
		next.State = postdate.State{Status: postdate.Pending, Version: was.Version + 1, Changes: was.Changes + 1, Occurrence: at,
			Run: was.Run, Paused: paused, AttemptTime: at + 3}
		switch spoil {
		case 0:
			was.Paused = !was.Paused
		case 1:
			was.Series.Fired++
		case 2:
			was.Occurrence++
		}
		got, err := s.Replace(x.Context(), next, was)
		return plain(got), postdate.KindOf(err)
	}
	got, kind := answer(x.store, rec)
	want, wantKind := answer(x.model, row)
	x.same("change", got, want)
	x.same("change", kind, wantKind)
}

func (x *twins) unpark() {
	for b := range x.store.Buckets() {
		u := store.Unpark{Bucket: b, Token: 1, Route: "inbox:a", At: x.now - 40, Limit: 10}
		n, early, err := x.store.Unpark(x.Context(), u)
		x.must(err)
		modelN, modelEarly, err := x.model.Unpark(x.Context(), u)
		x.must(err)
		x.same("unpark", []int{n, early}, []int{modelN, modelEarly})
	}
}

// forget forgets what has ended, or tries to with what has not.
func (x *twins) forget() {
	row, rec := x.one()
	other := uint64(x.r.IntN(6) / 5)
	x.same("forget", postdate.KindOf(x.store.Forget(x.Context(), rec.Key, rec.Version+other)),
		postdate.KindOf(x.model.Forget(x.Context(), row.Key, row.Version+other)))
}

// expire makes room for new series. A small part of what ended stays, with its id.
func (x *twins) expire() {
	e := store.Expiry{Buckets: allOf(x.store), SettledBefore: x.now - 50, Limit: 1000}
	got, err := x.store.Expire(x.Context(), e)
	x.must(err)
	want, err := x.model.Expire(x.Context(), e)
	x.must(err)
	x.same("expire", got, want)
}

// compare compares all messages, and what is retried of each series.
func (x *twins) compare() {
	x.Helper()
	for key, row := range x.model.Rows {
		rec, err := x.store.Get(x.Context(), key)
		x.must(err)
		x.same(key.ScheduleID, plain(rec), plain(row.Record))
	}
	page, err := x.store.List(x.Context(), store.ListQuery{Tenant: postdate.DefaultTenant, Limit: 1000})
	x.must(err)
	x.same("how many messages there are", len(page.Records), len(x.model.Rows))
	for _, id := range x.ids {
		key := bucket.KeyOf(postdate.DefaultTenant, id, x.store.Buckets())
		got, err := x.store.Retried(x.Context(), key)
		x.must(err)
		want, err := x.model.Retried(x.Context(), key)
		x.must(err)
		x.same("retried of "+id, got, want)
	}
}

// TestSeriesSettledTogether: what is delivered of many series at the same time takes one statement.
func TestSeriesSettledTogether(t *testing.T) {
	var commands, statements atomic.Int64
	s := openWatched(t, config(mongotest.Fresh(t)), onMessages(func(command bson.Raw) {
		if all, err := statementsOf(command); err == nil && len(all) > 0 && all[0].command == "update" {
			commands.Add(1)
			statements.Add(int64(len(all)))
		}
	}))
	defer s.Close()
	var all []postdate.Message
	for i := range 2000 {
		all = append(all, seriesMessage(fmt.Sprint("s", i), s.Buckets(), 1000))
	}
	var settle []store.Settlement
	s.Insert(t.Context(), all)
	for _, m := range all {
		rec, err := s.Get(t.Context(), m.Key)
		if err != nil {
			t.Fatal(err)
		}
		settle = append(settle, store.Settlement{Key: m.Key, ExecutionTime: m.ExecutionTime, Version: rec.Version, Token: 1,
			How: store.SettleDelivered, At: 1005, Occurrence: 1000, Attempts: 1,
			Next: store.Next{Occurrence: 2000, AttemptTime: 2000}})
	}
	if err := s.Settle(t.Context(), settle); err != nil {
		t.Fatal(err)
	}
	if commands.Load() != 1 || statements.Load() != 1 {
		t.Errorf("it took %d commands with %d statements, want 1", commands.Load(), statements.Load())
	}
	want := postdate.Series{}.Add(postdate.Outcome{Occurrence: 1000, Status: postdate.Delivered, At: 1005, Attempts: 1})
	for _, m := range all[:20] {
		rec, err := s.Get(t.Context(), m.Key)
		if err != nil || rec.Occurrence != 2000 || rec.Run != 2 || fmt.Sprint(rec.Series) != fmt.Sprint(want) {
			t.Fatalf("%+v, %v", rec, err)
		}
	}
}

// TestSeriesUsage: a series counts as pending until it is over, and what is retried of it beside it.
func TestSeriesUsage(t *testing.T) {
	s := open(t, config(mongotest.Fresh(t)))
	defer s.Close()
	acquireAll(t, s)
	m := seriesMessage("a", s.Buckets(), 1000)
	number := uint64(0)
	claim := func() {
		number++
		for _, r := range s.Claim(t.Context(), []store.Claim{{Bucket: m.Bucket, Scan: store.Scan{Limit: 10, BytesMax: 1000},
			Claim: bucket.Claim{Token: 1, Number: number, To: bucket.UpTo(9000)}}}) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	settle := func(key postdate.Key, how store.Settling, next store.Next) func() {
		return func() {
			claim()
			rec, err := s.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Settle(t.Context(), []store.Settlement{{Key: key, ExecutionTime: rec.ExecutionTime, Version: rec.Version, Token: 1,
				How: how, At: 5, AttemptTime: 5000, Occurrence: rec.Occurrence, Next: next}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel := func() { claim(); s.Cancel(t.Context(), []postdate.Key{m.Key}, 5) }
	insert := func() { s.Insert(t.Context(), []postdate.Message{m}) }
	trigger := func(at postdate.Time) {
		rec, err := s.Get(t.Context(), m.Key)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Trigger(t.Context(), m.Key, rec.Version, at)
		_ = s.Trigger(t.Context(), m.Key, rec.Version, at) // it is there already
	}
	alone := m.Alone(m.First).Key
	for i, step := range []struct {
		do   func()
		want int64
	}{
		{insert, 1},
		{settle(m.Key, store.SettleDelivered, store.Next{Occurrence: 1000, AttemptTime: 1000}), 1},
		{settle(m.Key, store.SettleRetry, store.Next{Occurrence: 3000, AttemptTime: 3000}), 2},
		{settle(m.Key, store.SettleRetry, store.Next{Occurrence: 1000, AttemptTime: 1000}), 3},
		{settle(m.Key, store.SettleRetry, store.Next{Over: true}), 2}, // the same occurrence: it is there already
		{settle(alone, store.SettleFailed, store.Next{}), 1},
		{func() { s.Expire(t.Context(), store.Expiry{Buckets: allOf(s), SettledBefore: 100, Limit: 10}) }, 1},
		{insert, 2},
		{func() { trigger(77) }, 3},
		{settle(m.Alone(77).Key, store.SettleDelivered, store.Next{}), 2},
		{cancel, 2},
		{func() { trigger(78) }, 2}, // it is ending
		{settle(m.Key, store.SettleDelivered, store.Next{Occurrence: 9000, AttemptTime: 9000}), 1},
	} {
		step.do()
		if usage, _ := s.UsageOf(m.Tenant, m.Channel); usage.Messages != step.want {
			t.Errorf("after step %d, %d are pending, want %d", i, usage.Messages, step.want)
		}
	}
}

// TestDamagedSeries: a series whose document somebody changed by hand is passed over. It stops no other,
// nor the settlements of what is beside it.
func TestDamagedSeries(t *testing.T) {
	for name, value := range map[string]any{
		"recurrence": "daily", "recurrence.every": "a day", "recurrence.gap": 9, "recurrence.misfire": -1, "recurrence.overlap": 400,
		"occurrence": int64(1000), "run": "1", "run ": 0, "ending": "yes", "paused": "yes", "changes": "1", "changes ": -1, "first": 7, "occurrence ": nil, "recurrence ": nil,
		"series": "none", "series.fired": "1", "series.failed": -1, "series.skipped": int64(1<<63 - 1), "series.history": 3,
		"series.history ": bson.A{4}, "attemptLog": 5,
	} {
		t.Run(name, func(t *testing.T) {
			uri := mongotest.Fresh(t)
			s := open(t, config(uri))
			defer s.Close()
			acquireAll(t, s)
			all := []postdate.Message{seriesMessage("bad", 1, 1000), seriesMessage("good", 1, 1000)}
			s.Insert(t.Context(), all)
			name := strings.TrimSpace(name) // some are damaged in two ways
			damage := bson.D{{Key: "$set", Value: bson.D{{Key: name, Value: value}}}}
			if value == nil {
				damage = bson.D{{Key: "$unset", Value: bson.D{{Key: name, Value: ""}}}}
			}
			if _, err := database(t, uri).Collection("messages").UpdateOne(t.Context(), bson.D{{Key: "scheduleId", Value: "bad"}},
				damage); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(t.Context(), all[0].Key); postdate.KindOf(err) != postdate.KindInternal {
				t.Errorf("Get: %v", err)
			}
			r := s.Claim(t.Context(), []store.Claim{{Claim: bucket.Claim{Token: 1, Number: 1, To: bucket.UpTo(2000)},
				Scan: store.Scan{Limit: 10, BytesMax: 1 << 20}}})[0]
			if r.Err != nil || len(r.Due) != 1 || r.Due[0].ScheduleID != "good" {
				t.Fatalf("Claim: %+v", r)
			}
			if c := s.Cancel(t.Context(), keysOf(all), 5); !c[1].State.Ending || postdate.KindOf(c[1].Err) != postdate.KindTooLate {
				t.Errorf("Cancel: %+v", c)
			}
			err := s.Settle(t.Context(), []store.Settlement{{Key: all[1].Key, ExecutionTime: all[1].ExecutionTime,
				Version: r.Due[0].Version, Token: 1, How: store.SettleDelivered, Occurrence: 1000, Next: store.Next{Over: true}}})
			if rec, getErr := s.Get(t.Context(), all[1].Key); err != nil || getErr != nil || rec.Status != postdate.Cancelled {
				t.Errorf("Settle: %v; %+v, %v", err, rec, getErr)
			}
		})
	}
}
