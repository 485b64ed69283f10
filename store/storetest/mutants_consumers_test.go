package storetest

import (
	"context"
	"runtime"

	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in how it keeps consumers, or finds what they received.
type (
	consumersOverwrite     struct{ *Mem }
	consumersRace          struct{ *Mem }
	consumersMixNames      struct{ *Mem }
	consumersMixInboxes    struct{ *Mem }
	consumersStay          struct{ *Mem }
	consumersGoEverywhere  struct{ *Mem }
	consumersGoEarly       struct{ *Mem }
	consumersGoFirst       struct{ *Mem }
	consumersForgetReached struct{ *Mem }
	consumersKeepOneOpen   struct{ *Mem }
	consumersStartAnywhere struct{ *Mem }
	consumersKeepFirstUse  struct{ *Mem }
	placesShift            struct{ *Mem }
	placesIgnoreInboxes    struct{ *Mem }
)

func (s consumersOverwrite) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	done, err := s.Mem.SetConsumer(ctx, name, from, to)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consumer[name] = to
	return done, err
}

func (s consumersRace) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	if was, _ := s.Consumer(ctx, name); was.Version != from {
		return false, nil
	}
	for range 20 {
		runtime.Gosched()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consumer[name] = to
	return true, nil
}

func (s consumersMixNames) mixed(name store.ConsumerName) store.ConsumerName {
	return store.ConsumerName{Tenant: name.Tenant, Inbox: name.Inbox + name.Consumer}
}

func (s consumersMixNames) Consumer(ctx context.Context, name store.ConsumerName) (store.Consumer, error) {
	return s.Mem.Consumer(ctx, s.mixed(name))
}

func (s consumersMixNames) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	return s.Mem.SetConsumer(ctx, s.mixed(name), from, to)
}

func (s consumersMixInboxes) Consumer(ctx context.Context, name store.ConsumerName) (store.Consumer, error) {
	return s.Mem.Consumer(ctx, store.ConsumerName{Tenant: name.Tenant, Consumer: name.Consumer})
}

func (s consumersMixInboxes) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	return s.Mem.SetConsumer(ctx, store.ConsumerName{Tenant: name.Tenant, Consumer: name.Consumer}, from, to)
}

// expireWith expires what e selects beside consumers, and of these what more selects.
func (m *Mem) expireWith(e, more store.Expiry) (int, error) {
	m.mu.Lock()
	kept := m.consumer
	m.consumer = nil
	m.mu.Unlock()
	old, letters := m.Expired(e)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.consumer = kept
	m.expireConsumers(&more)
	return len(old) + letters, nil
}

func (s consumersStay) Expire(_ context.Context, e store.Expiry) (int, error) {
	return s.expireWith(e, store.Expiry{})
}

func (s consumersGoEverywhere) Expire(_ context.Context, e store.Expiry) (int, error) {
	return s.expireWith(e, s.everywhere(e))
}

func (s consumersGoEarly) Expire(_ context.Context, e store.Expiry) (int, error) {
	early := e
	early.DeliveredBefore++
	return s.expireWith(e, early)
}

func (s consumersGoFirst) Expire(_ context.Context, e store.Expiry) (int, error) {
	return s.expireWith(e, e)
}

func (s consumersForgetReached) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	to.Reached = 0
	return s.Mem.SetConsumer(ctx, name, from, to)
}

func (s consumersKeepOneOpen) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	to.Open = to.Open[:min(len(to.Open), 1)]
	return s.Mem.SetConsumer(ctx, name, from, to)
}

func (s consumersStartAnywhere) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	if was, _ := s.Consumer(ctx, name); was.Version == 0 {
		from = 0
	}
	return s.Mem.SetConsumer(ctx, name, from, to)
}

func (s consumersKeepFirstUse) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (bool, error) {
	if was, _ := s.Consumer(ctx, name); was.Version != 0 {
		to.UsedAt = was.UsedAt
	}
	return s.Mem.SetConsumer(ctx, name, from, to)
}

// ReadPlaces counts from the first message that is kept.
func (s placesShift) ReadPlaces(ctx context.Context, tenant, name string,
	places []store.InboxPlace) ([]store.InboxMessage, []store.InboxPlace, error) {
	s.mu.Lock()
	var shifted []store.InboxPlace
	for _, p := range places {
		if box := s.inboxes[inboxName{tenant, name}]; box != nil {
			p.Number += int64(box.expired)
		}
		shifted = append(shifted, p)
	}
	s.mu.Unlock()
	messages, left, err := s.Mem.ReadPlaces(ctx, tenant, name, shifted)
	for i := range messages {
		messages[i].Place = places[i]
	}
	return messages, left, err
}

func (s placesIgnoreInboxes) ReadPlaces(ctx context.Context, tenant, name string,
	places []store.InboxPlace) (messages []store.InboxMessage, left []store.InboxPlace, err error) {
	for _, any := range []string{name, "news", "mail"} {
		if messages, left, err = s.Mem.ReadPlaces(ctx, tenant, any, places); len(messages) > 0 {
			break
		}
	}
	return messages, left, err
}
