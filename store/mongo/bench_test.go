package mongo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// The benchmarks compare the store with the bare driver, in code written by hand as well as
// possible, against the same servers in the same run:
//
//	go test ./store/mongo -run '^$' -bench . -benchtime 3s
//
// POSTDATE_BENCH_MEMBERS sets the size of the replica set: 1 by default.

func benchMembers() int {
	if n, err := strconv.Atoi(os.Getenv("POSTDATE_BENCH_MEMBERS")); err == nil {
		return n
	}
	return 1
}

// bench is a store, and the bare driver in a collection of its own with the same
// indexes.
type bench struct {
	*mongo.Store
	bare *driver.Collection
	next atomic.Int64
}

func newBench(b *testing.B) *bench {
	uri := mongotest.URI(b, benchMembers())
	c := config(uri)
	c.Buckets = postdate.BucketsDefault
	s := open(b, c)
	b.Cleanup(func() { s.Close() })
	journal := true
	client, err := driver.Connect(options.Client().ApplyURI(uri).SetReadConcern(readconcern.Majority()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journal}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Disconnect(context.Background()) })
	bare := client.Database("bare").Collection(fmt.Sprintf("messages%d", rand.Uint32()))
	there := bson.D{{Key: "due", Value: bson.D{{Key: "$exists", Value: true}}}}
	_, err = bare.Indexes().CreateMany(context.Background(), []driver.IndexModel{
		{Keys: bson.D{{Key: "bucket", Value: 1}, {Key: "due", Value: 1}, {Key: "_id", Value: 1}}, Options: options.Index().SetName("due").SetPartialFilterExpression(there)},
		{Keys: bson.D{{Key: "tenant", Value: 1}, {Key: "executionTime", Value: 1}, {Key: "bucket", Value: 1}, {Key: "_id", Value: 1}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { bare.Drop(context.Background()) })
	return &bench{Store: s, bare: bare}
}

// benchPayloads are 256 bytes each, as random as possible, so that nothing is
// compressed away.
var benchPayloads = func() (all [1024][]byte) {
	for i := range all {
		all[i] = make([]byte, 256)
		for j := range all[i] {
			all[i][j] = byte(rand.Uint32())
		}
	}
	return all
}()

func benchMessage(i int64, due postdate.Time) postdate.Message {
	m := testMessage(fmt.Sprintf("m%09d", i), postdate.BucketsDefault, due)
	m.ContentType, m.Payload = "application/json", benchPayloads[i%1024]
	return m
}

// bareDocument is the same message, as a user of the driver would write it.
func bareDocument(i int64, due postdate.Time) bson.D {
	m := benchMessage(i, due)
	return bson.D{
		{Key: "_id", Value: "default\x00" + m.ScheduleID}, {Key: "bucket", Value: m.Bucket}, {Key: "tenant", Value: m.Tenant},
		{Key: "scheduleId", Value: m.ScheduleID}, {Key: "executionTime", Value: bson.DateTime(due)}, {Key: "status", Value: 1},
		{Key: "version", Value: int64(1)}, {Key: "attemptTime", Value: bson.DateTime(due)}, {Key: "due", Value: bson.DateTime(due)},
		{Key: "channel", Value: string(m.Channel)}, {Key: "createdAt", Value: int64(m.CreatedAt)}, {Key: "payload", Value: m.Payload},
		{Key: "contentType", Value: m.ContentType}, {Key: "digest", Value: m.Digest[:]},
	}
}

// callers runs f until b.N messages are done, size at a time.
func (x *bench) callers(b *testing.B, callers, size int, f func(from int64) error) {
	b.ResetTimer()
	done := benchtest.Start(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for left.Add(int64(-size)) > int64(-size) {
				if err := f(x.next.Add(int64(size)) - int64(size)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	done(b.N)
}

const benchDue = postdate.Time(1_900_000_000_000)

// BenchmarkInsert is 64 callers that schedule one message each.
func BenchmarkInsert(b *testing.B) {
	b.Run("store", func(b *testing.B) {
		x := newBench(b)
		s := store.Coalesce(x.Store)
		x.callers(b, 64, 1, func(i int64) error {
			return s.Insert(b.Context(), []postdate.Message{benchMessage(i, benchDue+postdate.Time(i%1000))})[0].Err
		})
	})
	b.Run("driver", func(b *testing.B) {
		x := newBench(b)
		x.callers(b, 64, 1, func(i int64) error {
			_, err := x.bare.InsertOne(b.Context(), bareDocument(i, benchDue+postdate.Time(i%1000)))
			return err
		})
	})
}

// BenchmarkBatch is 2 callers with 500 messages each.
func BenchmarkBatch(b *testing.B) {
	b.Run("store", func(b *testing.B) {
		x := newBench(b)
		x.callers(b, 2, 500, func(from int64) error {
			batch := make([]postdate.Message, 500)
			for i := range batch {
				batch[i] = benchMessage(from+int64(i), benchDue+postdate.Time(i))
			}
			return x.insert(b.Context(), batch)
		})
	})
	b.Run("driver", func(b *testing.B) {
		x := newBench(b)
		x.callers(b, 2, 500, func(from int64) error {
			batch := make([]bson.D, 500)
			for i := range batch {
				batch[i] = bareDocument(from+int64(i), benchDue+postdate.Time(i))
			}
			_, err := x.bare.InsertMany(b.Context(), batch, options.InsertMany().SetOrdered(false))
			return err
		})
	})
}

// benchPage is how many messages a cycle drains.
const benchPage = 2_048

// BenchmarkDrain is an owner of 64 buckets that reads what is due and settles it, a
// page of all buckets at a time.
func BenchmarkDrain(b *testing.B) {
	b.Run("store", func(b *testing.B) {
		x := newBench(b)
		x.fill(b, x.insert)
		claims := x.claims(b)
		b.ResetTimer()
		done, drained := benchtest.Start(b), 0
		for drained < b.N {
			n, err := x.cycle(b.Context(), claims)
			if err != nil {
				b.Fatal(err)
			}
			drained += n
		}
		done(drained)
	})
	b.Run("driver", func(b *testing.B) {
		x := newBench(b)
		x.fill(b, func(ctx context.Context, batch []postdate.Message) error {
			all := make([]bson.D, len(batch))
			for i := range batch {
				all[i] = bareDocument(x.next.Add(1), batch[i].ExecutionTime)
			}
			_, err := x.bare.InsertMany(ctx, all)
			return err
		})
		b.ResetTimer()
		done, drained := benchtest.Start(b), 0
		for drained < b.N {
			n, err := x.bareCycle(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			drained += n
		}
		done(drained)
	})
}

// fill lays down enough to drain b.N messages, due one page each millisecond.
func (x *bench) fill(b *testing.B, insert func(context.Context, []postdate.Message) error) {
	pages := (b.N+benchPage-1)/benchPage + 1
	for p := range pages {
		batch := make([]postdate.Message, benchPage)
		for i := range batch {
			batch[i] = benchMessage(int64(p*benchPage+i), benchDue+postdate.Time(p))
		}
		if err := insert(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

func (x *bench) insert(ctx context.Context, batch []postdate.Message) error {
	for _, r := range x.Insert(ctx, batch) {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

func (x *bench) claims(b *testing.B) []store.Claim {
	claims := make([]store.Claim, x.Buckets())
	for i := range claims {
		got, err := x.Acquire(b.Context(), []store.Acquisition{{Bucket: i, Owner: "n", Lease: "l"}})
		if err != nil || !got[0].OK {
			b.Fatal(err)
		}
		claims[i] = store.Claim{Bucket: i, Claim: bucket.Claim{Token: got[0].Partition.Token}, Scan: store.Scan{Limit: 512, BytesMax: 1 << 20}}
	}
	return claims
}

// cycle drains what is due within the next millisecond.
func (x *bench) cycle(ctx context.Context, claims []store.Claim) (int, error) {
	to := benchDue + postdate.Time(x.next.Add(1)-1)
	for i := range claims {
		claims[i].Number, claims[i].To, claims[i].Checkpoint = uint64(to), bucket.UpTo(to), to-1
		claims[i].Scan.After = bucket.Position{Time: to}
	}
	return x.drain(ctx, claims)
}

// drain claims, and settles what it gets.
func (x *bench) drain(ctx context.Context, claims []store.Claim) (int, error) {
	var settle []store.Settlement
	for i, r := range x.Claim(ctx, claims) {
		if r.Err != nil {
			return 0, r.Err
		}
		for _, m := range r.Due {
			settle = append(settle, store.Settlement{Key: m.Key, ExecutionTime: m.ExecutionTime, Version: m.Version, Token: claims[i].Token, How: store.SettleDelivered, At: benchDue, Attempts: 1})
		}
	}
	if len(settle) == 0 {
		return 0, fmt.Errorf("nothing is due")
	}
	return len(settle), x.Settle(ctx, settle)
}

// BenchmarkBacklog is an owner of 64 buckets that all have more due than a page takes.
func BenchmarkBacklog(b *testing.B) {
	x := newBench(b)
	x.fill(b, x.insert)
	claims := x.claims(b)
	b.ResetTimer()
	done, drained := benchtest.Start(b), 0
	for number := uint64(1); drained < b.N; number++ {
		for i := range claims {
			claims[i].Number, claims[i].To = number, bucket.UpTo(benchDue+1<<40)
			claims[i].Scan.Limit = benchPage / len(claims)
		}
		n, err := x.drain(b.Context(), claims)
		if err != nil {
			b.Fatal(err)
		}
		drained += n
	}
	done(drained)
}

// bareCycle is what a hand-written drainer does: one hinted find, one hinted
// updateMany.
func (x *bench) bareCycle(ctx context.Context) (int, error) {
	buckets := make([]int, postdate.BucketsDefault)
	for i := range buckets {
		buckets[i] = i
	}
	cursor, err := x.bare.Find(ctx, bson.D{{Key: "bucket", Value: bson.D{{Key: "$in", Value: buckets}}}, {Key: "due", Value: bson.D{{Key: "$lte", Value: bson.DateTime(benchDue) + 1<<40}}}},
		options.Find().SetHint("due").SetLimit(benchPage).SetBatchSize(benchPage+1))
	if err != nil {
		return 0, err
	}
	var all []struct {
		ID         string `bson:"_id"`
		Bucket     int
		ScheduleID string `bson:"scheduleId"`
		Channel    string
		Payload    []byte
		Version    int64
	}
	if err := cursor.All(ctx, &all); err != nil {
		return 0, err
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	r, err := x.bare.UpdateMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "status", Value: 1}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: 2}, {Key: "settledAt", Value: bson.DateTime(benchDue)}}}, {Key: "$unset", Value: bson.D{{Key: "due", Value: ""}}}},
		options.UpdateMany().SetHint("_id_"))
	if err != nil || r.ModifiedCount == 0 {
		return 0, fmt.Errorf("drained nothing: %v", err)
	}
	return int(r.ModifiedCount), nil
}

// BenchmarkClaimNothing is the idle cycle of an owner of 64 buckets, with and without something
// new to write.
func BenchmarkClaimNothing(b *testing.B) {
	for name, ifDue := range map[string]bool{"written": false, "not written": true} {
		b.Run(name, func(b *testing.B) {
			x := newBench(b)
			claims := x.claims(b)
			b.ResetTimer()
			for i := range b.N {
				for j := range claims {
					claims[j].Number++
					claims[j].To, claims[j].IfDue = bucket.UpTo(postdate.Time(i+1)), ifDue
				}
				for _, r := range x.Claim(b.Context(), claims) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
				}
			}
		})
	}
}

// BenchmarkExpire is nodes that delete the same old messages at the same time, each in all
// buckets, or each in its own. As a node does every few seconds, each continues within a round
// while it deletes whole pages. The measure is the number of rounds.
func BenchmarkExpire(b *testing.B) {
	for _, nodes := range []int{1, 3, 8} {
		b.Run(fmt.Sprintf("all buckets/%d nodes", nodes), func(b *testing.B) { benchExpire(b, nodes, func(int) int { return 0 }, 1) })
		b.Run(fmt.Sprintf("own buckets/%d nodes", nodes), func(b *testing.B) { benchExpire(b, nodes, func(i int) int { return i }, nodes) })
	}
}

// benchExpire has node i expire every step-th bucket from the one that first gives.
func benchExpire(b *testing.B, nodes int, first func(i int) int, step int) {
	c := config(mongotest.URI(b, benchMembers()))
	c.Buckets = postdate.BucketsDefault
	stores := make([]*mongo.Store, nodes)
	for i := range stores {
		stores[i] = open(b, c)
		b.Cleanup(func() { stores[i].Close() })
	}
	fillExpired(b, stores[0])
	b.ResetTimer()
	start, rounds := time.Now(), 0
	var deleted atomic.Int64
	for ; deleted.Load() < int64(b.N); rounds++ {
		var group sync.WaitGroup
		for i, s := range stores {
			e := store.Expiry{SettledBefore: benchDue, Limit: 1_000}
			for n := first(i); n < c.Buckets; n += step {
				e.Buckets = append(e.Buckets, n)
			}
			group.Go(func() {
				for n := e.Limit; n >= e.Limit; deleted.Add(int64(n)) {
					var err error
					if n, err = s.Expire(b.Context(), e); err != nil {
						b.Error(err)
					}
				}
			})
		}
		group.Wait()
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "messages/s")
	b.ReportMetric(float64(rounds), "rounds")
}

// fillExpired lays down b.N cancelled messages.
func fillExpired(b *testing.B, s *mongo.Store) {
	for from := 0; from < b.N; from += 1000 {
		batch := make([]postdate.Message, min(1000, b.N-from))
		for i := range batch {
			batch[i] = benchMessage(int64(from+i), benchDue)
		}
		for _, r := range s.Insert(b.Context(), batch) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
		for _, r := range s.Cancel(b.Context(), keysOf(batch), 1) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}
