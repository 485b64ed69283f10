package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// How late messages may be, however much is stored, in a world in which nothing fails but a part
// of the store now and then.
const (
	quietLateMax     = 1500 * time.Millisecond // any of them
	quietLateMostMax = 250 * time.Millisecond  // nine in ten
)

// promise8: lateness depends on what is due, not on what is stored; and one tenant's on what is due
// of its own, not on another tenant's backlog to the same channel or to many others, nor of a high
// priority on a backlog of a low one (which the docs say of promise 7).
func promise8(h *history, f fact) string {
	if h.w.plan.profile != profileBacklog {
		return ""
	}
	switch f := f.(type) {
	case factArrive:
		second := f.e.message.Tenant != postdate.DefaultTenant
		good := f.e.message.Channel == h.w.plan.channels[channelGood] && (second || !h.w.plan.floodsMany)
		flooded := f.e.message.Channel == h.w.plan.channels[channelSlow] && second
		urgent := f.e.story.request.Priority == postdate.PriorityHigh
		late := h.lateness(f.e)
		if (good || flooded || urgent) && late > quietLateMax {
			return fmt.Sprintf("%s of %s is %s late, with %d messages stored",
				f.e.story.key.ScheduleID, f.e.message.Route(), late, len(h.w.store.Rows))
		}
		if good && !h.w.weather.partFailed(h.w.now) {
			h.late = append(h.late, late)
		}
	case factEnd:
		if len(h.late) < 20 {
			return "" // too few to say what is usual
		}
		// A machine that is not woken for what is due publishes it when something else wakes it:
		// never very late, but often.
		slices.Sort(h.late)
		if late := h.late[len(h.late)*9/10]; late > quietLateMostMax {
			return fmt.Sprintf("one message in ten is %s late or more, with %d messages stored",
				late, len(h.w.store.Rows))
		}
	}
	return ""
}
