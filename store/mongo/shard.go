package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// What is here runs only behind a mongos. It follows MongoDB's manual and was not
// tried: no mongos is to be had where the tests run.
//
// Messages are sharded by hashed bucket, execution time and id. Under that key
// MongoDB keeps ids unique on each shard only, so every id is first registered in a
// collection that is sharded by its own hashed _id, where it is unique.

// registered is an id that is taken, and by what.
type registered struct {
	ID     string `bson:"_id"`
	Digest []byte `bson:"digest"` // of the message as it was first scheduled
}

// shard shards what is not sharded yet.
func (s *Store) shard(ctx context.Context) error {
	admin := s.client.Database("admin")
	name := s.messages.Database().Name()
	for collection, key := range map[string]bson.D{
		"messages": doc("bucket", "hashed", "executionTime", 1, "scheduleId", 1),
		"registry": doc("_id", "hashed"),
	} {
		err := admin.RunCommand(ctx, doc("shardCollection", name+"."+collection, "key", key)).Err()
		var known driver.ServerError
		if err != nil && !(errors.As(err, &known) && known.HasErrorCode(20)) { // it is sharded already
			return err
		}
	}
	return nil
}

// register takes ids. It returns the items that are to be written: whose ids were
// free, and those that a call before this one registered and may not have written.
func (s *Store) register(ctx context.Context, messages []postdate.Message, items []int, results []store.Inserted) ([]int, error) {
	ids := make([]registered, len(items))
	for n, i := range items {
		ids[n] = registered{ID: idOf(messages[i].Key), Digest: messages[i].Digest[:]}
	}
	_, err := s.registry.InsertMany(ctx, ids, options.InsertMany().SetOrdered(false))
	taken, err := takenOf(err, items, results)
	if err != nil || len(taken) == 0 {
		return items, err
	}
	gone, err := s.present(ctx, messages, taken, results)
	if err != nil {
		return nil, err
	}
	answered := map[int]bool{}
	for _, i := range taken {
		answered[i] = true
	}
	for _, i := range gone {
		answered[i] = false
	}
	var left []int
	for _, i := range items {
		if !answered[i] {
			left = append(left, i)
		}
	}
	return left, nil
}

// unregister frees ids whose messages expired.
func (s *Store) unregister(ctx context.Context, keys *keyed) error {
	_, err := s.registry.DeleteMany(ctx, doc("_id", anyOf(keys.ids)))
	return err
}

// moveSharded puts a new version in the place of one whose mark stands. Its
// execution time is part of the shard key, so it may belong to another shard:
// delete and insert, in one transaction.
func (s *Store) moveSharded(ctx context.Context, old, next *document, id bson.ObjectID) (bool, error) {
	moved, err := driver.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
		filter := doc("_id", old.ID, "bucket", old.Bucket, "executionTime", old.ExecutionTime, "scheduleId", old.ScheduleID,
			"mark.id", id, "status", int(postdate.Pending), "version", old.Version)
		r, err := s.messages.DeleteOne(ctx, filter, options.DeleteOne().SetHint(indexID))
		if err != nil || r.DeletedCount == 0 {
			return false, err
		}
		_, err = s.messages.InsertOne(ctx, next)
		return true, err
	})
	if err != nil {
		return false, err
	}
	return moved.(bool), nil
}
