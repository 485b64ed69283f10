package pebble

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// seriesMessage is a series that recurs each hour from 1000 on.
func seriesMessage(id string, buckets int) postdate.Message {
	return postdate.Message{
		Key: bucket.KeyOf(postdate.DefaultTenant, id, buckets), Channel: "inbox:a", ExecutionTime: 1003, First: 1000,
		CreatedAt: 1, Payload: []byte("hello"), Recurrence: &postdate.Recurrence{Every: time.Hour},
	}
}

// fullSeries is a series, and its state, in which no field is zero.
func fullSeries() (postdate.Message, state) {
	m := seriesMessage("id", 8)
	m.Recurrence = &postdate.Recurrence{
		Every: time.Hour, Anchor: 1, Cron: "0 9 * * *", Timezone: "Europe/Berlin", Start: 2, End: 3, MaxRuns: 300,
		Jitter: time.Second, Misfire: postdate.MisfireSkip, MisfireAfter: time.Minute, Gap: postdate.GapSkip,
		Overlap: postdate.OverlapBoth,
	}
	s := stateOf(&m, postdate.NewState(&m, 300))
	s.Run, s.Ending, s.Parked, s.DownSince, s.LastError = 70_000, true, true, 4, "down"
	s.Paused, s.Changes = true, 700
	for i := range postdate.HistoryMax + 1 {
		o := postdate.Outcome{Occurrence: postdate.Time(1000 + i), At: postdate.Time(2000 + i), Status: postdate.Status(i % 4)}
		if o.Attempts = 3; o.Status == 0 {
			o.Attempts, o.Skipped = 0, 200
		}
		s.Series = s.Series.Add(o)
	}
	return m, s
}

// Each form of a series' state has its occurrence. Only the due space lacks its history.
func TestASeriesIsWrittenWhole(t *testing.T) {
	m, s := fullSeries()
	for _, form := range []byte{layout, layoutLean, layoutSized} {
		want := s
		if form == layoutLean {
			want.Series, want.Digest = postdate.Series{}, postdate.Digest{}
		}
		if form != layoutSized {
			want.PayloadBytes = unsized
		}
		written := appendState(nil, &s, form)
		read, err := readState(written)
		same(t, want, read, err)
		route, err := routeOf(written, "t")
		same(t, s.route("t"), route, err)
	}
	s.Changes, s.Paused = 0, false // as the version before wrote it
	for _, form := range []byte{layout, layoutLean, layoutSized} {
		written := appendState(nil, &s, form)
		changed := s
		changed.Changes = 1
		if again := appendState(nil, &changed, form); !bytes.Equal(again, append(written, 1)) {
			t.Errorf("a state that was not changed is written as %q, and else as %q", written, again)
		}
	}
	s.Ending, s.Parked, s.DownSince, s.Series = false, false, 0, postdate.Series{}
	read, err := readState(appendState(nil, &s, layoutSized))
	same(t, s, read, err)
	again, err := readMessage(appendMessage(nil, &m), m.Key, m.ExecutionTime)
	same(t, m, again, err)
	m.Recurrence = &postdate.Recurrence{Every: time.Hour}
	again, err = readMessage(appendMessage(nil, &m), m.Key, m.ExecutionTime)
	same(t, m, again, err)
}

// What is no series is written byte by byte as the version before wrote it.
func TestBytesOfWhatIsNoSeries(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{Bucket: 3, Tenant: "t", ScheduleID: "id"}, ExecutionTime: 7, Channel: "a:b", Payload: []byte("hello"), Priority: postdate.PriorityLow, Digest: postdate.Digest{0: 'd', 15: 'e'}}
	s := stateOf(&m, postdate.State{Status: postdate.Pending, Version: 300, AttemptTime: 9, Attempts: 2, PossibleDuplicate: true, LastError: "no"})
	const digest = "d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00e"
	written := func(want string, got []byte) {
		t.Helper()
		if string(got) != want {
			t.Errorf("%q is written, want %q", got, want)
		}
	}
	written("\x01\x01\n\xac\x02\x02\t\x00\a"+digest+"\x03a:b\x02no", appendState(nil, &s, layout))
	written("\x02\x01\n\xac\x02\x02\t\x00\a\x03a:b\x02no", appendState(nil, &s, layoutLean))
	written("\x03\x01\n\xac\x02\x02\t\x00\a"+digest+"\x03a:b\x05\x02no", appendState(nil, &s, layoutSized))
	s.Parked, s.DownSince = true, 4
	written("\x03\x01\v\xac\x02\x02\t\x00\a"+digest+"\x03a:b\x05\x02no\x04", appendState(nil, &s, layoutSized))
	const message = "\x01@\x00\x00\x03a:b\x00\x00\x00\x00\x00\x00" + digest + "\x00\x05hello"
	written(message, appendMessage(nil, &m))
	m.Retry.MaxParked = time.Hour
	written(message+"\x80\xc0\xe2\x85\xe3h", appendMessage(nil, &m))
}

