package publishertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/publisher"
)

func confirmedIsConsumable(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	batch := deliveries(channel, "m", 4)
	batch[0].Message.Headers = []postdate.Header{{Name: "a", Value: ""}, {Name: "x-tenant", Value: "grüße"}}
	batch[0].Message.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	batch[0].Message.Tracestate = "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"
	batch[1].Message.Traceparent = batch[0].Message.Traceparent
	batch[1].Message.Payload, batch[1].Message.ContentType = []byte{0, 255, 1, 254, '\n'}, "application/octet-stream"
	batch[1].Message.Encoding = postdate.EncodingBase64
	batch[2].Message.Payload = nil
	batch[2].Attempt = 3
	batch[3].Message.Payload = slices.Repeat([]byte("0123456789abcdef"), postdate.PayloadBytesMax/16)
	if err := p.Check(channel); err != nil {
		t.Errorf("check: %v", err)
	}
	confirm(t, h, p, batch)
	consumed := h.Consume(t, channel, len(batch))
	if len(consumed) != len(batch) {
		t.Fatalf("consumed %d messages of %d", len(consumed), len(batch))
	}
	for _, d := range batch {
		same(t, one(t, consumed, d.Message.ScheduleID), d)
	}
}

func one(t *testing.T, consumed []Consumed, id string) Consumed {
	t.Helper()
	i := slices.IndexFunc(consumed, func(c Consumed) bool { return c.MessageID == id })
	if i < 0 {
		t.Fatalf("%s was not consumed", id)
	}
	return consumed[i]
}

func emptyBatch(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	if results := p.Publish(context.Background(), channel, nil); len(results) != 0 {
		t.Errorf("%d results for no delivery", len(results))
	}
}

func duplicatesAreMarked(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	batch := deliveries(channel, "m", 2)
	batch[1].PossibleDuplicate, batch[1].Attempt = true, 2
	confirm(t, h, p, batch)
	consumed := h.Consume(t, channel, 2)
	for _, d := range batch {
		same(t, one(t, consumed, d.Message.ScheduleID), d)
	}
}

func occurrencesNameTheirSeries(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	m := message(channel, Series)
	*m = m.Alone(m.ExecutionTime)
	batch := []postdate.Delivery{{Message: m, Attempt: 1}}
	confirm(t, h, p, batch)
	got := h.Consume(t, channel, 1)[0]
	same(t, got, batch[0])
	if got.MessageID != Series+"/2027-01-15T08:00:00.123Z" || got.Headers[publisher.HeaderScheduleID] != Series {
		t.Errorf("consumed %s of %s", got.MessageID, got.Headers[publisher.HeaderScheduleID])
	}
}

func ownHeadersCannotBeForged(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	batch := deliveries(channel, "m", 1)
	batch[0].Message.Headers = []postdate.Header{
		{Name: "Postdate-Schedule-Id", Value: "forged"}, {Name: "mine", Value: "kept"},
		{Name: publisher.HeaderAttempt, Value: "9"}, {Name: publisher.HeaderPossibleDuplicate, Value: "true"},
		{Name: publisher.HeaderScheduleID, Value: "forged"},
	}
	confirm(t, h, p, batch)
	got := h.Consume(t, channel, 1)[0]
	same(t, got, batch[0])
	if got.Headers["mine"] != "kept" || got.Headers[publisher.HeaderScheduleID] != "m-0" || len(got.Headers) != 4 {
		t.Errorf("consumed headers %v", got.Headers)
	}
}

// Two messages with the same id can be in flight, for example those of two tenants.
func sameIDTwice(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	batch := append(deliveries(channel, "m", 2), deliveries(channel, "m", 2)...)
	batch[2].Message.Tenant, batch[3].Attempt = "other", 2
	confirm(t, h, p, batch)
	if n := len(h.Consume(t, channel, 4)); n != 4 {
		t.Errorf("consumed %d messages of 4", n)
	}
}

