package account

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postdate/postdate/internal/testrun"
)

// clock is the format of times.
const clock = "15:04:05.000"

// life describes all that is known of a message.
func (e *entry) life() string {
	var b strings.Builder
	fmt.Fprintf(&b, "over %s, due", e.via)
	for _, due := range e.dues {
		fmt.Fprintf(&b, " %s", due.Format(clock))
	}
	fmt.Fprintf(&b, ", %s", [...]string{maybe: "never answered", yes: "accepted", no: "refused"}[e.exists])
	if e.moved {
		b.WriteString(", rescheduled")
	}
	switch e.cancelled {
	case yes:
		b.WriteString(", cancelled")
	case maybe:
		b.WriteString(", its cancel unanswered")
	}
	if e.status != "" {
		b.WriteString(", in the store " + e.status)
	}
	for _, a := range e.arrivals {
		fmt.Fprintf(&b, "; came %s for %s, attempt %d", a.Received.Format(clock), a.Due.Format(clock), a.Attempt)
		if !a.Delivered.IsZero() {
			fmt.Fprintf(&b, ", delivered %s by its own word", a.Delivered.Format(clock))
		}
		if a.Marked {
			b.WriteString(", marked")
		}
		if a.Redelivered {
			b.WriteString(", redelivered by the broker")
		}
	}
	return b.String()
}

// violationsShown is how many violations of a kind a report names.
const violationsShown = 10

// String returns the report as a table, followed by the violations.
func (r Report) String() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, w := range r.Windows {
		fmt.Fprintf(t, "fault\t%s\t%s, %s long\n", w.Fault, w.From.Format(clock), round(w.To.Sub(w.From)))
	}
	fmt.Fprintf(t, "sent\t%d\t%d accepted, %d surely not, %d unanswered\n", r.Sent, r.Accepted, r.Refused, r.Unanswered)
	fmt.Fprintf(t, "cancelled\t%d\tand %d without an answer\n", r.Cancelled, r.Wavering)
	fmt.Fprintf(t, "rescheduled\t%d\t\n", r.Moved)
	fmt.Fprintf(t, "arrived\t%d\t%d of them marked, %d messages more than once\n", r.Arrived, r.Marked, r.Twice)
	fmt.Fprintf(t, "\t%d\tcopies handed out again by the broker itself\n", r.Redelivered)
	fmt.Fprintf(t, "\t%d\tcopies that were held up on their way, after the marked one\n", r.HeldUp)
	fmt.Fprintf(t, "late, no fault near\t%d\t%s\n", r.Quiet.Count, r.Quiet)
	fmt.Fprintf(t, "late, around faults\t%d\t%s\n", r.Faulty.Count, r.Faulty)
	fmt.Fprintf(t, "longest gap\t%s\tfrom %s\n", round(r.Gap.Long), r.Gap.From.Format(clock))
	counts := map[Kind]int{}
	for _, v := range r.Violations {
		counts[v.Kind]++
	}
	for _, k := range []Kind{Lost, Early, AfterCancel, NeverScheduled, WrongTime, Silent, NeedlessMark, Again, Gone,
		OddAnswer, FalseStatus, Stuck, Crash} {
		fmt.Fprintf(t, "%s\t%d\t\n", k, counts[k])
	}
	t.Flush()
	shown := map[Kind]int{}
	for _, v := range r.Violations {
		if shown[v.Kind]++; shown[v.Kind] <= violationsShown {
			fmt.Fprintf(&b, "%s: %s\n", testrun.Broken, v)
		}
	}
	return b.String()
}

func (l Lateness) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", round(l.P50), round(l.P99), round(l.Max))
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
