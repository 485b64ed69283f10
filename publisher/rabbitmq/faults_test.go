package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// load publishes from several callers until it is ended, and records the results.
type load struct {
	t    *testing.T
	p    *rabbitmq.Publisher
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	outcomes map[string]publisher.Outcome // by id; every id is published once
	reasons  map[string]bool
	moved    *sync.Cond
}

func startLoad(t *testing.T, p *rabbitmq.Publisher, queue string) *load {
	l := &load{t: t, p: p, stop: make(chan struct{}), outcomes: map[string]publisher.Outcome{}, reasons: map[string]bool{}}
	l.moved = sync.NewCond(&l.mu)
	for caller := range 4 {
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				batch := batchOf(fmt.Sprintf("c%d-b%d", caller, n), 50)
				results := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), batch)
				l.note(batch, results)
				if results[0].Outcome == publisher.Down {
					time.Sleep(20 * time.Millisecond) // as a caller that parks the channel would
				}
			}
		})
	}
	l.until(publisher.Confirmed, 500)
	return l
}

func (l *load) note(batch []postdate.Delivery, results []publisher.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range results {
		l.outcomes[batch[i].Message.ScheduleID] = r.Outcome
		if r.Reason != "" {
			l.reasons[r.Reason] = true
		}
	}
	l.moved.Broadcast()
}

func (l *load) countLocked(o publisher.Outcome) (n int) {
	for _, have := range l.outcomes {
		if have == o {
			n++
		}
	}
	return n
}

// until waits for n more results of an outcome.
func (l *load) until(o publisher.Outcome, n int) {
	l.t.Helper()
	late := time.AfterFunc(time.Minute, func() { l.mu.Lock(); defer l.mu.Unlock(); l.moved.Broadcast() })
	defer late.Stop()
	start := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for want := l.countLocked(o) + n; l.countLocked(o) < want; l.moved.Wait() {
		if time.Since(start) >= time.Minute {
			l.t.Fatalf("%d results are %v after a minute, want %d; reasons: %v", l.countLocked(o), o, want, l.reasons)
		}
	}
}

// account ends the load and compares it with the queue: confirmed is there, once; refused and
// down are not.
func (l *load) account(inQueue []amqp.Delivery) {
	l.t.Helper()
	seen := map[string]int{}
	for _, d := range inQueue {
		seen[d.MessageId]++
	}
	for id, o := range l.outcomes {
		switch n := seen[id]; {
		case o == publisher.Confirmed && n != 1:
			l.t.Errorf("%s is confirmed and %d times in the queue", id, n)
		case o == publisher.Unknown && n > 1, (o == publisher.Refused || o == publisher.Down) && n > 0:
			l.t.Errorf("%s is %v and %d times in the queue", id, o, n)
		}
	}
	var counts []string
	for o := publisher.Confirmed; o <= publisher.Unknown; o++ {
		counts = append(counts, fmt.Sprintf("%d %v", l.countLocked(o), o))
	}
	l.t.Logf("%s; reasons %v", strings.Join(counts, ", "), l.reasons)
}

func (l *load) end() { close(l.stop); l.wg.Wait() }

func batchOf(prefix string, n int) []postdate.Delivery {
	batch := make([]postdate.Delivery, n)
	for i := range batch {
		batch[i] = postdate.Delivery{Message: message(fmt.Sprintf("%s-%d", prefix, i), make([]byte, 256)), Attempt: 1}
	}
	return batch
}

// The broker is stopped and killed, and cuts its connections, each under load, and every
// message is accounted for.
func TestBrokerComesAndGoes(t *testing.T) {
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	p := closing(t, newPublisher(t, rabbitmq.Config{URL: broker.URL}))
	for _, c := range []struct {
		name string
		away func()
	}{
		{"stopped", func() { broker.Stop(); broker.Restart() }},
		{"killed", func() { broker.Kill(); broker.Restart() }},
		{"connections cut", broker.CloseAllConnections},
	} {
		t.Run(c.name, func(t *testing.T) {
			queue := unique("q")
			client.Declare(queue, nil)
			l := startLoad(t, p, queue)
			c.away()
			l.until(publisher.Confirmed, 500)
			l.end()
			l.account(client.TakeAll(queue))
			if n := l.countLocked(publisher.Refused); n > 0 {
				t.Errorf("%d messages are refused, and nothing was wrong with them: %v", n, l.reasons)
			}
		})
	}
}

