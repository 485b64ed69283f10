package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/internal/amqpdial"
)

const (
	dialTimeout  = 10 * time.Second // to connect, and to shake hands
	closeTimeout = 5 * time.Second  // for the broker to confirm the close
	heartbeat    = 5 * time.Second  // three missed ones end the connection
	whyTimeout   = time.Second
)

// session is one connection to the broker.
type session struct {
	conn   *amqp.Connection
	socket *corked
	closes chan *amqp.Error
	blocks chan amqp.Blocking
	over   atomic.Bool // no more messages are sent
}

// link is one AMQP channel in confirm mode, with what the broker sends on it besides confirms.
type link struct {
	*amqp.Channel
	session *session
	returns chan amqp.Return // a returned message is in here before its confirm comes
	closes  chan *amqp.Error
	cause   *exception // once why was called
}

// dial connects. The config's timeout bounds every later write.
func dial(ctx context.Context, c Config) (*session, error) {
	s := &session{closes: make(chan *amqp.Error, 1), blocks: make(chan amqp.Blocking, 16)}
	var stopped func() bool // stops watching ctx
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("postdate")
	conn, err := amqpdial.Dial(c.URL, amqp.Config{
		Heartbeat:       heartbeat,
		Properties:      properties,
		TLSClientConfig: c.TLS,
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			// amqp091 removes the deadline after the handshake.
			if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
				conn.Close()
				return nil, err
			}
			s.socket = &corked{Conn: conn, timeout: c.PublishTimeout}
			stopped = context.AfterFunc(ctx, func() { conn.Close() })
			return s.socket, nil
		},
	})
	if stopped != nil && !stopped() && err == nil {
		err = ctx.Err()
		conn.Close()
	}
	if err != nil {
		return nil, err
	}
	s.conn = conn
	conn.NotifyClose(s.closes)
	conn.NotifyBlocked(s.blocks)
	return s, nil
}

// close closes the connection in an orderly way, and cuts it in any case.
func (s *session) close(deadline time.Time) {
	s.over.Store(true)
	_ = s.conn.CloseDeadline(deadline) // a broker that blocks publishers does not answer
	s.socket.Close()
}

// open opens a channel for up to window messages in flight.
func (s *session) open(window int) (*link, error) {
	ch, err := s.conn.Channel()
	if err != nil {
		return nil, err
	}
	l := &link{
		Channel: ch, session: s,
		returns: ch.NotifyReturn(make(chan amqp.Return, window)),
		closes:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}
	return l, ch.Confirm(false)
}

// sync returns when the broker has processed everything published on the channel so far; any of
// it that would break the channel has broken it by then. A second confirm.select changes
// nothing and is answered in its turn. It must go out in one write with the messages: otherwise
// amqp091 may send it after its answer to a close of the channel, and the broker then ends the
// connection (504 CHANNEL_ERROR).
func (l *link) sync() error { return l.Confirm(false) }

// publish hands a message to the connection. written is false if it surely did not get that
// far.
func (l *link) publish(exchange, key string, msg amqp.Publishing) (answer confirm, written bool) {
	dc, err := l.PublishWithDeferredConfirm(exchange, key, true, false, msg)
	if err == nil {
		return dc, true
	}
	// amqp091 returns ErrClosed only before it has written a message's last frame.
	if errors.Is(err, amqp.ErrClosed) {
		return nil, false
	}
	return lost{}, true
}

// lost is the answer to a message that was only partly written.
type lost struct{}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (lost) Done() <-chan struct{} { return closed }
func (lost) Acked() bool           { return false }

// takeReturns stores what the broker has returned so far.
func (l *link) takeReturns(into map[name]string) {
	for len(l.returns) > 0 {
		r, ok := <-l.returns
		if !ok {
			return
		}
		into[name{key: r.RoutingKey, id: r.MessageId}] = fmt.Sprintf("%d %s: no queue takes routing key %q of "+
			"exchange %q", r.ReplyCode, r.ReplyText, r.RoutingKey, r.Exchange)
	}
}

// why returns the reason why the channel broke. The publisher's lock is held. amqp091 marks a
// channel closed shortly before it delivers the reason, so why waits a moment for it.
func (l *link) why() exception {
	if l.cause != nil {
		return *l.cause
	}
	l.cause = &exception{words: "the connection was lost before the broker confirmed it"}
	select {
	case e := <-l.closes:
		if e != nil {
			l.cause.words, l.cause.code = words(e), e.Code
			l.cause.ours = e.Server && e.Code != amqp.ConnectionForced
			l.cause.named = e.Server && e.Recover && !l.session.conn.IsClosed()
		}
	case <-time.After(whyTimeout):
	}
	return *l.cause
}

// words returns the broker's own words, like "404 NOT_FOUND - no exchange 'x' in vhost '/'", or
// the network's.
func words(err error) string {
	var e *amqp.Error
	if errors.As(err, &e) {
		if !e.Server && e.Code == amqp.FrameError {
			return e.Reason // amqp091 uses this code for whatever ends a connection
		}
		return fmt.Sprintf("%d %s", e.Code, e.Reason)
	}
	return err.Error()
}
