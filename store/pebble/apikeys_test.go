package pebble

import (
	"fmt"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A store takes so many API keys and no more, and a place that is free again can be taken.
func TestTooManyAPIKeys(t *testing.T) {
	c := DefaultConfig("store")
	c.Buckets = 4
	s, err := OpenWith(c, Parts{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	batch := s.db.NewBatch()
	for i := range postdate.APIKeysMax - 1 {
		key := store.APIKey{ID: fmt.Sprint("key-", i), Tenant: "t", Scopes: []string{"admin"}}
		batch.Set(apiKeyKey(key.ID), appendAPIKey(nil, &key), nil)
	}
	if err := batch.Commit(lsm.Sync); err != nil {
		t.Fatal(err)
	}
	create := func(id string) error {
		return s.CreateKey(t.Context(), store.APIKey{ID: id, SecretHash: [32]byte{1}})
	}
	if err := create("last"); err != nil {
		t.Fatal(err)
	}
	if err := create("more"); postdate.KindOf(err) != postdate.KindTooLarge {
		t.Errorf("one key too many: %v", err)
	}
	if err := s.RevokeKey(t.Context(), "key-7"); err != nil {
		t.Fatal(err)
	}
	if err := create("more"); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
}
