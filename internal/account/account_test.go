package account_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/testrun"
)

var due = time.UnixMilli(1_900_000_000_000)

// copyAt is an arrival ms milliseconds after the message is due.
func copyAt(ms int, marked bool) account.Arrival {
	return account.Arrival{ID: "m", Via: "rabbitmq:q", Due: due, Received: due.Add(time.Duration(ms) * time.Millisecond), Marked: marked, Attempt: 1}
}

// Of a campaign with a cluster, and of a test that notes to the moment when it kills its node.
var wide, narrow = account.Margins{Before: 3 * time.Second, After: 12 * time.Second}, account.Margins{After: 100 * time.Millisecond}

type ledger = *account.Ledger

// life is what happens to one message, and what the accountant must say about it.
type life struct {
	name     string
	note     func(ledger)
	fault    *account.Window
	arrivals []account.Arrival
	want     account.Kind // "": none
}

// after is a copy that says that it was delivered earlier than it was received, or later.
func after(delivered int, a account.Arrival) account.Arrival {
	a.Delivered = due.Add(time.Duration(delivered) * time.Millisecond)
	return a
}

// lives covers each way in which a promise can be broken, and similar cases that break none.
func lives() []life {
	later := due.Add(time.Second)
	ofLater := copyAt(1005, false)
	ofLater.Due = later
	again := copyAt(900, false)
	again.Redelivered = true
	accepted := func(l ledger) { l.Scheduled("m", account.Done, due.Add(-time.Second)) }
	cancelled := func(o account.Outcome) func(l ledger) {
		return func(l ledger) { accepted(l); l.Cancelled("m", o) }
	}
	moved := func(o account.Outcome) func(l ledger) {
		return func(l ledger) { accepted(l); l.Moved("m", later, o) }
	}
	broken := &account.Window{Fault: "kill", From: due.Add(20 * time.Millisecond), To: due.Add(50 * time.Millisecond), Marks: true}
	slept := &account.Window{Fault: "stop", From: broken.From, To: broken.To, Marks: true, HoldsUp: "*"}
	far := &account.Window{Fault: "far", From: broken.From, To: broken.To, Marks: true, HoldsUp: "rabbitmq"}
	elsewhere := &account.Window{Fault: "far", From: broken.From, To: broken.To, Marks: true, HoldsUp: "inbox"}
	gentle := &account.Window{Fault: "rolling", From: broken.From, To: broken.To}
	return []life{
		{"in order", accepted, nil, []account.Arrival{copyAt(1, false)}, ""},
		{"lost", accepted, nil, nil, account.Lost},
		{"lost after a repeated call", func(l ledger) { l.Scheduled("m", account.Unknown, due.Add(-time.Second)); accepted(l) }, nil, nil, account.Lost},
		{"never answered", func(ledger) {}, nil, nil, ""},
		{"never answered, and there", func(ledger) {}, nil, []account.Arrival{copyAt(1, false)}, ""},
		{"refused", func(l ledger) { l.Scheduled("m", account.NotDone, due.Add(-time.Second)) }, nil, nil, ""},
		{"refused, and there", func(l ledger) { l.Scheduled("m", account.NotDone, due.Add(-time.Second)) }, nil, []account.Arrival{copyAt(1, false)}, account.NeverScheduled},
		{"refused after no answer, and there", func(l ledger) {
			l.Scheduled("m", account.Unknown, due.Add(-time.Second))
			l.Scheduled("m", account.NotDone, due.Add(-time.Second))
		}, nil, []account.Arrival{copyAt(1, false)}, ""},
		{"early", accepted, nil, []account.Arrival{copyAt(-1, false)}, account.Early},
		{"early by a fraction", accepted, nil, []account.Arrival{{ID: "m", Due: due, Received: due.Add(-time.Microsecond)}}, account.Early},
		{"early by its own word", accepted, nil, []account.Arrival{after(-1, copyAt(1, false))}, account.Early},
		{"early by the receiver's clock", accepted, nil, []account.Arrival{after(1, copyAt(-1, false))}, account.Early},
		{"cancelled", cancelled(account.Done), nil, nil, ""},
		{"cancelled, and there", cancelled(account.Done), nil, []account.Arrival{copyAt(1, false)}, account.AfterCancel},
		{"too late to cancel, and lost", cancelled(account.TooLate), nil, nil, account.Lost},
		{"surely not cancelled, and lost", cancelled(account.NotDone), nil, nil, account.Lost},
		{"cancel unanswered", cancelled(account.Unknown), nil, nil, ""},
		{"moved", moved(account.Done), nil, []account.Arrival{ofLater}, ""},
		{"moved, and there at the old time", moved(account.Done), nil, []account.Arrival{copyAt(1, false)}, account.WrongTime},
		{"too late to move", moved(account.TooLate), nil, []account.Arrival{copyAt(1, false)}, ""},
		{"not moved, and there at the new time", moved(account.TooLate), nil, []account.Arrival{ofLater}, account.WrongTime},
		{"move unanswered", moved(account.Unknown), nil, []account.Arrival{ofLater}, ""},
		{"again after a fault, marked", accepted, broken, []account.Arrival{copyAt(1, false), copyAt(900, true)}, ""},
		{"again after a fault, the mark removed", accepted, broken, []account.Arrival{copyAt(1, false), copyAt(900, false)}, account.Silent},
		{"again, by the broker", accepted, nil, []account.Arrival{copyAt(1, false), again}, ""},
		{"again when the aftermath ends", accepted, broken, []account.Arrival{copyAt(11_900, true), copyAt(12_100, true)}, ""},
		{"again after the aftermath", accepted, broken, []account.Arrival{copyAt(1, false), copyAt(12_100, true), copyAt(12_200, true)}, account.Again},
		{"again without a fault", accepted, nil, []account.Arrival{copyAt(1, false), copyAt(900, false)}, account.Again},
		{"marked after a fault", accepted, broken, []account.Arrival{copyAt(900, true)}, ""},
		{"marked without a fault", accepted, nil, []account.Arrival{copyAt(900, true)}, account.NeedlessMark},
		{"marked around a gentle fault", accepted, gentle, []account.Arrival{copyAt(900, true)}, account.NeedlessMark},
		{"a sleeper's copy", accepted, slept, []account.Arrival{copyAt(900, true), copyAt(950, false)}, ""},
		{"a copy from afar", accepted, far, []account.Arrival{copyAt(900, true), copyAt(950, false)}, ""},
		{"such a copy on another way", accepted, elsewhere, []account.Arrival{copyAt(900, true), copyAt(950, false)}, account.Silent},
		{"such a copy where none slept", accepted, broken, []account.Arrival{copyAt(900, true), copyAt(950, false)}, account.Silent},
		{"said not to exist", func(l ledger) { accepted(l); l.Missing("m") }, nil, []account.Arrival{copyAt(1, false)}, account.Gone},
		{"still there", func(l ledger) { l.Stored("m", "PENDING") }, nil, nil, account.Stuck},
		{"given up", func(l ledger) { l.Stored("m", "DELIVERY_FAILED") }, nil, nil, account.Stuck},
		{"never answered, DELIVERED and not there", func(l ledger) { l.Stored("m", "DELIVERED") }, nil, nil, account.FalseStatus},
		{"DELIVERED and there", func(l ledger) { accepted(l); l.Stored("m", "DELIVERED"); l.Audited() }, nil, []account.Arrival{copyAt(1, false)}, ""},
		{"CANCELLED and there", func(l ledger) { accepted(l); l.Stored("m", "CANCELLED") }, nil, []account.Arrival{copyAt(1, false)}, account.FalseStatus},
		{"refused and in the store", func(l ledger) { l.Scheduled("m", account.NotDone, due); l.Stored("m", "CANCELLED") }, nil, nil, account.FalseStatus},
		{"not in the store", func(l ledger) { accepted(l); l.Audited() }, nil, []account.Arrival{copyAt(1, false)}, account.Gone},
		{"a stranger in the store", func(l ledger) { l.Stored("x", "PENDING") }, nil, nil, account.OddAnswer},
		{"a crash", func(l ledger) { l.Crashed("n1") }, nil, nil, account.Crash},
		{"an odd answer", func(l ledger) { l.Odd("418") }, nil, nil, account.OddAnswer},
	}
}

