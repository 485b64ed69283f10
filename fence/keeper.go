package fence

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Locks is the part of a store that the keeper uses.
type Locks interface {
	Partitions(ctx context.Context) ([]bucket.Partition, []bucket.Lease, error)
	Acquire(ctx context.Context, wants []store.Acquisition) ([]store.Acquired, error)
	Release(ctx context.Context, holds []store.Hold) error
	Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error)
}

// Listener is told what the keeper decides. Its methods may block for a moment.
type Listener interface {
	Gained(partitions []bucket.Partition)
	Lost(hold store.Hold)
	Drain(hold store.Hold) // is to be answered with Drained
	LeaseUntil(mono time.Duration)
}

// Keeper runs a Machine.
type Keeper struct {
	m        *Machine
	store    Locks
	mono     func() time.Duration
	listener Listener
	log      *slog.Logger

	events chan Event
	stop   chan struct{}
	held   atomic.Int64
}

// NewKeeper makes a keeper that wants nothing yet. mono reads the monotonic clock.
func NewKeeper(c Config, s Locks, mono func() time.Duration, listener Listener, log *slog.Logger) *Keeper {
	return &Keeper{
		m: NewMachine(c), store: s, mono: mono, listener: listener, log: log,
		events: make(chan Event, 64), stop: make(chan struct{}),
	}
}

// Tell hands the machine an event. It does nothing once the keeper has ended.
func (k *Keeper) Tell(ev Event) {
	select {
	case k.events <- ev:
	case <-k.stop:
	}
}

// Held is how many buckets are owned at present.
func (k *Keeper) Held() int { return int(k.held.Load()) }

// Run runs until ctx ends. Buckets that are owned then stay locked until their
// lease is seen to stand still: to hand them over, tell it to Want none first.
func (k *Keeper) Run(ctx context.Context) {
	defer close(k.stop)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var ev Event = Tick{}
		select {
		case <-ctx.Done():
			return
		case ev = <-k.events:
		case <-timer.C:
		}
		for _, e := range k.m.Step(k.mono(), ev) {
			k.do(ctx, e)
		}
		k.held.Store(int64(k.m.Held()))
		timer.Reset(max(k.m.Wake()-k.mono(), 0))
	}
}

// do carries out one effect. Store calls run beside the loop.
func (k *Keeper) do(ctx context.Context, e Effect) {
	switch e := e.(type) {
	case Look:
		go func() {
			partitions, leases, err := k.store.Partitions(ctx)
			k.failed("reading the partition records", err)
			k.Tell(Saw{partitions, leases, err})
		}()
	case Renew:
		began := k.mono()
		go func() {
			_, err := k.store.Renew(ctx, e.Lease)
			k.failed("renewing the lease", err)
			k.Tell(Renewed{began, err})
		}()
	case Take:
		go func() {
			results, err := k.store.Acquire(ctx, e.Wants)
			k.failed("taking buckets", err)
			k.Tell(Took{results, err})
		}()
	case GiveBack:
		go func() {
			err := k.store.Release(ctx, e.Holds)
			k.failed("giving buckets back", err)
			k.Tell(GaveBack{e.Holds, err})
		}()
	case Gained:
		k.log.Info("took buckets", "count", len(e.Partitions))
		k.listener.Gained(e.Partitions)
	case Lost:
		k.log.Warn("lost a bucket to another owner", "bucket", e.Hold.Bucket, "token", e.Hold.Token)
		k.listener.Lost(e.Hold)
	case Drain:
		k.listener.Drain(e.Hold)
	case LeaseUntil:
		k.listener.LeaseUntil(e.Mono)
	}
}

func (k *Keeper) failed(what string, err error) {
	if err != nil {
		k.log.Warn(what+" failed and is repeated", "error", err)
	}
}
