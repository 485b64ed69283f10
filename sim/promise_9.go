package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// promise9: each occurrence of a series is begun or skipped, once and in the order of its rule, and it is
// skipped only if it is misfired, or its series is cancelled, paused, or gets another rule. What a pause
// covers before it is read is not begun. An occurrence out of turn moves nothing. Nothing of a series that is
// ending follows its present occurrence. That none is early, lost, or delivered twice without a mark,
// promises 1 to 8 say of occurrences as of other messages.
func promise9(h *history, f fact) string {
	switch f := f.(type) {
	case factRecord:
		wrong := ""
		switch {
		case f.after.Recurrence != nil:
			wrong = h.seriesChanged(f)
		case f.story.series != nil:
			wrong = f.aloneChanged(h)
		}
		if wrong != "" {
			return f.story.key.ScheduleID + wrong
		}
	case factAnswer:
		r := h.record(f.r.story)
		switch {
		case f.r.outcome != done || r == nil:
		case f.r.kind == opPause && r.Version == f.r.version && r.Status == postdate.Pending && !r.Paused:
			return fmt.Sprintf("%s was paused, and is not", r.ScheduleID)
		case f.r.kind == opTrigger && h.about[f.r.extra] == nil:
			return fmt.Sprintf("%s was triggered, and the occurrence was never there", r.ScheduleID)
		}
		if f.r.kind == opCancel && f.r.outcome == tooLate && r != nil && r.Status == postdate.Pending && !r.Ending &&
			f.r.story.tale != nil {
			return fmt.Sprintf("%s was cancelled, too late for its present occurrence, and goes on", r.ScheduleID)
		}
	case factEmit:
		if f.e.story.series != nil {
			return h.occurrenceSent(f.e)
		}
	case factArrive:
		if s := f.e.story; s.skipped && !f.e.unaware {
			return fmt.Sprintf("%s was skipped, and arrives", s)
		}
	case factEnd:
		for _, s := range h.order {
			if r := h.record(s); s.tale != nil && r != nil {
				if wrong := s.tale.endsWell(s, r); wrong != "" {
					return s.key.ScheduleID + wrong
				}
			}
		}
	}
	return ""
}

// aloneChanged says what is wrong with a change of an occurrence that is retried as a message of its own.
func (f factRecord) aloneChanged(h *history) string {
	series := f.story.series
	switch {
	case f.before == nil && f.by == "trigger":
		if r := h.record(series); r == nil || r.Status != postdate.Pending || r.Ending {
			return " is triggered of a series that does not go on"
		}
		if series.tale.notOfRule(f.after.ExecutionTime) == "" {
			return " is triggered at a time of the rule"
		}
	case f.before == nil && (f.after.Occurrence != 0 || f.after.ExecutionTime != f.story.at || f.after.First != 0):
		return fmt.Sprintf(" is retried as another message than it is: %+v", f.after.Record)
	case f.settlement != nil && f.settlement.How == store.SettleFailed && !f.before.Redriven &&
		h.record(series) != nil: // a redrive does not make it another failure

		series.tale.failed++
	}
	return ""
}

