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

func (p *Publisher) host(name string) *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[name]
	if h == nil {
		h = &host{}
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
	c := &call{p: p, ctx: ctx, host: h, to: to, secrets: p.signers.of(channel, to.Hostname()), batch: batch,
		results: make([]publisher.Result, len(batch)), start: make(chan struct{})}
	c.left.Add(len(batch))
	h.add(c, p.config.InFlight)
	late := time.AfterFunc(p.config.Timeout, c.stop)
	defer late.Stop()
	stop := context.AfterFunc(ctx, c.stop)
	defer stop()
	c.left.Wait()
	return p.metrics.outcomes.Count(c.results)
}

// call is one Publish in progress.
type call struct {
	p       *Publisher
	ctx     context.Context
	host    *host
	to      *url.URL
	secrets []*standardwebhooks.Webhook // that sign
	batch   []postdate.Delivery
	results []publisher.Result
	left    sync.WaitGroup // the messages without a result
	once    sync.Once
	start   chan struct{} // closed when no further request may start
	mu      sync.Mutex
	down    string // why the receiver is down; "": the time is over
}

// stop ends what has not started.
func (c *call) stop() {
	c.once.Do(func() {
		close(c.start)
		for _, i := range c.host.withdraw(c) {
			c.end(i, c.unsent())
		}
	})
}

func (c *call) end(i int, r publisher.Result) {
	c.results[i] = r
	c.left.Done()
}

// fail notes that the receiver cannot be reached, so that the rest of the batch is not tried.
func (c *call) fail(reason string) {
	c.mu.Lock()
	if c.down == "" {
		c.down = reason
	}
	c.mu.Unlock()
	c.stop()
}

// unsent is the result of a message whose request did not start.
func (c *call) unsent() publisher.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := publisher.Result{Outcome: publisher.Down, Reason: c.down}
	switch {
	case r.Reason != "":
	case c.ctx.Err() != nil:
		r.Reason = "the node stopped waiting before the message was sent"
	default:
		r.Reason = "no request could start within " + c.p.config.Timeout.String() + ": this receiver, or others that " +
			"share the node's connections, answer too slowly"
	}
	return r
}

// deliver sends one message when its host's lane has room.
func (c *call) deliver(d *postdate.Delivery) publisher.Result {
	ctx, lane := c.ctx, c.p.lanes.of(c.to.Host)
	select {
	case lane <- struct{}{}:
		defer func() { <-lane }()
	case <-c.start:
		return c.unsent()
	}
	select {
	case <-c.start:
		return c.unsent()
	default:
	}
	if ctx.Err() != nil { // what stops the call may not have run yet
		return c.unsent()
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
