package recurrence

import (
	"encoding/binary"

	"github.com/spaolacci/murmur3"

	"github.com/postdate/postdate"
)

// Due returns when an occurrence of a series is to begin: at its time, or later by a part of the
// rule's jitter that the series' id and the time decide, so that every node says the same. It is before
// the next occurrence.
func (r *Rule) Due(id string, at postdate.Time) postdate.Time {
	jitter := postdate.Time(r.given.Jitter.Milliseconds())
	if jitter == 0 {
		return at
	}
	if next, ok := r.After(at); ok {
		jitter = min(jitter, next-at)
	}
	hash := murmur3.Sum64(binary.BigEndian.AppendUint64([]byte(id), uint64(at)))
	return min(at+postdate.Time(hash%uint64(jitter)), postdate.LatestTime)
}

// Late says how a series goes on whose present occurrence, at the given time and with the number run, has
// not begun by now. It returns the occurrence that is to begin, which may lie in the future, and how many are
// skipped before it. ok is false if none is left.
//
// An occurrence is misfired if now is more than MisfireAfter later than it could have been due.
func (r *Rule) Late(at postdate.Time, run int, now postdate.Time) (next postdate.Time, skipped int64, ok bool) {
	inTime := now.Add(-r.given.MisfireAfter - r.given.Jitter) // what lies before it is misfired
	misfired := r.Count(at, inTime)
	if misfired == 0 {
		return at, 0, true
	}
	left := int64(r.given.MaxRuns - run + 1) // with this one
	if r.given.MaxRuns != 0 {
		misfired = min(misfired, left)
	}
	begin := int64(0) // how many of those begin, one after another
	switch r.given.Misfire {
	case postdate.MisfireOnce:
		begin = 1
	case postdate.MisfireAll:
		begin = min(misfired, postdate.FireAllMax)
	}
	if skipped = misfired - begin; r.given.MaxRuns != 0 && skipped == left {
		return 0, skipped, false
	}
	next, ok = r.nth(at, inTime, skipped)
	return next, skipped, ok
}

// nth returns the occurrence that follows n others from a time on, or the first one at or after limit if
// no more than n lie before limit. It costs twice what Count does.
func (r *Rule) nth(from, limit postdate.Time, n int64) (at postdate.Time, ok bool) {
	for from < limit {
		middle := from + (limit-from)/2 + 1
		if before := r.Count(from, middle); before <= n {
			from, n = middle, n-before
		} else {
			limit = middle - 1
		}
	}
	return r.After(from - 1)
}
