// Package webhook publishes over HTTP: a channel is a URL, and each message is one POST with
// its payload as the body.
//
// The receiver's status is its confirm:
//
//	2xx                            Confirmed
//	410                            Refused, permanently
//	3xx, other 4xx, other 5xx      Refused  redirects are not followed
//	429, 503 with Retry-After      Refused  and tried again after that time
//	502, 504, 520, 524             Unknown  a proxy may have passed it on
//	no connection                  Down     the name, the address or TLS failed
//	no answer, or a cut connection Unknown  once bytes of the request were written
//
// Clients choose the URLs, so each address is checked when it is connected to, whatever its
// name resolved to before: private, loopback, link-local and other special addresses are
// refused unless the operator has allowed them. No proxy is used. Connections speak HTTP/1.1,
// in which it is certain which request an error belongs to.
package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Config is what a Publisher needs. All fields have defaults.
type Config struct {
	// Allow names what webhooks may reach besides public addresses: hosts as in URLs,
	// addresses, or networks like 10.0.0.0/8.
	Allow []string

	// Secrets sign requests. Each is whsec_ and base64, for all requests, or HOST= and that, or
	// https://HOST/PATH= and that, for one channel. Only the nearest ones sign: the channel's,
	// else the host's, else those for all. Each of several for one place gives a signature, so
	// that a secret can be replaced. None: the request is not signed.
	Secrets []string

	// Deployment names the store in ce-source: ids are unique within a store and a tenant. "":
	// ce-source names the tenant alone.
	Deployment string

	// Timeout bounds one request; 10 s by default. Publish starts no request after that time,
	// so it returns within twice the time.
	Timeout time.Duration

	// InFlight is how many requests to one host may be in flight; 32 by default.
	InFlight int

	// Connections is how many connections to all hosts may be open; 1,000 by default.
	Connections int

	// TLS says how to verify receivers; the system's certificates by default.
	TLS *tls.Config

	// Resolver resolves names; the system's by default.
	Resolver *net.Resolver

	// Metrics registers the publisher's metrics; nil: none. A registry serves one publisher.
	Metrics prometheus.Registerer
}

const (
	inFlightMax        = 1000
	connectionsMin     = 8
	connectionsDefault = 1000
)

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.InFlight == 0 {
		c.InFlight = 32
	}
	if c.Connections == 0 {
		c.Connections = connectionsDefault
	}
	return c
}

// Validate returns a KindInvalid error, without secrets, that says what is wrong. Zero fields
// stand for their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	if c.Timeout < 0 {
		return postdate.E(postdate.KindInvalid, "the webhook timeout %s is negative", c.Timeout)
	}
	if c.InFlight < 1 || c.InFlight > inFlightMax {
		return postdate.E(postdate.KindInvalid, "the number of webhooks in flight, %d, is not between 1 and %d",
			c.InFlight, inFlightMax)
	}
	if c.Connections < connectionsMin {
		return postdate.E(postdate.KindInvalid, "the number of webhook connections, %d, is less than %d",
			c.Connections, connectionsMin)
	}
	if _, err := newGuard(c.Allow); err != nil {
		return err
	}
	_, err := newSigners(c.Secrets)
	return err
}

// Publisher publishes to HTTP receivers. It implements publisher.Publisher.
type Publisher struct {
	config  Config
	guard   *guard
	signers signers
	client  *http.Client
	metrics *metrics

	gate  *publisher.Gate
	lanes lanes

	mu    sync.Mutex
	hosts map[string]*host
}

var _ publisher.Publisher = (*Publisher)(nil)

// New makes a publisher. It connects when there is a message to send.
func New(config Config) (*Publisher, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	p := &Publisher{config: config, hosts: map[string]*host{}, gate: publisher.NewGate(),
		lanes: newLanes(config.Connections)}
	var err error
	if p.guard, err = newGuard(config.Allow); err != nil {
		return nil, err
	}
	if p.signers, err = newSigners(config.Secrets); err != nil {
		return nil, err
	}
	p.metrics = newMetrics(config.Metrics)
	p.client = &http.Client{
		Transport: &http.Transport{
			Proxy: nil, DialContext: p.dial, TLSClientConfig: config.TLS, TLSHandshakeTimeout: config.Timeout,
			TLSNextProto:       map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 only
			DisableCompression: true, MaxIdleConnsPerHost: config.InFlight, MaxIdleConns: config.Connections / 4,
			IdleConnTimeout: idleTime, MaxResponseHeaderBytes: answerBytesMax,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p, nil
}

// Check implements publisher.Publisher. It resolves no names: addresses are checked when they
// are connected to.
func (p *Publisher) Check(channel postdate.Channel) error {
	_, err := p.parse(channel)
	return err
}

func (p *Publisher) parse(channel postdate.Channel) (*url.URL, error) {
	u, err := parseURL(channel)
	if err != nil {
		return nil, err
	}
	if why := p.guard.checkHost(u.Hostname()); why != "" {
		return nil, postdate.E(postdate.KindInvalid, "channel %q: %s", channel.Shown(), why)
	}
	return u, nil
}

func parseURL(channel postdate.Channel) (*url.URL, error) {
	u, err := url.Parse(string(channel))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return nil, postdate.E(postdate.KindInvalid, "channel %q is not a URL: write it like https://example.com/hook",
			channel.Shown())
	case u.User != nil:
		return nil, postdate.E(postdate.KindInvalid, "a webhook's URL may hold no user and password: "+
			"send an Authorization header instead, or rely on the signature")
	case strings.Contains(string(channel), "#"):
		return nil, postdate.E(postdate.KindInvalid,
			"channel %q has a fragment (#…), which no receiver ever sees: leave it out", channel.Shown())
	case u.Hostname() == "" || strings.ContainsAny(u.Hostname(), "% \\"):
		return nil, postdate.E(postdate.KindInvalid, "channel %q names no host: write it like https://example.com/hook",
			channel.Shown())
	case !portFits(u):
		return nil, postdate.E(postdate.KindInvalid, "channel %q has a port that is not between 1 and 65535",
			channel.Shown())
	}
	return u, nil
}

func portFits(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && n > 0
}

// Close implements publisher.Publisher. Later calls of Publish return Down.
func (p *Publisher) Close(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	return p.gate.Close(ctx, "the webhook publisher")
}
