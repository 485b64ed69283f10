package sim

import "fmt"

// promise3: what a cancel or a reschedule withdrew is never published, then or later; what was
// or may be published is not withdrawn; and a late settlement does not touch a newer version.
// linear.go checks the histories of requests and deliveries as a whole.
func promise3(h *history, f fact) string {
	switch f := f.(type) {
	case factEmit:
		if by, withdrawn := f.e.story.withdrawn[f.e.edition]; withdrawn {
			return fmt.Sprintf("%s %q is published after %s", f.e.story.key.ScheduleID, f.e.edition, by)
		}
	case factArrive:
		if by, withdrawn := f.e.story.withdrawn[f.e.edition]; withdrawn {
			return fmt.Sprintf("%s %q arrives after %s", f.e.story.key.ScheduleID, f.e.edition, by)
		}
	case factRecord:
		if f.settlement != nil && f.settlement.Version != f.before.Version {
			return fmt.Sprintf("the settlement of version %d of %s overwrote version %d",
				f.settlement.Version, f.story.key.ScheduleID, f.before.Version)
		}
		if f.before != nil && h.storyOf(f.before) != f.story {
			return fmt.Sprintf("the %s of an earlier message of %s changed a later one", f.by, f.story.key.ScheduleID)
		}
		if f.by != "cancel" && f.by != "replace" || !f.after.Status.Final() && f.by == "cancel" {
			return ""
		}
		for _, e := range f.present.emissions {
			if e.edition == presentEdition(&f.before.Record) && e.arrivedAt > 0 {
				return fmt.Sprintf("%s %q was taken back for certain (%s), and had arrived at %s",
					f.story.key.ScheduleID, e.edition, f.by, e.arrivedAt)
			}
		}
	case factEnd:
		return notLinear(h)
	}
	return ""
}