// killed are lives around a kill 20 ms after the message is due, by the narrow margins.
func killed() []life {
	kill := due.Add(20 * time.Millisecond)
	moment := &account.Window{Fault: "kill", From: kill, To: kill, Marks: true}
	before := func(d time.Duration) *account.Window {
		return &account.Window{Fault: "kill", From: due.Add(-d), To: due.Add(-d), Marks: true}
	}
	accepted := func(l ledger) { l.Scheduled("m", account.Done, due.Add(-time.Second)) }
	return []life{
		{"again after a kill, marked", accepted, moment, []account.Arrival{after(1, copyAt(1, false)), after(900, copyAt(900, true))}, ""},
		{"again after a kill, not marked", accepted, moment, []account.Arrival{copyAt(1, false), copyAt(900, false)}, account.Silent},
		{"again, twice after the kill", accepted, moment, []account.Arrival{copyAt(900, true), copyAt(950, true)}, account.Again},
		{"marked, and there before the kill", accepted, moment, []account.Arrival{after(20, copyAt(30, true))}, account.NeedlessMark},
		{"marked, and there right after the kill", accepted, moment, []account.Arrival{after(21, copyAt(30, true))}, ""},
		{"due soon after the kill, and marked", accepted, before(99 * time.Millisecond), []account.Arrival{copyAt(1, true)}, ""},
		{"due later than that, and marked", accepted, before(100 * time.Millisecond), []account.Arrival{copyAt(1, true)}, account.NeedlessMark},
	}
}

