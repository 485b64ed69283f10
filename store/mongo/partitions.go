package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// partition is a bucket's record in the collection partitions.
type partition struct {
	Bucket     int           `bson:"_id"`
	Owner      string        `bson:"owner"`
	Token      int64         `bson:"token"`
	Lease      string        `bson:"lease"`
	Claims     int64         `bson:"claims"` // absent before claims had numbers
	Checkpoint postdate.Time `bson:"checkpoint"`
	Claimed    position      `bson:"claimed"`
	Behind     []routeTo     `bson:"behind,omitempty"`
	TakenBy    bson.ObjectID `bson:"takenBy"` // the call that acquired it: tells a contender whether that was its own
}

func (p *partition) record() bucket.Partition {
	r := bucket.Partition{
		Bucket: p.Bucket, Owner: p.Owner, Token: uint64(p.Token), Lease: p.Lease,
		Claims: uint64(p.Claims), Checkpoint: p.Checkpoint, Claimed: p.Claimed.place(),
	}
	for _, c := range p.Behind {
		if r.Behind == nil {
			r.Behind = make(map[postdate.Route]bucket.Position, len(p.Behind))
		}
		r.Behind[postdate.Route(c.Route)] = c.To.place()
	}
	return r
}

// position is a bucket.Position. The server compares such documents field by field, in
// this order, and strings by their bytes.
type position struct {
	T  postdate.Time `bson:"t"`
	ID string        `bson:"id"` // of a message; "": before all messages of that time
}

// routeTo is up to where one route is claimed. It is an element of an array, because routes cannot
// be names of fields.
type routeTo struct {
	Route string   `bson:"channel"`
	To    position `bson:"to"`
}

func placed(p bucket.Position) position {
	if p.Tenant == "" && p.ScheduleID == "" {
		return position{T: p.Time}
	}
	return position{T: p.Time, ID: idOf(postdate.Key{Tenant: p.Tenant, ScheduleID: p.ScheduleID})}
}

func (p position) place() bucket.Position {
	return bucket.PositionOf(keyOf(0, p.ID), p.T)
}

type lease struct {
	ID       string    `bson:"_id"`
	Renewals int64     `bson:"renewals"`
	Lasts    int64     `bson:"lasts"` // ms, rounded up; earlier versions wrote none
	At       time.Time `bson:"at"`    // of the server's clock
}

// leaseKept is how long the lease of a run that ended is kept: much longer than any lease time,
// so that nobody who watches one sees it vanish.
const leaseKept = 24 * time.Hour

// lookAt reads some partition records, within a session.
func (s *Store) lookAt(ctx context.Context, buckets []int) (map[int]*partition, error) {
	found := make(map[int]*partition, len(buckets))
	if len(buckets) == 0 {
		return found, nil
	}
	var all []partition
	err := s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.partitions.Find(ctx, doc("_id", anyOf(buckets)),
			options.Find().SetHint(indexID).SetBatchSize(int32(len(buckets)+1)))
		if err != nil {
			return err
		}
		return cursor.All(ctx, &all)
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		found[all[i].Bucket] = &all[i]
	}
	return found, nil
}

// Look implements store.Partitions.
func (s *Store) Look(ctx context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	var records map[int]*partition
	var leases []lease
	err := s.within(ctx, func(ctx context.Context) (err error) {
		if records, err = s.lookAt(ctx, buckets); err != nil {
			return err
		}
		return s.repeat(ctx, func(ctx context.Context) error {
			cursor, err := s.leases.Find(ctx, doc())
			if err != nil {
				return err
			}
			return cursor.All(ctx, &leases)
		})
	})
	if err != nil {
		return nil, nil, readError("reading the partition records", err)
	}
	ps, ls := make([]bucket.Partition, 0, len(records)), make([]bucket.Lease, len(leases))
	for _, p := range records {
		ps = append(ps, p.record())
	}
	for i, l := range leases {
		ls[i] = bucket.Lease{ID: l.ID, Renewals: uint64(l.Renewals), Lasts: time.Duration(l.Lasts) * time.Millisecond}
	}
	return ps, ls, nil
}

// Acquire implements store.Partitions. One command takes all buckets; who got each one is read
// back.
func (s *Store) Acquire(ctx context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	results := make([]store.Acquired, len(wants))
	for _, round := range rounds(len(wants), func(i int) int { return wants[i].Bucket }) {
		if err := s.acquire(ctx, wants, round, results); err != nil {
			return results, err
		}
	}
	return results, nil
}

