package routertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/postdate/postdate/store/mongo/mongotest"
)

// planted is a client of a model that keeps what is broken.
type planted struct {
	*Router
	messages *mongo.Collection

	mu     sync.Mutex
	broken []string
}

func plant(t *testing.T) *planted {
	t.Helper()
	p := &planted{}
	p.Router = start(t, mongotest.Fresh(t), func(format string, args ...any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.broken = append(p.broken, fmt.Sprintf(format, args...))
	})
	r := p.Router
	client, err := mongo.Connect(options.Client().ApplyURI(r.URI()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	name := r.uri[strings.LastIndex(r.uri, "/")+1:]
	p.messages = client.Database(name).Collection("messages")
	key := bson.D{{Key: "bucket", Value: "hashed"}, {Key: "executionTime", Value: 1}, {Key: "scheduleId", Value: 1}}
	if err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "shardCollection", Value: name + ".messages"}, {Key: "key", Value: key}}).Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func d(pairs ...any) (d bson.D) {
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return d
}

var (
	several = d("_id", d("$in", bson.A{"a", "b"}), "bucket", d("$in", bson.A{1, 2}))
	oneKey  = d("_id", "a", "bucket", 1, "executionTime", 5, "scheduleId", "a")
	cancels = d("$set", d("status", 2))
)

// mistakes are commands, and the words by which each is caught; "": nothing is wrong with it.
var mistakes = map[string]struct {
	run   func(ctx context.Context, on *mongo.Collection) error
	words string
}{
	"an update of all messages of a call": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.UpdateMany(ctx, several, cancels)
		return err
	}, "a write of several documents outside of a transaction"},
	"one of a single bucket": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.UpdateMany(ctx, d("_id", "a", "bucket", 1), cancels)
		return err
	}, "a write of several documents"},
	"a deletion by an age": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.DeleteMany(ctx, d("bucket", 1, "settledAt", d("$lt", 5)))
		return err
	}, "a write of several documents"},
	"an update by _id and bucket": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.UpdateOne(ctx, d("_id", "a", "bucket", 1), cancels)
		return err
	}, "does not name the whole shard key"},
	"an update by a range of the key": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.UpdateOne(ctx, d("bucket", 1, "executionTime", d("$lt", 5), "scheduleId", "a"), cancels)
		return err
	}, "does not name the whole shard key"},
	"a deletion by _id": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.DeleteOne(ctx, d("_id", "a"))
		return err
	}, "does not name the whole shard key"},
	"a findAndModify by _id": {func(ctx context.Context, on *mongo.Collection) error {
		err := on.FindOneAndUpdate(ctx, d("_id", "a"), cancels).Err()
		if err == mongo.ErrNoDocuments {
			err = nil
		}
		return err
	}, "does not name the whole shard key"},
	"an upsert without the key": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.UpdateOne(ctx, d("_id", "b"), cancels, options.UpdateOne().SetUpsert(true))
		return err
	}, "an upsert"},
	"another execution time": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.UpdateOne(ctx, oneKey, d("$set", d("executionTime", 6)))
		return err
	}, "an update of the shard key"},
	"a document without a bucket": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.InsertOne(ctx, d("_id", "c"))
		return err
	}, "a document without its shard key"},
	"the first of each bucket": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.Aggregate(ctx, bson.A{
			d("$match", d("bucket", d("$in", bson.A{1, 2}))), d("$sort", d("bucket", 1, "due", 1)),
			d("$group", d("_id", "$bucket", "due", d("$first", "$due"))),
		})
		return err
	}, "reads everything"},
	"a unique index": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: d("scheduleId", 1), Options: options.Index().SetUnique(true)})
		return err
	}, "a unique index"},
	"a distinct": {func(ctx context.Context, on *mongo.Collection) error {
		return on.Distinct(ctx, "bucket", d("bucket", 1)).Err()
	}, "a distinct"},
	"a read of what is available": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.Clone(options.Collection().SetReadConcern(readconcern.Available())).Find(ctx, d("bucket", 1))
		return err
	}, "may return what another shard has"},
	"a transaction without a snapshot": {transact(options.Transaction().SetReadConcern(readconcern.Majority()), oneKey), "one snapshot"},
	"a transaction":                    {transact(options.Transaction().SetReadConcern(readconcern.Snapshot()), oneKey), ""},
	"an update by the whole key": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.UpdateOne(ctx, oneKey, cancels)
		return err
	}, ""},
	"an update in a collection that is not sharded": {func(ctx context.Context, on *mongo.Collection) error {
		_, err := on.Database().Collection("partitions").UpdateMany(ctx, d("_id", d("$in", bson.A{1, 2})), cancels)
		return err
	}, ""},
	"a read of some buckets": {func(ctx context.Context, on *mongo.Collection) error { _, err := on.Find(ctx, several); return err }, ""},
}

// TestPlantedMistakes sends what a mongos does not do as a replica set does, among it what this
// store once sent: each is caught, and what is right is not.
func TestPlantedMistakes(t *testing.T) {
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			p := plant(t)
			if err := c.run(t.Context(), p.messages); err != nil {
				t.Fatal(err)
			}
			switch said := strings.Join(p.broken, "\n"); {
			case c.words == "" && said != "":
				t.Errorf("it is said to be broken: %s", said)
			case c.words != "" && !strings.Contains(said, c.words):
				t.Errorf("it is not caught by %q: %q", c.words, said)
			}
		})
	}
}

func transact(o *options.TransactionOptionsBuilder, filter bson.D) func(ctx context.Context, on *mongo.Collection) error {
	return func(ctx context.Context, on *mongo.Collection) error {
		session, err := on.Database().Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return on.DeleteOne(ctx, filter) }, o)
		return err
	}
}

// TestRoutes holds filters against where they go.
func TestRoutes(t *testing.T) {
	key := d("bucket", "hashed", "executionTime", 1, "scheduleId", 1)
	some := d("bucket", d("$in", bson.A{1, 2}), "due", d("$lt", 5))
	for _, c := range []struct {
		filter bson.D
		key    bson.D
		want   Route
	}{
		{d("_id", "a"), nil, Home},
		{d("bucket", 1, "executionTime", 5, "scheduleId", "a"), key, One},
		{d("bucket", 1, "executionTime", d("$lte", 5), "scheduleId", "a"), key, Some},
		{d("bucket", 1), key, Some},
		{some, key, Some},
		{d("$or", bson.A{some, d("bucket", 3)}), key, Some},
		{d("$or", bson.A{some, d("due", 3)}), key, All},
		{d("bucket", d("$lt", 3)), key, All},
		{d("_id", "a"), key, All},
		{bson.D{}, key, All},
		{d("_id", "a"), d("_id", "hashed"), One},
		{d("_id", d("$in", bson.A{"a", "b"})), d("_id", "hashed"), Some},
	} {
		filter, err := bson.Marshal(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		if got := route(filter, c.key); got != c.want {
			t.Errorf("%v with the key %v goes to %s, want %s", c.filter, c.key, got, c.want)
		}
	}
}
