package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A recount counts all messages that are pending and corrects the documents of usage. It reads
// both in one snapshot of the server. A document may then differ from the count for two
// reasons: something was lost, which the recount is for, or a node has not shared yet what it
// changed before the snapshot. So it waits until that is shared, and reads the documents again.
//
//   - If the count lies between the two readings, what was shared meanwhile explains the
//     difference, and nothing is corrected.
//   - Otherwise it adds what lacks to the nearer reading. It adds, and does not set, so nothing
//     is lost of what nodes share at the same time.
//
// In a slot in which nothing changes meanwhile both readings are the same, and the correction
// is exact. In others what is left is less than what changed during the wait, and does not add
// up: the next recount measures it anew. Once a slot is quiet, the next recount makes it exact.

const (
	// recountEvery is the time from one recount to the next, whoever makes it.
	recountEvery = 10 * time.Minute
	// recountSoonest is that time if a node is unsure.
	recountSoonest = 30 * time.Second
	// recountLook is how often a node looks whether it is time.
	recountLook = 10 * time.Second
	// recountMax bounds a recount. A server keeps a snapshot for five minutes.
	recountMax = 4 * time.Minute
	// recountSettle is how long it waits until what was changed before is shared.
	recountSettle = 3 * time.Second
	// recountBuckets are counted by one command, and recountRest is the pause before the next:
	// others have the server meanwhile.
	recountBuckets = 4
	recountRest    = 20 * time.Millisecond
	// zeroKept is how long a document that says zero is kept: longer than a node that reads
	// only what changed goes without reading everything.
	zeroKept = 5 * readAllEvery
)

// recountID is the _id of the document, among those of usage, that says when it is time. It is
// no slot's: it has no zero byte.
const recountID = "recount"

// takeRecount says whether it is time, and whether this node was the first to see it. If soon,
// it is time earlier.
func (s *Store) takeRecount(ctx context.Context, soon bool) (mine bool, err error) {
	next := any("$next")
	if soon {
		next = doc("$min", bson.A{"$next", doc("$add", bson.A{"$began", recountSoonest.Milliseconds()})})
	}
	due := doc("$lt", bson.A{next, "$$NOW"})
	err = s.within(ctx, func(ctx context.Context) error {
		r, err := s.usage.UpdateOne(ctx, doc("_id", recountID, "$expr", due), bson.A{doc("$set", doc(
			"began", "$$NOW", "next", doc("$add", bson.A{"$$NOW", recountEvery.Milliseconds()})))},
			options.UpdateOne().SetHint(indexID))
		if err != nil || r.MatchedCount == 1 {
			mine = err == nil
			return err
		}
		_, err = s.usage.UpdateOne(ctx, doc("_id", recountID), doc("$setOnInsert",
			doc("began", bson.DateTime(0), "next", bson.DateTime(0))),
			options.UpdateOne().SetUpsert(true).SetHint(indexID))
		if driver.IsDuplicateKeyError(err) {
			return nil
		}
		return err
	})
	return mine, err
}

// recount counts and corrects. settle is how long it waits for what is not shared yet.
func (s *Store) recount(ctx context.Context, settle time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, recountMax)
	defer cancel()
	counted, first, err := s.countPending(ctx)
	if err != nil {
		return readError("counting what is pending", err)
	}
	if !pause(ctx, settle) {
		return readError("counting what is pending", ctx.Err())
	}
	return s.within(ctx, func(ctx context.Context) error {
		second, err := s.findCounts(ctx, doc())
		if err != nil {
			return readError("reading what is pending", err)
		}
		if err := s.addCounts(ctx, corrections(counted, first, second)); err != nil {
			return writeError("correcting what is pending", err)
		}
		// Every node must have read that it is zero before it may go.
		old := doc("$lt", bson.A{"$changed", doc("$subtract", bson.A{"$$NOW", zeroKept.Milliseconds()})})
		_, err = s.usage.DeleteMany(ctx, doc("messages", int64(0), "bytes", int64(0), "$expr", old))
		return writeError("correcting what is pending", err)
	})
}

// corrections are what lacks in the documents.
func corrections(counted, first, second map[string]usageDocument) (changes []store.Change) {
	ids := map[string]bool{}
	for _, some := range []map[string]usageDocument{counted, first, second} {
		for id := range some {
			ids[id] = true
		}
	}
	for id := range ids {
		lacking := usageDocument{
			ID:       id,
			Messages: lack(counted[id].Messages, first[id].Messages, second[id].Messages),
			Bytes:    lack(counted[id].Bytes, first[id].Bytes, second[id].Bytes),
		}
		if c, ok := lacking.change(1); ok && !c.Nothing() {
			changes = append(changes, c)
		}
	}
	return changes
}

// lack is what is to be added so that the count lies between two readings.
func lack(counted, first, second int64) int64 {
	switch low, high := min(first, second), max(first, second); {
	case counted < low:
		return counted - low
	case counted > high:
		return counted - high
	}
	return 0
}