// While a memory alarm blocks publishers, new messages are Down immediately. What was in flight
// is Unknown, at the latest after the deadline, and no call hangs.
func TestMemoryAlarm(t *testing.T) {
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	p := closing(t, newPublisher(t, rabbitmq.Config{URL: broker.URL, PublishTimeout: 2 * time.Second}))
	queue := unique("q")
	client.Declare(queue, nil)
	l := startLoad(t, p, queue)
	broker.SetMemoryAlarm(true)
	l.until(publisher.Down, 500)
	if s := p.State(); s.Phase != publisher.Blocked || !strings.Contains(s.Reason, "memory") {
		t.Errorf("state %v: %s", s.Phase, s.Reason)
	}
	start := time.Now()
	if r := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), batchOf("blocked", 1))[0]; r.Outcome != publisher.Down || !strings.Contains(r.Reason, "blocks publishers") || time.Since(start) > time.Second {
		t.Errorf("while blocked: %v after %s: %s", r.Outcome, time.Since(start), r.Reason)
	}
	broker.SetMemoryAlarm(false)
	l.until(publisher.Confirmed, 500)
	l.end()
	if s := p.State(); s.Phase != publisher.Connected {
		t.Errorf("state %v: %s", s.Phase, s.Reason)
	}
	l.account(client.TakeAll(queue))
	if n := l.countLocked(publisher.Refused); n > 0 {
		t.Errorf("%d messages are refused: %v", n, l.reasons)
	}
}

// A queue deleted under load refuses messages from then on, in the broker's words, and accepts
// them again when it is back.
func TestQueueDeleted(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue := unique("q")
	client.Declare(queue, nil)
	l := startLoad(t, p, queue)
	client.Delete(queue)
	l.until(publisher.Refused, 500)
	l.end()
	for reason := range l.reasons {
		if !strings.HasPrefix(reason, "312 NO_ROUTE") && !strings.Contains(reason, "nack") {
			t.Errorf("refused with %q", reason)
		}
	}
	client.Declare(queue, nil)
	l = startLoad(t, p, queue)
	l.end()
	l.account(client.TakeAll(queue))
	if n := l.countLocked(publisher.Confirmed); n != len(l.outcomes) {
		t.Errorf("%d of %d messages are confirmed: %v", n, len(l.outcomes), l.reasons)
	}
}

// Messages for missing exchanges are refused, each in the broker's words, and do not affect
// those for good queues.
func TestMissingExchangeBesideGoodQueue(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue, exchange := unique("q"), unique("x")
	client.Declare(queue, nil)
	l := startLoad(t, p, queue)
	channel := postdate.Channel("rabbitmq:" + exchange + "/key")
	for n := range 5 {
		for _, r := range p.Publish(context.Background(), channel, batchOf(fmt.Sprint("missing", n), 100)) {
			if r.Outcome != publisher.Refused || !strings.HasPrefix(r.Reason, "404 NOT_FOUND - no exchange '"+exchange+"'") {
				t.Fatalf("%v: %s", r.Outcome, r.Reason)
			}
		}
	}
	l.end()
	l.account(client.TakeAll(queue))
	if n := l.countLocked(publisher.Confirmed); n != len(l.outcomes) {
		t.Errorf("%d of %d messages for the good queue are confirmed: %v", n, len(l.outcomes), l.reasons)
	}

	// Once it exists, it is used.
	bound := unique("q")
	client.Declare(bound, nil)
	client.Bind(exchange, "topic", "key", bound)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		r := p.Publish(context.Background(), channel, batchOf("found", 1))[0]
		if r.Outcome == publisher.Confirmed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %s", r.Outcome, r.Reason)
		}
	}
	if r := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+exchange+"/other"), batchOf("unbound", 1))[0]; r.Outcome != publisher.Refused || !strings.HasPrefix(r.Reason, "312 NO_ROUTE") {
		t.Errorf("an unbound key: %v: %s", r.Outcome, r.Reason)
	}
	if d := client.TakeAll(bound); len(d) != 1 || d[0].RoutingKey != "key" {
		t.Errorf("%d messages went through the exchange", len(d))
	}
}

// If an exchange is deleted while messages are in flight, each of them still gets a true
// outcome.
func TestExchangeDeletedUnderLoad(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue, exchange := unique("q"), unique("x")
	client.Declare(queue, nil)
	client.Bind(exchange, "direct", "key", queue)
	l := startLoad(t, p, exchange+"/key")
	client.DeleteExchange(exchange)
	l.until(publisher.Refused, 200)
	client.Bind(exchange, "direct", "key", queue)
	l.until(publisher.Confirmed, 200)
	l.end()
	l.account(client.TakeAll(queue))
}

// A full queue that rejects answers with a nack.
func TestFullQueueRefuses(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue := unique("q")
	client.Declare(queue, map[string]any{"x-max-length": 10, "x-overflow": "reject-publish"})
	batch, l := batchOf("m", 200), &load{t: t, outcomes: map[string]publisher.Outcome{}, reasons: map[string]bool{}}
	l.moved = sync.NewCond(&l.mu)
	results := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), batch)
	l.note(batch, results)
	l.account(client.TakeAll(queue))
	if l.countLocked(publisher.Refused) < 100 || l.countLocked(publisher.Confirmed) < 10 {
		t.Errorf("%d refused, %d confirmed", l.countLocked(publisher.Refused), l.countLocked(publisher.Confirmed))
	}
	for _, r := range results {
		if r.Outcome == publisher.Refused && (r.Permanent || !strings.Contains(r.Reason, "nack")) {
			t.Fatalf("permanent %t: %s", r.Permanent, r.Reason)
		}
	}
}
