package storetest

import (
	"context"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// changingSeries checks what becomes of a series that is changed and stays the same series.
func changingSeries() []check {
	return []check{
		{"a series that is changed keeps its counts, and goes on with its new message", changeKeeps},
		{"a series that is changed moves to the time of its new occurrence", changeMoves},
		{"a series that is changed is listed at its execution time and in its channel", changeListed},
		{"a change may put a series to a time that is claimed already, and it is found", func(x *trial) {
			m := x.addSeries(t0 + 9*every)
			token := x.own(home)
			x.wantFound(everything(home, token, t0+5*every))
			next := x.changes(m, 1, func(m *postdate.Message) { m.First, m.ExecutionTime = t0+every, t0+every+delay })
			x.wantFound(everything(home, token, t0+5*every), x.get(m.Key))
			x.settled(x.after(x.goesOn(next, token, store.SettleDelivered, 1)))
		}},
		{"a parked series that is changed waits for its time and no more for its channel", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
			x.claim(everything(home, token, begins(m, 2)))
			x.settled(x.parks(m, token, 2))
			x.changes(m, 4)
			x.wantParked([]int{home})
			x.wantFound(everything(home, token, begins(m, 4)-1))
			x.wantFound(everything(home, token, begins(m, 4)), x.get(m.Key))
		}},
		{"a settlement of the version before changes nothing", changeStale},
		{"a change conflicts with whatever is not as it was, and changes nothing then", changeConflicts},
		{"a change conflicts with all that happened since it was read", changeOvertaken},
		{"a change that is repeated conflicts, and changes nothing", func(x *trial) {
			m := x.addSeries(t0)
			was := x.get(m.Key)
			next := asChanged(was, 3)
			x.puts(next, was)
			_, err := x.store.Replace(x.ctx, next, was)
			x.wantKind(err, postdate.KindConflict)
			x.wantRecord(x.get(m.Key), next)
		}},
		{"a change that is too late answers the present record, whole", changeLate},
		{"a change of what is not there is KindNotFound", func(x *trial) {
			m := x.message(t0, recurring)
			was := postdate.NewRecord(m, 7)
			_, err := x.store.Replace(x.ctx, asChanged(was, 2), was)
			x.wantKind(err, postdate.KindNotFound)
			x.wantGone(m)
		}},
		{"after a change a series still owns the occurrences of its former versions", changeOwns},
		{"what replaces a series as a whole begins anew, and owns none of them", changeDisowns},
		{"a series that was changed counts as one pending message, of its new size", changeUsage},
		{"of a change and a settlement at once one changes the series", changeRace},
	}
}

// changeKeeps changes a series that has every kind of count, twice, at the same place in a list.
func changeKeeps(x *trial) {
	m := x.addSeries(t0, withPayload(6000))
	token := x.own(home)
	for run, how := range []store.Settling{store.SettleDelivered, store.SettleFailed, store.SettleSkip} {
		x.settled(x.goesOn(m, token, how, run+1))
	}
	first := x.get(m.Key)
	next := x.changes(m, 4, withPayload(3), func(m *postdate.Message) {
		m.Headers, m.ContentType = []postdate.Header{{Name: "a", Value: "b"}}, "text/plain"
		m.Encoding, m.Retry.MaxAttempts, m.ExpiresAt = postdate.EncodingText, 7, t0+900_000
	})
	x.changes(next, 4, withPayload(9000), onRoute("@default!low kafka:b"),
		func(m *postdate.Message) { m.Headers = nil })
	got := x.get(m.Key)
	if got.Version != first.Version+2 || got.Changes != 2 || got.Run != 4 || got.Occurrence != occurrence(m, 4) ||
		got.ExecutionTime != m.ExecutionTime || len(got.Payload) != 9000 || got.Channel != "kafka:b" {
		x.Errorf("changed twice, the series has the state %+v, %d bytes and the channel %s",
			got.State, len(got.Payload), got.Channel)
	}
	x.wantSeries(m, 2, 1, 1)
	x.wantFound(everything(home, token, begins(m, 4)), got)
	on := x.settled(x.after(x.goesOn(m, token, store.SettleFailed, 4)))
	if on.Changes != 2 || on.Run != 5 || len(on.Series.History) != 4 {
		x.Errorf("then it has the state %+v and the history %v", on.State, on.Series.History)
	}
	x.wantSeries(m, 3, 2, 1)
	over := x.settled(x.after(x.isOver(m, token, store.SettleDelivered, 5)))
	if over.Changes != 2 || over.Status != postdate.Delivered {
		x.Errorf("at its end the series has the state %+v", over.State)
	}
}

func changeMoves(x *trial) {
	m, other := x.addSeries(t0), x.addSeries(t0+3*every)
	token := x.own(home)
	x.changes(m, 7) // that is beyond what is claimed next, and the occurrences between are passed over
	x.wantFound(everything(home, token, begins(m, 6)), x.get(other.Key))
	x.settled(x.goesOn(other, token, store.SettleDelivered, 1))
	x.settled(x.isOver(other, token, store.SettleDelivered, 2))
	if got := x.get(m.Key); got.Run != 1 {
		x.Errorf("what was passed over has a number: the series is at run %d", got.Run)
	}
	x.changes(m, 9)
	x.wantFound(everything(home, token, begins(m, 9)-1))
	x.wantFound(everything(home, token, begins(m, 9)), x.get(m.Key))
	x.settled(x.after(x.goesOn(m, token, store.SettleDelivered, 9)))
	x.wantFound(everything(home, token, begins(m, 10)), x.get(m.Key))
}

