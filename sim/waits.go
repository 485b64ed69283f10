package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// waits draws how long messages may wait for a channel that is down, and one more channel,
// which never comes back: its messages must end all the same. Sometimes an operator pauses it.
func (d *draw) waits() {
	p := d.p
	if p.profile != profileChannels && (p.profile != profileStorm && p.profile != profileAlone || d.r.IntN(2) == 0) {
		return // messages wait for a day
	}
	p.poller.Retry.MaxParked = d.between(8*time.Second, time.Minute)
	p.poller.ParkMin = d.between(time.Second, 5*time.Second)
	p.channels, p.kinds = append(p.channels, "https://gone.example/1"), append(p.kinds, channelGone)
	gone := len(p.channels) - 1
	for at := 2 * time.Second; at < p.length; at += d.upTo(8 * time.Second) {
		it := item{at: at, kind: opSchedule, a: d.n, b: gone, d: d.upTo(4 * time.Second)}
		if d.r.IntN(6) == 0 {
			it.e = 1 + d.upTo(40*time.Second)
		}
		d.n++
		d.add(it)
		switch d.r.IntN(6) {
		case 0:
			d.add(item{at: at + d.upTo(90*time.Second), kind: opCancel, a: it.a})
		case 1:
			d.add(item{at: at + d.upTo(90*time.Second), kind: opMove, a: it.a, d: d.upTo(3 * time.Second)})
		}
	}
	for at := 10 * time.Second; at < p.length; at += d.between(20*time.Second, 2*time.Minute) {
		d.add(item{at: at, kind: faultLimit, b: gone, d: d.between(time.Second, 20*time.Second)})
	}
}

// gaveUpEarly says that a message failed although its channel was not down, or before it had
// waited its full time: from when it was there and due, and from the end of the last pause that
// its bucket's owner heard of. An owner that stood still did not hear of it.
func (h *history) gaveUpEarly(f factRecord) string {
	st, r := f.settlement, f.before
	if !gaveUp(r, st) {
		return ""
	}
	b := h.w.channels[r.Channel]
	begun := f.present.begun
	if f.story.tale != nil { // it waits from when it was to begin, although those before it wait, or it came late
		begun = r.NotBefore()
	}
	since := max(r.NotBefore(), begun)
	calm := h.w.plan.profile == profileChannels
	if calm && r.Tenant == postdate.DefaultTenant {
		for _, n := range h.w.nodes {
			if n.proc != nil && n.proc.lease == h.w.store.Records[r.Bucket].Lease {
				since = max(since, epoch.Add(n.proc.resumed[r.Channel]))
			}
		}
	}
	most := r.Retry.Or(h.w.plan.poller.Retry).MaxParked
	waited, apart := h.w.wall().Sub(since), h.w.clocksApart()
	if h.w.plan.alone() { // its own clock measures the wait, even if it was set ahead
		waited, apart = h.w.wall().Sub(begun)+h.w.nodes[0].clock.ahead(begun.Sub(epoch)), time.Second
	}
	// Where a clock that is ahead is the only one, a series is overdue from its beginning.
	if waited < most-apart && (f.story.tale == nil || !h.w.plan.alone()) {
		return fmt.Sprintf("%s failed after %s, and may wait for %s: %s", r.ScheduleID, waited, most, st.Reason)
	}
	switch {
	case !calm:
	case b.limit.Paused && r.Tenant == postdate.DefaultTenant && h.w.now > b.paused+time.Second:
		return fmt.Sprintf("%s failed while its channel is paused: %s", r.ScheduleID, st.Reason)
	case h.w.now > h.w.troubled(b)+poller.DefaultConfig().ProbeMax+publishDeadline+time.Second:
		return fmt.Sprintf("%s failed, and its channel is not down: %s", r.ScheduleID, st.Reason)
	}
	return ""
}

// gaveUp reports whether a settlement ends a message that has waited too long: it fails, but
// neither by an attempt nor because it expired.
func gaveUp(r *row, st *store.Settlement) bool {
	return st != nil && st.How == store.SettleFailed && !r.Ending && st.Attempts == r.Attempts &&
		(r.ExpiresAt == 0 || st.At < r.ExpiresAt)
}

// clocksApart is how far apart the clocks of two owners may be.
func (w *world) clocksApart() time.Duration {
	if w.plan.profile == profileChannels {
		return time.Second
	}
	lasts := time.Duration(0)
	for _, d := range w.plan.leases {
		lasts = max(lasts, d)
	}
	return 2*(postdate.ClockSkewMaxDefault+lasts) + w.frozenMax
}

// troubled returns when a channel was last down, or took messages without answering.
func (w *world) troubled(b *broker) time.Duration {
	switch {
	case b.kind == channelGone || b.kind == channelMute && !w.healed:
		return w.now
	case w.healed: // earlier outages are not recorded any more
		return w.plan.length
	}
	return max(b.down, b.blocked, b.lose.until)
}

// sentExpired says that a message is published although it has expired.
func sentExpired(e *emission) string {
	if expires := e.message.ExpiresAt; expires != 0 && e.wall >= expires {
		return fmt.Sprintf("%s is published at %d, and expired at %d", e.story, e.wall-epoch, expires-epoch)
	}
	return ""
}
