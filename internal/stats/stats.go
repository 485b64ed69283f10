// Package stats has the figures of GET /v1/stats: how many messages a cluster scheduled, delivered,
// failed and cancelled in the last ten minutes, and how late it delivered them.
//
// A node reads its metrics with [Read], at the beginning of each slot of ten seconds and whenever someone
// asks, and gives what it read to its [Recorder]. The recorder's [Report] of a tenant, or of all, is what
// the node tells the others; [Merge] adds the reports of all nodes up.
//
// The package promises that
//   - its figures are those of /metrics: it counts nothing itself;
//   - nothing is counted twice or lost between two readings, and when a clock is set;
//   - a tenant's report has no figures of other tenants: what is in a series that several share is left out;
//   - it keeps ten minutes, however long a node runs.
//
// It has no goroutine, no clock and no lock.
package stats

import (
	"cmp"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

const (
	// SlotTime is how long a slot lasts. Slots begin at its multiples.
	SlotTime = 10 * time.Second

	// slotsMax is how many slots a node keeps, the one that runs included.
	slotsMax = 61

	// lastMinuteSlots is how many whole slots [Stats.LastMinute] has, beside the one that runs.
	lastMinuteSlots = 6
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

// Report has one node's figures of a tenant, or of all.
type Report struct {
	Since postdate.Time // when it began to count
	Total Figures       // since then
	Slots []Slot        // the oldest first; one of which nothing happened may be missing
	// OwnSeries is whether the tenant has metric series of its own. If it shares one with others, what is counted there
	// is missing. It is true in the figures of all tenants.
	OwnSeries bool

	Overdue      time.Duration // how long its earliest unsettled message has been due
	InHand       int           // messages in its memory
	ChannelsDown int           // channels that it finds down
	Down         []DownChannel // the first [DownMax] of them; only in the figures of all tenants
}

// DownMax is how many channels that are down are named.
const DownMax = 10

// DownChannel is a channel that takes no messages.
type DownChannel struct {
	Tenant  string
	Channel postdate.Channel
	Reason  string
}

func compareDown(a, b DownChannel) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Channel, b.Channel))
}

// mergeDown adds what another node names. Of a channel that both name, the first reason stays.
func mergeDown(to, more []DownChannel) []DownChannel {
	for _, d := range more {
		if at, found := slices.BinarySearchFunc(to, d, compareDown); !found {
			to = slices.Insert(to, at, d)
		}
	}
	return to[:min(len(to), DownMax)]
}

// Stats are the figures of a cluster.
type Stats struct {
	At      postdate.Time
	Tenant  string   // "": all
	Nodes   []string // whose figures are in it, by name
	Missing []string // members that did not report theirs

	Sum        Report   // of Since the earliest, of Overdue the longest, of ChannelsDown the most
	LastMinute Slot     // the last whole slots of a minute, and the one that runs
	Pending    *Pending // nil: not known
}

// Pending is what is stored and not settled.
type Pending struct{ Messages, Bytes int64 }

