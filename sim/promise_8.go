package sim

import (
	"fmt"
	"slices"
	"time"
)

// How late messages may be if nothing goes wrong but that a part of the store is out of reach
// now and then, however much is stored: each of them, and nine in ten.
const (
	quietLateMax   = 1500 * time.Millisecond
	quietLateOften = 250 * time.Millisecond
)

// promise8: lateness depends on what is due, not on what is stored. Most messages are on time:
// a machine that is not woken for what is due would publish it when something else wakes it.
func promise8(h *history, f fact) string {
	if h.w.plan.profile != profileBacklog {
		return ""
	}
	switch f := f.(type) {
	case factArrive:
		if f.e.message.Channel != h.w.plan.channels[channelGood] {
			return ""
		}
		late := h.lateness(f.e)
		if late > quietLateMax {
			return fmt.Sprintf("%s is %s late, with %d messages stored", f.e.story.key.ScheduleID, late, len(h.w.store.Rows))
		}
		h.late = append(h.late, late)
	case factEnd:
		if len(h.late) < 20 {
			return ""
		}
		slices.Sort(h.late)
		if late := h.late[len(h.late)*9/10]; late > quietLateOften {
			return fmt.Sprintf("one message in ten is %s late or more, with %d messages stored", late, len(h.w.store.Rows))
		}
	}
	return ""
}
