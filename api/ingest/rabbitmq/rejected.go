package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/api/ingest"
	amqpheader "github.com/postdate/postdate/internal/amqp"
)

const (
	rejectTimeout  = 30 * time.Second // for one batch, with its confirms
	reasonBytesMax = 1_000
)

// rejected puts messages that cannot be scheduled into a queue of their own. It has its
// own connection, made on demand: a broker short of memory or disk blocks connections
// that publish, and that must not delay acknowledgements.
type rejected struct {
	source *Source
	over   context.Context

	mu      sync.Mutex
	conn    *amqp.Connection
	cut     context.CancelFunc // hangs up
	ch      *amqp.Channel
	returns chan amqp.Return
}

// declare declares the queue if it does not exist, with the type that the operator set
// as the broker's default.
func (r *rejected) declare(conn *amqp.Connection) error {
	queue := r.source.config.Rejected
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil); err == nil {
		return ch.Close()
	}
	var e *amqp.Error
	if errors.As(err, &e) && e.Code != amqp.NotFound {
		return fmt.Errorf("the queue %q for rejected messages cannot be used: %w", queue, err)
	}
	if ch, err = conn.Channel(); err != nil {
		return err
	}
	if _, err = ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return fmt.Errorf("the queue %q for rejected messages cannot be declared: %w", queue, err)
	}
	return ch.Close()
}

// put publishes messages with their reasons, and returns nil when the broker has
// confirmed all of them. After an error, any of them may be in the queue.
func (r *rejected) put(ds []inHand, reasons []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.publish(ds, reasons)
	if err != nil {
		r.hangUp()
		return fmt.Errorf("messages cannot be put into the queue %q for rejected ones: %w",
			r.source.config.Rejected, err)
	}
	for i, d := range ds {
		r.source.config.Log.Warn("rejected a message", "queue", r.source.config.Queue,
			"message-id", d.delivery.MessageId, "reason", reasons[i])
	}
	return nil
}

func (r *rejected) publish(ds []inHand, reasons []string) error {
	ctx, cancel := context.WithTimeout(r.over, rejectTimeout)
	defer cancel()
	if err := r.dial(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, r.cut)() // not every call has a deadline of its own
	if err := r.open(len(ds)); err != nil {
		return err
	}
	var confirms []*amqp.DeferredConfirmation
	for i, d := range ds {
		c, err := r.ch.PublishWithDeferredConfirm("", r.source.config.Rejected, true, false,
			aside(d.delivery, r.source.config.Queue, reasons[i]))
		if err != nil {
			return err
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		switch acked, err := c.WaitContext(ctx); {
		case err != nil:
			return fmt.Errorf("no confirm came: %w", err)
		case !acked:
			return errors.New("the broker refused a message")
		}
	}
	select { // a return arrives before its confirm
	case back := <-r.returns:
		return fmt.Errorf("%d %s: was the queue deleted?", back.ReplyCode, back.ReplyText)
	default:
		return nil
	}
}

// dial connects if there is no connection.
func (r *rejected) dial() error {
	if r.conn != nil && !r.conn.IsClosed() {
		return nil
	}
	r.hangUp()
	conn, cut, err := r.source.dial(r.over)
	if err != nil {
		return err
	}
	r.conn, r.cut, r.ch = conn, cut, nil
	return nil
}

// open opens a channel for at most window messages in flight.
func (r *rejected) open(window int) error {
	if r.ch != nil && !r.ch.IsClosed() && cap(r.returns) >= window {
		return nil
	}
	if r.ch != nil {
		_ = r.ch.Close() // fails if it is already closed
	}
	if err := r.declare(r.conn); err != nil {
		return err
	}
	ch, err := r.conn.Channel()
	if err != nil {
		return err
	}
	r.ch, r.returns = ch, ch.NotifyReturn(make(chan amqp.Return, window))
	return ch.Confirm(false)
}

// hangUp closes the connection; the next attempt makes a new one. The lock is held.
func (r *rejected) hangUp() {
	if r.conn != nil {
		_ = r.conn.CloseDeadline(time.Now().Add(closeTimeout))
		r.cut()
		r.conn = nil
	}
}

func (r *rejected) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hangUp()
}

// aside makes the message for the queue of rejected messages: d with the reason added,
// and without what would make the broker drop it, refuse it or route it elsewhere.
func aside(d *amqp.Delivery, queue, reason string) amqp.Publishing {
	headers := amqp.Table{}
	maps.Copy(headers, d.Headers)
	for name := range headers {
		if isBrokersOwn(name) {
			delete(headers, name)
		}
	}
	if cc, ok := headers["CC"]; ok {
		headers["postdate-rejected-cc"] = cc
		delete(headers, "CC")
	}
	delete(headers, "BCC")
	if len(reason) > reasonBytesMax {
		reason = strings.ToValidUTF8(reason[:reasonBytesMax], "")
	}
	if !utf8.ValidString(reason) {
		reason = strings.ToValidUTF8(reason, "?")
	}
	headers[ingest.HeaderReason], headers[ingest.HeaderRejectedFrom] = reason, queue
	headers[ingest.HeaderRejectedKey] = d.RoutingKey
	if d.Expiration != "" {
		headers[amqpheader.Expiration] = d.Expiration
	}
	if d.UserId != "" {
		headers[amqpheader.UserID] = d.UserId
	}
	return amqp.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
}
