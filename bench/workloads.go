package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// workload is one kind of load. Its columns are its figures, the most important one first.
type workload struct {
	name, about string
	columns     []string
	run         func(*run) (figures, error)
}

// figures are the figures of one run, by their names. README.md says what they are.
type figures map[string]float64

// The names of the figures. Their units are in them, and in README.md.
const (
	schedulesPerS = "schedules_per_s"
	cancelsPerS   = "cancels_per_s"
	drainedPerS   = "drained_per_s"
	callP50       = "call_ms_p50"
	callP99       = "call_ms_p99"
	lagP50        = "lag_ms_p50"
	lagP99        = "lag_ms_p99"
	lagP999       = "lag_ms_p999"
	lagMax        = "lag_ms_max"
	duplicates    = "duplicates"
	failedCalls   = "failed_calls"
	longestGap    = "longest_gap_s"
	restart       = "restart_s"
	serverCPU     = "server_cpu_s"
)

// workloads are all workloads.
var workloads = []workload{
	{"schedule", "-n messages due in an hour, scheduled one by one",
		[]string{schedulesPerS, callP50, callP99, serverCPU}, (*run).schedule},
	{"batch", "-n messages due in an hour, scheduled 500 by 500",
		[]string{schedulesPerS, callP50, callP99, serverCPU}, (*run).batch},
	{"burst", "-n messages due at one instant",
		[]string{drainedPerS, lagP50, lagP99, lagMax, duplicates, serverCPU}, (*run).burst},
	{"steady", "-rate messages a second for -duration, due in 1 to 10 s",
		[]string{lagP50, lagP99, lagP999, lagMax, callP50, callP99, duplicates, serverCPU}, (*run).steady},
	{"cancel", "-n messages due in an hour, cancelled one by one",
		[]string{cancelsPerS, callP50, callP99, serverCPU}, (*run).cancel},
	{"cancelbatch", "-n messages due in an hour, cancelled 500 by 500",
		[]string{cancelsPerS, callP50, callP99, serverCPU}, (*run).cancelBatch},
	{"overdue", "-n messages due at one instant, at which the server is started again after a kill",
		[]string{restart, drainedPerS, duplicates, serverCPU}, (*run).overdue},
	{"crash", "-rate messages a second for -duration; the server is killed after a third of it, and started again",
		[]string{longestGap, restart, failedCalls, lagMax, duplicates, serverCPU}, (*run).crash},
}

// load says what the workload is, with the numbers of the flags.
func (w workload) load(o options) string {
	return strings.NewReplacer("-n", fmt.Sprint(o.n), "-rate", fmt.Sprint(o.rate),
		"-duration", o.duration.String()).Replace(w.about)
}

const farOff = time.Hour

// schedule measures calls that schedule one message each.
func (r *run) schedule() (figures, error) {
	l, err := r.singly(r.messages(r.n), time.Now().Add(farOff))
	return l.figures(r.n, schedulesPerS), err
}

// batch measures calls that schedule many messages.
func (r *run) batch() (figures, error) {
	l, err := r.inBatches(r.messages(r.n), time.Now().Add(farOff))
	return l.figures(r.n, schedulesPerS), err
}

func (l load) figures(n int, rate string) figures {
	return figures{rate: float64(n) / l.took.Seconds(),
		callP50: ms(quantile(l.calls, 0.5)), callP99: ms(quantile(l.calls, 0.99))}
}

// burst measures how fast a peer delivers what is due at one instant.
func (r *run) burst() (figures, error) {
	rec, due, took, err := r.scheduleForOneInstant()
	if err != nil {
		return nil, err
	}
	if err := rec.wait(r.ctx, 20*time.Second); err != nil {
		return nil, err
	}
	d := rec.sum()
	f := d.figures()
	f[schedulesPerS] = float64(r.n) / took.Seconds()
	f[drainedPerS] = d.drained(due)
	return f, d.check()
}

// overdue is burst with a server that is down before the instant, and starts at it.
func (r *run) overdue() (figures, error) {
	rec, due, _, err := r.scheduleForOneInstant()
	if err != nil {
		return nil, err
	}
	r.server.kill()
	if !time.Now().Before(due) {
		return nil, errors.New("the server was up when the messages were due: run it again, on a quiet machine")
	}
	if err := sleep(r.ctx, time.Until(due)); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := r.server.start(r.ctx); err != nil {
		return nil, err
	}
	ready := time.Since(begun)
	if err := rec.wait(r.ctx, waitAfterKill); err != nil {
		return nil, err
	}
	d := rec.sum()
	f := d.figures()
	f[restart], f[drainedPerS] = ready.Seconds(), d.drained(due)
	return f, d.check()
}

