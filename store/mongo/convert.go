package mongo

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

const (
	// layoutUnderway is the layout of a store that is being converted: no version opens it.
	layoutUnderway = 0
	// convertTime bounds a conversion's commands: they go over everything.
	convertTime = 24 * time.Hour
	// convertAtOnce is how many documents one command of a conversion changes.
	convertAtOnce = 10_000
	// convertLease is how long a conversion that died keeps others away.
	convertLease = 30 * time.Second
)

// conversion is one run of Convert. It holds a lease, as a node does, so that no other runs.
type conversion struct {
	*Store
	lease bucket.Lease
}

// Convert turns the store at c.URI into one that this version opens, if an earlier version
// wrote it, or if it was made on a replica set that has become a shard behind a mongos. A store
// that is up to date or does not exist stays as it is. No node may run meanwhile: a lease that
// may not have ended is an error. If Convert is interrupted, the next call continues it.
func Convert(ctx context.Context, c Config) error { return convertWatched(ctx, c, nil) }

// convertWatched is Convert for tests: the monitor sees every command.
func convertWatched(ctx context.Context, c Config, monitor *event.CommandMonitor) error {
	if err := c.Validate(); err != nil {
		return err
	}
	c.Timeout, c.Attempt = convertTime, convertTime
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s, err := connect(c, monitor)
	if err != nil {
		return err
	}
	defer s.client.Disconnect(context.Background())
	if err := s.checkServer(ctx); err != nil {
		return s.tlsAdvised(err)
	}
	x := &conversion{s, bucket.Lease{ID: "store init/" + bson.NewObjectID().Hex(), Lasts: convertLease}}
	return opening(s.within(ctx, x.run))
}

func (x *conversion) run(ctx context.Context) error {
	var b birth
	switch err := x.births().FindOne(ctx, doc("_id", "birth")).Decode(&b); {
	case errors.Is(err, driver.ErrNoDocuments):
		return nil
	case err != nil:
		return err
	case b.Buckets != x.c.Buckets || b.Layout > layout || b.Sharded && !x.sharded:
		return x.checkBirth(b)
	case b.Layout == layout && b.Sharded == x.sharded:
		return nil
	}
	dates := b.Dates || b.Layout >= layoutDates
	if x.sharded && !dates {
		key, err := x.shardKey(ctx, x.messages)
		if err != nil {
			return err
		}
		if key != nil {
			return postdate.E(postdate.KindInvalid,
				"the store in the database %s was written by an earlier version of postdate and is sharded: "+
					"the times in its shard key cannot be changed in place; let that version deliver what is pending, "+
					"and begin a new database", x.messages.Database().Name())
		}
	}
	if err := x.nobody(ctx); err != nil {
		return err
	}
	leave, err := x.keep()
	if err != nil {
		return err
	}
	defer leave()
	if err := x.nobody(ctx); err != nil { // one that came between the two
		return err
	}
	if err := x.note(ctx, b.Layout, doc("layout", layoutUnderway, "dates", dates, "sharded", x.sharded)); err != nil {
		return err
	}
	if err := x.refuseLeases(ctx); err != nil {
		return err
	}
	if err := x.nobody(ctx); err != nil { // one that got its lease in between
		return err
	}
	if !dates {
		if err := x.refuseNumbers(ctx); err != nil {
			return err
		}
		if err := x.convertTimes(ctx); err != nil {
			return err
		}
		if err := x.note(ctx, layoutUnderway, doc("dates", true)); err != nil {
			return err
		}
	}
	if x.sharded && (!b.Sharded || b.Layout < layoutDates) { // or an earlier run may have stopped halfway
		if err := x.convertToSharded(ctx); err != nil {
			return err
		}
	}
	x.c.Log.Info("the store is converted", "from layout", b.Layout, "to", layout, "sharded", x.sharded)
	return x.note(ctx, layoutUnderway, doc("layout", layout))
}

// note changes the birth record, if its layout is still was.
func (x *conversion) note(ctx context.Context, was int, fields bson.D) error {
	r, err := x.births().UpdateOne(ctx, doc("_id", "birth", "layout", was), doc("$set", fields))
	if err == nil && r.MatchedCount == 0 {
		return postdate.E(postdate.KindConflict,
			"somebody else converted the store in between: see whether nodes start on it")
	}
	return err
}

// keep takes the lease, and renews it until leave gives it back.
func (x *conversion) keep() (leave func(), err error) {
	renew := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), x.c.Select)
		defer cancel()
		x.lease.Renewals++
		_, err := x.Renew(ctx, x.lease)
		return err
	}
	if err := renew(); err != nil {
		return nil, err
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(convertLease / 6)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := renew(); err != nil {
					x.c.Log.Warn("the lease of the conversion could not be renewed", "error", err)
				}
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
		ctx, cancel := context.WithTimeout(context.Background(), x.c.Select)
		defer cancel()
		if _, err := x.leases.DeleteOne(ctx, doc("_id", x.lease.ID)); err != nil {
			x.c.Log.Warn("the lease of the conversion could not be given back", "for", convertLease, "error", err)
		}
	}, nil
}

