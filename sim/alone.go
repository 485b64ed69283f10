package sim

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// In some worlds a node is alone, with a store of its own. No other process can open that
// store; it has no clock, and it stops and dies with its process. What a call had done when the
// process died stays, or is lost if it was not on disk yet; no client is told of it before it
// is on disk.

// alone reports whether this world's node has a store of its own.
func (p *plan) alone() bool { return p.profile == profileAlone || p.profile == profileAloneQuiet }

// inStore does something in the store after a delay. A store of the node's own does it only
// while the process runs.
func (p *process) inStore(d time.Duration, do func()) {
	if p.w.plan.alone() {
		p.after(d, do)
		return
	}
	p.w.after(d, do)
}

// sortOfAlone draws the sort and the length of a world with one node.
func (d *draw) sortOfAlone() {
	if d.r.IntN(3) == 0 {
		d.p.length *= 3 // long enough for a clock to be trusted at times
	}
	if d.r.IntN(5) == 0 {
		d.p.profile = profileAloneQuiet
	}
}

// alone draws the faults of a node that is alone. How often it dies, and how often its clock is
// set, differs from world to world: it deletes nothing before its clock has run long enough
// without being set.
func (d *draw) alone() {
	p := d.p
	pause := []time.Duration{3 * time.Second, 15 * time.Second, 2 * time.Minute}[d.r.IntN(3)]
	for at := 3 * time.Second; at < p.length; at += d.upTo(2 * pause) {
		switch d.r.IntN(3) {
		case 0:
			d.nodeFault(at)
		case 1:
			d.storeFault(at)
		default:
			d.brokerFault(at, d.r.IntN(len(p.channels)))
		}
	}
	d.without(faultJump)                                         // setClock draws these
	d.without(faultStray, faultFailover, faultShard, faultBlind) // these need more than one node
	for i := range p.items {
		// Freezes too short to show as a jump of the clock would add up.
		if it := &p.items[i]; it.kind == faultFreeze {
			it.d += time.Second
		}
	}
	pause = []time.Duration{15 * time.Second, time.Minute, 6 * time.Minute}[d.r.IntN(3)]
	for at := d.upTo(2 * pause); at < p.length; at += d.between(time.Second, 2*pause) {
		d.setClock(at)
	}
	if d.r.IntN(3) == 0 {
		d.backlogs()
	}
	if p.retention >= time.Hour && d.r.IntN(2) == 0 {
		d.expiries()
	}
}

// without removes the faults of these kinds.
func (d *draw) without(kinds ...kind) {
	d.p.items = slices.DeleteFunc(d.p.items, func(it item) bool { return slices.Contains(kinds, it.kind) })
}

// setClock sets the wall clock, by seconds or by days: while the process runs, while it is
// down, or before it first renews its lease. The clock stays wrong for a while, or until
// everything heals.
func (d *draw) setClock(at time.Duration) {
	most := []time.Duration{10 * time.Second, 10 * time.Minute, 3 * time.Hour, 72 * time.Hour}[d.r.IntN(4)]
	off := time.Second + d.upTo(most)
	if d.r.IntN(3) == 0 {
		off = -off
	}
	switch d.r.IntN(5) {
	case 0:
		down := d.upTo(4 * time.Second)
		d.add(item{at: at, kind: faultCrash, d: down})
		at += d.upTo(down)
	case 1:
		down := d.upTo(time.Second)
		d.add(item{at: at, kind: faultCrash, d: down})
		if d.r.IntN(2) == 0 {
			d.add(item{at: at, kind: faultHang, d: down + d.upTo(5*time.Second), p: 1})
		}
		at += down + d.upTo(6*time.Millisecond)
	case 2: // with no renewal of the lease to check it
		d.add(item{at: at, kind: []kind{faultLoseRequest, faultHang}[d.r.IntN(2)], d: d.upTo(time.Minute), p: 1})
		if d.r.IntN(2) == 0 {
			d.add(item{at: at + d.upTo(time.Second), kind: faultJump, d: time.Second})
			at += time.Second + d.upTo(time.Minute)
		}
	}
	d.add(item{at: at, kind: faultJump, d: off})
	if stays := d.r.IntN(3); stays < 2 {
		at += d.between(time.Second, []time.Duration{15 * time.Second, 15 * time.Minute}[stays])
		d.add(item{at: at, kind: faultJump, d: -off})
	}
}

// aloneRetention draws how long a node that is alone keeps final messages and those in the
// inbox, rarely equally long.
func (d *draw) aloneRetention() {
	keep := func() time.Duration {
		most := []time.Duration{2 * time.Minute, 8 * time.Minute, time.Hour, longRetention}[d.r.IntN(4)]
		return d.between(min(most/4, time.Hour), most)
	}
	d.p.retention, d.p.inboxRetention = keep(), keep()
}

// believeAfter is how long a clock that nothing else checks must run without being set before
// it may be used to delete, unless the retention is shorter.
const believeAfter = 10 * time.Minute

// belief returns how long a node's clock must run before the node deletes by it what it keeps
// for that retention.
func (p *plan) belief(retention time.Duration) time.Duration {
	if !p.alone() {
		return 0
	}
	return min(believeAfter, retention)
}

// dated is the earliest time by which retention may count: true time or, for a node that is
// alone, its clock. If that clock was set, and no renewal of the lease has checked it since,
// the process may go by the clock as it was before.
func (w *world) dated() postdate.Time {
	if !w.plan.alone() {
		return w.wall()
	}
	n := w.nodes[0]
	return n.clock.now().Wall.Add(min(n.proc.judged-n.clock.offset, 0))
}
