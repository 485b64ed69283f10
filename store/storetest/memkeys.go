package storetest

import (
	"context"
	"maps"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// CreateKey implements store.Keys.
func (m *Mem) CreateKey(_ context.Context, key store.APIKey) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, there := m.keys[key.ID]
	switch {
	case there && old.SecretHash == key.SecretHash:
		return nil
	case there:
		return store.ErrKeyExists(key.ID)
	case len(m.keys) == postdate.APIKeysMax:
		return store.ErrTooManyKeys()
	}
	m.keys[key.ID] = key
	m.keysAt++
	return nil
}

// Keys implements store.Keys.
func (m *Mem) Keys(context.Context) ([]store.APIKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.keys)), nil
}

// KeysVersion implements store.Keys.
func (m *Mem) KeysVersion(context.Context) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keysAt, nil
}

// RevokeKey implements store.Keys.
func (m *Mem) RevokeKey(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.keys[id]; !there {
		return store.ErrNoKey(id)
	}
	delete(m.keys, id)
	m.keysAt++
	return nil
}

// UseKeys implements store.Keys.
func (m *Mem) UseKeys(_ context.Context, uses []store.KeyUse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, use := range uses {
		if key, there := m.keys[use.ID]; there {
			key.LastUsedAt = max(key.LastUsedAt, use.At)
			m.keys[use.ID] = key
		}
	}
	return nil
}