// The accountant finds each way in which a promise can be broken, and only these.
func TestFindsEveryViolation(t *testing.T) {
	for margins, lives := range map[account.Margins][]life{wide: lives(), narrow: killed()} {
		for _, test := range lives {
			test.check(t, margins)
		}
	}
}

func (test *life) check(t *testing.T, margins account.Margins) {
	l := account.NewLedger(margins)
	l.Sent("m", "rabbitmq:q", due)
	test.note(l)
	if test.fault != nil {
		l.Fault(*test.fault)
	}
	for _, a := range test.arrivals {
		l.Arrived(a)
	}
	r := l.Check()
	switch {
	case test.want == "" && len(r.Violations) > 0:
		t.Errorf("%s: it complains %v", test.name, r.Violations)
	case test.want != "" && (len(r.Violations) != 1 || r.Violations[0].Kind != test.want):
		t.Errorf("%s: it complains %v, want one %q", test.name, r.Violations, test.want)
	case test.want != "" && !strings.Contains(r.String(), testrun.Broken+": "+string(test.want)):
		t.Errorf("%s: the report does not name it:\n%s", test.name, r)
	}
}

func TestFindsStrangers(t *testing.T) {
	l := account.NewLedger(wide)
	l.Arrived(copyAt(1, false))
	if r := l.Check(); len(r.Violations) != 1 || r.Violations[0].Kind != account.NeverScheduled || r.Arrived != 1 {
		t.Errorf("%+v", r)
	}
}

func TestMeasuresLatenessAndGaps(t *testing.T) {
	l := account.NewLedger(wide)
	fault := due.Add(30 * time.Second)
	l.Fault(account.Window{Fault: "kill", From: fault, To: fault.Add(time.Second), Marks: true})
	for i := range 100 {
		id := string(rune('A' + i))
		d := due.Add(time.Duration(i) * 500 * time.Millisecond)
		l.Sent(id, "rabbitmq:q", d)
		l.Scheduled(id, account.Done, due)
		if l.Open() != 1 {
			t.Fatal("an accepted message is not open")
		}
		late := 10 * time.Millisecond
		if i == 60 { // due with the fault, and the next two come before it
			late = 1400 * time.Millisecond
		}
		if i == 61 || i == 62 {
			late = time.Duration(63-i)*500*time.Millisecond - 100*time.Millisecond
		}
		l.Arrived(account.Arrival{ID: id, Due: d, Received: d.Add(late), Attempt: 1})
	}
	r := l.Check()
	if len(r.Violations) > 0 || r.Arrived != 100 || r.Accepted != 100 {
		t.Errorf("%s", r)
	}
	if r.Quiet.Max != 10*time.Millisecond || r.Faulty.Max != 1400*time.Millisecond || r.Quiet.P50 != 10*time.Millisecond {
		t.Errorf("quiet %s, faulty %s", r.Quiet, r.Faulty)
	}
	if r.Gap.Long != 1400*time.Millisecond || !r.Gap.From.Equal(fault) {
		t.Errorf("the gap is %s from %s", r.Gap.Long, r.Gap.From)
	}
	if last := l.Recovered(fault, fault.Add(5*time.Second), 100*time.Millisecond); last != 1400*time.Millisecond {
		t.Errorf("the last late one came %s after the fault", last)
	}
	seconds := l.Seconds(900 * time.Millisecond)
	if len(seconds) != 1 || !seconds[0].From.Equal(fault) || seconds[0].Due != 2 || seconds[0].Late != 1 || seconds[0].Worst != 1400*time.Millisecond {
		t.Errorf("%+v", seconds)
	}
}

// A message is late only from when it was acknowledged.
func TestLateFromItsAcknowledgement(t *testing.T) {
	l := account.NewLedger(wide)
	for id, ack := range map[string]account.Outcome{"acknowledged late": account.Done, "never": account.Unknown} {
		l.Sent(id, "rabbitmq:q", due)
		l.Scheduled(id, ack, due.Add(3*time.Second))
		l.Arrived(account.Arrival{ID: id, Due: due, Received: due.Add(3100 * time.Millisecond)})
	}
	if r := l.Check(); r.Quiet.Count != 1 || r.Quiet.Max != 100*time.Millisecond || len(r.Violations) > 0 {
		t.Errorf("%s", r)
	}
}
