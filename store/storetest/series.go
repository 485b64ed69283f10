package storetest

import (
	"math/rand/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// series checks what recurs, as long as it goes on.
func series() []check {
	return []check{
		{"a series is inserted and read like any message, with its recurrence", seriesInserted},
		{"whatever becomes of an occurrence, the next one is due at its time", seriesGoesOn},
		{"a settlement that is repeated, or of another occurrence, changes nothing", seriesRepeated},
		{"a settlement of another version changes nothing", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			x.claim(everything(home, token, begins(m, 1)))
			for _, how := range append(advances, store.SettlePark) {
				for _, by := range []uint64{^uint64(0), 1} {
					s := x.goesOn(m, token, how, 1)
					s.Version += by
					x.nothing([]postdate.Key{m.Key}, s)
				}
			}
			x.wantRetried(m.Key)
		}},
		{"with a token that was passed on a series goes on only by a delivery, which is a fact", seriesStale},
		{"of two settlements of one occurrence in one call the first that may changes something", seriesTwice},
		{"of many series each goes on alone", seriesMany},
		{"what became of the occurrences is counted, and the latest of it kept", seriesHistory},
		{"several occurrences can be skipped at once", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			s := x.goesOn(m, token, store.SettleSkip, 1)
			s.Next = store.Next{Occurrence: occurrence(m, 8), AttemptTime: begins(m, 8), Skipped: 7}
			if got := x.settled(s); got.Occurrence != occurrence(m, 8) || got.Run != 8 {
				x.Errorf("after 7 that were skipped, run %d at %v is present", got.Run, got.Occurrence)
			}
			x.wantSeries(m, 0, 0, 7)
		}},
		{"a series that is retried as a whole waits with its occurrence", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			x.claim(everything(home, token, begins(m, 1)))
			s := x.goesOn(m, token, store.SettleRetry, 1)
			s.Next = store.Next{}
			if got := x.settled(s); got.Occurrence != m.First || got.Run != 1 || got.AttemptTime != s.AttemptTime {
				x.Errorf("the series has the state %+v", got.State)
			}
			x.wantRetried(m.Key)
			x.wantFound(everything(home, token, s.AttemptTime), x.get(m.Key))
		}},
		{"a parked series waits with its occurrence, and is due no earlier than that", seriesParked},
		{"a series that was parked goes on like others", seriesUnparked},
		{"a series stays in its place in a list, however far it has come", seriesListed},
		{"a series and a message that is sent once can replace each other", seriesReplaced},
		{"a replace of a series that is too late answers the present record, whole", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
			x.claim(everything(home, token, begins(m, 2)))
			present, err := Replace(x.ctx, x.store, changed(m), x.first[m.Key])
			x.wantKind(err, postdate.KindTooLate)
			x.wantRecord(present, x.get(m.Key))
		}},
		{"a message that is sent once has no occurrence to settle", func(x *trial) {
			m := x.add(t0)
			s := x.settlement(m, x.own(home), store.SettleDelivered)
			s.Occurrence = t0
			x.nothing([]postdate.Key{m.Key}, s)
		}},
		{"random settlements leave what Settlement says", seriesRandom},
		{"a series counts as one pending message until its end", seriesUsage},
	}
}

func seriesInserted(x *trial) {
	m := x.addSeries(t0)
	want := fresh(m)
	if want.Occurrence != t0 || want.Run != 1 || want.AttemptTime != t0+delay || m.Bucket != home {
		x.Fatalf("a new series has the state %+v", want.State)
	}
	x.wantRecord(x.get(m.Key), want)
	for _, r := range x.list(store.ListQuery{Tenant: tenant, From: t0 + delay, To: t0 + delay + 1, Limit: 2}, nil) {
		x.wantRecord(r, want)
	}
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 2}, []postdate.Message{m})
	r := x.store.Insert(x.ctx, []postdate.Message{m, changed(m), changed(m, single)})
	if want := (store.Inserted{ExecutionTime: t0 + delay, Status: postdate.Pending}); r[0] != want {
		x.Errorf("inserting it again: got %+v, want %+v", r[0], want)
	}
	x.wantKind(r[1].Err, postdate.KindExists)
	x.wantKind(r[2].Err, postdate.KindExists)
	token := x.own(home)
	x.wantFound(everything(home, token, t0+delay-1))
	x.wantFound(everything(home, token, t0+delay), want)
}

