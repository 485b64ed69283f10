package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// world is a Taker over a store in memory, with its own clock and faults.
type world struct {
	*testing.T
	*storetest.Mem
	taker *Taker
	sums  *prometheus.Registry
	now   postdate.Time
	calls int

	mu    sync.Mutex
	fault func(m *postdate.Message) (err error, written bool) // of an insert
	never error                                               // of a replacement

	between func() // runs once, after a Get
	retried error  // of Retried
}

func (w *world) Get(ctx context.Context, key postdate.Key) (postdate.Record, error) {
	r, err := w.Mem.Get(ctx, key)
	if between := w.between; between != nil {
		w.between = nil
		between()
	}
	return r, err
}

func (w *world) Retried(ctx context.Context, series postdate.Key) ([]postdate.Key, error) {
	if w.retried != nil {
		return nil, w.retried
	}
	return w.Mem.Retried(ctx, series)
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, Mem: storetest.NewMem(8), now: now}
	w.restart()
	return w
}

// restart replaces the Taker by a new one, as after a crash.
func (w *world) restart() { w.serve(postdate.DefaultTenant) }

// serve replaces the Taker by that of a source of some tenant.
func (w *world) serve(tenant string) {
	in, err := intake(), error(nil)
	in.Tenant = tenant
	w.sums = prometheus.NewRegistry()
	w.taker, err = NewTaker(Config{Messages: w, Intake: *in, Now: func() postdate.Time { return w.now }, Metrics: NewMetrics(w.sums)})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	results := make([]store.Inserted, len(messages))
	for i := range messages {
		var err error
		written := true
		if w.fault != nil {
			err, written = w.fault(&messages[i])
		}
		if written {
			results[i] = w.Mem.Insert(ctx, messages[i:i+1])[0]
		}
		if err != nil {
			results[i] = store.Inserted{Err: err}
		}
	}
	return results
}

func (w *world) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	if w.never != nil {
		return postdate.Record{}, w.never
	}
	return w.Mem.Replace(ctx, next, was)
}

// take passes commands to the Taker and returns the outcomes.
func (w *world) take(commands ...*Command) string {
	var shown []string
	for _, r := range w.taker.Take(context.Background(), commands) {
		shown = append(shown, []string{"again", "done", "bad"}[r.Outcome])
	}
	return strings.Join(shown, " ")
}

func (w *world) expect(got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("got %s, want %s", got, want)
	}
}

// stored returns the stored messages with status, mark and payload.
func (w *world) stored() string { return w.storedOf(postdate.DefaultTenant) }

func (w *world) storedOf(tenant string) string {
	page, err := w.List(context.Background(), store.ListQuery{Tenant: tenant, Limit: 1000})
	if err != nil {
		w.Fatal(err)
	}
	var shown []string
	for _, r := range page.Records {
		s := fmt.Sprintf("%s=%s/%s", r.ScheduleID, r.Payload, r.Status)
		if len(r.ScheduleID) == 36 {
			s = strings.Replace(s, r.ScheduleID, "new", 1)
		}
		if r.MayRepeat {
			s += "/marked"
		}
		shown = append(shown, s)
	}
	slices.Sort(shown)
	return strings.Join(shown, " ")
}

// deliver claims everything up to now and settles it.
func (w *world) deliver() {
	ctx := context.Background()
	for b := range 8 {
		got, err := w.Acquire(ctx, []store.Acquisition{{Bucket: b, SeenToken: w.token(b), Owner: "o", Lease: "l"}})
		if err != nil || !got[0].OK {
			w.Fatal(got, err)
		}
		hold := store.Hold{Bucket: b, Token: got[0].Partition.Token}
		result := w.Claim(ctx, []store.Claim{{Bucket: b, Claim: bucket.Claim{Token: hold.Token, Number: got[0].Partition.Claims + 1, To: bucket.UpTo(w.now)}, Scan: store.Scan{Limit: 100, BytesMax: 1 << 20}}})[0]
		if result.Err != nil {
			w.Fatal(result.Err)
		}
		for _, r := range result.Due {
			if err := w.Settle(ctx, []store.Settlement{{Key: r.Key, Version: r.Version, Token: hold.Token, How: store.SettleDelivered, At: w.now, Attempts: 1}}); err != nil {
				w.Fatal(err)
			}
		}
	}
}

func (w *world) token(b int) uint64 {
	records, _, err := w.Look(context.Background(), []int{b})
	if err != nil {
		w.Fatal(err)
	}
	return records[0].Token
}

func delayed(id, body string, ms int) *Command {
	return &Command{Body: []byte(body), MessageID: id, Headers: headers("x-delay", fmt.Sprint(ms)), Channel: "rabbitmq:q"}
}

