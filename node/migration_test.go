package node_test

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// delayedOrder is when the application's delayed message is due, in milliseconds.
const delayedOrder int32 = 1_500

// application was written for RabbitMQ's delayed-message plugin. Nothing in it knows of
// Postdate; the exchange's name is its only setting. It returns when it sent the delayed
// message.
func application(ch *amqp.Channel, exchange string) (sent time.Time, err error) {
	if err := ch.Confirm(false); err != nil {
		return sent, err
	}
	for _, order := range []struct {
		id    string
		delay int32 // milliseconds; 0: none, without the header
	}{{"1", delayedOrder}, {"2", 0}} {
		p := amqp.Publishing{
			DeliveryMode: amqp.Persistent, ContentType: "application/json", CorrelationId: "order-" + order.id, Type: "reminder",
			Headers: amqp.Table{"customer": int32(7)}, Body: fmt.Appendf(nil, `{"order":%s}`, order.id),
		}
		if order.delay > 0 {
			p.Headers["x-delay"] = order.delay
			sent = time.Now()
		}
		confirm, err := ch.PublishWithDeferredConfirm(exchange, "orders.remind", true, false, p)
		if err != nil || !confirm.Wait() {
			return sent, fmt.Errorf("the broker has not confirmed: %w", err)
		}
	}
	return sent, nil
}

// TestMigration creates the exchanges and queues of
// docs/migrate-from-rabbitmq-delayed-exchange.md and runs the application on them: what it
// delays arrives when it is due, where the plugin would have delivered it, and what it does not
// delay arrives immediately.
func TestMigration(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	name := func(s string) string { return fmt.Sprintf("%s-%d", s, time.Now().UnixNano()) }
	in, orders, delayed, work := name("postdate-in"), name("orders"), name("delayed"), name("work")
	client.Declare(work, nil)
	client.Declare(in, map[string]any{"x-queue-type": "quorum"})
	client.Declare(in+".postdate-rejected", nil)
	client.Bind(orders, "topic", "orders.#", work) // as before, except for the exchange's type
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.ExchangeDeclare(delayed, "headers", true, false, false, false, amqp.Table{"alternate-exchange": orders})
	}
	if err == nil {
		err = ch.QueueBind(in, "", delayed, false, amqp.Table{"x-match": "any-with-x", "x-delay": nil})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer client.DeleteExchange(delayed)

	c := config(t)
	c.RabbitMQ, c.Ingest = url, []string{"rabbitmq:" + in + "=rabbitmq:" + orders + "/{routing-key}"}
	start(t, c)
	const delay = time.Duration(delayedOrder) * time.Millisecond
	began := time.Now()
	sent, err := application(ch, delayed)
	if err != nil {
		t.Fatal(err)
	}
	var got [2]amqp.Delivery // order 2, order 1
	for range got {
		d := client.Take(work, 1, patience)[0]
		took, late := time.Since(sent), string(d.Body) == `{"order":1}`
		if late {
			got[1] = d
		} else {
			got[0] = d
		}
		if late && took < delay {
			t.Errorf("the delayed one came %s after it was sent", took)
		}
	}
	if took := time.Since(began); took < delay {
		t.Errorf("both are there after %s", took)
	}
	for i, d := range got {
		id := fmt.Sprint(2 - i)
		if string(d.Body) != `{"order":`+id+`}` || d.CorrelationId != "order-"+id || d.Type != "reminder" || d.ContentType != "application/json" ||
			d.RoutingKey != "orders.remind" || d.Headers["customer"] != int32(7) {
			t.Errorf("%+v", d)
		}
	}
	if now, later := got[0].Headers["x-delay"], got[1].Headers["x-delay"]; now != nil || later != -delayedOrder {
		t.Errorf("x-delay is %v and %v", now, later)
	}
	if got[1].Headers["postdate-possible-duplicate"] != nil {
		t.Errorf("%s: a message that came once is marked", testrun.Broken)
	}
}
