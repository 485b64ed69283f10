package nodetest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
)

// witness keeps the complaints of a check.
type witness struct {
	testing.TB
	said string
}

func (w *witness) Helper()           {}
func (w *witness) Log(...any)        {}
func (w *witness) Error(args ...any) { w.said += fmt.Sprint(args...) }

// A test fails with what the account says of a follower's arrivals.
func TestSettleSaysWhatIsBroken(t *testing.T) {
	due := time.UnixMilli(1_900_000_000_000)
	at := func(ms int) time.Time { return due.Add(time.Duration(ms) * time.Millisecond) }
	for _, test := range []struct {
		name    string
		arrival nodetest.Arrival
		kill    time.Time
		want    account.Kind // "": no complaint
	}{
		{"in order", nodetest.Arrival{DeliveredAt: at(1), ReceivedAt: at(2)}, time.Time{}, ""},
		{"early by its own word", nodetest.Arrival{DeliveredAt: at(-1), ReceivedAt: at(2)}, time.Time{}, account.Early},
		{"early by the receiver's clock", nodetest.Arrival{DeliveredAt: at(1), ReceivedAt: at(-1)}, time.Time{}, account.Early},
		{"marked", nodetest.Arrival{DeliveredAt: at(1), ReceivedAt: at(2), PossibleDuplicate: true}, time.Time{}, account.NeedlessMark},
		{"marked after a kill", nodetest.Arrival{DeliveredAt: at(1), ReceivedAt: at(2), PossibleDuplicate: true}, at(-99), ""},
		{"marked long after a kill", nodetest.Arrival{DeliveredAt: at(1), ReceivedAt: at(2), PossibleDuplicate: true}, at(-100), account.NeedlessMark},
	} {
		l := nodetest.NewLedger()
		l.Sent("m", "inbox", due)
		l.Scheduled("m", account.Done, due)
		if !test.kill.IsZero() {
			l.Fault(account.Window{Fault: "kill", From: test.kill, To: test.kill, Marks: true})
		}
		test.arrival.ScheduleID, test.arrival.ExecutionTime = "m", due
		nodetest.Into(l)(test.arrival)
		w := &witness{TB: t}
		nodetest.Settle(w, l)
		if said := strings.Contains(w.said, testrun.Broken+": "+string(test.want)+": m"); said != (test.want != "") || (test.want == "") != (w.said == "") {
			t.Errorf("%s: it says %q, want %q", test.name, w.said, test.want)
		}
	}
}
