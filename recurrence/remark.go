package recurrence

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
)

// Remark says in English what a clock that is set has changed at an occurrence, or the last time since
// the one before it: "" if nothing.
func (r *Rule) Remark(before, at postdate.Time) string {
	c, is := r.pattern.(*cron)
	if !is {
		return ""
	}
	second := int64(at) / 1000
	s := c.spanAt(second)
	if second == s.from && c.replaces(&s) {
		from, to := s.gap()
		local, _ := c.match(from, to)
		return fmt.Sprintf("%s does not exist: the clock goes from %s to %s", showLocal(local), showTime(from),
			showFrom(from, to))
	}
	if from, to, ok := c.leftOut(ceilSecond(max(before+1, r.given.Start)), s); ok {
		return fmt.Sprintf("the clock goes from %s to %s: what recurs between is left out", showLocal(from),
			showFrom(from, to))
	}
	local := second + s.offset
	switch {
	case local < s.from+s.offsetBefore:
		return showTime(local) + " comes twice: this is the second"
	case local >= s.to+s.offsetAfter:
		return showTime(local) + " comes twice: this is the first"
	}
	return ""
}

// leftOut is the last gap, where span s or one before it begins, at or after a second, that left out
// matching local times which nothing replaces.
func (c *cron) leftOut(since int64, s span) (from, to int64, ok bool) {
	for s.from >= since && !c.afterGap {
		from, to = s.gap()
		if _, ok = c.match(from, to); ok {
			return from, to, true
		}
		s = c.spanAt(s.from - 1)
	}
	return 0, 0, false
}

// showFrom shows the local time to which a clock goes, with its day if that is another.
func showFrom(from, to int64) string {
	if floorDiv(from, daySeconds) != floorDiv(to, daySeconds) {
		return showLocal(to)
	}
	return showTime(to)
}

func showLocal(local int64) string {
	return time.Unix(local, 0).UTC().Format("2006-01-02 ") + showTime(local)
}

func showTime(local int64) string {
	t := time.Unix(local, 0).UTC()
	if t.Second() != 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}
