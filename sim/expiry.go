package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// longRetention is the retention in worlds in which nodes delete nothing.
const longRetention = 24 * time.Hour

// short reports whether nodes delete final messages in this world.
func (p *plan) short() bool { return p.alone() || p.retention < longRetention }

// goneWithin is how long a message may still be there after its retention, and after everything
// heals. By then each bucket has an owner again, which has looked for such messages.
const goneWithin = time.Minute

// rest is the least time that a world goes on after everything heals: if nodes delete, until
// what is past its retention must be gone, and half a minute more.
func (p *plan) rest() time.Duration {
	if p.short() {
		return upWithin + p.belief(max(p.retention, p.inboxRetention)) + goneWithin + 30*time.Second
	}
	return 20 * time.Second
}

// retention draws how long finished messages are kept: in some worlds so short that nodes
// delete some, and in the wilder of these by clocks that are far off.
func (d *draw) retention() {
	p := d.p
	if p.alone() {
		return
	}
	p.retention, p.inboxRetention = longRetention, longRetention
	if d.r.IntN(5) > 0 {
		return
	}
	p.retention, p.inboxRetention = d.between(30*time.Second, 2*time.Minute), d.between(30*time.Second, 2*time.Minute)
	// otherwise little would be left
	p.items = slices.DeleteFunc(p.items, func(it item) bool { return it.kind == opExpire })
	if !p.calm() {
		d.wrongClocks()
	}
}

// wrongClocks draws clocks that are minutes or hours off, from the start of a process or
// suddenly, until they are set right. Often the store's answers are lost meanwhile, so that no
// renewal of the lease reveals it.
func (d *draw) wrongClocks() {
	for at := 20 * time.Second; at < d.p.length; at += d.between(5*time.Second, 40*time.Second) {
		node, off := d.r.IntN(len(d.p.clocks)), d.around([]time.Duration{5 * time.Minute, 48 * time.Hour}[d.r.IntN(2)])
		wrong := at
		if d.r.IntN(3) == 0 {
			down := d.upTo(4 * time.Second)
			d.add(item{at: at, kind: faultCrash, a: node, d: down})
			wrong += d.upTo(down)
		} else if d.r.IntN(2) == 0 {
			d.add(item{at: at - d.upTo(100*time.Millisecond), kind: faultLoseAnswer, d: d.upTo(8 * time.Second), p: 1})
		}
		d.add(item{at: wrong, kind: faultJump, a: node, d: off})
		d.add(item{at: wrong + d.between(time.Second, 15*time.Second), kind: faultJump, a: node, d: -off})
	}
}

// ended returns when a final message became final, by the time by which retention counts: when
// its owner learned of it, or a client cancelled it, which may be long before the write.
func (h *history) ended(s, present *story, before *row, st *store.Settlement) postdate.Time {
	now := h.w.dated()
	switch {
	case st == nil && h.w.plan.alone():
		return now
	case st == nil:
		requests := s.requests
		if s.series != nil {
			requests = slices.Concat(requests, s.series.requests)
		}
		for _, r := range requests {
			if r.kind == opCancel && r.ended == 0 {
				now = min(now, epoch.Add(r.began)) // this cancel may have done it, or a later one
			}
		}
		return now
	}
	attempted := st.How == store.SettleDelivered || st.Attempts > before.Attempts
	for _, e := range slices.Backward(present.emissions) {
		// Of several with one number only the last was an attempt: the channel was down before.
		if attempted && e.edition == presentEdition(&before.Record) && e.ofVersion(before) &&
			e.token == st.Token && e.attempt == st.Attempts && e.answered != 0 {
			return e.answered
		}
	}
	switch {
	case gaveUp(before, st), before.Occurrence != 0: // then, or when its owner noticed
		return min(before.AttemptTime, now)
	case before.ExpiresAt != 0:
		return min(before.ExpiresAt, now)
	}
	return now
}

// deletion says who asked to delete something, and by which clock.
type deletion struct {
	node   string        // "": the plan itself, which ignores retention
	wall   postdate.Time // the node's
	steady time.Duration // how long its process has run without its clock being set
}

func (p *process) deletion() deletion {
	c := &p.n.clock
	return deletion{p.n.name, c.now().Wall, c.monoNow() - max(p.began, c.set)}
}

// keptLongEnough says what a node deleted before its retention was over: in true time, minus
// what the node cannot know, or by its own clock if it is alone. In that case it also says what
// was deleted by a clock that had been set too recently.
func keptLongEnough(h *history, f factExpired) string {
	if f.by.node == "" {
		return ""
	}
	p, now := h.w.plan, h.w.wall()
	unknown := postdate.ClockSkewMaxDefault + h.w.renewalMax + h.w.frozenMax
	if p.alone() {
		now, unknown = f.by.wall, 0
	}
	if len(f.old) > 0 && f.by.steady < p.belief(p.retention) ||
		len(f.letters) > 0 && f.by.steady < p.belief(p.inboxRetention) {
		return fmt.Sprintf("%s deletes %d messages, and %d in the inbox, by a clock that has gone on for %s only",
			f.by.node, len(f.old), len(f.letters), f.by.steady)
	}
	for _, r := range f.old {
		ended := h.storyOf(r).ended
		if kept := now.Sub(ended); kept < p.retention-unknown {
			return fmt.Sprintf("%s was %s for %s only, and is deleted by %s: "+
				"it says that it ended at %d, and did at %d",
				r.ScheduleID, r.Status, kept, f.by.node, r.SettledAt-epoch, ended-epoch)
		}
	}
	for _, l := range f.letters {
		if kept := now.Sub(l.at); kept < p.inboxRetention-unknown {
			return fmt.Sprintf("%s was in the inbox for %s only, and is deleted by %s: "+
				"it says that it came at %d, and did at %d",
				l.story.key.ScheduleID, kept, f.by.node, l.wall-epoch, l.at-epoch)
		}
	}
	return ""
}

// keptTooLong says what should have been deleted, and was not.
func keptTooLong(h *history) string {
	p, last := h.w.plan, h.w.wall().Add(-goneWithin)
	since := p.length
	if p.alone() {
		since = max(since, h.w.upSince)
	}
	looked := func(retention time.Duration) bool { return last >= epoch.Add(since+p.belief(retention)) }
	for _, s := range h.order {
		if r := h.record(s); looked(p.retention) && r != nil && r.Status.Final() &&
			r.SettledAt.Add(p.retention) < last {
			return fmt.Sprintf("%s ended at %d, and is still there", s.key.ScheduleID, r.SettledAt-epoch)
		}
	}
	if looked(p.inboxRetention) && len(h.letters) > 0 && h.letters[0].wall.Add(p.inboxRetention) < last {
		return fmt.Sprintf("%s came at %d, and is still in the inbox",
			h.letters[0].story.key.ScheduleID, h.letters[0].wall-epoch)
	}
	return ""
}
