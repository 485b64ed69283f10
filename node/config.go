package node

import (
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/postdate/postdate"
)

// Config is what an operator can set of a node.
type Config struct {
	HTTP     string   // address to listen on; port 0 picks one
	Store    string   // "pebble:FOLDER"
	RabbitMQ string   // amqp URL; "": there are no rabbitmq: channels
	Buckets  int      // N, fixed at the store's birth
	NodeID   string   // this node's name
	Join     []string // addresses of a cluster's nodes

	Retention       time.Duration // how long a finished message is kept
	InboxRetention  time.Duration // how long an inbox keeps a message
	PayloadBytesMax int
	Retry           postdate.RetryPolicy // for what a message leaves open

	Log     *slog.Logger
	Version string
}

// DefaultConfig holds the defaults.
func DefaultConfig() Config {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "node"
	}
	return Config{
		HTTP: "127.0.0.1:8080", Store: "pebble:./data", Buckets: postdate.BucketsDefault, NodeID: name,
		Retention: 24 * time.Hour, InboxRetention: 24 * time.Hour,
		PayloadBytesMax: postdate.PayloadBytesMax, Retry: postdate.RetryDefault,
		Log: slog.Default(), Version: "unknown",
	}
}

// Validate says what is wrong with c, as a sentence that names the flag.
func (c Config) Validate() error {
	invalid := func(format string, args ...any) error {
		return postdate.E(postdate.KindInvalid, format, args...)
	}
	if _, err := c.storeDir(); err != nil {
		return err
	}
	switch {
	case len(c.Join) > 0:
		return invalid("--join: the embedded store serves one node and cannot join a cluster; a cluster needs a store that its nodes share")
	case c.HTTP == "":
		return invalid("--http is empty: name an address like 127.0.0.1:8080")
	case c.NodeID == "" || len(c.NodeID) > postdate.TenantBytesMax:
		return invalid("--node-id must have between 1 and %d bytes", postdate.TenantBytesMax)
	case c.Buckets < 1 || c.Buckets > postdate.BucketsMax:
		return invalid("--buckets is %d: it must be between 1 and %d", c.Buckets, postdate.BucketsMax)
	case c.Retention < time.Second || c.InboxRetention < time.Second:
		return invalid("--retention and --inbox-retention must be at least 1s")
	case c.PayloadBytesMax < 1 || c.PayloadBytesMax > postdate.BatchBytesMax/2:
		return invalid("--payload-max is %d bytes: it must be between 1 and %d", c.PayloadBytesMax, postdate.BatchBytesMax/2)
	case c.Retry.MaxAttempts < 1 || c.Retry.MaxAttempts > postdate.RetryAttemptMax:
		return invalid("--retry-max-attempts is %d: it must be between 1 and %d", c.Retry.MaxAttempts, postdate.RetryAttemptMax)
	case c.Retry.MinBackoff < time.Millisecond || c.Retry.MaxBackoff < c.Retry.MinBackoff || c.Retry.MaxBackoff > postdate.RetryBackoffMax:
		return invalid("--retry-min-backoff must be at least 1ms, and --retry-max-backoff between that and %s", postdate.RetryBackoffMax)
	}
	if c.RabbitMQ != "" {
		u, err := url.Parse(c.RabbitMQ)
		if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Host == "" {
			return invalid("--rabbitmq is not an AMQP URL: write it like amqp://user:password@host:5672/")
		}
	}
	return nil
}

// storeDir is the folder of the embedded store.
func (c Config) storeDir() (string, error) {
	kind, rest, _ := strings.Cut(c.Store, ":")
	switch {
	case kind == "pebble" && rest != "":
		return rest, nil
	case kind == "mongodb" || kind == "mongodb+srv":
		return "", postdate.E(postdate.KindInvalid, "--store: this version has only the embedded store: write pebble:FOLDER")
	}
	return "", postdate.E(postdate.KindInvalid, "--store %q is not of the form pebble:FOLDER, like pebble:./data", c.Store)
}
