package machine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// nudgeWithin is how soon a message must be due for its bucket's owner to be told. The owner's
// sweep finds later ones in time.
const nudgeWithin = 3 * time.Second

// Board decides whom a new message concerns, without waiting for a step: most messages are due
// later than what their bucket waits for anyway, and need next to no work. It also tells the
// time. It is safe for concurrent use.
type Board struct {
	clock  storeClock
	before []atomic.Int64 // per bucket: a nudge matters where it is earlier
	owners atomic.Pointer[[]string]
	looked atomic.Bool

	mu     sync.Mutex
	nudges map[int]postdate.Time // per bucket: the earliest one that nobody took yet
}

func newBoard(c Config) *Board {
	b := &Board{before: make([]atomic.Int64, c.Buckets), nudges: map[int]postdate.Time{}}
	b.clock.skewMax = c.Fence.SkewMax
	return b
}

// Wall is the time to write into the store: the wall clock, or the store's clock if the wall
// clock is more than SkewMax behind it.
func (b *Board) Wall(now postdate.Now) postdate.Time { return b.clock.wall(now) }

// Passed is a time up to which something may be left out because it is over: like Wall, but no more than
// SkewMax ahead of the store's clock.
func (b *Board) Passed(now postdate.Now) postdate.Time { return b.clock.passed(now) }

// ClockOffset is how far the wall clock is ahead of the store's, if the store has one: the least that a
// renewal of the lease in the last minute showed, and at most its duration too much.
func (b *Board) ClockOffset(now postdate.Now) (ahead time.Duration, known bool) {
	store, known := b.clock.at(now)
	return now.Wall.Sub(store), known
}

// Nudge notes that a durable message is due. It reports whether the machine must be woken to
// [Board.Take] the nudge.
func (b *Board) Nudge(n poller.Nudge) (wake bool) {
	if n.Bucket < 0 || n.Bucket >= len(b.before) || int64(n.At) >= b.before[n.Bucket].Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, there := b.nudges[n.Bucket]; !there || n.At < at {
		b.nudges[n.Bucket] = n.At
	}
	return len(b.nudges) == 1
}

// Take removes and returns the nudges, for a [poller.Nudged].
func (b *Board) Take() []poller.Nudge {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]poller.Nudge, 0, len(b.nudges))
	for bucket, at := range b.nudges {
		all = append(all, poller.Nudge{Bucket: bucket, At: at})
	}
	clear(b.nudges)
	slices.SortFunc(all, func(a, b poller.Nudge) int { return a.Bucket - b.Bucket })
	return all
}

// Owner names the node to nudge over gossip, which is the bucket's owner by the ring; "" if no
// nudge is needed or the owner is me. While a bucket changes owners, this may be the wrong
// node: then the sweep finds the message.
func (b *Board) Owner(n poller.Nudge, now postdate.Time, me string) string {
	owners := b.owners.Load()
	if owners == nil || n.At > now.Add(nudgeWithin) || n.Bucket < 0 || n.Bucket >= len(*owners) {
		return ""
	}
	if owner := (*owners)[n.Bucket]; owner != me {
		return owner
	}
	return ""
}

// Looked reports whether the leases were read.
func (b *Board) Looked() bool { return b.looked.Load() }

// setOwners takes in which node is to own each bucket.
func (b *Board) setOwners(owners []string) { b.owners.Store(&owners) }

func (b *Board) setHorizon(h poller.Horizon) { b.before[h.Bucket].Store(int64(h.Before)) }
