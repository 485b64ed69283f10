package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
)

// target is a message that a write goes to.
type target struct {
	key       postdate.Key
	execution postdate.Time // as it was seen; needed only behind a mongos
	version   uint64        // 0: any
}

// targetOf is the target of a message that was read with at least its shard key.
func targetOf(d *document) target {
	return target{key: d.key(), execution: d.ExecutionTime}
}

// change is an update of those targets that match.
type change struct {
	targets []target
	where   bson.D // what a message must match besides its key and version
	update  any
}

// change writes changes that have no further effect when repeated, and returns how many
// messages they matched: after a repetition that may be fewer than were changed. It does not
// say which ones: a caller that must know looks.
func (s *Store) change(ctx context.Context, changes ...change) (matched int64, err error) {
	return s.changeBy(ctx, func() []change { return changes })
}

// setMarks sets a mark that is new in each attempt, and returns the last attempt's. An attempt
// that was given up may still be under way, and must not set again what an owner has overtaken
// since. Therefore nobody finishes by its mark, but only by one whose statement was answered,
// which cannot arrive again.
func (s *Store) setMarks(ctx context.Context,
	changes func(id bson.ObjectID) []change) (id bson.ObjectID, matched int64, err error) {
	matched, err = s.changeBy(ctx, func() []change {
		id = bson.NewObjectID()
		return changes(id)
	})
	return id, matched, err
}

// changeBy is change with changes that are built anew for each attempt.
func (s *Store) changeBy(ctx context.Context, changes func() []change) (matched int64, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		var statements []driver.WriteModel
		for _, c := range changes() {
			statements = s.addStatements(statements, c)
		}
		if len(statements) == 0 {
			return nil
		}
		r, err := s.messages.BulkWrite(ctx, statements, options.BulkWrite().SetOrdered(false))
		if err == nil {
			matched = r.MatchedCount
		}
		return err
	})
	if err != nil && !notSent(err) {
		err = unknown("changing messages", err) // some of them may be changed
	}
	return matched, err
}

// addStatements appends the statements of a change: for a replica set one for all of its
// messages, for a mongos one for each, with the whole shard key. Behind a mongos, a statement
// that may match several documents goes to all shards, and a document whose chunk is moving
// meanwhile is changed twice or not at all, or is counted although only a stale copy of it
// matched. A statement that names the whole key goes to the shard that has it, which refuses it
// once the chunk has moved on.
func (s *Store) addStatements(statements []driver.WriteModel, c change) []driver.WriteModel {
	if len(c.targets) == 0 {
		return statements
	}
	if !s.sharded {
		var keys keyed
		var versions []int64
		for _, t := range c.targets {
			keys.add(t.key)
			if t.version != 0 {
				versions = append(versions, int64(t.version))
			}
		}
		filter := keys.filter()
		if len(versions) > 0 {
			filter = append(filter, bson.E{Key: "version", Value: anyOf(versions)})
		}
		return append(statements, driver.NewUpdateManyModel().SetHint(indexID).SetFilter(append(filter,
			c.where...)).SetUpdate(c.update))
	}
	for _, t := range c.targets {
		filter := t.shardKey()
		if t.version != 0 {
			filter = append(filter, bson.E{Key: "version", Value: int64(t.version)})
		}
		statements = append(statements,
			driver.NewUpdateOneModel().SetHint(indexID).SetFilter(append(filter, c.where...)).SetUpdate(c.update))
	}
	return statements
}

// shardKey names one message by its _id and the whole shard key.
func (t target) shardKey() bson.D {
	return doc("_id", idOf(t.key), "bucket", t.key.Bucket, "executionTime", t.execution, "scheduleId", t.key.ScheduleID)
}

// targets are the targets of keys. Behind a mongos they are read; a message that is not there,
// or whose shard key cannot be read, has none.
func (s *Store) targets(ctx context.Context, keys *keyed) (targets []target, err error) {
	if !s.sharded {
		for _, key := range keys.all {
			targets = append(targets, target{key: key})
		}
		return targets, nil
	}
	found, err := s.read(ctx, keys, shardKeyFields)
	for _, d := range found {
		if d.damaged == nil {
			targets = append(targets, targetOf(d))
		}
	}
	return targets, err
}

// unmark removes the mark id from those of the messages that bear it.
func unmark(targets []target, id bson.ObjectID) change {
	return change{targets: targets, where: doc("mark.id", id), update: doc("$unset", doc("mark", ""))}
}

// shardKeyFields are the fields that make up a message's target.
var shardKeyFields = doc("bucket", 1, "tenant", 1, "executionTime", 1, "scheduleId", 1)
