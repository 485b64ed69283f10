package mongo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
)

const (
	codeUnauthorized      = 13
	codeNamespaceNotFound = 26
	codeIndexNotFound     = 27
)

// isCode says whether the server gave this error.
func isCode(err error, code int) bool {
	var s driver.ServerError
	return errors.As(err, &s) && s.HasErrorCode(code)
}

// layout is the version of the document layout. Before layout 7, no series was paused: a node that does not
// know of pauses sends its occurrences. Before layout 6, no message recurred: a node that does
// not know series ends them with their first occurrence. Before layout 5, routes had no priority; before layout
// 4, a partition record's behind named no tenants. A node that does not know such names sends what is
// not claimed: it can be cancelled after it was sent, and is sent again. Before layout 3, times were
// numbers, and in layout 1 also a record's claimed.
const layout = 7

// layoutDates is the first layout in which times are dates.
const layoutDates = 3

// birth is the one document of the collection birth.
type birth struct {
	ID      string `bson:"_id"`
	Layout  int    `bson:"layout"`
	Buckets int    `bson:"buckets"`
	Name    int64  `bson:"name"`    // random: names the store in inbox cursors
	Whole   bool   `bson:"whole"`   // every partition record was written: a missing one is damage
	Dates   bool   `bson:"dates"`   // of a store that is being converted: its times are dates already
	Sharded bool   `bson:"sharded"` // its ids are registered and its messages sharded: it is used only through a mongos
}

// The names of the indexes, for hints.
const (
	indexID       = "_id_"
	indexDue      = "due"
	indexDueKey   = "dueAndKey" // in place of due if the messages are sharded
	indexParked   = "parked"
	indexSettled  = "settled"
	indexList     = "list"
	indexLabel    = "label"
	indexSeries   = "series"
	indexFailed   = "failed"
	indexAged     = "aged"
	indexOpen     = "open"
	indexShardKey = "shard"
)

// start checks the server, and creates what is missing.
func (s *Store) start(ctx context.Context) error {
	if err := s.checkServer(ctx); err != nil {
		return err
	}
	var b birth
	err := s.within(ctx, func(ctx context.Context) (err error) {
		b, err = s.beBorn(ctx)
		return err
	})
	if err != nil {
		return err
	}
	s.birth = uint32(b.Name)
	if err := s.buildIndexes(ctx); err != nil && !mayNot(err, b) {
		return opening(err)
	}
	return s.within(ctx, func(ctx context.Context) error {
		if s.sharded {
			if err := s.shard(ctx, b.Whole); err != nil {
				return opening(err)
			}
		}
		return s.createPartitions(ctx, b)
	})
}

// mayNot says that a node only lacks the right to create what exists already: somebody who has
// that right created the whole store before.
func mayNot(err error, b birth) bool {
	return b.Whole && isCode(err, codeUnauthorized)
}

// checkServer refuses a server that is not in a replica set: without one there are no
// majorities, no sessions and no retries.
func (s *Store) checkServer(ctx context.Context) error {
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.client.Database("admin").RunCommand(ctx, doc("hello", 1)).Decode(&hello); err != nil {
		return opening(err)
	}
	if hello.Msg == "isdbgrid" {
		return s.checkRouter(ctx)
	}
	if hello.SetName == "" {
		return postdate.E(postdate.KindInvalid, "the MongoDB server of the store stands alone: it must be a replica "+
			"set, if only of one member; start mongod with --replSet rs0 and call rs.initiate() once")
	}
	return nil
}

// opening turns an error met while opening the store into a sentence that says what to do.
func opening(err error) error {
	var known *postdate.Error
	var s driver.ServerError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.As(err, &s) && (s.HasErrorCode(18) || s.HasErrorCode(codeUnauthorized) || s.HasErrorCode(8000)):
		return postdate.E(postdate.KindInvalid, "MongoDB does not let this user in or at its database: "+
			"check name, password and roles (readWrite) in the store's address (%w)", err)
	}
	return postdate.E(postdate.KindUnavailable, "the MongoDB of the store cannot be reached, has no primary, "+
		"or its replica set has another name: check the address and the servers (%w)", err)
}

func (s *Store) births() *driver.Collection { return s.messages.Database().Collection("birth") }

// beBorn writes the birth record if there is none, and checks it against the configuration. If
// several nodes do so at the same time, one wins.
func (s *Store) beBorn(ctx context.Context) (b birth, err error) {
	births := s.births()
	mine := birth{ID: "birth", Layout: layout, Buckets: s.c.Buckets, Name: int64(rand.Uint32()), Sharded: s.sharded}
	_, err = births.UpdateOne(ctx, doc("_id", "birth"), doc("$setOnInsert", doc(
		"layout", mine.Layout, "buckets", mine.Buckets, "name", mine.Name, "whole", false, "sharded", mine.Sharded)),
		options.UpdateOne().SetUpsert(true))
	if err != nil && !driver.IsDuplicateKeyError(err) {
		return b, opening(err)
	}
	if err := births.FindOne(ctx, doc("_id", "birth")).Decode(&b); err != nil {
		return b, opening(err)
	}
	return b, s.checkBirth(b)
}

