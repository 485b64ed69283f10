package fence

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// An Event is something that a machine learns: this one, the poller's, or the node's, which
// combines both.
type Event interface{ Event() }

// The events.
type (
	// Tick says only that time has passed.
	Tick struct{}
	// Want names all buckets that this node should own.
	Want struct{ Buckets []int }
	// Hint says that leases, or the records of these owned buckets, may have changed. It may
	// bring a look forward; it never shortens a watch.
	Hint struct{ Buckets []int }
	// Freed is a hint that some buckets that this node should own were given back.
	Freed struct{}
	// Saw is the result of a look that began at Began: every lease, and the records that the
	// look named, or the error.
	Saw struct {
		Began      time.Duration
		Partitions []bucket.Partition
		Leases     []bucket.Lease
		Err        error
	}
	// Renewed says how a renewal ended. Store is the store's clock, read when the node's clock
	// was between Began and WallEnded; 0 if the store has none.
	Renewed struct {
		Began            postdate.Now
		WallEnded, Store postdate.Time
		Err              error
	}
	// Took says how an acquisition ended.
	Took struct {
		Results []store.Acquired
		Err     error
	}
	// GaveBack says how a release ended.
	GaveBack struct {
		Holds []store.Hold
		Err   error
	}
	// Fenced says that claims under these tokens were refused.
	Fenced struct{ Holds []store.Hold }
	// Drained says that these buckets have nothing that is claimed and not settled.
	Drained struct{ Holds []store.Hold }
	// ClockSet says that the wall clock was set, or that it ran on while the machine slept and
	// the monotonic clock stood still. A positive By is how much time the monotonic clock may
	// have missed.
	ClockSet struct{ By time.Duration }
)

func (Tick) Event()     {}
func (Want) Event()     {}
func (Hint) Event()     {}
func (Freed) Event()    {}
func (Saw) Event()      {}
func (Renewed) Event()  {}
func (Took) Event()     {}
func (GaveBack) Event() {}
func (Fenced) Event()   {}
func (Drained) Event()  {}
func (ClockSet) Event() {}

// The poller emits these.
func (Fenced) Effect()   {}
func (Drained) Effect()  {}
func (ClockSet) Effect() {}

// An Effect is something that a machine wants done or known.
type Effect interface{ Effect() }

// The effects. Look, Renew, Take and GiveBack are each answered by one event.
type (
	// Look asks for every lease, and for the partition records of these buckets.
	Look struct{ Buckets []int }
	// Renew asks for this node's lease to be written.
	Renew struct{ Lease bucket.Lease }
	// Take asks for buckets.
	Take struct{ Wants []store.Acquisition }
	// GiveBack releases buckets.
	GiveBack struct{ Holds []store.Hold }
	// Gained says that these buckets are owned from now on.
	Gained struct{ Partitions []bucket.Partition }
	// Lost says that these buckets are no longer owned. All buckets lost together come in one
	// Lost, so that the step that handles it begins nothing for any of them.
	Lost struct{ Holds []store.Hold }
	// Drain asks for what is in flight to be finished, so that these buckets can
	// be given back.
	Drain struct{ Holds []store.Hold }
	// LeaseUntil says up to when, on the monotonic clock, nobody else can have taken a bucket
	// of this node. Read is the reading of both clocks when the renewal began. The node may go
	// by it for the buckets that it still has.
	LeaseUntil struct {
		Mono time.Duration
		Read postdate.Now
	}
	// Alive names the leases that were not seen to stand still for as long as they last.
	Alive struct{ Leases []string }
	// Skewed says how far the wall clock is ahead of the store's (negative:
	// behind), when that becomes too much, and 0 when it is within its bound again.
	Skewed struct{ Ahead time.Duration }
)

func (Look) Effect()       {}
func (Renew) Effect()      {}
func (Take) Effect()       {}
func (GiveBack) Effect()   {}
func (Gained) Effect()     {}
func (Lost) Effect()       {}
func (Drain) Effect()      {}
func (LeaseUntil) Effect() {}
func (Alive) Effect()      {}
func (Skewed) Effect()     {}

// The poller learns these.
func (Gained) Event()     {}
func (Lost) Event()       {}
func (Drain) Event()      {}
func (LeaseUntil) Event() {}
