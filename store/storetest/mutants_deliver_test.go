package storetest

import (
	"context"
	"runtime"
	"slices"

	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in how it delivers to inboxes.
type (
	deliversAgain     struct{ *Mem }
	deliversApart     struct{ *Mem }
	deliversUnsettled struct{ *Mem }
	deliversNothing   struct{ *Mem }
	deliversFenced    struct{ *Mem }
	deliversAll       struct{ *Mem }
	deliversOneInbox  struct{ *Mem }
)

func (s deliversAgain) Deliver(ctx context.Context, all []store.InboxDelivery) []error {
	for _, d := range all {
		s.AppendInbox(ctx, []store.InboxMessage{d.Message})
		s.Settle(ctx, []store.Settlement{d.Settlement})
	}
	return make([]error, len(all))
}

// Deliver looks whether a message is to be delivered, and does it after others had their turn.
func (s deliversApart) Deliver(ctx context.Context, all []store.InboxDelivery) []error {
	for _, d := range all {
		s.mu.Lock()
		settles := s.Settles(&d.Settlement) != nil
		s.mu.Unlock()
		if settles {
			runtime.Gosched()
			s.AppendInbox(ctx, []store.InboxMessage{d.Message})
			s.Settle(ctx, []store.Settlement{d.Settlement})
		}
	}
	return make([]error, len(all))
}

func (s deliversUnsettled) Deliver(ctx context.Context, all []store.InboxDelivery) []error {
	for _, d := range all {
		s.mu.Lock()
		if s.Settles(&d.Settlement) != nil {
			s.append(d.Message)
		}
		s.mu.Unlock()
	}
	return make([]error, len(all))
}

func (s deliversNothing) Deliver(ctx context.Context, all []store.InboxDelivery) []error {
	for _, d := range all {
		s.Settle(ctx, []store.Settlement{d.Settlement})
	}
	return make([]error, len(all))
}

func (s deliversFenced) Deliver(ctx context.Context, all []store.InboxDelivery) []error {
	for _, d := range all {
		s.mu.Lock()
		holds := s.Records[d.Settlement.Key.Bucket].Holds(d.Settlement.Token)
		s.mu.Unlock()
		if holds {
			s.Mem.Deliver(ctx, []store.InboxDelivery{d})
		}
	}
	return make([]error, len(all))
}

// Deliver does nothing of a call of which one message is settled already.
func (s deliversAll) Deliver(ctx context.Context, all []store.InboxDelivery) []error {
	for _, d := range all {
		s.mu.Lock()
		nothing := s.Settles(&d.Settlement) == nil
		s.mu.Unlock()
		if nothing {
			return make([]error, len(all))
		}
	}
	return s.Mem.Deliver(ctx, all)
}

func (s deliversOneInbox) Deliver(ctx context.Context, all []store.InboxDelivery) []error {
	all = slices.Clone(all) // the check's own stay as they are
	for i := range all {
		all[i].Message.Inbox = all[0].Message.Inbox
	}
	return s.Mem.Deliver(ctx, all)
}

var bugsInDeliver = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return deliversAgain{m} },
	func(m *Mem) store.Store { return deliversApart{m} },
	func(m *Mem) store.Store { return deliversUnsettled{m} },
	func(m *Mem) store.Store { return deliversNothing{m} },
	func(m *Mem) store.Store { return deliversFenced{m} },
	func(m *Mem) store.Store { return deliversAll{m} },
	func(m *Mem) store.Store { return deliversOneInbox{m} },
}
