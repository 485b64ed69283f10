// Package stats says what a cluster did in the last ten minutes: how many messages were scheduled,
// delivered, failed and cancelled, and how late they were. It counts nothing itself: a [Recorder] reads
// a node's metrics now and then, so that its figures are those of /metrics, and [Merge] adds up what
// the nodes say.
//
// It has no goroutine and no clock.
package stats

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
)

const (
	// SlotTime is how long a slot lasts. Slots begin at its multiples.
	SlotTime = 10 * time.Second

	// slotsMax is how many slots a node keeps, the one that runs included.
	slotsMax = 61

	// recently is over how many whole slots [Stats.Recent] goes.
	recently = 6
)

// Figures count what became of messages.
type Figures struct {
	Scheduled, Delivered, Failed, Cancelled uint64
	Lateness                                Lateness // of those that brokers confirmed
}

func (f *Figures) add(g Figures) {
	f.Scheduled += g.Scheduled
	f.Delivered += g.Delivered
	f.Failed += g.Failed
	f.Cancelled += g.Cancelled
	f.Lateness = f.Lateness.plus(g.Lateness)
}

// since is how much f has more than g. What a counter lost, it has not.
func (f Figures) since(g Figures) Figures {
	return Figures{
		Scheduled: over(f.Scheduled, g.Scheduled), Delivered: over(f.Delivered, g.Delivered),
		Failed: over(f.Failed, g.Failed), Cancelled: over(f.Cancelled, g.Cancelled),
		Lateness: f.Lateness.since(g.Lateness),
	}
}

func over(a, b uint64) uint64 { return max(a, b) - b }

func (f *Figures) none() bool {
	return f.Scheduled == 0 && f.Delivered == 0 && f.Failed == 0 && f.Cancelled == 0 && f.Lateness.Count() == 0
}

// Slot is what happened within a time.
type Slot struct {
	From    postdate.Time
	Lasted  time.Duration
	Figures Figures
}

// Node is what one node says of a tenant, or of all.
type Node struct {
	Since postdate.Time // when it began to count
	Total Figures       // since then
	Slots []Slot        // the oldest first; one of which nothing happened may be missing
	// Apart is false if the tenant shares a series with others: then what is counted there is missing.
	Apart bool

	Overdue      time.Duration // how long its earliest unsettled message has been due
	InHand       int           // messages in its memory
	ChannelsDown int           // channels that it finds down
}

// Stats are the figures of a cluster.
type Stats struct {
	At      postdate.Time
	Tenant  string   // "": all
	Nodes   []string // whose figures are in it, by name
	Missing []string // members that did not say theirs

	Node             // the sums; of Overdue the longest, of ChannelsDown the most
	Recent  Slot     // the last minute
	Pending *Pending // nil: not known
}

// Pending is what is stored and not settled.
type Pending struct{ Messages, Bytes int64 }

// Merge adds up what nodes say, and lists the slots of the last ten minutes without a gap.
func Merge(at postdate.Time, nodes map[string]Node) Stats {
	s := Stats{At: at, Node: Node{Apart: true}}
	running := slotOf(at)
	first := running.Add(-(slotsMax - 1) * SlotTime)
	s.Since = at
	for _, n := range nodes {
		s.Since = min(s.Since, n.Since)
	}
	for from := first; from <= running; from = from.Add(SlotTime) {
		lasted := min(at, from.Add(SlotTime)).Sub(max(from, s.Since)) // before that, nothing was counted
		s.Slots = append(s.Slots, Slot{From: from, Lasted: max(lasted, 0)})
	}
	for name, n := range nodes {
		s.Nodes = append(s.Nodes, name)
		s.Total.add(n.Total)
		s.Apart = s.Apart && n.Apart
		s.Overdue = max(s.Overdue, n.Overdue)
		s.InHand += n.InHand
		s.ChannelsDown = max(s.ChannelsDown, n.ChannelsDown)
		for _, slot := range n.Slots {
			// the nodes' clocks differ a little: what is ahead belongs to the slot that runs
			if from := min(slot.From, running); from >= first {
				to := &s.Slots[from.Sub(first)/SlotTime]
				to.Figures.add(slot.Figures)
				to.Lasted = max(to.Lasted, slot.Lasted)
			}
		}
	}
	slices.Sort(s.Nodes)
	for _, slot := range s.Slots[len(s.Slots)-1-recently:] {
		if s.Recent.From == 0 {
			s.Recent.From = slot.From
		}
		s.Recent.Lasted += slot.Lasted
		s.Recent.Figures.add(slot.Figures)
	}
	return s
}

func slotOf(at postdate.Time) postdate.Time {
	return at - at%postdate.Time(SlotTime.Milliseconds())
}

// Recorder keeps the figures of one node's last ten minutes. It is not safe for concurrent use.
type Recorder struct {
	first  postdate.Time // when the first reading was
	last   Reading
	lastAt postdate.Time
	slots  []taken // the oldest first
}

// taken is a slot of all tenants in which something happened.
type taken struct {
	from   postdate.Time
	lasted time.Duration
	of     map[string]Figures
}

// Take takes in what a node's metrics say. What happened since the Take before it belongs to the slot in which that
// was.
func (r *Recorder) Take(at postdate.Time, now Reading) {
	if r.last.Totals == nil {
		r.first = at
	} else { // a clock that is set back takes no time, but what happened did
		r.note(slotOf(min(r.lastAt, at)), max(at.Sub(r.lastAt), 0), now.Totals)
	}
	r.last, r.lastAt = now, at
	oldest := slotOf(at).Add(-(slotsMax - 1) * SlotTime)
	r.slots = slices.DeleteFunc(r.slots, func(s taken) bool { return s.from < oldest || s.from > at })
}

// note adds what is new in now to a slot.
func (r *Recorder) note(from postdate.Time, lasted time.Duration, now Totals) {
	n := len(r.slots)
	if n == 0 || r.slots[n-1].from != from {
		r.slots = append(r.slots, taken{from: from, of: map[string]Figures{}})
		n++
	}
	slot := &r.slots[n-1]
	slot.lasted += lasted
	for tenant, figures := range now {
		if more := figures.since(r.last.Totals[tenant]); !more.none() {
			sum := slot.of[tenant]
			sum.add(more)
			slot.of[tenant] = sum
		}
	}
}

// Say is what the node says of a tenant, or of all if it is "", as of the last Take.
func (r *Recorder) Say(tenant string) (n Node) {
	n.Since, n.Apart = r.first, r.last.apart(tenant)
	n.Total = r.last.Totals.of(tenant)
	for _, slot := range r.slots {
		if figures := Totals(slot.of).of(tenant); !figures.none() {
			n.Slots = append(n.Slots, Slot{From: slot.from, Lasted: slot.lasted, Figures: figures})
		}
	}
	return n
}
