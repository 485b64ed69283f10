// Package machine is a whole node as one pure step: the locks (package fence), the share of the
// ring, the cycle of messages (package poller), fencing at a broker, what may be deleted, and
// when a nudge matters.
//
// Two drivers carry out its effects and feed the answers back in: the loop in package node, and
// the simulator. Neither decides anything, so what the simulator shows of a step holds for the
// product.
//
// It promises, for a driver that answers each effect as its comment says:
//
//   - The same events at the same times give the same effects. It does no I/O, starts no
//     goroutine and reads no clock.
//   - The poller works on a bucket only between the fence's Gained and Lost for it, and never
//     after the bucket was given back.
//   - Only [Board] may be used from other goroutines.
package machine

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
)

// Config holds the settings of a machine.
type Config struct {
	Fence   fence.Config
	Poller  poller.Config
	Buckets int // N
	// Broker says that a broker keeps former owners of buckets out, and must be told of each
	// change.
	Broker bool

	// Finished messages, and messages in inboxes, are kept for this long.
	Retention, InboxRetention time.Duration
}

// WithLease returns c with leases of the given duration. It adapts the intervals of renewals
// and looks, and the margin before a lease's end in which nothing is published.
func (c Config) WithLease(lease time.Duration) Config {
	c.Fence.LeaseTime, c.Fence.RenewEvery = lease, lease/5
	c.Fence.LookEvery = min(c.Fence.LookEvery, lease/5) // a long lease is no reason to hear late of what is free
	c.Poller.LeaseMargin = min(c.Poller.LeaseMargin, lease/5)
	return c
}

// Event is something that the machine learns: the events declared here, [fence.Tick], the
// answers to the effects of fence and poller, [fence.Hint], [fence.Freed], [poller.Limits] and
// [poller.Nudged].
type Event = fence.Event

// Effect is something that the machine wants done or known: the effects declared here; Look,
// Renew, Take and GiveBack of package fence; and Claim, Publish, Settle, FindParked and Unpark
// of package poller. Gained, Lost, Skewed, Fenced and ClockSet of package fence are for the
// log.
type Effect = fence.Effect

// Machine decides. Step must not be called concurrently.
type Machine struct {
	c      Config
	fence  *fence.Machine
	poller *poller.Machine
	share  share
	broker broker
	expiry expiry
	jobs   jobs
	board  *Board
	out    []Effect
}

// New returns the machine of a node that owns nothing yet. random returns numbers in [0, 1).
func New(c Config, random func() float64) *Machine {
	board := newBoard(c)
	c.Poller.Node = c.Fence.Node
	return &Machine{
		c: c, fence: fence.NewMachine(c.Fence), poller: poller.NewMachine(c.Poller, random, board.Wall),
		share: share{c: c, stale: true}, broker: newBroker(), expiry: expiry{c: c, clock: &board.clock}, board: board,
	}
}

