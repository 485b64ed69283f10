package node

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/membership"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/webhook"
	"github.com/postdate/postdate/quota"
)

// Config is what an operator can set for a node.
type Config struct {
	HTTP     string // address to listen on; port 0 picks one
	Pprof    string // loopback address that serves Go's profiles; "": none
	Insecure bool   // serves addresses other than loopback although it asks nobody who they are
	AdminKey string // the operator's own key; "": nobody is asked for a key
	OIDC     OIDC
	// MetricsOpen: /metrics needs no key
	MetricsOpen bool
	// CORSOrigins are the origins of web pages that may use the API, or "*" alone.
	CORSOrigins []string
	TLS         TLS

	Store    string // "pebble:FOLDER" or a MongoDB URI that names a database
	RabbitMQ string // amqp URL; "": there are no rabbitmq: channels
	// for an amqps URL
	RabbitMQTLS certs.Files
	Kafka       Kafka
	Webhook     Webhook
	Ingest      []string // sources of schedules: [tenant@]rabbitmq:queue|kafka:topic[=[!]channel]
	Buckets     int      // N, fixed at the store's birth
	NodeID      string   // this node's name

	// For a cluster, in which nodes share a store.
	Gossip          string // address to gossip on
	GossipAdvertise string // address at which others reach it; "": Gossip
	// each is the base64 of 16, 24 or 32 bytes: the first encrypts gossip, all decrypt it; none: it is open
	GossipKeys []string
	Join       []string // gossip addresses of some nodes
	// how long this node keeps its buckets after it falls silent; other nodes may use another
	// value
	Lease        time.Duration
	ClockSkewMax time.Duration // how far the wall clock may be from the store's

	Quota quota.Limits // of tenants for which nothing else is set

	Retention       time.Duration // how long a finished message is kept
	InboxRetention  time.Duration // how long an inbox keeps a message
	PayloadBytesMax int
	StoreCacheBytes int64                // cache of the embedded store; 0: sized by the machine's memory
	Retry           postdate.RetryPolicy // for what a message does not set

	Traces  bool // what happens is traced, as the variables of OpenTelemetry say
	Log     *slog.Logger
	Version string
}

// Webhook configures the channels that are URLs.
type Webhook struct {
	Allow   []string // hosts, addresses and networks that may be reached besides public addresses
	Secrets []string // each signs every request; none: requests are not signed
}

func (w Webhook) config() webhook.Config {
	return webhook.Config{Allow: w.Allow, Secrets: w.Secrets}
}

// Kafka is how to reach a Kafka cluster.
type Kafka struct {
	Seeds    []string    // host:port of some brokers; none: there are no kafka: channels
	TLS      bool        // encrypts, and verifies the brokers' certificates
	Files    certs.Files // for TLS
	SASL     string      // how to log in: plain, scram-sha-256 or scram-sha-512; "": no login
	User     string
	Password string
	Fenced   bool // a transactional id per bucket keeps former owners out
}

// transactionPrefix begins the transactional ids of the nodes that share a store. It names the
// store, because nodes of another store may use the same Kafka.
func transactionPrefix(store string) string { return "postdate-" + store + "-" }

// consumerGroup is the group in which the nodes that share a store take schedules from Kafka.
// The nodes of another store form another group, and also get every message.
func consumerGroup(store string) string { return "postdate-" + store }

// secureConfig is config with TLS, for which it reads the files.
func (k Kafka) secureConfig() (c kafka.Config, err error) {
	c = k.config()
	if k.TLS {
		if c.TLS, err = k.Files.Client("--kafka"); err != nil {
			return c, postdate.E(postdate.KindInvalid, "%w", err)
		}
	}
	return c, nil
}

// config converts k to the publisher's configuration, without TLS.
func (k Kafka) config() kafka.Config {
	c := kafka.Config{Seeds: k.Seeds, Fenced: k.Fenced}
	if k.SASL != "" {
		c.SASL = &kafka.SASL{Mechanism: k.SASL, User: k.User, Password: k.Password}
	}
	return c
}