// scheduleForOneInstant schedules messages that are due at one instant, and starts the consumers. A first
// part, due later than this run ends, shows how long scheduling takes, and so which instant is late enough.
func (r *run) scheduleForOneInstant() (rec *recorder, due time.Time, took time.Duration, err error) {
	rec = r.messages(r.n)
	if err := r.warmUp(rec); err != nil {
		return nil, due, 0, err
	}
	trial := r.messages(max(r.n/20, batchCallers*r.perBatch))
	l, err := r.quickly(trial, time.Now().Add(farOff))
	if err != nil {
		return nil, due, 0, err
	}
	each := l.took / time.Duration(len(trial.due))
	// A whole second, because some peers count in seconds.
	due = time.Now().Add(2*each*time.Duration(r.n) + 5*time.Second).Truncate(time.Second)
	l, err = r.quickly(rec, due)
	if err == nil && !time.Now().Before(due) {
		err = errors.New("the messages were due before all were scheduled: run it again, on a quiet machine")
	}
	return rec, due, l.took, err
}

// drained returns how many messages a second arrived from an instant to the last one.
func (d deliveries) drained(since time.Time) float64 {
	return float64(d.arrived) / d.last.Sub(since).Seconds()
}

func (d deliveries) figures() figures {
	return figures{duplicates: float64(d.duplicates),
		lagP50: ms(quantile(d.lags, 0.5)), lagP99: ms(quantile(d.lags, 0.99)),
		lagP999: ms(quantile(d.lags, 0.999)), lagMax: ms(quantile(d.lags, 1))}
}

// cancel measures calls that cancel one message each.
func (r *run) cancel() (figures, error) { return r.cancelBy(r.cancelSingly) }

// cancelBatch measures calls that cancel many messages.
func (r *run) cancelBatch() (figures, error) { return r.cancelBy(r.cancelInBatches) }

// cancelBy measures one way to cancel the first n messages of a recorder. Before that it cancels the first
// half of some messages that are due soon: only the second half may arrive.
func (r *run) cancelBy(way func(rec *recorder, n int) (load, error)) (figures, error) {
	if err := r.checkCancel(way); err != nil {
		return nil, err
	}
	rec := r.messages(r.n)
	if _, err := r.quickly(rec, time.Now().Add(farOff)); err != nil {
		return nil, err
	}
	l, err := way(rec, r.n)
	return l.figures(r.n, cancelsPerS), err
}

func (r *run) checkCancel(way func(rec *recorder, n int) (load, error)) error {
	const some = 200
	rec := r.messages(2 * some)
	if err := r.warmUp(rec); err != nil {
		return err
	}
	due := time.Now().Add(10 * time.Second).Truncate(time.Second)
	if _, err := r.singly(rec, due); err != nil {
		return err
	}
	if _, err := way(rec, some); err != nil {
		return err
	}
	if !time.Now().Before(due) {
		return errors.New("the messages were due before half of them were cancelled: run it again, on a quiet machine")
	}
	for i := range some {
		rec.acked[i].Store(false)
	}
	if err := rec.wait(r.ctx, 20*time.Second); err != nil {
		return err
	}
	d := rec.sum()
	if d.arrived > some {
		return fmt.Errorf("%d messages arrived that were cancelled", d.arrived-some)
	}
	return d.check()
}

func (r *run) cancelSingly(rec *recorder, n int) (load, error) {
	return r.inCalls(callers, n, 1, callTimeout,
		func(ctx context.Context, i, _ int) (time.Duration, error) {
			sent := time.Now()
			err := r.peer.cancel(ctx, rec.from+uint64(i))
			return time.Since(sent), err
		})
}

func (r *run) cancelInBatches(rec *recorder, n int) (load, error) {
	b, ok := r.peer.(batchCanceller)
	if !ok {
		return load{}, errNoBatch
	}
	return r.inCalls(batchCallers, n, r.perBatch, callTimeout,
		func(ctx context.Context, from, to int) (time.Duration, error) {
			ids := make([]uint64, to-from)
			for i := range ids {
				ids[i] = rec.from + uint64(from+i)
			}
			sent := time.Now()
			err := b.cancelAll(ctx, ids)
			return time.Since(sent), err
		})
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
