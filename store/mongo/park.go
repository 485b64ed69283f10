package mongo

import (
	"context"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// notBeforeFields are those that say before which time a message must not be sent, and its target.
var notBeforeFields = append(slices.Clone(shardKeyFields), doc("occurrence", 1, "run", 1, "recurrence", 1)...)

// Unpark implements store.Due. It checks the owner before anything moves. An owner that loses
// the bucket right then may make a message due that its successor had left parked, which delays
// nothing and sends nothing twice: see DESIGN.md.
func (s *Store) Unpark(ctx context.Context, u store.Unpark) (n, early int, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var found []*document
	var records map[int]*partition
	err = s.all(ctx,
		func(ctx context.Context) (err error) {
			records, err = s.lookAt(ctx, []int{u.Bucket})
			return err
		},
		func(ctx context.Context) (err error) {
			found, err = s.find(ctx, doc("bucket", u.Bucket, "channel", string(u.Route), "parked", true),
				options.Find().SetHint(indexParked).SetSort(doc("attemptTime", 1, "_id", 1)).
					SetLimit(int64(u.Limit)).SetBatchSize(int32(u.Limit+1)).SetProjection(notBeforeFields))
			return err
		})
	if err != nil {
		return 0, 0, readError("unparking", err)
	}
	record, err := recordOf(records, u.Bucket)
	if err != nil {
		return 0, 0, err
	}
	if !record.Holds(u.Token) {
		return 0, 0, bucket.ErrFenced(u.Bucket)
	}
	if len(found) == 0 {
		return 0, 0, nil
	}
	at := doc("$max", bson.A{u.At, "$executionTime", "$occurrence"})
	unpark := change{
		where:  doc("status", int(postdate.Pending), "parked", true, "channel", string(u.Route)),
		update: bson.A{doc("$set", doc("due", at, "attemptTime", at)), doc("$unset", "parked")},
	}
	for i := range found {
		unpark.targets = append(unpark.targets, targetOf(found[i]))
		if max(found[i].ExecutionTime, found[i].Occurrence) > u.At {
			early++
		}
	}
	err = s.within(ctx, func(ctx context.Context) error {
		_, err := s.change(ctx, unpark)
		return err
	})
	// including those that somebody changed meanwhile: fewer would say that no more are parked
	return len(found), early, writeError("unparking", err)
}

// Parked implements store.Due. It first asks whether anything is parked at all, and only then
// walks from route to route.
func (s *Store) Parked(ctx context.Context, buckets []int) ([]store.ParkedRoute, error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var found []store.ParkedRoute
	var mu sync.Mutex
	crowded, err := s.parkedBuckets(ctx, buckets)
	if err == nil {
		err = s.sideBySide(ctx, len(crowded), func(ctx context.Context, i int) error {
			for after, page := "", 1; ; {
				routes, err := s.parkedAfter(ctx, crowded[i], after, page)
				if err != nil || len(routes) == 0 {
					return err
				}
				mu.Lock()
				for _, route := range routes {
					found = append(found, store.ParkedRoute{Bucket: crowded[i], Route: postdate.Route(route)})
				}
				mu.Unlock()
				after = routes[len(routes)-1]
				if page = min(2*page, parkedPage); 4*len(routes) < page { // many are on the same route
					page = 1
				}
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
			first, err := s.readParked(ctx, doc("bucket", anyOf(left), "parked", true), "bucket", 1)
			if err != nil || len(first) == 0 {
				return err
			}
			crowded = append(crowded, first[0].Bucket)
			var above []int
			for _, b := range left {
				if b > first[0].Bucket {
					above = append(above, b)
				}
			}
			left = above
		}
		return nil
	})
	return crowded, err
}

// parkedPage is how many parked messages are read at a time, at most, to see their routes. With
// one at a time, messages that each have a route of their own would take a round trip each.
const parkedPage = 100

// parkedAfter returns routes after the given one, in order, on which something is parked: at
// least the next one, unless there is none. It reads page messages.
func (s *Store) parkedAfter(ctx context.Context, bucket int, route string, page int) (routes []string, err error) {
	found, err := s.readParked(ctx, doc("bucket", bucket, "parked", true, "channel", doc("$gt", route)),
		"channel", page)
	for _, d := range found {
		routes = append(routes, d.Route)
	}
	return slices.Compact(routes), err
}

// readParked returns the first parked messages in the order of a field: at most limit, and at
// least one, unless there is none. It passes over damaged ones.
func (s *Store) readParked(ctx context.Context, filter bson.D, by string, limit int) (sound []*document, err error) {
	for len(sound) == 0 {
		found, err := s.find(ctx, filter, options.Find().SetHint(indexParked).SetSort(doc(by, 1)).
			SetLimit(int64(limit)).SetBatchSize(int32(limit+1)).SetProjection(doc("bucket", 1, "channel", 1)))
		if err != nil || len(found) == 0 {
			return nil, err
		}
		var seen []string
		for _, d := range found {
			seen = append(seen, d.ID)
		}
		sound = s.sound(found)
		filter = append(filter, bson.E{Key: "_id", Value: doc("$nin", seen)})
	}
	return sound, nil
}
