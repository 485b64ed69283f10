// Package account keeps the books of a fault campaign: what clients were answered,
// what arrived, and when which fault was at work. At the end it says which promise
// was broken, by which message, and how late messages were.
//
// It promises that every acknowledged message is accounted for: one that is lost,
// early, there after its cancel was answered with 200, at a time that nobody asked
// for, there twice without a mark, or marked though no fault was near, is a
// violation by name. It believes no node: arrivals carry the receiver's time.
//
// It reads no clock and does no I/O.
package account

import (
	"slices"
	"sync"
	"time"
)

// Outcome is how a call ended, as far as its caller can know.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // no answer, or one that says that it may have been done
	Done                   // acknowledged
	NotDone                // answered that surely nothing was done
	TooLate                // answered that delivery may have begun
)

// Arrival is one copy of a message, where its receiver has it.
type Arrival struct {
	ID       string
	Via      string    // the channel
	Due      time.Time // the execution time that it carries
	Received time.Time // by the receiver's clock
	Marked   bool      // as a possible duplicate
	Attempt  int
	// Redelivered says that the broker had handed out this very copy before: that
	// is the broker's own repetition and not a second publish.
	Redelivered bool
}

// Window is a time in which a fault was at work.
type Window struct {
	Fault    string
	From, To time.Time
	// Marks says that outcomes may have become unknown, so that messages around it
	// may be marked, and come again.
	Marks bool
	// HoldsUp names the broker, or * for all, on the way to which a copy may have been
	// held up, because a node was stopped or the network was slow: it may come after
	// the next owner's marked copy.
	HoldsUp string
}

const (
	// claimAhead is how far a claim may run ahead of a fault, and a little for
	// the time between a fault and its note.
	claimAhead = 3 * time.Second
	// Aftermath is how long after a fault its effects may last: a lease runs out,
	// others take over, channels are probed again.
	Aftermath = 12 * time.Second
)

// existence is whether a message is in the store.
type existence uint8

const (
	maybe existence = iota
	yes
	no
)

type entry struct {
	via       string
	dues      []time.Time // the times at which it may be delivered
	exists    existence
	since     time.Time // when it was acknowledged
	unsure    bool      // a call that schedules it was left without an answer
	cancelled existence // no: not that anybody knows
	gone      bool      // acknowledged, and later said not to exist
	moved     bool
	status    string // what the store says at the end; "": nothing
	arrivals  []Arrival
}

// Ledger is the account of a run. It is safe for concurrent use.
type Ledger struct {
	mu        sync.Mutex
	entries   map[string]*entry
	strange   []Arrival // nobody scheduled them
	odd       []string  // answers that no client should get
	crashed   []string  // nodes that ended by themselves
	audited   bool      // what the store holds was read to its end
	windows   []Window
	redeliver int
	arrived   int
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger { return &Ledger{entries: map[string]*entry{}} }

// Sent notes a message before it is scheduled, with its channel and due time.
func (l *Ledger) Sent(id, via string, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[id] = &entry{via: via, dues: []time.Time{cut(due)}, cancelled: no}
}

// cut leaves the precision that a message has.
func cut(t time.Time) time.Time { return t.Truncate(time.Millisecond) }

// Scheduled notes how a call that schedules a message ended, and when; such a call may
// be repeated.
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

// Acknowledged says whether a message was.
func (l *Ledger) Acknowledged(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[id].exists == yes
}

// Cancelled notes how a cancel ended.
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

// Moved notes how a call ended that gives a message another due time.
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

// Missing notes that a node answered that there is no such message.
func (l *Ledger) Missing(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	e.gone = e.gone || e.exists == yes
}

// Odd notes an answer that a client should never get.
func (l *Ledger) Odd(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.odd = append(l.odd, what)
}

// Stored notes what status a message has in the store when all has been delivered.
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

// Audited notes that [Ledger.Stored] was told of every message in the store.
func (l *Ledger) Audited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.audited = true
}

// Crashed notes that a node ended though nobody ended it.
func (l *Ledger) Crashed(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashed = append(l.crashed, what)
}

// Arrived notes an arrival.
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

// Fault notes a fault when it is over. Until then [Ledger.Check] knows nothing of it.
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

// Arrivals counts all arrivals so far.
func (l *Ledger) Arrivals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrived
}

// late is how much later than it should a message first arrived: counted from its
// acknowledgement, where that came after its time. Nothing is known of one that was
// never acknowledged, or whose reschedule was never answered: it may have become durable
// long after its time, when a cut connection was whole again.
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

// owed says whether a message must arrive.
func (e *entry) owed() bool { return e.exists == yes && e.cancelled == no }
