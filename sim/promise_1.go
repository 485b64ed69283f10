package sim

import (
	"fmt"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// promise1: nothing acknowledged is lost, and every due message ends in exactly one final
// state, which is true, and not before its time; but a redrive begins another version of what failed.
func promise1(h *history, f fact) string {
	switch f := f.(type) {
	case factAnswer:
		s := f.r.story
		if wrong := h.notAsAnswered(f.r); wrong != "" {
			return wrong
		}
		if f.r.outcome != done || f.r.kind != opSchedule && f.r.kind != opRepeat {
			return ""
		}
		s.acked = true
		if s.ackedAt == 0 {
			s.ackedAt = h.w.now
		}
		if h.record(s) == nil && !s.expired {
			return fmt.Sprintf("%s was acknowledged and is not in the store", s.key.ScheduleID)
		}
	case factRecord:
		if early := h.gaveUpEarly(f); early != "" {
			return early
		}
		if wrong := h.leaves(f); wrong != "" {
			return wrong
		}
		if f.by == "redrive" {
			h.counts["redriven"]++
			return wrongRedrive(f, h.redrivenAt)
		}
		return finalOnce(f)
	case factEmit:
		return sentExpired(f.e)
	case factArrive:
		return h.surelyFailed(f.e)
	case factPurged:
		return wrongPurge(f)
	case factExpired:
		return keptLongEnough(h, f)
	case factEnd:
		for _, s := range h.order {
			r := h.record(s)
			switch {
			case r == nil && s.acked && !s.expired:
				return fmt.Sprintf("%s was acknowledged and is gone", s.key.ScheduleID)
			case r != nil && r.Status == postdate.Pending && h.due(r):
				return fmt.Sprintf("%s is PENDING for ever: %+v", s.key.ScheduleID, r.State)
			}
		}
		return keptTooLong(h)
	}
	return ""
}

// finalOnce checks that a final state stays, and that DELIVERED is true.
func finalOnce(f factRecord) string {
	id := f.story.key.ScheduleID
	if f.before != nil && f.by != "count" && (f.before.Status.Final() ||
		!f.before.Status.CanBecome(f.after.Status)) {
		return fmt.Sprintf("%s was %s and became %s by %s", id, f.before.Status, f.after.Status, f.by)
	}
	if f.settlement == nil {
		return ""
	}
	arrived := false
	for _, e := range f.present.emissions {
		arrived = arrived || e.edition == presentEdition(&f.before.Record) && e.arrivedAt > 0 &&
			(f.settlement.How != store.SettleDelivered || e.ofVersion(f.before))
	}
	switch {
	case f.settlement.How == store.SettleDelivered && !arrived:
		return fmt.Sprintf("%s is DELIVERED and has not arrived", id)
	case f.settlement.How == store.SettleFailed && arrived && !f.settlement.PossibleDuplicate:
		return fmt.Sprintf("%s arrived and is DELIVERY_FAILED without a doubt: %s", id, f.settlement.Reason)
	}
	return ""
}
