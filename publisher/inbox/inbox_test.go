package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/inbox"
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/store"
)

// box is a small store.Inbox in memory that can fail or hang on demand. The stores' own suite
// checks that they keep the contract.
type box struct {
	inbox.Box
	mu       sync.Mutex
	messages []store.InboxMessage // of all inboxes; a cursor is an index
	fail     error                // answers every append
	hang     chan struct{}        // an append waits until it is closed; nil: does not wait
	reads    chan struct{}        // gets a value after each read; may be nil
}

const bad = "bad" // a content type that the box refuses

func (b *box) AppendInbox(_ context.Context, messages []store.InboxMessage) error {
	b.mu.Lock()
	hang := b.hang
	b.mu.Unlock()
	if hang != nil {
		<-hang
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	for _, m := range messages {
		if m.ContentType == bad {
			return postdate.E(postdate.KindInvalid, "content type %q", bad)
		}
	}
	b.messages = append(b.messages, messages...)
	return nil
}

func (b *box) ReadInbox(_ context.Context, tenant, name, after string, limit int) ([]store.InboxMessage, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reads != nil {
		defer func() { b.reads <- struct{}{} }()
	}
	at := 0
	if after != "" {
		var err error
		if at, err = strconv.Atoi(after); err != nil {
			return nil, "", postdate.E(postdate.KindInvalid, "cursor %q is none", after)
		}
	}
	var found []store.InboxMessage
	for ; at < len(b.messages) && len(found) < limit; at++ {
		if m := b.messages[at]; m.Tenant == tenant && m.Inbox == name {
			found = append(found, m)
		}
	}
	return found, strconv.Itoa(at), nil
}

func (b *box) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func now() postdate.Time { return 1_800_000_000_456 }

func TestConformance(t *testing.T) {
	b, n := &box{}, 0
	publishertest.Run(t, publishertest.Harness{
		Timeout: 10 * time.Second,
		New:     func(*testing.T) publisher.Publisher { return inbox.New(b, nil, now, slog.New(slog.DiscardHandler)) },
		Channel: func(*testing.T) postdate.Channel { n++; return postdate.Channel(fmt.Sprint("inbox:n", n)) },
		Consume: func(_ *testing.T, channel postdate.Channel, _ int) []publishertest.Consumed {
			b.mu.Lock()
			defer b.mu.Unlock()
			var consumed []publishertest.Consumed
			for _, m := range b.messages {
				if m.Inbox == channel.Target() {
					consumed = append(consumed, seen(m))
				}
			}
			return consumed
		},
		Bad: func(m *postdate.Message) { m.ContentType = bad },
		Break: func(*testing.T) func() {
			b.set(func() { b.fail = postdate.E(postdate.KindUnavailable, "the store is closed") })
			return func() { b.set(func() { b.fail = nil }) }
		},
		BadChannel: "inbox:no spaces",
	})
}

// seen converts an inbox message to what a broker's consumer would see.
func seen(m store.InboxMessage) publishertest.Consumed {
	headers := map[string]string{
		publisher.HeaderScheduleID: m.ScheduleID, publisher.HeaderExecutionTime: m.ExecutionTime.String(),
		publisher.HeaderAttempt: strconv.Itoa(m.Attempt),
	}
	if m.PossibleDuplicate {
		headers[publisher.HeaderPossibleDuplicate] = "true"
	}
	for _, h := range m.Headers {
		headers[h.Name] = h.Value
	}
	id := m.ScheduleID
	if id == publishertest.Series { // an inbox shows the id's parts
		id += "/" + m.ExecutionTime.String()
	}
	return publishertest.Consumed{MessageID: id, ContentType: m.ContentType, Payload: bytes.Clone(m.Payload), Headers: headers}
}

func delivery(id string) postdate.Delivery {
	return postdate.Delivery{Attempt: 1, Message: &postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: id}}}
}

// Each error of the store has its outcome, and an error that says nothing means Unknown.
func TestErrorsAndOutcomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want publisher.Outcome
	}{
		{postdate.E(postdate.KindUnavailable, "10.0.0.5:27017 is gone"), publisher.Down},
		{postdate.E(postdate.KindFull, "disk full"), publisher.Down},
		{postdate.E(postdate.KindInvalid, "no"), publisher.Refused},
		{postdate.E(postdate.KindTooLarge, "no"), publisher.Refused},
		{postdate.E(postdate.KindUnknown, "sync failed"), publisher.Unknown},
		{postdate.E(postdate.KindInternal, "damaged"), publisher.Unknown},
		{errors.New("anything"), publisher.Unknown},
	} {
		p := inbox.New(&box{fail: c.err}, nil, now, slog.New(slog.DiscardHandler))
		for _, r := range p.Publish(context.Background(), "inbox:x", []postdate.Delivery{delivery("a"), delivery("b")}) {
			if r.Outcome != c.want || r.Reason == "" || (r.Reason == c.err.Error()) != (c.want == publisher.Refused) {
				t.Errorf("%v: %v %q, want %v", c.err, r.Outcome, r.Reason, c.want)
			}
		}
	}
}

