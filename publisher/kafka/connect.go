package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certs"
)

const (
	dialTimeout  = 5 * time.Second
	idleTimeout  = 5 * time.Minute // less than a broker's own default of ten minutes
	requestTries = 2               // of requests that may be repeated
	answerTime   = 3 * time.Second // on top of the time that a request gives the broker
)

// SASL is a login.
type SASL struct {
	Mechanism string // plain, scram-sha-256 or scram-sha-512
	User      string
	Password  string
}

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	if s.User == "" {
		return nil, postdate.E(postdate.KindInvalid, "the Kafka login has no user")
	}
	switch s.Mechanism {
	case "plain":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism(), nil
	}
	return nil, postdate.E(postdate.KindInvalid,
		"the Kafka login's mechanism %q is none of plain, scram-sha-256, scram-sha-512", s.Mechanism)
}

// Keys of Kafka's protocol that are limited to an older version.
const (
	keyProduce         = 0
	keyAddPartitions   = 24
	keyEndTransaction  = 26
	produceVersion     = 11 // the last one in which requests name topics and the client adds partitions to transactions
	addPartitionsByOne = 3
	endWithoutNewEpoch = 4
)

func (c Config) options(m *metrics) []kgo.Opt {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(keyProduce, produceVersion)
	versions.SetMaxKeyVersion(keyAddPartitions, addPartitionsByOne)
	versions.SetMaxKeyVersion(keyEndTransaction, endWithoutNewEpoch)
	return append(c.Connect(), kgo.ClientID("postdate"),
		kgo.MaxVersions(versions), kgo.DisableClientMetrics(), kgo.WithHooks(m),
		kgo.RequestRetries(requestTries), kgo.RetryTimeout(answerTime), kgo.RequestTimeoutOverhead(answerTime),
		kgo.RetryBackoffFn(func(int) time.Duration { return backoffFirst }),
		kgo.ConnIdleTimeout(idleTimeout), kgo.MetadataMinAge(backoffFirst),
	)
}

// Connect returns the options for another client of the same brokers, with its login.
func (c Config) Connect() []kgo.Opt {
	c = c.withDefaults()
	opts := []kgo.Opt{kgo.SeedBrokers(c.Seeds...), kgo.Dialer(c.dial)}
	if c.SASL != nil {
		if m, err := c.SASL.mechanism(); err == nil { // Validate has tried it
			opts = append(opts, kgo.SASL(m))
		}
	}
	return opts
}

// errNotSent is in the chain of every error that means that a request surely did not reach a
// broker.
var errNotSent = errors.New("nothing was sent")

// dial connects to a broker.
func (c Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := c.Dial(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, errNotSent)
	}
	if c.TLS == nil {
		return &conn{Conn: raw, raw: raw}, nil
	}
	config := c.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, tlsError(address, err)
	}
	return &conn{Conn: secure, raw: raw, address: address}, nil
}

func tlsError(address string, err error) error {
	return fmt.Errorf("TLS with %s: %w%s (%w)", address, err,
		certs.Advice(err, "--kafka-ca", "--kafka-cert and --kafka-key"), errNotSent)
}

// conn is a connection that knows when a request surely did not get through. The client writes
// each request in one call, and a broker ignores an incomplete request.
type conn struct {
	net.Conn          // what to read and write: the TLS connection, or the same as raw
	raw      net.Conn // the socket
	address  string
}

// Read notices that the broker refuses the certificate of this side, which comes after the
// handshake: the broker has read nothing then.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && certs.IsRefusal(err) {
		err = tlsError(c.address, err)
	}
	return n, err
}

// Write first checks whether the broker has hung up. Otherwise the loss of an idle connection
// would show only after the request was handed over.
func (c *conn) Write(b []byte) (int, error) {
	if hungUp(c.raw) {
		return 0, fmt.Errorf("the broker has closed the connection (%w)", errNotSent)
	}
	n, err := c.Conn.Write(b)
	if err != nil && n < len(b) {
		err = fmt.Errorf("%w (%w)", err, errNotSent)
	}
	return n, err
}