func record(offset int64, body string) *Command {
	c := &Command{Body: []byte(body), Records: true, Key: "s", Channel: "kafka:out", Position: fmt.Sprint("t:0:", offset), Place: Place{"t", 0, offset}}
	if body == "" {
		c.Body = nil
	}
	return c
}

func upsert(offset int64, payload string) *Command {
	return record(offset, `{"scheduleId":"s","executionTime":"2027-01-15T09:00:00Z","payload":`+payload+`}`)
}

func TestTake(t *testing.T) {
	w := newWorld(t)
	commands := []*Command{delayed("a", "1", 1000), {Body: []byte("?")}, delayed("b", "2", 1000), delayed("a", "1", 1000)}
	w.expect(w.take(commands...), "done bad done done")
	w.expect(w.stored(), "a=1/PENDING b=2/PENDING")
	w.expect(fmt.Sprint(w.calls), "2") // the second about the same id waits for the first
	families, err := w.sums.Gather()
	if err != nil || families[0].GetName() != "postdate_ingest_commands_total" {
		t.Fatal(families, err)
	}
	for i, want := range []float64{1, 0, 1, 0, 2} { // bad, cancelled, repeated, replaced, scheduled
		if got := families[0].Metric[i].Counter.GetValue(); got != want {
			t.Errorf("%v has %v, want %v", families[0].Metric[i].Label, got, want)
		}
	}
}

// After a crash between the write and the acknowledgement, everything is redelivered.
// Nothing is stored twice except messages without a name, which are marked.
func TestCrashBetweenWriteAndAck(t *testing.T) {
	w := newWorld(t)
	batch := func(again bool) []*Command {
		named := delayed("", "named", 1000)
		named.Headers = append(named.Headers, headers("postdate-schedule-id", "n")...)
		placed := delayed("", "placed", 1000)
		placed.Position = "t:0:1"
		json := &Command{Body: []byte(`{"scheduleId":"j","delay":"1s","payload":1}`), Channel: "rabbitmq:q"}
		all := []*Command{delayed("m", "x", 1000), named, placed, json, delayed("", "nameless", 1000)}
		for _, c := range all {
			c.Redelivered = again
		}
		return all
	}
	w.expect(w.take(batch(false)...), "done done done done done")
	w.restart()
	w.now += 500
	w.expect(w.take(batch(true)...), "done done done done done")
	w.expect(w.stored(), "j=1/PENDING m=x/PENDING n=named/PENDING new=nameless/PENDING new=nameless/PENDING/marked t:0:1=placed/PENDING")
	w.restart()
	w.now += 1000
	w.deliver()
	w.expect(w.take(batch(true)[1:4]...), "done done done")
	if got := strings.Count(w.stored(), "PENDING"); got != 0 {
		t.Errorf("%d messages are PENDING again: %s", got, w.stored())
	}
}

// Consumers send messages back with a delay, and many keep the message id. Such a
// message must not count as a repetition.
func TestMessageIDThatIsUsedAgain(t *testing.T) {
	w := newWorld(t)
	w.expect(w.take(delayed("m", "x", 1000)), "done")
	w.expect(w.take(delayed("m", "x", 1000)), "done") // one is still to come: a repetition
	w.expect(w.stored(), "m=x/PENDING")
	w.expect(w.take(delayed("m", "y", 1000)), "done") // other content
	w.expect(w.stored(), "m=x/PENDING new=y/PENDING")
	w.now += 1000
	w.expect(w.take(delayed("m", "x", 1000)), "done") // it may be on its way out, or back
	w.deliver()
	w.expect(w.take(delayed("m", "x", 1000)), "done")
	w.expect(w.stored(), "m=x/DELIVERED new=x/PENDING/marked new=x/PENDING/marked new=y/DELIVERED")
}

// The same id from a sender means the same message.
func TestIDThatIsTaken(t *testing.T) {
	w := newWorld(t)
	given := func(body string) *Command {
		c := delayed("", body, 1000)
		c.Headers = append(c.Headers, headers("postdate-schedule-id", "s")...)
		return c
	}
	w.expect(w.take(given("x")), "done")
	w.now += 2000
	w.deliver()
	w.expect(w.take(given("x"), given("y")), "done bad")
	w.expect(w.stored(), "s=x/DELIVERED")
}

// If the store is unavailable or an outcome is unknown, nothing is lost, nothing is
// stored twice, and the order is kept.
func TestStoreThatFails(t *testing.T) {
	for name, fault := range map[string]struct {
		kind    postdate.Kind
		written bool
	}{
		"unavailable": {postdate.KindUnavailable, false}, "full": {postdate.KindFull, false},
		"unknown, not written": {postdate.KindUnknown, false}, "unknown, written": {postdate.KindUnknown, true}, "internal": {postdate.KindInternal, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			batch := []*Command{delayed("a", "1", 1000), delayed("", "2", 1000), upsert(1, "1"), upsert(2, "2"), record(3, "")}
			w.fault = func(m *postdate.Message) (error, bool) {
				if string(m.Payload) == "2" {
					return postdate.E(fault.kind, "the test says so"), fault.written
				}
				return nil, true
			}
			got := w.take(batch...)
			if want := "done again done again again"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			w.fault = nil
			w.expect(w.take(batch...), "done done done done done")
			w.expect(w.take(batch...), "done done done done done")
			w.expect(w.stored(), "a=1/PENDING new=2/PENDING s=2/CANCELLED")
		})
	}
}

