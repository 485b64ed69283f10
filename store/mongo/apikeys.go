package mongo

import (
	"context"
	"errors"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// The collection keys has a document for each API key, and one that counts them and their
// changes. Both change in one transaction. So a node that asks several times a second whether
// something has changed reads that one document, and misses no change.

type apiKey struct {
	ID         string        `bson:"_id"`
	Tenant     string        `bson:"tenant"`
	Scopes     []string      `bson:"scopes"`
	Channels   []string      `bson:"channels,omitempty"`
	CreatedAt  postdate.Time `bson:"createdAt"`
	ExpiresAt  postdate.Time `bson:"expiresAt,omitempty"`
	LastUsedAt postdate.Time `bson:"lastUsedAt,omitempty"`
	SecretHash []byte        `bson:"secretHash"`
}

// keyCount is the document that counts.
type keyCount struct {
	Version int64 `bson:"version"` // changes so far
	Count   int   `bson:"count"`   // keys
}

// keyCountID is no key's id: it is longer.
const keyCountID = "the count of keys"

func (k *apiKey) key() store.APIKey {
	key := store.APIKey{
		ID: k.ID, Tenant: k.Tenant, Scopes: k.Scopes, Channels: k.Channels,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt,
	}
	copy(key.SecretHash[:], k.SecretHash)
	return key
}

// CreateKey implements store.Keys.
func (s *Store) CreateKey(ctx context.Context, key store.APIKey) error {
	err := s.within(ctx, func(ctx context.Context) error {
		// Outside of the transaction: not every server creates a collection inside one.
		err := s.repeat(ctx, func(ctx context.Context) error {
			_, err := s.keys.UpdateOne(ctx, doc("_id", keyCountID),
				doc("$setOnInsert", doc("version", int64(0), "count", 0)),
				options.UpdateOne().SetUpsert(true).SetHint(indexID))
			return err
		})
		if err != nil && !driver.IsDuplicateKeyError(err) {
			return writeError("making an API key", err)
		}
		return s.transaction(ctx, func(ctx context.Context) error { return s.createKey(ctx, key) })
	})
	return writeError("making an API key", err)
}

func (s *Store) createKey(ctx context.Context, key store.APIKey) error {
	var old apiKey
	err := s.keys.FindOne(ctx, doc("_id", key.ID), options.FindOne().SetHint(indexID)).Decode(&old)
	switch {
	case err == nil && old.key().SecretHash == key.SecretHash:
		return nil
	case err == nil:
		return store.ErrKeyExists(key.ID)
	case !errors.Is(err, driver.ErrNoDocuments):
		return err
	}
	count, err := s.countKeys(ctx, 1)
	if err != nil {
		return err
	}
	if count.Count > postdate.APIKeysMax {
		return store.ErrTooManyKeys()
	}
	_, err = s.keys.InsertOne(ctx, apiKey{
		ID: key.ID, Tenant: key.Tenant, Scopes: key.Scopes, Channels: key.Channels,
		CreatedAt: key.CreatedAt, ExpiresAt: key.ExpiresAt, LastUsedAt: key.LastUsedAt, SecretHash: key.SecretHash[:],
	})
	return err
}

// countKeys notes in a transaction that keys come or go. Two transactions that do so at the same
// time get into each other's way, and one starts over.
func (s *Store) countKeys(ctx context.Context, more int) (count keyCount, err error) {
	err = s.keys.FindOneAndUpdate(ctx, doc("_id", keyCountID), doc("$inc", doc("version", int64(1), "count", more)),
		options.FindOneAndUpdate().SetReturnDocument(options.After).SetHint(indexID)).Decode(&count)
	return count, err
}

// RevokeKey implements store.Keys.
func (s *Store) RevokeKey(ctx context.Context, id string) error {
	if id == keyCountID {
		return store.ErrNoKey(id)
	}
	err := s.within(ctx, func(ctx context.Context) error {
		return s.transaction(ctx, func(ctx context.Context) error {
			deleted, err := s.keys.DeleteOne(ctx, doc("_id", id), options.DeleteOne().SetHint(indexID))
			if err != nil {
				return err
			}
			if deleted.DeletedCount == 0 {
				return store.ErrNoKey(id)
			}
			_, err = s.countKeys(ctx, -1)
			return err
		})
	})
	return writeError("revoking an API key", err)
}

// Keys implements store.Keys.
func (s *Store) Keys(ctx context.Context) ([]store.APIKey, error) {
	var all []apiKey
	err := s.reading(ctx, func(ctx context.Context) error {
		cursor, err := s.keys.Find(ctx, doc("_id", doc("$ne", keyCountID)))
		if err != nil {
			return err
		}
		return cursor.All(ctx, &all)
	})
	keys := make([]store.APIKey, len(all))
	for i := range all {
		keys[i] = all[i].key()
	}
	return keys, readError("reading the API keys", err)
}

// KeysVersion implements store.Keys.
func (s *Store) KeysVersion(ctx context.Context) (uint64, error) {
	var count keyCount
	err := s.reading(ctx, func(ctx context.Context) error {
		err := s.keys.FindOne(ctx, doc("_id", keyCountID), options.FindOne().SetHint(indexID)).Decode(&count)
		if errors.Is(err, driver.ErrNoDocuments) { // no key was ever made
			return nil
		}
		return err
	})
	return uint64(count.Version), readError("reading the version of the API keys", err)
}

// UseKeys implements store.Keys.
func (s *Store) UseKeys(ctx context.Context, uses []store.KeyUse) error {
	if len(uses) == 0 {
		return nil
	}
	statements := make([]driver.WriteModel, len(uses))
	for i, use := range uses {
		statements[i] = driver.NewUpdateOneModel().SetHint(indexID).SetFilter(doc("_id", use.ID)).
			SetUpdate(doc("$max", doc("lastUsedAt", use.At)))
	}
	err := s.within(ctx, func(ctx context.Context) error {
		return s.repeat(ctx, func(ctx context.Context) error {
			_, err := s.keys.BulkWrite(ctx, statements, options.BulkWrite().SetOrdered(false))
			return err
		})
	})
	return writeError("noting the use of API keys", err)
}
