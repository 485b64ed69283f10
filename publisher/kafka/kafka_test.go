package kafka_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/publishertest"
)

const timeout = 10 * time.Second

func newPublisher(t *testing.T, c kafka.Config) *kafka.Publisher {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	p, err := kafka.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func harness(address string, client kafkatest.Client) publishertest.Harness {
	return publishertest.Harness{
		Timeout: timeout,
		New: func(t *testing.T) publisher.Publisher {
			return newPublisher(t, kafka.Config{Seeds: []string{address}, PublishTimeout: timeout})
		},
		Channel: func(*testing.T) postdate.Channel {
			topic := publishertest.Unique("t")
			client.CreateTopic(topic, 3, nil)
			return postdate.Channel("kafka:" + topic)
		},
		Consume: func(t *testing.T, channel postdate.Channel, n int) []publishertest.Consumed {
			var consumed []publishertest.Consumed
			for _, r := range client.Take(channel.Target(), n, kafkatest.ReadCommitted) {
				consumed = append(consumed, seen(t, r))
			}
			return consumed
		},
		Bad:        func(m *postdate.Message) { m.Payload = make([]byte, 2<<20) },
		Refusing:   func(*testing.T) postdate.Channel { return "kafka:" + postdate.Channel(publishertest.Unique("missing")) },
		BadChannel: "kafka:a/b",
	}
}

func TestConformance(t *testing.T) {
	broker := kafkatest.Start(t)
	client := kafkatest.NewClient(t, broker.Address)
	h := harness(broker.Address, client)
	h.Break = func(*testing.T) func() { broker.Stop(); return broker.Restart }
	publishertest.Run(t, h)
}

// seen converts a record for the suite, after checking what is specific to Kafka.
func seen(t *testing.T, r *kgo.Record) publishertest.Consumed {
	t.Helper()
	c := publishertest.Consumed{Payload: r.Value, Headers: map[string]string{}}
	for _, h := range r.Headers {
		switch h.Key {
		case "message-id":
			c.MessageID = string(h.Value)
		case "content-type":
			c.ContentType = string(h.Value)
		default:
			if _, twice := c.Headers[h.Key]; twice {
				t.Errorf("%s has header %s twice", r.Key, h.Key)
			}
			c.Headers[h.Key] = string(h.Value)
		}
	}
	if string(r.Key) != c.Headers[publisher.HeaderScheduleID] {
		t.Errorf("%s has key %q", c.MessageID, r.Key)
	}
	if age := time.Since(r.Timestamp); age < -time.Minute || age > time.Hour {
		t.Errorf("%s has timestamp %s", c.MessageID, r.Timestamp)
	}
	return c
}
