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
	if r.Wait <= 0 {
		return p.read(ctx, r)
	}
	over := time.NewTimer(r.Wait)
	defer over.Stop()
	poll := time.NewTicker(PollInterval)
	defer poll.Stop()
	n := name{r.Tenant, r.Inbox}
	p.enlist(n)
	defer p.delist(n)
	for {
		// Take the bell before reading, so that whatever is appended after the read rings it.
		rung := p.listen(n)
		messages, next, err := p.read(ctx, r)
		if err != nil || len(messages) > 0 {
			return messages, next, err
		}
		select {
		case <-rung:
		case <-poll.C:
		case <-over.C:
			return nil, r.After, nil
		case <-p.gate.Closed():
			return nil, r.After, nil
		case <-ctx.Done():
			return nil, r.After, postdate.E(postdate.KindUnavailable, "the reader stopped waiting: %w", ctx.Err())
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
