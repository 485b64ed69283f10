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

// singly schedules all messages of rec one by one, all for the same instant.
func (r *run) singly(rec *recorder, due time.Time) (l load, err error) {
	l.calls = make([]time.Duration, len(rec.due))
	begun := time.Now()
	err = inParallel(r.ctx, callers, len(rec.due), func(ctx context.Context, i int) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		m, sent := rec.message(i, due), time.Now()
		if err := r.peer.schedule(ctx, m); err != nil {
			return err
		}
		l.calls[i] = time.Since(sent)
		rec.acked[i].Store(true)
		return nil
	})
	l.took = time.Since(begun)
	return l, err
}

// errNoBatch says that a peer has no call for many messages that a workload needs.
var errNoBatch = errors.New("it has no call that does this with many messages")

// inBatches is singly with many messages in one call.
func (r *run) inBatches(rec *recorder, due time.Time) (l load, err error) {
	b, ok := r.peer.(batcher)
	if !ok {
		return l, errNoBatch
	}
	return r.batches(len(rec.due), callTimeout, func(ctx context.Context, from, to int) (time.Duration, error) {
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

// batches makes a call for each part of n messages. call returns how long that took.
func (r *run) batches(n int, timeout time.Duration,
	call func(ctx context.Context, from, to int) (time.Duration, error)) (l load, err error) {
	l.calls = make([]time.Duration, (n+r.perBatch-1)/r.perBatch)
	begun := time.Now()
	err = inParallel(r.ctx, batchCallers, len(l.calls), func(ctx context.Context, batch int) (err error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		l.calls[batch], err = call(ctx, batch*r.perBatch, min(n, (batch+1)*r.perBatch))
		return err
	})
	l.took = time.Since(begun)
	return l, err
}

// quickly schedules in batches if the peer can do so, for a workload that measures something else.
func (r *run) quickly(rec *recorder, due time.Time) (load, error) {
	if l, err := r.inBatches(rec, due); !errors.Is(err, errNoBatch) {
		return l, err
	}
	return r.singly(rec, due)
}
