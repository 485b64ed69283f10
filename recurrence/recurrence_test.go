package recurrence_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/recurrence"
)

// at is a time such as 2027-03-28T02:30:00+01:00.
func at(t testing.TB, text string) postdate.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return postdate.Time(parsed.UnixMilli())
}

func parse(t testing.TB, r postdate.Recurrence, created postdate.Time) *recurrence.Rule {
	t.Helper()
	rule, err := recurrence.Parse(r, created)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

// after are the next n occurrences after a time.
func after(rule *recurrence.Rule, from postdate.Time, n int) (all []postdate.Time) {
	for range n {
		next, ok := rule.After(from)
		if !ok {
			break
		}
		all = append(all, next)
		from = next
	}
	return all
}

// Occurrences lie where people expect them. These are looked up in calendars; the oracle checks the
// rest.
func TestCron(t *testing.T) {
	for _, c := range []struct {
		cron, zone string
		gap        postdate.Gap
		overlap    postdate.Overlap
		from       string
		want       string
	}{
		// The clock in Berlin goes from 02:00 to 03:00 on 2027-03-28, and back from 03:00 on 2027-10-31.
		{"30 2 * * *", "Europe/Berlin", 0, 0, "2027-03-27T00:00:00+01:00",
			"2027-03-27T02:30:00+01:00 2027-03-28T03:00:00+02:00 2027-03-29T02:30:00+02:00"},
		{"30 2 * * *", "Europe/Berlin", postdate.GapSkip, 0, "2027-03-27T00:00:00+01:00",
			"2027-03-27T02:30:00+01:00 2027-03-29T02:30:00+02:00"},
		{"15,30 2 * * *", "Europe/Berlin", 0, 0, "2027-03-28T00:00:00+01:00",
			"2027-03-28T03:00:00+02:00 2027-03-29T02:15:00+02:00"},
		{"30 2 * * *", "Europe/Berlin", 0, 0, "2027-10-31T00:00:00+02:00",
			"2027-10-31T02:30:00+02:00 2027-11-01T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", 0, postdate.OverlapSecond, "2027-10-31T00:00:00+02:00",
			"2027-10-31T02:30:00+01:00 2027-11-01T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", 0, postdate.OverlapBoth, "2027-10-31T00:00:00+02:00",
			"2027-10-31T02:30:00+02:00 2027-10-31T02:30:00+01:00 2027-11-01T02:30:00+01:00"},
		{"@hourly", "Europe/Berlin", 0, 0, "2027-03-28T00:30:00+01:00",
			"2027-03-28T01:00:00+01:00 2027-03-28T03:00:00+02:00 2027-03-28T04:00:00+02:00"},
		{"30 * * * *", "Europe/Berlin", 0, 0, "2027-10-31T02:00:00+02:00",
			"2027-10-31T02:30:00+02:00 2027-10-31T02:30:00+01:00 2027-10-31T03:30:00+01:00"},
		{"30 * * * *", "America/New_York", 0, 0, "2027-11-07T00:45:00-04:00",
			"2027-11-07T01:30:00-04:00 2027-11-07T01:30:00-05:00 2027-11-07T02:30:00-05:00"},
		{"30 1 * * *", "America/New_York", 0, 0, "2027-11-07T00:45:00-04:00",
			"2027-11-07T01:30:00-04:00 2027-11-08T01:30:00-05:00"},
		// Half an hour on Lord Howe.
		{"15 2 * * *", "Australia/Lord_Howe", 0, 0, "2027-10-03T00:00:00+10:30",
			"2027-10-03T02:30:00+11:00 2027-10-04T02:15:00+11:00"},
		// At midnight in Cairo, so the day begins at 01:00.
		{"0 0 * * *", "Africa/Cairo", 0, 0, "2027-04-29T12:00:00+02:00",
			"2027-04-30T01:00:00+03:00 2027-05-01T00:00:00+03:00"},
		// Samoa left out 2011-12-30.
		{"0 12 * * *", "Pacific/Apia", 0, 0, "2011-12-29T00:00:00-10:00",
			"2011-12-29T12:00:00-10:00 2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
		// Where it is still 1969.
		{"30 23 * * *", "America/New_York", 0, 0, "1970-01-01T00:00:00Z", "1970-01-01T04:30:00Z 1970-01-02T04:30:00Z"},
		// Days.
		{"0 0 29 2 *", "UTC", 0, 0, "2095-01-01T00:00:00Z", "2096-02-29T00:00:00Z 2104-02-29T00:00:00Z"},
		{"0 0 13 * FRI", "UTC", 0, 0, "2027-08-07T00:00:00Z", "2027-08-13T00:00:00Z 2027-08-20T00:00:00Z"},
		{"0 0 */2 * mon", "UTC", 0, 0, "2027-08-01T00:00:00Z", "2027-08-09T00:00:00Z 2027-08-23T00:00:00Z"},
		{"0 0 31 * *", "UTC", 0, 0, "2027-01-31T12:00:00Z", "2027-03-31T00:00:00Z 2027-05-31T00:00:00Z"},
		{"0 0 * * 7", "UTC", 0, 0, "2027-08-01T12:00:00Z", "2027-08-08T00:00:00Z"},
		{"*/20 59 23 31 12 *", "UTC", 0, 0, "2027-01-01T00:00:00Z",
			"2027-12-31T23:59:00Z 2027-12-31T23:59:20Z 2027-12-31T23:59:40Z 2028-12-31T23:59:00Z"},
		// Package time gives these the span of the rule that came after them, if its data is slim.
		{"30 2 * * *", "America/Indiana/Winamac", 0, 0, "2007-03-11T00:00:00-06:00", "2007-03-11T04:00:00-04:00 2007-03-12T02:30:00-04:00"},
		{"30 23 * * *", "America/Ciudad_Juarez", 0, 0, "2022-11-29T12:00:00-06:00", "2022-11-29T23:30:00-06:00 2022-11-30T23:30:00-07:00"},
		{"30 1 * * *", "America/Metlakatla", 0, 0, "2019-01-20T00:00:00-08:00", "2019-01-20T01:30:00-08:00 2019-01-21T01:30:00-09:00"},
		// Package time has a wrong end for the last day of a leap year, where rules follow its table.
		{"30 23 * * *", "Europe/Berlin", 0, 0, "2040-12-30T23:30:00+01:00",
			"2040-12-31T23:30:00+01:00 2041-01-01T23:30:00+01:00"},
	} {
		rule := parse(t, postdate.Recurrence{Cron: c.cron, Timezone: c.zone, Gap: c.gap, Overlap: c.overlap}, 1)
		var want []postdate.Time
		for _, text := range strings.Fields(c.want) {
			want = append(want, at(t, text))
		}
		if got := after(rule, at(t, c.from), len(want)); !slices.Equal(got, want) {
			t.Errorf("%q in %s: %s, want %s", c.cron, c.zone, got, want)
		}
		if n := rule.Count(at(t, c.from)+1, want[len(want)-1]+1); n != int64(len(want)) {
			t.Errorf("%q in %s: %d are counted, want %d", c.cron, c.zone, n, len(want))
		}
	}
}

// A rule all of whose times are in gaps is seen to have none.
func TestNever(t *testing.T) {
	march31 := postdate.Recurrence{Cron: "30 2 31 2,3,4,6,9,11 */7", Timezone: "Europe/Berlin", Gap: postdate.GapSkip} // a Sunday
	if next, ok := parse(t, march31, 1).After(at(t, "1997-01-01T00:00:00Z")); ok {
		t.Errorf("it recurs at %s", next)
	}
	daily := parse(t, postdate.Recurrence{Cron: "@daily", Timezone: "UTC"}, 1)
	if next, ok := daily.After(at(t, "9999-12-30T00:00:00Z")); !ok || next != at(t, "9999-12-31T00:00:00Z") {
		t.Errorf("the last is at %s", next)
	}
	if next, ok := daily.After(at(t, "9999-12-31T00:00:00Z")); ok {
		t.Errorf("after the last it recurs at %d", next)
	}
}

// An interval counts from its anchor, whatever happened in between.
func TestEvery(t *testing.T) {
	const created = 1_800_000_000_123
	second := parse(t, postdate.Recurrence{Every: time.Second}, created)
	if first, _ := second.After(created - 1); first != created {
		t.Errorf("the first is %s", first)
	}
	all := after(second, created, 3600)
	if last := all[len(all)-1]; last != created+3_600_000 {
		t.Errorf("after an hour it is at %s", last)
	}
	if n := second.Count(created, created+3_600_000); n != 3600 {
		t.Errorf("an hour has %d", n)
	}
	for _, c := range []struct {
		r     postdate.Recurrence
		after postdate.Time
		want  []postdate.Time
	}{
		{postdate.Recurrence{Every: 100 * time.Millisecond}, created, []postdate.Time{created + 100, created + 200}},
		{postdate.Recurrence{Every: time.Minute, Start: created + 5}, created, []postdate.Time{created + 5, created + 60_005}},
		{postdate.Recurrence{Every: time.Minute, Anchor: 5}, created, []postdate.Time{1_800_000_000_005 + 60_000}},
		{postdate.Recurrence{Every: time.Minute, Anchor: created + 7_000}, created, []postdate.Time{created + 7_000}},
		{postdate.Recurrence{Every: time.Minute, Start: created + 1, Anchor: created}, created, []postdate.Time{created + 60_000}},
		{postdate.Recurrence{Every: time.Minute, End: created + 60_000}, created, []postdate.Time{created + 60_000}},
		{postdate.Recurrence{Every: time.Minute, End: created + 59_999}, created, nil},
		{postdate.Recurrence{Every: postdate.DelayMax}, postdate.LatestTime, nil},
	} {
		if got := after(parse(t, c.r, created), c.after, max(len(c.want), 1)); len(c.want) == 0 && got != nil ||
			len(c.want) > 0 && !slices.Equal(got, c.want) {
			t.Errorf("%+v: %s, want %s", c.r, got, c.want)
		}
	}
}

// What is no interval is refused, with what to do.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		r     postdate.Recurrence
		words string
	}{
		{postdate.Recurrence{}, "needs every"},
		{postdate.Recurrence{Every: time.Second, Cron: "@daily"}, "not both"},
		{postdate.Recurrence{Every: 99 * time.Millisecond}, "at least 100ms"},
		{postdate.Recurrence{Every: -time.Second}, "at least 100ms"},
		{postdate.Recurrence{Every: time.Second + 1}, "whole milliseconds"},
		{postdate.Recurrence{Every: postdate.DelayMax + time.Second}, "at most 36600 days"},
		{postdate.Recurrence{Every: time.Second, Timezone: "UTC"}, "timezone goes with cron"},
		{postdate.Recurrence{Every: time.Second, Gap: postdate.GapSkip}, "go with cron"},
		{postdate.Recurrence{Every: time.Second, Overlap: postdate.OverlapBoth}, "go with cron"},
		{postdate.Recurrence{Every: time.Second, Start: 9, End: 8}, "before start"},
		{postdate.Recurrence{Every: time.Second, MaxRuns: -1}, "maxRuns"},
		{postdate.Recurrence{Every: time.Second, MaxRuns: postdate.MaxRunsMax + 1}, "maxRuns"},
		{postdate.Recurrence{Every: time.Second, Jitter: 1001 * time.Millisecond}, "longer than every"},
		{postdate.Recurrence{Every: time.Second, Jitter: -1}, "jitter"},
		{postdate.Recurrence{Cron: "@daily", Timezone: "UTC", Jitter: postdate.JitterMax + time.Second}, "jitter"},
		{postdate.Recurrence{Every: time.Second, MisfireAfter: -time.Second}, "misfireAfter"},
		{postdate.Recurrence{Every: time.Second, MisfireAfter: postdate.DelayMax + time.Millisecond}, "and 36600 days"},
		{postdate.Recurrence{Cron: "@daily", Timezone: "UTC", Anchor: 1}, "anchor goes with every"},
	} {
		refused(t, c.r, c.words)
	}
	for _, most := range []postdate.Recurrence{
		{Every: postdate.EveryMin, Jitter: postdate.EveryMin, MaxRuns: postdate.MaxRunsMax, Start: 5, End: 5},
		{Every: postdate.DelayMax, Jitter: postdate.JitterMax, MisfireAfter: postdate.DelayMax},
		{Cron: "0 0 * * SUN-TUE/2,5-7/2,1-1/1", Timezone: "UTC"},
	} {
		parse(t, most, 1)
	}
}

