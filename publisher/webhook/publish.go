package webhook

import (
	"context"
	"net"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// host limits the number of requests to one host at a time. It exists only while there are any.
type host struct {
	slots chan struct{}
	users int
}

func (p *Publisher) host(name string) *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[name]
	if h == nil {
		h = &host{slots: make(chan struct{}, p.config.InFlight)}
		p.hosts[name] = h
	}
	h.users++
	return h
}

func (p *Publisher) done(name string, h *host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(p.hosts, name)
	}
}

// Publish implements publisher.Publisher.
func (p *Publisher) Publish(ctx context.Context, channel postdate.Channel,
	batch []postdate.Delivery) []publisher.Result {
	to, err := p.parse(channel)
	if err != nil {
		return publisher.All(len(batch), publisher.Result{Outcome: publisher.Refused, Reason: err.Error(),
			Permanent: true})
	}
	if len(batch) == 0 {
		return nil
	}
	if !p.gate.Enter() {
		return p.metrics.outcomes.Count(publisher.All(len(batch),
			publisher.Result{Outcome: publisher.Down, Reason: "the publisher is closed"}))
	}
	defer p.gate.Leave()
	h := p.host(to.Host)
	defer p.done(to.Host, h)
	c := &call{p: p, to: to, secrets: p.signers.of(channel, to.Hostname()),
		start: make(chan struct{})}
	late := time.AfterFunc(p.config.Timeout, c.stop)
	defer late.Stop()
	results := make([]publisher.Result, len(batch))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(batch), p.config.InFlight) {
		wg.Go(func() {
			for i := range next {
				results[i] = c.deliver(ctx, h, &batch[i])
			}
		})
	}
	for i := range batch {
		next <- i
	}
	close(next)
	wg.Wait()
	return p.metrics.outcomes.Count(results)
}

// call is one Publish in progress.
type call struct {
	p       *Publisher
	to      *url.URL
	secrets []*standardwebhooks.Webhook // that sign
	once    sync.Once
	start   chan struct{} // closed when no further request may start
	mu      sync.Mutex
	down    string // why the receiver is down; "": the time is over
}

func (c *call) stop() { c.once.Do(func() { close(c.start) }) }

// fail notes that the receiver cannot be reached, so that the rest of the batch is not tried.
func (c *call) fail(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down == "" {
		c.down = reason
	}
	c.stop()
}

// unsent is the result of a message whose request did not start.
func (c *call) unsent(ctx context.Context) publisher.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := publisher.Result{Outcome: publisher.Down, Reason: c.down}
	switch {
	case r.Reason != "":
	case ctx.Err() != nil:
		r.Reason = "the node stopped waiting before the message was sent"
	default:
		r.Reason = "no request could start within " + c.p.config.Timeout.String() + ": this receiver, or others that " +
			"share the node's connections, answer too slowly"
	}
	return r
}

// enter takes a place in a room. It returns false if no request may start any more.
func (c *call) enter(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	case <-c.start:
	case <-ctx.Done():
	}
	return false
}

// deliver sends one message when the host has room for it.
func (c *call) deliver(ctx context.Context, h *host, d *postdate.Delivery) publisher.Result {
	select {
	case <-c.start:
		return c.unsent(ctx)
	default:
	}
	if !c.enter(ctx, h.slots) {
		return c.unsent(ctx)
	}
	defer func() { <-h.slots }()
	lane := c.p.lanes.of(c.to.Host)
	if !c.enter(ctx, lane) {
		return c.unsent(ctx)
	}
	defer func() { <-lane }()
	if ctx.Err() != nil {
		return c.unsent(ctx)
	}
	c.p.metrics.inFlight.Inc()
	defer c.p.metrics.inFlight.Dec()
	began := time.Now()
	result, written := c.post(ctx, d)
	if result.Outcome == publisher.Down && !written && ctx.Err() == nil {
		c.fail(result.Reason)
	}
	c.p.metrics.seconds.Observe(time.Since(began).Seconds())
	return result
}

// post sends one message. A receiver may close an idle connection; if nothing was written to
// it, post tries another one, and does not count that as a failure.
func (c *call) post(ctx context.Context, d *postdate.Delivery) (result publisher.Result, written bool) {
	ctx, cancel := context.WithTimeout(ctx, c.p.config.Timeout)
	defer cancel()
	for try := 1; ; try++ {
		began := time.Now()
		req, err := c.request(d, began)
		if err != nil {
			return publisher.Result{Outcome: publisher.Refused, Reason: err.Error(), Permanent: true}, false
		}
		var mu sync.Mutex
		var used net.Conn
		var before int64
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			mu.Lock()
			defer mu.Unlock()
			used, before = info.Conn, writtenTo(info.Conn)
		}}
		resp, err := c.p.client.Do(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
		if err == nil {
			defer resp.Body.Close()
			result := answered(resp, cancel)
			c.p.lanes.note(c.to.Host, time.Since(began) < c.p.config.Timeout/quickShare)
			return result, true
		}
		mu.Lock()
		connected := used != nil
		// When the time is over, net/http may be about to write: assume that it did.
		written = connected && (ctx.Err() != nil || before < 0 || writtenTo(used) != before)
		mu.Unlock()
		if written || !connected || try > 1 {
			c.p.lanes.note(c.to.Host, false)
			return failed(ctx, err, written), written
		}
	}
}
