package recurrence

import "github.com/postdate/postdate"

// Change returns what becomes of a series that goes on as m, paused or not: the same series with another
// version. m has the key and CreatedAt of old.
//
// If the times of the rule change, its first occurrence after now follows. If a paused series is resumed and
// its present occurrence is due, the first one after now follows, too. What was due until then and not begun is
// skipped, but has no number, so maxRuns does not count it. The error is KindInvalid if none follows.
func Change(old *postdate.Record, m postdate.Message, paused bool, now postdate.Time) (postdate.Record, error) {
	next := postdate.Record{Message: m, Series: old.Series, State: postdate.State{
		Status: postdate.Pending, Version: old.Version + 1, Changes: old.Changes + 1,
		Occurrence: old.Occurrence, Run: old.Run, Paused: paused,
	}}
	rule, err := Parse(*m.Recurrence, m.CreatedAt)
	if err != nil {
		return next, err
	}
	before, err := Parse(*old.Recurrence, old.CreatedAt)
	if err != nil {
		return next, err
	}
	from := max(now, old.Series.Passed()) // this node's clock may be behind that of the one that sent it
	_, stays := rule.Next(old.Occurrence-1, old.Run-1)
	stays = stays && timesOf(*m.Recurrence) == timesOf(*old.Recurrence)
	due := before.Due(old.ScheduleID, old.Occurrence) <= now
	if !stays || due && old.Paused && !paused {
		at, ok := rule.Next(from, old.Run-1)
		if !ok {
			return next, invalid("no occurrence follows after %s, which is now: cancel the series, or give it "+
				"another end, maxRuns or rule", now)
		}
		next.Occurrence = at
		if n := before.Count(old.Occurrence, from+1); n > 0 {
			next.Series = old.Series.Add(postdate.Outcome{Occurrence: old.Occurrence, At: from, Skipped: n})
		}
	}
	next.AttemptTime = rule.Due(m.ScheduleID, next.Occurrence)
	if *m.Recurrence != *old.Recurrence && old.ExecutionTime > from { // nothing of it has begun
		next.First, next.ExecutionTime = next.Occurrence, next.AttemptTime
	}
	next.AttemptTime = max(next.AttemptTime, next.NotBefore()) // another node's clock may be behind
	if paused && next.AttemptTime <= now {
		next.AttemptTime = postdate.Far
	}
	return next, nil
}

// timesOf is the part of a rule that says at which times it recurs.
func timesOf(r postdate.Recurrence) postdate.Recurrence {
	r.End, r.MaxRuns, r.Jitter, r.Misfire, r.MisfireAfter = 0, 0, 0, 0, 0
	return r
}

// Extra returns the time of an extra occurrence of a series: now, or the first moment after that which is no
// occurrence of the rule and later than what was begun or skipped. So its id is not another one's.
func Extra(r *postdate.Record, now postdate.Time) (postdate.Time, error) {
	rule, err := Parse(*r.Recurrence, r.CreatedAt)
	if err != nil {
		return 0, err
	}
	at := max(now, r.Series.Passed()+1)
	for rule.Count(at, at+1) > 0 {
		at++
	}
	return at, nil
}
