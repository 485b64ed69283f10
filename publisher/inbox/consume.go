package inbox

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Receive returns what a consumer is to handle next, and hides it from others that receive for the same consumer.
// If there is nothing it waits as Read does: what this node appends wakes it, and what another node appends, or what
// is due again, at the next look. If the outcome is unknown, what it took comes again once it is due.
func (p *Publisher) Receive(ctx context.Context, r store.InboxReceive) (received []store.Received, err error) {
	err = p.await(ctx, name{r.Tenant, r.Inbox}, r.Wait, func() (found bool, err error) {
		received, err = p.receive(ctx, &r)
		return len(received) > 0, err
	})
	return received, err
}

// receive looks once. It reads the messages, then makes durable that they are open, and only then returns them: if it
// ends in between, they come again.
func (p *Publisher) receive(ctx context.Context, r *store.InboxReceive) ([]store.Received, error) {
	var received []store.Received
	err := p.change(ctx, r.ConsumerName, func(c *store.Consumer, id uint64) (store.Consumer, error) {
		reception, err := p.readFor(ctx, r, c, id)
		if err != nil {
			return store.Consumer{}, err
		}
		var to store.Consumer
		to, received = c.Receive(reception)
		return to, nil
	})
	if err != nil {
		return nil, err
	}
	return received, nil
}

// readFor reads what a consumer is to receive.
func (p *Publisher) readFor(ctx context.Context, r *store.InboxReceive, c *store.Consumer,
	id uint64) (*store.Reception, error) {
	now := p.now()
	reception := &store.Reception{ID: id, Limit: r.Limit, Now: now, Until: now.Add(r.Visibility),
		Due: c.Due(now, r.Limit)}
	var err error
	full := false // the page
	if len(reception.Due) > 0 {
		var left []store.InboxPlace
		reception.Kept, left, err = p.box.ReadPlaces(ctx, r.Tenant, r.Inbox, reception.Due)
		if err != nil {
			return nil, err
		}
		full = len(left) > 0
		reception.Due = without(reception.Due, left)
	}
	limit := c.Fresh(reception)
	if limit == 0 || full {
		return reception, nil
	}
	reception.New, reception.Next, err = p.box.ReadInbox(ctx, r.Tenant, r.Inbox, c.Cursor, limit)
	if postdate.KindOf(err) == postdate.KindInvalid { // the cursor is not the client's
		err = postdate.E(postdate.KindInternal, "the consumer %q of the inbox %q stands where the store has "+
			"nothing, as after a restore: use a consumer of another name: %w", r.Consumer, r.Inbox, err)
	}
	return reception, err
}

// without returns the places that are not among others.
func without(places, others []store.InboxPlace) []store.InboxPlace {
	leave := make(map[store.InboxPlace]bool, len(others))
	for _, at := range others {
		leave[at] = true
	}
	return slices.DeleteFunc(places, func(at store.InboxPlace) bool { return leave[at] })
}

// Acknowledge makes durable that a consumer does not receive these messages again. It returns one error per receipt:
// KindTooLate if the message was received again since, or the consumer was forgotten. The other error is about all.
func (p *Publisher) Acknowledge(ctx context.Context, name store.ConsumerName,
	receipts []store.Receipt) (errs []error, err error) {
	err = p.change(ctx, name, func(c *store.Consumer, id uint64) (to store.Consumer, _ error) {
		to, errs = c.Acknowledge(id, p.now(), receipts)
		return to, nil
	})
	return errs, err
}

// turn lets one call at a time change a consumer. It exists only while there are any.
type turn struct {
	taken chan struct{} // has a value while a call changes the consumer
	users int           // under the publisher's mu
}

// takeTurn waits until no other call of this node changes the consumer, so that only other nodes are raced.
func (p *Publisher) takeTurn(ctx context.Context, name store.ConsumerName) (done func(), err error) {
	p.mu.Lock()
	t := p.turns[name]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		p.turns[name] = t
	}
	t.users++
	p.mu.Unlock()
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(p.turns, name)
		}
	}
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, errQuicker(name)
	}
}

func errQuicker(name store.ConsumerName) error {
	return postdate.E(postdate.KindUnavailable, "others that use the consumer %q were always quicker: "+
		"try again", name.Consumer)
}

// lostPauseMax is how long a node pauses at most after another one was quicker: about what a change takes.
const lostPauseMax = 20 * time.Millisecond

// change replaces a consumer by what step makes of it, unless that has the same version. If another node is quicker,
// it begins anew, after a random pause so that the two do not meet again. A write that has begun is completed
// although ctx ends.
func (p *Publisher) change(ctx context.Context, name store.ConsumerName,
	step func(c *store.Consumer, id uint64) (store.Consumer, error)) error {
	leave, err := p.takeTurn(ctx, name)
	if err != nil {
		return err
	}
	defer leave()
	for {
		c, err := p.box.Consumer(ctx, name)
		if err != nil {
			return err
		}
		to, err := step(&c, rand.Uint64()>>1|1)
		if err != nil || to.Version == c.Version {
			return err
		}
		done, err := p.box.SetConsumer(context.WithoutCancel(ctx), name, c.Version, to)
		if err != nil || done {
			return err
		}
		select {
		case <-time.After(rand.N(lostPauseMax)):
		case <-ctx.Done():
			return errQuicker(name)
		}
	}
}