// The log has the store's own error, which no reason tells: once for a trouble that lasts.
func TestTheStoresErrorsAreLogged(t *testing.T) {
	var log bytes.Buffer
	fail := postdate.E(postdate.KindUnavailable, "append: server selection error: 10.0.0.5:27017")
	p := inbox.New(&box{fail: fail}, nil, now, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		p.Publish(context.Background(), "inbox:x", []postdate.Delivery{delivery("a"), delivery("b")})
	}
	if text := log.String(); strings.Count(text, "10.0.0.5:27017") != 1 {
		t.Errorf("the log does not say once what is wrong: %q", text)
	}
	log.Reset()
	w := &whole{box: &box{}, errs: map[string]error{"a": fail, "b": fail}}
	p = inbox.New(w, w, now, slog.New(slog.NewTextHandler(&log, nil)))
	p.Deliver(context.Background(), "inbox:x", []postdate.Delivery{delivery("a"), delivery("b")}, make([]store.Settlement, 2))
	if text := log.String(); strings.Count(text, "10.0.0.5:27017") != 1 {
		t.Errorf("the log does not say once why nothing is delivered: %q", text)
	}
}

// whole is a store.Deliverer that answers each delivery with the error of its schedule id.
type whole struct {
	*box
	errs map[string]error
	got  []store.InboxDelivery
}

func (w *whole) Deliver(_ context.Context, deliveries []store.InboxDelivery) []error {
	if w.hang != nil {
		<-w.hang
	}
	w.got = append(w.got, deliveries...)
	var errs []error
	for _, d := range deliveries {
		errs = append(errs, w.errs[d.Message.ScheduleID])
	}
	return errs
}

// Each delivery has the outcome that its own error says, and is settled only if it has none.
func TestDeliver(t *testing.T) {
	w := &whole{box: &box{}, errs: map[string]error{
		"full": postdate.E(postdate.KindFull, "no room at 10.0.0.5"), "lost": postdate.E(postdate.KindUnknown, "no answer of 10.0.0.5"),
		"unread": postdate.E(postdate.KindInternal, "a damaged block"), "bad": postdate.E(postdate.KindInvalid, "content type"),
	}}
	p := inbox.New(w, w, now, slog.New(slog.DiscardHandler))
	ids := []string{"a", "full", "lost", "b", "unread", "bad"}
	var batch []postdate.Delivery
	var settlements []store.Settlement
	for i, id := range ids {
		batch = append(batch, delivery(id))
		settlements = append(settlements, store.Settlement{Key: batch[i].Message.Key, Version: uint64(i)})
	}
	results := p.Deliver(context.Background(), "inbox:x", batch, settlements)
	want := []publisher.Outcome{publisher.Confirmed, publisher.Down, publisher.Unknown, publisher.Confirmed, publisher.Unknown, publisher.Refused}
	for i, r := range results {
		if r.Outcome != want[i] || r.Settled != (want[i] == publisher.Confirmed) || strings.Contains(r.Reason, "10.0.0.5") {
			t.Errorf("%s: %+v, want %v", ids[i], r, want[i])
		}
		if d := w.got[i]; d.Message.ScheduleID != ids[i] || d.Message.Inbox != "x" || d.Message.DeliveredAt != now() || d.Settlement.Version != uint64(i) {
			t.Errorf("%s is delivered as %+v", ids[i], d)
		}
	}
	if r := p.Deliver(context.Background(), "inbox:no spaces", batch[:1], settlements[:1])[0]; r.Outcome != publisher.Refused || !r.Permanent {
		t.Errorf("to a bad name: %+v", r)
	}
}

// A reader is woken by what may be there, and Close waits for a delivery.
func TestDeliverWakesAndHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still unless all wait, as for the next poll
		b := &box{reads: make(chan struct{}, 1000)}
		w := &whole{box: b, errs: map[string]error{"lost": postdate.E(postdate.KindUnknown, "no answer")}}
		p := inbox.New(w, w, now, slog.New(slog.DiscardHandler))
		for i, id := range []string{"a", "lost"} {
			began := time.Now()
			got := read(context.Background(), p, strconv.Itoa(i), time.Minute)
			<-b.reads // it has found nothing
			b.set(func() { b.messages = append(b.messages, store.InboxMessage{Tenant: "t", Inbox: "x", ScheduleID: id}) })
			p.Deliver(context.Background(), "inbox:x", []postdate.Delivery{delivery(id)}, make([]store.Settlement, 1))
			if pg := <-got; pg.err != nil || fmt.Sprint(pg.ids) != "["+id+"]" {
				t.Errorf("read %+v, want %s", pg, id)
			}
			if !time.Now().Equal(began) {
				t.Errorf("%s is found by a poll: nobody rang", id)
			}
		}
	})
	w := &whole{box: &box{}}
	p := inbox.New(w, w, now, slog.New(slog.DiscardHandler))
	w.hang = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if r := p.Deliver(ctx, "inbox:x", []postdate.Delivery{delivery("a")}, make([]store.Settlement, 1))[0]; r.Outcome != publisher.Unknown || r.Settled {
		t.Errorf("%+v", r)
	}
	if err := p.Close(ctx); postdate.KindOf(err) != postdate.KindUnknown {
		t.Errorf("close while a delivery hangs: %v", err)
	}
	close(w.hang)
	if err := p.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// A store that hangs holds up no call beyond the end of ctx, and Close waits for it.
