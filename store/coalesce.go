package store

import (
	"context"
	"slices"
	"sync"

	"github.com/postdate/postdate"
)

const (
	// coalescedMax bounds how many messages of different callers share a call.
	coalescedMax = 1_000
	// aloneMin is the number of messages from which a call is not coalesced: it would gain
	// nothing from company, and may run at the same time as the others.
	aloneMin = 100
	// coalescedCalls is how many such calls are under way at a time. With one, what waits
	// meanwhile shares the next sync. A second one was measured to take a tenth more processor
	// time on the embedded store, and to gain nothing.
	coalescedCalls = 1
)

// Coalesce combines calls of Insert and Cancel that arrive together: those that come while a
// call is under way gather and become the next one. A lone call does not wait. What a call
// means stays the same. If its context ends while it waits, it is not done; if its context ends
// later, its outcome is unknown.
//
// A call goes on when its caller has left. Close ends what is under way, and then closes s.
func Coalesce(s Store) Store {
	c := &coalesced{Store: s}
	life, end := context.WithCancel(context.Background())
	c.end, c.inserts.life, c.cancels.life = end, life, life
	c.inserts.run = s.Insert
	c.cancels.run = func(ctx context.Context, ws []withdrawal) []Cancelled {
		keys := make([]postdate.Key, len(ws))
		at := ws[0].at
		for i, w := range ws {
			keys[i], at = w.key, max(at, w.at) // they differ by less than a call takes
		}
		return s.Cancel(ctx, keys, at)
	}
	return c
}

// coalesced gathers calls in front of a Store.
type coalesced struct {
	Store
	inserts gathering[postdate.Message, Inserted]
	cancels gathering[withdrawal, Cancelled]
	end     func() // ends the life of both
}

// Close implements Store.
func (c *coalesced) Close() error {
	c.end()
	c.inserts.drains.Wait()
	c.cancels.drains.Wait()
	return c.Store.Close()
}

type withdrawal struct {
	key postdate.Key
	at  postdate.Time
}

func (c *coalesced) Insert(ctx context.Context, messages []postdate.Message) []Inserted {
	results, err := c.inserts.do(ctx, messages)
	if err != nil {
		results = make([]Inserted, len(messages))
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}

func (c *coalesced) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []Cancelled {
	ws := make([]withdrawal, len(keys))
	for i, key := range keys {
		ws[i] = withdrawal{key, at}
	}
	results, err := c.cancels.do(ctx, ws)
	if err != nil {
		results = make([]Cancelled, len(keys))
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}

// gathering collects the items of calls until run can take them.
type gathering[T, R any] struct {
	run    func(ctx context.Context, items []T) []R
	life   context.Context // of what run does
	drains sync.WaitGroup

	mu      sync.Mutex
	waiting []*gathered[T, R]
	running int
}

// gathered is one caller's items, and in the end their results.
type gathered[T, R any] struct {
	items   []T
	results []R
	done    chan struct{}
}

func (g *gathering[T, R]) do(ctx context.Context, items []T) ([]R, error) {
	if len(items) == 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, postdate.E(postdate.KindUnavailable, "given up before it was begun: %w", err)
	}
	if len(items) >= aloneMin {
		return g.run(ctx, items), nil
	}
	call := &gathered[T, R]{items: items, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, call)
	if g.running < coalescedCalls {
		g.running++
		g.drains.Go(g.drain)
	}
	g.mu.Unlock()
	select {
	case <-call.done:
		return call.results, nil
	case <-ctx.Done():
		if g.withdraw(call) {
			return nil, postdate.E(postdate.KindUnavailable, "given up before it was begun: %w", ctx.Err())
		}
		return nil, postdate.E(postdate.KindUnknown, "given up while it was under way: %w", ctx.Err())
	}
}

// withdraw takes back a call that still waits.
func (g *gathering[T, R]) withdraw(call *gathered[T, R]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, call)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// drain makes calls until nothing waits.
func (g *gathering[T, R]) drain() {
	for calls, n := g.next(); calls != nil; calls, n = g.next() {
		items := calls[0].items
		if len(calls) > 1 {
			items = make([]T, 0, n)
			for _, c := range calls {
				items = append(items, c.items...)
			}
		}
		results := g.run(g.life, items)
		for _, c := range calls {
			c.results, results = results[:len(c.items):len(c.items)], results[len(c.items):]
			close(c.done)
		}
	}
}

// next takes what waits: up to coalescedMax items, but at least one call. If nothing waits it
// returns nil, and this drain counts as ended.
func (g *gathering[T, R]) next() (calls []*gathered[T, R], items int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for n < len(g.waiting) && (n == 0 || items+len(g.waiting[n].items) <= coalescedMax) {
		items += len(g.waiting[n].items)
		n++
	}
	if n == 0 {
		g.running--
		return nil, 0
	}
	calls = g.waiting[:n:n]
	g.waiting = append(g.waiting[:0:0], g.waiting[n:]...)
	return calls, items
}