// validate says what is wrong with k.
func (k Kafka) validate() error {
	if len(k.Seeds) == 0 {
		if k.TLS || k.Files != (certs.Files{}) || k.Fenced || k.SASL != "" || k.User != "" || k.Password != "" {
			return postdate.E(postdate.KindInvalid,
				"--kafka is missing: name some brokers, like kafka1:9092,kafka2:9092")
		}
		return nil
	}
	if k.SASL == "" && (k.User != "" || k.Password != "") {
		return postdate.E(postdate.KindInvalid,
			"--kafka-sasl is missing: with a user, say how to log in: plain, scram-sha-256 or scram-sha-512")
	}
	if !k.TLS && k.Files != (certs.Files{}) {
		return invalid("--kafka-tls is missing: without it --kafka-ca, --kafka-cert and --kafka-key are of no use")
	}
	if err := k.Files.CheckPair("--kafka"); err != nil {
		return postdate.E(postdate.KindInvalid, "%w", err)
	}
	if err := k.config().Validate(); err != nil {
		return postdate.E(postdate.KindInvalid, "--kafka: %w", err)
	}
	return nil
}

// DefaultConfig is the configuration if an operator sets nothing: the values are those of the
// root package's defaults.go, and the node is named after its host.
func DefaultConfig() Config {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "node"
	}
	return Config{
		HTTP: postdate.HTTPDefault, Store: postdate.StoreDefault, Buckets: postdate.BucketsDefault, NodeID: name,
		Gossip: postdate.GossipDefault, Lease: postdate.LeaseDefault, ClockSkewMax: postdate.ClockSkewMaxDefault,
		Retention: postdate.RetentionDefault, InboxRetention: postdate.InboxRetentionDefault,
		OIDC:            OIDC{TenantClaim: "tenant", ScopeClaim: "scope"},
		PayloadBytesMax: postdate.PayloadBytesMax, Retry: postdate.RetryDefault,
		Log: slog.Default(), Version: "unknown",
	}
}

// Validate says what is wrong with c, in a sentence that names the flag.
func (c Config) Validate() error {
	if !c.mongoDB() {
		if _, err := c.storeDir(); err != nil {
			return err
		}
	}
	switch {
	case len(c.Join) > 0 && !c.mongoDB():
		return invalid("--join: the embedded store serves one node and cannot join a cluster; " +
			"give all nodes a store that they share: --store mongodb://HOST/DATABASE")
	case c.mongoDB() && c.Gossip == "":
		return invalid("--gossip is empty: the nodes of a cluster find each other by it; " +
			"name an address like 127.0.0.1:7946")
	case c.StoreCacheBytes != 0 && c.mongoDB():
		return invalid("--store-cache: MongoDB has its own cache; leave the flag out, " +
			"or give mongod --wiredTigerCacheSizeGB")
	case c.Lease < leaseMin || c.Lease > fence.LeaseMax:
		return invalid("--lease is %s: it must be between %s and %s", c.Lease, leaseMin, fence.LeaseMax)
	case c.ClockSkewMax < 10*time.Millisecond || c.ClockSkewMax > time.Minute:
		return invalid("--clock-skew-max is %s: it must be between 10ms and 1m", c.ClockSkewMax)
	case c.HTTP == "":
		return invalid("--http is empty: name an address like 127.0.0.1:8080")
	case !isHostPort(c.HTTP):
		return invalid("--http %q is not HOST:PORT: write it like %s", c.HTTP, hostPortLike(c.HTTP))
	case !c.Insecure && !c.asks() && c.TLS.ClientCA == "" && !api.IsLoopback(c.HTTP):
		return invalid("--http %s lets other machines in, and the node asks nobody who they are: listen on 127.0.0.1, "+
			"give --admin-key, --oidc-issuer or --tls-client-ca, or put a proxy before it that asks, let nothing else "+
			"reach it, and give --insecure", c.HTTP)
	case c.Pprof != "" && (!isHostPort(c.Pprof) || !api.IsLoopback(c.Pprof)):
		return invalid("--pprof %q is not a loopback address, and profiles are shown to whoever reaches them: "+
			"write it like 127.0.0.1:6060", c.Pprof)
	case c.NodeID == "" || len(c.NodeID) > postdate.TenantBytesMax:
		return invalid("--node-id must have between 1 and %d bytes", postdate.TenantBytesMax)
	case c.Buckets < 1 || c.Buckets > postdate.BucketsMax:
		return invalid("--buckets is %d: it must be between 1 and %d", c.Buckets, postdate.BucketsMax)
	case c.StoreCacheBytes != 0 && c.StoreCacheBytes < storeCacheMin:
		return invalid("--store-cache is %d bytes: it must be at least %d MiB, or 0 for a share of the memory",
			c.StoreCacheBytes, storeCacheMin>>20)
	case c.Retention < time.Second || c.InboxRetention < time.Second:
		return invalid("--retention and --inbox-retention must be at least 1s")
	case c.PayloadBytesMax < 1 || c.PayloadBytesMax > postdate.BatchBytesMax/2:
		return invalid("--payload-max is %d bytes: it must be between 1 and %d",
			c.PayloadBytesMax, postdate.BatchBytesMax/2)
	}
	if c.mongoDB() {
		// First: opening the store creates a missing one, with its number of buckets.
		if err := c.validateGossip(); err != nil {
			return err
		}
	}
	if err := c.TLS.validate(); err != nil {
		return err
	}
	if err := cmp.Or(c.validateKeys(), validateRetry(c.Retry), validateQuota(c.Quota)); err != nil {
		return err
	}
	if err := c.validateOrigins(); err != nil {
		return err
	}
	if err := c.Kafka.validate(); err != nil {
		return err
	}
	if err := c.Webhook.config().Validate(); err != nil {
		return postdate.E(postdate.KindInvalid, "--webhook-allow or --webhook-secret: %w", err)
	}
	if err := c.validateIngest(); err != nil {
		return err
	}
	return cmp.Or(c.validateRabbitMQ(), c.validateTraces())
}