// Merge adds up the reports of nodes, by name, and lists the slots of the last ten minutes without a gap.
func Merge(at postdate.Time, nodes map[string]Report) Stats {
	s := Stats{At: at, Sum: Report{Since: at, OwnSeries: true}}
	sum := &s.Sum
	running := slotOf(at)
	first := running.Add(-(slotsMax - 1) * SlotTime)
	for name, n := range nodes {
		s.Nodes = append(s.Nodes, name)
		sum.Since = min(sum.Since, n.Since)
	}
	slices.Sort(s.Nodes)
	for from := first; from <= running; from = from.Add(SlotTime) {
		lasted := min(at, from.Add(SlotTime)).Sub(max(from, sum.Since)) // before that, nothing was counted
		sum.Slots = append(sum.Slots, Slot{From: from, Lasted: max(lasted, 0)})
	}
	for _, name := range s.Nodes {
		n := nodes[name]
		sum.Total.add(n.Total)
		sum.OwnSeries = sum.OwnSeries && n.OwnSeries
		sum.Overdue = max(sum.Overdue, n.Overdue)
		sum.InHand += n.InHand
		sum.ChannelsDown = max(sum.ChannelsDown, n.ChannelsDown)
		sum.Down = mergeDown(sum.Down, n.Down)
		for _, slot := range n.Slots {
			// the nodes' clocks differ a little: what is ahead belongs to the slot that runs
			if from := min(slot.From, running); from >= first {
				to := &sum.Slots[from.Sub(first)/SlotTime]
				to.Figures.add(slot.Figures)
				to.Lasted = max(to.Lasted, slot.Lasted)
			}
		}
	}
	sum.ChannelsDown = max(sum.ChannelsDown, len(sum.Down)) // nodes may find different ones down
	for _, slot := range sum.Slots[len(sum.Slots)-1-lastMinuteSlots:] {
		if s.LastMinute.From == 0 {
			s.LastMinute.From = slot.From
		}
		s.LastMinute.Lasted += slot.Lasted
		s.LastMinute.Figures.add(slot.Figures)
	}
	return s
}

func slotOf(at postdate.Time) postdate.Time {
	return at - at%postdate.Time(SlotTime.Milliseconds())
}

// SlotEnd is when the slot that runs at a time ends.
func SlotEnd(at postdate.Time) postdate.Time { return slotOf(at).Add(SlotTime) }

// Recorder keeps the figures of one node's last ten minutes. It is not safe for concurrent use.
type Recorder struct {
	first  postdate.Time // when the first reading was
	last   Reading
	lastAt postdate.Time
	slots  []recordedSlot // the oldest first
}

// recordedSlot is a slot of all tenants in which something happened.
type recordedSlot struct {
	from   postdate.Time
	lasted time.Duration
	of     map[string]Figures
	// confirmed has the channels of which brokers confirmed something: the metrics have few hundred.
	confirmed map[channel]uint64
}

// Record takes in a reading of the node's metrics. What happened since the reading before it belongs to the slot in
// which that one was.
func (r *Recorder) Record(at postdate.Time, now Reading) {
	if r.last.ByTenant == nil {
		r.first = at
	} else { // a clock that is set back takes no time, but what happened did
		r.note(slotOf(min(r.lastAt, at)), max(at.Sub(r.lastAt), 0), now)
	}
	r.last, r.lastAt = now, at
	oldest := slotOf(at).Add(-(slotsMax - 1) * SlotTime)
	r.slots = slices.DeleteFunc(r.slots, func(s recordedSlot) bool { return s.from < oldest || s.from > at })
}

// note adds what is new in now to a slot.
func (r *Recorder) note(from postdate.Time, lasted time.Duration, now Reading) {
	n := len(r.slots)
	if n == 0 || r.slots[n-1].from != from {
		r.slots = append(r.slots, recordedSlot{from: from, of: map[string]Figures{},
			confirmed: map[channel]uint64{}})
		n++
	}
	slot := &r.slots[n-1]
	slot.lasted += lasted
	for c, n := range now.channels {
		if more := over(n, r.last.channels[c]); more > 0 {
			slot.confirmed[c] += more
		}
	}
	for tenant, figures := range now.ByTenant {
		if more := figures.since(r.last.ByTenant[tenant]); !more.none() {
			sum := slot.of[tenant]
			sum.add(more)
			slot.of[tenant] = sum
		}
	}
}

// Report has the node's figures of a tenant, or of all if it is "", as of the last reading.
func (r *Recorder) Report(tenant string) (n Report) {
	n.Since, n.OwnSeries = r.first, r.last.ownSeries(tenant)
	n.Total = r.last.ByTenant.of(tenant)
	for _, slot := range r.slots {
		if figures := ByTenant(slot.of).of(tenant); !figures.none() {
			n.Slots = append(n.Slots, Slot{From: slot.from, Lasted: slot.lasted, Figures: figures})
		}
	}
	return n
}
