package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// progressEvery is how often Progress is called.
const progressEvery = 100 * time.Millisecond

// watch calls Progress with a phase's counter until stop is called.
func (r *run) watch(phase string, done func() int, total int) (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.Progress(phase, done(), total)
			case <-quit:
				r.Progress(phase, done(), total)
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// each calls do for 0 to n-1 from the callers' goroutines, as fast as they can, and stops at
// the first error.
func (r *run) each(ctx context.Context, n int, do func(i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int64
	var callers sync.WaitGroup
	for range min(r.Callers, n) {
		callers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					stop(err)
				}
			}
		})
	}
	callers.Wait()
	return context.Cause(ctx)
}

// schedule schedules a group by single calls and returns how many seconds that took.
func (r *run) schedule(ctx context.Context, name string, g *group, due func(i int) time.Time) (float64, error) {
	row := Row{Phase: name, Times: "call"}
	calls := newHistogram()
	var acked atomic.Int64
	stop := r.watch(name, func() int { return int(acked.Load()) }, g.size)
	start := time.Now()
	err := r.each(ctx, g.size, func(i int) error {
		g.expect(i, due(i))
		sent := time.Now()
		if err := r.load.schedule(ctx, g, i); err != nil {
			return err
		}
		calls.record(time.Since(sent))
		acked.Add(1)
		return nil
	})
	stop()
	row.finish(int(acked.Load()), time.Since(start), calls)
	r.add(row)
	return row.Seconds, err
}

// scheduleBatches is schedule by batch calls.
func (r *run) scheduleBatches(ctx context.Context, name string, g *group, due func(i int) time.Time) error {
	row := Row{Phase: name, Times: "call"}
	calls := newHistogram()
	var acked atomic.Int64
	stop := r.watch(name, func() int { return int(acked.Load()) }, g.size)
	start := time.Now()
	err := r.each(ctx, (g.size+r.Batch-1)/r.Batch, func(b int) error {
		first, end := b*r.Batch, min((b+1)*r.Batch, g.size)
		for i := first; i < end; i++ {
			g.expect(i, due(i))
		}
		sent := time.Now()
		if err := r.load.scheduleBatch(ctx, g, first, end); err != nil {
			return err
		}
		calls.record(time.Since(sent))
		acked.Add(int64(end - first))
		return nil
	})
	stop()
	row.finish(int(acked.Load()), time.Since(start), calls)
	r.add(row)
	return err
}

func (r *run) cancelOneByOne(ctx context.Context, g *group) error {
	row := Row{Phase: fmt.Sprintf("cancel, %d callers", r.Callers), Times: "call"}
	calls := newHistogram()
	var done atomic.Int64
	stop := r.watch(row.Phase, func() int { return int(done.Load()) }, r.Cancel)
	start := time.Now()
	err := r.each(ctx, r.Cancel, func(i int) error {
		sent := time.Now()
		if err := r.load.cancel(ctx, g.id(i)); err != nil {
			return err
		}
		calls.record(time.Since(sent))
		done.Add(1)
		return nil
	})
	stop()
	row.finish(int(done.Load()), time.Since(start), calls)
	r.add(row)
	return err
}

// drainMargin is the time between the expected end of loading and the instant at which all
// messages are due.
const drainMargin = 3 * time.Second

// drain loads messages in batches, all due at one instant, and times their arrival. The instant
// is based on the speed of single calls, which batches exceed.
func (r *run) drain(ctx context.Context, singleSeconds float64) error {
	g := r.group("drain", r.Messages)
	due := time.Now().Add(time.Duration(singleSeconds*float64(time.Second)) + drainMargin).Truncate(time.Millisecond)
	name := fmt.Sprintf("schedule, batches of %d", r.Batch)
	if err := r.scheduleBatches(ctx, name, g, func(int) time.Time { return due }); err != nil {
		return err
	}
	row := Row{Phase: "drain, all due at one instant", Times: "late"}
	if time.Now().After(due) {
		row.Note = "loading took longer than planned: some were due before they were scheduled"
	}
	last, err := r.await(ctx, row.Phase, g, due)
	if err != nil {
		return err // messages that have not arrived yet are not lost
	}
	row.finish(g.received(), last.Sub(due), g.late)
	row.judge(g)
	r.add(row)
	return nil
}