// Step takes in one event and returns what to do now. First the event goes to those that it
// concerns. If it changed the cluster, the buckets are then divided anew, before the locks are
// asked for them; and the broker is told of buckets only once the locks have them. Expiry and jobs
// come last, because they work on the buckets that are owned by then.
func (m *Machine) Step(now postdate.Now, ev Event) []Effect {
	m.expiry.see(now, ev)
	m.jobs.see(now, ev)
	switch ev := ev.(type) {
	case fence.Tick:
		m.stepFence(now, ev)
		m.stepPoller(now, ev)
	case fence.Saw:
		if ev.Err == nil {
			m.board.looked.Store(true)
		}
		m.stepFence(now, ev)
	case fence.GaveBack:
		if ev.Err == nil {
			m.forgetAtBroker(ev.Holds...)
			if others := m.share.others(ev.Holds); len(others) > 0 {
				m.emit(Released{others})
			}
		}
		m.stepFence(now, ev)
	case fence.Hint, fence.Freed, fence.Renewed, fence.Took:
		m.stepFence(now, ev)
	case poller.Limits, poller.Nudged, poller.Claimed, poller.Published, poller.Settled, poller.ParkedFound,
		poller.Unparked:
		m.stepPoller(now, ev)
	case Members:
		m.share.members, m.share.stale = ev.Members, true
	case Leave:
		m.share.leaving, m.share.stale = true, true
	case KeptOut:
		m.keptOut(now, ev)
	case TakenAtBroker:
		m.takenAtBroker(now, ev.Bucket)
	case Expired, Worked, JobStarted:
	default:
		panic(fmt.Sprintf("machine: an event of an unknown sort: %T", ev))
	}
	if buckets, changed := m.share.divide(); changed {
		m.board.setOwners(m.share.owners)
		m.stepFence(now, fence.Want{Buckets: buckets})
	}
	if m.fence.Overdue(now.Mono) { // a driver that has much to tell may come to no Tick
		m.stepFence(now, fence.Tick{})
	}
	m.askBroker(now)
	m.expire(now)
	m.workOnJobs(now)
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

// stepFence gives the locks an event, and the poller what follows from it.
func (m *Machine) stepFence(now postdate.Now, ev Event) {
	for _, e := range m.fence.Step(now.Mono, ev) {
		switch e := e.(type) {
		case fence.Gained:
			m.emit(e)
			m.gained(now, e)
		case fence.Lost:
			m.emit(e)
			m.forgetAtBroker(e.Holds...)
			m.stepPoller(now, e)
		case fence.Drain:
			m.drain(now, e)
		case fence.LeaseUntil:
			m.stepPoller(now, e)
		case fence.Alive:
			m.share.alive, m.share.looked, m.share.stale = e.Leases, true, true
		default:
			m.emit(e)
		}
	}
}

// stepPoller gives the poller an event, and the locks what follows from it.
func (m *Machine) stepPoller(now postdate.Now, ev Event) {
	for _, e := range m.poller.Step(now, ev) {
		switch e := e.(type) {
		case fence.ClockSet:
			m.emit(e)
			m.expiry.clockSet(now)
			m.stepFence(now, e)
		case fence.Fenced:
			m.emit(e)
			m.stepFence(now, e)
		case fence.Drained:
			m.stepFence(now, e)
		case poller.Horizon:
			m.board.setHorizon(e)
		default:
			m.emit(e)
		}
	}
}

// Wake returns how long after now Step must be called with a [fence.Tick] if nothing else
// happens first.
func (m *Machine) Wake(now postdate.Now) time.Duration {
	at := min(m.fence.Wake(), m.broker.next, m.expiry.wake(), m.jobs.wake())
	return max(min(at-now.Mono, m.poller.Wake(now)), 0)
}

// never is later than any time of a monotonic clock.
const never time.Duration = 1<<63 - 1

// Board returns the part of the machine that other goroutines may use.
func (m *Machine) Board() *Board { return m.board }

// Status is what a node shows of its locks.
type Status struct {
	Held  int           // buckets that are owned
	Lease time.Duration // end of the own lease, on the monotonic clock
	Ahead time.Duration // of the wall clock before the store's, where that is too much; 0: it is not
	Alive []string      // leases that did not stand still; not to be changed
}

// Status is what the machine knows of its locks.
func (m *Machine) Status() Status {
	return Status{Held: m.fence.Held(), Lease: m.fence.Until(), Ahead: m.fence.Ahead(), Alive: m.share.alive}
}

// View is what the poller holds. It is too slow for every step.
func (m *Machine) View(now postdate.Now) poller.View { return m.poller.View(now) }

// Channels lists what the poller knows about channels. It is too slow for every step.
func (m *Machine) Channels() []poller.ChannelView { return m.poller.Channels() }

// Token is the token under which the poller works on a bucket, or 0.
func (m *Machine) Token(bucket int) uint64 { return m.poller.Token(bucket) }