func refused(t *testing.T, r postdate.Recurrence, words string) {
	t.Helper()
	_, err := recurrence.Parse(r, 1)
	if err == nil || postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), words) {
		t.Errorf("%+v: %v, want %q", r, err, words)
	}
}

// What docs/recurrence.md does not list is refused, with the field that is at fault and what it takes.
func TestCronRefused(t *testing.T) {
	const (
		second, minute, hour = "for the second, which takes 0 to 59", "for the minute, which takes 0 to 59", "for the hour, which takes 0 to 23"
		day, month           = "for the day of month, which takes 1 to 31", "for the month, which takes 1 to 12 or JAN to DEC"
		weekday              = "for the day of week, which takes 0 to 7 or SUN to SAT"
	)
	for _, c := range []struct{ cron, words string }{
		{"", "needs every"},
		{" ", "0 fields"},
		{"* * * *", "4 fields"},
		{"* * * * * * *", "7 fields"},
		{strings.Repeat("1,", 252) + "1 * * * *", "513 bytes long: at most 512"},
		{"TZ=Europe/Berlin 0 0 * * *", "put that into timezone"},
		{"CRON_TZ=Europe/Berlin 0 0 * * *", "put that into timezone"},
		{"@every PT5M", `give every "PT5M" instead`},
		{"@reboot", "not one of @hourly"},
		{"0 0 30 2 *", "never recurs"},
		{"0 0 31 4,6,9,11 *", "never recurs"},
		{"60 0 0 * * *", second}, {"0 60 0 * * *", minute}, {"60 0 * * *", minute}, {"0 24 * * *", hour}, {"0 0 0 * *", day}, {"0 0 32 * *", day},
		{"0 0 * 13 *", month}, {"0 0 * 0 *", month}, {"0 0 * * 8", weekday}, {"0 0 * * MONDAY", weekday}, {"0 0 * MON *", month}, {"0 0 * JANUARY *", month},
		{"0 0 L * *", day}, {"0 0 15W * *", day}, {"0 0 LW * *", day}, {"0 0 * * FRI#2", weekday}, {"0 0 * * 5L", weekday}, {"0 0 * * L", weekday},
		{"H H * * *", minute}, {"H/5 * * * *", minute}, {"0 0 5-6-7 * *", day}, {"0 0 1-40 * *", day}, {"*/0 * * * *", minute}, {"*/-1 * * * *", minute},
		{"*/60 * * * *", minute}, {"0 22/5 * * *", hour}, {"1/2/3 * * * *", minute}, {"9am * * * *", minute}, {"-1 * * * *", minute}, {"1- * * * *", minute},
		{", * * * *", minute}, {"1,,2 * * * *", minute}, {"** * * * *", minute}, {"*-5 * * * *", minute}, {"?* * * * *", minute}, {"0\x000 * * * *", minute},
		{"99999999999999999999 * * * *", minute}, {"0 30-2 * * *", hour}, {"70-5 * * * *", minute}, {"99-5 0 0 * * *", second},
		{"61-5 * * * *", minute}, {"0 24-2 * * *", hour}, {"60-59 * * * *", minute}, {"0 0 32-5 * *", day}, {"0 0 * 13-2 *", month}, {"0 0 * * 9-3", weekday},
		{"0 0 * * 8-1", weekday}, {"0 9223372036854775807-5/5 * * *", hour}, {"0 0 5-0 * *", day}, {"0 24/2 * * *", hour}, {"60/4 * * * *", minute},
		{"0 0 32/1 * *", day}, {"0 0 * 13/1 *", month}, {"0 0 * * 8/1", weekday}, {"0 0 * * FRI-TUE/2", "one by one"}, {"0 0 * * 5-1/2", "one by one"},
	} {
		refused(t, postdate.Recurrence{Cron: c.cron, Timezone: "UTC"}, c.words)
	}
	full := strings.Repeat("1,", 251) + "11 * * * *" // as long as may be
	parse(t, postdate.Recurrence{Cron: full[len(full)-postdate.CronBytesMax:], Timezone: "UTC"}, 1)
}

