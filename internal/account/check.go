package account

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is a sort of violation.
type Kind string

// The kinds.
const (
	Lost           Kind = "lost"
	Early          Kind = "early"
	AfterCancel    Kind = "delivered after its cancel was answered 200"
	NeverScheduled Kind = "delivered though surely not scheduled"
	WrongTime      Kind = "delivered for a time that nobody asked for"
	Silent         Kind = "again, and not marked"
	NeedlessMark   Kind = "marked, and no fault was near"
	Again          Kind = "again, and no fault was in between"
	Gone           Kind = "acknowledged, then said not to exist"
	OddAnswer      Kind = "an answer that no client should get"
	FalseStatus    Kind = "the store's status is not what happened"
	Stuck          Kind = "still PENDING, or given up"
	Crash          Kind = "a node that ended by itself"
)

// Violation is a broken promise.
type Violation struct {
	Kind Kind
	ID   string
	Text string // the message's life, or the answer
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s %s", v.Kind, v.ID, v.Text) }

// Report is the result of a run.
type Report struct {
	Sent, Accepted, Refused, Unanswered int
	Cancelled, Wavering                 int // cancels answered with 200, and cancels without an answer
	Moved                               int
	Arrived, Marked, Twice              int // copies; marked copies; messages that arrived more than once
	Redelivered                         int // copies that the broker handed out again
	// unmarked copies that arrived after the marked one, around a fault that holds copies up
	HeldUp int

	Quiet, Faulty Lateness // of first arrivals, away from faults and around them
	Gap           Gap
	Windows       []Window
	Violations    []Violation
}

// Lateness is how late messages were by the receiver's clock.
type Lateness struct {
	Count         int
	P50, P99, Max time.Duration
}

// Gap is the longest time in which something was due and nothing arrived.
type Gap struct {
	From time.Time
	Long time.Duration
}

// Check balances the account and returns the report.
func (l *Ledger) Check() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := checker{margins: l.margins, windows: l.windows, audited: l.audited}
	r := &c.report
	r.Sent, r.Redelivered, r.Windows = len(l.entries), l.redeliver, slices.Clone(l.windows)
	for id, e := range l.entries {
		slices.SortStableFunc(e.arrivals, func(a, b Arrival) int { return a.Received.Compare(b.Received) })
		c.count(e)
		c.promises(id, e)
		for i := range e.arrivals {
			c.arrival(id, e, i)
		}
	}
	for _, a := range l.strange {
		r.Arrived++
		c.complain(NeverScheduled, a.ID, "arrived over "+a.Via+", and nobody sent it")
	}
	for _, text := range l.odd {
		c.complain(OddAnswer, "", text)
	}
	for _, text := range l.crashed {
		c.complain(Crash, "", text)
	}
	slices.SortFunc(r.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	r.Quiet, r.Faulty = lateness(c.quiet), lateness(c.faulty)
	r.Gap = c.gap()
	return *r
}

// checker balances one account.
type checker struct {
	margins       Margins
	windows       []Window
	audited       bool
	report        Report
	quiet, faulty []time.Duration
	firsts        []first
}

// first says when a message was due and when it first arrived.
type first struct{ due, received time.Time }

func (c *checker) complain(k Kind, id, text string) {
	c.report.Violations = append(c.report.Violations, Violation{k, id, text})
}

func (c *checker) count(e *entry) {
	r := &c.report
	switch e.exists {
	case yes:
		r.Accepted++
	case no:
		r.Refused++
	default:
		r.Unanswered++
	}
	switch e.cancelled {
	case yes:
		r.Cancelled++
	case maybe:
		r.Wavering++
	}
	if e.moved {
		r.Moved++
	}
	r.Arrived += len(e.arrivals)
	if len(e.arrivals) > 1 {
		r.Twice++
	}
	for _, a := range e.arrivals {
		if a.Marked {
			r.Marked++
		}
	}
}

// promises checks a message's account as a whole.
func (c *checker) promises(id string, e *entry) {
	switch {
	case e.owed() && len(e.arrivals) == 0:
		c.complain(Lost, id, e.life())
	case e.cancelled == yes && len(e.arrivals) > 0:
		c.complain(AfterCancel, id, e.life())
	case e.exists == no && len(e.arrivals) > 0:
		c.complain(NeverScheduled, id, e.life())
	}
	if e.gone || c.audited && e.exists == yes && e.status == "" {
		c.complain(Gone, id, e.life())
	}
	switch came := len(e.arrivals) > 0; {
	case e.status == "PENDING" || e.status == "DELIVERY_FAILED":
		c.complain(Stuck, id, e.life())
	case e.status == "DELIVERED" && !came && e.owed(), e.status == "CANCELLED" && came && e.cancelled == yes:
		// reported above as Lost or AfterCancel
	case e.status == "DELIVERED" && !came, e.status == "CANCELLED" && came, e.status != "" && e.exists == no:
		c.complain(FalseStatus, id, e.life())
	}
}

// arrival checks a message's i-th arrival.
func (c *checker) arrival(id string, e *entry, i int) {
	a := e.arrivals[i]
	if late, known := e.late(); i == 0 && known {
		c.firsts = append(c.firsts, first{a.Received.Add(-late), a.Received})
		if c.near(a.Due, a.Received, nil) {
			c.faulty = append(c.faulty, late)
		} else {
			c.quiet = append(c.quiet, late)
		}
	}
	marks := func(w Window) bool { return w.Marks }
	switch {
	case !slices.ContainsFunc(e.dues, a.Due.Equal):
		c.complain(WrongTime, id, e.life())
	case a.Received.Before(a.Due), a.left().Before(a.Due):
		c.complain(Early, id, e.life())
	case a.Marked && !c.near(a.Due, a.left(), marks):
		c.complain(NeedlessMark, id, e.life())
	case i == 0:
	case !c.near(a.Due, a.left(), marks), !c.near(e.arrivals[i-1].left(), a.left(), marks):
		c.complain(Again, id, e.life())
	case !a.Marked && e.arrivals[0].Marked && c.near(a.Due, a.left(), func(w Window) bool { return w.holdsUp(e.via) }):
		c.report.HeldUp++
	case !a.Marked:
		c.complain(Silent, id, e.life())
	}
}

// holdsUp reports whether a copy for a channel may have been held up.
func (w Window) holdsUp(via string) bool {
	broker, _, _ := strings.Cut(via, ":")
	return w.HoldsUp == "*" || w.HoldsUp == broker
}

// near reports whether a fault that such accepts (nil: any) happened in a span of time. One that
// such accepts has margins: what was claimed shortly before it is settled after it.
func (c *checker) near(from, to time.Time, such func(Window) bool) bool {
	return slices.ContainsFunc(c.windows, func(w Window) bool {
		switch {
		case !from.Before(w.To.Add(c.margins.After)):
			return false
		case such == nil:
			return !to.Before(cut(w.From))
		}
		return such(w) && to.After(w.From.Add(-c.margins.Before))
	})
}

// gap finds the longest time in which something was due and nothing arrived.
func (c *checker) gap() (longest Gap) {
	dues, times := make([]time.Time, len(c.firsts)), make([]time.Time, len(c.firsts))
	for i, f := range c.firsts {
		dues[i], times[i] = f.due, f.received
	}
	slices.SortFunc(dues, time.Time.Compare)
	slices.SortFunc(times, time.Time.Compare)
	for i := 1; i < len(times); i++ {
		from := times[i-1]
		if times[i].Sub(from) <= longest.Long {
			continue
		}
		if n, _ := slices.BinarySearchFunc(dues, from, time.Time.Compare); n < len(dues) {
			if long := times[i].Sub(dues[n]); long > longest.Long {
				longest = Gap{From: dues[n], Long: long}
			}
		}
	}
	return longest
}

// Recovered returns how long after from the last late message arrived, of those due before
// until; late means by more than late. It is 0 if there was none.
func (l *Ledger) Recovered(from, until time.Time, late time.Duration) (last time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if by, known := e.late(); known && by > late {
			if a := e.arrivals[0]; a.Received.After(from) && a.Due.Before(until) {
				last = max(last, a.Received.Sub(from))
			}
		}
	}
	return last
}

// Second counts the messages that were due in one second.
type Second struct {
	From  time.Time
	Due   int // messages
	Late  int // of these, how many were later than the limit
	Worst time.Duration
}

// Seconds returns the lateness of messages by the second in which they were due, for each
// second in which some were later than late.
func (l *Ledger) Seconds(late time.Duration) (all []Second) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seconds := map[int64]Second{}
	for _, e := range l.entries {
		by, known := e.late()
		if !known {
			continue
		}
		due := e.arrivals[0].Due.Truncate(time.Second)
		s := seconds[due.Unix()]
		s.From = due
		s.Due++
		if by > late {
			s.Late++
		}
		s.Worst = max(s.Worst, by)
		seconds[due.Unix()] = s
	}
	for _, s := range seconds {
		if s.Late > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Second) int { return a.From.Compare(b.From) })
	return all
}

func lateness(all []time.Duration) Lateness {
	if len(all) == 0 {
		return Lateness{}
	}
	slices.Sort(all)
	at := func(p float64) time.Duration { return all[int(p*float64(len(all)-1))] }
	return Lateness{Count: len(all), P50: at(0.50), P99: at(0.99), Max: all[len(all)-1]}
}
