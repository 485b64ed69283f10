package storetest

import (
	"context"

	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in how it keeps API keys.
type (
	keysOverwrite     struct{ *Mem }
	keysLoseChannels  struct{ *Mem }
	revokeIsLate      struct{ *Mem }
	revokeTellsNobody struct{ *Mem }
	usesTellEverybody struct{ *Mem }
	usesGoBack        struct{ *Mem }
	usesMakeKeys      struct{ *Mem }
)

func (s keysOverwrite) CreateKey(ctx context.Context, key store.APIKey) error {
	_ = s.Mem.RevokeKey(ctx, key.ID)
	return s.Mem.CreateKey(ctx, key)
}

func (s keysLoseChannels) CreateKey(ctx context.Context, key store.APIKey) error {
	key.Channels = nil
	return s.Mem.CreateKey(ctx, key)
}

// RevokeKey only makes the key expire.
func (s revokeIsLate) RevokeKey(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, there := s.keys[id]
	if !there {
		return store.ErrNoKey(id)
	}
	key.ExpiresAt = 1
	s.keys[id] = key
	s.keysAt++
	return nil
}

func (s revokeTellsNobody) RevokeKey(ctx context.Context, id string) error {
	s.mu.Lock()
	was := s.keysAt
	s.mu.Unlock()
	err := s.Mem.RevokeKey(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keysAt = was
	return err
}

func (s usesTellEverybody) UseKeys(ctx context.Context, uses []store.KeyUse) error {
	s.mu.Lock()
	s.keysAt++
	s.mu.Unlock()
	return s.Mem.UseKeys(ctx, uses)
}

func (s usesGoBack) UseKeys(_ context.Context, uses []store.KeyUse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, use := range uses {
		if key, there := s.keys[use.ID]; there {
			key.LastUsedAt = use.At
			s.keys[use.ID] = key
		}
	}
	return nil
}

func (s usesMakeKeys) UseKeys(_ context.Context, uses []store.KeyUse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, use := range uses {
		key := s.keys[use.ID]
		key.ID, key.LastUsedAt = use.ID, max(key.LastUsedAt, use.At)
		s.keys[use.ID] = key
	}
	return nil
}