// What is no time zone of the IANA database is refused.
func TestTimezoneRefused(t *testing.T) {
	for _, c := range []struct{ zone, words string }{
		{"", "needs a timezone"},
		{"Local", "unknown"},
		{"Factory", "unknown"},
		{"Europe/Atlantis", "unknown"},
		{"CEST", "unknown"},
		{"Europe//Berlin", "unknown"},
		{"Europe/./Berlin", "unknown"},
		{"+02:00", "unknown"},
		{"../../etc/passwd", "unknown"},
		{"/etc/localtime", "unknown"},
		{"posix/Europe/Berlin", "unknown"},
		{"right/Europe/Berlin", "unknown"},
		{"europe/Berlin", "unknown"},
		{strings.Repeat("A", 64), "unknown"},
		{strings.Repeat("A", 65), "at most 64"},
	} {
		refused(t, postdate.Recurrence{Cron: "@daily", Timezone: c.zone}, c.words)
	}
}

// A gap or an overlap is told where it changes something.
func TestRemark(t *testing.T) {
	for _, c := range []struct {
		cron, zone string
		gap        postdate.Gap
		overlap    postdate.Overlap
		from       string
		want       []string
	}{
		{"30 2 * * *", "Europe/Berlin", 0, 0, "2027-03-27T03:00:00+01:00",
			[]string{"2027-03-28 02:30 does not exist: the clock goes from 02:00 to 03:00", ""}},
		{"30 2 * * *", "Europe/Berlin", postdate.GapSkip, 0, "2027-03-27T03:00:00+01:00",
			[]string{"the clock goes from 2027-03-28 02:00 to 03:00: what recurs between is left out", ""}},
		{"15 30 2 * * *", "Europe/Berlin", 0, 0, "2027-03-27T03:00:00+01:00",
			[]string{"2027-03-28 02:30:15 does not exist: the clock goes from 02:00 to 03:00", ""}},
		{"30 2 * * *", "Europe/Berlin", 0, 0, "2027-10-30T03:00:00+02:00",
			[]string{"02:30 comes twice: this is the first", ""}},
		{"30 * * * *", "Europe/Berlin", 0, 0, "2027-10-31T02:00:00+02:00",
			[]string{"02:30 comes twice: this is the first", "02:30 comes twice: this is the second", ""}},
		{"0 3 * * *", "Europe/Berlin", 0, 0, "2027-03-27T03:00:00+01:00", []string{"", ""}},
		{"0 2 * * *", "Europe/Berlin", 0, 0, "2027-10-30T03:00:00+02:00",
			[]string{"02:00 comes twice: this is the first", ""}},
		{"0 3 * * *", "Europe/Berlin", 0, 0, "2027-10-30T04:00:00+02:00", []string{"", ""}},
		{"0 1 * * *", "Europe/Berlin", 0, 0, "2027-10-30T04:00:00+02:00", []string{"", ""}},
		{"0 12 * * *", "Pacific/Apia", 0, 0, "2011-12-29T13:00:00-10:00",
			[]string{"2011-12-30 12:00 does not exist: the clock goes from 00:00 to 2011-12-31 00:00", ""}},
		{"@hourly", "Europe/Berlin", 0, 0, "2027-03-28T01:00:00+01:00",
			[]string{"the clock goes from 2027-03-28 02:00 to 03:00: what recurs between is left out", ""}},
		{"0 12 * * *", "Pacific/Apia", postdate.GapSkip, 0, "2011-12-29T13:00:00-10:00",
			[]string{"the clock goes from 2011-12-30 00:00 to 2011-12-31 00:00: what recurs between is left out", ""}},
		{"30 2 1 6 *", "Europe/Berlin", postdate.GapSkip, 0, "2027-03-01T00:00:00Z", []string{"", ""}},
		{"30 2 28 3 *", "Europe/Berlin", postdate.GapSkip, 0, "2027-03-01T00:00:00Z",
			[]string{"the clock goes from 2027-03-28 02:00 to 03:00: what recurs between is left out", ""}},
	} {
		rule := parse(t, postdate.Recurrence{Cron: c.cron, Timezone: c.zone, Gap: c.gap, Overlap: c.overlap}, 1)
		before := at(t, c.from)
		for i, next := range after(rule, before, len(c.want)) {
			if got := rule.Remark(before, next); got != c.want[i] {
				t.Errorf("%q in %s at %s: %q, want %q", c.cron, c.zone, next, got, c.want[i])
			}
			before = next
		}
	}
	starts := parse(t, postdate.Recurrence{Cron: "@hourly", Timezone: "Europe/Berlin", Start: at(t, "2027-03-28T01:00:00Z")}, 1)
	if got := starts.Remark(1, at(t, "2027-03-28T01:00:00Z")); got == "" {
		t.Error("a gap at the start has no remark")
	}
	if got := starts.Remark(1, at(t, "2027-03-28T02:00:00Z")); got == "" {
		t.Error("a gap since the start has no remark")
	}
	starts = parse(t, postdate.Recurrence{Cron: "@hourly", Timezone: "Europe/Berlin", Start: at(t, "2027-03-28T01:00:01Z")}, 1)
	if got := starts.Remark(1, at(t, "2027-03-28T02:00:00Z")); got != "" {
		t.Errorf("a gap before the start has the remark %q", got)
	}
	if got := parse(t, postdate.Recurrence{Every: time.Hour}, 1).Remark(1, 3_600_001); got != "" {
		t.Errorf("an interval has the remark %q", got)
	}
}

