package rabbitmq_test

import (
	"fmt"
	"log/slog"
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
