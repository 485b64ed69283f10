package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const (
	// commonMax bounds how many messages the read that all buckets share returns.
	// Buckets that it does not come to are read alone.
	commonMax = 2_000
	// rangesMax bounds how many buckets share a read: a command of too many ranges is
	// not answered in the order of the index.
	rangesMax = 128
	// passedMax is how many messages more than its limit a scan looks at where it
	// passes some over.
	passedMax = 1_000
	// aloneMax bounds how many reads of single buckets are under way at a time.
	aloneMax = 8
)

// scan is one bucket's scan on its way.
type scan struct {
	*store.Scan
	bucket int
	token  uint64
	to     postdate.Time // To, and no further than what is claimed

	found    []*document   // in order, from After on
	reached  bool          // found goes on to to
	next     postdate.Time // the first message beyond to
	chosen   []*document
	skipped  map[postdate.Channel]bucket.Position
	ended    bucket.Position
	complete bool
}

// examinedMax is how many messages the scan looks at.
func (c *scan) examinedMax() int {
	if len(c.Skip) > 0 {
		return c.Limit + passedMax
	}
	return c.Limit
}

// rangesOf are the ranges of the due index that scans look at: one for all buckets
// that are at the same time, and two for one that goes on within a millisecond.
func rangesOf(scans []*scan) (ranges []bson.D) {
	type times struct{ from, to postdate.Time }
	together := map[times][]int{}
	for _, c := range scans {
		after := c.After
		if after.ScheduleID == "" && after.Tenant == "" {
			at := times{after.Time, c.to}
			together[at] = append(together[at], c.bucket)
			continue
		}
		id := idOf(postdate.Key{Tenant: after.Tenant, ScheduleID: after.ScheduleID})
		if after.Time <= c.to {
			ranges = append(ranges, doc("bucket", c.bucket, "due", int64(after.Time), "_id", doc("$gt", id)))
		}
		ranges = append(ranges, doc("bucket", c.bucket, "due", doc("$gt", int64(after.Time), "$lte", int64(c.to))))
	}
	for at, buckets := range together {
		ranges = append(ranges, doc("bucket", anyOf(buckets), "due", doc("$gte", int64(at.from), "$lte", int64(at.to))))
	}
	return ranges
}

var (
	orderDue = doc("bucket", 1, "due", 1, "_id", 1)
	// lightly leaves out what is read only once it is known to fit.
	lightly = doc("large", 0)
)

// readsOf are the reads of some scans: one for all that had room on their last
// page, one for each other, and one of what comes next.
func (s *Store) readsOf(scans []*scan) []func(ctx context.Context) error {
	var common, alone []*scan
	s.crowdedMu.Lock()
	for _, c := range scans {
		if _, crowded := s.crowded[c.bucket]; crowded && len(scans) > 1 {
			alone = append(alone, c)
		} else {
			common = append(common, c)
		}
	}
	s.crowdedMu.Unlock()
	reads := []func(ctx context.Context) error{}
	for some := range slices.Chunk(common, rangesMax) {
		reads = append(reads, func(ctx context.Context) error { return s.readCommon(ctx, some) })
	}
	if len(alone) > 0 {
		reads = append(reads, func(ctx context.Context) error { return s.readAlone(ctx, alone) })
	}
	byTo := map[postdate.Time][]*scan{}
	for _, c := range scans {
		byTo[c.to] = append(byTo[c.to], c)
	}
	for to, some := range byTo {
		reads = append(reads, func(ctx context.Context) error { return s.readNext(ctx, to, some) })
	}
	return reads
}

// readCommon reads what is due in several buckets with one command.
func (s *Store) readCommon(ctx context.Context, scans []*scan) error {
	byBucket := make(map[int]*scan, len(scans))
	limit := 0
	for _, c := range scans {
		byBucket[c.bucket] = c
		limit += c.examinedMax()
	}
	limit = min(limit, max(commonMax, scans[0].examinedMax()))
	all, err := s.findDue(ctx, rangesOf(scans), limit)
	if err != nil {
		return err
	}
	for _, d := range all {
		c := byBucket[d.Bucket]
		c.found = append(c.found, d)
	}
	if len(all) < limit {
		for _, c := range scans {
			c.reached = true
		}
		return nil
	}
	// Not everything came. Buckets below the last message's did; that one may have
	// more, which is for the next page; those above were not looked at.
	last := all[len(all)-1].Bucket
	var rest []*scan
	for _, c := range scans {
		c.reached = c.bucket < last
		if c.bucket > last {
			rest = append(rest, c)
		}
	}
	return s.readAlone(ctx, rest)
}