// Those that a clock which is set back shows again are not counted twice, nor less than not at all.
func TestCountInAnOverlap(t *testing.T) {
	for _, c := range []struct {
		overlap postdate.Overlap
		hour    string
		want    int64
	}{
		{postdate.OverlapFirst, "2027-10-31T00", 4}, {postdate.OverlapFirst, "2027-10-31T01", 0},
		{postdate.OverlapSecond, "2027-10-31T00", 0}, {postdate.OverlapSecond, "2027-10-31T01", 4},
		{postdate.OverlapBoth, "2027-10-31T00", 4}, {postdate.OverlapBoth, "2027-10-31T01", 4},
	} {
		rule := parse(t, postdate.Recurrence{Cron: "*/10 2 * * *", Timezone: "Europe/Berlin", Overlap: c.overlap}, 1)
		if n := rule.Count(at(t, c.hour+":10:00Z"), at(t, c.hour+":50:00Z")); n != c.want {
			t.Errorf("overlap %d in the hour from %s: %d, want %d", c.overlap, c.hour, n, c.want)
		}
	}
	rule := parse(t, postdate.Recurrence{Cron: "*/10 2 * * *", Timezone: "Europe/Berlin"}, 1)
	last := at(t, "2027-10-31T00:50:00Z")
	if next, skipped, ok := rule.Late(last, 1, at(t, "2027-10-31T01:40:00Z")); next != last || skipped != 0 || !ok {
		t.Errorf("late: %s, %d skipped, %v", next, skipped, ok)
	}
}

