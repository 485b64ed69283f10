package recurrence

import (
	"math"
	"regexp"
	"time"
	_ "time/tzdata" // for systems without data of time zones

	"github.com/postdate/postdate"
)

// zoneName matches the names of the IANA database. The system has others, such as posix/UTC, and may
// read Europe//Berlin.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)

// zoneOf loads a time zone by its name in the IANA database. An abbreviation such as "CST" has several
// meanings, and a fixed offset knows no clock that is set.
func zoneOf(name string) (*time.Location, error) {
	if name == "" {
		return nil, invalid("cron needs a timezone: name one, such as Europe/Berlin, or UTC")
	}
	if len(name) > postdate.TimezoneBytesMax {
		return nil, invalid("timezone is %d bytes long: at most %d are allowed", len(name), postdate.TimezoneBytesMax)
	}
	zone, err := time.LoadLocation(name)
	if err != nil || !zoneName.MatchString(name) || name == "Local" || name == "Factory" {
		return nil, invalid("timezone %q is unknown: give a name of the IANA database, such as Europe/Berlin, or UTC",
			name)
	}
	return zone, nil
}

// span is a time during which a zone has one offset.
type span struct {
	from, to     int64 // seconds since 1970; to is not part of it
	offset       int64 // of its clock, in seconds
	offsetBefore int64
	offsetAfter  int64
}

// forever is later than every time that matters, and can be added to offsets.
const forever = math.MaxInt64 / 4

// spanAt is the span of a second.
func (c *cron) spanAt(second int64) span {
	at := time.Unix(second, 0).In(c.zone)
	offset := offsetOf(at)
	s := span{from: -forever, to: forever, offset: offset, offsetBefore: offset, offsetAfter: offset}
	if from, _ := at.ZoneBounds(); !from.IsZero() {
		// Where a zone changes its rule, package time may give the span that it had by the new rule.
		for end := endOf(from); !end.IsZero() && !end.After(at); end = endOf(from) {
			from = end
		}
		s.from, s.offsetBefore = from.Unix(), offsetOf(from.Add(-time.Second))
	}
	if to := endOf(at); !to.IsZero() {
		s.to, s.offsetAfter = to.Unix(), offsetOf(to)
	}
	return s
}

// endOf is when the span of a time ends, or the zero time: never.
func endOf(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		// Package time takes every year to have 365 days: on the last day of a leap year, the span that it
		// gives is over. Nothing changes on that day.
		return t.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).In(t.Location())
	}
	return end
}

func offsetOf(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset)
}

// gap are the local times [from, to) that are left out where the span begins.
func (s *span) gap() (from, to int64) {
	return s.from + s.offsetBefore, max(s.from+s.offsetBefore, s.from+s.offset)
}

// ordinary are the local times [from, to) of the span that count: all of them, but for those of two
// equal ones that do not.
func (c *cron) ordinary(s *span) (from, to int64) {
	from, to = s.from+s.offset, s.to+s.offset
	if !c.second {
		from = max(from, s.from+s.offsetBefore)
	}
	if !c.first {
		to = min(to, s.to+s.offsetAfter)
	}
	return from, to
}

// replaces says whether an occurrence lies where a span begins, for what the gap before it left out.
func (c *cron) replaces(s *span) bool {
	if !c.afterGap {
		return false
	}
	_, left := c.match(s.gap())
	return left
}

// next looks as far ahead as a delay may be: some rules never recur, since all their times are in gaps.
func (c *cron) next(from postdate.Time) (postdate.Time, bool) {
	second := ceilSecond(from)
	for until := ceilSecond(from.Add(postdate.DelayMax)); second < until; {
		s := c.spanAt(second)
		if second == s.from && c.replaces(&s) {
			return postdate.Time(s.from * 1000), true
		}
		earliest, end := c.ordinary(&s)
		if local, ok := c.match(max(earliest, second+s.offset), end); ok {
			return postdate.Time((local - s.offset) * 1000), true
		}
		second = s.to
	}
	return 0, false
}

func (c *cron) count(from, to postdate.Time) (n int64) {
	second, end := ceilSecond(from), ceilSecond(to)
	for second < end {
		s := c.spanAt(second)
		earliest, latest := c.ordinary(&s)
		earliest, latest = max(earliest, second+s.offset), min(latest, end+s.offset)
		n += c.matches(earliest, max(earliest, latest)) // the end may lie before the first that counts
		if second == s.from && c.replaces(&s) {
			if _, counted := c.match(s.from+s.offset, s.from+s.offset+1); !counted {
				n++
			}
		}
		second = s.to
	}
	return n
}

// ceilSecond is the first whole second at or after t.
func ceilSecond(t postdate.Time) int64 { return floorDiv(int64(t)+999, 1000) }