// validateOrigins says what is wrong with the pages that may use the API. If nobody is asked for a key, * would let
// every page that this machine's user looks at read and cancel everything.
func (c Config) validateOrigins() error {
	if err := api.CheckOrigins(c.CORSOrigins); err != nil {
		return postdate.E(postdate.KindInvalid, "--cors-origin: %w", err)
	}
	if slices.Contains(c.CORSOrigins, "*") && !c.asks() && c.TLS.ClientCA == "" {
		return invalid("--cors-origin * lets every web page do everything here, for nobody is asked for a key: " +
			"list the origins of your pages, or ask for keys (--admin-key)")
	}
	return nil
}

func (c Config) validateRabbitMQ() error {
	u, err := url.Parse(c.RabbitMQ)
	switch {
	case c.RabbitMQ != "" && (err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Host == ""):
		return invalid("--rabbitmq is not an AMQP URL: write it like amqp://user:password@host:5672/")
	case c.RabbitMQTLS != certs.Files{} && u.Scheme != "amqps":
		return invalid("--rabbitmq is no amqps:// URL: without it --rabbitmq-ca, --rabbitmq-cert and --rabbitmq-key " +
			"are of no use")
	}
	if err := c.RabbitMQTLS.CheckPair("--rabbitmq"); err != nil {
		return postdate.E(postdate.KindInvalid, "%w", err)
	}
	return nil
}

// rabbitMQTLS reads the files for RabbitMQ; nil: none are named.
func (c Config) rabbitMQTLS() (*tls.Config, error) {
	if c.RabbitMQTLS == (certs.Files{}) {
		return nil, nil
	}
	secure, err := c.RabbitMQTLS.Client("--rabbitmq")
	if err != nil {
		return nil, postdate.E(postdate.KindInvalid, "%w", err)
	}
	return secure, nil
}

// asks reports whether requests need a key or a token.
func (c Config) asks() bool { return c.AdminKey != "" || c.OIDC.Issuer != "" }

// validateKeys says what is wrong with who is asked for a key.
func (c Config) validateKeys() error {
	if c.MetricsOpen && !c.asks() {
		return invalid("--metrics-open: without --admin-key or --oidc-issuer nothing needs a key; leave it out")
	}
	if err := c.OIDC.validate(); err != nil || c.AdminKey == "" {
		return err
	}
	if err := auth.CheckAdminKey(c.AdminKey); err != nil {
		return postdate.E(postdate.KindInvalid, "--admin-key: %w", err)
	}
	return nil
}