// Occurrences that are too late go as the policy says: all of them are found one by one here.
func TestLate(t *testing.T) {
	random := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	const created = 1_800_000_000_000
	late, ended := 0, 0
	for range 2_000 {
		r := postdate.Recurrence{
			Every: time.Duration(1+random.Int64N(20)) * 100 * time.Millisecond,
			Start: created + postdate.Time(random.Int64N(2_000_000)-1_000_000),
			End:   created + 1_000_000 + postdate.Time(random.Int64N(4_000_000)), MisfireAfter: time.Duration(random.Int64N(90)) * time.Second,
			Misfire: postdate.Misfire(random.IntN(3)),
		}
		if random.IntN(2) == 0 {
			r.Every, r.Cron, r.Timezone = 0, rules[random.IntN(len(rules))], "Europe/Berlin"
			r.End = created + 1_000_000 + postdate.Time(random.Int64N(100*24*3_600_000))
		}
		if random.IntN(2) == 0 {
			longest := r.Every
			if r.Cron != "" {
				longest = postdate.JitterMax
			}
			r.Jitter = time.Duration(random.Int64N(int64(longest))).Truncate(time.Millisecond)
		}
		run := 1 + random.IntN(100)
		if random.IntN(2) == 0 {
			r.MaxRuns = run + random.IntN(200)
		}
		rule := parse(t, r, created)
		first, ok := rule.After(created)
		if !ok {
			continue
		}
		misfireAfter := cmp.Or(r.MisfireAfter, time.Minute)
		now := first + postdate.Time(random.Int64N(int64(r.End-created)+100_000))
		var misfired, rest []postdate.Time
		for next, ok, n := first, true, run; ok && len(rest) < 2; n++ {
			if now > next.Add(r.Jitter).Add(misfireAfter) {
				misfired = append(misfired, next)
			} else {
				rest = append(rest, next)
			}
			next, ok = rule.Next(next, n)
		}
		begin := map[postdate.Misfire]int{postdate.MisfireOnce: 1, postdate.MisfireAll: 1_000}[r.Misfire]
		skipped := max(len(misfired)-begin, 0)
		goesOn := append(misfired, rest...)[skipped:]
		next, n, ok := rule.Late(first, run, now)
		if ok != (len(goesOn) > 0) || int(n) != skipped || ok && next != goesOn[0] {
			t.Fatalf("%+v, %s after %s: %s, %d skipped, %v; want %d skipped and %s", r, now, first, next, n, ok, skipped,
				goesOn[:min(len(goesOn), 1)])
		}
		if skipped > 0 {
			late++
		}
		if r.MaxRuns != 0 && !ok {
			ended++
		}
	}
	if late < 100 || ended < 50 {
		t.Errorf("only %d of the draws were late, and %d ended", late, ended)
	}
}

