package mongo_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// TestCancelDuringAnUnpark cancels a message between the two steps of an unpark that chose it.
// If the unpark answered fewer than were asked for, that would say that nothing more is parked.
func TestCancelDuringAnUnpark(t *testing.T) {
	uri := mongotest.URI(t, 1)
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	db := client.Database(databaseOf(t, uri))
	c := config(uri)
	c.Buckets = 1
	var s, other *mongo.Store
	var first postdate.Key
	done := false
	monitor := onMessages(func(command bson.Raw) {
		if name, _ := command.IndexErr(0); done || name.Key() != "update" || !strings.Contains(command.String(), "attemptTime") {
			return
		}
		done = true
		if r := other.Cancel(t.Context(), []postdate.Key{first}, 1)[0]; r.Err != nil {
			t.Error(r.Err)
		}
	})
	s = openWatched(t, c, monitor)
	defer s.Close()
	other = open(t, c)
	defer other.Close()
	var all []postdate.Message
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, testMessage(id, 1, 1_900_000_000_000))
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	first = all[0].Key
	set := func(collection string, fields bson.D) {
		if _, err := db.Collection(collection).UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: fields}}); err != nil {
			t.Fatal(err)
		}
	}
	set("messages", bson.D{{Key: "parked", Value: true}})
	set("partitions", bson.D{{Key: "owner", Value: "me"}, {Key: "token", Value: int64(1)}})
	n, _, err := s.Unpark(t.Context(), store.Unpark{Token: 1, Route: all[0].Route(), At: 1_900_000_000_001, Limit: 2})
	if err != nil || !done {
		t.Fatalf("%v; a message was cancelled meanwhile: %v", err, done)
	}
	if left, err := s.Parked(t.Context(), []int{0}); err != nil || len(left) != 1 || n < 2 {
		t.Errorf("%d of 2 that were asked for, though some are parked still: %v, %v", n, left, err)
	}
}

// TestParkedRoutes: messages with a channel each do not take a round trip each.
func TestParkedRoutes(t *testing.T) {
	uri := mongotest.Fresh(t)
	var finds atomic.Int64
	s := openWatched(t, config(uri), onMessages(func(command bson.Raw) {
		if name, _ := command.IndexErr(0); name.Key() == "find" {
			finds.Add(1)
		}
	}))
	defer s.Close()
	var all []postdate.Message
	want := map[postdate.Channel]int{}
	for i := range 500 {
		m := testMessage(fmt.Sprint("m", i), 1, 1000)
		m.Channel = postdate.Channel(fmt.Sprint("inbox:", i*2/3)) // some have two
		all, want[m.Channel] = append(all, m), 1
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if _, err := database(t, uri).Collection("messages").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "parked", Value: true}}}}); err != nil {
		t.Fatal(err)
	}
	finds.Store(0)
	found, err := s.Parked(t.Context(), []int{0})
	for _, p := range found {
		want[p.Route.Channel()]--
	}
	for channel, left := range want {
		if left != 0 {
			t.Errorf("%s is named %d times", channel, 1-left)
		}
	}
	if err != nil || finds.Load() > 25 {
		t.Errorf("%d finds, %v", finds.Load(), err)
	}
}
