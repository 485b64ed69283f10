package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// brokerFirst is how long a new owner waits, at most, for a broker to keep former owners out.
const brokerFirst = 2 * time.Second

// promise7: a channel that is dead or slow stalls no other, and holds up no orderly stop.
func promise7(h *history, f fact) string {
	switch f := f.(type) {
	case factOverran:
		if h.w.plan.calm() {
			return fmt.Sprintf("the orderly stop of %s did not end within %s", f.p.lease, stopMax)
		}
	case factPartition:
		if f.after.Token != f.before.Token {
			h.moves[f.after.Bucket] = append(h.moves[f.after.Bucket], h.w.wall())
		}
	case factArrive:
		b := h.w.channels[f.e.message.Channel]
		healthy := b.kind == channelGood ||
			b.kind == channelTight && f.e.message.Tenant != postdate.DefaultTenant // another tenant's is limited
		watched := slices.Contains([]profile{profileChannels, profileDrains, profileAloneQuiet, profileParts},
			h.w.plan.profile)
		late := h.lateness(f.e)
		if !healthy || !watched || late <= 0 {
			return ""
		}
		if most := h.healthyLateMax(f.e); late > most {
			return fmt.Sprintf("%s of a healthy channel is %s late while others are in trouble, and may be %s",
				f.e.story.key.ScheduleID, late, most)
		}
	}
	return ""
}

// healthyLateMax is how late a message may be while other channels are dead, slow, or full of
// poison, or while calls fail in other buckets. A bucket that shared a call with one of those
// tries again after a tenth of a second, and joins the others a second later, or sooner if the
// load allows it.
func (h *history) healthyLateMax(e *emission) time.Duration {
	most, c := 1500*time.Millisecond, h.w.plan.poller
	told := h.told[poller.Nudge{Bucket: e.message.Bucket, At: e.begins()}]
	if e.begins().Sub(e.row.Written) < c.SweepEvery && told < e.row.Written {
		// its nudge was lost, or went to a node that stops or that will own the bucket: a sweep
		// finds it
		most += c.SweepEvery
	}
	rests := 2*c.DrainStep + brokerFirst // the bucket changes hands, and then its new owner waits for the broker
	since := h.w.wall().Add(-h.lateness(e) - brokerFirst)
	if h.w.plan.profile == profileParts {
		since = since.Add(-rests) // under load, catching up takes as long again
	}
	for _, moved := range h.moves[e.message.Bucket] {
		if moved > since {
			most += rests
		}
	}
	return most
}

// lateness is how late a message arrived, counted from its execution time, or from when it
// could be sent if that was later; 0 if an earlier publish may have delivered it. Time spent
// parked counts, unless many hosts hang and a node has more than half of the buckets: a new
// host may then have to wait until one that hangs is given up.
func (h *history) lateness(e *emission) time.Duration {
	if broughtBefore(e) || e.row == nil || e.row.Status != postdate.Pending {
		return 0
	}
	there := e.story.begun
	if h.w.plan.profile == profileChannels && !h.evenly(e) {
		there = e.row.Written
	}
	return h.w.wall().Sub(max(e.begins(), there, h.settledDown(), h.excused(e),
		h.cameBack(e.message.Channel)))
}

// excused returns the time until which a message does not count as late, because of the store.
func (h *history) excused(e *emission) (at postdate.Time) {
	b := e.message.Bucket
	series, _ := e.message.Key.OfSeries()
	at = max(h.w.store.leftOut[e.message.Key], h.w.store.leftOut[series])
	moved := time.Duration(0)
	if moves := h.moves[b]; len(moves) > 0 {
		moved = moves[len(moves)-1].Sub(epoch)
	}
	for _, x := range h.w.weather.parts {
		if !x.ofParked() || e.story.parked {
			at = max(at, epoch.Add(x.excuses(b)))
		}
		if e.story.parked {
			at = max(at, epoch.Add(x.excusesParked(b, h.w.plan.buckets, moved)))
		}
	}
	return at
}

// settledDown is when nodes must have their buckets: five seconds after the first node started
// when none was up.
func (h *history) settledDown() postdate.Time { return epoch.Add(h.w.upSince + 5*time.Second) }

// broughtBefore reports whether an earlier publish of the edition has arrived, or may.
func broughtBefore(e *emission) bool {
	return slices.ContainsFunc(e.story.emissions,
		func(o *emission) bool { return o.number < e.number && o.edition == e.edition && o.mayArrive })
}

// begins is when the message was to be sent first.
func (e *emission) begins() postdate.Time { return max(e.message.ExecutionTime, e.story.begins) }

// evenly reports whether the node that sent a message has at most half of the buckets, and no
// bucket moved while the message was due, or within publishDeadline before that.
func (h *history) evenly(e *emission) bool {
	has, since := 0, min(e.story.begun, e.begins()).Add(-publishDeadline)
	for b, p := range h.w.store.Records {
		if p.Lease == e.process.lease {
			has++
		}
		if slices.ContainsFunc(h.moves[b], func(moved postdate.Time) bool { return moved > since }) {
			return false
		}
	}
	return 2*has <= len(h.w.store.Records)
}
