package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// The due times of steady and crash, from the time for which the message is planned.
const (
	dueMin = time.Second
	dueMax = 10 * time.Second
)

// waitAfterKill is how long a delivery may take after a kill: some servers give the consumers that are
// gone up to 90 s.
const waitAfterKill = 100 * time.Second

// steady measures how late messages arrive under an even load.
func (r *run) steady() (figures, error) {
	rec, calls, failed, err := r.evenly(nil)
	if err != nil {
		return nil, err
	}
	if err := rec.wait(r.ctx, 20*time.Second); err != nil {
		return nil, err
	}
	if failed > 0 {
		return nil, fmt.Errorf("%d calls failed", failed)
	}
	d := rec.sum()
	f := d.figures()
	f[callP50], f[callP99] = ms(quantile(calls, 0.5)), ms(quantile(calls, 0.99))
	return f, d.check()
}

// crash kills the server under the same load and starts it again. A call that fails meanwhile is
// not repeated, and its message may arrive or not.
func (r *run) crash() (figures, error) {
	var down time.Duration
	rec, _, failed, err := r.evenly(func() error {
		if err := sleep(r.ctx, r.duration/3); err != nil {
			return err
		}
		begun := time.Now()
		r.server.kill()
		if err := r.server.start(r.ctx); err != nil {
			return err
		}
		down = time.Since(begun)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := rec.wait(r.ctx, waitAfterKill); err != nil {
		return nil, err
	}
	d := rec.sum()
	f := d.figures()
	f[restart], f[longestGap], f[failedCalls] = down.Seconds(), d.longestGap.Seconds(), float64(failed)
	return f, d.check()
}

// evenly schedules the even load. Each message has its time, however slow the peer is, and calls
// are measured from there. It runs meanwhile beside it, which may be nil.
func (r *run) evenly(meanwhile func() error) (rec *recorder, calls []time.Duration, failed int64, err error) {
	n := int(float64(r.rate) * r.duration.Seconds())
	rec, calls = r.messages(n), make([]time.Duration, n)
	if err := r.warmUp(rec); err != nil {
		return nil, nil, 0, err
	}
	beside := make(chan error, 1)
	begun := time.Now()
	go func() {
		if meanwhile == nil {
			beside <- nil
			return
		}
		beside <- meanwhile()
	}()
	var failures atomic.Int64
	err = inParallel(r.ctx, callers, n, func(ctx context.Context, i int) error {
		planned := begun.Add(time.Duration(float64(i) / float64(r.rate) * float64(time.Second)))
		if err := sleep(ctx, time.Until(planned)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := r.peer.schedule(ctx, rec.message(i, planned.Add(dueMin+rand.N(dueMax-dueMin))))
		calls[i] = time.Since(planned)
		if err != nil {
			failures.Add(1)
			return nil
		}
		rec.acked[i].Store(true)
		return nil
	})
	if besideErr := <-beside; err == nil {
		err = besideErr
	}
	return rec, calls, failures.Load(), err
}
