package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// brokerFirst is how long a new owner waits at most for a broker that keeps former ones out.
const brokerFirst = 2 * time.Second

// promise7: a channel that is dead or slow stalls no other, and holds no orderly stop up.
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
		healthy := h.w.channels[f.e.message.Channel].kind == channelGood
		watched := slices.Contains([]profile{profileChannels, profileDrains, profileAloneQuiet}, h.w.plan.profile)
		late := h.lateness(f.e)
		if !healthy || !watched || late <= 0 {
			return ""
		}
		if most := h.healthyLateMax(f.e); late > most {
			return fmt.Sprintf("%s of a healthy channel is %s late while others are in trouble, and may be %s", f.e.story.key.ScheduleID, late, most)
		}
	}
	return ""
}

// healthyLateMax is how late a message may be while other channels are dead, slow, or full
// of poison, where it is late.
func (h *history) healthyLateMax(e *emission) time.Duration {
	most, c := 1500*time.Millisecond, h.w.plan.poller
	if h.w.plan.profile == profileDrains && e.message.ExecutionTime.Sub(e.row.Written) < c.SweepEvery {
		most += c.SweepEvery // a node that stops is not told of it any more: its next sweep finds it
	}
	since := h.w.wall().Add(-h.lateness(e) - brokerFirst)
	for _, moved := range h.moves[e.message.Bucket] {
		if moved > since { // it rests on its way, and its new owner waits for the broker
			most += 2*c.DrainStep + brokerFirst
		}
	}
	return most
}

// lateness is how long after its time, and after it was there, a message arrived for
// the first time.
func (h *history) lateness(e *emission) time.Duration {
	if !e.first || e.row == nil || e.row.Status != postdate.Pending {
		return 0
	}
	return h.w.wall().Sub(max(e.message.ExecutionTime, e.row.Written, h.settledDown(), h.reachable(e.message.Bucket)))
}

// reachable is up to when the store excuses that a bucket is late. Where a part of it is
// out of reach, the other buckets are late until the first call with both is given up.
func (h *history) reachable(bucket int) postdate.Time {
	s := h.w.weather.shard
	switch {
	case s.until == 0:
		return 0
	case s.has(bucket): // calls that hang are waited for, and tried again by and by
		return epoch.Add(s.until + storeDeadline + 3*time.Second)
	}
	return epoch.Add(s.from + storeDeadline + time.Second)
}

// settledDown is when all nodes are up and have their buckets, or some have after there
// was none.
func (h *history) settledDown() postdate.Time { return epoch.Add(h.w.upSince + 5*time.Second) }
