package sim

import (
	"fmt"

	"github.com/postdate/postdate"
)

// conservation: every message that was ever in the store is there, once, and the store's lines
// hold exactly the PENDING ones. This checks the model as well.
func conservation(h *history, f fact) string {
	if r, ok := f.(factRecord); ok && r.before == nil && r.story.written > 1 {
		return fmt.Sprintf("%s is created a second time", r.story.key.ScheduleID)
	}
	if _, ok := f.(factEnd); !ok {
		return ""
	}
	written, pending, waiting, parked, shelved := 0, 0, 0, 0, 0
	for _, s := range h.order {
		if s.written > 0 && !s.expired {
			written++
		}
	}
	for _, r := range h.w.store.Rows {
		if r.Status == postdate.Pending {
			pending++
		}
		if r.Parked {
			parked++
		}
	}
	for b := range h.w.store.Waiting {
		waiting += len(h.w.store.Waiting[b])
		shelved += len(h.w.store.Shelved[b])
	}
	switch {
	case written != len(h.w.store.Rows):
		return fmt.Sprintf("%d messages were written, and %d are there", written, len(h.w.store.Rows))
	case pending != waiting:
		return fmt.Sprintf("%d messages are PENDING, and %d wait", pending, waiting)
	case parked != shelved:
		return fmt.Sprintf("%d messages are parked, and %d wait for a channel", parked, shelved)
	}
	h.counts["pending"] = pending
	return ""
}