// A damaged series is refused, wherever it is cut off, and whatever cannot be a part of one.
func TestADamagedSeriesIsRefused(t *testing.T) {
	m, s := fullSeries()
	refused := func(what string, v []byte) {
		t.Helper()
		if got, err := readState(v); err == nil {
			t.Errorf("%s: it is read as %+v", what, got)
		}
	}
	for _, form := range []byte{layout, layoutLean, layoutSized} {
		v := appendState(nil, &s, form)
		unchanged := s
		unchanged.Changes = 0
		before := len(appendState(nil, &unchanged, form)) // the end of a state that was never changed
		for n := range v {
			if n != before {
				refused(fmt.Sprint("cut off at ", n), v[:n])
			}
		}
		refused("more follows", append(slices.Clone(v), 0))
		refused("no changes follow", append(slices.Clone(v[:before]), 0))
	}
	for what, spoil := range map[string]func(s *state){
		"an occurrence before all time": func(s *state) { s.Occurrence = -1 },
		"a run below 0":                 func(s *state) { s.Run = -1 },
		"fewer failures than none":      func(s *state) { s.Series.Failed = -1 },
		"a status that ends nothing":    func(s *state) { s.Series.History[2].Status = postdate.Cancelled },
		"fewer skipped than none":       func(s *state) { s.Series.History[2].Skipped = -1 },
		"a history without an end":      func(s *state) { s.Series.History = append(s.Series.History, postdate.Outcome{}) },
		"an end of no series":           func(s *state) { s.Occurrence, s.Paused, s.Changes = 0, false, 0 },
		"a pause of no series":          func(s *state) { s.Occurrence, s.Ending, s.Changes = 0, false, 0 },
		"fewer changes than none":       func(s *state) { s.Changes = -1 },
	} {
		_, bad := fullSeries()
		spoil(&bad)
		refused(what, appendState(nil, &bad, layoutSized))
	}
	v := appendMessage(nil, &m)
	whole := appendMessage(nil, &postdate.Message{Channel: m.Channel, CreatedAt: 1, Payload: m.Payload})
	for n := len(whole) + 2; n < len(v); n++ { // before that it may be another message
		if got, err := readMessage(v[:n], m.Key, 7); err == nil {
			t.Errorf("a message that is cut off at %d is read as %+v", n, got)
		}
	}
	m.Recurrence.Misfire++
	if got, err := readMessage(appendMessage(nil, &m), m.Key, 7); err == nil {
		t.Errorf("an unknown misfire policy is read as %+v", got.Recurrence)
	}
}

// A store of the version before is opened, and has the present layout from then on: the version
// before would take a series for a damaged message.
func TestOpenAStoreWithoutSeries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	filled(t, dir, 10)
	opensFormer(t, dir, 5)
	whole(t, dir, 10)
}

// opensFormer opens a store as if a version before had left it with that layout, and wants it to have the
// present one then.
func opensFormer(t *testing.T, dir string, former byte) {
	t.Helper()
	birth := func() byte {
		t.Helper()
		s, err := Open(openConfig(dir))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		v, closer, err := s.db.Get([]byte{spaceBirth})
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close()
		now := v[0]
		if err := s.db.Set([]byte{spaceBirth}, sealBirth(append([]byte{former}, v[1:9]...)), lsm.Sync); err != nil {
			t.Fatal(err)
		}
		return now
	}
	birth()
	if now := birth(); now != layoutNow || now <= former {
		t.Errorf("a store of layout %d is opened, and has layout %d then", former, now)
	}
}

