package sim

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// In some worlds a node is alone, with a store of its own: no other process can open that,
// it has no clock, and it stands still and dies with its process. What a call had done there
// when the process died stays, or is lost where it was not on disk yet: nobody is told of it
// before it is.

// alone says whether the node of this world has a store of its own.
func (p *plan) alone() bool { return p.profile == profileAlone || p.profile == profileAloneQuiet }

// inStore does something in the store after a while, which a store of the node's own does
// only while the process runs.
func (p *process) inStore(d time.Duration, do func()) {
	if p.w.plan.alone() {
		p.after(d, do)
		return
	}
	p.w.after(d, do)
}

// sortOfAlone draws which sort of world of one node it is, and how long it lasts.
func (d *draw) sortOfAlone() {
	if d.r.IntN(3) == 0 {
		d.p.length *= 3 // long enough for a clock to be believed at times
	}
	if d.r.IntN(5) == 0 {
		d.p.profile = profileAloneQuiet
	}
}

// alone draws what goes wrong for a node that is alone. How often it dies and how often its
// clock is set differ from world to world: it deletes nothing before its clock has gone on
// for long enough without being set.
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
	d.without(faultJump)                                         // setClock draws those
	d.without(faultStray, faultFailover, faultShard, faultBlind) // these take more than a node
	for i := range p.items {
		// Freezes too short to be seen as a jump of the clock would add up.
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

// without leaves out faults of these kinds.
func (d *draw) without(kinds ...kind) {
	d.p.items = slices.DeleteFunc(d.p.items, func(it item) bool { return slices.Contains(kinds, it.kind) })
}

// setClock draws that the wall clock is set, by seconds or by days: while the process runs,
// while it is down, or before it has renewed its lease for the first time. It stays wrong
// for a while, or until everything heals.
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
	case 2: // and no renewal of the lease judges it
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

// aloneRetention draws how long a node that is alone keeps messages that are final, and those
// in the inbox: seldom equally long.
func (d *draw) aloneRetention() {
	keep := func() time.Duration {
		most := []time.Duration{2 * time.Minute, 8 * time.Minute, time.Hour, longRetention}[d.r.IntN(4)]
		return d.between(min(most/4, time.Hour), most)
	}
	d.p.retention, d.p.inboxRetention = keep(), keep()
}

// believeAfter is how long a clock that no other one judges must have gone on without being
// set before anything is deleted by it, where the retention is not shorter.
const believeAfter = 10 * time.Minute

// belief is how long the clock of a node must have gone on before it deletes by it what it
// keeps for so long.
func (p *plan) belief(retention time.Duration) time.Duration {
	if !p.alone() {
		return 0
	}
	return min(believeAfter, retention)
}

// dated is the time by which retention counts, at its earliest: true time, or that of the one
// clock there is. Where that was set, and no renewal of the lease has judged it since, its
// process may date by the clock as it was.
func (w *world) dated() postdate.Time {
	if !w.plan.alone() {
		return w.wall()
	}
	n := w.nodes[0]
	return n.clock.now().Wall.Add(min(n.proc.judged-n.clock.offset, 0))
}
