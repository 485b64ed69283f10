package storetest

import (
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// attempts checks the log of attempts.
func attempts() []check {
	return []check{
		{"each attempt is in the log: when, by which node, how it ended and why", attemptsLogged},
		{"a log has an attempt once, however often its settlement is repeated", attemptsOnce},
		{"a log has the latest attempts, the oldest first", func(x *trial) {
			m, token := x.add(t0), x.own(home)
			for n := range postdate.AttemptLogMax + 2 {
				x.settled(x.attempt(m, token, store.SettleRetry, n+1))
			}
			if n := len(x.get(m.Key).Log); n != postdate.AttemptLogMax {
				x.broken("a log has %d attempts, want the latest %d", n, postdate.AttemptLogMax)
			}
			x.settled(x.attempt(m, token, store.SettleDelivered, postdate.AttemptLogMax+3))
		}},
		{"long reasons are cut at a character", func(x *trial) {
			m, token := x.add(t0), x.own(home)
			s := x.attempt(m, token, store.SettleFailed, 1)
			s.Reason = "x" + strings.Repeat("ü", postdate.AttemptReasonBytesMax)
			got := x.settled(s).Log[0].Reason
			if want := s.Reason[:postdate.AttemptReasonBytesMax-1]; got != want {
				x.Errorf("a reason is %q, want %q", got, want)
			}
		}},
		{"what changes nothing is in no log", attemptsRefused},
		{"of many each has its own log, also where they end alike", attemptsOfMany},
		{"a replace keeps the log as it is by then, and what becomes a series loses it", attemptsReplaced},
		{"a series has no log; what is retried of it begins one, and ends it", attemptsOfSeries},
	}
}

// attempt is a settlement of m's n-th attempt.
func (x *trial) attempt(m postdate.Message, token uint64, how store.Settling, n int) store.Settlement {
	s := x.settlement(m, token, how)
	s.Node, s.Attempts, s.At, s.AttemptTime = "node-a", n, t0+postdate.Time(n), t0+postdate.Time(n)+10
	switch how {
	case store.SettleDelivered:
		s.Outcome, s.AttemptTime = postdate.AttemptDelivered, 0
	case store.SettleRetry:
		s.Outcome = postdate.AttemptUnknown
	case store.SettleFailed:
		s.Outcome, s.AttemptTime = postdate.AttemptRefused, 0
	}
	return s
}

func attemptsLogged(x *trial) {
	m, token := x.add(t0), x.own(home)
	x.wantLog(m)
	first, second := x.attempt(m, token, store.SettleRetry, 1), x.attempt(m, token, store.SettleRetry, 2)
	first.Outcome, first.Reason, second.Node = postdate.AttemptRefused, "$no »way«", "node-b"
	last := x.attempt(m, token, store.SettleDelivered, 3)
	x.settled(first)
	x.settled(x.settlement(m, token, store.SettlePark)) // is no attempt
	x.settled(second)
	x.settled(last)
	x.wantLog(m,
		postdate.Attempt{At: first.At, Node: "node-a", Outcome: postdate.AttemptRefused, Reason: "$no »way«"},
		postdate.Attempt{At: second.At, Node: "node-b", Outcome: postdate.AttemptUnknown, Reason: second.Reason},
		postdate.Attempt{At: last.At, Node: "node-a", Outcome: postdate.AttemptDelivered})
	expired := x.add(t0)
	x.settled(x.settlement(expired, token, store.SettleFailed)) // without an attempt
	x.wantLog(expired)
}

func (x *trial) wantLog(m postdate.Message, want ...postdate.Attempt) {
	x.Helper()
	r := x.get(m.Key)
	r.Log = want
	x.wantRecord(x.get(m.Key), r)
}

func attemptsOnce(x *trial) {
	token := x.own(home)
	for _, how := range ways {
		m := x.add(t0)
		x.settled(x.attempt(m, token, store.SettleRetry, 1))
		s := x.attempt(m, token, how, 2)
		x.settled(s)
		x.nothing([]postdate.Key{m.Key}, s, s)
	}
}

func attemptsRefused(x *trial) {
	m := x.add(t0)
	stale := x.own(home)
	token := x.own(home)
	late, other := x.attempt(m, stale, store.SettleRetry, 1), x.attempt(m, token, store.SettleRetry, 1)
	other.Version++
	x.nothing([]postdate.Key{m.Key}, late, other)
	x.settled(x.attempt(m, token, store.SettleDelivered, 1))
	x.nothing([]postdate.Key{m.Key}, x.attempt(m, token, store.SettleRetry, 2),
		x.attempt(m, stale, store.SettleDelivered, 2))
}

func attemptsOfMany(x *trial) {
	token := x.own(home)
	var settlements []store.Settlement
	var want []postdate.Record
	for i := range 40 {
		m := x.add(t0)
		if i%2 == 0 {
			x.settled(x.attempt(m, token, store.SettleRetry, 1))
		}
		s := x.attempt(m, token, ways[i%3], 2)
		r := x.get(m.Key)
		r.State, r.Log = s.State(r.State), s.Log(r.Log)
		settlements, want = append(settlements, s), append(want, r)
	}
	x.settle(settlements...)
	for _, r := range want {
		x.wantRecord(x.get(r.Key), r)
	}
}

// attemptsReplaced replaces a message whose log the caller has not, or not to its end.
func attemptsReplaced(x *trial) {
	m, token := x.add(t0), x.own(home)
	was := x.get(m.Key)
	first, second := x.attempt(m, token, store.SettleRetry, 1), x.attempt(m, token, store.SettleRetry, 2)
	x.settled(first)
	before := x.get(m.Key)
	x.settled(second)
	log := x.get(m.Key).Log
	for _, read := range [][]postdate.Attempt{nil, before.Log} {
		next := postdate.NewRecord(changed(m), was.Version+1)
		was.Log, next.Log = read, read
		got, err := x.store.Replace(x.ctx, next, was)
		if err != nil {
			x.Fatalf("Replace: %v", err)
		}
		next.Log = log
		x.wantRecord(got, next)
		x.wantRecord(x.get(m.Key), next)
		was = got
	}
	series := x.message(t0, recurring)
	series.Key = m.Key
	was.Log = nil
	next := postdate.NewRecord(series, was.Version+1)
	next.Log = log
	got, err := x.store.Replace(x.ctx, next, was)
	if err != nil || len(got.Log) > 0 {
		x.Errorf("replaced by a series it has the log %v, %v", got.Log, err)
	}
	x.wantLog(series)
}

func attemptsOfSeries(x *trial) {
	token := x.own(home)
	m := x.addSeries(t0)
	child := alone(m, 1)
	s := x.goesOn(m, token, store.SettleRetry, 1)
	s.Outcome, s.Node = postdate.AttemptRefused, "node-a"
	x.settled(s)
	x.wantLog(m)
	first := postdate.Attempt{At: s.At, Node: "node-a", Outcome: postdate.AttemptRefused, Reason: s.Reason}
	x.wantLog(child, first)
	x.first[child.Key] = x.first[m.Key]
	last := x.attempt(child, token, store.SettleFailed, 2)
	x.settled(last)
	x.wantLog(child, first,
		postdate.Attempt{At: last.At, Node: "node-a", Outcome: postdate.AttemptRefused, Reason: last.Reason})
	over := x.isOver(m, token, store.SettleDelivered, 2)
	over.Outcome = postdate.AttemptDelivered
	x.settle(over)
	x.wantLog(m)
}

func durableAttempts(x *trial) {
	m, token := x.add(t0), x.own(home)
	x.settled(x.attempt(m, token, store.SettleRetry, 1))
	want := x.settled(x.attempt(m, token, store.SettleFailed, 2))
	x.crash()
	x.wantRecord(x.get(m.Key), want)
}
