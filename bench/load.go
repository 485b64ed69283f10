package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	callers      = 64  // that schedule or cancel one message at a time
	batchItems   = 500 // of one batch
	batchCallers = 4
	callTimeout  = 10 * time.Second
)

// inParallel calls f for 0 to n-1, from so many goroutines, until one call fails.
func inParallel(ctx context.Context, goroutines, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := f(ctx, int(i)); err != nil {
					cancel(err) // only the first counts
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// load is what scheduling messages took.
type load struct {
	calls []time.Duration // each call's time
	took  time.Duration
}

// inCalls divides n messages into calls of so many each, and makes these from so many goroutines. call returns
// how long it took.
func (r *run) inCalls(goroutines, n, each int, timeout time.Duration,
	call func(ctx context.Context, from, to int) (time.Duration, error)) (l load, err error) {
	l.calls = make([]time.Duration, (n+each-1)/each)
	begun := time.Now()
	err = inParallel(r.ctx, goroutines, len(l.calls), func(ctx context.Context, i int) (err error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		l.calls[i], err = call(ctx, i*each, min(n, (i+1)*each))
		return err
	})
	l.took = time.Since(begun)
	return l, err
}

// singly schedules all messages of rec one by one, all for the same instant.
func (r *run) singly(rec *recorder, due time.Time) (load, error) {
	return r.inCalls(callers, len(rec.due), 1, callTimeout,
		func(ctx context.Context, i, _ int) (time.Duration, error) {
			m, sent := rec.message(i, due), time.Now()
			if err := r.peer.schedule(ctx, m); err != nil {
				return 0, err
			}
			took := time.Since(sent)
			rec.acked[i].Store(true)
			return took, nil
		})
}

// errNoBatch says that a peer has no call for many messages that a workload needs.
var errNoBatch = errors.New("it has no call that does this with many messages")

// inBatches is singly with many messages in one call.
func (r *run) inBatches(rec *recorder, due time.Time) (load, error) {
	b, ok := r.peer.(batcher)
	if !ok {
		return load{}, errNoBatch
	}
	return r.inCalls(batchCallers, len(rec.due), r.perBatch, callTimeout,
		func(ctx context.Context, from, to int) (time.Duration, error) {
			var items []item
			for i := from; i < to; i++ {
				items = append(items, rec.message(i, due))
			}
			sent := time.Now()
			if err := b.scheduleAll(ctx, items); err != nil {
				return 0, err
			}
			took := time.Since(sent)
			for i := from; i < to; i++ {
				rec.acked[i].Store(true)
			}
			return took, nil
		})
}

// quickly schedules in batches if the peer can do so, for a workload that measures something else.
func (r *run) quickly(rec *recorder, due time.Time) (load, error) {
	if l, err := r.inBatches(rec, due); !errors.Is(err, errNoBatch) {
		return l, err
	}
	return r.singly(rec, due)
}
