// Package rabbitmq takes schedules from a RabbitMQ queue, classic or quorum, over
// AMQP 0.9.1. Package ingest decides what the messages mean.
//
// # Promises
//
//   - A message is acknowledged when its schedule is durable, or when the queue of
//     rejected messages has confirmed it, and never before. After a crash in between,
//     the broker delivers it again.
//   - A message that can never be scheduled does not stop those behind it: it goes to
//     the queue of rejected messages with the reason in its headers. From there it may
//     be put back as it is.
//   - A message that the store cannot take yet stays unacknowledged and is tried again,
//     while work on those behind it goes on. The prefetch bounds how many wait so.
//   - A message's headers and properties go with it: see read.go.
//
// The operator declares the queue; the queue of rejected messages is declared here. The
// source starts without a broker: it connects, and reconnects, in the background.
package rabbitmq

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/time/rate"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
)

// RoutingKey is the placeholder for a message's routing key in a channel.
const RoutingKey = "{routing-key}"

const (
	prefetchDefault = 500
	prefetchMax     = 65_535
	workers         = 4 // batches in progress at the same time
	lagEvery        = 10 * time.Second
	warnEvery       = 10 * time.Second // between warnings that messages wait for the store

	// The wait before reconnecting, and before retrying a message, doubles from the first
	// to the last. It is shortened by up to a half at random.
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 5 * time.Second
	againLast    = time.Second     // the last for a message
	steadyTime   = 5 * time.Second // a session that lasts this long resets the wait
)

// Config is what a Source needs. URL, Queue and Taker have no defaults.
type Config struct {
	URL      string      // amqp:// or amqps://
	TLS      *tls.Config // for amqps://; nil: the system's authorities, or what the URL's query says
	Queue    string
	Channel  string // where messages go that name no channel, or all after a "!"; may contain [RoutingKey]
	Rejected string // the queue of rejected messages; by default Queue + ".postdate-rejected"
	Prefetch int    // how many messages are in hand at the same time; 500 by default
	Taker    *ingest.Taker
	Log      *slog.Logger
}

// Source consumes one queue.
type Source struct {
	config   Config
	address  string // host and port, without credentials
	secure   bool   // over TLS
	template ingest.Template

	closing chan struct{} // closed: take no more messages
	once    sync.Once
	cut     context.CancelFunc // aborts everything immediately
	stopped chan struct{}
	warn    rate.Sometimes

	mu     sync.Mutex
	reason string // why nothing is consumed; "": messages are consumed
}

// Start begins to consume in the background, until Close or the end of ctx, which aborts
// the work in progress. Errors are sentences about the configuration.
func Start(ctx context.Context, c Config) (*Source, error) {
	uri, err := amqp.ParseURI(c.URL)
	switch {
	case err != nil || c.URL == "":
		return nil, postdate.E(postdate.KindInvalid,
			"the RabbitMQ URL cannot be read: write it like amqp://user:password@host:5672/vhost")
	case c.Queue == "" || len(c.Queue) > 255-len(ingest.RejectedSuffix):
		return nil, postdate.E(postdate.KindInvalid,
			"the queue to take schedules from must have a name of 1 to %d bytes", 255-len(ingest.RejectedSuffix))
	case c.Prefetch < 0 || c.Prefetch > prefetchMax:
		return nil, postdate.E(postdate.KindInvalid, "the prefetch %d is not between 0, the default, and %d",
			c.Prefetch, prefetchMax)
	case c.Taker == nil:
		return nil, postdate.E(postdate.KindInternal, "nothing carries out what comes from queue %q", c.Queue)
	}
	if c.Rejected == "" {
		c.Rejected = c.Queue + ingest.RejectedSuffix
	}
	if c.Prefetch == 0 {
		c.Prefetch = prefetchDefault
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	s := &Source{
		config: c, address: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)),
		secure:  uri.Scheme == "amqps",
		closing: make(chan struct{}), stopped: make(chan struct{}), reason: "not connected yet",
		warn: rate.Sometimes{Interval: warnEvery},
	}
	if s.template, err = ingest.ParseTemplate(c.Channel, RoutingKey, c.Taker.CheckChannel); err != nil {
		return nil, err
	}
	ctx, s.cut = context.WithCancel(ctx)
	go s.run(ctx)
	return s, nil
}

// Ready returns why nothing is consumed at present, or nil if messages are consumed.
func (s *Source) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		return nil
	}
	return postdate.E(postdate.KindUnavailable, "no schedules are taken from queue %q: %s", s.config.Queue, s.reason)
}

// Close takes no more messages, finishes those in hand, until ctx ends at the latest, and
// disconnects. Unfinished messages stay in the queue.
func (s *Source) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.closing) })
	var err error
	select {
	case <-s.stopped:
	case <-ctx.Done():
		err = postdate.E(postdate.KindUnknown, "stopped taking schedules from queue %q before all that was in hand "+
			"was done; it stays in the queue: %w", s.config.Queue, ctx.Err())
		s.cut()
		<-s.stopped
	}
	s.cut()
	return err
}

// run holds one session after another until the source is closed.
func (s *Source) run(ctx context.Context) {
	defer close(s.stopped)
	last := ""
	for attempt := 0; ; attempt++ {
		began := time.Now()
		err := s.session(ctx)
		if ctx.Err() != nil || isClosed(s.closing) {
			s.setReason("it is closed")
			return
		}
		s.setReason(err.Error())
		if time.Since(began) >= steadyTime {
			attempt, last = 0, ""
		}
		if err.Error() != last {
			s.config.Log.Warn("no schedules are taken from a RabbitMQ queue; trying again",
				"queue", s.config.Queue, "address", s.address, "reason", err)
			last = err.Error()
		}
		if !s.pause(ctx, attempt, backoffLast) {
			s.setReason("it is closed")
			return
		}
	}
}

func (s *Source) setReason(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reason = reason
}

// pause waits after the given number of failed attempts, for at most last. It returns
// false if the source was closed or ctx ended.
func (s *Source) pause(ctx context.Context, attempt int, last time.Duration) bool {
	timer := time.NewTimer(backoff(attempt, last))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closing:
	case <-ctx.Done():
	}
	return false
}

func backoff(attempt int, last time.Duration) time.Duration {
	d := min(backoffFirst<<min(attempt, 20), last)
	return d - time.Duration(rand.Float64()*float64(d)/2)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