// An occurrence is misfired from one millisecond after what its rule allows.
func TestLateByAMillisecond(t *testing.T) {
	for _, c := range []struct {
		misfire postdate.Misfire
		now     postdate.Time
		next    postdate.Time
		skipped int64
	}{
		{postdate.MisfireSkip, 5_000 + 60_053, 5_000, 2}, {postdate.MisfireSkip, 5_000 + 60_054, 6_000, 3},
		{postdate.MisfireOnce, 5_000 + 60_053, 4_000, 1}, {postdate.MisfireOnce, 5_000 + 60_054, 5_000, 2},
		{postdate.MisfireAll, 5_000 + 60_054, 3_000, 0}, {postdate.MisfireOnce, 3_000 + 60_053, 3_000, 0},
	} {
		rule := parse(t, postdate.Recurrence{Every: time.Second, Jitter: 53 * time.Millisecond, Misfire: c.misfire}, 1_000)
		if next, skipped, ok := rule.Late(3_000, 1, c.now); next != c.next || skipped != c.skipped || !ok {
			t.Errorf("misfire %d at %d: %d, %d skipped, %v; want %d, %d", c.misfire, c.now, next, skipped, ok, c.next, c.skipped)
		}
	}
	ends := parse(t, postdate.Recurrence{Every: time.Second, End: 5_000, Misfire: postdate.MisfireSkip}, 1_000)
	if _, skipped, ok := ends.Late(3_000, 1, 65_001); ok || skipped != 3 {
		t.Errorf("after the end: %d skipped, %v", skipped, ok)
	}
}

