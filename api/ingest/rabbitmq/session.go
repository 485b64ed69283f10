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
)

const (
	consumerTag  = "postdate"
	dialTimeout  = 10 * time.Second
	closeTimeout = 5 * time.Second
	queueTimeout = 10 * time.Second // for what a queue has to answer: it may have no leader
	heartbeat    = 5 * time.Second
	whyTimeout   = 200 * time.Millisecond
)

// session is one connection that consumes.
type session struct {
	*Source
	deliveries <-chan amqp.Delivery
	rejected   *rejected
	over       context.Context // ended with the connection
	group      sync.WaitGroup  // workers, and what is tried again
}

// dial connects. cut, or the end of ctx, hangs up, and so ends every call that waits
// for an answer.
func (s *Source) dial(ctx context.Context) (conn *amqp.Connection, cut context.CancelFunc, err error) {
	ctx, cut = context.WithCancel(ctx)
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("postdate ingest " + s.config.Queue)
	conn, err = amqp.DialConfig(s.config.URL, amqp.Config{
		Heartbeat: heartbeat, Properties: properties,
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
		return nil, nil, fmt.Errorf("RabbitMQ at %s cannot be reached: %w", s.address, err)
	}
	return conn, cut, nil
}

// session connects and consumes until the connection ends, or all is done that was
// in hand when the source was closed.
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
		select { // the consumer may have heard of the end first
		case <-over.Done():
			return context.Cause(over)
		case <-time.After(whyTimeout):
		}
	}
	return errors.New("the broker ended the consumer: was the queue deleted?")
}

// setUp makes ready and begins to consume. A broker whose queue has no leader yet, as
// after a crash, may never answer, and go on with its heartbeats: then cut.
func (n *session) setUp(conn *amqp.Connection, cut context.CancelFunc) (*amqp.Channel, error) {
	late := time.AfterFunc(queueTimeout, cut)
	var ch *amqp.Channel
	err := n.rejected.declare(conn)
	if err == nil {
		ch, err = n.consume(conn)
	}
	if !late.Stop() {
		err = fmt.Errorf("RabbitMQ at %s did not answer within %s: does the queue have a leader?", n.address, queueTimeout)
	}
	return ch, err
}

// consume begins to consume.
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
		err = fmt.Errorf("there is no queue %q: declare it, and bind it to what is to be delayed (%s)", n.config.Queue, e.Reason)
	}
	if err != nil {
		return nil, err
	}
	// The library's channel has no room of its own: what it holds is not seen to be
	// there by whoever looks without waiting.
	gathered := make(chan amqp.Delivery, n.config.Prefetch)
	n.deliveries = gathered
	go func() {
		defer close(gathered)
		for d := range deliveries {
			gathered <- d // there is room for all that can be in hand
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

// stopAtClose ends the consumer when the source is closed. What was handed over
// already is worked off.
func (n *session) stopAtClose(ch *amqp.Channel, cut context.CancelFunc) {
	select {
	case <-n.closing:
		defer time.AfterFunc(queueTimeout, cut).Stop()
		_ = ch.Cancel(consumerTag, false) // an error means that the connection is gone
	case <-n.over.Done():
	}
}

// settle lets the broker carry out every acknowledgement, at an orderly end. A quorum
// queue keeps back those that come too fast for it, and forgets them with the channel:
// what they are about would come again. Another consumer begins and ends through the
// queue's log, the beginning behind what is not kept back, the end behind the rest. It
// may be handed one message more, which is worked off like the others.
func (n *session) settle(ch *amqp.Channel, cut context.CancelFunc) {
	defer time.AfterFunc(queueTimeout, cut).Stop()
	if err := ch.Qos(1, 0, false); err != nil {
		return
	}
	last, err := ch.Consume(n.config.Queue, consumerTag+"-last", false, false, false, false, nil)
	if err != nil || ch.Cancel(consumerTag+"-last", false) != nil {
		return // what is kept back comes again
	}
	for d := range last {
		n.take([]amqp.Delivery{d})
	}
	n.group.Wait()
}

// watchLag measures how many messages wait.
func (n *session) watchLag(conn *amqp.Connection) {
	ch, err := conn.Channel()
	ticks := time.NewTicker(lagEvery)
	defer ticks.Stop()
	for err == nil {
		var q amqp.Queue
		if q, err = ch.QueueDeclarePassive(n.config.Queue, true, false, false, false, nil); err == nil {
			n.config.Taker.SetLag(n.name, int64(q.Messages))
		}
		select {
		case <-ticks.C:
		case <-n.over.Done():
			return
		}
	}
}

// work takes batches until no more come.
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

// inHand is a message that the broker does not know to be taken.
type inHand struct {
	delivery *amqp.Delivery
	command  *ingest.Command
}

// take carries out a batch. What cannot be done now is tried again beside the work
// on what follows: its number is bounded by the prefetch.
func (n *session) take(batch []amqp.Delivery) {
	hand := make([]inHand, len(batch))
	for i := range batch {
		hand[i] = inHand{&batch[i], read(&batch[i], n.template)}
	}
	if hand, why := n.attempt(hand); len(hand) > 0 && n.over.Err() == nil {
		n.warn.Do(func() {
			n.config.Log.Warn("schedules from a RabbitMQ queue wait to be tried again", "queue", n.config.Queue, "messages", len(hand), "reason", why)
		})
		n.group.Go(func() {
			for attempt := 0; len(hand) > 0 && n.pause(n.over, attempt, againLast); attempt++ {
				hand, _ = n.attempt(hand)
			}
		})
	}
}

// attempt carries out what is in hand, and returns what is open after that, and why.
func (n *session) attempt(hand []inHand) (open []inHand, why string) {
	commands := make([]*ingest.Command, len(hand))
	for i := range hand {
		commands[i] = hand[i].command
	}
	var bad []inHand
	var reasons []string
	for i, r := range n.config.Taker.Take(n.over, n.name, commands) {
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

// ack tells the broker. Where that fails the connection is gone, and the message
// comes again.
func (n *session) ack(h inHand) { _ = h.delivery.Ack(false) }
