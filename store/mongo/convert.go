package mongo

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
)

const (
	// layoutUnderway is the layout of a store that is being converted: no version opens it.
	layoutUnderway = 0
	// convertTime bounds a conversion's commands: they go over everything.
	convertTime = 24 * time.Hour
	// convertAtOnce is how many documents one command of a conversion changes.
	convertAtOnce = 10_000
	// nobodySince is how long no lease may have been renewed before a conversion.
	nobodySince = 30 * time.Second
)

// Convert makes of the store at c.URI what this version opens there, where an earlier version
// wrote it, or where it was made on a replica set that is a shard by now and is reached through
// a mongos. It changes nothing else, and no store that is up to date or not there. No node may
// run meanwhile: one that renewed its lease just now is an error. Interrupted, it goes on where
// it is called again.
func Convert(ctx context.Context, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	c.Timeout, c.Attempt = convertTime, convertTime
	client, err := driver.Connect(clientOptions(c).SetMonitor(c.Monitor))
	if err != nil {
		return postdate.E(postdate.KindInvalid, "the address of the store cannot be used: %w", err)
	}
	defer client.Disconnect(context.Background())
	s := newStore(c, client)
	if err := s.checkServer(ctx); err != nil {
		return err
	}
	return opening(s.within(ctx, s.convert))
}

func (s *Store) convert(ctx context.Context) error {
	var b birth
	switch err := s.births().FindOne(ctx, doc("_id", "birth")).Decode(&b); {
	case errors.Is(err, driver.ErrNoDocuments):
		return nil
	case err != nil:
		return err
	case b.Layout > layout || b.Buckets != s.c.Buckets || b.Sharded && !s.sharded:
		return s.checkBirth(b)
	case b.Layout == layout && b.Sharded == s.sharded:
		return nil
	}
	b.Dates = b.Dates || b.Layout == layout
	if s.sharded && !b.Dates {
		key, err := s.shardKey(ctx, s.messages)
		if err != nil {
			return err
		}
		if key != nil {
			return postdate.E(postdate.KindInvalid, "the store in the database %s was written by an earlier version of postdate and is sharded: the times in its shard key cannot be changed in place; let that version deliver what is pending, and begin a new database", s.messages.Database().Name())
		}
	}
	if err := s.nobody(ctx); err != nil {
		return err
	}
	if err := s.note(ctx, doc("layout", layoutUnderway, "dates", b.Dates)); err != nil {
		return err
	}
	if err := s.nobody(ctx); err != nil { // who looked before that
		return err
	}
	if !b.Dates {
		if err := s.convertTimes(ctx); err != nil {
			return err
		}
		if err := s.note(ctx, doc("dates", true)); err != nil {
			return err
		}
	}
	if s.sharded && !b.Sharded {
		if err := s.convertToSharded(ctx); err != nil {
			return err
		}
	}
	return s.note(ctx, doc("layout", layout, "sharded", s.sharded))
}

// note changes the birth record.
func (s *Store) note(ctx context.Context, fields bson.D) error {
	_, err := s.births().UpdateOne(ctx, doc("_id", "birth"), doc("$set", fields))
	return err
}

// nobody fails where a node runs.
func (s *Store) nobody(ctx context.Context) error {
	var l lease
	err := s.leases.FindOne(ctx, doc("$expr", doc("$gt", bson.A{"$at", doc("$subtract", bson.A{"$$NOW", nobodySince.Milliseconds()})}))).Decode(&l)
	switch {
	case errors.Is(err, driver.ErrNoDocuments):
		return nil
	case err != nil:
		return err
	}
	return postdate.E(postdate.KindConflict, "the store is in use: %s renewed its lease at %s; stop all nodes, wait for %v and try again", l.ID, l.At.Format(time.RFC3339), nobodySince)
}

// dateOf is an expression for a time that may still be a number.
func dateOf(field string) bson.D {
	return doc("$cond", bson.A{doc("$isNumber", field), doc("$add", bson.A{bson.DateTime(0), field}), field})
}

