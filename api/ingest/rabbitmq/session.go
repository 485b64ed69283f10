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
	heartbeat    = 5 * time.Second
	whyTimeout   = 200 * time.Millisecond
)

// session is one connection that consumes.
type session struct {
	*Source
	deliveries <-chan amqp.Delivery
	rejected   *rejected
	over       context.Context // ended with the connection
}

// dial connects. The end of ctx cuts the connection.
func (s *Source) dial(ctx context.Context) (*amqp.Connection, error) {
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("postdate ingest " + s.config.Queue)
	conn, err := amqp.DialConfig(s.config.URL, amqp.Config{
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
		return nil, fmt.Errorf("RabbitMQ at %s cannot be reached: %w", s.address, err)
	}
	return conn, nil
}

// session connects and consumes until the connection ends, or all is done that was
// in hand when the source was closed.
func (s *Source) session(ctx context.Context) error {
	hard, cut := context.WithCancel(ctx)
	defer cut()
	conn, err := s.dial(hard)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(closeTimeout)) }()
	over, end := context.WithCancelCause(hard)
	defer end(nil)
	n := &session{Source: s, over: over, rejected: &rejected{source: s, over: over}}
	defer n.rejected.close()
	if err := n.rejected.declare(conn); err != nil {
		return err
	}
	ch, err := n.consume(conn)
	if err != nil {
		return err
	}
	go watch(end, conn.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyClose(make(chan *amqp.Error, 1)))
	go n.stopAtClose(ch)
	go n.watchLag(conn)
	s.setReason("")
	s.config.Log.Info("taking schedules from a RabbitMQ queue", "queue", s.config.Queue, "address", s.address)
	var group sync.WaitGroup
	for range workers {
		group.Go(n.work)
	}
	group.Wait()
	if !isClosed(s.closing) {
		select { // the consumer may have heard of the end first
		case <-over.Done():
			return context.Cause(over)
		case <-time.After(whyTimeout):
		}
	}
	return errors.New("the broker ended the consumer: was the queue deleted?")
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
func (n *session) stopAtClose(ch *amqp.Channel) {
	select {
	case <-n.closing:
		_ = ch.Cancel(consumerTag, false) // an error means that the connection is gone
	case <-n.over.Done():
	}
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

// take carries out a batch until all of it is acknowledged, or cannot be any more.
func (n *session) take(batch []amqp.Delivery) {
	commands := make([]*ingest.Command, len(batch))
	for i := range batch {
		commands[i] = read(&batch[i], n.template)
	}
	told := make([]bool, len(batch)) // the broker knows
	for attempt := 0; ; attempt++ {
		open, why := 0, ""
		var bad []int
		results := n.config.Taker.Take(n.over, n.name, commands)
		for i, r := range results {
			switch {
			case told[i]:
			case r.Outcome == ingest.Done:
				n.ack(&batch[i])
				told[i] = true
			case r.Outcome == ingest.Bad:
				bad = append(bad, i)
			default:
				open, why = open+1, r.Reason
			}
		}
		if err := n.putAside(batch, results, bad); err != nil {
			open, why = open+len(bad), err.Error()
		} else {
			for _, i := range bad {
				told[i] = true
			}
		}
		if open == 0 || n.over.Err() != nil {
			return
		}
		if attempt == 0 {
			n.config.Log.Warn("schedules from a RabbitMQ queue wait to be tried again", "queue", n.config.Queue, "messages", open, "reason", why)
		}
		if !n.pause(n.over, attempt) {
			return
		}
	}
}

// putAside moves what is bad of a batch into the queue of rejected messages.
func (n *session) putAside(batch []amqp.Delivery, results []ingest.Result, bad []int) error {
	if len(bad) == 0 {
		return nil
	}
	ds, reasons := make([]*amqp.Delivery, len(bad)), make([]string, len(bad))
	for i, b := range bad {
		ds[i], reasons[i] = &batch[b], results[b].Reason
	}
	if err := n.rejected.put(ds, reasons); err != nil {
		return err
	}
	for _, d := range ds {
		n.ack(d)
	}
	return nil
}

// ack tells the broker. Where that fails the connection is gone, and the message
// comes again.
func (n *session) ack(d *amqp.Delivery) { _ = d.Ack(false) }
