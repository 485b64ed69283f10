package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

func benchStore(b *testing.B) *pebble.Store {
	s := benchOpen(b, pebble.DefaultConfig(b.TempDir()))
	b.Cleanup(func() { s.Close() })
	return s
}

func benchOpen(b *testing.B, c pebble.Config) *pebble.Store {
	c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := pebble.Open(c)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func benchMessage(i int, due postdate.Time) postdate.Message {
	id := fmt.Sprintf("m%d", i)
	m := postdate.Message{
		Key: bucket.KeyOf(postdate.DefaultTenant, id, postdate.BucketsDefault), Channel: "inbox:bench",
		ExecutionTime: due, CreatedAt: due, ContentType: "text/plain", Payload: make([]byte, 256),
	}
	for j := range m.Payload {
		m.Payload[j] = byte(i * j)
	}
	m.Digest = postdate.DigestOf(&m, "")
	return m
}

// BenchmarkInsert is one message per call, from 64 callers, each synced.
func BenchmarkInsert(b *testing.B) { benchInsert(b, benchStore(b)) }

// BenchmarkInsertCoalesced is the same as a node does it.
func BenchmarkInsertCoalesced(b *testing.B) { benchInsert(b, store.Coalesce(benchStore(b))) }

func benchInsert(b *testing.B, s store.Messages) {
	now := postdate.WallOf(time.Now())
	var next atomic.Int64
	b.ResetTimer()
	done := benchtest.Start(b)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				m := []postdate.Message{benchMessage(int(i), now+postdate.Time(i%3_600_000))}
				if r := s.Insert(context.Background(), m); r[0].Err != nil {
					b.Error(r[0].Err)
				}
			}
		})
	}
	wg.Wait()
	done(b.N)
}

// BenchmarkInsertBeside inserts into a store of two million messages, with a large cache and
// with one that holds little more than their filters. x-large is the processor time per message
// with the small cache as a multiple of that with the large one.
func BenchmarkInsertBeside(b *testing.B) {
	const before, more = 2_000_000, 200_000
	c := pebble.DefaultConfig(b.TempDir())
	c.CacheBytes = 256 << 20
	s := benchOpen(b, c)
	benchFill(b, s, 0, before)
	s.Close()
	from, large := before, time.Duration(0)
	for _, mib := range []int64{256, 4} {
		c.CacheBytes = mib << 20
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			s := benchOpen(b, c)
			defer s.Close()
			benchFill(b, s, from, more/4) // warms the cache
			used, begun := benchtest.ProcessorTime(b), time.Now()
			benchFill(b, s, from+more/4, more)
			used, from = benchtest.ProcessorTime(b)-used, from+2*more
			if large == 0 {
				large = used
			}
			b.ReportMetric(float64(more)/time.Since(begun).Seconds(), "msg/s")
			b.ReportMetric(float64(used)/float64(large), "x-large")
		})
	}
}

// scattered maps a number to one anywhere in the range, so that ids are scattered.
func scattered(i int) int { return i * 0x9E3779B97F4A7C1 & (1<<47 - 1) }

// benchFill inserts messages, 50 a call, from four callers.
func benchFill(b *testing.B, s store.Messages, from, messages int) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := next.Add(50) - 50; n < int64(messages); n = next.Add(50) - 50 {
				ms := make([]postdate.Message, 50)
				for j := range ms {
					ms[j] = benchMessage(scattered(from+int(n)+j), postdate.Time(2_000_000_000_000+int64(j)))
					ms[j].Payload = ms[j].Payload[:64]
				}
				if r := s.Insert(context.Background(), ms); r[0].Err != nil {
					b.Error(r[0].Err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkInsertBatch is 500 messages per call, from four callers.
func BenchmarkInsertBatch(b *testing.B) {
	s := benchStore(b)
	now := postdate.WallOf(time.Now())
	var next atomic.Int64
	b.ResetTimer()
	done := benchtest.Start(b)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				ms := make([]postdate.Message, 500)
				for j := range ms {
					i := int(n)*500 + j
					ms[j] = benchMessage(i, now+postdate.Time(i%3_600_000))
				}
				s.Insert(context.Background(), ms)
			}
		})
	}
	wg.Wait()
	done(b.N * 500)
}

// BenchmarkCycle is the owner's work for 500 messages of a broker: claim, read, settle.
func BenchmarkCycle(b *testing.B) {
	benchCycle(b, func(ctx context.Context, s *pebble.Store, some []store.InboxDelivery) error {
		settle := make([]store.Settlement, len(some))
		for i := range some {
			settle[i] = some[i].Settlement
		}
		return s.Settle(ctx, settle)
	})
}

