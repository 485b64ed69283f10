package sim

import (
	"fmt"

	"github.com/postdate/postdate"
)

// conservation: every message that ever was in the store is there, once, and the
// store's lines hold exactly the PENDING ones. It watches the model as well.
func conservation(h *history, f fact) string {
	if r, ok := f.(factRecord); ok && r.before == nil && r.story.written > 1 {
		return fmt.Sprintf("%s is created a second time", r.story.key.ScheduleID)
	}
	if _, ok := f.(factEnd); !ok {
		return ""
	}
	written, pending, waiting := 0, 0, 0
	for _, s := range h.order {
		if s.written > 0 && !s.expired {
			written++
		}
	}
	for _, r := range h.w.store.records {
		if r.Status == postdate.Pending {
			pending++
		}
	}
	for b := range h.w.store.waiting {
		waiting += len(h.w.store.waiting[b]) + len(h.w.store.parked[b])
	}
	switch {
	case written != len(h.w.store.records):
		return fmt.Sprintf("%d messages were written, and %d are there", written, len(h.w.store.records))
	case pending != waiting:
		return fmt.Sprintf("%d messages are PENDING, and %d wait", pending, waiting)
	}
	h.counts["pending"] = pending
	return ""
}