func changeListed(x *trial) {
	m, other := x.addSeries(t0), x.addSeries(t0+2*every)
	x.settled(x.goesOn(m, x.own(home), store.SettleDelivered, 1))
	next := x.changes(m, 5, onRoute("kafka:b"))
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 1}, []postdate.Message{next, other})
	later := x.changes(next, 1, func(m *postdate.Message) {
		m.First, m.ExecutionTime = t0+5*every, t0+5*every+delay
	})
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 1}, []postdate.Message{other, later})
	x.wantList(store.ListQuery{Tenant: tenant, Channel: "kafka:b", Limit: 2}, []postdate.Message{later})
	x.wantList(store.ListQuery{Tenant: tenant, Channel: orders, Limit: 2}, []postdate.Message{other})
	q := store.ListQuery{Tenant: tenant, Status: postdate.Pending, From: later.ExecutionTime, Limit: 2}
	for _, r := range x.list(q, nil) {
		x.wantRecord(r, x.get(m.Key))
	}
}

// inFlight are the ways to settle a claimed occurrence of a series.
var inFlight = append(append([]store.Settling{}, advances...), store.SettlePark, store.SettleRest)

// ends is a settlement of an occurrence in one of these ways. The series goes on where it can.
func (x *trial) ends(m postdate.Message, token uint64, how store.Settling, run int) store.Settlement {
	x.Helper()
	switch how {
	case store.SettlePark:
		return x.after(x.parks(m, token, run))
	case store.SettleRest:
		return x.rests(m, token, run)
	}
	return x.after(x.goesOn(m, token, how, run))
}

func changeStale(x *trial) {
	token := x.own(home)
	for _, how := range inFlight {
		m := x.addSeries(t0)
		stale := x.ends(m, token, how, 1)
		x.changes(m, 1, withPayload(9))
		over := x.isOver(m, token, store.SettleDelivered, 1)
		x.nothing([]postdate.Key{m.Key}, stale, over, stale)
		x.wantRetried(m.Key)
		x.settled(x.after(over))
	}
}

// unlike are records from which a series differs in one thing that a change looks at.
func unlike(was postdate.Record) []postdate.Record {
	var all []postdate.Record
	differ := func(change func(r *postdate.Record)) {
		other := was
		change(&other)
		all = append(all, other)
	}
	for _, by := range []int64{1, -1} {
		differ(func(r *postdate.Record) { r.Version += uint64(by) })
		differ(func(r *postdate.Record) { r.Occurrence += postdate.Time(by) })
		differ(func(r *postdate.Record) { r.Series.Fired += by })
		differ(func(r *postdate.Record) { r.Series.Failed += by })
		differ(func(r *postdate.Record) { r.Series.Skipped += by })
	}
	differ(func(r *postdate.Record) { r.Occurrence = 0 })
	differ(func(r *postdate.Record) { r.Paused = !r.Paused })
	differ(func(r *postdate.Record) { r.Series = postdate.Series{Fired: 9, Failed: 9, Skipped: 9} })
	return all
}

func changeConflicts(x *trial) {
	token := x.own(home)
	conflicts := func(m postdate.Message) {
		x.Helper()
		want := x.get(m.Key)
		for _, was := range unlike(want) {
			_, err := x.store.Replace(x.ctx, asChanged(was, 5), was)
			x.wantKind(err, postdate.KindConflict)
			x.wantRecord(x.get(m.Key), want)
		}
	}
	m := x.addSeries(t0)
	conflicts(m)
	for run, how := range []store.Settling{store.SettleDelivered, store.SettleFailed, store.SettleSkip} {
		x.settled(x.goesOn(m, token, how, run+1))
	}
	conflicts(m)
	x.pause(m)
	conflicts(m)
	x.changes(m, 5)
}

// changeOvertaken lets something happen between the read and the change.
func changeOvertaken(x *trial) {
	token := x.own(home)
	for what, happens := range map[string]func(m, child postdate.Message){
		"it was paused":    func(m, _ postdate.Message) { x.pause(m) },
		"it was triggered": func(m, _ postdate.Message) { x.trigger(m, t0+11) },
		"an occurrence that was retried fails": func(_, child postdate.Message) {
			x.settle(x.settlement(child, token, store.SettleFailed))
		},
		"it went on": func(m, _ postdate.Message) {
			x.settle(x.goesOn(m, token, store.SettleDelivered, 2))
		},
		"it was skipped": func(m, _ postdate.Message) { x.settle(x.goesOn(m, token, store.SettleSkip, 2)) },
		"it was changed": func(m, _ postdate.Message) { x.changes(m, 3, withPayload(1)) },
	} {
		m := x.addSeries(t0)
		child := x.detach(m, token, 1)
		was := x.get(m.Key)
		happens(m, child)
		want := x.get(m.Key)
		if _, err := x.store.Replace(x.ctx, asChanged(was, 6), was); err == nil {
			x.broken("%s, and a change of what was read before went through", what)
		} else {
			x.wantKind(err, postdate.KindConflict)
		}
		x.wantRecord(x.get(m.Key), want)
		x.changes(m, 6)
		x.store.Cancel(x.ctx, keysOf([]postdate.Message{m, child, m.Alone(t0 + 11)}), t0)
	}
}

