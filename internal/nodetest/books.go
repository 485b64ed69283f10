package nodetest

import (
	"testing"
	"time"

	"github.com/postdate/postdate/internal/account"
)

// claimAhead is how far a claim runs ahead of time, and a margin for the time between a kill and
// its record.
const claimAhead = 100 * time.Millisecond

// NewLedger makes the account of a test that kills one node, or none. A kill is recorded before
// it is done.
func NewLedger() *account.Ledger { return account.NewLedger(account.Margins{After: claimAhead}) }

// Into returns what records a follower's arrivals.
func Into(l *account.Ledger) func(Arrival) {
	return func(a Arrival) {
		l.Arrived(account.Arrival{
			ID: a.ScheduleID, Via: "inbox", Due: a.ExecutionTime.Local(), Received: a.ReceivedAt,
			Delivered: a.DeliveredAt.Local(), Marked: a.PossibleDuplicate, Attempt: a.Attempt,
		})
	}
}

// Settle balances an account, once nothing is PENDING any more and the inbox was read to its
// end. It fails the test if a promise was broken. Where no fault was recorded, so is one by any
// mark and any second copy.
func Settle(t testing.TB, l *account.Ledger) account.Report {
	t.Helper()
	r := l.Check()
	if len(r.Violations) > 0 {
		t.Error(r)
	} else {
		t.Log(r)
	}
	return r
}