// countPending counts messages, and reads the documents, in one snapshot.
func (s *Store) countPending(ctx context.Context) (counted, documents map[string]usageDocument, err error) {
	// The snapshot of the last write that this process saw. One that the server chose could be
	// older than the write that this node is in doubt of.
	at := doc("level", "snapshot", "atClusterTime", s.latest())
	cursor, err := s.messages.Database().RunCommandCursor(ctx, doc("find", s.usage.Name(), "readConcern", at))
	if err == nil {
		documents, err = readUsage(ctx, cursor)
	}
	if err != nil {
		return nil, nil, err
	}
	counted = map[string]usageDocument{}
	for from := 0; from < s.c.Buckets; from += recountBuckets {
		if from > 0 && !rest(ctx, recountRest) {
			return nil, nil, ctx.Err()
		}
		var buckets []int
		for b := from; b < min(from+recountBuckets, s.c.Buckets); b++ {
			buckets = append(buckets, b)
		}
		if err := s.countBuckets(ctx, buckets, at, counted); err != nil {
			return nil, nil, err
		}
	}
	return counted, documents, nil
}

// countedChannel is what a tenant has pending for a channel, in some buckets.
type countedChannel struct {
	ID struct {
		Tenant  bson.RawValue `bson:"tenant"`
		Channel bson.RawValue `bson:"channel"`
	} `bson:"_id"`
	Messages int64 `bson:"messages"`
	Bytes    int64 `bson:"bytes"`
}

// payloadBytesOf is the size of a message's payload, for an aggregation or a projection.
var payloadBytesOf = doc("$cond", bson.A{doc("$eq", bson.A{doc("$type", "$payload"), "binData"}),
	doc("$binarySize", "$payload"), doc("$ifNull", bson.A{"$largeBytes", 0})})

// countBuckets adds what is pending in some buckets.
func (s *Store) countBuckets(ctx context.Context, buckets []int, at bson.D,
	counted map[string]usageDocument) error {
	pipeline := bson.A{
		doc("$match", doc("bucket", anyOf(buckets), "due", doc("$exists", true))),
		doc("$group", doc("_id", doc("tenant", "$tenant", "channel", "$channel"),
			"messages", doc("$sum", 1), "bytes", doc("$sum", payloadBytesOf))),
	}
	cursor, err := s.messages.Database().RunCommandCursor(ctx, doc("aggregate", s.messages.Name(), "pipeline", pipeline,
		"cursor", doc(), "hint", s.dueIndex(), "allowDiskUse", true, "readConcern", at))
	if err != nil {
		return err
	}
	defer cursor.Close(ctx)
	var former []countedChannel
	for cursor.Next(ctx) {
		var c countedChannel
		if err := cursor.Decode(&c); err != nil {
			return err
		}
		tenant, _ := c.ID.Tenant.StringValueOK() // a damaged message may have none
		channel, _ := c.ID.Channel.StringValueOK()
		if tenant != "" && channel != "" && postdate.Route(channel).Tenant() != tenant {
			former = append(former, c)
		}
		id := usageID(tenant, store.SlotOf(postdate.Route(channel).Channel(), s.birth))
		sum := counted[id]
		sum.Messages += c.Messages
		sum.Bytes += c.Bytes
		counted[id] = sum
	}
	if err := cursor.Err(); err != nil {
		return err
	}
	return s.routeFormer(ctx, buckets, former)
}

// routeFormer gives messages of an earlier version their routes. It wrote the channel alone,
// whoever the tenant was, so what the default tenant's messages wait for would hold them up.
func (s *Store) routeFormer(ctx context.Context, buckets []int, former []countedChannel) error {
	for _, f := range former {
		route := postdate.RouteOf(f.ID.Tenant.StringValue(), postdate.Channel(f.ID.Channel.StringValue()))
		err := s.within(ctx, func(ctx context.Context) error {
			return s.repeat(ctx, func(ctx context.Context) error {
				_, err := s.messages.UpdateMany(ctx, doc("bucket", anyOf(buckets), "due", doc("$exists", true),
					"tenant", f.ID.Tenant, "channel", f.ID.Channel), doc("$set", doc("channel", string(route))),
					options.UpdateMany().SetHint(s.dueIndex()))
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keepCounts shares once every c.Share until the store is closed.
func (s *Store) keepCounts() {
	failed := false
	for pause(s.life, s.c.Share) {
		err := s.share(s.life)
		if err != nil && !failed && s.life.Err() == nil {
			s.c.Log.Warn("what tenants have pending is not shared with other nodes at present", "error", err)
		}
		failed = err != nil
	}
}

// keepRecounting counts anew whenever it is time and no other node does.
func (s *Store) keepRecounting() {
	for pause(s.life, recountLook) {
		soon := s.counts.unsure.Swap(false)
		mine, err := s.takeRecount(s.life, soon)
		if soon && !mine {
			s.doubt() // too early, or another node began before this one was in doubt
		}
		if mine {
			err = s.recount(s.life, recountSettle)
		}
		if err != nil && s.life.Err() == nil {
			s.c.Log.Warn("what tenants have pending was not counted anew; it is tried again", "error", err)
		}
	}
}

// pause waits, and says whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
