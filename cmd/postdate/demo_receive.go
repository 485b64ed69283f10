package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/client"
)

// arrival is the receipt of a message.
type arrival struct {
	id string
	at time.Time
}

// receiver gets the demo's messages.
type receiver interface {
	channel() string
	// receive passes arrivals on until ctx ends, and then returns nil.
	receive(ctx context.Context, to chan<- arrival) error
	close()
}

func newReceiver(c *client.Client, rabbitMQ string) (receiver, error) {
	if rabbitMQ == "" {
		return &inboxReceiver{client: c}, nil
	}
	return newQueueReceiver(rabbitMQ)
}

// inboxReceiver reads the built-in inbox by long polling.
type inboxReceiver struct{ client *client.Client }

const demoInbox = "demo"

func (r *inboxReceiver) channel() string { return "inbox:" + demoInbox }

func (r *inboxReceiver) close() {}

func (r *inboxReceiver) receive(ctx context.Context, to chan<- arrival) error {
	for page, err := range r.client.Follow(ctx, demoInbox, "") {
		now := time.Now()
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, m := range page.Messages {
			select {
			case to <- arrival{id: m.ScheduleID, at: now}:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// queueReceiver consumes a queue of its own in RabbitMQ.
type queueReceiver struct {
	conn       *amqp.Connection
	queue      string
	deliveries <-chan amqp.Delivery
}

func newQueueReceiver(url string) (*queueReceiver, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to RabbitMQ: %w", err)
	}
	r := &queueReceiver{conn: conn, queue: "postdate-demo-" + rand.Text()[:8]}
	if err := r.consume(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("cannot use the queue %s: %w", r.queue, err)
	}
	return r, nil
}

// consume declares the queue with auto-delete: the broker removes it with its consumer, however
// the demo ends.
func (r *queueReceiver) consume() error {
	ch, err := r.conn.Channel()
	if err != nil {
		return err
	}
	durable, autoDelete, exclusive, noWait := true, true, false, false
	if _, err := ch.QueueDeclare(r.queue, durable, autoDelete, exclusive, noWait, nil); err != nil {
		return err
	}
	autoAck, noLocal := true, false
	r.deliveries, err = ch.Consume(r.queue, "", autoAck, exclusive, noLocal, noWait, nil)
	return err
}

func (r *queueReceiver) channel() string { return "rabbitmq:" + r.queue }

func (r *queueReceiver) close() { r.conn.Close() }

func (r *queueReceiver) receive(ctx context.Context, to chan<- arrival) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-r.deliveries:
			if !ok {
				return errors.New("the connection to RabbitMQ was closed")
			}
			select {
			case to <- arrival{id: d.MessageId, at: time.Now()}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}
