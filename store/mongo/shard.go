package mongo

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
)

// What is here runs only behind a mongos. It follows MongoDB's manual. Its
// transactions are tried on a replica set; shardCollection and what a mongos makes of
// the rest were not tried: none is to be had where the tests run.
//
// Messages are sharded by hashed bucket, execution time and id. Under that key
// MongoDB keeps ids unique on each shard only, so every id also lies in a collection
// that is sharded by its own hashed _id, where it is unique. An id and its message
// come and go in one transaction.

// registered is an id that is taken.
type registered struct {
	ID string `bson:"_id"`
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
		if err != nil && !(errors.As(err, &known) && (known.HasErrorCode(20) || known.HasErrorCode(23))) { // it is sharded already
			return err
		}
	}
	return nil
}

// insertSharded registers ids and writes their messages, all or none but those whose ids are
// taken: these it lists by their places.
func (s *Store) insertSharded(ctx context.Context, documents []*document) (taken []int, err error) {
	free := make([]int, len(documents))
	for i := range free {
		free[i] = i
	}
	for range insertTries {
		var ids []registered
		var fresh []*document
		for _, i := range free {
			ids, fresh = append(ids, registered{documents[i].ID}), append(fresh, documents[i])
		}
		err = s.transaction(ctx, func(ctx context.Context) error {
			if _, err := s.registry.InsertMany(ctx, ids); err != nil {
				return err
			}
			_, err := s.messages.InsertMany(ctx, fresh)
			return err
		})
		if !driver.IsDuplicateKeyError(err) {
			return taken, err
		}
		// The error names the first one alone.
		known, err := s.registered(ctx, ids)
		if err != nil {
			return nil, unreachable("scheduling", err) // the transaction was taken back
		}
		free = slices.DeleteFunc(free, func(i int) bool {
			if known[documents[i].ID] {
				taken = append(taken, i)
			}
			return known[documents[i].ID]
		})
		if len(free) == 0 {
			return taken, nil
		}
	}
	return nil, err
}

// registered says which of some ids are taken.
func (s *Store) registered(ctx context.Context, ids []registered) (map[string]bool, error) {
	names := make([]string, len(ids))
	for i := range ids {
		names[i] = ids[i].ID
	}
	var found []registered
	err := s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.registry.Find(ctx, doc("_id", anyOf(names)), options.Find().SetHint(indexID))
		if err != nil {
			return err
		}
		return cursor.All(ctx, &found)
	})
	known := make(map[string]bool, len(found))
	for _, r := range found {
		known[r.ID] = true
	}
	return known, err
}

// deleteSharded deletes the messages that the filter selects and frees their ids, all or
// none. It frees no other id: one that was looked at before may be that of a new message
// by now.
func (s *Store) deleteSharded(ctx context.Context, filter bson.D) (int, error) {
	var there []*document
	err := s.transaction(ctx, func(ctx context.Context) error {
		there = nil
		cursor, err := s.messages.Find(ctx, filter, options.Find().SetHint(indexID).SetProjection(shardKeyFields))
		if err != nil {
			return err
		}
		if err := cursor.All(ctx, &there); err != nil || len(there) == 0 {
			return err
		}
		var messages, ids []driver.WriteModel
		for _, d := range there {
			messages = append(messages, driver.NewDeleteOneModel().SetHint(indexID).SetFilter(targetOf(d).shardKey()))
			ids = append(ids, driver.NewDeleteOneModel().SetHint(indexID).SetFilter(doc("_id", d.ID)))
		}
		r, err := s.messages.BulkWrite(ctx, messages)
		if err != nil {
			return err
		}
		if int(r.DeletedCount) != len(there) { // no transaction shows this: it would free the wrong ids
			return postdate.E(postdate.KindInternal, "a transaction that saw %d messages deleted %d: it was taken back", len(there), r.DeletedCount)
		}
		_, err = s.registry.BulkWrite(ctx, ids)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(there), nil
}

// moveSharded puts a new version in the place of one whose mark stands. Its
// execution time is part of the shard key, so it may belong to another shard:
// delete and insert, in one transaction.
func (s *Store) moveSharded(ctx context.Context, old, next *document, id bson.ObjectID) (moved bool, err error) {
	err = s.transaction(ctx, func(ctx context.Context) error {
		filter := append(targetOf(old).shardKey(), doc("mark.id", id, "status", int(postdate.Pending), "version", old.Version)...)
		r, err := s.messages.DeleteOne(ctx, filter, options.DeleteOne().SetHint(indexID))
		if err != nil {
			return err
		}
		if moved = r.DeletedCount == 1; !moved {
			return nil
		}
		_, err = s.messages.InsertOne(ctx, next)
		return err
	})
	return moved, err
}