func seriesGoesOn(x *trial) {
	token := x.own(home)
	for _, how := range advances {
		m := x.addSeries(t0, withPayload(100))
		x.wantFound(everything(home, token, begins(m, 1)), fresh(m))
		first := x.goesOn(m, token, how, 1)
		first.PossibleDuplicate, first.DownSince = true, t0-3
		got := x.settled(first)
		want := fresh(m)
		want.Version, want.Series = got.Version, got.Series
		want.AttemptTime, want.Occurrence, want.Run, want.LastError = begins(m, 2), occurrence(m, 2), 2, first.Reason
		x.wantRecord(x.get(m.Key), want)
		if n := len(got.Series.History); n != 1 || got.Series.History[0].Occurrence != m.First {
			x.Errorf("settled as %d, the series has the history %+v", how, got.Series.History)
		}
		if how == store.SettleRetry {
			child := alone(m, 1)
			x.first[child.Key] = got.Version
			x.settle(x.settlement(child, token, store.SettleDelivered))
		}
		x.wantFound(everything(home, token, begins(m, 2)-1))
		x.wantFound(everything(home, token, begins(m, 2)), want)
		x.settled(x.goesOn(m, token, store.SettleDelivered, 2))
		x.wantFound(everything(home, token, begins(m, 3)-1))
		x.wantFound(everything(home, token, begins(m, 3)), x.get(m.Key))
		x.settled(x.isOver(m, token, store.SettleDelivered, 3))
	}
}

func seriesRepeated(x *trial) {
	token := x.own(home)
	for _, how := range advances {
		m := x.addSeries(t0)
		x.claim(everything(home, token, begins(m, 1)))
		x.settled(x.goesOn(m, token, how, 1))
		for _, again := range append(advances, store.SettlePark) {
			for _, run := range []int{1, 3} { // the present one is the second
				s := x.goesOn(m, token, again, run)
				s.At += 99
				x.nothing([]postdate.Key{m.Key}, s, s)
				s.Next = store.Next{}
				x.nothing([]postdate.Key{m.Key}, s)
				s.Next.Over = true
				x.nothing([]postdate.Key{m.Key}, s)
			}
			none := x.settlement(m, token, again)
			x.nothing([]postdate.Key{m.Key}, none)
		}
		if how != store.SettleRetry {
			x.wantRetried(m.Key)
		}
	}
}

func seriesStale(x *trial) {
	m := x.addSeries(t0)
	stale := x.own(home)
	x.claim(everything(home, stale, begins(m, 1)))
	present := x.own(home)
	for _, how := range append(advances[1:], store.SettlePark) {
		for _, token := range []uint64{stale, 0, present + 1} {
			x.nothing([]postdate.Key{m.Key}, x.goesOn(m, token, how, 1))
		}
	}
	x.wantRetried(m.Key)
	x.settled(x.goesOn(m, stale, store.SettleDelivered, 1))
	x.wantSeries(m, 1, 0, 0)
	x.wantFound(everything(home, present, begins(m, 2)), x.get(m.Key))
}

