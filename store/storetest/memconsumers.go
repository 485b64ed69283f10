package storetest

import (
	"context"
	"slices"

	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Consumer implements store.Consumers.
func (m *Mem) Consumer(_ context.Context, name store.ConsumerName) (store.Consumer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.consumer[name], nil
}

// SetConsumer implements store.Consumers.
func (m *Mem) SetConsumer(_ context.Context, name store.ConsumerName, from uint64, to store.Consumer) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.consumer[name].Version != from {
		return false, nil
	}
	to.Open = slices.Clone(to.Open)
	m.consumer[name] = to
	return true, nil
}

// expireConsumers deletes those that e selects.
func (m *Mem) expireConsumers(e *store.Expiry) {
	deleted := 0
	for name, c := range m.consumer {
		if deleted < e.Limit && c.UsedAt < e.DeliveredBefore &&
			slices.Contains(e.Buckets, bucket.Of(name.Tenant, name.Inbox, len(m.Records))) {
			delete(m.consumer, name)
			deleted++
		}
	}
}
