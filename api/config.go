package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Inbox reads messages that were delivered to an inbox. Read waits as
// long as r says for the first one after the cursor, and may return none. The end of ctx ends
// the wait.
type Inbox interface {
	Read(ctx context.Context, r store.InboxRead) (messages []store.InboxMessage, next string, err error)
}

// Config is all that a [Server] needs. Fields without a default are required.
type Config struct {
	// Buckets is N: how many buckets the store was born with.
	Buckets int
	// Messages is where messages are kept.
	Messages store.Messages
	// Inbox is where delivered ones are read.
	Inbox Inbox
	// Now reads the wall clock. Default: the system's.
	Now func() postdate.Time
	// Log takes what only an operator can act on. Default: slog.Default().
	Log *slog.Logger
	// Registry takes the metrics, and /metrics shows it. Default: a new one.
	Registry *prometheus.Registry

	// Scheduled is told, after each durable insert and replace, that the bucket
	// has a message due at that time. It must be cheap. Default: nobody is told.
	Scheduled func(bucket int, at postdate.Time)
	// CheckChannel says whether a well-formed channel can be served here: its
	// broker is configured and its form is right. Its error is shown to the
	// client. Default: every channel can.
	CheckChannel func(postdate.Channel) error
	// Cluster is the view that GET /v1/cluster shows. Default: an empty one.
	Cluster func() Cluster
	// Channels is what operators see and set of channels. Default: nothing.
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
	// WriteTimeout bounds the departure of one whole response, from the end of
	// its handler. Default: 30 s.
	WriteTimeout time.Duration
	// IdleTimeout bounds the wait for a connection's next request. Default: 2 min.
	IdleTimeout time.Duration
	// HeaderBytesMax bounds a request's line and headers. Default: 16 KiB.
	HeaderBytesMax int
	// ConnectionsMax bounds the connections that are served at a time; one more
	// is answered with 503. Default: 16,384.
	ConnectionsMax int
}

// withDefaults fills what was left out.
func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = func() postdate.Time { return postdate.WallOf(time.Now()) }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Scheduled == nil {
		c.Scheduled = func(int, postdate.Time) {}
	}
	if c.CheckChannel == nil {
		c.CheckChannel = func(postdate.Channel) error { return nil }
	}
	if c.Cluster == nil {
		c.Cluster = func() Cluster { return Cluster{} }
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
	orTime(&c.StoreTimeout, 30*time.Second)
	orTime(&c.ReadTimeout, 30*time.Second)
	orTime(&c.WriteTimeout, 30*time.Second)
	orTime(&c.IdleTimeout, 2*time.Minute)
	return c
}

// Validate says what is wrong with c, all of it.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("api: "+format, args...))
		}
	}
	check(c.Buckets >= 1 && c.Buckets <= postdate.BucketsMax, "Buckets is %d: it must be between 1 and %d", c.Buckets, postdate.BucketsMax)
	check(c.Messages != nil, "Messages is missing")
	check(c.Inbox != nil, "Inbox is missing")
	check(c.PayloadBytesMax >= 0 && c.PayloadBytesMax <= postdate.BatchBytesMax/2, "PayloadBytesMax is %d: it must be between 0 (the default) and %d", c.PayloadBytesMax, postdate.BatchBytesMax/2)
	check(c.HeaderBytesMax >= 0 && c.ConnectionsMax >= 0, "HeaderBytesMax and ConnectionsMax must not be negative")
	check(c.StoreTimeout >= 0 && c.ReadTimeout >= 0 && c.WriteTimeout >= 0 && c.IdleTimeout >= 0, "a time-out must not be negative")
	return errors.Join(errs...)
}

// Cluster is what one node knows of the cluster.
type Cluster struct {
	Node    string
	Members []Member
	Buckets []Bucket
}

// Member is one node, as the answering node sees it.
type Member struct{ Node, Address, State string }

// Bucket is one bucket with its owner.
type Bucket struct {
	Bucket     int
	Owner      string // "": nobody
	Token      uint64
	Checkpoint postdate.Time
	Claimed    postdate.Time
	Lag        time.Duration // since the earliest unsettled message became due; of another node's bucket: from the checkpoint to now
}
