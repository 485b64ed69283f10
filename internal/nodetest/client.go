// Package nodetest is for tests of whole nodes: the Go client, for a node that comes back at
// another address and without its retries; a follower of an inbox; and what settles the account
// of both.
//
// Only [Settle] fails a test by itself; calls return errors, because a killed node does not
// answer.
package nodetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate/client"
)

// Client is a client of one node, whose address may change when it restarts. Each call is tried
// once and, as a rule, sent by itself.
type Client struct {
	*client.Client
	address atomic.Pointer[string]
}

// callsMax is how many concurrent calls are sent without waiting for each other.
const callsMax = 64

// NewClient makes a client of the node at address, host:port.
func NewClient(address string) *Client {
	c := &Client{}
	c.Move(address)
	var err error
	c.Client, err = client.New(client.Config{
		Servers: []string{"localhost"}, RetryFor: -1, Requests: callsMax,
		HTTP: &http.Client{Transport: moving{&http.Transport{MaxIdleConnsPerHost: callsMax}, &c.address}},
	})
	if err != nil {
		panic(err) // it depends on nothing
	}
	return c
}

// Move changes the node's address.
func (c *Client) Move(address string) { c.address.Store(&address) }

// moving sends requests to the current address.
type moving struct {
	*http.Transport
	address *atomic.Pointer[string]
}

// RoundTrip implements http.RoundTripper.
func (m moving) RoundTrip(r *http.Request) (*http.Response, error) {
	there := r.Clone(r.Context())
	there.URL.Host = *m.address.Load()
	return m.Transport.RoundTrip(there)
}

// NoAnswer reports whether a call got no answer, as if the node was killed.
func NoAnswer(err error) bool {
	var none *client.NoAnswer
	return errors.As(err, &none) && !errors.Is(err, client.ErrGarbled)
}

// In returns the time d from now, to the millisecond, like a message's. Were it not rounded, a
// node would round it up.
func In(d time.Duration) time.Time { return time.Now().Add(d).Truncate(time.Millisecond) }

// At formats a time as in a message: to the millisecond, rounded down.
func At(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// AwaitNonePending returns when no message is PENDING any more.
func (c *Client) AwaitNonePending(ctx context.Context) error {
	return Poll(ctx, func() (bool, error) {
		for _, err := range c.List(ctx, client.Filter{Status: client.Pending, PageSize: 1}) {
			return false, err
		}
		return true, nil
	})
}

// Poll calls done regularly, for what gives no signal, until it returns true or an error.
func Poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", context.Cause(ctx))
		}
	}
}

// Metric reads one series without labels from /metrics.
func (c *Client) Metric(ctx context.Context, name string) (float64, error) {
	text, err := c.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no series %s", name)
}
