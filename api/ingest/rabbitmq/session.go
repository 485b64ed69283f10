package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/api/ingest"
	"github.com/postdate/postdate/internal/amqpdial"
	"github.com/postdate/postdate/internal/certs"
)

const (
	consumerTag  = "postdate"
	dialTimeout  = 10 * time.Second
	closeTimeout = 5 * time.Second
	queueTimeout = 10 * time.Second // for a queue's answer: the queue may have no leader
	heartbeat    = 5 * time.Second
	whyTimeout   = 200 * time.Millisecond
)

// session is one connection that consumes.
type session struct {
	*Source
	deliveries <-chan amqp.Delivery
	rejected   *rejected
	over       context.Context // ends with the connection
	group      sync.WaitGroup  // workers and retries
}

// dial connects. cut, or the end of ctx, closes the socket, which ends every call that
// waits for an answer.
func (s *Source) dial(ctx context.Context) (conn *amqp.Connection, cut context.CancelFunc, err error) {
	ctx, cut = context.WithCancel(ctx)
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("postdate ingest " + s.config.Queue)
	conn, err = amqpdial.Dial(s.config.URL, amqp.Config{
		Heartbeat: heartbeat, Properties: properties, TLSClientConfig: s.config.TLS,
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { conn.Close() })
			return conn, conn.SetDeadline(time.Now().Add(dialTimeout)) // lifted when the handshake is done
		},
	})
	if err != nil {
		cut()
		advice := ""
		if s.secure {
			advice = certs.FirstAdvice(err, "--rabbitmq-ca", "--rabbitmq-cert and --rabbitmq-key")
		}
		return nil, nil, fmt.Errorf("RabbitMQ at %s cannot be reached: %w%s", s.address, err, advice)
	}
	return conn, cut, nil
}

// session connects and consumes until the connection ends, or, once the source is
// closed, until the messages in hand are finished.
func (s *Source) session(ctx context.Context) error {
	conn, cut, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer cut()
	defer func() { _ = conn.CloseDeadline(time.Now().Add(closeTimeout)) }()
	over, end := context.WithCancelCause(ctx)
	defer end(nil)
	n := &session{Source: s, over: over, rejected: &rejected{source: s, over: over}}
	defer n.rejected.close()
	ch, err := n.setUp(conn, cut)
	if err != nil {
		return err
	}
	go watch(end, conn.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyClose(make(chan *amqp.Error, 1)))
	go n.stopAtClose(ch, cut)
	go n.watchLag(conn)
	s.setReason("")
	s.config.Log.Info("taking schedules from a RabbitMQ queue", "queue", s.config.Queue, "address", s.address)
	for range workers {
		n.group.Go(n.work)
	}
	n.group.Wait()
	if isClosed(s.closing) {
		n.settle(ch, cut)
	} else {
		select { // the consumer may notice the end before over does
		case <-over.Done():
			return context.Cause(over)
		case <-time.After(whyTimeout):
		}
	}
	return errors.New("the broker ended the consumer: was the queue deleted?")
}

// setUp declares the queue of rejected messages and begins to consume. A queue without
// a leader, as after a crash, may never answer while heartbeats go on: a timer cuts then.
func (n *session) setUp(conn *amqp.Connection, cut context.CancelFunc) (*amqp.Channel, error) {
	late := time.AfterFunc(queueTimeout, cut)
	var ch *amqp.Channel
	err := n.rejected.declare(conn)
	if err == nil {
		ch, err = n.consume(conn)
	}
	if !late.Stop() {
		err = fmt.Errorf("RabbitMQ at %s did not answer within %s: does the queue have a leader?",
			n.address, queueTimeout)
	}
	return ch, err
}

// consume opens a channel, starts the consumer and sets n.deliveries.
func (n *session) consume(conn *amqp.Connection) (*amqp.Channel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Qos(n.config.Prefetch, 0, false); err != nil {
		return nil, err
	}
	deliveries, err := ch.Consume(n.config.Queue, consumerTag, false, false, false, false, nil)
	var e *amqp.Error
	if errors.As(err, &e) && e.Code == amqp.NotFound {
		err = fmt.Errorf("there is no queue %q: declare it, and bind it to what is to be delayed (%s)",
			n.config.Queue, e.Reason)
	}
	if err != nil {
		return nil, err
	}
	// The library's channel is unbuffered: a receive that does not wait may find nothing
	// although the library holds deliveries.
	gathered := make(chan amqp.Delivery, n.config.Prefetch)
	n.deliveries = gathered
	go func() {
		defer close(gathered)
		for d := range deliveries {
			gathered <- d // never blocks: the prefetch bounds how many are in hand
		}
	}()
	return ch, nil
}