// What comes too late is bad, also while the tenant has as much pending as it may.
func TestTooLateAtALimit(t *testing.T) {
	w := newWorld(t)
	w.expect(w.take(upsert(1, "1")), "done")
	w.now += 3_600_000
	w.deliver()
	w.expect(w.stored(), "s=1/DELIVERED")
	keeper := quota.NewKeeper(quota.Limits{BytesMax: 5}, w.Mem, func() int { return 1 }, time.Now)
	w.taker.config.Messages = keeper.Hold(w)
	w.expect(w.take(delayed("b", "2222", 1000)), "done")
	w.expect(w.take(upsert(2, "333")), "bad")
}

// What can never be stored holds up nothing that follows.
func TestWhatIsTooLarge(t *testing.T) {
	w := newWorld(t)
	tooLarge := postdate.E(postdate.KindTooLarge, "the test says so")
	w.expect(w.take(upsert(1, "1")), "done")
	w.never = tooLarge
	w.expect(w.take(upsert(2, "2"), record(3, "")), "bad done")
	w.fault = func(*postdate.Message) (error, bool) { return tooLarge, false }
	w.expect(w.take(delayed("b", "2", 1000)), "bad")
	w.expect(w.stored(), "s=1/CANCELLED")
}

func TestRecords(t *testing.T) {
	w := newWorld(t)
	w.expect(w.take(upsert(1, "1"), upsert(2, "2"), upsert(3, "1"), upsert(4, "3")), "done done done done")
	w.expect(w.stored(), "s=3/PENDING")
	w.expect(w.take(upsert(5, "4"), record(6, ""), record(7, "")), "done done done")
	w.expect(w.stored(), "s=4/CANCELLED")
	w.expect(w.take(upsert(8, "5")), "bad") // a cancelled message stays so
	unknown := record(9, "")
	unknown.Key = "nobody"
	w.expect(w.take(unknown), "bad")
	w = newWorld(t)
	w.expect(w.take(upsert(1, "1")), "done")
	w.now += postdate.Time(3_600_000)
	w.deliver()
	w.expect(w.take(upsert(2, "2"), record(3, ""), upsert(4, "1")), "bad bad done")
	w.expect(w.stored(), "s=1/DELIVERED")
}

// After a crash, a partition is read again from an earlier place. Records that later ones
// replaced do not take effect again, not even for a moment.
func TestRecordsThatComeAgain(t *testing.T) {
	w := newWorld(t)
	w.expect(w.take(upsert(1, "1"), upsert(2, "2"), upsert(3, "3")), "done done done")
	w.restart()
	for offset, payload := range []string{"1", "2", "3"} {
		w.expect(w.take(upsert(int64(offset+1), payload)), "done")
		w.expect(w.stored(), "s=3/PENDING")
	}
	w.expect(w.take(upsert(4, "4"), record(5, "")), "done done")
	w.restart()
	for offset, payload := range []string{"1", "2", "3", "4"} {
		w.expect(w.take(upsert(int64(offset+1), payload)), "done")
	}
	w.expect(w.take(record(5, "")), "done")
	w.expect(w.stored(), "s=4/CANCELLED")

	w = newWorld(t) // a cancel that came before its time takes nothing back
	named := delayed("", "x", 3_600_000)
	named.Headers, named.Records, named.Place = append(named.Headers, headers("postdate-schedule-id", "n")...), true, Place{"t", 0, 8}
	early := record(7, "")
	early.Key = "n"
	w.expect(w.take(record(1, ""), upsert(2, "1"), early, named), "bad done bad done")
	w.restart()
	again := record(7, "")
	again.Key = "n"
	w.expect(w.take(record(1, ""), again), "done done")
	w.expect(w.stored(), "n=x/PENDING s=1/PENDING")
}

// A record named by its message id is recognised by its place, even after delivery.
// Another record with the same message id is another message.
func TestRecordsWithMessageIDs(t *testing.T) {
	w := newWorld(t)
	at := func(offset int64) *Command {
		c := delayed("m", "x", 1000)
		c.Records, c.Place, c.Position = true, Place{"t", 0, offset}, fmt.Sprint("t:0:", offset)
		return c
	}
	w.expect(w.take(at(1)), "done")
	w.now += 1000
	w.deliver()
	w.expect(w.take(at(1)), "done")
	w.expect(w.stored(), "m=x/DELIVERED")
	w.expect(w.take(at(2)), "done")
	w.expect(w.take(at(2)), "done")
	w.expect(w.stored(), "m=x/DELIVERED t:0:2=x/PENDING/marked")
}

