package recurrence

import (
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	library "github.com/netresearch/go-cron"

	"github.com/postdate/postdate"
)

// cron is the pattern of a rule by cron.
type cron struct {
	zone                   *time.Location
	seconds, minutes       uint64 // a bit for each number
	hours                  uint64
	days, months, weekdays uint64
	eitherDay              bool  // a day matches by day or by weekday, else by both
	earliest               int64 // the earliest matching second of a day
	afterGap               bool  // an occurrence follows a gap that leaves out a matching time
	first, second          bool  // whether these count of two equal local times
}

func parseCron(r *postdate.Recurrence) (*cron, error) {
	fields, err := fieldsOf(r.Cron)
	if err != nil {
		return nil, err
	}
	parsed, err := parseFields(r.Cron, fields)
	if err != nil {
		return nil, err
	}
	zone, err := zoneOf(r.Timezone)
	if err != nil {
		return nil, err
	}
	c := &cron{
		zone: zone, seconds: numbersBelow(60, parsed.Second), minutes: numbersBelow(60, parsed.Minute),
		hours: numbersBelow(24, parsed.Hour), days: numbersBelow(32, parsed.Dom),
		months: numbersBelow(13, parsed.Month), weekdays: numbersBelow(7, parsed.Dow),
		eitherDay: !anyDay(fields[dayField]) && !anyDay(fields[weekdayField]),
	}
	c.earliest = lowest(c.hours)*3600 + lowest(c.minutes)*60 + lowest(c.seconds)
	if _, ok := c.match(0, math.MaxInt64); !ok {
		return nil, invalid("cron %q never recurs: no year has such a day", r.Cron)
	}
	everyHour := bits.OnesCount64(c.hours) == 24
	c.afterGap = r.Gap == postdate.GapAfter || r.Gap == postdate.GapDefault && !everyHour
	c.first = r.Overlap != postdate.OverlapSecond
	c.second = r.Overlap == postdate.OverlapSecond || r.Overlap == postdate.OverlapBoth ||
		r.Overlap == postdate.OverlapDefault && everyHour
	return c, nil
}

// The places of the days in a rule of six fields.
const (
	dayField     = 3
	weekdayField = 5
)

// fieldForms are what fields take, in their order.
var fieldForms = []struct{ name, numbers string }{
	{"second", "0 to 59"}, {"minute", "0 to 59"}, {"hour", "0 to 23"}, {"day of month", "1 to 31"},
	{"month", "1 to 12 or JAN to DEC"}, {"day of week", "0 to 7 or SUN to SAT"},
}

// named are the names that stand for all fields.
var named = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// fieldsOf splits a rule into its six fields, in lower case.
func fieldsOf(rule string) ([]string, error) {
	if len(rule) > postdate.CronBytesMax {
		return nil, invalid("cron is %d bytes long: at most %d are allowed", len(rule), postdate.CronBytesMax)
	}
	text := strings.ToLower(strings.TrimSpace(rule)) // the library reads the H of THU as its own hash
	if strings.HasPrefix(text, "tz=") || strings.HasPrefix(text, "cron_tz=") {
		return nil, invalid("cron %q names a time zone: put that into timezone", rule)
	}
	if _, length, is := strings.Cut(rule, "@every "); is {
		return nil, invalid("cron %q is an interval: give every %q instead", rule, strings.TrimSpace(length))
	}
	if strings.HasPrefix(text, "@") {
		fields, known := named[text]
		if !known {
			return nil, invalid("cron %q is not one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, "+
				"@annually", rule)
		}
		text = fields
	}
	fields := strings.Fields(text)
	if len(fields) == 5 {
		fields = slices.Insert(fields, 0, "0")
	}
	if len(fields) != 6 {
		return nil, invalid("cron %q has %d fields: it needs five (minute, hour, day of month, month, day of week), "+
			"or six with the second first", rule, len(fields))
	}
	return fields, nil
}

// parser reads fields. Only the numbers that it finds are used.
var parser = library.MustNewParser(library.Second | library.Minute | library.Hour | library.Dom | library.Month |
	library.Dow)

// part is a part of a field's list. The library takes more, such as ** and *-5.
var part = regexp.MustCompile(`^(?:[*?]|([0-9a-z]+)(?:-([0-9a-z]+))?)(/[0-9]+)?$`)

// parseFields reads the fields of a rule.
func parseFields(rule string, fields []string) (*library.SpecSchedule, error) {
	parsed, err := parser.Parse(strings.Join(fields, " "))
	for i, field := range fields {
		for p := range strings.SplitSeq(field, ",") {
			m := part.FindStringSubmatch(p)
			if m == nil {
				return nil, badField(rule, i, field)
			}
			from, to, steps := m[1], m[2], m[3]
			// The library takes any number for the beginning of a range that it takes to go past its field's end.
			if from != "" && !parses(i, from) || to != "" && !parses(i, to) {
				return nil, badField(rule, i, field)
			}
			// And there it takes a week to have eight days, because Sunday is both 0 and 7.
			if i == weekdayField && to != "" && steps != "" && weekdayNumber(from) > weekdayNumber(to) {
				return nil, invalid("cron %q has %q, which goes past Saturday in steps: name its days one by one",
					rule, p)
			}
		}
		if err != nil && !parses(i, field) {
			return nil, badField(rule, i, field)
		}
	}
	if err != nil {
		return nil, invalid("cron %q cannot be read: %w", rule, err)
	}
	return parsed.(*library.SpecSchedule), nil
}

