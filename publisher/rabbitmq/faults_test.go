package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// The broker is stopped and killed, and cuts its connections, each under load, and every
// message is accounted for.
func TestBrokerComesAndGoes(t *testing.T) {
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: broker.URL}))
	for _, c := range []struct {
		name string
		away func()
	}{
		{"stopped", func() { broker.Stop(); broker.Restart() }},
		{"killed", func() { broker.Kill(); broker.Restart() }},
		{"connections cut", broker.CloseAllConnections},
	} {
		t.Run(c.name, func(t *testing.T) {
			queue := publishertest.Unique("q")
			client.Declare(queue, nil)
			l := publishertest.StartLoad(t, p, postdate.Channel("rabbitmq:"+queue))
			c.away()
			l.Until(publisher.Confirmed, 500)
			l.End()
			l.Account(idsOf(client.TakeAll(queue)))
			l.NoneRefused()
		})
	}
}

// While a memory alarm blocks publishers, new messages are Down immediately. What was in flight
// is Unknown, at the latest after the deadline, and no call hangs.
func TestMemoryAlarm(t *testing.T) {
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: broker.URL, PublishTimeout: 2 * time.Second}))
	queue := publishertest.Unique("q")
	client.Declare(queue, nil)
	l := publishertest.StartLoad(t, p, postdate.Channel("rabbitmq:"+queue))
	broker.SetMemoryAlarm(true)
	l.Until(publisher.Down, 500)
	if s := p.State(); s.Phase != publisher.Blocked || !strings.Contains(s.Reason, "memory") {
		t.Errorf("state %v: %s", s.Phase, s.Reason)
	}
	start := time.Now()
	if r := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), publishertest.Batch("blocked", 1))[0]; r.Outcome != publisher.Down || !strings.Contains(r.Reason, "blocks publishers") || time.Since(start) > time.Second {
		t.Errorf("while blocked: %v after %s: %s", r.Outcome, time.Since(start), r.Reason)
	}
	broker.SetMemoryAlarm(false)
	l.Until(publisher.Confirmed, 500)
	l.End()
	if s := p.State(); s.Phase != publisher.Connected {
		t.Errorf("state %v: %s", s.Phase, s.Reason)
	}
	l.Account(idsOf(client.TakeAll(queue)))
	l.NoneRefused()
}

// A queue deleted under load refuses messages from then on, in the broker's words, and accepts
// them again when it is back.
func TestQueueDeleted(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue := publishertest.Unique("q")
	client.Declare(queue, nil)
	l := publishertest.StartLoad(t, p, postdate.Channel("rabbitmq:"+queue))
	client.Delete(queue)
	l.Until(publisher.Refused, 500)
	l.End()
	for _, reason := range l.Reasons() {
		if !strings.HasPrefix(reason, "312 NO_ROUTE") && !strings.Contains(reason, "nack") {
			t.Errorf("refused with %q", reason)
		}
	}
	client.Declare(queue, nil)
	l = publishertest.StartLoad(t, p, postdate.Channel("rabbitmq:"+queue))
	l.End()
	l.Account(idsOf(client.TakeAll(queue)))
	l.AllConfirmed()
}

// Messages for missing exchanges are refused, each in the broker's words, and do not affect
// those for good queues.
func TestMissingExchangeBesideGoodQueue(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue, exchange := publishertest.Unique("q"), publishertest.Unique("x")
	client.Declare(queue, nil)
	l := publishertest.StartLoad(t, p, postdate.Channel("rabbitmq:"+queue))
	channel := postdate.Channel("rabbitmq:" + exchange + "/key")
	for n := range 5 {
		for _, r := range p.Publish(context.Background(), channel, publishertest.Batch(fmt.Sprint("missing", n), 100)) {
			if r.Outcome != publisher.Refused || !strings.HasPrefix(r.Reason, "404 NOT_FOUND - no exchange '"+exchange+"'") {
				t.Fatalf("%v: %s", r.Outcome, r.Reason)
			}
		}
	}
	l.End()
	l.Account(idsOf(client.TakeAll(queue)))
	l.AllConfirmed()

	// Once it exists, it is used.
	bound := publishertest.Unique("q")
	client.Declare(bound, nil)
	client.Bind(exchange, "topic", "key", bound)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		r := p.Publish(context.Background(), channel, publishertest.Batch("found", 1))[0]
		if r.Outcome == publisher.Confirmed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %s", r.Outcome, r.Reason)
		}
	}
	if r := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+exchange+"/other"), publishertest.Batch("unbound", 1))[0]; r.Outcome != publisher.Refused || !strings.HasPrefix(r.Reason, "312 NO_ROUTE") {
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
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue, exchange := publishertest.Unique("q"), publishertest.Unique("x")
	client.Declare(queue, nil)
	client.Bind(exchange, "direct", "key", queue)
	l := publishertest.StartLoad(t, p, postdate.Channel("rabbitmq:"+exchange+"/key"))
	client.DeleteExchange(exchange)
	l.Until(publisher.Refused, 200)
	client.Bind(exchange, "direct", "key", queue)
	l.Until(publisher.Confirmed, 200)
	l.End()
	l.Account(idsOf(client.TakeAll(queue)))
}

// A full queue that rejects answers with a nack.
func TestFullQueueRefuses(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue := publishertest.Unique("q")
	client.Declare(queue, map[string]any{"x-max-length": 10, "x-overflow": "reject-publish"})
	batch, l := publishertest.Batch("m", 200), publishertest.NewLoad(t)
	results := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), batch)
	l.Note(batch, results)
	l.Account(idsOf(client.TakeAll(queue)))
	if l.Count(publisher.Refused) < 100 || l.Count(publisher.Confirmed) < 10 {
		t.Errorf("%d refused, %d confirmed", l.Count(publisher.Refused), l.Count(publisher.Confirmed))
	}
	for _, r := range results {
		if r.Outcome == publisher.Refused && (r.Permanent || !strings.Contains(r.Reason, "nack")) {
			t.Fatalf("permanent %t: %s", r.Permanent, r.Reason)
		}
	}
}

func idsOf(deliveries []amqp.Delivery) (ids []string) {
	for _, d := range deliveries {
		ids = append(ids, d.MessageId)
	}
	return ids
}