// A late repetition whose delay ends after expiresAt is recognised as already done.
func TestExpiredRepetition(t *testing.T) {
	w := newWorld(t)
	command := func() *Command {
		return &Command{Body: []byte(`{"scheduleId":"s","delay":"1s","expiresAt":"2027-01-15T08:00:02Z","payload":1}`), Channel: "rabbitmq:q"}
	}
	w.expect(w.take(command()), "done")
	w.now += 1500
	w.expect(w.take(command()), "done")
	other := command()
	other.Body = []byte(strings.Replace(string(other.Body), `"s"`, `"t"`, 1))
	w.expect(w.take(other), "bad")
	w.expect(w.stored(), "s=1/PENDING")
}

// What a source of one tenant takes neither changes nor cancels another tenant's message with the
// same id. Its senders get the same answers as if that message did not exist.
func TestSourcesOfTenants(t *testing.T) {
	w := newWorld(t)
	given := func(id, body string) *Command {
		c := delayed("", body, 3_600_000)
		c.Headers = append(c.Headers, headers("postdate-schedule-id", id)...)
		return c
	}
	expired := func() *Command {
		return &Command{Body: []byte(`{"scheduleId":"late","delay":"1s","expiresAt":"2027-01-15T08:00:02Z","payload":1}`), Channel: "rabbitmq:q"}
	}
	w.serve("a")
	w.expect(w.take(upsert(1, "1"), given("g", "of a"), delayed("m", "of a", 3_600_000), given("only", "of a"), expired()), "done done done done done")
	of := w.storedOf("a")
	w.now += 1500

	w.serve("b")
	onlyA, nobody := record(1, ""), record(2, "")
	onlyA.Key, nobody.Key = "only", "nobody"
	w.expect(w.take(onlyA, nobody), "bad bad")
	if onlyA.result != nobody.result {
		t.Errorf("%v tells of the other tenant's message: an id that nobody has gets %v", onlyA.result, nobody.result)
	}
	w.expect(w.take(expired()), "bad") // for a it is a repetition
	w.expect(w.take(upsert(1, "2"), upsert(2, "3"), given("g", "of b"), delayed("m", "of b", 3_600_000)), "done done done done")
	w.expect(w.storedOf("b"), "g=of b/PENDING m=of b/PENDING s=3/PENDING")
	w.expect(w.take(record(3, "")), "done")
	w.expect(w.storedOf("b"), "g=of b/PENDING m=of b/PENDING s=3/CANCELLED")
	w.expect(w.storedOf("a"), of)
	w.expect(w.stored(), "")

	w.serve("a")
	w.expect(w.take(expired(), record(3, "")), "done done")
	w.expect(w.storedOf("a"), strings.Replace(of, "s=1/PENDING", "s=1/CANCELLED", 1))
	w.expect(w.storedOf("b"), "g=of b/PENDING m=of b/PENDING s=3/CANCELLED")
}

// A later record counts also if it says what the message was made of, before a client changed it over HTTP.
func TestRecordAfterAPatch(t *testing.T) {
	w := newWorld(t)
	record := func(offset int64) *Command {
		return &Command{Body: []byte(`{"scheduleId":"s","channel":"kafka:x","executionTime":"` + (now + 60_000).String() + `","payload":1}`),
			Records: true, Key: "s", Place: Place{"t", 0, offset}, Position: fmt.Sprint("t:0:", offset)}
	}
	w.expect(w.take(record(1)), "done")
	key := bucket.KeyOf(postdate.DefaultTenant, "s", 8)
	stored := func() postdate.Record {
		r, err := w.Get(w.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := stored()
	m := old.Message
	m.ExecutionTime, m.Digest = now+3_600_000, postdate.Digest{1, 2, 3}
	next := postdate.NewRecord(m, old.Version+1)
	next.Original = old.Origin()
	if _, err := w.Replace(w.Context(), next, old); err != nil {
		t.Fatal(err)
	}
	w.expect(w.take(record(1)), "done") // read again
	if got := stored(); got.ExecutionTime != now+3_600_000 {
		t.Errorf("a record that is read again undoes the change: it is due at %s", got.ExecutionTime)
	}
	w.now += 1000
	w.expect(w.take(record(2)), "done")
	if got := stored(); got.ExecutionTime != now+60_000 || got.Moved != (postdate.Move{At: now + 1000, From: now + 3_600_000}) {
		t.Errorf("the later record was passed over: it is due at %s, and was moved by %v", got.ExecutionTime, got.Moved)
	}
}
