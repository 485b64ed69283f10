package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func settling() []check {
	return []check{
		{"each way of settling leaves the state that Settlement.State says", settleStates},
		{"settling can be repeated", settleAgain},
		{"a settlement never touches a newer version", settleOldVersion},
		{"a settlement that is late changes nothing of a message that ended", settleEnded},
		{"a token that was passed on changes nothing but for a delivery, which is a fact", settleStale},
		{"a settlement of a message that is not there is no error", func(x *trial) {
			token := x.own(home)
			m := x.message(t0)
			x.settle(x.settlement(m, token, store.SettleDelivered), x.settlement(m, token, store.SettleFailed))
			_, err := x.store.Get(x.ctx, m.Key)
			x.wantKind(err, postdate.KindNotFound)
		}},
		{"of many settlements each stands alone", settleMany},
		{"a settlement that changes nothing hides no later one of the same call", settleHidden},
		{"after a retry the message is due at its new attempt time", settleOrder},
		{"a message does not become due before its execution time", func(x *trial) {
			token := x.own(home)
			for _, how := range []store.Settling{store.SettleRetry, store.SettlePark} {
				m := x.add(t0 + 50)
				s := x.settlement(m, token, how)
				s.AttemptTime = t0 - 5 // by a clock that was set back
				x.settle(s)
				if got := x.get(m.Key).AttemptTime; got != m.ExecutionTime {
					x.Errorf("settled as %d, a message of %v is due at %v", how, m.ExecutionTime, got)
				}
			}
			x.unpark(token, orders, t0-3, plenty)
			x.wantDue(everything(home, token, t0+49))
		}},
	}
}

var ways = []store.Settling{store.SettleDelivered, store.SettleRetry, store.SettleFailed, store.SettlePark}

func settleStates(x *trial) {
	token := x.own(home)
	for _, how := range ways {
		for _, doubtful := range []bool{false, true} {
			m := x.add(t0)
			s := x.settlement(m, token, how)
			s.Attempts, s.PossibleDuplicate, s.Reason = 3, doubtful, "the broker said »no«"
			if how == store.SettleRetry {
				s.AttemptTime = t0 + 77
			}
			x.claim(everything(home, token, t0))
			x.settle(s)
			want := fresh(m)
			want.Version = s.Version
			want.State = s.State(want.State)
			x.wantRecord(x.get(m.Key), want)
		}
	}
}

func settleAgain(x *trial) {
	token := x.own(home)
	for _, how := range ways {
		m := x.add(t0)
		x.claim(everything(home, token, t0))
		s := x.settlement(m, token, how)
		if how == store.SettleRetry {
			s.AttemptTime = t0 + 77
		}
		x.settle(s)
		once := x.get(m.Key)
		x.settle(s)
		x.settle(s)
		x.wantRecord(x.get(m.Key), once)
	}
}

func settleOldVersion(x *trial) {
	m := x.add(t0 + 10)
	token := x.own(home)
	next := changed(m)
	next.ExecutionTime = t0 + 20
	want := x.replace(next)
	x.claim(everything(home, token, t0+30))
	for _, how := range ways {
		x.settle(x.settlement(m, token, how)) // of the first version
		ahead := x.settlement(m, token, how)
		ahead.Version += 2
		x.settle(ahead)
	}
	x.wantRecord(x.get(m.Key), want)
	x.wantDue(everything(home, token, t0+30), next)
}

func settleEnded(x *trial) {
	cancelled := x.add(t0 + 10)
	x.wantCancelled(cancelled)
	delivered, failed := x.add(t0), x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0+10))
	x.settle(x.settlement(delivered, token, store.SettleDelivered), x.settlement(failed, token, store.SettleFailed))
	for _, m := range []postdate.Message{cancelled, delivered, failed} {
		before := x.get(m.Key)
		for _, how := range ways {
			s := x.settlement(m, token, how)
			s.At, s.AttemptTime, s.Attempts = t0+99_999, t0+99_999, 9
			x.settle(s)
		}
		x.wantRecord(x.get(m.Key), before)
	}
	x.wantDue(everything(home, token, t0+200_000))
}

func settleStale(x *trial) {
	m := x.add(t0)
	stale := x.own(home)
	x.claim(everything(home, stale, t0))
	present := x.own(home)
	for _, how := range []store.Settling{store.SettleRetry, store.SettleFailed, store.SettlePark} {
		for _, token := range []uint64{stale, 0, present + 1} {
			x.settle(x.settlement(m, token, how))
		}
	}
	x.wantRecord(x.get(m.Key), fresh(m))
	x.wantDue(everything(home, present, t0), m)
	x.settle(x.settlement(m, stale, store.SettleDelivered))
	x.wantStatus(m, postdate.Delivered)
	x.wantDue(everything(home, present, t0))
}

func settleMany(x *trial) {
	var messages []postdate.Message
	var settlements []store.Settlement
	tokens := map[int]uint64{home: x.own(home), abroad: x.own(abroad)}
	for i := range 600 {
		b := []int{home, abroad}[i%2]
		m := x.messageIn(b, tenant, t0)
		x.insert(m)
		messages = append(messages, m)
		s := x.settlement(m, tokens[b], store.SettleDelivered)
		if i%5 == 0 {
			s.Version++ // changes nothing
		}
		settlements = append(settlements, s)
	}
	x.settle(settlements...)
	for i, m := range messages {
		want := postdate.Delivered
		if i%5 == 0 {
			want = postdate.Pending
		}
		x.wantStatus(m, want)
	}
}

// settleHidden repeats a settlement from before a change of owner together with a newer one.
func settleHidden(x *trial) {
	m := x.add(t0)
	stale := x.own(home)
	present := x.own(home)
	x.claim(everything(home, present, t0))
	x.settle(x.settlement(m, stale, store.SettleFailed), x.settlement(m, present, store.SettleDelivered))
	x.wantStatus(m, postdate.Delivered)
}

func settleOrder(x *trial) {
	a, b, c := x.add(t0), x.add(t0+1), x.add(t0+2)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.retryAt(a, token, t0+2))
	x.wantDue(everything(home, token, t0+1), b)
	x.wantDue(everything(home, token, t0+2), b, a, c) // a's id is below c's
	x.settle(x.retryAt(a, token, t0+9), x.retryAt(c, token, t0+5))
	x.wantDue(everything(home, token, t0+9), b, c, a)
}