func TestStoreHangs(t *testing.T) {
	b := &box{hang: make(chan struct{})}
	p := inbox.New(b, nil, now, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if r := p.Publish(ctx, "inbox:x", []postdate.Delivery{delivery("a")})[0]; r.Outcome != publisher.Unknown {
		t.Errorf("%v: %s", r.Outcome, r.Reason)
	}
	if err := p.Close(ctx); postdate.KindOf(err) != postdate.KindUnknown {
		t.Errorf("close while an append hangs: %v", err)
	}
	close(b.hang)
	if err := p.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
}

type page struct {
	ids  []string
	next string
	err  error
}

// read reads inbox t/x in another goroutine.
func read(ctx context.Context, p *inbox.Publisher, after string, wait time.Duration) <-chan page {
	got := make(chan page, 1)
	go func() {
		messages, next, err := p.Read(ctx, store.InboxRead{Tenant: "t", Inbox: "x", After: after, Limit: 10, Wait: wait})
		pg := page{next: next, err: err}
		for _, m := range messages {
			pg.ids = append(pg.ids, m.ScheduleID)
		}
		got <- pg
	}()
	return got
}

func TestReadWakesForItsOwnInboxOnly(t *testing.T) {
	b := &box{reads: make(chan struct{}, 1000)}
	p := inbox.New(b, nil, now, slog.New(slog.DiscardHandler))
	got := read(context.Background(), p, "", time.Minute)
	<-b.reads // it has found nothing
	p.Publish(context.Background(), "inbox:other", []postdate.Delivery{delivery("no")})
	p.Publish(context.Background(), "inbox:x", []postdate.Delivery{delivery("a"), delivery("b")})
	if pg := <-got; pg.err != nil || fmt.Sprint(pg.ids) != "[a b]" || pg.next != "3" {
		t.Errorf("read %+v", pg)
	}
}

// What another node appends rings no bell here, and is found all the same.
func TestReadFindsWhatAnotherNodeAppended(t *testing.T) {
	b := &box{reads: make(chan struct{}, 1000)}
	p, other := inbox.New(b, nil, now, slog.New(slog.DiscardHandler)), inbox.New(b, nil, now, slog.New(slog.DiscardHandler))
	got := read(context.Background(), p, "", time.Minute)
	<-b.reads
	other.Publish(context.Background(), "inbox:x", []postdate.Delivery{delivery("a")})
	if pg := <-got; pg.err != nil || len(pg.ids) != 1 {
		t.Errorf("read %+v", pg)
	}
}

func TestReadEndsEmpty(t *testing.T) {
	p := inbox.New(&box{}, nil, now, slog.New(slog.DiscardHandler))
	if pg := <-read(context.Background(), p, "0", 10*time.Millisecond); pg.err != nil || pg.next != "0" || pg.ids != nil {
		t.Errorf("wait over: %+v", pg)
	}
	if pg := <-read(context.Background(), p, "0", 0); pg.err != nil || pg.next != "0" || pg.ids != nil {
		t.Errorf("no wait: %+v", pg)
	}
	if pg := <-read(context.Background(), p, "x", time.Minute); postdate.KindOf(pg.err) != postdate.KindInvalid {
		t.Errorf("bad cursor: %+v", pg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	got := read(ctx, p, "0", time.Minute)
	cancel()
	if pg := <-got; postdate.KindOf(pg.err) != postdate.KindUnavailable || pg.next != "0" {
		t.Errorf("reader gone: %+v", pg)
	}
	got = read(context.Background(), p, "0", time.Minute)
	if err := p.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if pg := <-got; pg.err != nil || pg.next != "0" {
		t.Errorf("closed: %+v", pg)
	}
}

// A reader that goes from cursor to cursor while a writer appends sees every message at its own
// bell, not only at the next poll.
func TestNoWakeUpIsLost(t *testing.T) {
	b := &box{}
	p := inbox.New(b, nil, now, slog.New(slog.DiscardHandler))
	const n = 2000
	go func() {
		for i := range n {
			p.Publish(context.Background(), "inbox:x", []postdate.Delivery{delivery(strconv.Itoa(i))})
		}
	}()
	seen, after, start := 0, "", time.Now()
	for seen < n {
		pg := <-read(context.Background(), p, after, time.Minute)
		if pg.err != nil {
			t.Fatal(pg.err)
		}
		for _, id := range pg.ids {
			if id != strconv.Itoa(seen) {
				t.Fatalf("message %s where %d was due", id, seen)
			}
			seen++
		}
		after = pg.next
	}
	// One lost wake-up in a hundred would take 20 polls.
	if took := time.Since(start); took > 20*inbox.PollInterval {
		t.Errorf("%d messages took %s", n, took)
	}
}
