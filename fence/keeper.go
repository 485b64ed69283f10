package fence

import (
	"context"
	"log/slog"
	"slices"
	"sync"
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
	LeaseUntil(until LeaseUntil)
	Alive(leases []string)
	GaveBack(holds []store.Hold) // they are free for others
}

// Keeper runs a Machine.
type Keeper struct {
	m        *Machine
	c        Config
	store    Locks
	clock    func() postdate.Now
	listener Listener
	log      *slog.Logger

	events chan Event
	stop   chan struct{}

	mu     sync.Mutex
	status Status
}

// Status is what the keeper knew a moment ago.
type Status struct {
	Held       int                // buckets that are owned
	Lease      time.Duration      // end of the own lease, on the monotonic clock
	Ahead      time.Duration      // of the wall clock before the store's, where that is too much; 0: it is not
	Looked     time.Duration      // when the records were read
	Partitions []bucket.Partition // as they were then, by number; not to be changed
	Alive      []string           // leases that did not stand still
}

// NewKeeper makes a keeper that wants nothing yet.
func NewKeeper(c Config, s Locks, clock func() postdate.Now, listener Listener, log *slog.Logger) *Keeper {
	return &Keeper{
		m: NewMachine(c), c: c, store: s, clock: clock, listener: listener, log: log,
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

// Status is what the keeper knows.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Held is how many buckets are owned at present.
func (k *Keeper) Held() int { return k.Status().Held }

// note changes the status.
func (k *Keeper) note(change func(s *Status)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.status)
}

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
		if saw, ok := ev.(Saw); ok && saw.Err == nil {
			slices.SortFunc(saw.Partitions, func(a, b bucket.Partition) int { return a.Bucket - b.Bucket })
			k.note(func(s *Status) { s.Partitions, s.Looked = saw.Partitions, saw.Began })
		}
		for _, e := range k.m.Step(k.clock().Mono, ev) {
			k.do(ctx, e)
		}
		k.note(func(s *Status) { s.Held = k.m.Held() })
		timer.Reset(max(k.m.Wake()-k.clock().Mono, 0))
	}
}

// do carries out one effect. Store calls run beside the loop; one that hangs is
// given up after a lease time, and is tried again.
func (k *Keeper) do(ctx context.Context, e Effect) {
	began := k.clock()
	call := func(what string, f func(ctx context.Context) (Event, error)) {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, k.c.LeaseTime)
			defer cancel()
			ev, err := f(ctx)
			if err != nil && ctx.Err() != context.Canceled {
				k.log.Warn(what+" failed and is repeated", "error", err)
			}
			k.Tell(ev)
		}()
	}
	switch e := e.(type) {
	case Look:
		call("reading the partition records", func(ctx context.Context) (Event, error) {
			partitions, leases, err := k.store.Partitions(ctx)
			return Saw{Began: began.Mono, Partitions: partitions, Leases: leases, Err: err}, err
		})
	case Renew:
		call("renewing the lease", func(ctx context.Context) (Event, error) {
			at, err := k.store.Renew(ctx, e.Lease)
			return Renewed{Began: began, WallEnded: k.clock().Wall, Store: at, Err: err}, err
		})
	case Take:
		call("taking buckets", func(ctx context.Context) (Event, error) {
			results, err := k.store.Acquire(ctx, e.Wants)
			return Took{Results: results, Err: err}, err
		})
	case GiveBack:
		call("giving buckets back", func(ctx context.Context) (Event, error) {
			err := k.store.Release(ctx, e.Holds)
			if err == nil {
				k.listener.GaveBack(e.Holds)
			}
			return GaveBack{Holds: e.Holds, Err: err}, err
		})
	default:
		k.tell(e)
	}
}

// tell passes on what needs no store.
func (k *Keeper) tell(e Effect) {
	switch e := e.(type) {
	case Gained:
		k.log.Info("took buckets", "count", len(e.Partitions))
		k.listener.Gained(e.Partitions)
	case Lost:
		k.log.Warn("lost a bucket", "bucket", e.Hold.Bucket, "token", e.Hold.Token)
		k.listener.Lost(e.Hold)
	case Drain:
		k.listener.Drain(e.Hold)
	case LeaseUntil:
		k.note(func(s *Status) { s.Lease = e.Mono })
		k.listener.LeaseUntil(e)
	case Alive:
		k.note(func(s *Status) { s.Alive = e.Leases })
		k.listener.Alive(e.Leases)
	case Skewed:
		k.note(func(s *Status) { s.Ahead = e.Ahead })
		if e.Ahead != 0 {
			k.log.Error("this machine's clock is too far from the store's: the node gives up its buckets until they agree; set the clock", "ahead", e.Ahead)
		} else {
			k.log.Info("the clock agrees with the store's again")
		}
	}
}
