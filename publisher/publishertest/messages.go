package publishertest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/publisher"
)

// patience is how long the suite waits for what must happen.
const patience = 60 * time.Second

// open makes a publisher that is closed when the test ends.
func open(t *testing.T, h Harness) publisher.Publisher {
	t.Helper()
	return Closing(t, h.New(t))
}

// Series is the schedule id of a message that recurs.
const Series = "series"

func message(channel postdate.Channel, id string) *postdate.Message {
	return &postdate.Message{
		Key:           postdate.Key{Tenant: postdate.DefaultTenant, ScheduleID: id},
		Channel:       channel,
		ExecutionTime: 1_800_000_000_123,
		CreatedAt:     1_700_000_000_000,
		Payload:       []byte(`{"for": "` + id + `"}`),
		ContentType:   "application/json",
	}
}

// deliveries returns first attempts at n messages whose ids begin with prefix.
func deliveries(channel postdate.Channel, prefix string, n int) []postdate.Delivery {
	batch := make([]postdate.Delivery, n)
	for i := range batch {
		batch[i] = postdate.Delivery{Message: message(channel, fmt.Sprintf("%s-%d", prefix, i)), Attempt: 1}
	}
	return batch
}

// want returns what a consumer must see of a delivery.
func want(d postdate.Delivery) Consumed {
	m := d.Message
	headers := map[string]string{
		publisher.HeaderScheduleID:    m.SeriesID(),
		publisher.HeaderExecutionTime: m.ExecutionTime.String(),
		publisher.HeaderAttempt:       fmt.Sprint(d.Attempt),
	}
	if d.PossibleDuplicate {
		headers[publisher.HeaderPossibleDuplicate] = "true"
	}
	if m.Traceparent != "" {
		headers[publisher.HeaderTraceparent] = m.Traceparent
	}
	if m.Tracestate != "" {
		headers[publisher.HeaderTracestate] = m.Tracestate
	}
	for h := range publisher.ClientHeaders(m) {
		headers[h.Name] = h.Value
	}
	return Consumed{MessageID: m.ScheduleID, ContentType: m.ContentType, Payload: m.Payload, Headers: headers}
}

// same fails the test if got is not what a consumer must see of d.
func same(t *testing.T, got Consumed, d postdate.Delivery) {
	t.Helper()
	w := want(d)
	if got.MessageID != w.MessageID || got.ContentType != w.ContentType {
		t.Errorf("consumed id %q of type %q, want %q of %q", got.MessageID, got.ContentType, w.MessageID, w.ContentType)
	}
	if string(got.Payload) != string(w.Payload) {
		t.Errorf("%s: consumed payload %q, want %q", w.MessageID, got.Payload, w.Payload)
	}
	if !maps.Equal(got.Headers, w.Headers) {
		t.Errorf("%s: consumed headers %v, want %v", w.MessageID, got.Headers, w.Headers)
	}
}

// publish publishes a batch and checks the form of the results: one valid result per delivery,
// with a reason unless it is confirmed, within the deadline.
func publish(ctx context.Context, t *testing.T, h Harness, p publisher.Publisher,
	batch []postdate.Delivery) []publisher.Result {
	t.Helper()
	start := time.Now()
	results := p.Publish(ctx, batchChannel(batch), batch)
	if took := time.Since(start); took > h.Timeout+5*time.Second {
		t.Errorf("publish took %s, its deadline is %s", took, h.Timeout)
	}
	if len(results) != len(batch) {
		t.Fatalf("%d results for %d deliveries", len(results), len(batch))
	}
	for i, r := range results {
		switch {
		case r.Outcome < publisher.Confirmed || r.Outcome > publisher.Unknown:
			t.Errorf("result %d has no outcome", i)
		case r.Outcome != publisher.Confirmed && r.Reason == "":
			t.Errorf("result %d is %v without a reason", i, r.Outcome)
		case r.Permanent && r.Outcome != publisher.Refused:
			t.Errorf("result %d is permanently %v", i, r.Outcome)
		case telling(r.Reason):
			t.Errorf("result %d tells an address: %s", i, r.Reason)
		}
	}
	return results
}

// telling says whether a reason names an address of the network that the test's servers are in.
func telling(reason string) bool { return strings.Contains(reason, "127.0.0.1") }

func batchChannel(batch []postdate.Delivery) postdate.Channel { return batch[0].Message.Channel }

// confirm publishes a batch, and fails the test unless every message is confirmed.
func confirm(t *testing.T, h Harness, p publisher.Publisher, batch []postdate.Delivery) {
	t.Helper()
	for i, r := range publish(context.Background(), t, h, p, batch) {
		if r.Outcome != publisher.Confirmed {
			t.Fatalf("%s is %v: %s", batch[i].Message.ScheduleID, r.Outcome, r.Reason)
		}
	}
}

// ledger counts the outcomes of messages, to be compared with what a consumer sees.
type ledger struct {
	confirmed, possible map[string]int // by id
}

func newLedger() ledger { return ledger{confirmed: map[string]int{}, possible: map[string]int{}} }

func (l ledger) note(batch []postdate.Delivery, results []publisher.Result) {
	for i, r := range results {
		switch r.Outcome {
		case publisher.Confirmed:
			l.confirmed[batch[i].Message.ScheduleID]++
		case publisher.Unknown:
			l.possible[batch[i].Message.ScheduleID]++
		}
	}
}

// hold fails the test if a confirmed message was not consumed, or if a message was consumed
// more often than it was confirmed or may have been delivered.
func (l ledger) hold(t *testing.T, consumed []Consumed) {
	t.Helper()
	seen := map[string]int{}
	for _, c := range consumed {
		seen[c.MessageID]++
	}
	for id, n := range l.confirmed {
		if seen[id] < n {
			t.Errorf("%s: %s: confirmed %d times, consumed %d times", testrun.Broken, id, n, seen[id])
		}
	}
	for id, n := range seen {
		if most := l.confirmed[id] + l.possible[id]; n > most {
			t.Errorf("%s: %s: consumed %d times, and at most %d were delivered", testrun.Broken, id, n, most)
		}
	}
}
