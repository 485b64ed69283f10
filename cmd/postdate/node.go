package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/node"
)

// nodeFlags are the settings of a node.
type nodeFlags struct {
	config     node.Config
	storeCache size
	payloadMax size
	configFile string
	logLevel   choice
	logFormat  choice
}

// register defines the settings, with the node's own defaults.
func (n *nodeFlags) register(f *pflag.FlagSet) {
	n.config = node.DefaultConfig()
	n.payloadMax = size(n.config.PayloadBytesMax)
	n.logLevel = choice{value: "info", allowed: []string{"debug", "info", "warn", "error"}}
	n.logFormat = choice{value: "text", allowed: []string{"text", "json"}}
	c := &n.config
	f.StringVar(&n.configFile, configFlag, "", "a YAML file with settings, one a line: \"store: pebble:./data\"")
	f.StringVar(&c.HTTP, "http", c.HTTP, "address to listen on, HOST:PORT; no host, or 0.0.0.0: all addresses, "+
		"those of IPv6 too; port 0: a free one")
	f.BoolVar(&c.Insecure, "insecure", false, "listen beyond loopback without keys, of --http or of --gossip: "+
		"a proxy or a private network keeps others out")
	registerKeys(f, c)
	f.StringSliceVar(&c.CORSOrigins, "cors-origin", nil, "origins of web pages that browsers let use the API, like "+
		"https://app.example; * for all; may be repeated")
	f.StringVar(&c.TLS.Cert, "tls-cert", "",
		"file with the node's certificate, in PEM, for TLS; it and the next two are read again when they change")
	f.StringVar(&c.TLS.Key, "tls-key", "", "file with the key of --tls-cert")
	f.StringVar(&c.TLS.ClientCA, "tls-client-ca", "",
		"file with authorities, in PEM: who has no certificate from one of them is refused")
	f.StringVar(&c.Store, "store", c.Store, "where messages live: pebble:FOLDER is the embedded store, "+
		"mongodb://HOST/DATABASE one that the nodes of a cluster share")
	f.Var(&n.storeCache, "store-cache", fmt.Sprintf("memory for what the embedded store reads; 0: "+
		"%d %% of the machine's or its cgroup's, between %dMiB and %dMiB",
		100/postdate.StoreCacheShare, postdate.StoreCacheDefaultMin>>20, postdate.StoreCacheDefaultMax>>20))
	registerBrokers(f, c)
	f.IntVar(&c.Buckets, "buckets", c.Buckets,
		"into how many buckets messages are divided; fixed when the store is made")
	f.StringVar(&c.NodeID, "node-id", "", "this node's name (default: the host's)")
	f.StringVar(&c.Gossip, "gossip", c.Gossip, "with MongoDB: address at which the nodes of a cluster find each other")
	f.StringVar(&c.GossipAdvertise, "gossip-advertise", "",
		"with MongoDB: address under which others reach --gossip (default: the same)")
	f.StringSliceVar(&c.GossipKeys, "gossip-key", nil, "with MongoDB: base64 of 16, 24 or 32 bytes that encrypt "+
		"gossip; further ones only decrypt it, while the key is replaced; better as an environment variable")
	f.StringSliceVar(&c.Join, "join", nil, "with MongoDB: addresses of some nodes' --gossip, or a DNS name of them; "+
		"may be repeated")
	registerQuota(f, c)
	f.DurationVar(&c.Lease, "lease", c.Lease,
		"with MongoDB: how long this node keeps its buckets when it falls silent; 500ms to 5m")
	f.DurationVar(&c.ClockSkewMax, "clock-skew-max", c.ClockSkewMax,
		"with MongoDB: how far this machine's clock may be from the database's")
	f.DurationVar(&c.Retention, "retention", c.Retention, "how long a finished message can still be read")
	f.DurationVar(&c.InboxRetention, "inbox-retention", c.InboxRetention, "how long an inbox keeps a message")
	f.Var(&n.payloadMax, "payload-max", "the largest payload")
	f.IntVar(&c.Retry.MaxAttempts, "retry-max-attempts", c.Retry.MaxAttempts,
		"attempts, with the first, for a message that names no number")
	f.DurationVar(&c.Retry.MinBackoff, "retry-min-backoff", c.Retry.MinBackoff,
		"pause before the second attempt, cut by up to a half at random; it doubles from there")
	f.DurationVar(&c.Retry.MaxBackoff, "retry-max-backoff", c.Retry.MaxBackoff,
		"the longest pause between two attempts")
	f.DurationVar(&c.Retry.MaxParked, "retry-max-parked", c.Retry.MaxParked,
		"how long a message waits for a channel that is down; then it fails")
	f.StringVar(&c.Pprof, "pprof", "", "loopback address at which /debug/pprof/ serves Go's profiles of this process, "+
		"like 127.0.0.1:6060; none: nowhere")
	f.BoolVar(&c.Traces, "traces", false, "trace requests and deliveries with OpenTelemetry; its own variables, like "+
		"OTEL_EXPORTER_OTLP_ENDPOINT, say where to and how much")
	f.Var(&n.logLevel, "log-level", "what is logged")
	f.Var(&n.logFormat, "log-format", "how it is logged, on standard error")
}

