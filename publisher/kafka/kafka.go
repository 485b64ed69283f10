// Package kafka publishes to Kafka.
//
// Each message is one record, and is confirmed when all in-sync replicas have acknowledged it.
// Records travel in batches, one batch at a time for each partition, under a producer id and a
// sequence number: a batch whose answer is lost is sent again as the same batch, and the broker
// accepts it once. What is not resolved within the caller's time is Unknown, and this package
// does not send it again. It never creates topics.
//
//	no such topic, not allowed      Refused  in the broker's words
//	too large, invalid              Refused, permanently
//	too few replicas, no leader     Down     before anything was appended
//	not connected                   Down     if it was not written yet
//	connection lost, no answer      Unknown  if it was written and a second try did not tell
//
// The package uses franz-go's client for Kafka's protocol, and a producer of its own (see
// lane). The library's producer either keeps records, and may send one after its caller was
// told that it failed, or, with AllowIdempotentProduceCancellation, fails all records of a
// partition when one caller leaves, without saying which of them it has written
// (TestWhyNotTheLibrarysProducer).
package kafka

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Config is what a Publisher needs. Only Seeds has no default.
type Config struct {
	// Seeds are the addresses of some brokers, host:port, from which the others are found.
	Seeds []string

	// TLS encrypts the connections; nil: no encryption.
	TLS *tls.Config

	// SASL is how to log in; nil: no login.
	SASL *SASL

	// Dial reaches a broker; directly by default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// PublishTimeout bounds each Publish; 10 s by default.
	PublishTimeout time.Duration

	// Fenced publishes in transactions, so that the cluster refuses what a former owner of a
	// bucket publishes. Consumers must then read committed records only, and the node must call
	// Gained and Lost to say which buckets it owns.
	Fenced bool

	// TransactionPrefix begins the transactional ids, which end with the bucket's number:
	// "postdate-" by default. Two Postdate clusters on one Kafka cluster need two prefixes.
	TransactionPrefix string

	// OnFenced is called when the cluster says that another node has taken over a bucket. A
	// node that finds that it is still the owner calls Gained again.
	OnFenced func(bucket int)

	// Log records connections and their loss; slog.Default() by default.
	Log *slog.Logger

	// Metrics registers the publisher's metrics; nil: none. A registry serves one publisher.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.TransactionPrefix == "" {
		c.TransactionPrefix = "postdate-"
	}
	if c.PublishTimeout == 0 {
		c.PublishTimeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate returns a KindInvalid error, without secrets, that says what is wrong. Zero fields
// stand for their defaults.
func (c Config) Validate() error {
	if len(c.Seeds) == 0 {
		return postdate.E(postdate.KindInvalid,
			"no Kafka broker is named: write one or more, like kafka1:9092,kafka2:9092")
	}
	for _, seed := range c.Seeds {
		host, port, err := net.SplitHostPort(seed)
		if err != nil || host == "" || port == "" {
			return postdate.E(postdate.KindInvalid,
				"the Kafka broker %q is not of the form host:port: write it like kafka1:9092", seed)
		}
	}
	if c.PublishTimeout < 0 {
		return postdate.E(postdate.KindInvalid, "the Kafka publish timeout %s is negative", c.PublishTimeout)
	}
	if c.SASL != nil {
		_, err := c.SASL.mechanism()
		return err
	}
	return nil
}

// Publisher publishes to one Kafka cluster. It implements publisher.Publisher.
type Publisher struct {
	config  Config
	client  *kgo.Client
	seeds   string // for logs
	metrics *metrics
	gate    *publisher.Gate

	mu       sync.Mutex
	topics   map[string]*topic
	leaders  map[int32]*leader
	ids      ids
	sessions map[int]*session // by bucket; with Fenced
	state    publisher.State

	life    context.Context // ends when the publisher is closed
	stop    context.CancelFunc
	stopped chan struct{} // closed when watch has returned
}

var (
	_ publisher.Publisher = (*Publisher)(nil)
	_ publisher.Fencer    = (*Publisher)(nil)
)

// New makes a publisher and connects it in the background.
func New(config Config) (*Publisher, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	p := &Publisher{
		config: config, seeds: strings.Join(config.Seeds, ","),
		topics: map[string]*topic{}, leaders: map[int32]*leader{}, sessions: map[int]*session{},
		state: publisher.NewState(),
		gate:  publisher.NewGate(), stopped: make(chan struct{}),
	}
	p.metrics = newMetrics(p, config.Metrics)
	var err error
	if p.client, err = kgo.NewClient(config.options(p.metrics)...); err != nil {
		return nil, postdate.E(postdate.KindInvalid, "the Kafka settings cannot be used: %w", err)
	}
	p.life, p.stop = context.WithCancel(context.Background())
	go p.watch()
	return p, nil
}

const topicBytesMax = 249

// Check implements publisher.Publisher: Kafka must allow the topic's name.
func (p *Publisher) Check(channel postdate.Channel) error { return check(channel) }

func check(channel postdate.Channel) error {
	topic := channel.Target()
	switch {
	case channel.Broker() != "kafka" || topic == "":
		return postdate.E(postdate.KindInvalid, "channel %q names no topic: write kafka:topic", channel)
	case len(topic) > topicBytesMax:
		return postdate.E(postdate.KindInvalid, "channel %q: the topic's name is %d bytes long, and Kafka allows %d",
			channel, len(topic), topicBytesMax)
	case topic == "." || topic == "..":
		return postdate.E(postdate.KindInvalid, "channel %q: Kafka allows no topic of that name", channel)
	}
	for i := range len(topic) {
		switch b := topic[i]; {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '.', b == '_', b == '-':
		default:
			return postdate.E(postdate.KindInvalid, "channel %q: a topic's name has letters, digits and . _ - only",
				channel)
		}
	}
	return nil
}

// Close implements publisher.Publisher. Later calls of Publish return Down.
func (p *Publisher) Close(ctx context.Context) error {
	err := p.gate.Close(ctx, "the Kafka publisher")
	p.stop()
	p.client.Close()
	<-p.stopped
	return err
}
