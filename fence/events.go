package fence

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// An Event is something that a machine learns: this one, the poller's, or the node's,
// which is made of both.
type Event interface{ Event() }

// The events.
type (
	// Tick says only that time has passed.
	Tick struct{}
	// Want names the buckets that this node should own, all of them.
	Want struct{ Buckets []int }
	// Hint says that leases may have changed, or the records of these buckets, which
	// are owned. It may bring a look forward; it never shortens a watch.
	Hint struct{ Buckets []int }
	// Freed is a hint that buckets were given back which this node should own.
	Freed struct{}
	// Saw is what a look that began at Began read, or why it could not: every lease, and
	// the records that the look named.
	Saw struct {
		Began      time.Duration
		Partitions []bucket.Partition
		Leases     []bucket.Lease
		Err        error
	}
	// Renewed says how a renewal ended. Store is the store's clock, read between Began
	// and WallEnded of the node's; 0 where it has none.
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
	// Drained says that nothing of these buckets is claimed and unsettled.
	Drained struct{ Holds []store.Hold }
	// ClockSet says that the wall clock was set, or ran on while the machine slept and
	// its monotonic clock with it: By, where positive, is how much time that clock may
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

// The poller says these.
func (Fenced) Effect()   {}
func (Drained) Effect()  {}
func (ClockSet) Effect() {}

// An Effect is something that a machine wants done or known.
type Effect interface{ Effect() }

// The effects. Look, Renew, Take and GiveBack are answered by an event each.
type (
	// Look asks for every lease, and for the partition records of these buckets.
	Look struct{ Buckets []int }
	// Renew asks for the own lease to be written.
	Renew struct{ Lease bucket.Lease }
	// Take asks for buckets.
	Take struct{ Wants []store.Acquisition }
	// GiveBack releases buckets.
	GiveBack struct{ Holds []store.Hold }
	// Gained says that these buckets are owned from now on.
	Gained struct{ Partitions []bucket.Partition }
	// Lost says that these buckets are not owned any more. What is lost at a time is
	// said at once: nothing of one is begun when another one is heard to be lost.
	Lost struct{ Holds []store.Hold }
	// Drain asks for what is in flight to be finished, so that these buckets can
	// be given back.
	Drain struct{ Holds []store.Hold }
	// LeaseUntil says up to when, on the monotonic clock, nobody else can have taken a
	// bucket of this node. Read is what both clocks said when the renewal began: the
	// buckets that the node still has are its own by them.
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