// A store of the version before is opened with its series, and has the present layout from then on: the version
// before would send the occurrences of one that is paused.
func TestOpenAStoreWithoutPauses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	acquireAll(t, s)
	m := seriesMessage("a", openBuckets)
	s.Insert(t.Context(), []postdate.Message{m})
	if err := s.Settle(t.Context(), []store.Settlement{
		settlementOf(t, s, m.Key, store.SettleRetry, store.Next{Occurrence: 2000, AttemptTime: 2000})}); err != nil {
		t.Fatal(err)
	}
	was, err := s.Get(t.Context(), m.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	opensFormer(t, dir, 6)
	if s, err = Open(openConfig(dir)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if rec, err := s.Get(t.Context(), m.Key); err != nil || !reflect.DeepEqual(rec, was) {
		t.Errorf("the series was %+v, and is %+v, %v", was, rec, err)
	}
	next := was
	next.Version, next.Changes, next.AttemptTime = was.Version+1, 1, 5000
	_, err = s.Replace(t.Context(), next, was)
	if err == nil {
		err = s.Pause(t.Context(), m.Key, next.Version)
	}
	if rec, getErr := s.Get(t.Context(), m.Key); err != nil || getErr != nil || !rec.Paused || rec.Changes != 1 {
		t.Errorf("changed and paused it is %+v, %v, %v", rec, err, getErr)
	}
	fail := settlementOf(t, s, m.Alone(1000).Key, store.SettleFailed, store.Next{})
	if err := s.Settle(t.Context(), []store.Settlement{fail}); err != nil {
		t.Fatal(err)
	}
	if rec, err := s.Get(t.Context(), m.Key); err != nil || rec.Series.Failed != 1 {
		t.Errorf("after its occurrence failed it is %+v, %v", rec, err)
	}
}

// settlementOf settles what is there now.
func settlementOf(t *testing.T, s store.Messages, key postdate.Key, how store.Settling, next store.Next) store.Settlement {
	t.Helper()
	rec, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return store.Settlement{Key: key, ExecutionTime: rec.NotBefore(), Version: rec.Version, Token: 1, How: how, At: 5000,
		AttemptTime: 6000, Attempts: 1, Occurrence: rec.Occurrence, Next: next}
}

// One write settles a series and several of its occurrences, each on its own: the series has all of it.
func TestASeriesIsSettledWithItsOccurrences(t *testing.T) {
	s := ownedBuckets(t, 1)
	m := seriesMessage("a", 1)
	if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	settle := func(all ...store.Settlement) {
		t.Helper()
		if err := s.Settle(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	for run := 2; run <= 4; run++ { // three occurrences are to be retried
		at := postdate.Time(1000 * run)
		settle(settlementOf(t, s, m.Key, store.SettleRetry, store.Next{Occurrence: at, AttemptTime: at}))
	}
	alone, err := s.Retried(t.Context(), m.Key)
	if err != nil || len(alone) != 3 {
		t.Fatalf("retried are %v, %v", alone, err)
	}
	settle(
		settlementOf(t, s, alone[1], store.SettleFailed, store.Next{}),
		settlementOf(t, s, m.Key, store.SettleRetry, store.Next{Occurrence: 5000, AttemptTime: 5000}),
		settlementOf(t, s, alone[0], store.SettleFailed, store.Next{}),
		settlementOf(t, s, alone[0], store.SettleFailed, store.Next{}),
		settlementOf(t, s, alone[2], store.SettleDelivered, store.Next{}),
	)
	rec, err := s.Get(t.Context(), m.Key)
	if err != nil || rec.Occurrence != 5000 || rec.Run != 5 || rec.Series.Fired != 4 || rec.Series.Failed != 2 {
		t.Errorf("the series is %+v, %+v, %v", rec.State, rec.Series, err)
	}
	if alone, err = s.Retried(t.Context(), m.Key); err != nil || len(alone) != 1 {
		t.Errorf("retried are %v, %v", alone, err)
	}
	if usage, _ := s.UsageOf(m.Tenant, ""); usage.Messages != 2 || usage.Bytes != 2*int64(len(m.Payload)) {
		t.Errorf("pending are the series and an occurrence of it, and counted are %+v", usage)
	}
}

// An occurrence that is there as a message already stays as it is, although its series was replaced by one
// with the same occurrence.
func TestAnOccurrenceIsRetriedOnce(t *testing.T) {
	s := ownedBuckets(t, 1)
	m := seriesMessage("a", 1)
	s.Insert(t.Context(), []postdate.Message{m})
	retry := func() {
		t.Helper()
		next := store.Next{Occurrence: 2000, AttemptTime: 2000}
		if err := s.Settle(t.Context(), []store.Settlement{settlementOf(t, s, m.Key, store.SettleRetry, next)}); err != nil {
			t.Fatal(err)
		}
	}
	retry()
	alone, err := s.Retried(t.Context(), m.Key)
	if err != nil || len(alone) != 1 {
		t.Fatalf("retried are %v, %v", alone, err)
	}
	s.Cancel(t.Context(), alone, 5000)
	rec, err := s.Get(t.Context(), m.Key)
	if err == nil {
		_, err = storetest.Replace(t.Context(), s, m, rec.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	retry()
	if rec, err := s.Get(t.Context(), alone[0]); err != nil || rec.Status != postdate.Cancelled {
		t.Errorf("the cancelled occurrence is %+v, %v", rec.State, err)
	}
	if usage, _ := s.UsageOf(m.Tenant, ""); usage.Messages != 1 {
		t.Errorf("pending is the series alone, and counted are %+v", usage)
	}
}

// beside is a store beside the model: what is done to one is done to the other, and both must answer alike.
type beside struct {
	*testing.T
	r      *rand.Rand
	mem    *storetest.Mem
	real   *Store
	config Config
	parts  Parts
	now    postdate.Time
	claims uint64
	drawn  map[uint64]uint64 // first versions of the store, by the model's
}

const besideBuckets = 3

func newBeside(t *testing.T, r *rand.Rand) *beside {
	b := &beside{T: t, r: r, mem: storetest.NewMem(besideBuckets), config: DefaultConfig("store"),
		parts: Parts{FS: vfs.NewMem()}, now: 1_900_000_000_000, drawn: map[uint64]uint64{}}
	b.config.Buckets = besideBuckets
	b.open()
	acquireAll(t, b.real)
	for n := range besideBuckets {
		if _, err := b.mem.Acquire(t.Context(), []store.Acquisition{{Bucket: n, Owner: "n", Lease: "n/1"}}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *beside) open() {
	b.Helper()
	s, err := OpenWith(b.config, b.parts)
	if err != nil {
		b.Fatal(err)
	}
	b.real = s
}

// version is the store's version for one of the model's, which leaves 32 bits for reschedules.
func (b *beside) version(v uint64) uint64 {
	first := v >> 32 << 32
	return b.drawn[first] + v - first
}

// as is a record of the model as the store has it.
func (b *beside) as(rec postdate.Record) postdate.Record {
	if rec.Key != (postdate.Key{}) {
		rec.Version = b.version(rec.Version)
	}
	return rec
}

// alike expects equal answers.
func (b *beside) alike(what string, want, got any, wantErr, gotErr error) {
	b.Helper()
	kind := func(err error) (k postdate.Kind) {
		if err != nil {
			k = postdate.KindOf(err)
		}
		return k
	}
	if kind(wantErr) != kind(gotErr) || !reflect.DeepEqual(want, got) {
		b.Fatalf("%s:\nthe model has %+v, %v\nthe store has %+v, %v", what, want, wantErr, got, gotErr)
	}
}

func (b *beside) later(most int) postdate.Time { return b.now + postdate.Time(b.r.IntN(most)) }

func (b *beside) message() postdate.Message {
	tenant := []string{postdate.DefaultTenant, "acme"}[b.r.IntN(2)]
	m := postdate.Message{
		Key:     bucket.KeyOf(tenant, []string{"a", "a-b", "a.b", "ab", "b"}[b.r.IntN(5)], besideBuckets),
		Channel: []postdate.Channel{"inbox:a", "inbox:b"}[b.r.IntN(2)], CreatedAt: b.now, ExecutionTime: b.later(2000),
		Payload: make([]byte, 1+b.r.IntN(20)), Priority: postdate.Priority(b.r.IntN(3)), Digest: postdate.Digest{byte(b.r.IntN(2))},
	}
	if b.r.IntN(4) > 0 {
		m.First, m.Recurrence = m.ExecutionTime-postdate.Time(b.r.IntN(9)), &postdate.Recurrence{Every: time.Second}
	}
	return m
}

// key is that of a message that is there, if there is any.
func (b *beside) key() postdate.Key {
	all := slices.SortedFunc(maps.Keys(b.mem.Rows), func(x, y postdate.Key) int {
		return bucket.PositionOf(x, 0).Compare(bucket.PositionOf(y, 0))
	})
	if len(all) == 0 || b.r.IntN(20) == 0 {
		return b.message().Key
	}
	return all[b.r.IntN(len(all))]
}

func (b *beside) insert() {
	messages := make([]postdate.Message, 1+b.r.IntN(3))
	for i := range messages {
		messages[i] = b.message()
	}
	want, got := b.mem.Insert(b.Context(), messages), b.real.Insert(b.Context(), messages)
	for i, m := range messages {
		b.alike("insert", want[i].Created, got[i].Created, want[i].Err, got[i].Err)
		if !want[i].Created {
			continue
		}
		rec, err := b.real.Get(b.Context(), m.Key)
		if err != nil {
			b.Fatal(err)
		}
		b.drawn[b.mem.Rows[m.Key].Version] = rec.Version
	}
}

func (b *beside) replace() {
	m, key, version := b.message(), b.key(), uint64(0)
	if row := b.mem.Rows[key]; row != nil {
		m.Key, version = key, row.Version+uint64(b.r.IntN(8)/7)
	}
	if _, alone := m.Key.OfSeries(); alone {
		return // no client can
	}
	want, wantErr := storetest.Replace(b.Context(), b.mem, m, version)
	got, err := storetest.Replace(b.Context(), b.real, m, b.version(version))
	b.alike("replace", b.as(want), got, wantErr, err)
}

// series is a message of the model, mostly a series, with the same one of the store.
func (b *beside) series() (row, rec postdate.Record) {
	key := b.key()
	for range 9 {
		if r := b.mem.Rows[key]; r == nil || r.Occurrence == 0 {
			key = b.key()
		}
	}
	if r := b.mem.Rows[key]; r != nil {
		row = r.Record
	} else {
		row.Key = key
	}
	return row, b.as(row)
}

func (b *beside) pause() {
	row, rec := b.series()
	other := uint64(b.r.IntN(8) / 7)
	b.alike("pause", nil, nil, b.mem.Pause(b.Context(), row.Key, row.Version+other),
		b.real.Pause(b.Context(), row.Key, rec.Version+other))
}

func (b *beside) trigger() {
	row, rec := b.series()
	other, at := uint64(b.r.IntN(8)/7), b.now/100*100 // some of these are there already
	b.alike("trigger", nil, nil, b.mem.Trigger(b.Context(), row.Key, row.Version+other, at),
		b.real.Trigger(b.Context(), row.Key, rec.Version+other, at))
}

// change changes a series: its message, its times, and whether it is paused.
func (b *beside) change() {
	row, rec := b.series()
	if row.Occurrence == 0 {
		return
	}
	m, at := b.message(), max(row.Occurrence, b.now)+postdate.Time(b.r.IntN(900))
	paused, stays, spoil := b.r.IntN(2) == 0, b.r.IntN(2) == 0, b.r.IntN(10)
	answer := func(s store.Messages, was postdate.Record) (postdate.Record, error) {
		next := was
		next.Payload, next.Channel, next.Digest, next.Priority = m.Payload, m.Channel, m.Digest, m.Priority
		if !stays {
			next.ExecutionTime = m.ExecutionTime
		}
		next.State = postdate.State{Status: postdate.Pending, Version: was.Version + 1, Changes: was.Changes + 1,
			Occurrence: at, Run: was.Run, Paused: paused, AttemptTime: at + 3}
		switch spoil {
		case 0:
			was.Paused = !was.Paused
		case 1:
			was.Series.Failed++
		case 2:
			was.Version--
		}
		return s.Replace(b.Context(), next, was)
	}
	want, wantErr := answer(b.mem, row)
	got, err := answer(b.real, rec)
	b.alike("change", b.as(want), got, wantErr, err)
}

func (b *beside) claim() {
	b.claims++
	c := claimTo(b.claims, b.later(300))
	c.Bucket, c.Scan.Limit, c.IfDue = b.r.IntN(besideBuckets), 1+b.r.IntN(5), b.r.IntN(2) == 0
	want, got := b.mem.Claim(b.Context(), []store.Claim{c})[0], b.real.Claim(b.Context(), []store.Claim{c})[0]
	var due []postdate.Record
	for _, rec := range want.Due {
		rec = b.as(rec)
		rec.Series = postdate.Series{}
		due = append(due, rec)
	}
	b.alike("claim", due, got.Due, want.Err, got.Err)
	b.alike("the end of a claim", want.To, got.To, nil, nil)
}

// settlement is a way to settle a message, mostly a way that a poller may take.
func (b *beside) settlement() store.Settlement {
	p := store.Settlement{Key: b.key(), Token: 1 + uint64(b.r.IntN(15)/14), How: store.Settling(1 + b.r.IntN(4)), At: b.now,
		AttemptTime: b.later(500), Attempts: b.r.IntN(3), PossibleDuplicate: b.r.IntN(4) == 0, Reason: "so"}
	row := b.mem.Rows[p.Key]
	if row == nil {
		return p
	}
	p.ExecutionTime, p.Version, p.Occurrence = row.NotBefore(), row.Version+uint64(b.r.IntN(15)/14), row.Occurrence
	if p.How == store.SettlePark {
		p.DownSince = b.now
	}
	if row.Occurrence == 0 {
		return p
	}
	p.Occurrence += postdate.Time(b.r.IntN(15) / 14)
	if row.Paused && b.r.IntN(3) == 0 {
		p.How = store.SettleRest
		return p
	}
	skip := b.r.IntN(6) == 0
	if p.How == store.SettlePark && !skip || b.r.IntN(8) == 0 && !skip {
		return p
	}
	p.Next = store.Next{Occurrence: row.Occurrence + 100}
	p.Next.AttemptTime = p.Next.Occurrence + postdate.Time(b.r.IntN(9))
	if b.r.IntN(10) == 0 {
		p.Next = store.Next{Over: true}
	}
	if skip {
		p.How, p.Next.Skipped = store.SettleSkip, 1+int64(b.r.IntN(3))
	}
	return p
}

func (b *beside) settle() {
	want := make([]store.Settlement, 1+b.r.IntN(8))
	for i := range want {
		want[i] = b.settlement()
	}
	got := slices.Clone(want)
	for i := range got {
		got[i].Version = b.version(got[i].Version)
	}
	b.alike("settle", nil, nil, b.mem.Settle(b.Context(), want), b.real.Settle(b.Context(), got))
}

func (b *beside) cancel() {
	keys := make([]postdate.Key, 1+b.r.IntN(3))
	for i := range keys {
		keys[i] = b.key()
	}
	want, got := b.mem.Cancel(b.Context(), keys, b.now), b.real.Cancel(b.Context(), keys, b.now)
	for i := range want {
		if want[i].State.Version != 0 {
			want[i].State.Version = b.version(want[i].State.Version)
		}
		b.alike("cancel", want[i].State, got[i].State, want[i].Err, got[i].Err)
		b.alike("what a cancel changed", want[i].Changed, got[i].Changed, nil, nil)
	}
}

func (b *beside) unpark() {
	m := b.message()
	u := store.Unpark{Bucket: m.Bucket, Token: 1, Route: m.Route(), At: b.later(200), Limit: 1 + b.r.IntN(3)}
	if row := b.mem.Rows[b.key()]; row != nil {
		u.Bucket, u.Route = row.Bucket, row.Route()
	}
	wantFound, wantEarly, wantErr := b.mem.Unpark(b.Context(), u)
	found, early, err := b.real.Unpark(b.Context(), u)
	b.alike("unpark", []int{wantFound, wantEarly}, []int{found, early}, wantErr, err)
}

func (b *beside) expire() {
	e := store.Expiry{Buckets: []int{0, 1, 2}, SettledBefore: b.now - postdate.Time(b.r.IntN(2000)), Limit: 1000}
	want, wantErr := b.mem.Expire(b.Context(), e)
	got, err := b.real.Expire(b.Context(), e)
	b.alike("expire", want, got, wantErr, err)
}

// forget forgets what has ended, or tries to with what has not.
func (b *beside) forget() {
	key, version := b.key(), uint64(0)
	if row := b.mem.Rows[key]; row != nil {
		version = row.Version + uint64(b.r.IntN(8)/7)
	}
	b.alike("forget", nil, nil, b.mem.Forget(b.Context(), key, version),
		b.real.Forget(b.Context(), key, b.version(version)))
}

// compare expects that both hold the same.
func (b *beside) compare() {
	b.Helper()
	for key, row := range b.mem.Rows {
		got, err := b.real.Get(b.Context(), key)
		b.alike("get", b.as(row.Record), got, nil, err)
		want, _ := b.mem.Retried(b.Context(), key)
		retried, err := b.real.Retried(b.Context(), key)
		b.alike("retried", want, retried, nil, err)
	}
	for _, tenant := range []string{postdate.DefaultTenant, "acme"} {
		q := store.ListQuery{Tenant: tenant, IDPrefix: []string{"", "a", "a-", "b"}[b.r.IntN(4)], Limit: 10_000}
		want, _ := b.mem.List(b.Context(), q)
		for i, rec := range want.Records {
			want.Records[i] = b.as(rec)
		}
		got, err := b.real.List(b.Context(), q)
		b.alike("list", want, got, nil, err)
		wantUsage, _ := b.mem.UsageOf(tenant, "inbox:a")
		usage, _ := b.real.UsageOf(tenant, "inbox:a")
		wantUsage.Channels, usage.Channels = 0, 0 // the store may count two as one
		b.alike("usage", wantUsage, usage, nil, nil)
	}
	all := []int{0, 1, 2}
	want, _ := b.mem.Parked(b.Context(), all)
	got, err := b.real.Parked(b.Context(), all)
	byRoute := func(x, y store.ParkedRoute) int { return bytes.Compare(fmt.Append(nil, x), fmt.Append(nil, y)) }
	slices.SortFunc(want, byRoute)
	slices.SortFunc(got, byRoute)
	b.alike("parked", want, got, nil, err)
}

// Whatever is done to series and to other messages, the store answers and holds what the model does, also
// after it is opened again.
func TestSeriesBesideTheModel(t *testing.T) {
	r := testrun.Random(t)
	ends := map[string]int{}
	for range 25 {
		b := newBeside(t, r)
		for range 150 {
			b.now += postdate.Time(r.IntN(60))
			switch r.IntN(20) {
			case 0, 1, 2:
				b.insert()
			case 3, 4, 5:
				b.claim()
			case 6:
				b.cancel()
			case 7, 8:
				b.unpark()
			case 9:
				b.replace()
			case 10:
				b.expire()
			case 11:
				b.pause()
			case 12:
				b.trigger()
			case 13:
				b.change()
			case 14:
				b.forget()
			default:
				b.settle()
			}
			if r.IntN(5) == 0 {
				b.compare()
			}
		}
		if err := b.real.Close(); err != nil {
			t.Fatal(err)
		}
		b.open()
		b.compare()
		for key, row := range b.mem.Rows {
			if _, alone := key.OfSeries(); alone {
				ends["alone "+row.Status.String()]++
			} else if row.Occurrence != 0 {
				ends["series "+row.Status.String()]++
				if row.Paused && row.AttemptTime == postdate.Far && row.Status == postdate.Pending {
					ends["series at rest"]++
				}
				if row.Changes > 0 {
					ends["series changed"]++
				}
			}
		}
		if err := b.real.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, end := range []string{"alone PENDING", "alone DELIVERED", "alone DELIVERY_FAILED", "series PENDING", "series DELIVERED", "series CANCELLED", "series at rest", "series changed"} {
		if ends[end] == 0 {
			t.Errorf("none is %s, of %v: it tries too little", end, ends)
		}
	}
}

// An occurrence that cannot become a message of its own, because the disk is full or its series' message is
// damaged, fails. It holds up neither its series nor others.
func TestAnOccurrenceThatCannotBeRetried(t *testing.T) {
	for name, spoil := range map[string]func(s *Store, m *postdate.Message) error{
		"almost full": func(s *Store, _ *postdate.Message) error { s.full.Store(true); return nil },
		"damaged": func(s *Store, m *postdate.Message) error {
			return s.db.Set(messageKey(nil, m.Key, m.ExecutionTime), []byte("rubbish"), nil)
		},
	} {
		s := ownedBuckets(t, 1)
		m, other := seriesMessage("a", 1), seriesMessage("b", 1)
		if r := s.Insert(t.Context(), []postdate.Message{m, other}); r[0].Err != nil || r[1].Err != nil {
			t.Fatal(r)
		}
		settlements := []store.Settlement{
			settlementOf(t, s, m.Key, store.SettleRetry, store.Next{Occurrence: 2000, AttemptTime: 2000}),
			settlementOf(t, s, other.Key, store.SettleDelivered, store.Next{Occurrence: 2000, AttemptTime: 2000}),
		}
		if err := spoil(s, &m); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context(), settlements); err != nil {
			t.Fatal(err)
		}
		if alone, err := s.Retried(t.Context(), m.Key); err != nil || len(alone) > 0 {
			t.Errorf("%s: retried are %v, %v", name, alone, err)
		}
		for _, key := range []postdate.Key{m.Key, other.Key} {
			if st, _, err := s.state(key); err != nil || st.Run != 2 || (st.Series.Failed == 1) != (key == m.Key) {
				t.Errorf("%s: %s is %+v, %v", name, key.ScheduleID, st, err)
			}
		}
		if st, _, _ := s.state(m.Key); !strings.Contains(st.LastError, name) {
			t.Errorf("%s: it says %q", name, st.LastError)
		}
	}
}

// A series whose message is damaged is not triggered, nor is any while the disk is almost full. It can be paused,
// and so can one whose message is damaged.
func TestASeriesThatCannotBeTriggered(t *testing.T) {
	for name, c := range map[string]struct {
		kind  postdate.Kind
		spoil func(s *Store, m *postdate.Message) error
	}{
		"almost full": {postdate.KindFull, func(s *Store, _ *postdate.Message) error { s.full.Store(true); return nil }},
		"damaged": {postdate.KindInternal, func(s *Store, m *postdate.Message) error {
			return s.db.Set(messageKey(nil, m.Key, m.ExecutionTime), []byte("rubbish"), nil)
		}},
		"missing": {postdate.KindInternal, func(s *Store, m *postdate.Message) error {
			return s.db.Delete(messageKey(nil, m.Key, m.ExecutionTime), nil)
		}},
	} {
		s := ownedBuckets(t, 1)
		m := seriesMessage("a", 1)
		if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
			t.Fatal(r)
		}
		before, _, err := s.state(m.Key)
		if err == nil {
			err = c.spoil(s, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Trigger(t.Context(), m.Key, before.Version, 500); postdate.KindOf(err) != c.kind {
			t.Errorf("%s: a trigger answers %v (%s), want the kind %s", name, err, postdate.KindOf(err), c.kind)
		}
		if _, there, err := s.state(m.Alone(500).Key); err != nil || there {
			t.Errorf("%s: the extra occurrence is there: %t, %v", name, there, err)
		}
		if err := s.Pause(t.Context(), m.Key, before.Version); err != nil {
			t.Errorf("%s: a pause answers %v", name, err)
		}
		before.Paused = true
		if st, _, err := s.state(m.Key); err != nil || !reflect.DeepEqual(st, before) {
			t.Errorf("%s: the series was %+v, and is %+v, %v", name, before, st, err)
		}
	}
}
