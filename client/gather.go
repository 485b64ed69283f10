package client

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/postdate/postdate"
)

// gatherer lets concurrent calls travel together. At most Config.Requests goroutines send:
// each takes all that waits, sends it as one request, and looks again. There is no timer.
type gatherer struct {
	client   *Client
	together many                                            // for two calls or more
	alone    func(context.Context, *item) (Scheduled, error) // for one

	mu      sync.Mutex
	waiting []*item // some of them withdrawn
	sending int     // goroutines
}

// item is one call.
type item struct {
	id     string
	body   []byte       // in a request with others
	answer chan outcome // has room for the one outcome

	// Under the gatherer's lock:
	withdrawn bool
	group     *group // nil: it waits
}

// outcome is what became of an item.
type outcome struct {
	result Scheduled
	err    error
}

// group is the items of one request.
type group struct {
	callers int    // who still wait for the answer
	cancel  func() // ends the request
}

// call sends an item, alone or with others, and returns what became of it.
func (g *gatherer) call(ctx context.Context, id string, body []byte) (Scheduled, error) {
	if err := ctx.Err(); err != nil {
		return Scheduled{}, &NoAnswer{Err: err}
	}
	i := &item{id: id, body: body, answer: make(chan outcome, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, i)
	if g.sending < g.client.config.Requests {
		g.sending++
		go g.send()
	}
	g.mu.Unlock()
	select {
	case o := <-i.answer:
		return o.result, o.err
	case <-ctx.Done():
		return g.leave(ctx, i)
	}
}

// leave takes an item back whose caller waits no longer.
func (g *gatherer) leave(ctx context.Context, i *item) (Scheduled, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i.group == nil {
		i.withdrawn = true
		return Scheduled{}, &NoAnswer{Err: ctx.Err()}
	}
	if i.group.callers--; i.group.callers == 0 {
		i.group.cancel()
	}
	select {
	case o := <-i.answer: // at the last moment
		return o.result, o.err
	default:
		return Scheduled{}, &NoAnswer{Server: g.client.Server(), MayBeDone: true, Err: ctx.Err()}
	}
}

// send sends what waits until nothing does.
func (g *gatherer) send() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		items := g.take(&group{cancel: cancel})
		if items != nil {
			g.deliver(ctx, items)
		}
		cancel()
		if items == nil {
			return
		}
	}
}

// take takes as much of what waits as goes into one request. Where nothing waits, the
// goroutine that asks is to end.
func (g *gatherer) take(to *group) (items []*item) {
	g.mu.Lock()
	defer g.mu.Unlock()
	bytes, taken := len(g.together.open)+len(g.together.end), 0
	for _, i := range g.waiting {
		if bytes += len(i.body) + 1; len(items) == g.together.itemsMax || len(items) > 0 && bytes > postdate.BatchBytesMax {
			break
		}
		taken++
		if !i.withdrawn {
			i.group = to
			items = append(items, i)
		}
	}
	if g.waiting = g.waiting[taken:]; len(g.waiting) == 0 {
		g.waiting = nil // the array holds what was taken
	}
	if to.callers = len(items); items == nil {
		g.sending--
	}
	return items
}

// deliver makes one request, and hands out what was answered.
func (g *gatherer) deliver(ctx context.Context, items []*item) {
	if len(items) == 1 {
		result, err := g.alone(ctx, items[0])
		items[0].answer <- outcome{result, err}
		return
	}
	bodies := make([][]byte, len(items))
	for n, i := range items {
		bodies[n] = i.body
	}
	results, err := g.together.try(ctx, g.client, bodies)
	if refused(err) { // for one of them, or for their number: by halves nobody pays for another
		half := len(items) / 2
		g.deliver(ctx, items[:half])
		g.deliver(ctx, items[half:])
		return
	}
	for n, i := range items {
		if err != nil {
			i.answer <- outcome{err: err}
		} else {
			i.answer <- outcome{results[n].Scheduled, results[n].Err()}
		}
	}
}

// refused says that nothing of a request was done, for what it is.
func refused(err error) bool {
	var p *Problem
	return errors.As(err, &p) && (p.Status == http.StatusBadRequest || p.Status == http.StatusRequestEntityTooLarge)
}
