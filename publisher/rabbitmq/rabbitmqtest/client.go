package rabbitmqtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/internal/proctest"
)

// Client sees a broker's queues as an operator and a consumer would. Its methods fail the test
// if the broker refuses. It is safe for concurrent use, and connects anew for each call, so it
// keeps working after an outage of the broker.
type Client struct {
	t   testing.TB
	url string
}

// NewClient makes a client of the broker at url.
func NewClient(t testing.TB, url string) Client { return Client{t: t, url: url} }

func (c Client) do(f func(*amqp.Channel) error) {
	c.t.Helper()
	conn, err := amqp.Dial(c.url)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = f(ch)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// Declare makes a durable queue, deleted when the test ends. args are AMQP's,
// for example x-max-length; nil for none.
func (c Client) Declare(queue string, args map[string]any) {
	c.t.Helper()
	c.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, args)
		return err
	})
	c.t.Cleanup(func() { c.try(func(ch *amqp.Channel) { _, _ = ch.QueueDelete(queue, false, false, false) }) })
}

// Bind creates a durable exchange of that kind, if there is none, and binds the queue to it.
// Both are deleted when the test ends.
func (c Client) Bind(exchange, kind, routingKey, queue string) {
	c.t.Helper()
	c.do(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, kind, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(queue, routingKey, exchange, false, nil)
	})
	c.t.Cleanup(func() { c.try(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(exchange, false, false) }) })
}

// try does something when a test ends and the broker may be gone.
func (c Client) try(f func(*amqp.Channel)) {
	conn, err := amqp.Dial(c.url)
	if err != nil {
		return
	}
	defer conn.Close()
	if ch, err := conn.Channel(); err == nil {
		f(ch)
	}
}

// Delete deletes a queue and its messages.
func (c Client) Delete(queue string) {
	c.t.Helper()
	c.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(queue, false, false, false)
		return err
	})
}

// DeleteExchange deletes an exchange.
func (c Client) DeleteExchange(name string) {
	c.t.Helper()
	c.do(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) })
}

// Exists reports whether there is a queue of that name.
func (c Client) Exists(queue string) bool {
	c.t.Helper()
	exists := true
	c.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		var e *amqp.Error
		if errors.As(err, &e) && e.Code == amqp.NotFound {
			exists, err = false, nil
		}
		return err
	})
	return exists
}

// Len returns the number of messages that wait in a queue.
func (c Client) Len(queue string) int {
	c.t.Helper()
	return c.inspect(queue).Messages
}

// Consumers returns the number of a queue's consumers, including those that have been cancelled
// but still hold unacknowledged messages.
func (c Client) Consumers(queue string) int {
	c.t.Helper()
	return c.inspect(queue).Consumers
}

// inspect asks for a queue's numbers. If a quorum queue does not answer within 250 ms, the
// broker reports it as empty and without consumers: inspect then asks again.
func (c Client) inspect(queue string) (q amqp.Queue) {
	c.t.Helper()
	c.do(func(ch *amqp.Channel) (err error) {
		for late := time.Now().Add(time.Minute); time.Now().Before(late); {
			asked := time.Now()
			q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			if err != nil || q.Messages > 0 || q.Consumers > 0 || time.Since(asked) < 200*time.Millisecond {
				return err
			}
		}
		return fmt.Errorf("queue %s: the broker takes long to say that it is empty", queue)
	})
	return q
}

// Take consumes n messages, or fails the test if they do not come within the timeout. The
// others stay in the queue.
func (c Client) Take(queue string, n int, timeout time.Duration) []amqp.Delivery {
	c.t.Helper()
	var taken []amqp.Delivery
	if n == 0 {
		return nil
	}
	c.do(func(ch *amqp.Channel) error {
		if err := ch.Qos(min(n, 1000), 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		late := time.After(timeout)
		for len(taken) < n {
			select {
			case d, ok := <-deliveries:
				if !ok {
					return fmt.Errorf("queue %s: the consumer was cut off after %d of %d messages",
						queue, len(taken), n)
				}
				taken = append(taken, d)
				if err := d.Ack(false); err != nil {
					return err
				}
			case <-late:
				return fmt.Errorf("queue %s: %d of %d messages after %s", queue, len(taken), n, timeout)
			}
		}
		return nil
	})
	return taken
}

// Confirming opens a channel in confirm mode, on a connection that is closed when the test ends.
func Confirming(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// TakeAll consumes the messages that wait in a queue.
func (c Client) TakeAll(queue string) []amqp.Delivery {
	c.t.Helper()
	return c.Take(queue, c.Len(queue), time.Minute)
}

// part tells the test command which broker was used.
func part(t testing.TB, url, how string) {
	t.Helper()
	proctest.Part(t, "rabbitmq, "+how, func() (string, error) {
		conn, err := amqp.Dial(url)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		return fmt.Sprintf("rabbitmq %v: real, %s", conn.Properties["version"], how), nil
	})
}
