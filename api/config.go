package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/internal/stats"
	"github.com/postdate/postdate/internal/tracing"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
)

// Inbox reads messages that were delivered to an inbox. Read and Receive wait for the first one
// for as long as r says, or until ctx ends, and may return none.
type Inbox interface {
	// Read reads after a cursor.
	Read(ctx context.Context, r store.InboxRead) (messages []store.InboxMessage, next string, err error)
	// Receive hides what it returns from others that receive for the consumer.
	Receive(ctx context.Context, r store.InboxReceive) ([]store.Received, error)
	// Acknowledge ends the delivery of messages to the consumer. It returns one error per receipt, and
	// one about all.
	Acknowledge(ctx context.Context, name store.ConsumerName, receipts []store.Receipt) ([]error, error)
}

// Config is everything a [Server] needs. Fields without a default are required.
type Config struct {
	// Buckets is N, the number of buckets that the store was created with.
	Buckets int
	// Messages is where messages are kept.
	Messages store.Messages
	// Requests is where it is kept which request an Idempotency-Key stands for.
	Requests store.Requests
	// Inbox is where messages delivered to an inbox are read.
	Inbox Inbox
	// Now reads the wall clock. Default: the system's.
	Now func() postdate.Time
	// Passed is Now, but never much later than the true time: it says what of a changed series is over and
	// skipped, and when an extra occurrence or what is redriven is due. A series does not go back from there.
	// Default: Now.
	Passed func() postdate.Time
	// Tracer makes a span of each request that is sampled. Default: none.
	Tracer *tracing.Tracer
	// Log gets only what an operator can act on. Default: slog.Default().
	Log *slog.Logger
	// Registry takes the metrics of this package. Default: a new one.
	Registry *prometheus.Registry
	// Metrics are what /metrics shows. Default: those of Registry.
	Metrics prometheus.Gatherer

	// Jobs is where calls with a filter are kept. Default: there are none.
	Jobs Jobs
	// JobStarted is called after a job was made durable. Default: no call.
	JobStarted func()

	// Scheduled is called after each durable insert or replace with the bucket and the
	// time at which its message is due. It must be cheap. Default: no call.
	Scheduled func(bucket int, at postdate.Time)
	// CheckChannel returns an error, which the client sees, if this node cannot serve a
	// well-formed channel: its broker is not configured, or its form is not the broker's.
	// Default: every channel can be served.
	CheckChannel func(postdate.Channel) error
	// Kinds are what channels may begin with before their colon, also those that this node does
	// not serve. The channels of an API key are checked against them. Default: they are not.
	Kinds []string
	// Cluster is the view that GET /v1/cluster shows. Default: an empty one.
	Cluster func() Cluster
	// Stats are the figures of the whole cluster, of one tenant or of all if tenant is "". Default: none.
	Stats func(ctx context.Context, tenant string) stats.Stats
	// Keys tells who a request comes from. Default: nobody is asked for a key, and everybody
	// may do everything.
	Keys *auth.Keeper
	// Tokens also tells it, by JSON Web Tokens, if Keys is set. Default: there are none.
	Tokens *auth.Tokens
	// Console is what the console's pages learn before anybody has logged in. Default: there is no console.
	Console *Console
	// Quota holds tenants to their limits of requests. Default: there are none.
	Quota *quota.Keeper
	// Tenants lists tenants and changes their limits. Default: there are none.
	Tenants Tenants
	// Origins are the origins of web pages that may use the API, such as https://app.example; or
	// "*" alone, for all. Default: none.
	Origins []string
	// MetricsOpen: /metrics needs no key.
	MetricsOpen bool
	// Channels lists channels and changes their settings. Default: there are none.
	Channels Channels
	// Ready says why the node is not ready, or nil. Default: always ready.
	Ready func() error

	// PayloadBytesMax bounds one payload. Default: [postdate.PayloadBytesMax].
	PayloadBytesMax int
	// StoreTimeout bounds one call of the store; a write that it cuts off has
	// an unknown outcome. Default: 30 s.
	StoreTimeout time.Duration
	// ReadTimeout bounds the arrival of one whole request. Default: 30 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds the sending of one whole response, counted from the end of
	// its handler. Default: 30 s.
	WriteTimeout time.Duration
	// IdleTimeout bounds the wait for the next request on a connection. Default: 2 min.
	IdleTimeout time.Duration
	// HeaderBytesMax bounds a request's line and headers. Default: 16 KiB.
	HeaderBytesMax int
	// ConnectionsMax bounds the connections open at the same time. For a further one, those
	// are closed that have waited longest for a request; if all are being answered, it
	// gets a 503. Default: 16,384.
	ConnectionsMax int
	// BodiesBytesMax bounds the memory for the bodies of all requests, without their
	// first 8 KiB each. A request beyond it gets a 503. Default: 96 MiB.
	BodiesBytesMax int
	// TLS, if it is not nil, is how the server speaks TLS. Default: plain HTTP.
	TLS *tls.Config
	// Loopback says that only this machine reaches the server, which asks nobody who they
	// are: it refuses what a browser sends here for a page of elsewhere.
	Loopback bool
}