// readAlone reads each bucket with a command of its own, several at a time.
func (s *Store) readAlone(ctx context.Context, scans []*scan) error {
	return s.sideBySide(ctx, len(scans), func(ctx context.Context, i int) error {
		c := scans[i]
		limit := c.examinedMax()
		found, err := s.findDue(ctx, rangesOf(scans[i:i+1]), limit)
		c.found, c.reached = found, len(found) < limit
		return err
	})
}

// sideBySide runs f for n items, aloneMax at a time.
func (s *Store) sideBySide(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	for from := 0; from < n; from += aloneMax {
		var some []func(ctx context.Context) error
		for i := from; i < min(from+aloneMax, n); i++ {
			some = append(some, func(ctx context.Context) error { return f(ctx, i) })
		}
		if err := s.all(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) findDue(ctx context.Context, ranges []bson.D, limit int) ([]*document, error) {
	filter := ranges[0]
	if len(ranges) > 1 {
		filter = doc("$or", ranges)
	}
	var all []*document
	err := s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.messages.Find(ctx, filter, options.Find().SetHint(indexDue).SetSort(orderDue).
			SetProjection(lightly).SetLimit(int64(limit)).SetBatchSize(int32(limit+1)))
		if err != nil {
			return err
		}
		return cursor.All(ctx, &all)
	})
	return all, err
}

// readNext finds the first message beyond to in each bucket: a walk along the index
// that takes one step per bucket.
func (s *Store) readNext(ctx context.Context, to postdate.Time, scans []*scan) error {
	byBucket := make(map[int]*scan, len(scans))
	var buckets []int
	for _, c := range scans {
		byBucket[c.bucket] = c
		buckets = append(buckets, c.bucket)
	}
	var all []struct {
		Bucket int   `bson:"_id"`
		Due    int64 `bson:"due"`
	}
	err := s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.messages.Aggregate(ctx, bson.A{
			doc("$match", doc("bucket", anyOf(buckets), "due", doc("$gt", int64(to)))),
			doc("$sort", doc("bucket", 1, "due", 1)),
			doc("$group", doc("_id", "$bucket", "due", doc("$first", "$due"))),
		}, options.Aggregate().SetHint(indexDue))
		if err != nil {
			return err
		}
		return cursor.All(ctx, &all)
	})
	if err != nil {
		return err
	}
	for _, n := range all {
		byBucket[n.Bucket].next = postdate.Time(n.Due)
	}
	return nil
}

// complete makes pages of what was found: it cuts them, takes away what others are
// about to change, and reads large payloads.
func (s *Store) complete(ctx context.Context, scans []*scan) error {
	s.noteCrowded(scans)
	for _, c := range scans {
		c.cut()
	}
	if err := s.overtake(ctx, scans); err != nil {
		return err
	}
	return s.readLarge(ctx, scans)
}

func (s *Store) noteCrowded(scans []*scan) {
	s.crowdedMu.Lock()
	defer s.crowdedMu.Unlock()
	for _, c := range scans {
		if c.reached {
			delete(s.crowded, c.bucket)
		} else {
			s.crowded[c.bucket] = struct{}{}
		}
	}
}

// cut ends the page at its limits.
func (c *scan) cut() {
	bytes := 0
	for n, d := range c.found {
		at := bucket.Position{Time: postdate.Time(d.AttemptTime), Tenant: d.Tenant, ScheduleID: d.ScheduleID}
		c.ended = at
		if _, skip := c.Skip[postdate.Channel(d.Channel)]; skip {
			if _, noted := c.skipped[postdate.Channel(d.Channel)]; !noted {
				if c.skipped == nil {
					c.skipped = map[postdate.Channel]bucket.Position{}
				}
				c.skipped[postdate.Channel(d.Channel)] = at
			}
		} else {
			c.chosen = append(c.chosen, d)
			bytes += d.payloadBytes()
			if len(c.chosen) >= c.Limit || bytes >= c.BytesMax {
				return
			}
		}
		if n == len(c.found)-1 && !c.reached {
			return
		}
	}
	c.complete, c.ended = true, bucket.Position{Time: c.to + 1}
}

func (c *scan) result() store.ClaimResult {
	r := store.ClaimResult{Skipped: c.skipped, Ended: c.ended, Complete: c.complete, Next: c.next}
	for _, d := range c.chosen {
		r.Due = append(r.Due, d.record())
	}
	return r
}
