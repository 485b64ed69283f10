package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// quiet is a machine whose store answers immediately and has nothing due.
type quiet struct {
	m   *Machine
	now postdate.Now
	out []Publish

	claims int // so far
}

func newQuiet(buckets, parked int, sweepEvery time.Duration) *quiet {
	c := DefaultConfig()
	c.SweepEvery = sweepEvery
	q := &quiet{m: newMachine(c), now: postdate.Now{Wall: 1_900_000_000_000, Mono: time.Second}}
	var ps []bucket.Partition
	for b := range buckets {
		ps = append(ps, bucket.Partition{Bucket: b, Owner: "n", Token: 1})
	}
	q.step(fence.LeaseUntil{Mono: 1 << 60, Read: q.now})
	q.step(fence.Gained{Partitions: ps})
	var found []store.ParkedRoute
	for i := range parked {
		found = append(found, store.ParkedRoute{Bucket: i % buckets, Route: named("https://host-%d.example/%d", i/10, i)})
	}
	q.m.finding = true
	q.step(ParkedFound{Found: found})
	return q
}

// step feeds an event and answers what follows, except publishes, with nothing.
func (q *quiet) step(ev Event, due ...postdate.Record) {
	for _, e := range q.m.Step(q.now, ev) {
		switch e := e.(type) {
		case Claim:
			q.claims += len(e.Claims)
			results := make([]store.ClaimResult, len(e.Claims))
			for i, c := range e.Claims {
				results[i] = seen(c)
				for _, r := range due {
					if r.Bucket == c.Bucket {
						results[i].Due = append(results[i].Due, r)
					}
				}
			}
			q.step(Claimed{e.Call, results})
		case Settle:
			q.step(Settled{Call: e.Call})
		case Unpark:
			q.step(Unparked{Unpark: e.Unpark, Moved: 0})
		case FindParked:
			q.step(ParkedFound{Buckets: e.Buckets})
		case Publish:
			q.out = append(q.out, e)
		}
	}
}

// BenchmarkStep measures what one message costs the machine, from the nudge to the settle, next
// to many buckets and many channels that take nothing: it must be flat. Sweeps, which come with
// time and not with messages, are measured separately.
func BenchmarkStep(b *testing.B) {
	for _, size := range []struct{ buckets, parked int }{{64, 1}, {1_024, 1}, {16_384, 1}, {64, 1_000}, {64, 40_000}, {16_384, 40_000}} {
		b.Run(fmt.Sprintf("buckets=%d/parked=%d", size.buckets, size.parked), func(b *testing.B) {
			q := newQuiet(size.buckets, size.parked, 1<<50)
			b.ResetTimer()
			done := benchtest.Start(b)
			for i := range b.N {
				q.now = q.now.Later(20 * ms)
				m := postdate.Message{
					Key:     postdate.Key{Bucket: i % size.buckets, Tenant: postdate.DefaultTenant, ScheduleID: fmt.Sprint("m", i)},
					Channel: "inbox:x", ExecutionTime: q.now.Wall - 5,
				}
				q.step(Nudged{[]Nudge{{m.Bucket, m.ExecutionTime}}}, postdate.Record{Message: m, State: postdate.NewState(&m, 1)})
				for _, p := range q.out {
					q.step(Published{p.Batch, publisher.All(len(p.Batch), confirmed)})
				}
				q.out = q.out[:0]
				q.now = q.now.Later(6 * ms)
				q.step(fence.Tick{})
				q.m.Wake(q.now)
			}
			done(b.N)
		})
	}
}

// BenchmarkSweep measures what it costs the machine to sweep one bucket in which nothing is
// due: each bucket is swept every two seconds.
func BenchmarkSweep(b *testing.B) {
	for _, buckets := range []int{64, 1_024, 16_384} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) {
			q := newQuiet(buckets, 0, 2*time.Second)
			b.ResetTimer()
			done := benchtest.Start(b)
			for swept := 0; swept < b.N; {
				before := q.claims
				q.now = q.now.Later(q.m.Wake(q.now))
				q.step(fence.Tick{})
				swept += q.claims - before
			}
			done(b.N)
		})
	}
}

// BenchmarkTick measures a step in which nothing is to be done, next to channels that have
// their fill and lanes that are apart.
func BenchmarkTick(b *testing.B) {
	for _, apart := range []int{0, 60} {
		for _, full := range []int{0, 4_000} {
			b.Run(fmt.Sprintf("apart=%d/full=%d", apart, full), func(b *testing.B) {
				q := newQuiet(1_024, 0, 1<<50)
				var out []*owned
				for n := range apart {
					out = append(out, q.m.buckets[n])
				}
				q.m.failed(q.now, q.m.common, out, func(l *lane) *time.Duration { return &l.nextSettle })
				for n := range full {
					c := q.m.channelOf(named("x:%d", n))
					q.m.expectOf(c, q.m.c.DoubtMax)
					q.m.crowd(c)
				}
				done := benchtest.Start(b)
				for b.Loop() {
					q.now = q.now.Later(100 * time.Microsecond)
					q.m.Step(q.now, fence.Tick{})
				}
				done(b.N)
			})
		}
	}
}
