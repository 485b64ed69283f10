package sim

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
)

// tale is what a series must do, and what became of its occurrences so far. By an interval, it computes
// the occurrences itself, one after another, and does not rely on the product's arithmetic.
type tale struct {
	given  postdate.Recurrence
	id     string
	rule   *recurrence.Rule // for cron, and for the jitter
	first  postdate.Time
	ending bool

	fired, failed, skipped int64
}

func newTale(m *postdate.Message) *tale {
	rule, err := recurrence.Parse(*m.Recurrence, m.CreatedAt)
	if err != nil {
		panic(err)
	}
	t := &tale{given: *m.Recurrence, id: m.ScheduleID, rule: rule}
	if t.given.MisfireAfter == 0 {
		t.given.MisfireAfter = postdate.MisfireAfterDefault
	}
	if t.given.Cron != "" {
		t.first, _ = rule.After(m.CreatedAt)
		return t
	}
	t.first = t.given.Anchor
	if t.first == 0 {
		t.first = t.given.Start
	}
	if t.first == 0 {
		t.first = m.CreatedAt
	}
	for t.first <= m.CreatedAt || t.first < t.given.Start {
		t.first = t.first.Add(t.given.Every)
	}
	return t
}

// next returns the occurrence after that at the given time, whose number is run.
func (t *tale) next(at postdate.Time, run int) (next postdate.Time, ok bool) {
	if t.given.MaxRuns != 0 && run >= t.given.MaxRuns {
		return 0, false
	}
	if t.given.Cron != "" {
		return t.rule.After(at)
	}
	next = at.Add(t.given.Every)
	return next, t.given.End == 0 || next <= t.given.End
}

// begins returns when an occurrence is to begin.
func (t *tale) begins(at postdate.Time) postdate.Time { return t.rule.Due(t.id, at) }

// misfires returns when an occurrence is misfired.
func (t *tale) misfires(at postdate.Time) postdate.Time {
	return at.Add(t.given.MisfireAfter + t.given.Jitter)
}

// misfired counts the occurrences from one on that are misfired at a time, up to most of them.
func (t *tale) misfired(at postdate.Time, run int, now postdate.Time, most int64) (n int64) {
	for ok := true; ok && n < most && t.misfires(at) < now; n++ {
		at, ok = t.next(at, run)
		run++
	}
	return n
}

// begun is how many misfired occurrences begin all the same.
func (t *tale) begun() int64 {
	switch t.given.Misfire {
	case postdate.MisfireOnce:
		return 1
	case postdate.MisfireAll:
		return postdate.FireAllMax
	}
	return 0
}

// clocksOff is how far the clock by which something is decided may be off from true time. known is false
// if nothing is known of it: it is the only clock, and may be set.
func (w *world) clocksOff() (off time.Duration, known bool) {
	switch {
	case w.plan.calm() || w.plan.profile == profileChannels:
		return 500 * time.Millisecond, true
	case w.plan.alone():
		return 0, false
	}
	return w.clocksApart(), true
}