// seriesChanged says what is wrong with a change of a series.
func (h *history) seriesChanged(f factRecord) string {
	t, before, after := f.story.tale, f.before, f.after
	switch {
	case before == nil:
		if after.Occurrence != t.first || after.Run != 1 || after.AttemptTime != t.begins(t.first) || after.Ending {
			return fmt.Sprintf(" begins with %s, and its first occurrence is %s", after.Occurrence, t.first)
		}
	case f.settlement != nil && f.settlement.Advances():
		if wrong := h.wentOn(f); wrong != "" {
			return wrong
		}
	case f.settlement != nil && f.settlement.How == store.SettleRest:
		if !before.Paused || after.Occurrence != before.Occurrence || !after.Paused ||
			after.Status == postdate.Pending && after.AttemptTime != postdate.Far {
			return fmt.Sprintf(" rests, and goes from %+v to %+v", before.State, after.State)
		}
	case f.settlement != nil && f.settlement.How != store.SettlePark:
		return fmt.Sprintf(" does not go on after its occurrence %s", before.Occurrence)
	case f.by == "replace":
		if wrong := h.seriesReplaced(f); wrong != "" {
			return wrong
		}
	case f.by == "trigger":
		if wrong := h.triggered(f); wrong != "" {
			return wrong
		}
	case f.by == "pause" && (before.Paused || !after.Paused || before.Status != postdate.Pending || before.Ending):
		return fmt.Sprintf(" is paused, and goes from %+v to %+v", before.State, after.State)
	case before.Paused != after.Paused && f.by != "pause":
		return fmt.Sprintf(" is paused: %t, and by %s it is not so any more", before.Paused, f.by)
	case before.Occurrence != after.Occurrence || before.Run != after.Run:
		return fmt.Sprintf(" went from its occurrence %s to %s by %s", before.Occurrence, after.Occurrence, f.by)
	case before.Ending && after.Status == postdate.Pending && !after.Ending:
		return fmt.Sprintf(" was to end after its occurrence %s, and forgets that by %s", before.Occurrence, f.by)
	}
	if after.Ending {
		t.ending = true
	}
	if f.by == "pause" {
		t.pausedAt = h.w.now
	}
	if got := after.Series; got.Fired != t.fired || got.Failed != t.failed || got.Skipped != t.skipped {
		return fmt.Sprintf(" says that %d were fired, %d of them failed, and %d were skipped; these were %d, %d and %d",
			got.Fired, got.Failed, got.Skipped, t.fired, t.failed, t.skipped)
	}
	return ""
}

// wentOn says what is wrong with how a series went on after its present occurrence.
func (h *history) wentOn(f factRecord) string {
	t, st, before, after := f.story.tale, f.settlement, f.before, f.after
	if st.Occurrence != before.Occurrence {
		return fmt.Sprintf(" went on from %s by the settlement of %s", before.Occurrence, st.Occurrence)
	}
	n := 1
	if st.How == store.SettleSkip {
		n = int(st.Next.Skipped)
		if wrong := h.skips(f, n); wrong != "" {
			return wrong
		}
		t.skipped += st.Next.Skipped
		h.counts["occurrences skipped"] += n
	} else {
		t.fired++
		h.counts["occurrences fired"]++
		t.last = before.Occurrence
	}
	at, run, ok := before.Occurrence, before.Run, true
	for range n {
		if !ok {
			return fmt.Sprintf(" skips %d occurrences from %s on, and has fewer", n, before.Occurrence)
		}
		at, ok = t.next(at, run)
		run++
	}
	alone := h.about[presentEdition(&before.Record)]
	switch {
	case before.Ending:
		if after.Status != postdate.Cancelled {
			return fmt.Sprintf(" was to end after its occurrence %s, and is %s", before.Occurrence, after.Status)
		}
	case !ok:
		if after.Status != postdate.Delivered {
			return fmt.Sprintf(" is over after %s, and is %s", before.Occurrence, after.Status)
		}
	case after.Status != postdate.Pending || after.Occurrence != at || after.Run != run ||
		after.AttemptTime != t.begins(at) || after.Parked || after.PossibleDuplicate || after.Attempts != 0 ||
		after.Paused != before.Paused || after.Changes != before.Changes || after.Version != before.Version:
		return fmt.Sprintf(" goes on after %s with %+v; its occurrence %d is %s", before.Occurrence, after.State,
			run, at)
	}
	switch {
	case st.How == store.SettleFailed, st.How == store.SettleRetry && before.Ending:
		t.failed++
	case st.How == store.SettleRetry && alone.written == 0:
		return fmt.Sprintf(" goes on after %s, which was to be retried and is lost", before.Occurrence)
	}
	return ""
}

