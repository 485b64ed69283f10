//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
	"github.com/postdate/postdate/internal/account"
)

const (
	prefetch = 2000
	again    = 100 * time.Millisecond // polls: nothing signals that a server is back
)

// declare declares the durable queues that the load is delivered to.
func declare(broker string, queues []string) error {
	conn, err := amqp.Dial(broker)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, q := range queues {
		if _, err := ch.QueueDeclare(q, true, false, false, false, nil); err != nil {
			return err
		}
	}
	return nil
}

// consume records everything that arrives on the queues until ctx ends, even across restarts of
// the broker.
func consume(ctx context.Context, broker string, queues []string, ledger *account.Ledger) {
	for ctx.Err() == nil {
		_ = consumeOnce(ctx, broker, queues, ledger) // after any error, try again
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

func consumeOnce(ctx context.Context, broker string, queues []string, ledger *account.Ledger) error {
	conn, err := amqp.Dial(broker)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	all := make(chan amqp.Delivery)
	for _, q := range queues {
		deliveries, err := ch.ConsumeWithContext(ctx, q, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		go func() {
			for d := range deliveries {
				all <- d
			}
			all <- amqp.Delivery{} // the connection is gone
		}()
	}
	ended := 0
	for ended < len(queues) {
		d := <-all
		if d.Acknowledger == nil {
			ended++
			continue
		}
		received := time.Now()
		a, err := arrival(d)
		if err != nil {
			ledger.Odd(fmt.Sprintf("a delivery at %s: %v", d.RoutingKey, err))
		} else {
			a.Received = received
			ledger.Arrived(a)
		}
		_ = d.Ack(false) // if it is lost with the connection, the broker hands the message out again
	}
	return errors.New("the broker ended the consumers")
}

// arrival reads what a message says about itself.
func arrival(d amqp.Delivery) (account.Arrival, error) {
	a := account.Arrival{ID: d.MessageId, Via: d.RoutingKey, Redelivered: d.Redelivered}
	text, _ := d.Headers["postdate-execution-time"].(string)
	due, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return a, fmt.Errorf("message %s has the execution time %q", d.MessageId, text)
	}
	a.Due = due.Local()
	switch n := d.Headers["postdate-attempt"].(type) {
	case int32:
		a.Attempt = int(n)
	case int64:
		a.Attempt = int(n)
	}
	switch mark := d.Headers["postdate-possible-duplicate"].(type) {
	case bool:
		a.Marked = mark
	case string:
		a.Marked = mark == "true"
	}
	return a, nil
}

// longPoll is how long an inbox may wait, and inboxTimeout is when the follower gives up on a
// node: early, so that a node in trouble does not make messages seem late.
const longPoll, inboxTimeout = 500 * time.Millisecond, 1200 * time.Millisecond

// follow records everything that arrives in an inbox until ctx ends. It stays with a node as
// long as the node answers.
func (l *load) follow(ctx context.Context, inbox string) {
	cursor, at := "", 0
	for ctx.Err() == nil {
		next, err := l.followOnce(l.nodes[at%len(l.nodes)], inbox, cursor)
		if err != nil {
			at++
			if at%len(l.nodes) == 0 {
				time.Sleep(again)
			}
			continue
		}
		cursor = next
	}
}

func (l *load) followOnce(n *cluster.Node, inbox, cursor string) (next string, err error) {
	if !n.Up() {
		return "", errors.New("it is not up")
	}
	ctx, cancel := context.WithTimeout(context.Background(), inboxTimeout)
	defer cancel()
	page, err := n.API().ReadInbox(ctx, inbox, client.InboxRead{After: cursor, Wait: longPoll})
	if err != nil {
		return "", err
	}
	received := time.Now()
	for _, m := range page.Messages {
		l.ledger.Arrived(account.Arrival{
			ID: m.ScheduleID, Via: "inbox", Due: m.ExecutionTime.Local(), Received: received,
			Marked: m.PossibleDuplicate, Attempt: m.Attempt,
		})
	}
	return page.NextCursor, nil
}
