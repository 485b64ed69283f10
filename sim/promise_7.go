package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
)

// healthyLateMax is how late a message of a healthy channel may be while others are
// dead, slow, or full of poison.
const healthyLateMax = 1500 * time.Millisecond

// brokerFirst is how long a node waits for such a broker before it begins without it.
const brokerFirst = 2 * time.Second

// promise7: a channel that is dead or slow stalls no other, and holds no orderly stop up.
func promise7(h *history, f fact) string {
	switch f := f.(type) {
	case factOverran:
		if h.w.plan.calm() {
			return fmt.Sprintf("the orderly stop of %s did not end within %s", f.p.lease, stopMax)
		}
	case factArrive:
		most := healthyLateMax
		switch h.w.plan.profile {
		case profileChannels:
		case profileDrains: // a bucket may rest twice on its way to another node, and on its way back
			most += 6 * h.w.plan.poller.DrainStep
			most += 2 * brokerFirst // and wait each time for a broker that keeps former owners out
		default:
			return ""
		}
		if late := h.lateness(f.e); f.e.message.Channel == h.w.plan.channels[channelGood] && late > most {
			return fmt.Sprintf("%s of a healthy channel is %s late while others are in trouble", f.e.story.key.ScheduleID, late)
		}
	}
	return ""
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
