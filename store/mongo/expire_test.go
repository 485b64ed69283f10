package mongo_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// TestExpireWithoutBucket expires what names no bucket: segments of inboxes from before
// segments named theirs, and the leases of runs that ended. Both are left to the owner of
// bucket 0.
func TestExpireWithoutBucket(t *testing.T) {
	uri := mongotest.Fresh(t)
	s := open(t, config(uri))
	defer s.Close()
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	db := client.Database(databaseOf(t, uri))
	if err := s.AppendInbox(t.Context(), letters("old", 0, 3, 10)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ended", "living"} {
		if _, err := s.Renew(t.Context(), bucket.Lease{ID: id, Renewals: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for collection, update := range map[string]bson.D{
		"inboxes": {{Key: "$unset", Value: bson.D{{Key: "bucket", Value: ""}}}},
		"leases":  {{Key: "$set", Value: bson.D{{Key: "at", Value: time.Now().AddDate(0, 0, -30)}}}},
	} {
		filter := bson.D{}
		if collection == "leases" {
			filter = bson.D{{Key: "_id", Value: "ended"}}
		}
		if r, err := db.Collection(collection).UpdateMany(t.Context(), filter, update); err != nil || r.ModifiedCount != 1 {
			t.Fatalf("%s: %+v, %v", collection, r, err)
		}
	}
	for _, turn := range []struct {
		buckets         []int
		expired, leases int
	}{{[]int{1, 2, 3, 4, 5, 6, 7}, 0, 2}, {[]int{0}, 3, 1}} {
		n, err := s.Expire(t.Context(), store.Expiry{Buckets: turn.buckets, DeliveredBefore: 2000, Limit: 10})
		if err != nil || n != turn.expired {
			t.Errorf("Expire in %v: %d, %v; want %d", turn.buckets, n, err, turn.expired)
		}
		if _, leases, err := s.Look(t.Context(), nil); err != nil || len(leases) != turn.leases {
			t.Errorf("after it there are the leases %v, %v; want %d", leases, err, turn.leases)
		}
	}
}

// TestAnOldIndexStays opens a store whose inboxes have the index of an earlier version.
func TestAnOldIndexStays(t *testing.T) {
	uri := mongotest.Fresh(t)
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	there := bson.D{{Key: "oldest", Value: bson.D{{Key: "$exists", Value: true}}}}
	if _, err := client.Database(databaseOf(t, uri)).Collection("inboxes").Indexes().CreateOne(t.Context(), driver.IndexModel{
		Keys: bson.D{{Key: "oldest", Value: 1}}, Options: options.Index().SetName("oldest").SetPartialFilterExpression(there),
	}); err != nil {
		t.Fatal(err)
	}
	s := open(t, config(uri))
	defer s.Close()
	if err := s.AppendInbox(t.Context(), letters("old", 0, 3, 10)); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Expire(t.Context(), store.Expiry{Buckets: allOf(s), DeliveredBefore: 2000, Limit: 10}); n != 3 || err != nil {
		t.Errorf("Expire: %d, %v; want 3", n, err)
	}
}
