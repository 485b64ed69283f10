package nodetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/testrun"
)

// Promise is what a node has promised about a message.
type Promise uint8

// The promises.
const (
	Unanswered Promise = iota // the call's answer was lost: the message may exist
	Accepted                  // it was acknowledged: it must arrive
	Withdrawn                 // its cancel returned 200: it must never arrive
	Wavering                  // accepted, but the answer to its cancel was lost
)

// Ledger records messages, promises and arrivals. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	entries map[string]*entry
	strange []string // ids that arrived without having been scheduled
	kills   []time.Time
}

type entry struct {
	promise  Promise
	due      time.Time
	arrivals []Arrival
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger { return &Ledger{entries: map[string]*entry{}} }

// Sent records a message before it is scheduled.
func (l *Ledger) Sent(id string, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[id] = &entry{due: due}
}

// Note records what was promised.
func (l *Ledger) Note(id string, p Promise) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[id].promise = p
}

// Is reports whether p was promised for a message.
func (l *Ledger) Is(id string, p Promise) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[id].promise == p
}

// Arrived records an arrival.
func (l *Ledger) Arrived(a Arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[a.ScheduleID]
	if e == nil {
		l.strange = append(l.strange, a.ScheduleID)
		return
	}
	e.arrivals = append(e.arrivals, a)
}

// Killed records that the node was killed at t: what was then in flight may arrive a second
// time.
func (l *Ledger) Killed(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kills = append(l.kills, t)
}

// Open counts the accepted messages that have not arrived.
func (l *Ledger) Open() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.promise == Accepted && len(e.arrivals) == 0 {
			n++
		}
	}
	return n
}

// Totals are a ledger's final counts.
type Totals struct {
	Sent, Accepted, Withdrawn, Wavering, Unanswered int
	UnansweredArrived                               int // those that did exist
	Marked                                          int // arrivals marked as possible duplicates
	Twice                                           int // messages that arrived more than once
}

func (t Totals) String() string {
	return fmt.Sprintf("%d sent: %d accepted, %d withdrawn, %d with a lost cancel, %d unanswered of which %d existed; %d arrivals marked, %d messages twice",
		t.Sent, t.Accepted, t.Withdrawn, t.Wavering, t.Unanswered, t.UnansweredArrived, t.Marked, t.Twice)
}

// complaintsMax is how many wrong messages a test names.
const complaintsMax = 10

// Check compares what arrived with what was promised, once nothing is PENDING any more and the
// inbox was read to its end. It fails the test for every message that is lost, that arrived
// although withdrawn, that was early, or that came again without both a kill in between and the
// mark.
func (l *Ledger) Check(t testing.TB) Totals {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	complaints := 0
	complain := func(format string, args ...any) {
		t.Helper()
		if complaints++; complaints <= complaintsMax {
			t.Errorf(testrun.Broken+": "+format, args...)
		}
	}
	totals := Totals{Sent: len(l.entries)}
	for id, e := range l.entries {
		totals.add(e)
		switch {
		case e.promise == Accepted && len(e.arrivals) == 0:
			complain("%s was accepted, due at %s, and is lost", id, At(e.due))
		case e.promise == Withdrawn && len(e.arrivals) > 0:
			complain("%s was cancelled with 200, and arrived at %s", id, At(e.arrivals[0].DeliveredAt))
		}
		for i := range e.arrivals {
			if fault := l.fault(e, i); fault != "" {
				complain("%s, due at %s, arrival %d of %d: %s", id, At(e.due), i+1, len(e.arrivals), fault)
			}
		}
	}
	for _, id := range l.strange {
		complain("%s arrived, and nobody scheduled it", id)
	}
	if complaints > complaintsMax {
		t.Errorf("and %d more of that kind", complaints-complaintsMax)
	}
	return totals
}

// CheckQuiet is Check for a run without failures: nothing may come twice or be marked.
func (l *Ledger) CheckQuiet(t testing.TB) Totals {
	t.Helper()
	totals := l.Check(t)
	if totals.Twice > 0 || totals.Marked > 0 {
		t.Errorf("%s: %d messages arrived twice, %d are marked, and nothing had failed", testrun.Broken, totals.Twice, totals.Marked)
	}
	return totals
}

func (t *Totals) add(e *entry) {
	switch e.promise {
	case Accepted:
		t.Accepted++
	case Withdrawn:
		t.Withdrawn++
	case Wavering:
		t.Wavering++
	case Unanswered:
		t.Unanswered++
		if len(e.arrivals) > 0 {
			t.UnansweredArrived++
		}
	}
	for _, a := range e.arrivals {
		if a.PossibleDuplicate {
			t.Marked++
		}
	}
	if len(e.arrivals) > 1 {
		t.Twice++
	}
}

// fault says what is wrong with a message's i-th arrival, or "".
func (l *Ledger) fault(e *entry, i int) string {
	a := e.arrivals[i]
	due := e.due.Truncate(time.Millisecond)
	switch {
	case !a.ExecutionTime.Equal(due):
		return "its execution time became " + At(a.ExecutionTime)
	case a.DeliveredAt.Before(due):
		return "early, by its own word: " + At(a.DeliveredAt)
	case a.ReceivedAt.Before(due):
		return "early, by the receiver's clock: " + At(a.ReceivedAt)
	case a.PossibleDuplicate && !l.inDoubt(due, a.DeliveredAt):
		return "marked as a possible duplicate, but it was in flight around no kill"
	case i == 0:
		return ""
	case !a.PossibleDuplicate:
		return "again, and not marked"
	case !l.killedBetween(e.arrivals[i-1].DeliveredAt, a.DeliveredAt):
		return "again, without a kill in between"
	}
	return ""
}

// claimAhead is how far a claim runs ahead of time, and a margin for the time between a kill
// and its record.
const claimAhead = 100 * time.Millisecond

// inDoubt says whether a message may have been claimed when the node was killed.
func (l *Ledger) inDoubt(due, delivered time.Time) bool {
	for _, kill := range l.kills {
		if due.Before(kill.Add(claimAhead)) && delivered.After(kill) {
			return true
		}
	}
	return false
}

func (l *Ledger) killedBetween(from, to time.Time) bool {
	for _, kill := range l.kills {
		// from is rounded down to the millisecond; a kill is recorded before it is done.
		if from.Before(kill.Add(claimAhead)) && !to.Before(kill.Truncate(time.Millisecond)) {
			return true
		}
	}
	return false
}
