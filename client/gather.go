package client

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"

	"github.com/postdate/postdate"
)

// gatherer lets concurrent calls share requests. At most Config.Requests goroutines send: each
// takes all waiting items, sends them as one request, and looks again. There is no timer.
type gatherer struct {
	client   *Client
	together many                                            // for two items or more
	alone    func(context.Context, *item) (Scheduled, error) // for one item

	mu      sync.Mutex
	waiting []*item // some of them may be withdrawn
	sending int     // goroutines
}

// item is one call.
type item struct {
	id     string
	body   []byte       // its JSON in a shared request
	answer chan outcome // has room for the one outcome

	// Under the gatherer's lock:
	withdrawn bool   // its caller has left
	group     *group // nil: it is waiting
}

// outcome is the result of an item.
type outcome struct {
	result Scheduled
	err    error
}

// group stands for the items of one request, or of several if it was refused and halved.
type group struct {
	callers int    // that still wait for an answer
	cancel  func() // ends the requests
}

// call sends an item, alone or with others, and returns its result.
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

// leave withdraws an item whose caller's context ended.
func (g *gatherer) leave(ctx context.Context, i *item) (Scheduled, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case o := <-i.answer: // it came in the meantime
		return o.result, o.err
	default:
	}
	i.withdrawn = true
	if i.group == nil {
		return Scheduled{}, &NoAnswer{Err: ctx.Err()}
	}
	i.group.goesOnWithout()
	return Scheduled{}, &NoAnswer{Server: g.client.Server(), MayBeDone: true, Err: ctx.Err()}
}

// answer gives an item its outcome.
func (g *gatherer) answer(i *item, o outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i.answer <- o
	if !i.withdrawn {
		i.group.goesOnWithout()
	}
}

// goesOnWithout takes out a caller that waits no more. With the last one the group's requests end.
func (g *group) goesOnWithout() {
	if g.callers--; g.callers == 0 {
		g.cancel()
	}
}

// send sends the waiting items until none is left.
func (g *gatherer) send() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		items := g.take(&group{cancel: cancel})
		if items != nil {
			g.deliver(ctx, items)
			// Callers that have their answers may call again. They run first, so that more of them share the
			// next request, which costs the server less.
			runtime.Gosched()
		}
		cancel()
		if items == nil {
			return
		}
	}
}

// take takes as many waiting items as fit into one request. If it returns none, the calling
// goroutine must end.
func (g *gatherer) take(to *group) (items []*item) {
	g.mu.Lock()
	defer g.mu.Unlock()
	bytes, taken := len(g.together.open)+len(g.together.end), 0
	for _, i := range g.waiting {
		if bytes += len(i.body) + 1; len(items) == g.together.itemsMax ||
			len(items) > 0 && bytes > postdate.BatchBytesMax {
			break
		}
		taken++
		if !i.withdrawn {
			i.group = to
			items = append(items, i)
		}
	}
	if g.waiting = g.waiting[taken:]; len(g.waiting) == 0 {
		g.waiting = nil // frees the array, which still holds the items taken
	}
	if to.callers = len(items); items == nil {
		g.sending--
	}
	return items
}

// deliver makes one request and gives each caller its answer.
func (g *gatherer) deliver(ctx context.Context, items []*item) {
	if len(items) == 1 {
		result, err := g.alone(ctx, items[0])
		g.answer(items[0], outcome{result, err})
		return
	}
	bodies := make([][]byte, len(items))
	for n, i := range items {
		bodies[n] = i.body
	}
	results, err := g.together.try(ctx, g.client, bodies)
	if refused(err) { // because of one item, or of their number: halving keeps it from the others
		half := len(items) / 2
		g.deliver(ctx, items[:half])
		g.deliver(ctx, items[half:])
		return
	}
	for n, i := range items {
		if err != nil {
			g.answer(i, outcome{err: err})
		} else {
			g.answer(i, outcome{results[n].Scheduled, results[n].Err()})
		}
	}
}

// refused says whether the server rejected a request for its content and did none of it.
func refused(err error) bool {
	var p *Problem
	return errors.As(err, &p) && (p.Status == http.StatusBadRequest || p.Status == http.StatusRequestEntityTooLarge)
}