// validateGossip says what is wrong with how the nodes find each other.
func (c Config) validateGossip() error {
	if err := c.gossip().Validate(); err != nil {
		return err
	}
	if len(c.GossipKeys) == 0 && !c.Insecure && !api.IsLoopback(c.Gossip) {
		return invalid("--gossip %s lets other machines in, and without a key whoever reaches it can join the "+
			"cluster: give all nodes the same --gossip-key, made with openssl rand -base64 32, "+
			"or let nothing but nodes reach it and give --insecure", c.Gossip)
	}
	return nil
}

func validateRetry(p postdate.RetryPolicy) error {
	switch {
	case p.MaxAttempts < 1 || p.MaxAttempts > postdate.RetryAttemptMax:
		return invalid("--retry-max-attempts is %d: it must be between 1 and %d",
			p.MaxAttempts, postdate.RetryAttemptMax)
	case p.MinBackoff < time.Millisecond || p.MaxBackoff < p.MinBackoff ||
		p.MaxBackoff > postdate.RetryBackoffMax:
		return invalid("--retry-min-backoff is %s and --retry-max-backoff is %s: the first must be at least 1ms, "+
			"the second between the first and %s", p.MinBackoff, p.MaxBackoff, postdate.RetryBackoffMax)
	case p.MaxParked < time.Millisecond || p.MaxParked > postdate.RetryParkedMax:
		return invalid("--retry-max-parked is %s: it must be between 1ms and %s",
			p.MaxParked, postdate.RetryParkedMax)
	}
	return nil
}

func validateQuota(l quota.Limits) error {
	for _, limit := range []struct {
		flag  string
		value int64
	}{{"pending-max", l.PendingMax}, {"bytes-max", l.BytesMax}, {"channels-max", l.ChannelsMax}} {
		if limit.value < 0 {
			return invalid("--tenant-%s is %d: it must be at least 0, which is no limit", limit.flag, limit.value)
		}
	}
	if err := quota.CheckRate("--tenant-requests-per-second", l.RequestsPerSecond); err != nil {
		return err
	}
	return quota.CheckRate("--tenant-messages-per-second", l.MessagesPerSecond)
}

func invalid(format string, args ...any) error {
	return postdate.E(postdate.KindInvalid, format, args...)
}

func isHostPort(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil
}

// hostPortLike returns the HOST:PORT that was probably meant.
func hostPortLike(text string) string {
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		return "127.0.0.1:" + text + ", or :" + text + " for all addresses"
	}
	host := strings.Trim(text, "[]")
	if net.ParseIP(host) == nil && strings.ContainsAny(host, ":/") {
		return postdate.HTTPDefault
	}
	_, port, _ := net.SplitHostPort(postdate.HTTPDefault)
	return net.JoinHostPort(host, port)
}

// storeCacheMin is the lowest --store-cache, in bytes: with less, every read goes to disk.
const storeCacheMin = 1 << 20

// leaseMin is the lowest --lease: on a busy machine a shorter one expires by chance.
const leaseMin = 500 * time.Millisecond

// gossip is the gossip configuration, without what only the running node knows.
func (c Config) gossip() membership.Config {
	m := membership.Config{Name: c.NodeID, Bind: c.Gossip, Advertise: c.GossipAdvertise, Seeds: c.Join}
	for _, key := range c.GossipKeys {
		m.Keys = append(m.Keys, []byte(key))
	}
	return m
}

// mongoDB reports whether the store is MongoDB, which nodes can share.
func (c Config) mongoDB() bool {
	return strings.HasPrefix(c.Store, "mongodb://") || strings.HasPrefix(c.Store, "mongodb+srv://")
}

// storeDir returns the folder of the embedded store.
func (c Config) storeDir() (string, error) {
	if kind, rest, _ := strings.Cut(c.Store, ":"); kind == "pebble" && rest != "" {
		return rest, nil
	}
	return "", postdate.E(postdate.KindInvalid, "--store %q is neither of the form pebble:FOLDER, "+
		"like pebble:./data, nor a MongoDB URI, like mongodb://HOST/DATABASE", c.Store)
}
