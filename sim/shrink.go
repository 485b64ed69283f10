package sim

import (
	"strconv"
	"strings"

	"github.com/postdate/postdate"
	"slices"
	"time"
)

// Shrink shortens a failure: it leaves out items of the plan as long as the same promise is
// still broken, until the real time until. It returns the last run that failed.
func Shrink(o Options, failed Result, until time.Time) Result {
	for size := (len(failed.Items) + 1) / 2; size >= 1 && time.Now().Before(until); {
		shorter := false
		for from := 0; from < len(failed.Items) && time.Now().Before(until); {
			o.Keep = slices.Delete(slices.Clone(failed.Items), from, min(from+size, len(failed.Items)))
			r := Run(o)
			if r.Violation != nil && r.Violation.Promise == failed.Violation.Promise {
				failed, shorter = r, true // the items that took their place come next
				continue
			}
			from += size
		}
		switch {
		case size > 1:
			size = (size + 1) / 2
		case !shorter:
			return failed
		}
	}
	return failed
}

// Ranges formats item numbers for the flag -keep, like 3,7-9.
func Ranges(items []int) string {
	var b []byte
	for i := 0; i < len(items); {
		last := i
		for last+1 < len(items) && items[last+1] == items[last]+1 {
			last++
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = appendRange(b, items[i], items[last])
		i = last + 1
	}
	return string(b)
}

func appendRange(b []byte, from, to int) []byte {
	b = strconv.AppendInt(b, int64(from), 10)
	if to > from {
		b = strconv.AppendInt(append(b, '-'), int64(to), 10)
	}
	return b
}

// ParseRanges parses what Ranges wrote.
func ParseRanges(s string) (items []int, err error) {
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || from < 0 || to < from {
			return nil, postdate.E(postdate.KindInvalid, "%q is no list of item numbers: write it like 3,7-9", s)
		}
		for i := from; i <= to; i++ {
			items = append(items, i)
		}
	}
	return items, nil
}
