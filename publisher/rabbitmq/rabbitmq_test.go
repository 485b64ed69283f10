package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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

func newPublisher(t *testing.T, c rabbitmq.Config) *rabbitmq.Publisher {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	p, err := rabbitmq.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const timeout = 10 * time.Second

func TestConformance(t *testing.T) {
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	publishertest.Run(t, publishertest.Harness{
		Timeout: timeout,
		New: func(t *testing.T) publisher.Publisher {
			return newPublisher(t, rabbitmq.Config{URL: broker.URL, PublishTimeout: timeout})
		},
		Channel: func(t *testing.T) postdate.Channel {
			queue := publishertest.Unique("q")
			client.Declare(queue, nil)
			return postdate.Channel("rabbitmq:" + queue)
		},
		Consume: func(t *testing.T, channel postdate.Channel, n int) []publishertest.Consumed {
			deliveries := client.Take(channel.Target(), n, time.Minute)
			var consumed []publishertest.Consumed
			for _, d := range append(deliveries, client.TakeAll(channel.Target())...) {
				consumed = append(consumed, seen(t, d))
			}
			return consumed
		},
		Bad: func(m *postdate.Message) { m.ContentType = strings.Repeat("x", 256) },
		Refusing: func(*testing.T) postdate.Channel {
			return "rabbitmq:" + postdate.Channel(publishertest.Unique("missing"))
		},
		Break:      func(*testing.T) func() { broker.Stop(); return broker.Restart },
		BadChannel: "rabbitmq:/",
	})
}

// seen converts a delivery for the suite, after checking what is specific to AMQP.
func seen(t *testing.T, d amqp.Delivery) publishertest.Consumed {
	t.Helper()
	if d.DeliveryMode != amqp.Persistent {
		t.Errorf("%s has delivery mode %d", d.MessageId, d.DeliveryMode)
	}
	if d.Timestamp.Unix() != 1_800_000_000 {
		t.Errorf("%s has timestamp %s", d.MessageId, d.Timestamp)
	}
	headers := map[string]string{}
	for name, value := range d.Headers {
		headers[name] = fmt.Sprint(value)
	}
	return publishertest.Consumed{MessageID: d.MessageId, ContentType: d.ContentType, Payload: d.Body, Headers: headers}
}

// A queue with priorities hands out messages by theirs, whatever order they came in.
func TestQueueWithPriorities(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue := publishertest.Unique("q")
	client.Declare(queue, map[string]any{"x-max-priority": 10})
	batch := publishertest.Batch("m", 4)
	for i, priority := range []postdate.Priority{postdate.PriorityLow, postdate.PriorityMedium, postdate.PriorityHigh, postdate.PriorityLow} {
		batch[i].Message.Priority = priority
	}
	batch[3].Message.Headers = []postdate.Header{{Name: "amqp-priority", Value: "9"}}
	for i, r := range p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), batch) {
		if r.Outcome != publisher.Confirmed {
			t.Fatalf("message %d: %v: %s", i, r.Outcome, r.Reason)
		}
	}
	var want, got []string
	for _, i := range []int{3, 2, 1, 0} {
		want = append(want, batch[i].Message.ScheduleID)
	}
	var priorities []int
	for _, d := range client.TakeAll(queue) {
		got, priorities = append(got, d.MessageId), append(priorities, int(d.Priority))
	}
	if !slices.Equal(got, want) || !slices.Equal(priorities, []int{9, 8, 4, 1}) {
		t.Errorf("got %v with priorities %v, want %v", got, priorities, want)
	}
}
