package api

import (
	"regexp"
	"strings"
	"time"

	"github.com/sosodev/duration"

	"github.com/postdate/postdate"
)

// durationBytesMax bounds the text of a duration.
const durationBytesMax = 64

// isoShape matches the durations of ISO 8601 whose length is fixed. It comes before a
// lax parser, which accepts "P", "PT" and a repeated unit.
var isoShape = regexp.MustCompile(`^-?P(?:\d+(?:\.\d+)?W)?(?:\d+(?:\.\d+)?D)?(?:T(?:\d+(?:\.\d+)?H)?(?:\d+(?:\.\d+)?M)?(?:\d+(?:\.\d+)?S)?)?$`)

// ParseDuration parses an ISO 8601 (PT15M) or Go (15m) duration. It refuses years and
// months, whose length varies. Errors are of KindInvalid. A negative duration is no
// error here.
func ParseDuration(s string) (time.Duration, error) {
	if len(s) > durationBytesMax {
		return 0, postdate.E(postdate.KindInvalid, "a duration of %d bytes is too long: at most %d are allowed",
			len(s), durationBytesMax)
	}
	if !strings.HasPrefix(s, "P") && !strings.HasPrefix(s, "-P") {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, badDuration(s)
		}
		return d, nil
	}
	last := s[len(s)-1]
	if !isoShape.MatchString(s) || last == 'P' || last == 'T' {
		if date, _, _ := strings.Cut(s, "T"); strings.ContainsAny(date, "YM") {
			return 0, postdate.E(postdate.KindInvalid, "duration %q has years or months, whose length varies: "+
				"count it in days, like P30D", s)
		}
		return 0, badDuration(s)
	}
	iso, err := duration.Parse(s)
	if err != nil {
		return 0, badDuration(s)
	}
	hours := (iso.Weeks*7+iso.Days)*24 + iso.Hours + iso.Minutes/60 + iso.Seconds/3600
	if hours > 2*postdate.DelayMax.Hours() {
		return 0, postdate.E(postdate.KindInvalid, "duration %q is too long: at most %d days are allowed",
			s, daysOf(postdate.DelayMax))
	}
	return iso.ToTimeDuration(), nil
}

func badDuration(s string) error {
	return postdate.E(postdate.KindInvalid, "%q is not a duration: write it like PT15M or 15m, or P7D for days", s)
}

func daysOf(d time.Duration) int { return int(d / (24 * time.Hour)) }
