package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
)

// This file runs only behind a mongos. The tests have none: they put a model of one
// (routertest) in front of a replica set.
//
// Messages are sharded by hashed bucket, execution time and id. Under that key MongoDB keeps
// ids unique on each shard only, so every id is also in a collection that is sharded by its own
// hashed _id, where it is unique. An id and its message come and go in one transaction.

// The shard keys.
var (
	messagesKey = doc("bucket", "hashed", "executionTime", 1, "scheduleId", 1)
	registryKey = doc("_id", "hashed")
)

// routerMin is the earliest major version of a mongos and its shards: before it, writes also
// change and count stale copies of documents that have moved to another shard (SERVER-39619).
const routerMin = 6

// registered is an id that is taken.
type registered struct {
	ID string `bson:"_id"`
}

// checkRouter notes that the store is behind a mongos, and refuses one that is too old.
func (s *Store) checkRouter(ctx context.Context) error {
	var info struct {
		Version string `bson:"version"`
		Numbers []int  `bson:"versionArray"`
	}
	if err := s.client.Database("admin").RunCommand(ctx, doc("buildInfo", 1)).Decode(&info); err != nil {
		return opening(err)
	}
	if len(info.Numbers) == 0 || info.Numbers[0] < routerMin {
		return postdate.E(postdate.KindInvalid,
			"the mongos of the store has version %s: sharded, it needs MongoDB %d.0 or later", info.Version, routerMin)
	}
	s.sharded = true
	return nil
}

// shard shards what is not sharded yet, and refuses what is sharded by another key. A user who
// may not look is let in if the store is whole: somebody who may has looked before.
func (s *Store) shard(ctx context.Context, whole bool) error {
	for collection, key := range map[*driver.Collection]bson.D{s.messages: messagesKey, s.registry: registryKey} {
		present, err := s.shardKey(ctx, collection)
		if err == nil && present == nil {
			namespace := collection.Database().Name() + "." + collection.Name()
			if err = s.client.Database("admin").RunCommand(ctx,
				doc("shardCollection", namespace, "key", key)).Err(); err == nil {
				present, err = s.shardKey(ctx, collection)
			}
		}
		switch {
		case isCode(err, codeUnauthorized) && whole:
		case isCode(err, codeUnauthorized):
			return postdate.E(postdate.KindInvalid,
				"this user may not shard the store, or not look how it is sharded (%w): "+
					"run `postdate store init` once as a user with the roles readWrite and clusterManager", err)
		case err != nil:
			return postdate.E(postdate.KindUnavailable, "the collection %s cannot be sharded: %w",
				collection.Name(), err)
		case !sameKey(present, key):
			return postdate.E(postdate.KindInvalid, "the collection %s is sharded by %v, and must be by %v: "+
				"name another database, or drop it if it is empty", collection.Name(), present, key)
		}
	}
	return nil
}

// shardKey is the key that a collection is sharded by; nil if it is not sharded. Since MongoDB
// 8.0 config.collections also lists collections that are on a single shard, as unsplittable.
func (s *Store) shardKey(ctx context.Context, collection *driver.Collection) (bson.D, error) {
	var known struct {
		Key          bson.D `bson:"key"`
		Unsplittable bool   `bson:"unsplittable"`
	}
	namespace := collection.Database().Name() + "." + collection.Name()
	err := s.client.Database("config").Collection("collections").FindOne(ctx, doc("_id", namespace)).Decode(&known)
	if errors.Is(err, driver.ErrNoDocuments) || known.Unsplittable {
		return nil, nil
	}
	return known.Key, err
}

// sameKey compares keys, whatever types of number they use.
func sameKey(a, b bson.D) bool {
	return slices.EqualFunc(a, b, func(a, b bson.E) bool {
		return a.Key == b.Key && fmt.Sprint(a.Value) == fmt.Sprint(b.Value)
	})
}

// insertSharded registers ids and writes their messages: all or none, except those whose ids
// are taken, whose places it returns.
func (s *Store) insertSharded(ctx context.Context, documents []*document) (taken []int, err error) {
	free := make([]int, len(documents))
	for i := range free {
		free[i] = i
	}
	for {
		var ids []registered
		var fresh []*document
		for _, i := range free {
			ids, fresh = append(ids, registered{documents[i].ID}), append(fresh, documents[i])
		}
		err = s.transaction(ctx, func(ctx context.Context) error {
			_, err := s.registry.InsertMany(ctx, ids)
			switch {
			case isCode(err, codeWriteConflict):
				return errHeldID
			case err != nil:
				return err
			}
			_, err = s.messages.InsertMany(ctx, fresh)
			return orphaned(err)
		})
		if !driver.IsDuplicateKeyError(err) {
			return taken, err
		}
		// The error names only the first taken id.
		known, err := s.registered(ctx, ids)
		if err != nil {
			return nil, unreachable("scheduling", err) // the transaction was rolled back
		}
		free = slices.DeleteFunc(free, func(i int) bool {
			if known[documents[i].ID] {
				taken = append(taken, i)
			}
			return known[documents[i].ID]
		})
		switch len(free) {
		case 0:
			return taken, nil
		case len(ids):
			return nil, errHeldID // it is taken, and no majority says so yet
		}
	}
}

