package storetest

import (
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func scanning() []check {
	return []check{
		{"messages come in ascending order of attempt time, then tenant, then id", scanOrder},
		{"records are whole, as Get gives them", func(x *trial) {
			x.add(t0)
			m := x.add(t0, withPayload(5000))
			token := x.own(home)
			x.claim(everything(home, token, t0))
			x.settle(x.retryAt(m, token, t0+5))
			for _, r := range x.due(everything(home, token, t0+9)) {
				x.wantRecord(r, x.get(r.Key))
			}
		}},
		{"After is exclusive and To inclusive", scanBorders},
		{"a scan of one bucket returns nothing of another", func(x *trial) {
			m, other := x.add(t0), x.messageIn(abroad, tenant, t0)
			x.insert(other)
			x.wantDue(everything(home, x.own(home), t0), m)
			x.wantDue(everything(abroad, x.own(abroad), t0), other)
		}},
		{"pages of every size return each message once, also many of one millisecond", scanPages},
		{"a page ends with the message that reaches BytesMax, and holds at least one", scanBytes},
		{"a complete scan says when the next message is due, or Far", scanNext},
		{"a scan that goes on from a complete one finds what is due since", scanGoesOn},
		{"a message that is inserted late, behind checkpoint and claim, is found from the zero Position", scanLate},
		{"what was cancelled, settled or parked is not returned", scanEnded},
		{"messages that are inserted or put off between the pages make no other be missed", scanUnderChange},
	}
}

// wantComplete expects a scan that saw everything up to a time.
func (x *trial) wantComplete(r store.ClaimResult, to, next postdate.Time) {
	x.Helper()
	if !r.Complete || r.Next != next || r.Ended != bucket.UpTo(to) || r.To != r.Ended {
		x.Errorf("the scan ended with Complete %t, Next %d, Ended %v; want it complete to %d, with Next %d",
			r.Complete, r.Next, r.Ended, to, next)
	}
}

func scanOrder(x *trial) {
	var all []postdate.Message
	for i := range 30 {
		all = append(all, x.messageIn(home, []string{"tenant-b", "tenant", "tenant-a"}[i%3], t0+postdate.Time(i*7%5)))
	}
	slices.Reverse(all)
	x.insert(all...)
	inDueOrder(all)
	x.wantDue(everything(home, x.own(home), t0+10), all...)
}

func inDueOrder(messages []postdate.Message) {
	slices.SortFunc(messages, func(a, b postdate.Message) int {
		ra, rb := fresh(a), fresh(b)
		return positionOf(&ra).Compare(positionOf(&rb))
	})
}

func scanBorders(x *trial) {
	a, b, c, d := x.add(t0), x.add(t0+1), x.add(t0+1), x.add(t0+2)
	e := x.add(t0 + 3)
	s := everything(home, x.own(home), t0+10)
	s.Scan.After, s.To = place(b), bucket.UpTo(t0+2)
	x.wantDue(s, c, d)
	s.Scan.After = bucket.Position{Time: t0 + 1}
	x.wantDue(s, b, c, d)
	s.To = place(c)
	x.wantDue(s, b, c)
	s.To.ScheduleID += "x"
	x.wantDue(s, b, c)
	s.Scan.After, s.To = bucket.Position{}, place(b)
	x.wantDue(s, a, b)
	s.To = bucket.Position{Time: t0 + 1, Tenant: tenant}
	x.wantDue(s, a)
	s.To = bucket.UpTo(t0 - 1)
	x.wantDue(s)
	s.Scan.After, s.To = bucket.UpTo(t0+2), bucket.UpTo(t0+10)
	x.wantDue(s, e)
}

func scanPages(x *trial) {
	var all []postdate.Message
	for i := range 90 {
		at := t0
		if i%9 == 0 {
			at += postdate.Time(i%2) - 1
		}
		all = append(all, x.message(at))
	}
	x.insert(all...)
	inDueOrder(all)
	s := everything(home, x.own(home), t0+10)
	for _, s.Scan.Limit = range []int{1, 2, 7, 89, 90, 91} {
		limit := s.Scan.Limit
		x.wantDue(s, all...)
		if r := x.claim(s); len(r.Due) != min(limit, len(all)) {
			x.Errorf("the first page by %d holds %d messages", limit, len(r.Due))
		}
	}
}

func scanBytes(x *trial) {
	var all []postdate.Message
	for i, size := range []int{100, 100, 100, 0, 0, 1000, 1, 1} {
		all = append(all, x.add(t0+postdate.Time(i), withPayload(size)))
	}
	s := everything(home, x.own(home), t0+10)
	for bytesMax, want := range map[int]int{1: 1, 100: 1, 101: 2, 250: 3, 301: 6, 1301: 7, 1303: 8} {
		s.Scan.BytesMax = bytesMax
		if r := x.claim(s); len(r.Due) != want {
			x.Errorf("the first page of %d bytes holds %d messages, want %d", bytesMax, len(r.Due), want)
		}
		x.wantDue(s, all...)
	}
}

func scanNext(x *trial) {
	token := x.own(home)
	x.wantComplete(x.claim(everything(home, token, t0)), t0, postdate.Far)
	a, b := x.add(t0+5), x.add(t0+8)
	x.wantComplete(x.claim(everything(home, token, t0+4)), t0+4, a.ExecutionTime)
	x.wantComplete(x.claim(everything(home, token, t0+5)), t0+5, b.ExecutionTime)
	x.wantComplete(x.claim(everything(home, token, t0+8)), t0+8, postdate.Far)
	x.settle(x.retryAt(a, token, t0+40))
	x.wantComplete(x.claim(everything(home, token, t0+8)), t0+8, t0+40)
	x.settle(x.settlement(a, token, store.SettlePark))
	x.wantComplete(x.claim(everything(home, token, t0+8)), t0+8, parkedUntil(a))
	x.wantCancelled(a)
	x.wantComplete(x.claim(everything(home, token, t0+8)), t0+8, postdate.Far)
}

func scanGoesOn(x *trial) {
	a, b, c := x.add(t0), x.add(t0+1), x.add(t0+2)
	token := x.own(home)
	s := everything(home, token, t0)
	r := x.claim(s)
	x.wantIDs("the first scan", idsOf(r.Due), a)
	next := everything(home, token, t0+2)
	next.Scan.After = r.Ended
	x.wantDue(next, b, c)
}

func scanLate(x *trial) {
	x.add(t0)
	token := x.own(home)
	c := everything(home, token, t0+50)
	c.Checkpoint = t0 + 50
	x.settleAll(token, x.due(c))
	late, edge := x.add(t0+10), x.add(t0+50)
	ancient := x.add(postdate.EarliestTime)
	x.wantTooLate(late)
	c.To = bucket.UpTo(t0 + 60)
	x.wantDue(c, ancient, late, edge)
}

func (x *trial) settleAll(token uint64, records []postdate.Record) {
	x.Helper()
	var all []store.Settlement
	for _, r := range records {
		s := x.settlement(r.Message, token, store.SettleDelivered)
		s.Version = r.Version
		all = append(all, s)
	}
	x.settle(all...)
}

func scanEnded(x *trial) {
	cancelled := x.add(t0)
	x.wantCancelled(cancelled)
	delivered, failed, parked, left := x.add(t0), x.add(t0), x.add(t0), x.add(t0)
	token := x.own(home)
	x.wantDue(everything(home, token, t0), delivered, failed, parked, left)
	x.settle(x.settlement(delivered, token, store.SettleDelivered),
		x.settlement(failed, token, store.SettleFailed), x.settlement(parked, token, store.SettlePark))
	x.wantDue(everything(home, token, t0+10), left)
}

func scanUnderChange(x *trial) {
	var throughout []postdate.Message
	for i := range 40 {
		throughout = append(throughout, x.add(t0+postdate.Time(i/10)))
	}
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Scan.Limit = 3
	seen := map[string]int{}
	x.pages(c, func(r store.ClaimResult) {
		for _, m := range r.Due {
			seen[m.ScheduleID]++
			if seen[m.ScheduleID] == 1 && m.AttemptTime < t0+5 {
				x.settle(x.retryAt(m.Message, token, t0+500))
			}
		}
		if len(seen) < 30 {
			x.insert(x.message(t0-5), x.message(t0+4))
		}
	})
	for _, m := range throughout {
		if seen[m.ScheduleID] != 1 {
			x.Errorf("%s was returned %d times, want once", m.ScheduleID, seen[m.ScheduleID])
		}
	}
}
