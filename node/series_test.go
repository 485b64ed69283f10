package node_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// BenchmarkSeries fires 10,000 series each second for a minute, all at the same instants, and reports how
// late they are by the time of the confirm. It fails if an occurrence is missing, comes twice, is early, or
// is not where the rule has it.
func BenchmarkSeries(b *testing.B) {
	b.Run("embedded", func(b *testing.B) { fireEachSecond(b, "") })
	b.Run("mongodb", func(b *testing.B) { fireEachSecond(b, mongotest.Fresh(b)) })
}

func fireEachSecond(b *testing.B, uri string) {
	const many, seconds = 10_000, 60
	for b.Loop() {
		c := config(b)
		if uri != "" {
			c.Store = uri
		}
		n, api := start(b, c)
		type one struct {
			id string
			at time.Time
		}
		seen := map[one]int{}
		var late []time.Duration
		first := nodetest.In(20 * time.Second)
		addSeries(b, api, many, client.Recurrence{Every: time.Second, Start: first, MaxRuns: seconds})
		<-time.After(time.Until(first.Add(seconds * time.Second)))
		if err := api.AwaitNonePending(patient(b)); err != nil {
			b.Fatal(err)
		}
		follow(b, api, "series", func(a nodetest.Arrival) {
			seen[one{a.ScheduleID, a.ExecutionTime}]++
			late = append(late, a.DeliveredAt.Sub(a.ExecutionTime))
			if a.PossibleDuplicate {
				b.Errorf("%s of %s is marked", a.ExecutionTime, a.ScheduleID)
			}
		})() // afterwards: it would take a third of the processor
		for i := range many {
			for k := range seconds {
				o := one{fmt.Sprint("series-", i), first.Add(time.Duration(k) * time.Second).UTC()}
				if seen[o] != 1 {
					b.Fatalf("%v came %d times", o, seen[o])
				}
			}
		}
		slices.Sort(late)
		if len(late) != many*seconds || late[0] <= 0 {
			b.Errorf("%d came, the first after %s", len(late), late[0])
		}
		for name, share := range map[string]int{"p50-ms": 50, "p99-ms": 99} {
			b.ReportMetric(float64(late[len(late)*share/100].Microseconds())/1000, name)
		}
		b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "worst-ms")
		stop(b, n)
	}
}

// addSeries schedules series-0, series-1, ….
func addSeries(b *testing.B, api *nodetest.Client, many int, r client.Recurrence) {
	b.Helper()
	const page = 5_000
	for i := 0; i < many; i += page {
		batch := make([]client.Message, min(page, many-i))
		for k := range batch {
			batch[k] = client.Message{ScheduleID: fmt.Sprint("series-", i+k), Channel: "inbox:series", Recurrence: &r, Payload: []byte("1")}
		}
		results, err := api.ScheduleAll(b.Context(), batch)
		if err != nil {
			b.Fatal(err)
		}
		for _, one := range results {
			if one.Problem != nil {
				b.Fatal(one.Problem)
			}
		}
	}
}

// BenchmarkIdleSeries reports the processor time that a node takes while a million series wait for their
// hour, and the same without any.
func BenchmarkIdleSeries(b *testing.B) {
	const many, idle = 1_000_000, 30 * time.Second
	for b.Loop() {
		_, api := start(b, config(b))
		without := spent(b, idle)
		addSeries(b, api, many, client.Recurrence{Every: time.Hour, Start: nodetest.In(time.Hour)})
		<-time.After(idle) // for what the store does behind
		b.ReportMetric(spent(b, idle).Seconds()/idle.Seconds()*100, "busy-%")
		b.ReportMetric(without.Seconds()/idle.Seconds()*100, "busy-without-%")
	}
}

// spent is the processor time that the process takes in the next d.
func spent(b *testing.B, d time.Duration) time.Duration {
	b.Helper()
	taken := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := taken()
	<-time.After(d)
	return taken() - before
}

// A series is paused, triggered, resumed and changed on a real node: each occurrence comes once, none while it
// is paused but the one out of turn, and after each call those of the rule as it is then.
func TestSeriesIsPausedTriggeredAndChanged(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { changeSeries(t, "") })
	t.Run("mongodb", func(t *testing.T) { changeSeries(t, mongotest.Fresh(t)) })
}

// arrivals returns the times of the occurrences in the inbox that next has returned so far. next waits for one,
// and fails if it came before or is marked.
func arrivals(t *testing.T, api *nodetest.Client) (seen map[time.Time]bool, next func() time.Time) {
	ctx, came := patient(t), make(chan nodetest.Arrival, 10_000)
	seen = map[time.Time]bool{}
	follow(t, api, "a", func(a nodetest.Arrival) { came <- a })
	return seen, func() time.Time {
		t.Helper()
		select {
		case a := <-came:
			if seen[a.ExecutionTime] || a.PossibleDuplicate {
				t.Errorf("%s comes twice or is marked", a.ExecutionTime)
			}
			seen[a.ExecutionTime] = true
			return a.ExecutionTime
		case <-ctx.Done():
			t.Fatal("nothing comes")
			return time.Time{}
		}
	}
}

func changeSeries(t *testing.T, uri string) {
	ctx := patient(t)
	c := config(t)
	if uri != "" {
		c.Store = uri
	}
	_, api := start(t, c)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	seen, next := arrivals(t, api)
	_, err := api.Schedule(ctx, client.Message{ScheduleID: "s", Channel: "inbox:a", Payload: []byte("1"),
		Recurrence: &client.Recurrence{Every: 100 * time.Millisecond}})
	must(err)
	next()
	must(api.PauseSeries(ctx, "s"))
	must(nodetest.Poll(ctx, func() (bool, error) { // it rests
		n, err := api.Metric(ctx, `postdate_settled_total{how="paused",tenant="default"}`)
		return n == 1, err
	}))
	extra, err := api.Trigger(ctx, "s")
	must(err)
	for !next().Equal(extra.ExecutionTime) { // what was on its way before the pause
	}
	resumed := time.Now().Truncate(time.Millisecond)
	must(api.ResumeSeries(ctx, "s"))
	if at := next(); at.Before(resumed) {
		t.Errorf("%s comes, and the series was paused until %s", at, resumed)
	}
	_, err = api.Patch(ctx, "s", client.Change{Recurrence: &client.Recurrence{Every: 300 * time.Millisecond}})
	must(err)
	rec, err := api.Get(ctx, "s")
	must(err)
	at := next()
	for at.Before(rec.Series.Next) {
		at = next()
	}
	for range 3 {
		if after := next(); after.Sub(at) != 300*time.Millisecond {
			t.Errorf("%s follows %s", after, at)
		} else {
			at = after
		}
	}
	must(nodetest.Poll(ctx, func() (bool, error) {
		err := api.Cancel(ctx, "s")
		return err == nil, nil
	}))
	rec, err = api.Get(ctx, "s")
	must(err)
	for int64(len(seen)) < rec.Series.Fired {
		next()
	}
	if s := rec.Series; s.Skipped < 1 || s.Failed != 0 || rec.Status != client.Cancelled {
		t.Errorf("it ended as %s with %+v", rec.Status, s)
	}
}
