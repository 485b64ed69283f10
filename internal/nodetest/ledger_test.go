package nodetest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
)

// witness keeps the complaints of a check.
type witness struct {
	testing.TB
	said []string
}

func (w *witness) Helper() {}

func (w *witness) Errorf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// The ledger finds each way in which a node can break its word, and nothing else.
func TestLedgerFindsFaults(t *testing.T) {
	due := time.UnixMilli(1_900_000_000_000)
	at := func(ms int, marked bool) nodetest.Arrival {
		when := due.Add(time.Duration(ms) * time.Millisecond)
		return nodetest.Arrival{ScheduleID: "m", ExecutionTime: due, DeliveredAt: when, ReceivedAt: when, PossibleDuplicate: marked}
	}
	moved := at(5, false)
	moved.ExecutionTime = due.Add(time.Millisecond)
	for _, test := range []struct {
		name     string
		promise  nodetest.Promise
		killed   bool // between due and 1 s later
		arrivals []nodetest.Arrival
		want     string // "": no complaint
	}{
		{"in order", nodetest.Accepted, false, []nodetest.Arrival{at(1, false)}, ""},
		{"unanswered, and not there", nodetest.Unanswered, false, nil, ""},
		{"unanswered, and there", nodetest.Unanswered, false, []nodetest.Arrival{at(1, false)}, ""},
		{"withdrawn", nodetest.Withdrawn, false, nil, ""},
		{"again after a kill, marked", nodetest.Accepted, true, []nodetest.Arrival{at(1, false), at(1000, true)}, ""},
		{"lost", nodetest.Accepted, false, nil, "is lost"},
		{"withdrawn, and there", nodetest.Withdrawn, false, []nodetest.Arrival{at(1, false)}, "cancelled with 200, and arrived"},
		{"early", nodetest.Accepted, false, []nodetest.Arrival{at(-1, false)}, "early"},
		{"another time", nodetest.Accepted, false, []nodetest.Arrival{moved}, "its execution time became"},
		{"again, not marked", nodetest.Accepted, true, []nodetest.Arrival{at(1, false), at(1000, false)}, "not marked"},
		{"again, without a kill", nodetest.Accepted, false, []nodetest.Arrival{at(1, false), at(1000, true)}, "around no kill"},
		{"again, twice after the kill", nodetest.Accepted, true, []nodetest.Arrival{at(1000, true), at(2000, true)}, "without a kill in between"},
		{"marked, without a kill", nodetest.Accepted, false, []nodetest.Arrival{at(1, true)}, "around no kill"},
	} {
		l := nodetest.NewLedger()
		l.Sent("m", due)
		l.Note("m", test.promise)
		if test.killed {
			l.Killed(due.Add(20 * time.Millisecond))
		}
		for _, a := range test.arrivals {
			l.Arrived(a)
		}
		w := &witness{TB: t}
		l.Check(w)
		said := strings.Join(w.said, "; ")
		if (test.want == "") != (said == "") || !strings.Contains(said, test.want) {
			t.Errorf("%s: it says %q, want %q", test.name, said, test.want)
		}
		if said != "" && !strings.HasPrefix(said, testrun.Broken) {
			t.Errorf("%s: it does not say that a promise is broken: %q", test.name, said)
		}
	}
	l := nodetest.NewLedger()
	l.Sent("m", due)
	l.Killed(due)
	l.Arrived(at(1, true))
	w := &witness{TB: t}
	if l.CheckQuiet(w); len(w.said) != 1 || !strings.Contains(w.said[0], "0 messages arrived twice, 1 are marked") {
		t.Errorf("a mark where nothing failed: %q", w.said)
	}
	l = nodetest.NewLedger()
	l.Arrived(at(1, false))
	w = &witness{TB: t}
	l.Check(w)
	if len(w.said) != 1 || !strings.Contains(w.said[0], "nobody scheduled it") {
		t.Errorf("a message from nowhere: %q", w.said)
	}
}
