package publisher

import (
	"context"
	"sync"

	"github.com/postdate/postdate"
)

// Gate counts the calls of Publish that are under way, so that Close can wait for them. It is
// safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	calls   int
	closed  chan struct{}
	drained chan struct{} // closed when the gate is, and no call is under way
}

// NewGate makes an open gate.
func NewGate() *Gate { return &Gate{closed: make(chan struct{}), drained: make(chan struct{})} }

// Enter counts a call, which ends with Leave. It returns false if the gate is closed.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed() {
		return false
	}
	g.calls++
	return true
}

// Leave ends a call.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls--; g.calls == 0 && g.isClosed() {
		close(g.drained)
	}
}

// Close lets no call in any more, and waits for those under way. If ctx ends first, their
// outcome is unknown to whoever closes, and the error says so of what.
func (g *Gate) Close(ctx context.Context, what string) error {
	g.mu.Lock()
	if !g.isClosed() {
		close(g.closed)
		if g.calls == 0 {
			close(g.drained)
		}
	}
	g.mu.Unlock()
	select {
	case <-g.drained:
		return nil
	case <-ctx.Done():
		return postdate.E(postdate.KindUnknown, "closed %s before all that was under way had ended: %w",
			what, ctx.Err())
	}
}

// Closed is closed with the gate.
func (g *Gate) Closed() <-chan struct{} { return g.closed }

func (g *Gate) isClosed() bool {
	select {
	case <-g.closed:
		return true
	default:
		return false
	}
}