// withDefaults fills in the fields that were left out.
func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = func() postdate.Time { return postdate.WallOf(time.Now()) }
	}
	if c.Passed == nil {
		c.Passed = c.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Metrics == nil {
		c.Metrics = c.Registry
	}
	if c.Scheduled == nil {
		c.Scheduled = func(int, postdate.Time) {}
	}
	if c.Jobs == nil {
		c.Jobs = noJobs{}
	}
	if c.JobStarted == nil {
		c.JobStarted = func() {}
	}
	if c.CheckChannel == nil {
		c.CheckChannel = func(postdate.Channel) error { return nil }
	}
	if c.Cluster == nil {
		c.Cluster = func() Cluster { return Cluster{} }
	}
	if c.Stats == nil {
		c.Stats = func(context.Context, string) stats.Stats { return stats.Stats{} }
	}
	if c.Tenants == nil {
		c.Tenants = noTenants{}
	}
	if c.Channels == nil {
		c.Channels = noChannels{}
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	or := func(n *int, d int) {
		if *n == 0 {
			*n = d
		}
	}
	orTime := func(t *time.Duration, d time.Duration) {
		if *t == 0 {
			*t = d
		}
	}
	or(&c.PayloadBytesMax, postdate.PayloadBytesMax)
	or(&c.HeaderBytesMax, 16<<10)
	or(&c.ConnectionsMax, 16_384)
	or(&c.BodiesBytesMax, postdate.BatchBytesMax+postdate.BatchBytesMax/2)
	orTime(&c.StoreTimeout, 30*time.Second)
	orTime(&c.ReadTimeout, 30*time.Second)
	orTime(&c.WriteTimeout, 30*time.Second)
	orTime(&c.IdleTimeout, 2*time.Minute)
	return c
}

// Validate returns everything that is wrong with c, joined into one error.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("api: "+format, args...))
		}
	}
	check(c.Buckets >= 1 && c.Buckets <= postdate.BucketsMax, "Buckets is %d: it must be between 1 and %d",
		c.Buckets, postdate.BucketsMax)
	check(c.Messages != nil, "Messages is missing")
	check(c.Requests != nil, "Requests is missing")
	check(c.Inbox != nil, "Inbox is missing")
	check(c.PayloadBytesMax >= 0 && c.PayloadBytesMax <= postdate.BatchBytesMax/2,
		"PayloadBytesMax is %d: it must be between 0 (the default) and %d", c.PayloadBytesMax, postdate.BatchBytesMax/2)
	check(c.HeaderBytesMax >= 0 && c.ConnectionsMax >= 0, "HeaderBytesMax and ConnectionsMax must not be negative")
	check(c.BodiesBytesMax == 0 || c.BodiesBytesMax > postdate.BatchBytesMax, "BodiesBytesMax is %d: "+
		"it must be more than %d, so that a batch fits", c.BodiesBytesMax, postdate.BatchBytesMax)
	check(c.StoreTimeout >= 0 && c.ReadTimeout >= 0 && c.WriteTimeout >= 0 && c.IdleTimeout >= 0,
		"a time-out must not be negative")
	err := CheckOrigins(c.Origins)
	check(err == nil, "Origins: %v", err)
	return errors.Join(errs...)
}

// Cluster is what one node knows about the cluster.
type Cluster struct {
	Node    string
	Members []Member
	Buckets []Bucket
}

// Member is one node, as the answering node sees it.
type Member struct {
	Node, Address, State string
	// What the node says of itself; nil: it says nothing of that, or does not answer.
	ClockOffset *time.Duration // how far its clock is ahead of the store's
	Lease       *Lease
}

// Lease shows to other nodes that a node is alive.
type Lease struct {
	ID    string        // of one run of the node
	Lasts time.Duration // from a renewal on
	Left  time.Duration // until it ends if it is not renewed; 0: it has ended
}

// Bucket is one bucket with its owner.
type Bucket struct {
	Bucket     int
	Owner      string // "": nobody
	Token      uint64
	Checkpoint postdate.Time
	Claimed    postdate.Time
	// since the earliest unsettled message became due; for another node's bucket: since its
	// checkpoint
	Lag time.Duration
}
