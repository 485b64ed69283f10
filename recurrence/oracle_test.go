package recurrence_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postdate/postdate"
)

// The oracle says what a rule by cron means, as simply as it can be said: it looks at every second
// of a window, and at the clock of the zone in that second. It shares no code with the package, nor
// its library.

// window is a stretch of seconds as one zone's clock shows them.
type window struct {
	from   int64   // the first second, since 1970
	locals []int64 // what the clock shows in each second, itself as seconds since 1970
	first  []bool  // the clock shows this for the first time
	last   []bool  // and for the last time
}

func look(zone *time.Location, from, to int64) window {
	w := window{from: from, locals: make([]int64, to-from), first: make([]bool, to-from), last: make([]bool, to-from)}
	back := false // only then do local times come twice
	for i := range w.locals {
		second := from + int64(i)
		_, offset := time.Unix(second, 0).In(zone).Zone()
		w.locals[i] = second + int64(offset)
		back = back || i > 0 && w.locals[i] <= w.locals[i-1]
	}
	latest := map[int64]int{} // where the clock showed a time
	for i, local := range w.locals {
		w.first[i], w.last[i] = true, true
		if back {
			if before, again := latest[local]; again {
				w.first[i], w.last[before] = false, false
			}
			latest[local] = i
		}
	}
	return w
}

// moment is a second of a window at which a rule may recur.
type moment struct {
	second      int64
	matches     bool // the clock shows a matching time
	first, last bool
	after       bool // it follows a gap that left out a matching time
}

// moments are those of a rule.
func (w *window) moments(f *fields) (all []moment) {
	for i, local := range w.locals {
		m := moment{w.from + int64(i), f.match(local), w.first[i], w.last[i], false}
		if i > 0 {
			for left := w.locals[i-1] + 1; left < local; left++ {
				m.after = m.after || f.match(left)
			}
		}
		if m.matches || m.after {
			all = append(all, m)
		}
	}
	return all
}

// occurrences are the seconds at which the rule recurs.
func (f *fields) occurrences(moments []moment, gap postdate.Gap, overlap postdate.Overlap) (all []int64) {
	everyHour := !slices.Contains(f.hour[:24], false)
	if gap == postdate.GapDefault {
		gap = postdate.GapAfter
		if everyHour {
			gap = postdate.GapSkip
		}
	}
	if overlap == postdate.OverlapDefault {
		overlap = postdate.OverlapFirst
		if everyHour {
			overlap = postdate.OverlapBoth
		}
	}
	for _, m := range moments {
		if m.after && gap == postdate.GapAfter || m.matches && (overlap == postdate.OverlapBoth ||
			overlap == postdate.OverlapFirst && m.first || overlap == postdate.OverlapSecond && m.last) {
			all = append(all, m.second)
		}
	}
	return all
}

// numbers are those that a field names.
type numbers [64]bool

// fields are what a rule names.
type fields struct {
	second, minute, hour, day, month, weekday numbers
	eitherDay                                 bool
	matches                                   map[int64]bool // days that were looked at
}

func (f *fields) match(local int64) bool {
	day := (local - ((local%86400)+86400)%86400) / 86400
	second := local - day*86400
	if !f.second[second%60] || !f.minute[second/60%60] || !f.hour[second/3600] {
		return false
	}
	matches, known := f.matches[day]
	if !known {
		matches = f.matchDay(time.Unix(local, 0).UTC())
		f.matches[day] = matches
	}
	return matches
}

func (f *fields) matchDay(t time.Time) bool {
	byDay, byWeekday := f.day[t.Day()], f.weekday[t.Weekday()] || t.Weekday() == time.Sunday && f.weekday[7]
	if f.eitherDay {
		return f.month[t.Month()] && (byDay || byWeekday)
	}
	return f.month[t.Month()] && byDay && byWeekday
}

// read reads a rule that is known to be well formed.
func read(cron string) *fields {
	for name, means := range map[string]string{"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
		"@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *"} {
		if cron == name {
			cron = means
		}
	}
	text := strings.Fields(cron)
	if len(text) == 5 {
		text = append([]string{"0"}, text...)
	}
	given := func(text string) bool { return !strings.HasPrefix(text, "*") && !strings.HasPrefix(text, "?") }
	return &fields{
		second: numbersOf(text[0], 0, 59), minute: numbersOf(text[1], 0, 59), hour: numbersOf(text[2], 0, 23),
		day: numbersOf(text[3], 1, 31), month: numbersOf(text[4], 1, 12), weekday: numbersOf(text[5], 0, 7),
		eitherDay: given(text[3]) && given(text[5]), matches: map[int64]bool{},
	}
}

var names = map[string]int{"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6, "JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10,
	"NOV": 11, "DEC": 12, "SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}

func numbersOf(text string, low, high int) (set numbers) {
	number := func(s string) int {
		if n, is := names[s]; is {
			return n
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		return n
	}
	for _, part := range strings.Split(text, ",") {
		span, by, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(span, "-")
		first, last, step := low, high, 1
		if from != "*" && from != "?" {
			first = number(from)
			last = first
			if ranged {
				last = number(to)
			} else if stepped {
				last = high
			}
		}
		if stepped {
			step = number(by)
		}
		size := high - low + 1
		if last < first {
			last += size
		}
		for n := first; n <= last; n += step {
			set[low+(n-low)%size] = true
		}
	}
	return set
}
