package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// measure measures a point on nodes that were just started and have an empty store.
func (g growth) measure(ctx context.Context, root string, p point) (f figures, err error) {
	ctx, cancel := context.WithCancel(ctx)
	wish := nodesWish{binary: g.binary, root: root, count: p.Nodes, buckets: p.Buckets, inboxes: p.Inboxes}
	if p.Axis == "nodes" {
		wish.mongodb = g.mongodb
	}
	begun := time.Now()
	n, err := startNodes(ctx, wish)
	if err != nil {
		cancel()
		return nil, err
	}
	defer func() { // readers first
		cancel()
		err = errors.Join(err, n.stop())
	}()
	o := g.options
	o.n, o.rate = p.Burst, p.Rate
	r := &run{options: o, ctx: ctx, peer: n, size: p.Payload, perBatch: p.Batch}
	if f, err = r.grow(n, p, g.rest); err != nil {
		return nil, err
	}
	return f, clockWasSet(begun)
}

// grow fills the store, and then measures what a message costs above that.
func (r *run) grow(n *nodes, p point, rest time.Duration) (figures, error) {
	empty, err := n.consumption(r.ctx)
	if err != nil {
		return nil, err
	}
	took, err := r.fill(p.Pending)
	if err != nil {
		return nil, err
	}
	if err := sleep(r.ctx, rest); err != nil {
		return nil, err
	}
	full, err := n.consumption(r.ctx)
	if err != nil {
		return nil, err
	}
	f := figures{filledPerS: float64(p.Pending) / took.Seconds(),
		memoryEmpty: float64(empty.memory), memoryFull: float64(full.memory),
		diskEmpty: float64(empty.disk), diskFull: float64(full.disk)}

	before := r.given
	burst, err := r.burst()
	if err != nil {
		return nil, err
	}
	after, err := n.consumption(r.ctx)
	if err != nil {
		return nil, err
	}
	f[schedulesPerS], f[drainedPerS] = burst[schedulesPerS], burst[drainedPerS]
	f[burstCPU] = perMessage(after.processor-full.processor, r.given-before)
	f[burstMongo] = perMessage(after.mongodb-full.mongodb, r.given-before)

	before = r.given
	steady, err := r.steady()
	if err != nil {
		return nil, err
	}
	end, err := n.consumption(r.ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{lagP50, lagP99, callP50, callP99} {
		f[name] = steady[name]
	}
	f[duplicates] = burst[duplicates] + steady[duplicates]
	f[steadyCPU] = perMessage(end.processor-after.processor, r.given-before)
	f[steadyMongo] = perMessage(end.mongodb-after.mongodb, r.given-before)
	return f, nil
}

// perMessage returns a time in microseconds for each of n messages.
func perMessage(d time.Duration, n uint64) float64 {
	return float64(d.Microseconds()) / float64(n)
}

// fill schedules messages that are due at any time of the day after the next 24 hours.
func (r *run) fill(n int) (time.Duration, error) {
	b, ok := r.peer.(batcher)
	if !ok {
		return 0, errNoBatch
	}
	const day = 24 * time.Hour
	begun, first := time.Now(), r.given
	r.given += uint64(n)
	l, err := r.inCalls(batchCallers, n, r.perBatch, fillTimeout,
		func(ctx context.Context, from, to int) (time.Duration, error) {
			var items []item
			for i := from; i < to; i++ {
				id := first + uint64(i)
				items = append(items, item{id, begun.Add(day + rand.N(day)), payload(id, r.size)})
			}
			return 0, b.scheduleAll(ctx, items)
		})
	return l.took, err
}

const fillTimeout = time.Minute // of a batch: a store that merges much may pause