// watch ends a session with its connection or its channel.
func watch(end context.CancelCauseFunc, conn, ch chan *amqp.Error) {
	var e *amqp.Error
	select {
	case e = <-conn:
	case e = <-ch:
	}
	if e == nil {
		end(errors.New("the connection was closed"))
		return
	}
	end(fmt.Errorf("lost the connection to RabbitMQ: %w", e))
}

// stopAtClose ends the consumer when the source is closed. Messages that were already
// delivered are still processed.
func (n *session) stopAtClose(ch *amqp.Channel, cut context.CancelFunc) {
	select {
	case <-n.closing:
		defer time.AfterFunc(queueTimeout, cut).Stop()
		_ = ch.Cancel(consumerTag, false) // an error means that the connection is gone
	case <-n.over.Done():
	}
}

// settle waits, at an orderly end, until the broker has applied every acknowledgement. A
// quorum queue holds back those that come too fast, and drops them when the channel
// closes, so that their messages would be redelivered. A second consumer starts and stops
// through the queue's log: its start follows the acknowledgements that are not held back,
// its stop the rest. It may receive one more message, which is processed like the others.
func (n *session) settle(ch *amqp.Channel, cut context.CancelFunc) {
	defer time.AfterFunc(queueTimeout, cut).Stop()
	if err := ch.Qos(1, 0, false); err != nil {
		return
	}
	last, err := ch.Consume(n.config.Queue, consumerTag+"-last", false, false, false, false, nil)
	if err != nil || ch.Cancel(consumerTag+"-last", false) != nil {
		return // messages whose acknowledgement is held back are redelivered
	}
	for d := range last {
		n.take([]amqp.Delivery{d})
	}
	n.group.Wait()
}

// watchLag measures how many messages wait in the queue.
func (n *session) watchLag(conn *amqp.Connection) {
	ch, err := conn.Channel()
	ticks := time.NewTicker(lagEvery)
	defer ticks.Stop()
	for err == nil {
		var q amqp.Queue
		if q, err = ch.QueueDeclarePassive(n.config.Queue, true, false, false, false, nil); err == nil {
			n.config.Taker.SetLag(int64(q.Messages))
		}
		select {
		case <-ticks.C:
		case <-n.over.Done():
			return
		}
	}
}

// work takes batches until the deliveries end.
func (n *session) work() {
	batchMax := max(1, n.config.Prefetch/workers)
	for {
		first, ok := <-n.deliveries
		if !ok {
			return
		}
		batch := []amqp.Delivery{first}
		for more := true; more && len(batch) < batchMax; {
			select {
			case d, ok := <-n.deliveries:
				if more = ok; ok {
					batch = append(batch, d)
				}
			default:
				more = false
			}
		}
		n.take(batch)
	}
}

// inHand is a message that is not acknowledged yet.
type inHand struct {
	delivery *amqp.Delivery
	command  *ingest.Command
}

// take carries out a batch. Messages that cannot be done yet are retried in the
// background; the prefetch bounds their number.
func (n *session) take(batch []amqp.Delivery) {
	hand := make([]inHand, len(batch))
	for i := range batch {
		hand[i] = inHand{&batch[i], read(&batch[i], n.template)}
	}
	if hand, why := n.attempt(hand); len(hand) > 0 && n.over.Err() == nil {
		n.warn.Do(func() {
			n.config.Log.Warn("schedules from a RabbitMQ queue wait to be tried again",
				"queue", n.config.Queue, "messages", len(hand), "reason", why)
		})
		n.group.Go(func() {
			for attempt := 0; len(hand) > 0 && n.pause(n.over, attempt, againLast); attempt++ {
				hand, _ = n.attempt(hand)
			}
		})
	}
}

// attempt carries out the messages in hand. It returns those still open, and why.
func (n *session) attempt(hand []inHand) (open []inHand, why string) {
	commands := make([]*ingest.Command, len(hand))
	for i := range hand {
		commands[i] = hand[i].command
	}
	var bad []inHand
	var reasons []string
	for i, r := range n.config.Taker.Take(n.over, commands) {
		switch r.Outcome {
		case ingest.Done:
			n.ack(hand[i])
		case ingest.Bad:
			bad, reasons = append(bad, hand[i]), append(reasons, r.Reason)
		default:
			open, why = append(open, hand[i]), r.Reason
		}
	}
	if len(bad) == 0 {
		return open, why
	}
	if err := n.rejected.put(bad, reasons); err != nil {
		return append(open, bad...), err.Error()
	}
	for _, h := range bad {
		n.ack(h)
	}
	return open, why
}

// ack acknowledges a message to the broker. If that fails, the connection is gone and
// the message is redelivered.
func (n *session) ack(h inHand) { _ = h.delivery.Ack(false) }