// convertTimes makes dates of the numbers of earlier layouts. In layout 1 what was claimed of a
// bucket was a time, all of whose millisecond was claimed.
func (s *Store) convertTimes(ctx context.Context) error {
	number := doc("$type", "number")
	var fields bson.D
	for _, name := range []string{"executionTime", "attemptTime", "due", "downSince", "settledAt", "expiresAt", "createdAt"} {
		fields = append(fields, bson.E{Key: name, Value: dateOf("$" + name)})
	}
	err := s.convertAll(ctx, s.messages, func(ctx context.Context, some bson.D) error {
		_, err := s.messages.UpdateMany(ctx, append(doc("executionTime", number), some...), bson.A{doc("$set", fields)})
		return err
	})
	if err != nil {
		return err
	}
	letter := doc("$mergeObjects", bson.A{"$$m", doc("at", dateOf("$$m.at"), "executionTime", dateOf("$$m.executionTime"))})
	segment := bson.A{doc("$set", doc("oldest", dateOf("$oldest"), "messages", doc("$map", doc("input", "$messages", "as", "m", "in", letter))))}
	err = s.convertAll(ctx, s.inboxes, func(ctx context.Context, some bson.D) error {
		_, err := s.inboxes.UpdateMany(ctx, append(doc("messages.at", number), some...), segment)
		return err
	})
	if err != nil {
		return err
	}
	claimed := doc("$cond", bson.A{
		doc("$isNumber", "$claimed"), doc("t", doc("$add", bson.A{bson.DateTime(1), "$claimed"}), "id", ""), doc("t", dateOf("$claimed.t"), "id", "$claimed.id"),
	})
	behind := doc("$cond", bson.A{doc("$isArray", "$behind"), doc("$map", doc("input", "$behind", "as", "b",
		"in", doc("channel", "$$b.channel", "to", doc("t", dateOf("$$b.to.t"), "id", "$$b.to.id")))), "$behind"})
	_, err = s.partitions.UpdateMany(ctx, doc(), bson.A{doc("$set", doc("checkpoint", dateOf("$checkpoint"), "claimed", claimed, "behind", behind))})
	return err
}

// convertToSharded registers the ids of all messages and shards them.
func (s *Store) convertToSharded(ctx context.Context) error {
	if err := s.createIndexes(ctx); err != nil {
		return err
	}
	if err := s.shard(ctx, false); err != nil {
		return err
	}
	err := s.convertAll(ctx, s.messages, func(ctx context.Context, some bson.D) error {
		cursor, err := s.messages.Aggregate(ctx, bson.A{
			doc("$match", some), doc("$project", doc("_id", 1)), doc("$merge", doc("into", s.registry.Name(), "whenMatched", "keepExisting")),
		})
		if err != nil {
			return err
		}
		return cursor.Close(ctx)
	})
	if err != nil {
		return err
	}
	if err = s.messages.Indexes().DropOne(ctx, indexDue); err != nil && !isCode(err, codeIndexNotFound) {
		return err
	}
	return nil
}

// convertAll calls f with range after range of a collection's _ids.
func (s *Store) convertAll(ctx context.Context, on *driver.Collection, f func(ctx context.Context, some bson.D) error) error {
	var after any = bson.MinKey{}
	for n := 0; ; n += convertAtOnce {
		s.c.Log.Info("converting the store", "collection", on.Name(), "done", n)
		var last struct {
			ID string `bson:"_id"`
		}
		err := on.FindOne(ctx, doc("_id", doc("$gt", after)), options.FindOne().
			SetHint(indexID).SetSort(doc("_id", 1)).SetSkip(convertAtOnce-1).SetProjection(doc("_id", 1))).Decode(&last)
		if errors.Is(err, driver.ErrNoDocuments) {
			return f(ctx, doc("_id", doc("$gt", after)))
		}
		if err != nil {
			return err
		}
		if err := f(ctx, doc("_id", doc("$gt", after, "$lte", last.ID))); err != nil {
			return err
		}
		after = last.ID
	}
}
