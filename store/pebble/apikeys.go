package pebble

import (
	"context"
	"encoding/binary"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// CreateKey implements store.Keys.
func (s *Store) CreateKey(_ context.Context, key store.APIKey) error {
	return s.changeKeys(func(w *writer, all map[string]store.APIKey) error {
		old, there := all[key.ID]
		switch {
		case there && old.SecretHash == key.SecretHash:
			return nil
		case there:
			return store.ErrKeyExists(key.ID)
		case len(all) >= postdate.APIKeysMax:
			return store.ErrTooManyKeys()
		}
		w.setKey(&key)
		s.keysVersion++
		return nil
	})
}

// RevokeKey implements store.Keys.
func (s *Store) RevokeKey(_ context.Context, id string) error {
	return s.changeKeys(func(w *writer, all map[string]store.APIKey) error {
		if _, there := all[id]; !there {
			return store.ErrNoKey(id)
		}
		w.batch.Delete(apiKeyKey(id), nil)
		s.keysVersion++
		return nil
	})
}

// UseKeys implements store.Keys.
func (s *Store) UseKeys(_ context.Context, uses []store.KeyUse) error {
	return s.changeKeys(func(w *writer, all map[string]store.APIKey) error {
		for _, use := range uses {
			if key, there := all[use.ID]; there && use.At > key.LastUsedAt {
				key.LastUsedAt = use.At
				all[use.ID] = key
				w.setKey(&key)
			}
		}
		return nil
	})
}

// changeKeys lets decide write to the API keys, and waits for the disk.
func (s *Store) changeKeys(decide func(w *writer, all map[string]store.APIKey) error) error {
	w := s.writer()
	s.keysMu.Lock()
	all, err := readAll(s, spaceAPIKey, readAPIKey)
	if err == nil {
		byID := make(map[string]store.APIKey, len(all))
		for _, key := range all {
			byID[key.ID] = key
		}
		err = decide(w, byID)
	}
	if err == nil {
		w.apply()
	}
	s.keysMu.Unlock()
	if err != nil {
		w.batch.Close()
		return s.readError(err)
	}
	return w.sync()
}

// Keys implements store.Keys.
func (s *Store) Keys(context.Context) ([]store.APIKey, error) {
	all, err := readAll(s, spaceAPIKey, readAPIKey)
	if err != nil {
		return nil, s.readError(err)
	}
	return all, s.awaitSynced()
}

// KeysVersion implements store.Keys. It counts from the start of the process: no other one can
// change the keys.
func (s *Store) KeysVersion(context.Context) (uint64, error) {
	s.keysMu.Lock()
	defer s.keysMu.Unlock()
	return s.keysVersion, nil
}

func apiKeyKey(id string) []byte { return append([]byte{spaceAPIKey}, id...) }

func (w *writer) setKey(key *store.APIKey) {
	w.batch.Set(apiKeyKey(key.ID), appendAPIKey(nil, key), nil)
}

func appendAPIKey(b []byte, key *store.APIKey) []byte {
	b = append(b, layout)
	b = append(b, key.SecretHash[:]...)
	b = appendTimes(b, key.CreatedAt, key.ExpiresAt, key.LastUsedAt)
	b = appendText(b, key.Tenant)
	return appendTexts(appendTexts(b, key.Scopes), key.Channels)
}

func readAPIKey(v []byte, id string) (store.APIKey, error) {
	r := reader{rest: v}
	r.layout()
	key := store.APIKey{ID: id}
	copy(key.SecretHash[:], r.take(len(key.SecretHash)))
	key.CreatedAt, key.ExpiresAt, key.LastUsedAt = r.time(), r.time(), r.time()
	key.Tenant = r.text()
	key.Scopes, key.Channels = r.texts(), r.texts()
	return key, r.end()
}

func appendTexts(b []byte, texts []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(texts)))
	for _, text := range texts {
		b = appendText(b, text)
	}
	return b
}

func (r *reader) texts() (all []string) {
	for n := r.uvarint(); n > 0 && !r.failed; n-- {
		all = append(all, r.text())
	}
	return all
}
