package sim

import (
	"fmt"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// promise4: what the store delivers and settles in one step arrives once, and carries no mark
// for another attempt. Of all else a second publish of a message that may have arrived carries the mark; a mark has a
// reason; and without faults there is neither.
func promise4(h *history, f fact) string {
	switch f := f.(type) {
	case factEmit:
		e := f.e
		id := e.story.key.ScheduleID
		switch {
		case e.row == nil && !e.story.expired && !e.over:
			return fmt.Sprintf("%s is published and is not in the store", id)
		case (e.row == nil || e.row.Status.Final()) && !e.marked && !e.unaware && !e.whole:
			return fmt.Sprintf("%s is published without a mark, and has ended already", id)
		case e.message.MayRepeat && !e.marked:
			return fmt.Sprintf("%s may have been scheduled twice, and carries no mark", id)
		case e.marked && !reasonForMark(h, e):
			return fmt.Sprintf("%s carries a mark without a reason", id)
		case h.w.plan.quiet() && (e.marked && !e.message.MayRepeat || twice(e)):
			return fmt.Sprintf("%s is published twice, or marked (%t), though nothing went wrong", id, e.marked)
		}
	case factClaim:
		return h.tooMuchDoubt(f)
	case factRecord:
		if st := f.settlement; st != nil && st.PossibleDuplicate && f.before != nil && !f.before.PossibleDuplicate &&
			h.w.plan.alone() && f.before.Channel.Broker() == "inbox" {
			return fmt.Sprintf("%s is PENDING, so it is in no inbox, and its settlement marks it", st.Key.ScheduleID)
		}
	case factArrive:
		for _, o := range f.e.story.emissions {
			later := max(o.number, f.e.number)
			if o == f.e || o.edition != f.e.edition || o.arrivedAt == 0 {
				continue
			}
			if o.whole && f.e.whole {
				return fmt.Sprintf("%s %q is in its inbox twice", f.e.story.key.ScheduleID, f.e.edition)
			}
			if late := f.e.story.byNumber(later); !late.marked && !late.unaware {
				return fmt.Sprintf("%s %q arrived twice, and the later one, published at %s, has no mark",
					late.story.key.ScheduleID, late.edition, late.at)
			}
		}
	}
	return ""
}

// twice reports whether another publish of the same edition may arrive.
func twice(e *emission) bool {
	for _, o := range e.story.emissions {
		if o != e && o.edition == e.edition && o.mayArrive {
			return true
		}
	}
	return false
}

func (s *story) byNumber(n int) *emission {
	for _, e := range s.emissions {
		if e.number == n {
			return e
		}
	}
	return nil
}

// reasonForMark reports whether an earlier publish is in doubt, or the message lies in the
// range that was in doubt when the bucket was gained.
func reasonForMark(h *history, e *emission) bool {
	if e.row == nil || e.row.PossibleDuplicate || e.message.MayRepeat || !e.first && !e.whole {
		return true
	}
	g := h.gains[gain{e.process, e.message.Bucket, e.token}]
	in := func(t postdate.Time) bool {
		return !e.whole && g.InDoubt(e.row.Route(), bucket.PositionOf(e.row.Key, t))
	}
	return in(e.row.AttemptTime) || in(e.message.ExecutionTime)
}
