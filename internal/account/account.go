// Package account keeps the books of a test that disturbs nodes: the answers that clients got,
// what arrived, and when faults happened. At the end it says which promise was broken, by which
// message, and how late messages were.
//
// It promises that every acknowledged message is accounted for. A message is a violation,
// reported by name, if it is lost, early, delivered after its cancel was answered with 200,
// delivered for a time that nobody asked for, delivered twice without a mark or without a fault
// in between, or marked without a fault nearby. It trusts no node: arrivals carry the receiver's
// time.
//
// It reads no clock and does no I/O.
package account

import (
	"slices"
	"sync"
	"time"
)

// Outcome is how a call ended, as far as its caller knows.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // no answer, or one that says that it may have been done
	Done                   // acknowledged
	NotDone                // the answer says that surely nothing was done
	TooLate                // the answer says that delivery may have begun
)

// Arrival is one copy of a message, as received.
type Arrival struct {
	ID       string
	Via      string    // the channel
	Due      time.Time // the execution time that it carries
	Received time.Time // by the receiver's clock
	// Delivered is when it says that it was delivered. Zero: it does not say.
	Delivered time.Time
	Marked    bool // as a possible duplicate
	Attempt   int
	// Redelivered says that the broker had handed out this same copy before: the broker
	// repeated it, which is not a second publish.
	Redelivered bool
}

// Window is the time of a fault.
type Window struct {
	Fault    string
	From, To time.Time
	// Marks says that outcomes may have become unknown: messages around that time may be
	// marked, and arrive again.
	Marks bool
	// HoldsUp names a broker, or * for all. A copy may have been held up on its way there,
	// because a node was stopped or the network was slow, and may arrive after the next owner's
	// marked copy.
	HoldsUp string
}

// left is when a copy left the node, as closely as is known.
func (a *Arrival) left() time.Time {
	if a.Delivered.IsZero() {
		return a.Received
	}
	return a.Delivered
}

// Margins say how far a fault reaches: it explains the marks and second copies that left after
// From-Before, of messages that were due, and had come last, before To+After.
type Margins struct{ Before, After time.Duration }

// existence says whether a message is in the store.
type existence uint8

const (
	maybe existence = iota
	yes
	no
)

type entry struct {
	via       string
	dues      []time.Time // possible times of delivery
	exists    existence
	since     time.Time // when it was acknowledged
	unsure    bool      // a call that schedules it got no answer
	cancelled existence // no: as far as is known
	gone      bool      // acknowledged, and later reported as missing
	moved     bool
	status    string // its final status in the store; "": none
	arrivals  []Arrival
}

// Ledger is the account of a run. It is safe for concurrent use.
type Ledger struct {
	margins   Margins
	mu        sync.Mutex
	entries   map[string]*entry
	strange   []Arrival // of messages that were not scheduled
	odd       []string  // answers that no client should get
	crashed   []string  // nodes that ended by themselves
	audited   bool      // the store was read to its end
	windows   []Window
	redeliver int
	arrived   int
}

// NewLedger makes an empty ledger.
func NewLedger(m Margins) *Ledger { return &Ledger{margins: m, entries: map[string]*entry{}} }

// Sent records a message before it is scheduled, with its channel and due time.
func (l *Ledger) Sent(id, via string, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[id] = &entry{via: via, dues: []time.Time{cut(due)}, cancelled: no}
}

// cut rounds a time down to the precision of messages.
func cut(t time.Time) time.Time { return t.Truncate(time.Millisecond) }

// Scheduled records how and when a call that schedules a message ended. Such a call may be
// repeated.
func (l *Ledger) Scheduled(id string, o Outcome, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	switch {
	case o == Done:
		e.exists, e.since = yes, at
	case e.exists == yes:
	case o == NotDone && !e.unsure:
		e.exists = no
	default:
		e.unsure, e.exists = true, maybe
	}
}

// Acknowledged reports whether a message was acknowledged.
func (l *Ledger) Acknowledged(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[id].exists == yes
}

// Cancelled records how a cancel ended.
func (l *Ledger) Cancelled(id string, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	switch {
	case o == Done:
		e.cancelled = yes
	case o == Unknown && e.cancelled == no:
		e.cancelled = maybe
	}
}

// Moved records how a call ended that changes a message's due time.
func (l *Ledger) Moved(id string, due time.Time, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	switch o {
	case Done:
		e.dues, e.moved = []time.Time{cut(due)}, true
	case Unknown:
		e.dues = append(e.dues, cut(due))
	}
}

// Missing records that a node said that there is no such message.
func (l *Ledger) Missing(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	e.gone = e.gone || e.exists == yes
}

// Odd records an answer that a client should never get.
func (l *Ledger) Odd(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.odd = append(l.odd, what)
}

// Stored records a message's status in the store after all deliveries.
func (l *Ledger) Stored(id, status string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	if e == nil {
		l.odd = append(l.odd, "the store has "+id+", "+status+", and nobody sent it")
		return
	}
	e.status = status
}

// Audited records that [Ledger.Stored] was called for every message in the store.
func (l *Ledger) Audited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.audited = true
}

// Crashed records that a node ended by itself.
func (l *Ledger) Crashed(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashed = append(l.crashed, what)
}

// Arrived records an arrival.
func (l *Ledger) Arrived(a Arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived++
	e := l.entries[a.ID]
	if e == nil {
		l.strange = append(l.strange, a)
		return
	}
	if a.Redelivered && slices.ContainsFunc(e.arrivals, func(b Arrival) bool {
		return b.Attempt == a.Attempt && b.Marked == a.Marked && b.Due.Equal(a.Due)
	}) {
		l.redeliver++
		return
	}
	e.arrivals = append(e.arrivals, a)
}

// Fault records a fault when it is over. [Ledger.Check] does not know of it before.
func (l *Ledger) Fault(w Window) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows = append(l.windows, w)
}

// Open counts the acknowledged messages that must arrive and have not.
func (l *Ledger) Open() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.owed() && len(e.arrivals) == 0 {
			n++
		}
	}
	return n
}

// Arrivals returns how many arrivals there have been.
func (l *Ledger) Arrivals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrived
}

// late returns how late a message first arrived, counted from its due time or, if that was
// later, from its acknowledgement. The lateness is unknown if the message was never
// acknowledged, or a reschedule of it never answered: it may have become durable long after its
// time, when a cut connection was restored.
func (e *entry) late() (by time.Duration, known bool) {
	if len(e.arrivals) == 0 || e.exists != yes || len(e.dues) != 1 {
		return 0, false
	}
	a := e.arrivals[0]
	from := a.Due
	if e.since.After(from) {
		from = e.since
	}
	return max(0, a.Received.Sub(from)), true
}

// owed reports whether a message must arrive.
func (e *entry) owed() bool { return e.exists == yes && e.cancelled == no }