// nobody fails if somebody else's lease may not have ended. A node renews its own well before.
func (x *conversion) nobody(ctx context.Context) error {
	var l lease
	lasts := doc("$max", bson.A{convertLease.Milliseconds(), "$lasts"})
	err := x.leases.FindOne(ctx, doc("_id", doc("$ne", x.lease.ID),
		"$expr", doc("$gt", bson.A{"$at", doc("$subtract", bson.A{"$$NOW", lasts})})),
		options.FindOne().SetSort(doc("at", -1))).Decode(&l)
	switch {
	case errors.Is(err, driver.ErrNoDocuments):
		return nil
	case err != nil:
		return err
	}
	ends := l.At.Add(max(convertLease, time.Duration(l.Lasts)*time.Millisecond))
	return postdate.E(postdate.KindConflict,
		"the store is in use, or was a moment ago: the last lease is that of %s, renewed at %s; "+
			"stop all nodes, and try again after %s", l.ID, l.At.Format(time.RFC3339), ends.Format(time.RFC3339))
}

// dateOf is an expression for a time that may still be a number.
func dateOf(field string) bson.D {
	return doc("$cond", bson.A{doc("$isNumber", field), doc("$add", bson.A{bson.DateTime(0), field}), field})
}

// times are the fields of a message that were numbers.
var times = []string{"executionTime", "attemptTime", "due", "downSince", "settledAt", "expiresAt", "createdAt"}

// withNumbers matches messages that have a number for a time.
func withNumbers() bson.D {
	var any bson.A
	for _, name := range times {
		any = append(any, doc(name, doc("$type", "number")))
	}
	return doc("$or", any)
}

// refuseLeases makes the server refuse the leases of earlier layouts. A node of an earlier version that
// read the birth record before the note may take its lease at any time, even after the conversion.
// Without one it gets no buckets.
func (x *conversion) refuseLeases(ctx context.Context) error {
	return x.refuseOthers(ctx, x.leases, doc("layout", doc("$gte", layout)))
}

// refuseNumbers makes the server refuse messages whose times are numbers. Such a node may take
// messages without a lease, too: what it wrote would be acknowledged, but never found.
func (x *conversion) refuseNumbers(ctx context.Context) error {
	return x.refuseOthers(ctx, x.messages, doc("$nor", bson.A{withNumbers()}))
}

// refuseOthers makes the server refuse writes of documents that do not match.
func (x *conversion) refuseOthers(ctx context.Context, in *driver.Collection, match bson.D) error {
	err := in.Database().RunCommand(ctx, doc("collMod", in.Name(),
		"validator", match, "validationLevel", "strict", "validationAction", "error")).Err()
	if isCode(err, codeNamespaceNotFound) {
		return nil // nothing was ever written
	}
	return err
}

// convertTimes turns the numbers of earlier layouts into dates. In layout 1 a bucket's claimed
// was a time, and all of that millisecond was claimed.
func (x *conversion) convertTimes(ctx context.Context) error {
	number := doc("$type", "number")
	var fields bson.D
	for _, name := range times {
		fields = append(fields, bson.E{Key: name, Value: dateOf("$" + name)})
	}
	err := x.convertAll(ctx, x.messages, func(ctx context.Context, some bson.D) error {
		_, err := x.messages.UpdateMany(ctx, append(withNumbers(), some...), bson.A{doc("$set", fields)})
		return err
	})
	if err != nil {
		return err
	}
	letter := doc("$mergeObjects", bson.A{"$$m", doc("at", dateOf("$$m.at"),
		"executionTime", dateOf("$$m.executionTime"))})
	segment := bson.A{doc("$set", doc("oldest", dateOf("$oldest"),
		"messages", doc("$map", doc("input", "$messages", "as", "m", "in", letter))))}
	err = x.convertAll(ctx, x.inboxes, func(ctx context.Context, some bson.D) error {
		_, err := x.inboxes.UpdateMany(ctx, append(doc("messages.at", number), some...), segment)
		return err
	})
	if err != nil {
		return err
	}
	claimed := doc("$cond", bson.A{
		doc("$isNumber", "$claimed"), doc("t", doc("$add", bson.A{bson.DateTime(1), "$claimed"}), "id", ""),
		doc("t", dateOf("$claimed.t"), "id", "$claimed.id"),
	})
	behind := doc("$cond", bson.A{doc("$isArray", "$behind"), doc("$map", doc("input", "$behind", "as", "b",
		"in", doc("channel", "$$b.channel", "to", doc("t", dateOf("$$b.to.t"), "id", "$$b.to.id")))), "$behind"})
	_, err = x.partitions.UpdateMany(ctx, doc(),
		bson.A{doc("$set", doc("checkpoint", dateOf("$checkpoint"), "claimed", claimed, "behind", behind))})
	return err
}

// convertToSharded registers the ids of all messages and shards the messages.
func (x *conversion) convertToSharded(ctx context.Context) error {
	if err := x.createIndexes(ctx); err != nil {
		return err
	}
	if err := x.shard(ctx, false); err != nil {
		return err
	}
	err := x.convertAll(ctx, x.messages, func(ctx context.Context, some bson.D) error {
		cursor, err := x.messages.Aggregate(ctx, bson.A{
			doc("$match", some), doc("$project", doc("_id", 1)),
			doc("$merge", doc("into", x.registry.Name(), "whenMatched", "keepExisting")),
		})
		if err != nil {
			return err
		}
		return cursor.Close(ctx)
	})
	if err != nil {
		return err
	}
	if err = x.messages.Indexes().DropOne(ctx, indexDue); err != nil && !isCode(err, codeIndexNotFound) {
		return err
	}
	return nil
}

// convertAll calls f with one range of a collection's _ids after another.
func (x *conversion) convertAll(ctx context.Context, on *driver.Collection,
	f func(ctx context.Context, some bson.D) error) error {
	var after any = bson.MinKey{}
	for n := 0; ; n += convertAtOnce {
		x.c.Log.Info("converting the store", "collection", on.Name(), "done", n)
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