func seriesTwice(x *trial) {
	m := x.addSeries(t0)
	stale := x.own(home)
	token := x.own(home)
	x.claim(everything(home, token, begins(m, 1)))
	x.settle(x.goesOn(m, stale, store.SettleFailed, 1), x.goesOn(m, stale, store.SettleDelivered, 1),
		x.goesOn(m, token, store.SettleRetry, 1), x.goesOn(m, token, store.SettleFailed, 1))
	x.wantSeries(m, 1, 0, 0)
	x.wantRetried(m.Key)
	x.settle(x.goesOn(m, stale, store.SettleRetry, 2), x.goesOn(m, token, store.SettleFailed, 2),
		x.goesOn(m, token, store.SettleDelivered, 2), x.goesOn(m, token, store.SettleRetry, 2))
	x.wantSeries(m, 2, 1, 0)
	x.wantRetried(m.Key)
	if got := x.get(m.Key); got.Run != 3 || len(got.Series.History) != 2 {
		x.Errorf("the series is at run %d, with the history %+v", got.Run, got.Series.History)
	}
}

func seriesMany(x *trial) {
	tokens := map[int]uint64{home: x.own(home), abroad: x.own(abroad)}
	var messages []postdate.Message
	var settlements []store.Settlement
	for i := range 40 {
		b := []int{home, abroad}[i%2]
		m := x.messageIn(b, tenant, t0, recurring)
		x.insert(m)
		s := x.goesOn(m, tokens[b], advances[i%len(advances)], 1)
		if i%5 == 0 {
			s.Occurrence++ // changes nothing
		}
		messages, settlements = append(messages, m), append(settlements, s)
	}
	x.settle(settlements...)
	for i, m := range messages {
		want := fresh(m)
		want.Version = x.first[m.Key]
		x.nothing([]postdate.Key{m.Key}, settlements[i])
		if i%5 == 0 {
			x.wantRecord(x.get(m.Key), want)
			x.wantRetried(m.Key)
			continue
		}
		want.State, want.Series = settlements[i].State(want.State), settlements[i].Series(want.State, want.Series)
		x.wantRecord(x.get(m.Key), want)
		if settlements[i].How == store.SettleRetry {
			x.wantRetried(m.Key, alone(m, 1))
		} else {
			x.wantRetried(m.Key)
		}
	}
}

// seriesHistory has more outcomes than a series keeps.
func seriesHistory(x *trial) {
	const runs = postdate.HistoryMax + 8
	m := x.addSeries(t0)
	token := x.own(home)
	for run := 1; run <= runs; run++ {
		s := x.goesOn(m, token, advances[run%len(advances)], run)
		s.Attempts = run
		x.settled(s)
	}
	x.wantSeries(m, runs*3/4, runs/4, runs/4)
	history := x.get(m.Key).Series.History
	if len(history) != postdate.HistoryMax {
		x.Fatalf("the history holds %d outcomes, want %d", len(history), postdate.HistoryMax)
	}
	for i, o := range history {
		run := runs - postdate.HistoryMax + 1 + i
		want := postdate.Outcome{
			Occurrence: occurrence(m, run), At: begins(m, run) + 5, Attempts: run,
			Status: map[store.Settling]postdate.Status{
				store.SettleDelivered: postdate.Delivered, store.SettleFailed: postdate.DeliveryFailed,
				store.SettleRetry: postdate.Pending,
			}[advances[run%len(advances)]],
		}
		if advances[run%len(advances)] == store.SettleSkip {
			want.Skipped = 1
		}
		if o != want {
			x.Errorf("outcome %d is %+v, want %+v", i, o, want)
		}
	}
	for _, r := range x.list(store.ListQuery{Tenant: tenant, To: m.ExecutionTime + 1, Limit: 2}, nil) {
		x.wantRecord(r, x.get(m.Key))
	}
}

