// Package inbox is the publisher for inbox channels: it lays messages down in the
// store, where clients read them over HTTP with a cursor. It needs no broker,
// which makes it the way to try Postdate, and to use it without one.
//
// It promises what package publisher promises. Confirmed means that the message
// is durable in the store, and a reader that follows the cursors sees every
// message.
package inbox

import (
	"context"
	"sync"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

var _ publisher.Publisher = (*Publisher)(nil)

// lookEvery is how often a waiting reader looks without being woken: another
// node may have appended.
const lookEvery = 250 * time.Millisecond

// Publisher lays messages down in inboxes.
type Publisher struct {
	store store.Inbox
	now   func() postdate.Time

	mu      sync.Mutex
	waiting map[string]chan struct{} // per inbox: closed at its next message
}

// New makes a publisher over a store. now reads the wall clock.
func New(s store.Inbox, now func() postdate.Time) *Publisher {
	return &Publisher{store: s, now: now, waiting: map[string]chan struct{}{}}
}

// Check implements publisher.Publisher. [postdate.ParseChannel] has checked the name.
func (p *Publisher) Check(postdate.Channel) error { return nil }

// Close implements publisher.Publisher. There is nothing to disconnect.
func (p *Publisher) Close(context.Context) error { return nil }

// Publish implements publisher.Publisher. A batch is one write: all of it is
// laid down, or none.
func (p *Publisher) Publish(ctx context.Context, channel postdate.Channel, batch []postdate.Delivery) []publisher.Result {
	at := p.now()
	messages := make([]store.InboxMessage, len(batch))
	for i, d := range batch {
		m := d.Message
		messages[i] = store.InboxMessage{
			Tenant: m.Tenant, Inbox: channel.Target(), ScheduleID: m.ScheduleID,
			ExecutionTime: m.ExecutionTime, DeliveredAt: at,
			Attempt: d.Attempt, PossibleDuplicate: d.PossibleDuplicate,
			ContentType: m.ContentType, Encoding: m.Encoding, Payload: m.Payload, Headers: m.Headers,
		}
	}
	if err := p.store.AppendInbox(ctx, messages); err != nil {
		return publisher.All(len(batch), publisher.Result{Outcome: outcomeOf(err), Reason: err.Error()})
	}
	for i := range messages {
		if i == 0 || messages[i].Tenant != messages[i-1].Tenant {
			p.wake(messages[i].Tenant, channel.Target())
		}
	}
	return publisher.All(len(batch), publisher.Result{Outcome: publisher.Confirmed})
}

// outcomeOf is what a failed write means: what is not known is unknown.
func outcomeOf(err error) publisher.Outcome {
	switch postdate.KindOf(err) {
	case postdate.KindUnavailable, postdate.KindFull:
		return publisher.Down
	case postdate.KindInvalid, postdate.KindTooLarge:
		return publisher.Refused
	}
	return publisher.Unknown
}

// Read gives what lies behind the cursor after, as [store.Inbox.ReadInbox] does;
// where nothing does, it waits for that, but no longer than wait.
func (p *Publisher) Read(ctx context.Context, tenant, name, after string, limit int, wait time.Duration) ([]store.InboxMessage, string, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		woken := p.next(tenant, name) // before reading: what comes in between is not missed
		messages, next, err := p.store.ReadInbox(ctx, tenant, name, after, limit)
		if len(messages) > 0 || err != nil || wait <= 0 {
			return messages, next, err
		}
		select {
		case <-woken:
		case <-look.C:
		case <-deadline.C:
			return nil, next, nil
		case <-ctx.Done():
			return nil, next, nil
		}
	}
}

// next is closed when the inbox gets its next message.
func (p *Publisher) next(tenant, name string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := tenant + "\x00" + name
	if p.waiting[id] == nil {
		p.waiting[id] = make(chan struct{})
	}
	return p.waiting[id]
}

func (p *Publisher) wake(tenant, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := tenant + "\x00" + name
	if woken := p.waiting[id]; woken != nil {
		close(woken)
		delete(p.waiting, id)
	}
}
