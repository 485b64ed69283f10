package rabbitmq_test

import (
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest/rabbitmq"
	publish "github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// application is one that was written for the delayed-message plugin. Nothing in it
// knows of Postdate; the exchange's name is its one setting.
func application(ch *amqp.Channel, exchange string) error {
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for _, order := range []struct {
		id    string
		delay int32 // milliseconds; 0: at once, without the header
	}{{"1", 3_600_000}, {"2", 0}} {
		p := amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "application/json", CorrelationId: "order-" + order.id, Type: "reminder",
			Headers: amqp.Table{"customer": int32(7)}, Body: fmt.Appendf(nil, `{"order":%s}`, order.id),
		}
		if order.delay > 0 {
			p.Headers["x-delay"] = order.delay
		}
		confirm, err := ch.PublishWithDeferredConfirm(exchange, "orders.remind", true, false, p)
		if err != nil || !confirm.Wait() {
			return fmt.Errorf("the broker has not confirmed: %w", err)
		}
	}
	return nil
}

// TestMigration makes the exchanges and queues of docs/migrate-from-rabbitmq-delayed-exchange.md
// and runs the application on them: what it delays is scheduled and arrives where
// the plugin would have brought it, and what it does not delay arrives at once.
func TestMigration(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	in, orders, delayed, work := unique("postdate-in"), unique("orders"), unique("delayed"), unique("work")
	client.Declare(work, nil)
	client.Declare(in, map[string]any{"x-queue-type": "quorum"})
	client.Declare(in+".postdate-rejected", nil)
	client.Bind(orders, "topic", "orders.#", work) // as it was, but for the exchange's type

	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare(delayed, "headers", true, false, false, false, amqp.Table{"alternate-exchange": orders}); err != nil {
		t.Fatal(err)
	}
	defer client.DeleteExchange(delayed)
	if err := ch.QueueBind(in, "", delayed, false, amqp.Table{"x-match": "any-with-x", "x-delay": nil}); err != nil {
		t.Fatal(err)
	}
	m := newMessages()
	s := start(t, m, rabbitmq.Config{URL: url, Queue: in, Channel: "rabbitmq:" + orders + "/" + rabbitmq.RoutingKey})
	if err := application(ch, delayed); err != nil {
		t.Fatal(err)
	}
	atOnce := client.Take(work, 1, patience)[0]
	eventually(t, "the delayed one is scheduled", func() bool { return m.count() == 1 })
	stop(t, s)
	if n := client.Len(work); n != 0 {
		t.Fatalf("%d more messages have arrived already", n)
	}
	p, err := publish.New(publish.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	for _, r := range m.all(t) { // as the node does when it is due
		if rs := p.Publish(context.Background(), r.Channel, []postdate.Delivery{{Message: &r.Message, Attempt: 1}}); rs[0].Reason != "" {
			t.Fatal(rs)
		}
	}
	later := client.Take(work, 1, patience)[0]
	for i, d := range []amqp.Delivery{later, atOnce} {
		id := fmt.Sprint(i + 1)
		if string(d.Body) != `{"order":`+id+`}` || d.CorrelationId != "order-"+id || d.Type != "reminder" || d.ContentType != "application/json" ||
			d.RoutingKey != "orders.remind" || d.Headers["customer"] != int32(7) {
			t.Errorf("%+v", d)
		}
	}
	if later.Headers["x-delay"] != int32(-3_600_000) || atOnce.Headers["x-delay"] != nil {
		t.Errorf("x-delay is %v and %v", later.Headers["x-delay"], atOnce.Headers["x-delay"])
	}
}
