package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

const payloadBytes = 256

// padding is random, so that a peer that compresses does not gain by it. It is long, so that
// payloads of one block on the disk have hardly anything in common.
var padding = func() []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	b := make([]byte, 8<<20)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return b
}()

// payload is the id in 20 digits, with padding from a place that neighbours do not share.
func payload(id uint64, size int) []byte {
	b := fmt.Appendf(make([]byte, 0, size), "%020d", id)
	from := int(id * 0x9E3779B97F4A7C15 >> 8 % uint64(len(padding)-size))
	return append(b, padding[from:from+size-len(b)]...)
}

// recorder notes when each of n messages was due, whether it was acknowledged, and when it
// arrived. All times are those of the machine's clock, by which the servers go too.
type recorder struct {
	from    uint64 // message i has the id from+i
	size    int    // of a payload
	due     []time.Time
	acked   []atomic.Bool
	count   []atomic.Int32
	first   []atomic.Int64 // the first delivery, Unix time in ns
	latest  atomic.Int64   // the latest delivery of all
	unknown atomic.Int64   // deliveries of something else
}

func newRecorder(from uint64, n, size int) *recorder {
	return &recorder{from: from, size: size, due: make([]time.Time, n), acked: make([]atomic.Bool, n),
		count: make([]atomic.Int32, n), first: make([]atomic.Int64, n)}
}

// message is message i, to be scheduled for an instant.
func (r *recorder) message(i int, due time.Time) item {
	r.due[i] = due
	id := r.from + uint64(i)
	return item{id, due, payload(id, r.size)}
}

// deliver notes a delivery.
func (r *recorder) deliver(payload []byte) {
	now := time.Now().UnixNano()
	id, err := uint64(0), error(nil)
	if len(payload) == r.size {
		id, err = strconv.ParseUint(string(payload[:20]), 10, 64)
	}
	i := id - r.from // very large if the id is smaller
	if len(payload) != r.size || err != nil || i >= uint64(len(r.due)) {
		r.unknown.Add(1)
		return
	}
	if r.count[i].Add(1) == 1 {
		r.first[i].Store(now)
	}
	r.latest.Store(now)
}

const (
	lookEvery = 20 * time.Millisecond
	lateAfter = time.Second // what comes twice may come so long after the rest
)

// wait returns when all that was acknowledged has arrived, or if nothing has arrived for the
// given time after the last was due.
func (r *recorder) wait(ctx context.Context, idle time.Duration) error {
	var last time.Time
	for _, due := range r.due {
		if due.After(last) {
			last = due
		}
	}
	for !r.complete() {
		if now := time.Now(); now.Sub(last) > idle && now.Sub(time.Unix(0, r.latest.Load())) > idle {
			return nil
		}
		if err := sleep(ctx, lookEvery); err != nil {
			return err
		}
	}
	return sleep(ctx, lateAfter)
}

func (r *recorder) complete() bool {
	for i := range r.acked {
		if r.acked[i].Load() && r.count[i].Load() == 0 {
			return false
		}
	}
	return true
}

// deliveries is what came of all messages.
type deliveries struct {
	arrived, lost, early, duplicates int
	unknown                          int
	lags                             []time.Duration // of the first deliveries
	longestGap                       time.Duration   // between two first deliveries
	last                             time.Time       // the last first delivery
}

// sum counts what came of all messages.
func (r *recorder) sum() (d deliveries) {
	var times []int64
	for i, due := range r.due {
		n := int(r.count[i].Load())
		if n == 0 {
			if r.acked[i].Load() {
				d.lost++
			}
			continue
		}
		first := r.first[i].Load()
		lag := time.Duration(first - due.UnixNano())
		if lag < 0 {
			d.early++
		}
		d.arrived++
		d.duplicates += n - 1
		d.lags, times = append(d.lags, lag), append(times, first)
	}
	d.unknown = int(r.unknown.Load())
	slices.Sort(times)
	for i := 1; i < len(times); i++ {
		d.longestGap = max(d.longestGap, time.Duration(times[i]-times[i-1]))
	}
	if len(times) > 0 {
		d.last = time.Unix(0, times[len(times)-1])
	}
	return d
}

// check returns an error if the deliveries are not what they have to be for their figures to
// mean something.
func (d deliveries) check() error {
	switch {
	case d.arrived == 0:
		return errors.New("nothing arrived")
	case d.lost > 0:
		return fmt.Errorf("%d messages were acknowledged and did not arrive", d.lost)
	case d.early > 0:
		return fmt.Errorf("%d of %d messages came early, by %v at most", d.early, d.arrived, -slices.Min(d.lags))
	case d.unknown > 0:
		return fmt.Errorf("%d deliveries were of no message of this run", d.unknown)
	}
	return nil
}

// quantile returns the value that the share q of all values does not exceed. It sorts them.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
}

// sleep sleeps, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