// parses says whether the library takes a field.
func parses(i int, field string) bool {
	fields := []string{"*", "*", "*", "*", "*", "*"}
	fields[i] = field
	_, err := parser.Parse(strings.Join(fields, " "))
	return err == nil
}

func badField(rule string, i int, field string) error {
	return invalid("cron %q has %q for the %s, which takes %s, ranges (a-b), steps (*/n, a-b/n) smaller than their "+
		"range, lists of these with commas, or *", rule, field, fieldForms[i].name, fieldForms[i].numbers)
}

func weekdayNumber(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, text)
	}
	return n
}

// anyDay says whether a field for days begins with * or ?, so that it restricts nothing, as crontab(5)
// has it.
func anyDay(field string) bool { return field[0] == '*' || field[0] == '?' }

// numbersBelow are the numbers of a set below n. The library has a flag of its own above them.
func numbersBelow(n int, set uint64) uint64 { return set & (uint64(1)<<n - 1) }

// A local time is the number of seconds that a clock without a zone would have counted since
// 1970-01-01T00:00:00, and a day is the number of days.
const daySeconds = 24 * 60 * 60

// repeatDays is how many days it takes at most until a day of the year falls on each day of the week
// again: 29 February does so within 40 years.
const repeatDays = 41 * 366

// match returns the first matching local time in [from, to).
func (c *cron) match(from, to int64) (local int64, ok bool) {
	day := floorDiv(from, daySeconds)
	if second, ok := c.timeFrom(from - day*daySeconds); ok && c.matchesDay(day) {
		local = day*daySeconds + second
		return local, local < to
	}
	for until := day + repeatDays; day < until; {
		day = c.dayAfter(day)
		if local = day*daySeconds + c.earliest; local >= to {
			return 0, false
		}
		if c.matchesDay(day) {
			return local, true
		}
	}
	return 0, false
}

func dateOf(day int64) time.Time { return time.Unix(day*daySeconds, 0).UTC() }

func (c *cron) matchesDay(day int64) bool {
	date := dateOf(day)
	_, month, dayOfMonth := date.Date()
	if !has(c.months, int64(month)) {
		return false
	}
	byMonth, byWeek := has(c.days, int64(dayOfMonth)), has(c.weekdays, int64(date.Weekday()))
	if c.eitherDay {
		return byMonth || byWeek
	}
	return byMonth && byWeek
}

// dayAfter is the next day that may match: that of the next month if none of this month does.
func (c *cron) dayAfter(day int64) int64 {
	if year, month, _ := dateOf(day).Date(); !has(c.months, int64(month)) {
		return floorDiv(time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC).Unix(), daySeconds)
	}
	return day + 1
}

// timeFrom is the first matching second of a day at or after from.
func (c *cron) timeFrom(from int64) (second int64, ok bool) {
	h, m := from/3600, from/60%60
	if has(c.hours, h) {
		if s, ok := nextIn(c.seconds, from%60); ok && has(c.minutes, m) {
			return h*3600 + m*60 + s, true
		}
		if m, ok := nextIn(c.minutes, m+1); ok {
			return h*3600 + m*60 + lowest(c.seconds), true
		}
	}
	if h, ok := nextIn(c.hours, h+1); ok {
		return h*3600 + lowest(c.minutes)*60 + lowest(c.seconds), true
	}
	return 0, false
}

// matches is how many matching local times lie in [from, to). from must not be after to.
func (c *cron) matches(from, to int64) (n int64) {
	for day := floorDiv(from, daySeconds); day*daySeconds < to; day++ {
		if c.matchesDay(day) {
			n += c.timesBefore(min(to-day*daySeconds, daySeconds)) - c.timesBefore(max(from-day*daySeconds, 0))
		}
	}
	return n
}

// timesBefore is how many matching seconds of a day lie before one.
func (c *cron) timesBefore(second int64) int64 {
	h, m, s := second/3600, second/60%60, second%60
	perMinute := int64(bits.OnesCount64(c.seconds))
	n := countBelow(c.hours, h) * int64(bits.OnesCount64(c.minutes)) * perMinute
	if has(c.hours, h) {
		n += countBelow(c.minutes, m) * perMinute
		if has(c.minutes, m) {
			n += countBelow(c.seconds, s)
		}
	}
	return n
}

func has(set uint64, n int64) bool { return set>>n&1 != 0 }

func lowest(set uint64) int64 { return int64(bits.TrailingZeros64(set)) }

func countBelow(set uint64, n int64) int64 { return int64(bits.OnesCount64(numbersBelow(int(n), set))) }

// nextIn is the first number of a set at or after from.
func nextIn(set uint64, from int64) (n int64, ok bool) {
	rest := set >> from << from
	return lowest(rest), rest != 0
}

// floorDiv is a/b, rounded down.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
