package node

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const (
	// pendingFreshFor is for how long a look at what is pending serves all who ask.
	pendingFreshFor = 5 * time.Second

	// pendingKnownFor is for how long it serves them if the next look is not done.
	pendingKnownFor = 2 * pendingFreshFor

	// pendingTimeout is how long a look may take.
	pendingTimeout = 5 * time.Second
)

// pendingLooks counts what is pending in the store. However many ask, a tenant has one look at a time, and one within
// some seconds.
type pendingLooks struct {
	store      store.Messages
	now        func() postdate.Time
	life       context.Context // ends the looks
	background *sync.WaitGroup // they run in it

	mu    sync.Mutex
	looks map[string]*pendingLook // by tenant
}

func newPendingLooks(s store.Messages, now func() postdate.Time, life context.Context,
	background *sync.WaitGroup) *pendingLooks {
	return &pendingLooks{store: s, now: now, life: life, background: background, looks: map[string]*pendingLook{}}
}

// pendingLook is one look at what is pending of a tenant.
type pendingLook struct {
	begun        time.Time
	done         chan struct{}  // closed at its end
	found        *store.Pending // then; nil: it failed
	earlier      *store.Pending // what the look before found
	earlierBegun time.Time
}

func (l *pendingLook) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// olderThan says whether the look has ended, and began longer ago than age.
func (l *pendingLook) olderThan(age time.Duration) bool {
	return l.ended() && time.Since(l.begun) > age
}

// result waits for the end of the look, for at most answerTimeout from its beginning: a store that hangs delays nobody
// who asks after that. Until the end, result is what the look before found, if that is not too old. nil: what is
// pending is not known.
func (l *pendingLook) result(ctx context.Context) *store.Pending {
	ctx, cancel := context.WithDeadline(ctx, l.begun.Add(answerTimeout))
	defer cancel()
	select {
	case <-l.done:
	case <-ctx.Done():
	}
	switch {
	case l.ended(): // of one that ended long ago the deadline too has passed
		return l.found
	case time.Since(l.earlierBegun) <= pendingKnownFor:
		return l.earlier
	}
	return nil
}

// look returns the latest look at what is pending of a tenant, or begins one if that is not fresh any more.
func (p *pendingLooks) look(tenant string) *pendingLook {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.looks, func(_ string, l *pendingLook) bool { return l.olderThan(pendingKnownFor) })
	before := p.looks[tenant]
	if before != nil && !before.olderThan(pendingFreshFor) {
		return before
	}
	l := &pendingLook{begun: time.Now(), done: make(chan struct{})}
	if before != nil {
		l.earlier, l.earlierBegun = before.found, before.begun
	}
	p.looks[tenant] = l
	p.background.Go(func() { p.run(tenant, l) })
	return l
}

func (p *pendingLooks) run(tenant string, l *pendingLook) {
	defer close(l.done)
	ctx, cancel := context.WithTimeout(p.life, pendingTimeout)
	defer cancel()
	if found, err := p.store.Pending(ctx, tenant, p.now()); err == nil { // the store's metrics count those that fail
		l.found = &found
	}
}
