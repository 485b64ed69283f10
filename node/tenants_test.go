package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// awaitStatus waits until a message has a status.
func awaitStatus(t testing.TB, c *client.Client, id string, want client.Status) client.Record {
	t.Helper()
	var m client.Record
	err := nodetest.Poll(patient(t), func() (bool, error) {
		var err error
		if m, err = c.Get(t.Context(), id); client.TypeOf(err) == client.NotFound {
			return false, nil
		}
		return m.Status == want, err
	})
	if err != nil {
		t.Fatalf("%s is %s: %v", id, m.Status, err)
	}
	return m
}

// Two tenants have a source each, both pinned. What comes from one belongs to its tenant alone,
// goes where the pin says whatever it says itself, and what comes from the other with the same ids
// does not touch it.
func TestTenantsHaveSources(t *testing.T) {
	url, address := rabbitmqtest.URL(t), kafkatest.URI(t)
	queues, topics := rabbitmqtest.NewClient(t, url), kafkatest.NewClient(t, address)
	name := fmt.Sprint("tenants-", time.Now().UnixNano())
	for _, queue := range []string{name, name + ".postdate-rejected", name + "-pinned", name + "-named"} {
		queues.Declare(queue, nil)
		topics.CreateTopic(queue, 1, nil)
	}
	c := config(t)
	c.AdminKey, c.RabbitMQ, c.Kafka = adminKey, url, node.Kafka{Seeds: []string{address}}
	c.Ingest = []string{"acme@rabbitmq:" + name + "=!rabbitmq:" + name + "-pinned", "b@be.ta@kafka:" + name + "=!kafka:" + name + "-pinned"}
	n, _ := start(t, c)
	operator := clientWith(t, n, adminKey)
	acme, beta := clientWith(t, n, keyFor(t, operator, "acme").Text), clientWith(t, n, keyFor(t, operator, "b@be.ta").Text)

	exchange := rabbitmqtest.Confirming(t, url)
	body := func(id, delay, of string) []byte {
		return fmt.Appendf(nil, `{"scheduleId":%q,"delay":%q,"payload":%q,"channel":"rabbitmq:%s-named"}`, id, delay, of, name)
	}
	for _, p := range []amqp.Publishing{
		{Body: body("same", "1h", "acme")}, {Body: body("only-acme", "1h", "acme")}, {Body: body("body", "0s", "acme")},
		{Body: []byte(`"acme"`), Headers: amqp.Table{"x-delay": 1, "postdate-channel": "rabbitmq:" + name + "-named", "postdate-schedule-id": "header"}},
	} {
		if err := exchange.PublishWithContext(t.Context(), "", name, true, false, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range queues.Take(name+"-pinned", 2, patience) {
		if id := d.MessageId; id != "body" && id != "header" || string(d.Body) != `"acme"` {
			t.Errorf("%s has arrived: %s", id, d.Body)
		}
	}
	awaitStatus(t, acme, "same", client.Pending)
	awaitStatus(t, acme, "only-acme", client.Pending)

	record := func(id string, value []byte) *kgo.Record {
		return &kgo.Record{Topic: name, Key: []byte(id), Value: value}
	}
	send(t, address, record("same", body("same", "1h", "beta")), record("same", nil), record("only-acme", nil), record("nobody", nil),
		record("body", body("body", "0s", "beta")), &kgo.Record{Topic: name, Value: []byte(`"beta"`), Headers: []kgo.RecordHeader{
			{Key: "x-delay", Value: []byte("1")}, {Key: "postdate-channel", Value: []byte("rabbitmq:" + name + "-named")}, {Key: "postdate-schedule-id", Value: []byte("header")}}})
	for _, r := range topics.Take(name+"-pinned", 2, kafkatest.ReadCommitted) {
		if id := header(r, "message-id"); id != "body" && id != "header" || string(r.Value) != `"beta"` {
			t.Errorf("%s has arrived: %s", id, r.Value)
		}
	}
	rejected := topics.Take(name+".postdate-rejected", 2, kafkatest.ReadCommitted)
	if reason := header(rejected[0], "postdate-rejected-reason"); reason == "" || reason != header(rejected[1], "postdate-rejected-reason") {
		t.Errorf("the other tenant's id is rejected as %q, and one that nobody has as %q", reason, header(rejected[1], "postdate-rejected-reason"))
	}
	for _, of := range []struct {
		name   string
		client *client.Client
		same   client.Status
	}{{"acme", acme, client.Pending}, {"beta", beta, client.Cancelled}} {
		awaitStatus(t, of.client, "body", client.Delivered)
		if m := awaitStatus(t, of.client, "same", of.same); string(m.Payload) != `"`+of.name+`"` {
			t.Errorf("%s reads %s", of.name, m.Payload)
		}
	}
	awaitStatus(t, acme, "only-acme", client.Pending)
	for id, other := range map[string]*client.Client{"only-acme": beta, "same": operator, "body": operator} {
		if m, err := other.Get(context.Background(), id); client.TypeOf(err) != client.NotFound {
			t.Errorf("another tenant reads %+v, %v", m, err)
		}
	}
	if got := queues.Len(name + "-named"); got != 0 {
		t.Errorf("%d messages went where they wanted to go", got)
	}
}
