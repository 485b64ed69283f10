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
	old, err := s.requests.Find(ctx, doc("bucket", anyOf(e.Buckets), "notedAt", doc("$lt", e.SettledBefore)),
		options.Find().SetLimit(int64(e.Limit)).SetProjection(doc("_id", 1)))
	if err != nil {
		return 0, err
	}
	var found []request
	if err := old.All(ctx, &found); err != nil || len(found) == 0 {
		return 0, err
	}
	ids := make([]string, len(found))
	for i, r := range found {
		ids[i] = r.ID
	}
	return len(ids), s.repeat(ctx, func(ctx context.Context) error {
		_, err := s.requests.DeleteMany(ctx, doc("_id", anyOf(ids), "notedAt", doc("$lt", e.SettledBefore)),
			options.DeleteMany().SetHint(indexID))
		return err
	})
}
