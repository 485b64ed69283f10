package postdate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2027-01-31T09:30:00Z":           "2027-01-31T09:30:00.000Z",
		"2027-01-31T09:30:00.25+02:00":   "2027-01-31T07:30:00.250Z",
		"2027-01-31T09:30:00.000000001Z": "2027-01-31T09:30:00.001Z", // up: never early
		"2027-01-31T09:30:00.9990001Z":   "2027-01-31T09:30:01.000Z",
		"2027-01-31T09:30:00.001Z":       "2027-01-31T09:30:00.001Z",
		"1970-01-01T00:00:00.001Z":       "1970-01-01T00:00:00.001Z",
		"9999-12-31T23:59:59.999Z":       "9999-12-31T23:59:59.999Z",
		"2027-01-31t09:30:00z":           "2027-01-31T09:30:00.000Z", // RFC 3339 lets both letters be small
		"2027-01-31T09:30:00-00:00":      "2027-01-31T09:30:00.000Z",
		"2027-01-31T09:30:00+23:59":      "2027-01-30T09:31:00.000Z",
		"2027-01-31T09:30:00-23:59":      "2027-02-01T09:29:00.000Z",
		"9999-12-31T23:59:59+14:00":      "9999-12-31T09:59:59.000Z",
		"2016-12-31T23:59:60Z":           "2017-01-01T00:00:00.000Z", // a leap second: what clocks count is the next one
		"2016-12-31T23:59:60.5Z":         "2017-01-01T00:00:00.500Z",
		"1990-12-31T15:59:60-08:00":      "1991-01-01T00:00:00.000Z",
		"2030-07-01T01:59:60.25+02:00":   "2030-07-01T00:00:00.250Z",
	} {
		if got, err := postdate.ParseTime(text); err != nil || got.String() != want {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
	for text, words := range map[string]string{
		"2027-01-31T09:30:00":        "has no zone",
		"2027-01-31T09:30:00.5":      "has no zone",
		"2027-01-31":                 "RFC 3339",
		"2027-02-30T00:00:00Z":       "2027-02-30",
		"tomorrow":                   "RFC 3339",
		"":                           "RFC 3339",
		"1769851800":                 "RFC 3339",
		"20000-01-01T00:00:00Z":      "9999",
		"1970-01-01T00:00:00Z":       "out of range",
		"1969-12-31T23:59:59Z":       "out of range",
		"9999-12-31T23:59:59.9991Z":  "out of range",
		"9999-12-31T23:59:59-01:00":  "out of range",
		"9999-12-31T23:59:60Z":       "out of range",
		"0000-01-01T00:00:00Z":       "out of range",
		"2027-01-31T24:00:00Z":       "RFC 3339",
		"2027-01-31T9:30:00Z":        "RFC 3339",
		"2027-01-31T09:30:00,5Z":     "RFC 3339",
		"2027-01-31T09:30:00.Z":      "RFC 3339",
		"2027-01-31T09:30Z":          "RFC 3339",
		"2027-01-31 09:30:00Z":       "RFC 3339",
		"2027-01-31T09:30:00+24:00":  "RFC 3339",
		"2027-01-31T09:30:00+01:60":  "RFC 3339",
		"2027-01-31T09:30:00+0100":   "RFC 3339",
		"2027-01-31T09:30:00+01":     "RFC 3339",
		"2027-01-31T09:30:00 +01:00": "RFC 3339",
		"2027-01-31T09:30:61Z":       "RFC 3339",
		"2027-01-31T09:30:60Z":       "RFC 3339", // no leap second comes there
		"2016-12-30T23:59:60Z":       "RFC 3339",
		"2016-12-31T23:59:60+01:00":  "RFC 3339",
		"2027-01-31T09:60:00Z":       "RFC 3339",
		"2027-13-01T09:30:00Z":       "RFC 3339",
		"2027-01-31T09:30:00Zz":      "RFC 3339",
		"\u0131027-01-31T09:30:00Z":  "RFC 3339",
	} {
		_, err := postdate.ParseTime(text)
		if postdate.KindOf(err) != postdate.KindInvalid || err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", text, err, words)
		}
	}
}

// A message's time is rounded up and a clock's reading down, so that a message that
// is due by the rounded times is due by the exact ones.
func TestRounding(t *testing.T) {
	half := time.UnixMilli(1000).Add(time.Nanosecond)
	if got := postdate.TimeOf(half); got != 1001 {
		t.Errorf("TimeOf is %d", got)
	}
	if got := postdate.WallOf(half); got != 1000 {
		t.Errorf("WallOf is %d", got)
	}
	if a, b := postdate.TimeOf(time.UnixMilli(1000)), postdate.WallOf(time.UnixMilli(1000)); a != 1000 || b != 1000 {
		t.Errorf("a whole millisecond becomes %d and %d", a, b)
	}
	at := postdate.Time(1000)
	for d, want := range map[time.Duration]postdate.Time{
		0: 1000, 1: 1001, time.Millisecond: 1001, time.Millisecond + 1: 1002, -time.Millisecond: 999,
	} {
		if got := at.Add(d); got != want {
			t.Errorf("1000 later by %v is %d, want %d", d, got, want)
		}
	}
	if got := at.Sub(998); got != 2*time.Millisecond {
		t.Errorf("Sub is %v", got)
	}
	later := postdate.Now{Wall: 5, Mono: 7}.Later(time.Second)
	if later != (postdate.Now{Wall: 1005, Mono: 7 + time.Second}) {
		t.Errorf("Later is %+v", later)
	}
}

// FuzzParseTime: an accepted time is in range, is not before the time that the
// client gave, and parses back to itself.
func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2027-01-31T09:30:00.25+02:00", "9999-12-31T23:59:59.999Z", "2027-01-31T09:30:00,5Z", "0000-01-01T00:00:00Z", "2027-01-31T24:00:00Z", "2016-12-31T23:59:60.1Z", "2027-01-31t09:30:00z", "2027-01-31T09:30:00+24:00", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := postdate.ParseTime(s)
		if err != nil {
			if postdate.KindOf(err) != postdate.KindInvalid {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if at < postdate.EarliestTime || at > postdate.LatestTime {
			t.Fatalf("%q is %d", s, at)
		}
		leap := strings.Contains(s, ":60")
		exact, err := time.Parse(time.RFC3339Nano, strings.Replace(strings.ToUpper(s), ":60", ":59", 1))
		if leap {
			exact = exact.Add(time.Second)
		}
		if err != nil || at.Std().Before(exact) || at.Std().Sub(exact) >= time.Millisecond {
			t.Fatalf("%q is %s (%v)", s, at, err)
		}
		if again, err := postdate.ParseTime(at.String()); err != nil || again != at {
			t.Fatalf("%q is %s, which is %s, %v", s, at, again, err)
		}
	})
}

// TestTimeText compares the form on the wire with the library's own way to write it.
func TestTimeText(t *testing.T) {
	for _, at := range []postdate.Time{-62_135_596_800_000, -1, 0, 1, 7, 90, 999, 1_000, 1_801_483_200_250,
		postdate.EarliestTime, postdate.LatestTime, postdate.Far} {
		if got, want := at.String(), at.Std().Format("2006-01-02T15:04:05.000Z"); got != want {
			t.Errorf("%d is %s, not %s", at, got, want)
		}
	}
}