func (s *Store) acquire(ctx context.Context, wants []store.Acquisition, round []int, results []store.Acquired) error {
	call := bson.NewObjectID()
	at := tableOf(round, func(i int) int { return wants[i].Bucket })
	seen := at.column(func(i int) any { return int64(wants[i].SeenToken) })
	update := bson.A{doc("$set", doc(
		"owner", at.column(func(i int) any { return wants[i].Owner }),
		"lease", at.column(func(i int) any { return wants[i].Lease }),
		"token", doc("$add", bson.A{"$token", int64(1)}),
		"takenBy", call,
	))}
	filter := doc("_id", anyOf(at.buckets), "$expr", doc("$eq", bson.A{"$token", seen}))
	var after map[int]*partition
	err := s.within(ctx, func(ctx context.Context) error {
		err := s.repeat(ctx, func(ctx context.Context) error {
			_, err := s.partitions.UpdateMany(ctx, filter, update, options.UpdateMany().SetHint(indexID))
			return err
		})
		if err != nil {
			return writeError("acquiring buckets", err)
		}
		after, err = s.lookAt(ctx, at.buckets)
		return unknown("acquiring buckets", err)
	})
	if err != nil {
		return writeError("acquiring buckets", err)
	}
	for _, i := range round {
		p := after[wants[i].Bucket]
		if p == nil {
			return postdate.E(postdate.KindInternal, "the store has no record of bucket %d", wants[i].Bucket)
		}
		results[i] = store.Acquired{Partition: p.record(), OK: p.TakenBy == call}
	}
	return nil
}

// Release implements store.Partitions.
func (s *Store) Release(ctx context.Context, holds []store.Hold) error {
	for _, round := range rounds(len(holds), func(i int) int { return holds[i].Bucket }) {
		at := tableOf(round, func(i int) int { return holds[i].Bucket })
		token := at.column(func(i int) any { return int64(holds[i].Token) })
		filter := doc("_id", anyOf(at.buckets), "$expr", doc("$eq", bson.A{"$token", token}))
		err := s.within(ctx, func(ctx context.Context) error {
			return s.repeat(ctx, func(ctx context.Context) error {
				_, err := s.partitions.UpdateMany(ctx, filter, doc("$set", doc("owner", "", "lease", "")),
					options.UpdateMany().SetHint(indexID))
				return err
			})
		})
		if err != nil {
			return writeError("releasing buckets", err)
		}
	}
	return nil
}

// Renew implements store.Partitions.
func (s *Store) Renew(ctx context.Context, l bucket.Lease) (postdate.Time, error) {
	lasts := (l.Lasts + time.Millisecond - 1).Milliseconds()
	update := bson.A{doc("$set", doc("renewals", doc("$max", bson.A{"$renewals", int64(l.Renewals)}), "lasts", lasts,
		"at", "$$NOW", "layout", layout))}
	var after lease
	err := s.within(ctx, func(ctx context.Context) error {
		return s.repeat(ctx, func(ctx context.Context) error {
			return s.leases.FindOneAndUpdate(ctx, doc("_id", l.ID), update,
				options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After).SetHint(indexID)).
				Decode(&after)
		})
	})
	if err != nil {
		return 0, writeError("renewing the lease", err)
	}
	return postdate.WallOf(after.At), nil
}

// forgetLeases removes the leases of runs that ended long ago.
func (s *Store) forgetLeases(ctx context.Context) error {
	_, err := s.leases.DeleteMany(ctx,
		doc("$expr", doc("$lt", bson.A{"$at", doc("$subtract", bson.A{"$$NOW", leaseKept.Milliseconds()})})))
	return err
}

// table gives an update of many partition records a different value for each.
type table struct {
	items   []int // in the order of buckets
	buckets []int
}

// tableOf is the table of some items, each with a different bucket.
func tableOf(items []int, bucketOf func(item int) int) *table {
	t := &table{items: items}
	for _, i := range items {
		t.buckets = append(t.buckets, bucketOf(i))
	}
	return t
}

// column is an expression that gives each record, by its _id, the value of its item.
func (t *table) column(value func(item int) any) any {
	values := make(bson.A, len(t.items))
	same := true
	for i, item := range t.items {
		values[i] = value(item)
		same = same && values[i] == values[0]
	}
	if same {
		return doc("$literal", values[0])
	}
	return t.pick(values)
}

// pick is column for values that exist already, in the order of the items.
func (t *table) pick(values bson.A) any {
	return doc("$arrayElemAt", bson.A{doc("$literal", values),
		doc("$indexOfArray", bson.A{doc("$literal", t.buckets), "$_id"})})
}

// rounds splits n items so that no two in a round have the same key, and those with the same
// key keep their order.
func rounds[K comparable](n int, key func(item int) K) [][]int {
	var all [][]int
	count := make(map[K]int, n)
	for i := range n {
		k := key(i)
		if count[k] == len(all) {
			all = append(all, nil)
		}
		all[count[k]] = append(all[count[k]], i)
		count[k]++
	}
	return all
}
