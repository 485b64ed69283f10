package main

import (
	"strings"
	"testing"
)

// A node shows when rules recur, in its own time and that of their zone.
func TestPreviewCommand(t *testing.T) {
	t.Parallel()
	s := startServe(t, nil)
	server := []string{"POSTDATE_SERVER=" + s.ready.HTTP}
	berlin := []string{"preview", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2027-03-28T00:00:00+01:00", "--count", "2"}
	for _, test := range []struct {
		args []string
		code int
		want string // what it prints, or a part of the error
	}{
		{berlin, exitOK, `2027-03-28T01:00:00.000Z  Sun 2027-03-28 03:00:00 +02:00  2027-03-28 02:30 does not exist: the clock goes from 02:00 to 03:00
2027-03-29T00:30:00.000Z  Mon 2027-03-29 02:30:00 +02:00
`},
		{append(berlin, "--gap", "skip", "--end", "2027-03-29T00:30:00Z"), exitOK, "2027-03-29T00:30:00.000Z  Mon 2027-03-29 02:30:00 +02:00  the clock goes from 2027-03-28 02:00 to 03:00: what recurs between is left out\nno more within a hundred years\n"},
		{append(berlin, "--end", "2027-03-28T00:00:00Z"), exitOK, "none within a hundred years\n"},
		{[]string{"preview", "--every", "PT12H", "--anchor", "2027-01-01T00:00:00.5Z", "--from", "2027-01-01T00:00:00Z", "--max-runs", "2", "--json"}, exitOK,
			`{"occurrences":[{"time":"2027-01-01T00:00:00.500Z"},{"time":"2027-01-01T12:00:00.500Z"}]}` + "\n"},
		{[]string{"preview", "--every", "1m", "--start", "2037-10-31T02:30:00+01:00", "--count", "1"}, exitOK, "2037-10-31T01:30:00.000Z\n"},
		{[]string{"preview", "--every", "1m", "--anchor", "2037-10-31T01:30:00Z", "--max-runs", "1"}, exitOK, "2037-10-31T01:30:00.000Z\nno more within a hundred years\n"},
		{[]string{"send", "--in", "soon", "--channel", "inbox:a", "--data", "x"}, exitUsage, `--in: "soon" is not a duration`},
		{[]string{"send", "--at", "soon", "--channel", "inbox:a", "--data", "x"}, exitUsage, `--at: time "soon" is not RFC 3339`},
		{[]string{"send", "--in", "1s", "--channel", "inbox:a b", "--data", "x"}, exitUsage, "--channel: inbox name"},
		{[]string{"send", "--every", "1ms", "--channel", "inbox:a", "--data", "x"}, exitUsage, "--every: every is 1ms"},
		{[]string{"preview"}, exitUsage, "say how often: --every INTERVAL, or --cron RULE --timezone ZONE"},
		{[]string{"preview", "--cron", "30", "2", "*", "*", "*", "--timezone", "UTC"}, exitUsage, `"2" is too much: a rule by cron goes in quotes`},
		{[]string{"preview", "--cron", "@daily"}, exitUsage, "cron needs a timezone"},
		{[]string{"preview", "--every", "1s", "--cron", "@daily", "--timezone", "UTC"}, exitUsage, "either every or cron, not both"},
		{[]string{"preview", "--cron", "0 0 L * *", "--timezone", "UTC"}, exitUsage, "for the day of month, which takes 1 to 31"},
		{[]string{"preview", "--every", "1s", "--count", "0"}, exitUsage, "--count: count is 0: it must be between 1 and 1000"},
		{[]string{"preview", "--every", "1s", "--start", "2027-01-02"}, exitUsage, `--start: time "2027-01-02" is not RFC 3339`},
		{[]string{"preview", "--every", "1s", "--max-runs", "-1"}, exitUsage, "--max-runs: maxRuns is -1"},
		{[]string{"preview", "--every", "1s", "--max-runs", "many"}, exitUsage, `--max-runs: "many" is not a whole number`},
		{[]string{"preview", "--every", "1s", "--overlap", "none"}, exitUsage, "not one of first, second, both"},
	} {
		r := call(server, "", test.args...)
		if test.code == exitOK && r.stdout != test.want || r.code != test.code || !strings.Contains(r.stdout+r.stderr, test.want) {
			t.Errorf("%v: %+v\nwant %d %s", test.args, r, test.code, test.want)
		}
	}
}
