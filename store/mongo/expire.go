package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// expireSegments is how many segments one find returns.
const expireSegments = 16

// Expire implements store.Housekeeping. The owner of bucket 0 also deletes the leases of runs
// that ended long ago: one node is enough.
func (s *Store) Expire(ctx context.Context, e store.Expiry) (int, error) {
	if len(e.Buckets) == 0 {
		return 0, nil
	}
	messages, letters, requests, all := 0, 0, 0, false
	ctx, cancel := s.bound(ctx)
	defer cancel()
	err := s.within(ctx, func(ctx context.Context) (err error) {
		if messages, err = s.expireMessages(ctx, &e); err != nil {
			return err
		}
		if letters, all, err = s.expireInboxes(ctx, &e); err != nil {
			return err
		}
		if requests, err = s.expireRequests(ctx, &e); err != nil {
			return err
		}
		if all {
			if err := s.expireConsumers(ctx, &e); err != nil {
				return err
			}
		}
		if err := s.expireJobs(ctx, &e); err != nil {
			return err
		}
		if slices.Contains(e.Buckets, 0) {
			return s.forgetLeases(ctx)
		}
		return nil
	})
	return messages + letters + requests, writeError("expiring", err)
}

func (s *Store) expireMessages(ctx context.Context, e *store.Expiry) (int, error) {
	old, err := s.find(ctx, doc("bucket", anyOf(e.Buckets), "settledAt", doc("$lt", e.SettledBefore)),
		options.Find().SetHint(indexSettled).SetLimit(int64(e.Limit)).SetBatchSize(int32(e.Limit+1)).
			SetProjection(doc("bucket", 1)))
	old = s.sound(old)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	var keys keyed
	for _, d := range old {
		keys.add(keyOf(d.Bucket, d.ID))
	}
	filter := append(keys.filter(), bson.E{Key: "settledAt", Value: doc("$lt", e.SettledBefore)})
	return s.deleteAll(ctx, filter, len(old))
}

// deleteAll deletes the messages that a filter selects, of which there are at most n.
func (s *Store) deleteAll(ctx context.Context, filter bson.D, n int) (deleted int, err error) {
	if s.sharded {
		return s.deleteSharded(ctx, filter, n)
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		r, err := s.messages.DeleteMany(ctx, filter, options.DeleteMany().SetHint(indexID))
		if err == nil {
			deleted += int(r.DeletedCount)
		}
		return err
	})
	return deleted, err
}

// Forget implements store.Messages. Only the driver repeats the deletion: it knows if its first try went through,
// which would else look as if somebody had been quicker.
func (s *Store) Forget(ctx context.Context, key postdate.Key, ifVersion uint64) error {
	var keys keyed
	keys.add(key)
	return s.within(ctx, func(ctx context.Context) error {
		deleted, err := s.forget(ctx, append(keys.filter(),
			doc("version", int64(ifVersion), "settledAt", doc("$type", "date"))...))
		if err != nil || deleted == 1 {
			return writeError("forgetting", err)
		}
		found, err := s.read(ctx, &keys, stateFields)
		if err != nil {
			return unreachable("forgetting", err)
		}
		if err := checkAt(key, found[idOf(key)], ifVersion, store.CheckFinal); err != nil {
			return err
		}
		return store.ErrChanged(key) // it has come to that since
	})
}

// forget deletes one message.
func (s *Store) forget(ctx context.Context, filter bson.D) (deleted int, err error) {
	if s.sharded {
		return s.deleteSharded(ctx, filter, 1)
	}
	err = s.once(ctx, func(ctx context.Context) error {
		r, err := s.messages.DeleteOne(ctx, filter, options.DeleteOne().SetHint(indexID))
		if err == nil {
			deleted = int(r.DeletedCount)
		}
		return err
	})
	return deleted, err
}

// expireInboxes removes old messages from the fronts of inboxes. An inbox's last segment stays,
// so that its numbers go on. A segment written before segments named their bucket belongs to
// bucket 0. all says that nothing is left of what e selects.
func (s *Store) expireInboxes(ctx context.Context, e *store.Expiry) (expired int, all bool, err error) {
	var buckets []any
	for _, b := range e.Buckets {
		buckets = append(buckets, b)
		if b == 0 {
			buckets = append(buckets, nil) // matches a segment without a bucket
		}
	}
	for expired < e.Limit {
		cursor, err := s.inboxes.Find(ctx, doc("bucket", anyOf(buckets), "oldest", doc("$lt", e.DeliveredBefore)),
			options.Find().
				SetHint(indexAged).SetLimit(expireSegments).SetProjection(doc("messages.at", 1, "start", 1, "base", 1,
				"count", 1)))
		if err != nil {
			return expired, false, err
		}
		var old []segment
		if err := cursor.All(ctx, &old); err != nil || len(old) == 0 {
			return expired, err == nil, err
		}
		taken := 0
		for i := range old {
			n, err := s.expireSegment(ctx, &old[i], e.DeliveredBefore, e.Limit-expired-taken)
			if err != nil {
				return expired + taken, false, err
			}
			taken += n
		}
		if taken == 0 {
			return expired, false, nil
		}
		expired += taken
	}
	return expired, false, nil
}

// expireSegment removes up to limit messages from one segment, and deletes the segments before
// it that are empty.
func (s *Store) expireSegment(ctx context.Context, g *segment, before postdate.Time, limit int) (int, error) {
	n := 0
	for n < min(len(g.Messages), limit) && g.Messages[n].DeliveredAt < before {
		n++
	}
	if n == 0 {
		return 0, nil
	}
	first := doc("$let", doc("vars", doc("m", doc("$arrayElemAt", bson.A{"$messages", 0})),
		"in", doc("$ifNull", bson.A{"$$m.at", "$$REMOVE"})))
	r, err := s.inboxes.UpdateOne(ctx, doc("_id", g.ID, "base", g.Base), bson.A{
		doc("$set", doc("messages", doc("$slice", bson.A{"$messages", n, segmentMessages * segmentMessages}),
			"base", g.Base+int64(n))),
		doc("$set", doc("oldest", first)),
	}, options.UpdateOne().SetHint(indexID))
	if err != nil || r.MatchedCount == 0 {
		return 0, err
	}
	inbox := g.ID[:len(g.ID)-16]
	_, err = s.inboxes.DeleteMany(ctx, doc("_id", doc("$gte", inbox, "$lt", g.ID), "oldest", doc("$exists", false)),
		options.DeleteMany().SetHint(indexID))
	return n, err
}