// registerKeys defines who is asked for what.
func registerKeys(f *pflag.FlagSet, c *node.Config) {
	f.StringVar(&c.AdminKey, "admin-key", "", "the operator's own key, of at least 32 characters: with it every call "+
		"needs a key; none: nobody is asked; better as an environment variable")
	f.StringVar(&c.OIDC.Issuer, "oidc-issuer", "", "URL of an OpenID Connect issuer: its JSON Web Tokens are accepted "+
		"like keys, and every call needs one of the two")
	f.StringVar(&c.OIDC.Audience, "oidc-audience", "", "what tokens must have in their claim aud")
	f.StringVar(&c.OIDC.TenantClaim, "oidc-tenant-claim", c.OIDC.TenantClaim, "the claim that names a token's tenant; "+
		"a JSON Pointer like /org/id if it begins with /")
	f.StringVar(&c.OIDC.ScopeClaim, "oidc-scope-claim", c.OIDC.ScopeClaim,
		"the claim with a token's scopes, likewise: a text with spaces between them, or a list")
	f.StringVar(&c.OIDC.ClientID, "oidc-client-id", "", "the public client of --oidc-issuer with which people log in "+
		"to the console; none: they need a key")
	f.StringSliceVar(&c.OIDC.ClientScopes, "oidc-client-scope", nil, "what the console asks --oidc-issuer for, like "+
		"openid,offline_access; may be repeated (default: openid)")
	f.BoolVar(&c.MetricsOpen, "metrics-open", false, "with --admin-key or --oidc-issuer: show /metrics without a key")
}

// registerQuota registers the limits of tenants for which an administrator has set nothing else.
func registerQuota(f *pflag.FlagSet, c *node.Config) {
	const others = "; 0: no limit; PATCH /v1/tenants/TENANT sets it for one"
	f.Float64Var(&c.Quota.RequestsPerSecond, "tenant-requests-per-second", 0,
		"how many requests a tenant may send in a second"+others)
	f.Float64Var(&c.Quota.MessagesPerSecond, "tenant-messages-per-second", 0,
		"how many messages a tenant may schedule in a second"+others)
	f.Int64Var(&c.Quota.PendingMax, "tenant-pending-max", 0, "how many messages of a tenant may be pending"+others)
	f.Int64Var(&c.Quota.BytesMax, "tenant-bytes-max", 0, "how many bytes of payload of a tenant may be pending"+others)
	f.Int64Var(&c.Quota.ChannelsMax, "tenant-channels-max", 0,
		"for how many channels messages of a tenant may be pending"+others)
}

// registerBrokers defines the settings of where messages go to and schedules come from.
func registerBrokers(f *pflag.FlagSet, c *node.Config) {
	f.StringVar(&c.RabbitMQ, "rabbitmq", c.RabbitMQ,
		"RabbitMQ's URL, amqp://user:password@host:5672/; none: no rabbitmq: channels")
	f.StringVar(&c.RabbitMQTLS.CA, "rabbitmq-ca", "",
		"file with the authority of RabbitMQ's certificate, in PEM, for amqps:// (default: the system's)")
	f.StringVar(&c.RabbitMQTLS.Cert, "rabbitmq-cert", "", "file with the certificate to show to RabbitMQ")
	f.StringVar(&c.RabbitMQTLS.Key, "rabbitmq-key", "", "file with its key")
	f.StringSliceVar(&c.Kafka.Seeds, "kafka", nil, "some of Kafka's brokers, host:port; none: no kafka: channels")
	f.BoolVar(&c.Kafka.TLS, "kafka-tls", false, "speak TLS with Kafka")
	f.StringVar(&c.Kafka.Files.CA, "kafka-ca", "",
		"file with the authority of the brokers' certificates, in PEM (default: the system's)")
	f.StringVar(&c.Kafka.Files.Cert, "kafka-cert", "", "file with the certificate to show to Kafka")
	f.StringVar(&c.Kafka.Files.Key, "kafka-key", "", "file with its key")
	f.StringVar(&c.Kafka.SASL, "kafka-sasl", "",
		"how to log in to Kafka: plain, scram-sha-256 or scram-sha-512; none: not at all")
	f.StringVar(&c.Kafka.User, "kafka-user", "", "who logs in to Kafka")
	f.StringVar(&c.Kafka.Password, "kafka-password", "", "with which password; better as an environment variable")
	f.BoolVar(&c.Kafka.Fenced, "kafka-fenced", false,
		"publish to Kafka in transactions, so that it refuses what a node sends that has lost its bucket")
	f.StringSliceVar(&c.Webhook.Allow, "webhook-allow", nil,
		"private hosts, addresses or networks that webhooks may reach, like 10.0.0.0/8; may be repeated")
	f.StringSliceVar(&c.Webhook.Secrets, "webhook-secret", nil, "whsec_ and base64: signs webhooks; "+
		"HOST=whsec_… or https://HOST/PATH=whsec_…: those of one host or channel; a second one for the same place "+
		"while the first is replaced; better as an environment variable")
	f.StringSliceVar(&c.Ingest, "ingest", nil,
		"where else schedules come from: [tenant@]rabbitmq:queue[=channel] or [tenant@]kafka:topic[=channel]; "+
			"task+kafka: takes task definitions, etf1+kafka: the records of kafka-message-scheduler; "+
			"after =! messages can name no other channel; "+
			"the tenant ends at the @ before rabbitmq: or kafka:, the queue at the first =; may be repeated")
}

// finish returns the node's configuration once all flags are set.
func (n *nodeFlags) finish(stderr io.Writer) node.Config {
	c := n.config
	c.PayloadBytesMax, c.StoreCacheBytes = int(n.payloadMax), int64(n.storeCache)
	if c.NodeID == "" {
		c.NodeID = node.DefaultConfig().NodeID
	}
	c.Version = buildVersion()
	c.Log = newLog(secretsOf(c).redact(stderr), n.logLevel.value, n.logFormat.value)
	return c
}

// newLog makes a logger with one of the levels and formats that the flags allow.
func newLog(w io.Writer, level, format string) *slog.Logger {
	var options slog.HandlerOptions
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		panic(err) // the flag accepts only levels that slog knows
	}
	options.Level = l
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, &options))
	}
	return slog.New(slog.NewTextHandler(w, &options))
}
