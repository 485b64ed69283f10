package nodetest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
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
		name                string
		delivered, received int // ms after it is due
		marked              bool
		killed              int          // the same of a kill; 0: none
		want                account.Kind // "": no complaint
	}{
		{"in order", 1, 2, false, 0, ""},
		{"early by its own word", -1, 2, false, 0, account.Early},
		{"early by the receiver's clock", 1, -1, false, 0, account.Early},
		{"marked", 1, 2, true, 0, account.NeedlessMark},
		{"marked after a kill", 1, 2, true, -99, ""},
		{"marked long after a kill", 1, 2, true, -100, account.NeedlessMark},
	} {
		l := nodetest.NewLedger()
		l.Sent("m", "inbox", due)
		l.Scheduled("m", account.Done, due)
		if test.killed != 0 {
			l.Fault(account.Window{Fault: "kill", From: at(test.killed), To: at(test.killed), Marks: true})
		}
		m := client.InboxMessage{ScheduleID: "m", ExecutionTime: due, DeliveredAt: at(test.delivered), PossibleDuplicate: test.marked}
		nodetest.Into(l)(nodetest.Arrival{InboxMessage: m, ReceivedAt: at(test.received)})
		w := &witness{TB: t}
		nodetest.Settle(w, l)
		if said := strings.Contains(w.said, testrun.Broken+": "+string(test.want)+": m"); said != (test.want != "") || (test.want == "") != (w.said == "") {
			t.Errorf("%s: it says %q, want %q", test.name, w.said, test.want)
		}
	}
}