// How long after they are scheduled the steady load's messages are due.
const (
	steadyAheadMin = time.Second
	steadyAheadMax = 10 * time.Second
)

// steady schedules messages at a fixed rate, whether the server keeps up or not (an open loop),
// and times their arrival.
func (r *run) steady(ctx context.Context, name, group string) error {
	g := r.group(group, int(float64(r.Rate)*r.Duration.Seconds()))
	start := time.Now()
	planned := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / time.Duration(r.Rate)) }
	for i := range g.size {
		g.expect(i, planned(i).Add(steadyAheadMin+scatter(i, steadyAheadMax-steadyAheadMin)))
	}
	calls := Row{Phase: name + ": calls, from their planned time", Times: "call"}
	took := newHistogram()
	var acked atomic.Int64
	stopRows := r.rowsOf(g)
	stop := r.watch(name, func() int { return int(acked.Load()) }, g.size)
	err := r.each(ctx, g.size, func(i int) error {
		if err := sleepUntil(ctx, planned(i)); err != nil {
			return err
		}
		if err := r.load.schedule(ctx, g, i); err != nil {
			return err
		}
		took.record(time.Since(planned(i)))
		acked.Add(1)
		return nil
	})
	stop()
	stopRows()
	calls.finish(int(acked.Load()), time.Since(start), took)
	r.add(calls)
	if err != nil {
		return err
	}
	row := Row{Phase: name + ": arrivals", Times: "late"}
	last, err := r.await(ctx, name+": arrivals", g, time.Now().Add(steadyAheadMax))
	if err != nil {
		return err
	}
	row.finish(g.received(), last.Sub(start), g.late)
	row.PerSecond = 0 // it would only repeat the rate of scheduling
	row.judge(g)
	r.add(row)
	return nil
}

// rowsOf adds a row for each interval of a steady load, until stop is called.
func (r *run) rowsOf(g *group) (stop func()) {
	if r.Every == 0 {
		return func() {}
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(r.Every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
				row := Row{Phase: fmt.Sprintf("after %v: arrivals", time.Duration(n)*r.Every), Times: "late"}
				arrived, late := g.stretch()
				row.finish(arrived, r.Every, late)
				r.add(row)
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// add adds a row to the report, with what the server's process used since the last.
func (r *run) add(row Row) {
	if r.Node != nil {
		if now, err := r.Node(); err == nil {
			row.Node = &Usage{MemoryBytes: now.MemoryBytes, DiskBytes: now.DiskBytes,
				Processor: now.Processor - r.before.Processor}
			r.before = now
		}
	}
	r.report.Rows = append(r.report.Rows, row)
}

func sleepUntil(ctx context.Context, t time.Time) error {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// awaitPatience is how long await waits, after the last due time, for another message before it
// counts the missing ones as lost.
const awaitPatience = 15 * time.Second

// await returns when all of g has arrived and a moment for duplicates has passed, or when
// nothing has arrived for awaitPatience. It returns when the last first copy arrived.
func (r *run) await(ctx context.Context, name string, g *group, allDue time.Time) (last time.Time, err error) {
	stop := r.watch(name, g.received, g.size)
	defer stop()
	for {
		complete, latest := g.progress()
		quietSince := latest
		if allDue.After(quietSince) {
			quietSince = allDue
		}
		if complete || time.Since(quietSince) > awaitPatience {
			if latest.IsZero() {
				latest = allDue
			}
			return latest, sleepUntil(ctx, time.Now().Add(progressEvery))
		}
		if err := sleepUntil(ctx, time.Now().Add(progressEvery/2)); err != nil {
			return latest, err
		}
	}
}

// cleanUp cancels what the run left pending.
func (r *run) cleanUp(ctx context.Context, pending []*group) error {
	const name = "clean up"
	total, done := 0, atomic.Int64{}
	for _, g := range pending {
		total += g.size
	}
	stop := r.watch(name, func() int { return int(done.Load()) }, total)
	defer stop()
	for _, g := range pending {
		err := r.each(ctx, (g.size+cancelBatch-1)/cancelBatch, func(b int) error {
			first, end := b*cancelBatch, min((b+1)*cancelBatch, g.size)
			done.Add(int64(end - first))
			return r.load.cancelBatch(ctx, g, first, end)
		})
		if err != nil {
			return fmt.Errorf("cannot cancel what the benchmark left pending: %w", err)
		}
	}
	return nil
}