func concurrentBatches(t *testing.T, h Harness) {
	p, channels := open(t, h), []postdate.Channel{h.Channel(t), h.Channel(t)}
	const callers, batches, size = 8, 5, 100
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for n := range batches {
				batch := deliveries(channels[caller%2], fmt.Sprintf("c%d-b%d", caller, n), size)
				for i, r := range publish(context.Background(), t, h, p, batch) {
					if r.Outcome != publisher.Confirmed {
						t.Errorf("%s is %v: %s", batch[i].Message.ScheduleID, r.Outcome, r.Reason)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, channel := range channels {
		const n = callers / 2 * batches * size
		seen := map[string]bool{}
		for _, c := range h.Consume(t, channel, n) {
			if seen[c.MessageID] {
				t.Errorf("%s: %s was consumed twice", testrun.Broken, c.MessageID)
			}
			seen[c.MessageID] = true
			same(t, c, postdate.Delivery{Message: message(channel, c.MessageID), Attempt: 1})
		}
		if len(seen) != n {
			t.Errorf("consumed %d messages of %d", len(seen), n)
		}
	}
}

func badChannelIsRefused(t *testing.T, h Harness) {
	p := open(t, h)
	if err := p.Check(h.BadChannel); postdate.KindOf(err) != postdate.KindInvalid || err == nil {
		t.Errorf("check: %v", err)
	}
	for _, r := range publish(context.Background(), t, h, p, deliveries(h.BadChannel, "m", 2)) {
		if r.Outcome != publisher.Refused || !r.Permanent {
			t.Errorf("%v, permanent %t: %s", r.Outcome, r.Permanent, r.Reason)
		}
	}
}

func badMessageFailsAlone(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	batch := deliveries(channel, "m", 20)
	h.Bad(batch[7].Message)
	for i, r := range publish(context.Background(), t, h, p, batch) {
		if i == 7 {
			if r.Outcome != publisher.Refused || !r.Permanent {
				t.Errorf("the bad message is %v, permanent %t: %s", r.Outcome, r.Permanent, r.Reason)
			}
		} else if r.Outcome != publisher.Confirmed {
			t.Errorf("message %d, beside a bad one, is %v: %s", i, r.Outcome, r.Reason)
		}
	}
	if n := len(h.Consume(t, channel, len(batch)-1)); n != len(batch)-1 {
		t.Errorf("consumed %d messages of %d", n, len(batch)-1)
	}
}

func refusingChannel(t *testing.T, h Harness) {
	p, good, refusing := open(t, h), h.Channel(t), h.Refusing(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range 10 {
			confirmAll(t, h, p, deliveries(good, fmt.Sprint("b", n), 50))
		}
	})
	for n := range 5 {
		for _, r := range publish(context.Background(), t, h, p, deliveries(refusing, fmt.Sprint("b", n), 20)) {
			if r.Outcome != publisher.Refused {
				t.Errorf("a refusing channel answers %v: %s", r.Outcome, r.Reason)
			}
		}
	}
	wg.Wait()
	if n := len(h.Consume(t, good, 500)); n != 500 {
		t.Errorf("consumed %d messages of 500", n)
	}
}

// confirmAll is confirm for goroutines other than the test's.
func confirmAll(t *testing.T, h Harness, p publisher.Publisher, batch []postdate.Delivery) {
	for i, r := range publish(context.Background(), t, h, p, batch) {
		if r.Outcome != publisher.Confirmed {
			t.Errorf("%s is %v: %s", batch[i].Message.ScheduleID, r.Outcome, r.Reason)
		}
	}
}

// A caller that has given up gets an answer immediately, and never a wrong one.
func endedContext(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	confirm(t, h, p, deliveries(channel, "before", 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	batch, l := deliveries(channel, "ended", 10), newLedger()
	start := time.Now()
	l.note(batch, publish(ctx, t, h, p, batch))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("an ended context is answered after %s", took)
	}
	after := deliveries(channel, "after", 10)
	confirm(t, h, p, after)
	l.confirmed["before-0"] = 1
	for _, d := range after {
		l.confirmed[d.Message.ScheduleID] = 1
	}
	l.hold(t, h.Consume(t, channel, len(l.confirmed)))
}

func closeWaits(t *testing.T, h Harness) {
	p, channel := h.New(t), h.Channel(t)
	confirm(t, h, p, deliveries(channel, "first", 1))
	batch, l := deliveries(channel, "m", 300), newLedger()
	l.confirmed["first-0"] = 1
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.note(batch, publish(context.Background(), t, h, p, batch))
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	<-done
	if len(l.possible) > 0 {
		t.Errorf("%d messages are in doubt after an orderly close", len(l.possible))
	}
	for _, r := range publish(context.Background(), t, h, p, deliveries(channel, "late", 3)) {
		if r.Outcome != publisher.Down {
			t.Errorf("a closed publisher answers %v", r.Outcome)
		}
	}
	l.hold(t, h.Consume(t, channel, len(l.confirmed)))
}

func brokerDown(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	l := newLedger()
	first := deliveries(channel, "before", 10)
	l.note(first, publish(context.Background(), t, h, p, first))
	restore := h.Break(t)
	for n := range 3 {
		batch := deliveries(channel, fmt.Sprint("down", n), 10)
		results := publish(context.Background(), t, h, p, batch)
		l.note(batch, results)
		for _, r := range results {
			if r.Outcome != publisher.Down && r.Outcome != publisher.Unknown {
				t.Errorf("a broker that is down answers %v: %s", r.Outcome, r.Reason)
			}
		}
	}
	restore()
	comeBack(t, h, p, channel, l)
}

// comeBack publishes one message until it is confirmed, and then checks the ledger.
func comeBack(t *testing.T, h Harness, p publisher.Publisher, channel postdate.Channel, l ledger) {
	t.Helper()
	for deadline := time.Now().Add(patience); l.confirmed["after-0"] == 0; {
		if time.Now().After(deadline) {
			t.Fatal("a restored broker does not confirm")
		}
		batch := deliveries(channel, "after", 1)
		results := publish(context.Background(), t, h, p, batch)
		l.note(batch, results)
		if results[0].Outcome != publisher.Confirmed {
			time.Sleep(20 * time.Millisecond) // polls: there is no signal to wait for
		}
	}
	l.hold(t, h.Consume(t, channel, len(l.confirmed)))
}

func brokerBreaksUnderLoad(t *testing.T, h Harness) {
	p, channel := open(t, h), h.Channel(t)
	l := newLedger()
	var mu sync.Mutex
	var wg sync.WaitGroup
	stop, flowing := make(chan struct{}), make(chan struct{}, 4)
	for caller := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				batch := deliveries(channel, fmt.Sprintf("c%d-b%d", caller, n), 50)
				results := publish(context.Background(), t, h, p, batch)
				mu.Lock()
				l.note(batch, results)
				mu.Unlock()
				if n == 2 {
					flowing <- struct{}{}
				}
				if results[0].Outcome == publisher.Down {
					time.Sleep(5 * time.Millisecond) // as a caller that parks the channel would wait
				}
			}
		})
	}
	for range 4 {
		<-flowing
	}
	restore := h.Break(t)
	restore()
	close(stop)
	wg.Wait()
	comeBack(t, h, p, channel, l)
}