// Jitter is the same wherever it is asked for, differs between series and occurrences, and stays
// below what the rule allows.
func TestDue(t *testing.T) {
	rule := parse(t, postdate.Recurrence{Every: time.Minute, Jitter: 10 * time.Second}, 1)
	seen := map[postdate.Time]int{}
	for i := range 1_000 {
		at, id := postdate.Time(60_000*i+1), fmt.Sprint("series-", i%10)
		due := rule.Due(id, at)
		if due < at || due >= at+10_000 || due != rule.Due(id, at) {
			t.Fatalf("%s is due at %s", at, due)
		}
		seen[(due-at)/1_000]++
	}
	for tenth := range postdate.Time(10) {
		if n := seen[tenth]; n < 50 || n > 150 {
			t.Errorf("%d of 1,000 are begun %d to %d seconds later", n, tenth, tenth+1)
		}
	}
	minutely := parse(t, postdate.Recurrence{Cron: "* * * * *", Timezone: "UTC", Jitter: time.Hour}, 1)
	for i := range postdate.Time(100) {
		if due := minutely.Due("x", i*60_000); due < i*60_000 || due >= (i+1)*60_000 {
			t.Errorf("an occurrence is due %d ms later, after the next one", due-i*60_000)
		}
	}
	if due := parse(t, postdate.Recurrence{Every: time.Minute}, 1).Due("x", 5); due != 5 {
		t.Errorf("without jitter it is due at %s", due)
	}
	// Nodes of different versions must agree.
	if due := rule.Due("series-1", 60_001); due != 60_001+4818 {
		t.Errorf("it has changed to %s", due)
	}
}