func seriesParked(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
	x.claim(everything(home, token, begins(m, 2)))
	s := x.parks(m, token, 2)
	s.DownSince, s.Reason, s.Attempts = begins(m, 2), "connection refused", 0
	want := x.settled(s)
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
	x.wantRetried(m.Key)
	x.wantSeries(m, 1, 0, 0)
	x.wantFound(everything(home, token, s.AttemptTime-1))
	x.wantFound(everything(home, token, s.AttemptTime), want)
	u := store.Unpark{Bucket: home, Token: token, Route: orders, At: begins(m, 1), Limit: plenty}
	if found, early, err := x.store.Unpark(x.ctx, u); found != 1 || early != 1 || err != nil {
		x.Errorf("Unpark found %d messages, %d of them early: want 1 and 1; error %v", found, early, err)
	}
	want.Parked, want.AttemptTime = false, occurrence(m, 2)
	x.wantRecord(x.get(m.Key), want)
	x.wantFound(everything(home, token, occurrence(m, 2)-1))
	x.wantFound(everything(home, token, occurrence(m, 2)), want)
}

func seriesUnparked(x *trial) {
	token := x.own(home)
	for _, how := range advances {
		m := x.addSeries(t0)
		x.claim(everything(home, token, begins(m, 1)))
		x.settled(x.parks(m, token, 1))
		x.settled(x.goesOn(m, token, how, 1)) // a scan returned it when its time had come
		x.wantParked([]int{home})
		x.settled(x.parks(m, token, 2))
		at := begins(m, 2) + 30
		if n := x.unpark(token, orders, at, plenty); n != 1 {
			x.Errorf("Unpark moved %d messages, want 1", n)
		}
		if got := x.get(m.Key); got.AttemptTime != at || got.Occurrence != occurrence(m, 2) || got.Run != 2 ||
			len(got.Series.History) != 1 {
			x.Errorf("an unparked series has the state %+v and the counts %+v", got.State, got.Series)
		}
		x.settled(x.isOver(m, token, store.SettleDelivered, 2))
	}
}

func seriesListed(x *trial) {
	m, other := x.addSeries(t0), x.addSeries(t0+9)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
	x.settled(x.goesOn(m, token, store.SettleSkip, 2))
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 1}, []postdate.Message{m, other})
	at := store.ListQuery{Tenant: tenant, From: m.ExecutionTime, To: m.ExecutionTime + 1, Limit: 3}
	x.wantList(at, []postdate.Message{m})
	at.Status, at.Channel = postdate.Pending, orders
	for _, r := range x.list(at, nil) {
		x.wantRecord(r, x.get(m.Key))
	}
	x.settled(x.isOver(m, token, store.SettleDelivered, 3))
	x.wantList(at, nil)
	at.Status = postdate.Delivered
	x.wantList(at, []postdate.Message{m})
}

func seriesReplaced(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	child := x.detach(m, token, 1)
	x.settled(x.goesOn(m, token, store.SettleDelivered, 2))
	faster := changed(m, func(m *postdate.Message) {
		m.Recurrence = &postdate.Recurrence{Cron: "30 9 L * *", Timezone: "Europe/Berlin", MaxRuns: 3}
		m.First, m.ExecutionTime = t0+every, t0+every+9
	})
	x.replace(faster)
	x.wantSeries(m, 0, 0, 0)
	x.nothing([]postdate.Key{m.Key}, x.goesOn(m, token, store.SettleDelivered, 3)) // of the version before
	x.wantFound(everything(home, token, faster.ExecutionTime), x.get(child.Key), x.get(m.Key))
	x.wantRetried(m.Key, child) // it stays
	x.settled(x.after(x.goesOn(faster, token, store.SettleFailed, 1)))

	once := changed(m, single)
	once.ExecutionTime = t0 + 500_000
	x.replace(once)
	x.wantFound(everything(home, token, once.ExecutionTime-1), x.get(child.Key))
	x.nothing([]postdate.Key{m.Key}, x.after(x.goesOn(faster, token, store.SettleDelivered, 2)))
	again := changed(m)
	again.First, again.ExecutionTime = t0+600_000, t0+600_000
	x.replace(again)
	x.wantFound(everything(home, token, again.ExecutionTime), x.get(child.Key), x.get(m.Key))
	x.settled(x.after(x.goesOn(again, token, store.SettleDelivered, 1)))
	x.wantSeries(m, 1, 0, 0)
}

