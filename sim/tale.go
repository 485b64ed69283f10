package sim

import (
	"cmp"
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
	anchor postdate.Time    // of an interval
	first  postdate.Time    // with which it began, or was last changed
	run    int              // the number of that
	before int64            // how many were before
	last   postdate.Time    // the latest that was begun or skipped
	ending bool

	pausedAt  time.Duration // in true time
	changedAt postdate.Time // in true time: with less jitter, an occurrence may be to begin before

	fired, failed, skipped int64
	extra                  int64 // of those fired, those out of turn
}

func newTale(m *postdate.Message) *tale {
	t := &tale{id: m.ScheduleID}
	t.become(m)
	first := t.anchor
	if t.given.Cron != "" {
		first, _ = t.rule.After(m.CreatedAt)
	} else {
		for first <= m.CreatedAt || first < t.given.Start {
			first = first.Add(t.given.Every)
		}
	}
	t.begin(first, 1)
	return t
}

// become takes over the rule of m.
func (t *tale) become(m *postdate.Message) {
	rule, err := recurrence.Parse(*m.Recurrence, m.CreatedAt)
	if err != nil {
		panic(err)
	}
	t.given, t.rule = *m.Recurrence, rule
	if t.given.MisfireAfter == 0 {
		t.given.MisfireAfter = postdate.MisfireAfterDefault
	}
	t.anchor = cmp.Or(t.given.Anchor, t.given.Start, m.CreatedAt)
}

// begin notes that the series goes on from an occurrence.
func (t *tale) begin(at postdate.Time, run int) {
	t.first, t.run, t.before = at, run, t.fired-t.extra+t.skipped
}

// next returns the occurrence after that at the given time, whose number is run.
func (t *tale) next(at postdate.Time, run int) (next postdate.Time, ok bool) {
	if t.given.MaxRuns != 0 && run >= t.given.MaxRuns {
		return 0, false
	}
	return t.after(at)
}

// after returns the occurrence after that at the given time, however many there may be.
func (t *tale) after(at postdate.Time) (next postdate.Time, ok bool) {
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
