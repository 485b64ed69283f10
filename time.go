package postdate

import (
	"errors"
	"strings"
	"time"
)

// Time is a wall-clock time in milliseconds since the Unix epoch. The zero
// value means "none". Times compare as numbers.
type Time int64

// Far is later than every time that a message can have.
const Far Time = 1<<62 - 1

// TimeOf rounds t up to the millisecond, because a message is never early.
func TimeOf(t time.Time) Time {
	return Time(t.Add(time.Millisecond - 1).UnixMilli())
}

// WallOf rounds t down to the millisecond. It is for readings of the clock, which must
// never run ahead.
func WallOf(t time.Time) Time { return Time(t.UnixMilli()) }

// Std returns t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t + d. A positive d is rounded up to the millisecond.
func (t Time) Add(d time.Duration) Time {
	if d > 0 {
		d += time.Millisecond - 1
	}
	return t + Time(d/time.Millisecond)
}

// Sub returns the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Millisecond }

// String returns t in its form on the wire: RFC 3339, UTC, milliseconds.
func (t Time) String() string {
	return string(t.AppendText(make([]byte, 0, len("2006-01-02T15:04:05.000Z"))))
}

// AppendText appends t in its form on the wire. The library is quick with RFC 3339, and slow with
// exactly three decimals.
func (t Time) AppendText(b []byte) []byte {
	std := t.Std()
	b = std.AppendFormat(b, time.RFC3339)
	ms := std.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// ParseTime parses an RFC 3339 time, which must include its offset from UTC. Errors
// are of KindInvalid and say what is wrong.
func ParseTime(s string) (Time, error) {
	t, err := parseRFC3339(s)
	if err != nil {
		if _, zoneless := time.Parse("2006-01-02T15:04:05.999999999", s); zoneless == nil {
			return 0, E(KindInvalid, "time %q has no zone: end it with Z for UTC or with an offset like +02:00", s)
		}
		if year, _, ok := strings.Cut(s, "-"); ok && len(year) > 4 && strings.Trim(year, "0123456789") == "" {
			return 0, E(KindInvalid, "time %q is out of range: the latest is %s", s, LatestTime)
		}
		return 0, E(KindInvalid, "time %q is not RFC 3339: write it like 2027-01-31T09:30:00Z or "+
			"2027-01-31T09:30:00.250+02:00", s)
	}
	at := TimeOf(t)
	if at < EarliestTime || at > LatestTime {
		return 0, E(KindInvalid, "time %q is out of range: it must be between %s and %s", s, EarliestTime, LatestTime)
	}
	return at, nil
}

// parseRFC3339 takes what RFC 3339 takes. time.Parse takes neither small letters nor leap seconds. Of a leap second,
// the time is that of the second after it, which is what clocks count.
func parseRFC3339(s string) (t time.Time, err error) {
	s = strings.ToUpper(s)
	const seconds = len("2006-01-02T15:04:")
	leap := len(s) > seconds+2 && s[seconds:seconds+2] == "60"
	if leap {
		s = s[:seconds] + "59" + s[seconds+2:]
	}
	if t, err = time.Parse(time.RFC3339Nano, s); err != nil {
		return t, err
	}
	if !hasRFC3339Shape(s) {
		return t, errors.New("this is more than RFC 3339 takes")
	}
	if !leap {
		return t, nil
	}
	t = t.Add(time.Second)
	if u := t.UTC(); u.Day() != 1 || u.Hour() != 0 || u.Minute() != 0 || u.Second() != 0 {
		return t, errors.New("leap seconds come only where a month ends, in UTC")
	}
	return t, nil
}

// hasRFC3339Shape finds what time.Parse takes beyond RFC 3339: an hour of one digit, a comma before the fraction, and
// any offset.
func hasRFC3339Shape(s string) bool {
	const hourEnd, secondsEnd = len("2006-01-02T15"), len("2006-01-02T15:04:05")
	if s[hourEnd] != ':' || s[secondsEnd] == ',' {
		return false
	}
	if strings.HasSuffix(s, "Z") {
		return true
	}
	zone := s[len(s)-len("07:00"):]
	return zone[:2] <= "23" && zone[3:] <= "59"
}

// Now is one reading of a node's two clocks.
type Now struct {
	Wall Time          // the wall clock, rounded down: decides what is due
	Mono time.Duration // since a fixed moment, never set back: decides leases, deadlines and back-offs
}

// Later returns n after d has passed on both clocks.
func (n Now) Later(d time.Duration) Now {
	return Now{Wall: n.Wall.Add(d), Mono: n.Mono + d}
}