// BenchmarkDeliver is the owner's work for 500 messages of an inbox: claim, read, deliver.
func BenchmarkDeliver(b *testing.B) {
	benchCycle(b, func(ctx context.Context, s *pebble.Store, some []store.InboxDelivery) error {
		return errors.Join(s.Deliver(ctx, some)...)
	})
}

func benchCycle(b *testing.B, settle func(context.Context, *pebble.Store, []store.InboxDelivery) error) {
	s := benchStore(b)
	ctx := context.Background()
	now := postdate.WallOf(time.Now())
	for from := 0; from < b.N*500; from += 500 {
		ms := make([]postdate.Message, 500)
		for j := range ms {
			ms[j] = benchMessage(from+j, now+postdate.Time((from+j)/500))
		}
		s.Insert(ctx, ms)
	}
	claims := benchClaims(b, s)
	b.ResetTimer()
	done := benchtest.Start(b)
	for n := range b.N {
		to := now + postdate.Time(n)
		claimMillisecond(claims, to)
		var found []store.InboxDelivery
		for i, r := range s.Claim(ctx, claims) {
			for _, m := range r.Due {
				found = append(found, store.InboxDelivery{
					Message: store.InboxMessage{Tenant: m.Tenant, Inbox: "bench", ScheduleID: m.ScheduleID,
						ExecutionTime: m.ExecutionTime, DeliveredAt: to, Payload: m.Payload},
					Settlement: store.Settlement{Key: m.Key, ExecutionTime: m.ExecutionTime, Version: m.Version,
						Token: claims[i].Token, How: store.SettleDelivered, At: to, Attempts: 1},
				})
			}
		}
		if len(found) != 500 {
			b.Fatalf("found %d messages", len(found))
		}
		if err := settle(ctx, s, found); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	done(b.N * 500)
}

// benchClaims takes every bucket.
func benchClaims(b *testing.B, s store.Store) []store.Claim {
	claims := make([]store.Claim, postdate.BucketsDefault)
	for i := range claims {
		got, err := s.Acquire(context.Background(), []store.Acquisition{{Bucket: i, Owner: "n", Lease: "l"}})
		if err != nil || !got[0].OK {
			b.Fatal(err)
		}
		claims[i] = store.Claim{Bucket: i, Scan: store.Scan{Limit: 1000, BytesMax: 1 << 30}}
		claims[i].Token = got[0].Partition.Token
	}
	return claims
}

// claimMillisecond asks for what is due in one millisecond.
func claimMillisecond(claims []store.Claim, t postdate.Time) {
	for i := range claims {
		c := &claims[i]
		c.Number, c.Checkpoint, c.To = uint64(t), t-1, bucket.UpTo(t)
		c.Scan.After = bucket.Position{Time: t}
	}
}

// BenchmarkClaimNothing is a claim of 64 buckets, all of which have messages, but none that is
// due.
func BenchmarkClaimNothing(b *testing.B) { benchClaim(b, 0) }

// BenchmarkClaimFew is a claim of 64 buckets in which two messages are due.
func BenchmarkClaimFew(b *testing.B) { benchClaim(b, 2) }

func benchClaim(b *testing.B, due int) {
	s := benchStore(b)
	ctx := context.Background()
	now := postdate.WallOf(time.Now())
	later := make([]postdate.Message, 20_000)
	for i := range later {
		later[i] = benchMessage(i, now+postdate.Time(3_600_000+i))
	}
	s.Insert(ctx, later)
	for n := 0; n < b.N*due; n += 500 {
		ms := make([]postdate.Message, 500)
		for i := range ms {
			ms[i] = benchMessage(len(later)+n+i, now+postdate.Time((n+i)/due))
		}
		s.Insert(ctx, ms)
	}
	claims := benchClaims(b, s)
	b.ResetTimer()
	done := benchtest.Start(b)
	for n := range b.N {
		claimMillisecond(claims, now+postdate.Time(n))
		found := 0
		for _, r := range s.Claim(ctx, claims) {
			found += len(r.Due)
		}
		if found != due {
			b.Fatalf("found %d messages", found)
		}
	}
	b.StopTimer()
	done(b.N)
}

// BenchmarkClaimBehind is a claim of one bucket that skips 10,000 messages of a channel of
// which less is claimed, and finds one.
func BenchmarkClaimBehind(b *testing.B) {
	s := benchStore(b)
	ctx := context.Background()
	now := postdate.WallOf(time.Now())
	ms := make([]postdate.Message, 10_001)
	for i := range ms {
		ms[i] = benchMessage(i, now+postdate.Time(i))
		ms[i].Bucket, ms[i].Channel = 0, "inbox:slow"
	}
	ms[len(ms)-1].Channel = "inbox:bench"
	s.Insert(ctx, ms)
	claims := benchClaims(b, s)[:1]
	claims[0].To, claims[0].Behind = bucket.UpTo(now+20_000), map[postdate.Route]bucket.Position{"inbox:slow": {Time: now}}
	b.ResetTimer()
	done := benchtest.Start(b)
	for range b.N {
		claims[0].Number++
		if r := s.Claim(ctx, claims); len(r[0].Due) != 1 {
			b.Fatalf("found %d messages", len(r[0].Due))
		}
	}
	b.StopTimer()
	done(b.N)
}

// BenchmarkSweepDrained scans every bucket from its start in a store in which nothing waits,
// right after 240,000 messages were delivered. It also reports how long the first scan took,
// and the quickest of some as a multiple of the time in the fresh store.
func BenchmarkSweepDrained(b *testing.B) {
	s, number := benchStore(b), uint64(0)
	claims := benchClaims(b, s)
	sweep := func() (due []postdate.Record, took time.Duration) {
		begun := time.Now()
		number++
		for i := range claims {
			claims[i].IfDue, claims[i].Number, claims[i].To = true, number, bucket.UpTo(1_000_000)
		}
		for _, r := range s.Claim(context.Background(), claims) {
			due = append(due, r.Due...)
		}
		return due, time.Since(begun)
	}
	quickest := func() time.Duration {
		best := time.Hour
		for range 20 {
			_, took := sweep()
			best = min(best, took)
		}
		return best
	}
	fresh := quickest()
	drain(b, s, 240_000, sweep)
	_, first := sweep()
	drained := quickest()
	for b.Loop() {
		sweep()
	}
	b.ReportMetric(float64(first)/1e6, "first-ms")
	b.ReportMetric(float64(drained)/float64(fresh), "x-fresh")
}

// drain inserts messages and settles what sweep finds, until it finds nothing more.
func drain(b *testing.B, s store.Store, messages int, sweep func() ([]postdate.Record, time.Duration)) {
	ctx := context.Background()
	for from := 0; from < messages; from += 1000 {
		ms := make([]postdate.Message, 1000)
		for i := range ms {
			ms[i] = benchMessage(from+i, postdate.Time(1000+from+i))
		}
		s.Insert(ctx, ms)
	}
	for due, _ := sweep(); len(due) > 0; due, _ = sweep() {
		settle := make([]store.Settlement, len(due))
		for i, m := range due {
			settle[i] = store.Settlement{Key: m.Key, Version: m.Version, Token: 1, How: store.SettleDelivered, At: 1, Attempts: 1}
		}
		if err := s.Settle(ctx, settle); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExpireInboxes looks for what is past its retention when nothing is, with 1,000 and
// with 40,000 inboxes of one message each. x-few is the time with the many as a multiple of
// that with the few.
func BenchmarkExpireInboxes(b *testing.B) {
	few := time.Duration(0)
	for _, inboxes := range []int{1_000, 40_000} {
		b.Run(fmt.Sprint(inboxes), func(b *testing.B) {
			s := benchStore(b)
			messages := make([]store.InboxMessage, inboxes)
			for i := range messages {
				messages[i] = store.InboxMessage{Tenant: "t", Inbox: fmt.Sprint("inbox-", i), DeliveredAt: 2000}
			}
			var wg sync.WaitGroup
			for from := range 100 {
				wg.Go(func() {
					if err := s.AppendInbox(context.Background(), messages[from*inboxes/100:(from+1)*inboxes/100]); err != nil {
						b.Error(err)
					}
				})
			}
			wg.Wait()
			var all []int
			for n := range postdate.BucketsDefault {
				all = append(all, n)
			}
			begun := time.Now()
			for b.Loop() {
				if n, err := s.Expire(context.Background(), store.Expiry{Buckets: all, DeliveredBefore: 1000, Limit: 1000}); n != 0 || err != nil {
					b.Fatal(n, err)
				}
			}
			each := time.Since(begun) / time.Duration(b.N)
			if few == 0 {
				few = each
			}
			b.ReportMetric(float64(each)/float64(few), "x-few")
		})
	}
}
