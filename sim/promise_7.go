package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
)

// healthyLateMax is how late a message of a healthy channel may be while others are
// dead, slow, or full of poison.
const healthyLateMax = 1500 * time.Millisecond

// promise7: a channel that is dead or slow stalls no other.
func promise7(h *history, f fact) string {
	arrive, ok := f.(factArrive)
	if !ok || h.w.plan.profile != profileChannels || arrive.e.message.Channel != h.w.plan.channels[channelGood] {
		return ""
	}
	if late := h.lateness(arrive.e); late > healthyLateMax {
		return fmt.Sprintf("%s of a healthy channel is %s late while others are in trouble", arrive.e.story.key.ScheduleID, late)
	}
	return ""
}

// lateness is how long after its time, and after it was there, a message arrived for
// the first time.
func (h *history) lateness(e *emission) time.Duration {
	if !e.first || e.row == nil || e.row.Status != postdate.Pending {
		return 0
	}
	return h.w.wall().Sub(max(e.message.ExecutionTime, e.row.written, h.settledDown()))
}

// settledDown is when all nodes are up and have their buckets.
func (h *history) settledDown() postdate.Time { return epoch.Add(5 * time.Second) }
