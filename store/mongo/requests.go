package mongo

import (
	"context"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// request is what an idempotency key stands for.
type request struct {
	ID      string        `bson:"_id"` // as that of a message
	Bucket  int           `bson:"bucket"`
	Digest  []byte        `bson:"digest"`
	NotedAt postdate.Time `bson:"notedAt"`
}

// NoteRequest implements store.Requests.
func (s *Store) NoteRequest(ctx context.Context, key postdate.Key, digest postdate.Digest,
	now postdate.Time) (kept postdate.Digest, err error) {
	var there request
	mine := request{ID: idOf(key), Bucket: key.Bucket, Digest: digest[:], NotedAt: now}
	note := func(ctx context.Context) error {
		return s.requests.FindOneAndUpdate(ctx, doc("_id", mine.ID), doc("$setOnInsert", mine),
			options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetHint(indexID)).Decode(&there)
	}
	err = s.within(ctx, func(ctx context.Context) error {
		err := s.repeat(ctx, note)
		if driver.IsDuplicateKeyError(err) { // two came at once: the other one is there now
			err = s.repeat(ctx, note)
		}
		return err
	})
	copy(kept[:], there.Digest)
	return kept, writeError("noting an idempotency key", err)
}

// expireRequests deletes the requests that e selects.
func (s *Store) expireRequests(ctx context.Context, e *store.Expiry) (int, error) {
	return s.expireFrom(ctx, s.requests, "notedAt", e.SettledBefore, e)
}

// expireFrom deletes what a collection has in the buckets of e from before a time, up to the limit of e, and returns
// how much that was. There is an index of bucket and of the field with the time.
func (s *Store) expireFrom(ctx context.Context, from *driver.Collection, field string, before postdate.Time,
	e *store.Expiry) (int, error) {
	old, err := from.Find(ctx, doc("bucket", anyOf(e.Buckets), field, doc("$lt", before)),
		options.Find().SetLimit(int64(e.Limit)).SetProjection(doc("_id", 1)))
	if err != nil {
		return 0, err
	}
	var found []struct {
		ID string `bson:"_id"`
	}
	if err := old.All(ctx, &found); err != nil || len(found) == 0 {
		return 0, err
	}
	ids := make([]string, len(found))
	for i, d := range found {
		ids[i] = d.ID
	}
	return len(ids), s.repeat(ctx, func(ctx context.Context) error {
		_, err := from.DeleteMany(ctx, doc("_id", anyOf(ids), field, doc("$lt", before)),
			options.DeleteMany().SetHint(indexID))
		return err
	})
}