// after is a settlement of the present version.
func (x *trial) after(s store.Settlement) store.Settlement {
	x.Helper()
	s.Version = x.get(s.Key).Version
	return s
}

func seriesRandom(x *trial) {
	r := rand.New(rand.NewPCG(7, 8))
	token := x.own(home)
	x.claim(everything(home, token, t0))
	for range 40 {
		m := x.addSeries(t0)
		run := 1
		for range 1 + r.IntN(12) {
			was := x.get(m.Key)
			if was.Status != postdate.Pending {
				break
			}
			s := x.goesOn(m, token, append(advances, store.SettlePark)[r.IntN(5)], run)
			s.Attempts, s.PossibleDuplicate = r.IntN(postdate.RetryAttemptMax), r.IntN(2) == 0
			s.At, s.AttemptTime = t0+postdate.Time(r.IntN(5000)), begins(m, run)+postdate.Time(r.IntN(5000))
			s.Reason = randomOf(r, "\x00 no route »ü« ", r.IntN(postdate.LastErrorBytesMax/3))
			if s.How == store.SettlePark || s.How != store.SettleSkip && r.IntN(5) == 0 {
				s.Next, s.DownSince = store.Next{}, postdate.Time(r.IntN(2))*t0
			} else if r.IntN(9) == 0 {
				s.Next = store.Next{Over: true, Skipped: s.Next.Skipped}
			}
			x.cancelSometimes(r, m)
			if was = x.get(m.Key); was.Status != postdate.Pending {
				x.nothing([]postdate.Key{m.Key}, s)
				break
			}
			run = max(x.settled(s).Run, 1)
			if state, ok := s.Alone(was.State); ok {
				x.wantRecord(x.get(alone(m, was.Run).Key), postdate.Record{Message: alone(m, was.Run), State: state})
			}
		}
		x.nothing([]postdate.Key{m.Key}, x.goesOn(m, token, store.SettleDelivered, run+1))
	}
}

// cancelSometimes cancels a series, which may be too late.
func (x *trial) cancelSometimes(r *rand.Rand, m postdate.Message) {
	x.Helper()
	if r.IntN(12) > 0 {
		return
	}
	x.claim(everything(home, x.partition(home).Token, x.get(m.Key).AttemptTime))
	if got := x.cancel(m, t0+7); got.Err == nil && got.State.Status != postdate.Cancelled {
		x.Errorf("Cancel answered %+v", got)
	}
}

func seriesUsage(x *trial) {
	m, other := x.addSeries(t0, withPayload(900)), x.addSeries(t0)
	token := x.own(home)
	x.wantUsage(tenant, usageOf(m, other))
	x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
	x.settle(x.goesOn(m, token, store.SettleDelivered, 1))
	x.settled(x.goesOn(m, token, store.SettleSkip, 2))
	x.settled(x.parks(m, token, 3))
	x.unpark(token, orders, begins(m, 3), plenty)
	x.wantUsage(tenant, usageOf(m, other))
	child := x.detach(m, token, 3)
	x.wantUsage(tenant, usageOf(m, other, child))
	x.settle(x.goesOn(m, token, store.SettleRetry, 3))
	x.wantUsage(tenant, usageOf(m, other, child))
	x.settle(x.isOver(m, token, store.SettleFailed, 4))
	x.wantUsage(tenant, usageOf(other, child))
	failed := x.settlement(child, token, store.SettleFailed)
	x.settle(failed)
	x.settle(failed, x.isOver(m, token, store.SettleFailed, 4))
	x.wantUsage(tenant, usageOf(other))
	x.claim(everything(home, token, begins(other, 1)))
	x.cancel(other, t0) // too late: it is ending
	x.wantUsage(tenant, usageOf(other))
	x.settled(x.goesOn(other, token, store.SettleRetry, 1))
	x.wantUsage(tenant, store.Usage{})
	late := x.addSeries(t0 + 10*every)
	x.wantCancelled(late)
	x.wantUsage(tenant, store.Usage{})
}
