package mongo_test

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/storetest"
)

func config(uri string) mongo.Config {
	c := mongo.DefaultConfig(uri)
	c.Share = 0 // tests share by hand
	c.Buckets, c.Log = 8, slog.New(slog.NewTextHandler(io.Discard, nil))
	return c
}

func open(t testing.TB, c mongo.Config) *mongo.Store {
	t.Helper()
	return openWatched(t, c, nil)
}

func openWatched(t testing.TB, c mongo.Config, monitor *event.CommandMonitor) *mongo.Store {
	t.Helper()
	s, err := mongo.OpenWatched(t.Context(), c, monitor)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStore runs on a set of three members. POSTDATE_TEST_MEMBERS sets another size.
func TestStore(t *testing.T) {
	t.Parallel() // it waits for disks, and the others for elections
	members := 3
	if n, err := strconv.Atoi(os.Getenv("POSTDATE_TEST_MEMBERS")); err == nil {
		members = n
	}
	database := mongotest.Reusing(t, members, func(uri string) {
		if err := open(t, config(uri)).Close(); err != nil {
			t.Error(err)
		}
	})
	storetest.Run(t, func(t *testing.T) store.Store { return openWatched(t, config(database(t)), strict(t)) })
}

// databaseOf is the database that an address names.
func databaseOf(t testing.TB, uri string) string {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path[1:]
}

// TestDurable kills the server with SIGKILL each time.
func TestDurable(t *testing.T) {
	t.Parallel()
	set := mongotest.Start(t, 1)
	uris := map[store.Store]string{}
	storetest.RunDurable(t, func(t *testing.T) store.Store {
		uri := set.Fresh()
		s := open(t, config(uri))
		uris[s] = uri
		return s
	}, func(t *testing.T, s store.Store) store.Store {
		set.Kill(0)
		set.Restart(0)
		set.Primary() // it takes connections before it is one
		next := open(t, config(uris[s]))
		uris[next] = uris[s]
		_ = s.Close() // its connections are dead; what it knew is not used
		return next
	})
}

func TestRefusedStarts(t *testing.T) {
	uri := mongotest.Fresh(t)
	if err := open(t, config(uri)).Close(); err != nil {
		t.Fatal(err)
	}
	others := config(uri)
	others.Buckets = 9
	alone := config(mongotest.Standalone(t))
	nobody := config("mongodb://127.0.0.1:1/postdate?replicaSet=rs0")
	nobody.Select = 100 * time.Millisecond
	bad := config("http://127.0.0.1/")
	for name, refused := range map[string]struct {
		c     mongo.Config
		kind  postdate.Kind
		words []string
	}{
		"another N":      {others, postdate.KindInvalid, []string{"has 8 buckets", "setting is 9", "--buckets 8"}},
		"a lone server":  {alone, postdate.KindInvalid, []string{"stands alone", "--replSet", "rs.initiate()"}},
		"nobody there":   {nobody, postdate.KindUnavailable, []string{"cannot be reached", "check the address"}},
		"no such scheme": {bad, postdate.KindInvalid, []string{"mongodb://host1"}},
	} {
		t.Run(name, func(t *testing.T) { refuse(t, refused.c, refused.kind, refused.words) })
	}
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.Background())
	db := client.Database(databaseOf(t, uri))
	t.Run("a lost partition record", func(t *testing.T) {
		if _, err := db.Collection("partitions").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: 3}}); err != nil {
			t.Fatal(err)
		}
		refuse(t, config(uri), postdate.KindInternal, []string{"7 partition records", "damaged"})
	})
	t.Run("a layout of another version", func(t *testing.T) {
		if _, err := db.Collection("birth").UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "layout", Value: 99}}}}); err != nil {
			t.Fatal(err)
		}
		refuse(t, config(uri), postdate.KindInvalid, []string{"layout 99", "use the version that wrote it"})
	})
}

func refuse(t *testing.T, c mongo.Config, kind postdate.Kind, words []string) {
	t.Helper()
	s, err := mongo.Open(t.Context(), c)
	if err == nil {
		s.Close()
	}
	storetest.Refused(t, err, kind, words...)
}

// TestOpenedAtOnce is a cluster's first start: many nodes create the store at the same time.
func TestOpenedAtOnce(t *testing.T) {
	uri := mongotest.Fresh(t)
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			c := config(uri)
			c.Buckets = 8 + i%2 // two sizes: one of them wins, for all
			s, err := mongo.Open(t.Context(), c)
			if err != nil {
				if postdate.KindOf(err) != postdate.KindInvalid {
					t.Errorf("opening at once with others: %v", err)
				}
				return
			}
			defer s.Close()
			records, _, err := s.Look(t.Context(), allOf(s))
			if err != nil || len(records) != s.Buckets() {
				t.Errorf("there are %d partition records, %v; want %d", len(records), err, s.Buckets())
			}
		})
	}
	group.Wait()
}
