// Package rabbitmq publishes to RabbitMQ over AMQP 0.9.1.
//
// Messages are persistent and mandatory, and many are in flight at the same time. A message is
// confirmed only when the broker has taken responsibility for it and has not returned it. A
// refusal carries the broker's own words:
//
//	no such queue, nothing bound   Refused  312 NO_ROUTE (a mandatory message is returned)
//	no such exchange               Refused  404 NOT_FOUND
//	not allowed                    Refused  403 ACCESS_REFUSED
//	a full queue that rejects      Refused  a nack
//	what AMQP cannot carry         Refused, permanently, without asking the broker
//	not connected, blocked         Down     if it was not written yet
//	connection lost, no answer     Unknown  if it was written
//
// All messages share one connection. On it, each exchange has an AMQP channel of its own (see
// lane), because the broker closes the whole channel over one message to a missing exchange.
// The publisher needs no broker to start: it connects, and reconnects, in the background.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Config is what a Publisher needs. Only URL has no default.
type Config struct {
	// URL is the broker's address: amqp:// or amqps://, user, password, host,
	// port and virtual host.
	URL string

	// TLS is for amqps://; nil: the system's authorities, or what the URL's query says.
	TLS *tls.Config

	// PublishTimeout bounds each Publish; 10 s by default.
	PublishTimeout time.Duration

	// Window is how many unconfirmed messages one queue or routing key may have; 500 by
	// default, from 1 to 10,000. An AMQP channel has room for four windows.
	Window int

	// Log records connections and their loss; slog.Default() by default.
	Log *slog.Logger

	// Metrics registers the publisher's metrics; nil: none. A registry serves one publisher.
	Metrics prometheus.Registerer
}

const windowMax = 10_000

func (c Config) withDefaults() Config {
	if c.PublishTimeout == 0 {
		c.PublishTimeout = 10 * time.Second
	}
	if c.Window == 0 {
		c.Window = 500
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate returns a KindInvalid error that says what is wrong and repeats no part of the URL.
// Zero fields stand for their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	if _, err := amqp.ParseURI(c.URL); err != nil || c.URL == "" {
		return postdate.E(postdate.KindInvalid, "the RabbitMQ URL cannot be read: write it like "+
			"amqp://user:password@host:5672/vhost, with %%XX for special characters in user, password and vhost")
	}
	if c.PublishTimeout < 0 {
		return postdate.E(postdate.KindInvalid, "the RabbitMQ publish timeout %s is negative", c.PublishTimeout)
	}
	if c.Window < 1 || c.Window > windowMax {
		return postdate.E(postdate.KindInvalid, "the RabbitMQ window %d is not between 1 and %d", c.Window, windowMax)
	}
	return nil
}

// Publisher publishes to one broker. It implements publisher.Publisher.
type Publisher struct {
	config  Config
	address string // host and port, without credentials
	secure  bool   // over TLS
	metrics *metrics
	gate    *publisher.Gate

	frameBytesMax atomic.Int64 // of the connection

	mu      sync.Mutex
	wake    *sync.Cond // there is something to write, or room for it, or the session is over
	lanes   map[string]*lane
	session *session
	state   publisher.State

	stop    context.CancelFunc
	stopped chan struct{} // closed when keepConnected has returned
}

var _ publisher.Publisher = (*Publisher)(nil)

// New makes a publisher and connects it in the background.
func New(config Config) (*Publisher, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	uri, err := amqp.ParseURI(config.URL)
	if err != nil {
		return nil, err // not reached: Validate has parsed it
	}
	p := &Publisher{
		config: config, address: hostPort(uri), secure: uri.Scheme == "amqps", lanes: map[string]*lane{},
		state: publisher.NewState(),
		gate:  publisher.NewGate(), stopped: make(chan struct{}),
	}
	p.wake = sync.NewCond(&p.mu)
	p.frameBytesMax.Store(131072) // RabbitMQ's default, until a connection tells
	p.metrics = newMetrics(p, config.Metrics)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go p.keepConnected(ctx)
	return p, nil
}

// Check implements publisher.Publisher.
func (p *Publisher) Check(channel postdate.Channel) error {
	_, err := parseTarget(channel)
	return err
}

// Close implements publisher.Publisher. Later calls of Publish return Down.
func (p *Publisher) Close(ctx context.Context) error {
	err := p.gate.Close(ctx, "the RabbitMQ publisher")
	p.stop()
	select {
	case <-p.stopped:
	case <-ctx.Done():
		p.hangUp()
		<-p.stopped
	}
	return err
}

// lane returns the lane of an exchange.
func (p *Publisher) lane(exchange string) *lane {
	l := p.lanes[exchange]
	if l == nil {
		l = newLane(exchange, p.config.Window)
		p.lanes[exchange] = l
	}
	return l
}