func changeLate(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleFailed, 1))
	late := func() {
		x.Helper()
		was := x.get(m.Key)
		present, err := x.store.Replace(x.ctx, asChanged(was, 9), was)
		x.wantKind(err, postdate.KindTooLate)
		x.wantRecord(present, was)
		x.wantRecord(x.get(m.Key), was)
	}
	x.claim(everything(home, token, begins(m, 2)))
	late()
	x.pause(m) // a pause alone needs no change
	late()
	x.trigger(m, t0+5)
	late()
	x.wantEnding(m)
	late()
	x.settled(x.goesOn(m, token, store.SettleDelivered, 2))
	late()
}

func changeOwns(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	var children []postdate.Message
	for run := 1; run <= 4; run++ { // one of each version
		children = append(children, x.detach(m, token, run))
		if run%2 == 0 {
			x.trigger(m, t0+postdate.Time(run))
		}
		x.changes(m, run+1)
	}
	x.wantRetried(m.Key, append(children, m.Alone(t0+2), m.Alone(t0+4))...)
	before := x.get(m.Key)
	for i, child := range append(children, m.Alone(t0+2)) {
		failed := x.settlement(child, token, store.SettleFailed)
		x.settled(failed)
		before.Series.Failed++
		x.wantRecord(x.get(m.Key), before)
		x.nothing([]postdate.Key{m.Key}, failed)
		if before.Series.Failed != int64(i+1) {
			x.broken("%d occurrences failed, and %d are counted", i+1, before.Series.Failed)
		}
	}
	x.wantCancelled(m)
	x.settle(x.settlement(m.Alone(t0+4), token, store.SettleFailed))
	x.wantSeries(m, 6, 6, 0)
}

func changeDisowns(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	first := x.detach(m, token, 1)
	x.changes(m, 2)
	second := x.detach(m, token, 2)
	extra := x.trigger(m, t0+1)
	next := changed(x.get(m.Key).Message)
	next.First, next.ExecutionTime = t0+2*every, t0+2*every+delay
	x.replace(next)
	third := x.detach(next, token, 1)
	x.changes(next, 2)
	x.wantRetried(m.Key, first, second, extra, third)
	for _, child := range []postdate.Message{first, second, extra} {
		x.settled(x.settlement(child, token, store.SettleFailed))
		x.wantSeries(m, 1, 0, 0)
	}
	x.settled(x.settlement(third, token, store.SettleFailed))
	x.wantSeries(m, 1, 1, 0)
	if got := x.get(m.Key); got.Changes != 1 || got.Version != x.first[m.Key]+3 {
		x.Errorf("the series has the state %+v, and was created at version %d", got.State, x.first[m.Key])
	}
}

func changeUsage(x *trial) {
	m, other := x.addSeries(t0, withPayload(5000)), x.addSeries(t0)
	x.wantUsage(tenant, usageOf(m, other))
	for _, next := range [][]edit{
		{withPayload(1)}, {withPayload(7000), onRoute("kafka:b")}, {withPayload(0), onRoute("@default!low kafka:b")},
	} {
		was := x.get(m.Key)
		now := x.changes(m, 2, next...)
		x.wantUsage(tenant, usageOf(now, other))
		_, err := x.store.Replace(x.ctx, asChanged(was, 3, withPayload(10)), was)
		x.wantKind(err, postdate.KindConflict)
		x.wantUsage(tenant, usageOf(now, other))
	}
	x.wantCancelled(m)
	x.wantUsage(tenant, usageOf(other))
}

// both makes two calls at the same time.
func both(one, other func()) {
	var group sync.WaitGroup
	group.Go(one)
	group.Go(other)
	group.Wait()
}

// settling settles, and reports an error.
func (x *trial) settling(s store.Settlement) func() {
	return func() {
		if err := x.store.Settle(context.Background(), []store.Settlement{s}); err != nil {
			x.Errorf("Settle: %v", err)
		}
	}
}

func changeRace(x *trial) {
	token := x.own(home)
	for i := range 60 {
		m := x.addSeries(t0)
		was := x.get(m.Key)
		next := asChanged(was, 4, withPayload(i))
		s := x.goesOn(m, token, store.SettleDelivered, 1)
		var err error
		both(func() { _, err = x.store.Replace(x.ctx, next, was) }, x.settling(s))
		want := next
		if err != nil {
			x.wantKind(err, postdate.KindConflict)
			want = was
			want.State, want.Series = s.State(was.State), s.Series(was.State, was.Series)
		}
		x.wantRecord(x.get(m.Key), want)
	}
}
