package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
)

// healthyLateMax is how late a message of a healthy channel may be while others are
// dead, slow, or full of poison.
const healthyLateMax = 1500 * time.Millisecond

// brokerFirst is how long a new owner waits at most for a broker that keeps former ones out.
const brokerFirst = 2 * time.Second

// moveMax is how much later it may be where its bucket moves to another node meanwhile: the
// bucket rests on its way, and its new owner waits for the broker.
func (h *history) moveMax() time.Duration { return 3*h.w.plan.poller.DrainStep + brokerFirst }

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
		if h.w.plan.profile != profileChannels && h.w.plan.profile != profileDrains || f.e.message.Channel != h.w.plan.channels[channelGood] {
			return ""
		}
		late := h.lateness(f.e)
		moves := h.movesSince(f.e.message.Bucket, h.w.wall().Add(-late-brokerFirst))
		if late > healthyLateMax+time.Duration(moves)*h.moveMax() {
			return fmt.Sprintf("%s of a healthy channel is %s late while others are in trouble, and its bucket moved %d times meanwhile", f.e.story.key.ScheduleID, late, moves)
		}
	}
	return ""
}

// movesSince is how often a bucket has got another owner since then.
func (h *history) movesSince(bucket int, t postdate.Time) (n int) {
	for _, at := range h.moves[bucket] {
		if at > t {
			n++
		}
	}
	return n
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
