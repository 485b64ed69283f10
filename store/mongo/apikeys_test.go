package mongo_test

import (
	"context"
	"crypto/sha256"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/storetest"
)

// A store takes so many API keys and no more, and a place that is free again can be taken.
func TestTooManyAPIKeys(t *testing.T) {
	uri := mongotest.Fresh(t)
	s := open(t, config(uri))
	defer s.Close()
	key := store.APIKey{ID: "a", Tenant: "t", Scopes: []string{"admin"}, SecretHash: sha256.Sum256([]byte("a"))}
	if err := s.CreateKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	counts := client.Database(databaseOf(t, uri)).Collection("keys")
	r, err := counts.UpdateOne(t.Context(), bson.D{{Key: "count", Value: 1}}, bson.D{{Key: "$set", Value: bson.D{{Key: "count", Value: postdate.APIKeysMax}}}})
	if err != nil || r.MatchedCount != 1 {
		t.Fatal(r, err)
	}
	key.ID = "b"
	storetest.Refused(t, s.CreateKey(t.Context(), key), postdate.KindTooLarge, "10000 API keys", "revoke")
	if err := s.RevokeKey(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateKey(t.Context(), key); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
}
