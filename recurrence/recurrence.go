// Package recurrence says when a message recurs: by an interval, or by cron in a time zone.
//
// It is pure: the same rule gives the same occurrences, whenever and wherever it is asked, if
// the data of time zones is the same. That data is the system's, or else a copy in the binary.
//
// docs/recurrence.md says what a rule means. In short:
//
//   - An interval counts from its anchor, never from "now", so nothing that is late makes the
//     next one later.
//   - By cron, an occurrence is each second at which the zone's clock shows a matching local
//     time. Where a clock is set forward, matching times that it leaves out are replaced by one
//     occurrence at the end of the gap; where it is set back, the first of two equal times
//     counts. A rule that names all 24 hours has neither: it goes on as time passes.
package recurrence

import (
	"time"

	"github.com/postdate/postdate"
)

// Rule is a recurrence that was read. It never changes.
type Rule struct {
	given   postdate.Recurrence // with defaults
	pattern pattern
}

// pattern is all occurrences of a rule, whatever its start and end. They are later than
// 1970-01-01T00:00:00.
type pattern interface {
	// next is the first occurrence at or after from.
	next(from postdate.Time) (at postdate.Time, ok bool)
	// count is how many occurrences lie in [from, to).
	count(from, to postdate.Time) int64
}

// Parse reads a recurrence whose series was created at a given time. Errors are of KindInvalid,
// and say what to change.
func Parse(given postdate.Recurrence, created postdate.Time) (*Rule, error) {
	if err := check(&given); err != nil {
		return nil, err
	}
	if given.MisfireAfter == 0 {
		given.MisfireAfter = postdate.MisfireAfterDefault
	}
	if given.Every != 0 {
		if given.Anchor == 0 {
			given.Anchor = given.Start
		}
		if given.Anchor == 0 {
			given.Anchor = created
		}
		return &Rule{given, interval{given.Anchor, postdate.Time(given.Every.Milliseconds())}}, nil
	}
	c, err := parseCron(&given)
	if err != nil {
		return nil, err
	}
	return &Rule{given, c}, nil
}

func check(r *postdate.Recurrence) error {
	isCron := r.Cron != ""
	switch {
	case isCron && r.Every != 0:
		return invalid("a recurrence has either every or cron, not both")
	case !isCron && r.Every == 0:
		return invalid("a recurrence needs every, such as PT10S, or cron with a timezone")
	case isCron && r.Anchor != 0:
		return invalid("anchor goes with every: cron says by itself when it recurs; use start for when it begins")
	case !isCron && r.Timezone != "":
		return invalid("timezone goes with cron: every is the same length of time everywhere")
	case !isCron && (r.Gap != 0 || r.Overlap != 0):
		return invalid("gap and overlap go with cron: every takes no notice of clocks that are set")
	case !isCron && (r.Every < postdate.EveryMin || !whole(r.Every)):
		return invalid("every is %s: it must be whole milliseconds, at least %s", r.Every, postdate.EveryMin)
	case r.Every > postdate.DelayMax:
		return invalid("every is %s: it must be at most %d days", r.Every, days(postdate.DelayMax))
	case r.Start != 0 && r.End != 0 && r.End < r.Start:
		return invalid("end %s is before start %s", r.End, r.Start)
	case r.MaxRuns < 0 || r.MaxRuns > postdate.MaxRunsMax:
		return invalid("maxRuns is %d: it must be between 1 and %d", r.MaxRuns, postdate.MaxRunsMax)
	case r.Jitter < 0 || r.Jitter > postdate.JitterMax || !whole(r.Jitter):
		return invalid("jitter is %s: it must be whole milliseconds, between 0 and %s", r.Jitter, postdate.JitterMax)
	case !isCron && r.Jitter > r.Every:
		return invalid("jitter %s is longer than every, which is %s", r.Jitter, r.Every)
	case r.MisfireAfter < 0 || r.MisfireAfter > postdate.DelayMax || !whole(r.MisfireAfter):
		return invalid("misfireAfter is %s: it must be whole milliseconds, between 1ms and %d days", r.MisfireAfter,
			days(postdate.DelayMax))
	}
	return nil
}

func invalid(format string, args ...any) error {
	return postdate.E(postdate.KindInvalid, format, args...)
}

func whole(d time.Duration) bool { return d%time.Millisecond == 0 }

func days(d time.Duration) int { return int(d / (24 * time.Hour)) }

// After returns the first occurrence after t, however many there were. ok is false if there is none.
func (r *Rule) After(t postdate.Time) (at postdate.Time, ok bool) {
	at, ok = r.pattern.next(max(t+1, r.given.Start, postdate.EarliestTime))
	if !ok || at > r.last() {
		return 0, false
	}
	return at, true
}

// Next returns the occurrence after that at the given time, whose number is run. ok is false if it is the
// last one.
func (r *Rule) Next(at postdate.Time, run int) (next postdate.Time, ok bool) {
	if r.given.MaxRuns != 0 && run >= r.given.MaxRuns {
		return 0, false
	}
	return r.After(at)
}

// Begin sets First and ExecutionTime of a message that recurs, and changes no other. Its first occurrence is
// the first one after now. Its key and CreatedAt are set already: jitter follows from the id, and an interval
// may count from the creation.
func Begin(m *postdate.Message, now postdate.Time) error {
	if m.Recurrence == nil {
		return nil
	}
	rule, err := Parse(*m.Recurrence, m.CreatedAt)
	if err != nil {
		return err
	}
	first, ok := rule.After(now)
	if !ok {
		return invalid("the recurrence has no occurrence after %s, which is now: give it another end or rule", now)
	}
	m.First, m.ExecutionTime = first, rule.Due(m.ScheduleID, first)
	return nil
}

// last is the last moment that may be an occurrence.
func (r *Rule) last() postdate.Time {
	if r.given.End != 0 {
		return r.given.End
	}
	return postdate.LatestTime
}

// Count returns how many occurrences lie in [from, to). By cron it looks at each day between.
func (r *Rule) Count(from, to postdate.Time) int64 {
	from, to = max(from, r.given.Start, postdate.EarliestTime), min(to, r.last()+1)
	if from >= to {
		return 0
	}
	return r.pattern.count(from, to)
}

// interval is the pattern of every.
type interval struct {
	anchor, length postdate.Time
}

func (i interval) next(from postdate.Time) (postdate.Time, bool) {
	return i.anchor + postdate.Time(i.countBefore(from))*i.length, true
}

func (i interval) count(from, to postdate.Time) int64 { return i.countBefore(to) - i.countBefore(from) }

// countBefore is how many occurrences lie before t.
func (i interval) countBefore(t postdate.Time) int64 {
	return int64(max(0, (t-i.anchor+i.length-1)/i.length))
}
