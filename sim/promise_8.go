package sim

import (
	"fmt"
	"time"
)

// quietLateMax is how late a message may be if nothing goes wrong, however much is stored.
const quietLateMax = 1500 * time.Millisecond

// promise8: lateness depends on what is due, not on what is stored.
func promise8(h *history, f fact) string {
	arrive, ok := f.(factArrive)
	if !ok || h.w.plan.profile != profileBacklog || arrive.e.message.Channel != h.w.plan.channels[channelGood] {
		return ""
	}
	if late := h.lateness(arrive.e); late > quietLateMax {
		return fmt.Sprintf("%s is %s late, with %d messages stored", arrive.e.story.key.ScheduleID, late, len(h.w.store.Rows))
	}
	return ""
}
