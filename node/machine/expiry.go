package machine

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

const (
	// expireEvery is the pause between two looks for what is past its retention.
	expireEvery = 5 * time.Second
	// expirePage is how much is deleted at a time.
	expirePage = 1_000
	// believeAfter is how long a wall clock that is not compared with the store's must have run
	// without being set before anything is deleted by it. If the retention is shorter, that
	// long is enough.
	believeAfter = 10 * time.Minute
)

type (
	// Expire asks for what is past its retention to be deleted. Expired answers it.
	Expire struct{ Expiry store.Expiry }
	// Expired says how much an Expire deleted.
	Expired struct {
		Count int
		Err   error
	}
)

func (Expire) Effect() {}
func (Expired) Event() {}

// expiry decides what may be deleted: only in the buckets that are owned, and only by a clock
// that can be trusted. A message deleted too early is gone for good, so if the store has a
// clock, that one counts, at its earliest.
type expiry struct {
	c       Config
	clock   *storeClock
	under   bool
	next    time.Duration
	since   time.Duration // since when the node's own clock has gone on without being set
	watched bool          // from the first renewal on it is seen when that clock is set
}

// see takes in what an event says about the clocks, and how a deletion ended.
func (x *expiry) see(now postdate.Now, ev Event) {
	switch ev := ev.(type) {
	case fence.Renewed:
		if ev.Err == nil && ev.Store != 0 {
			x.clock.read(ev.Store, now.Mono)
		}
		if ev.Err == nil && !x.watched {
			x.watched, x.since = true, now.Mono
		}
	case Expired:
		x.under = false
		if ev.Err == nil && ev.Count >= expirePage {
			x.next = now.Mono
		}
	}
}

// clockSet notes that the node's own clock was set.
func (x *expiry) clockSet(now postdate.Now) { x.since = now.Mono }

// wake is when the next look is due.
func (x *expiry) wake() time.Duration {
	if x.under {
		return never
	}
	return x.next
}

// before is the time before which something must have ended to be past its retention, or 0 if
// no clock can be trusted.
func (x *expiry) before(now postdate.Now, retention time.Duration) postdate.Time {
	if t, known := x.clock.at(now); known {
		return t.Add(-retention)
	}
	if now.Mono-x.since < min(believeAfter, retention) {
		return 0
	}
	return now.Wall.Add(-retention)
}

// expire asks for one page at a time of what is past its retention, while the node has its
// lease.
func (m *Machine) expire(now postdate.Now) {
	x := &m.expiry
	if x.under || now.Mono < x.next {
		return
	}
	x.next = now.Mono + expireEvery
	m.stepPoller(now, fence.Tick{}) // it sees whether the clock was set: nothing else may have told it since
	settled, delivered := x.before(now, m.c.Retention), x.before(now, m.c.InboxRetention)
	if settled == 0 && delivered == 0 || now.Mono >= m.fence.Until() || m.fence.Ahead() != 0 {
		return
	}
	buckets := m.fence.Buckets()
	if len(buckets) == 0 {
		return
	}
	x.under = true
	m.emit(Expire{store.Expiry{
		Buckets: buckets, SettledBefore: settled, DeliveredBefore: delivered, Limit: expirePage,
	}})
}
