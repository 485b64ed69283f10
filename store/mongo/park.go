package mongo

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Unpark implements store.Due. It checks the owner before anything moves. An owner that loses
// the bucket right then may make a message due that its successor had left parked, which delays
// nothing and sends nothing twice: see DESIGN.md.
func (s *Store) Unpark(ctx context.Context, u store.Unpark) (int, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var found []*document
	var records map[int]*partition
	err := s.all(ctx,
		func(ctx context.Context) (err error) {
			records, err = s.lookAt(ctx, []int{u.Bucket})
			return err
		},
		func(ctx context.Context) (err error) {
			found, err = s.find(ctx, doc("bucket", u.Bucket, "channel", string(u.Channel), "parked", true),
				options.Find().SetHint(indexParked).SetSort(doc("attemptTime", 1, "_id", 1)).
					SetLimit(int64(u.Limit)).SetBatchSize(int32(u.Limit+1)).SetProjection(shardKeyFields))
			return err
		})
	if err != nil {
		return 0, readError("unparking", err)
	}
	record, err := recordOf(records, u.Bucket)
	if err != nil {
		return 0, err
	}
	if !record.Holds(u.Token) {
		return 0, bucket.ErrFenced(u.Bucket)
	}
	if len(found) == 0 {
		return 0, nil
	}
	at := doc("$max", bson.A{u.At, "$executionTime"})
	unpark := change{
		where:  doc("status", int(postdate.Pending), "parked", true, "channel", string(u.Channel)),
		update: bson.A{doc("$set", doc("due", at, "attemptTime", at)), doc("$unset", "parked")},
	}
	for i := range found {
		unpark.targets = append(unpark.targets, targetOf(found[i]))
	}
	err = s.within(ctx, func(ctx context.Context) error {
		_, err := s.change(ctx, unpark)
		return err
	})
	return len(found), writeError("unparking", err) // including those that somebody changed meanwhile: fewer would say that no more are parked
}

// Parked implements store.Due. It first asks whether anything is parked at all, and only then
// walks from channel to channel.
func (s *Store) Parked(ctx context.Context, buckets []int) ([]store.ParkedChannel, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var found []store.ParkedChannel
	var mu sync.Mutex
	crowded, err := s.parkedBuckets(ctx, buckets)
	if err == nil {
		err = s.sideBySide(ctx, len(crowded), func(ctx context.Context, i int) error {
			for channel := ""; ; {
				next, ok, err := s.parkedAfter(ctx, crowded[i], channel)
				if err != nil || !ok {
					return err
				}
				mu.Lock()
				found = append(found, store.ParkedChannel{Bucket: crowded[i], Channel: postdate.Channel(next)})
				mu.Unlock()
				channel = next
			}
		})
	}
	return found, readError("reading what is parked", err)
}

// parkedBuckets returns those of the buckets in which something is parked. It steps from bucket
// to bucket: a single step if nothing is parked.
func (s *Store) parkedBuckets(ctx context.Context, buckets []int) (crowded []int, err error) {
	err = s.within(ctx, func(ctx context.Context) error {
		left := buckets
		for len(left) > 0 {
			first, err := s.firstParked(ctx, doc("bucket", anyOf(left), "parked", true), "bucket")
			if err != nil || first == nil {
				return err
			}
			crowded = append(crowded, first.Bucket)
			var above []int
			for _, b := range left {
				if b > first.Bucket {
					above = append(above, b)
				}
			}
			left = above
		}
		return nil
	})
	return crowded, err
}

// parkedAfter returns the next channel after the given one for which something is parked.
func (s *Store) parkedAfter(ctx context.Context, bucket int, channel string) (next string, ok bool, err error) {
	first, err := s.firstParked(ctx, doc("bucket", bucket, "parked", true, "channel", doc("$gt", channel)), "channel")
	if err != nil || first == nil {
		return "", false, err
	}
	return first.Channel, true, nil
}

// firstParked returns the first parked message in the order of a field, or nil. It passes
// over damaged ones.
func (s *Store) firstParked(ctx context.Context, filter bson.D, by string) (first *document, err error) {
	for first == nil || first.damaged != nil {
		found, err := s.find(ctx, filter,
			options.Find().SetHint(indexParked).SetSort(doc(by, 1)).SetLimit(1).SetProjection(doc("bucket", 1, "channel", 1)))
		if err != nil || len(found) == 0 {
			return nil, err
		}
		if first = found[0]; first.damaged != nil {
			s.report(first)
			filter = append(filter, bson.E{Key: "_id", Value: doc("$ne", first.ID)})
		}
	}
	return first, nil
}