// FuzzParse: whatever is sent is refused, or recurs in order, on whole seconds, as often as is counted.
func FuzzParse(f *testing.F) {
	for _, rule := range rules {
		f.Add(rule, "Europe/Berlin", int64(1_800_000_000_000))
	}
	f.Add("*/90 * * * *", "Africa/Casablanca", int64(1))
	f.Add("0 0 29 2 SUN", "Pacific/Apia", int64(postdate.LatestTime)-1)
	f.Add("@every 1s", "Local", int64(-1))
	f.Fuzz(func(t *testing.T, cron, zone string, from int64) {
		rule, err := recurrence.Parse(postdate.Recurrence{Cron: cron, Timezone: zone}, 1)
		if err != nil {
			if postdate.KindOf(err) != postdate.KindInvalid {
				t.Errorf("%q: %v", cron, err)
			}
			return
		}
		before := postdate.Time(min(max(from, 0), int64(postdate.LatestTime)))
		for _, next := range after(rule, before, 5) {
			if next <= before || next%1000 != 0 || next > postdate.LatestTime {
				t.Fatalf("%q in %q: %d follows %d", cron, zone, next, before)
			}
			if n := rule.Count(before+1, next+1); n != 1 {
				t.Fatalf("%q in %q: %d lie between %d and %d", cron, zone, n, before, next)
			}
			_ = rule.Remark(before, next)
			before = next
		}
	})
}

func BenchmarkAfter(b *testing.B) {
	for name, r := range map[string]postdate.Recurrence{
		"every":    {Every: time.Second},
		"minutely": {Cron: "* * * * *", Timezone: "Europe/Berlin"},
		"daily":    {Cron: "30 2 * * *", Timezone: "Europe/Berlin"},
		"leap-day": {Cron: "0 0 29 2 *", Timezone: "Europe/Berlin"},
	} {
		b.Run(name, func(b *testing.B) {
			rule := parse(b, r, 1)
			for b.Loop() {
				rule.After(1_800_000_000_000)
			}
		})
	}
}

// A series begins with the first occurrence after now, later by its jitter. A message that is sent once stays as it is.
func TestBegin(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{ScheduleID: "a"}, CreatedAt: 1_000,
		Recurrence: &postdate.Recurrence{Every: time.Second, Jitter: time.Second, End: 9_000}}
	rule, err := recurrence.Parse(*m.Recurrence, m.CreatedAt)
	if err != nil {
		t.Fatal(err)
	}
	if err := recurrence.Begin(&m, 5_000); err != nil || m.First != 6_000 || m.ExecutionTime != rule.Due("a", 6_000) || m.ExecutionTime == m.First {
		t.Errorf("it begins at %d and %d, %v", m.First, m.ExecutionTime, err)
	}
	if err := recurrence.Begin(&m, 9_000); postdate.KindOf(err) != postdate.KindInvalid {
		t.Errorf("after its end it begins: %v", err)
	}
	m.Recurrence = &postdate.Recurrence{}
	if err := recurrence.Begin(&m, 5_000); postdate.KindOf(err) != postdate.KindInvalid {
		t.Errorf("without a rule it begins: %v", err)
	}
	once := postdate.Message{ExecutionTime: 7_000}
	if err := recurrence.Begin(&once, 5_000); err != nil || once.ExecutionTime != 7_000 || once.First != 0 {
		t.Errorf("sent once, it is at %d, %v", once.ExecutionTime, err)
	}
}