// codeWriteConflict is the server's error code for a write to what another transaction holds.
const codeWriteConflict = 112

// Behind a mongos, one message can be refused for a while, and all that are written with it.
// Nobody says which one it is.
var (
	// errHeldID: a transaction holds the id. It may be that of a node that died: the server
	// then keeps it for a minute.
	errHeldID error = postdate.E(postdate.KindUnavailable, "another request for the same id is under way: try again")
	// errOrphan: a shard gave a message with this id to another one, and still has its own copy.
	errOrphan error = postdate.E(postdate.KindUnavailable, "a shard has not removed its copy of a message with the "+
		"same id yet, which by default takes up to 15 minutes after a migration: try again")
)

// orphaned is the error of a write of messages whose ids are registered.
func orphaned(err error) error {
	if driver.IsDuplicateKeyError(err) {
		return errOrphan
	}
	return err
}

const (
	// movedTries bounds how often a read looks again for messages that are registered but not
	// found, and movedPause is how long it waits each time.
	movedTries = 20
	movedPause = 10 * time.Millisecond
)

// readMoved reads again what was not found, as long as its id is taken: a reschedule may move a
// message from one shard to another while a read asks both, and the read finds it on neither. A
// message that is never found exists all the same, and comes as a document that says so.
func (s *Store) readMoved(ctx context.Context, keys *keyed, projection any,
	found map[string]*document) (map[string]*document, error) {
	for try := 0; ; try++ {
		missing, err := s.missing(ctx, keys, found)
		if err != nil || len(missing.ids) == 0 {
			return found, err
		}
		if try == movedTries || !rest(ctx, movedPause) {
			for _, key := range missing.all {
				found[idOf(key)] = &document{ID: idOf(key), Bucket: key.Bucket, Tenant: key.Tenant,
					ScheduleID: key.ScheduleID, damaged: errMoving}
			}
			return found, nil
		}
		more, err := s.readOnce(ctx, &missing, projection)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, more)
	}
}

// missing returns the keys whose ids are taken but whose messages were not found.
func (s *Store) missing(ctx context.Context, keys *keyed, found map[string]*document) (missing keyed, err error) {
	var ids []registered
	for _, id := range keys.ids {
		if found[id] == nil {
			ids = append(ids, registered{id})
		}
	}
	if len(ids) == 0 {
		return missing, nil
	}
	known, err := s.registered(ctx, ids)
	for _, key := range keys.all {
		if id := idOf(key); found[id] == nil && known[id] {
			missing.add(key)
		}
	}
	return missing, err
}

// registered says which of some ids are taken.
func (s *Store) registered(ctx context.Context, ids []registered) (map[string]bool, error) {
	names := make([]string, len(ids))
	for i := range ids {
		names[i] = ids[i].ID
	}
	var found []registered
	err := s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.registry.Find(ctx, doc("_id", anyOf(names)),
			options.Find().SetHint(indexID).SetBatchSize(int32(len(names)+1)))
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

// deleteSharded deletes the messages that the filter selects and frees their ids, all or none.
// It frees no other id: one seen earlier may meanwhile belong to a new message. batch is how
// many messages there can be, so that one answer holds them all.
func (s *Store) deleteSharded(ctx context.Context, filter bson.D, batch int) (int, error) {
	var there []*document
	err := s.transaction(ctx, func(ctx context.Context) error {
		there = nil
		cursor, err := s.messages.Find(ctx, filter,
			options.Find().SetHint(indexID).SetBatchSize(int32(batch+1)).SetProjection(shardKeyFields))
		if err != nil {
			return err
		}
		if there, err = readAll(ctx, cursor); err != nil {
			return err
		}
		if there = s.sound(there); len(there) == 0 { // the shard key of a damaged one is unknown
			return nil
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
		if int(r.DeletedCount) != len(there) { // a transaction never shows this; it would free the wrong ids
			return postdate.E(postdate.KindInternal, "a transaction that saw %d messages deleted %d: it was taken back",
				len(there), r.DeletedCount)
		}
		_, err = s.registry.BulkWrite(ctx, ids)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(there), nil
}

// moveSharded puts a new version in place of one that is still the same. The execution time is part
// of the shard key, so the new version may belong to another shard: delete and insert, in one
// transaction.
func (s *Store) moveSharded(ctx context.Context, old, next *document, same bson.D) (moved bool, err error) {
	err = s.transaction(ctx, func(ctx context.Context) error {
		filter := append(targetOf(old).shardKey(), same...)
		r, err := s.messages.DeleteOne(ctx, filter, options.DeleteOne().SetHint(indexID))
		if err != nil {
			return err
		}
		if moved = r.DeletedCount == 1; !moved {
			return nil
		}
		_, err = s.messages.InsertOne(ctx, next)
		return orphaned(err)
	})
	return moved, err
}