// skips says what is wrong with skipping the present occurrence and those after it, n in all.
func (h *history) skips(f factRecord, n int) string {
	t, at, run := f.story.tale, f.before.Occurrence, f.before.Run
	off, known := h.w.clocksOff()
	latest, earliest := h.w.wall().Add(off), f.settlement.At.Add(-off)
	if n < 1 {
		return fmt.Sprintf(" skips %d occurrences at %s", n, at)
	}
	if f.before.Ending && n == 1 {
		known = false
	}
	if known && t.misfired(at, run, latest, int64(n)+t.begun()) < int64(n)+t.begun() {
		return fmt.Sprintf(" skips %d occurrences from %s on at %s: so many are not misfired, or more are to begin",
			n, at, h.w.wall())
	}
	ok := true
	for range n {
		if wrong := h.skip(f, at); wrong != "" {
			return wrong
		}
		t.last = at
		at, ok = t.next(at, run)
		run++
	}
	if ok {
		m := f.before.Alone(at)
		h.occurrence(&m).chosen = true
	}
	if known && ok && t.misfired(at, run, earliest, t.begun()+1) > t.begun() {
		return fmt.Sprintf(" skips %d occurrences, but more are misfired at %s", n, f.settlement.At)
	}
	return ""
}

// occurrenceSent says what is wrong with sending an occurrence.
func (h *history) occurrenceSent(e *emission) string {
	s, series := e.story, e.story.series
	t, r := series.tale, h.record(series)
	switch {
	case e.wall <= s.begins && (e.row == nil || e.row.Recurrence != nil || e.row.Attempts == 0 && !e.row.Redriven):
		// Jitter is about its begin: a retry or a redrive after the clock was set back need not wait for that again.
		return fmt.Sprintf("%s is sent at %s, and is to begin at %s", s, e.wall, s.begins)
	case r != nil && s.at > r.Occurrence && !s.extra:
		return fmt.Sprintf("%s is sent, and its series is at %s", s, r.Occurrence)
	case e.row == nil || e.row.Recurrence == nil || e.row.Attempts > 0 || e.marked || e.row.Status.Final():
	case s.chosen || h.w.bug == bugEarly || h.w.bug == bugLeaseByWall:
	case t.misfired(s.at, r.Run, e.wall, t.begun()+1) > t.begun():
		return fmt.Sprintf("%s is sent at %s, although it is misfired and so are those after it", s, e.wall)
	}
	if wrong := h.sentPaused(e); wrong != "" {
		return wrong
	}
	return h.heldBack(e)
}

// heldBack says that an occurrence came late although nothing was in the way but earlier ones of its
// series, which are retried, say.
func (h *history) heldBack(e *emission) string {
	if h.w.plan.profile != profileBacklog || h.w.plan.floodsMany || e.row == nil || e.row.Recurrence == nil ||
		e.story.series.tale.given.Every < time.Second { // after a fault, these take long to catch up
		return ""
	}
	late := h.w.wall().Sub(max(e.begins(), e.story.series.inserted, e.story.series.tale.changedAt, h.settledDown(),
		h.excused(e), h.cameBack(e.message.Channel)))
	if e.message.Channel != h.w.plan.channels[channelSlow] && late > quietLateMax {
		return fmt.Sprintf("%s is %s late", e.story, late)
	}
	return ""
}

// endsWell says what is wrong with a series in the end.
func (t *tale) endsWell(s *story, r *row) string {
	cancels := false
	for _, q := range s.requests {
		cancels = cancels || q.kind == opCancel
	}
	all, run := t.before+1, t.run
	for at, ok := t.next(t.first, run); ok; at, ok = t.next(at, run) {
		all++
		run++
	}
	switch {
	case r.Series.Failed != t.failed:
		return fmt.Sprintf(" says that %d occurrences failed, and %d did", r.Series.Failed, t.failed)
	case r.Status == postdate.Delivered && (t.ending || t.fired-t.extra+t.skipped != all):
		return fmt.Sprintf(" is over: %d fired, %d of them out of turn, and %d skipped of %d, ending %t",
			t.fired, t.extra, t.skipped, all, t.ending)
	case r.Status != postdate.Delivered && r.Status != postdate.Pending && !cancels:
		return fmt.Sprintf(" is %s, and nobody cancelled it", r.Status)
	}
	return ""
}
