package inbox

import (
	"context"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Read returns the messages of an inbox after a cursor, and the cursor to go on from. If there
// are none it waits for one; when the wait is over or the publisher is closed, it returns
// nothing and the same cursor. If ctx ends, the error is KindUnavailable. Other errors are the
// store's.
func (p *Publisher) Read(ctx context.Context, r store.InboxRead) ([]store.InboxMessage, string, error) {
	var messages []store.InboxMessage
	next := r.After
	err := p.await(ctx, name{r.Tenant, r.Inbox}, r.Wait, func() (found bool, err error) {
		messages, next, err = p.read(ctx, r)
		return len(messages) > 0, err
	})
	return messages, next, err
}

// await looks until something is found or the look fails: once without a wait, else each time that something may
// have come to the inbox, until the wait is over, the publisher is closed or ctx ends.
func (p *Publisher) await(ctx context.Context, n name, wait time.Duration, look func() (bool, error)) error {
	if wait <= 0 {
		_, err := look()
		return err
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	poll := time.NewTicker(PollInterval)
	defer poll.Stop()
	p.enlist(n)
	defer p.delist(n)
	for {
		// Take the bell before looking, so that whatever is appended after the look rings it.
		rung := p.listen(n)
		if found, err := look(); found || err != nil {
			return err
		}
		select {
		case <-rung:
		case <-poll.C:
		case <-over.C:
			return nil
		case <-p.gate.Closed():
			return nil
		case <-ctx.Done():
			return postdate.E(postdate.KindUnavailable, "the reader stopped waiting: %w", ctx.Err())
		}
	}
}

func (p *Publisher) read(ctx context.Context, r store.InboxRead) ([]store.InboxMessage, string, error) {
	messages, next, err := p.box.ReadInbox(ctx, r.Tenant, r.Inbox, r.After, r.Limit)
	if err != nil || len(messages) == 0 {
		return nil, r.After, err
	}
	return messages, next, nil
}

func (p *Publisher) enlist(n name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.bells[n]
	if b == nil {
		b = &bell{rung: make(chan struct{})}
		p.bells[n] = b
	}
	b.readers++
}

func (p *Publisher) delist(n name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.bells[n]; b.readers == 1 {
		delete(p.bells, n)
	} else {
		b.readers--
	}
}

// listen returns the bell of a reader that is enlisted.
func (p *Publisher) listen(n name) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bells[n].rung
}

// ring wakes the inbox's readers. Without any, it is one map lookup.
func (p *Publisher) ring(n name) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.bells[n]; b != nil {
		close(b.rung)
		b.rung = make(chan struct{})
	}
}