// checkBirth checks a birth record against the configuration and the server.
func (s *Store) checkBirth(b birth) error {
	name := s.messages.Database().Name()
	switch {
	case b.Sharded && !s.sharded:
		return postdate.E(postdate.KindInvalid, "the store in the database %s is sharded, "+
			"and this address leads past the mongos to one of its shards: use that of the mongos", name)
	case b.Layout > layout:
		return postdate.E(postdate.KindInvalid, "the store in the database %s has layout %d, and this version of "+
			"postdate knows %d: use the version that wrote it, or name another database", name, b.Layout, layout)
	case b.Buckets != s.c.Buckets:
		return postdate.E(postdate.KindInvalid, "the store in the database %s has %d buckets, fixed at its birth, "+
			"and the setting is %d: use --buckets %d", name, b.Buckets, s.c.Buckets, b.Buckets)
	case b.Layout == layoutUnderway:
		return postdate.E(postdate.KindInvalid, "the store in the database %s is being converted, or its conversion "+
			"was interrupted: run `postdate store init` with its address once more, and wait for its end", name)
	case b.Layout < layout:
		return postdate.E(postdate.KindInvalid,
			"the store in the database %s was written by an earlier version of postdate (layout %d, this one is %d): "+
				"stop all nodes and run `postdate store init` with its address once", name, b.Layout, layout)
	case s.sharded && !b.Sharded:
		return postdate.E(postdate.KindInvalid,
			"the store in the database %s was made on a replica set, and this is the address of a mongos: stop all "+
				"nodes and run `postdate store init` with this address once, "+
				"which registers its ids and shards it", name)
	}
	return nil
}

// createPartitions writes the partition records, once in the store's life: a record that was
// written again would restart its token, and fence off nobody.
func (s *Store) createPartitions(ctx context.Context, b birth) error {
	n, err := s.partitions.CountDocuments(ctx, doc())
	if err != nil {
		return opening(err)
	}
	if b.Whole {
		if n != int64(b.Buckets) {
			return postdate.E(postdate.KindInternal,
				"the store in the database %s has %d partition records and should have %d: "+
					"it was damaged, and is not used; restore it from a backup",
				s.messages.Database().Name(), n, b.Buckets)
		}
		return nil
	}
	var records []partition
	for i := range b.Buckets {
		records = append(records, partition{Bucket: i})
	}
	if _, err := s.partitions.InsertMany(ctx, records, options.InsertMany().SetOrdered(false)); err != nil &&
		!driver.IsDuplicateKeyError(err) {
		return opening(err)
	}
	_, err = s.births().UpdateOne(ctx, doc("_id", "birth"), doc("$set", doc("whole", true)))
	return opening(err)
}

// buildTime bounds the building of indexes. It takes the longer the more messages there are, and the server gives a
// build up when the time of its call is over.
const buildTime = 24 * time.Hour

// buildIndexes creates the missing indexes, however long that takes.
func (s *Store) buildIndexes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	tell := time.AfterFunc(s.c.Select, func() {
		s.c.Log.Info("waiting for MongoDB, which builds an index over all messages, as a new version needs once")
	})
	defer tell.Stop()
	return s.within(ctx, s.createIndexes)
}

// createIndexes creates the missing indexes. A partial index has no entry for the messages that
// it leaves out: finished messages, in the end nearly all, are only in _id, in the index of the
// list and in that of the retention; what has labels, recurs or failed is in theirs too.
func (s *Store) createIndexes(ctx context.Context) error {
	where := func(filter bson.D) *options.IndexOptionsBuilder {
		return options.Index().SetPartialFilterExpression(filter)
	}
	there := doc("$exists", true)
	due := doc("bucket", 1, "due", 1, "_id", 1)
	if s.sharded {
		// With the shard key in the index, a shard can tell whether a message is its own
		// without reading the message.
		due = append(due, doc("executionTime", 1, "scheduleId", 1)...)
	}
	listed := doc("tenant", 1, "executionTime", 1, "bucket", 1, "_id", 1)
	indexes := []driver.IndexModel{
		{Keys: due, Options: where(doc("due", there)).SetName(s.dueIndex())},
		{Keys: doc("bucket", 1, "channel", 1, "attemptTime", 1, "_id", 1),
			Options: where(doc("parked", true)).SetName(indexParked)},
		{Keys: doc("bucket", 1, "settledAt", 1), Options: where(doc("settledAt", there)).SetName(indexSettled)},
		{Keys: listed, Options: options.Index().SetName(indexList)},
		{Keys: doc("tenant", 1, "labels", 1, "executionTime", 1, "bucket", 1, "_id", 1),
			Options: where(doc("labels", there)).SetName(indexLabel)},
		{Keys: listed, Options: where(doc("recurrence", there)).SetName(indexSeries)},
		{Keys: listed, Options: where(doc("status", int(postdate.DeliveryFailed))).SetName(indexFailed)},
	}
	if s.sharded {
		indexes = append(indexes, driver.IndexModel{
			Keys: messagesKey, Options: options.Index().SetName(indexShardKey),
		})
	}
	if _, err := s.messages.Indexes().CreateMany(ctx, indexes); err != nil {
		return err
	}
	if _, err := s.usage.Indexes().CreateOne(ctx, driver.IndexModel{Keys: doc("changed", 1)}); err != nil {
		return err
	}
	noted := driver.IndexModel{Keys: doc("bucket", 1, "notedAt", 1)}
	if _, err := s.requests.Indexes().CreateOne(ctx, noted); err != nil {
		return err
	}
	used := driver.IndexModel{Keys: doc("bucket", 1, "usedAt", 1)}
	if _, err := s.consumers.Indexes().CreateOne(ctx, used); err != nil {
		return err
	}
	jobs := []driver.IndexModel{
		{Keys: doc("open", 1, "bucket", 1), Options: where(doc("open", there)).SetName(indexOpen)},
		{Keys: doc("bucket", 1, "endedAt", 1)},
	}
	if _, err := s.jobs.Indexes().CreateMany(ctx, jobs); err != nil {
		return err
	}
	_, err := s.inboxes.Indexes().CreateOne(ctx, driver.IndexModel{
		Keys: doc("bucket", 1, "oldest", 1), Options: where(doc("oldest", there)).SetName(indexAged),
	})
	return err
}
