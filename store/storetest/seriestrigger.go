package storetest

import (
	"slices"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// triggeringSeries checks the extra occurrences of series.
func triggeringSeries() []check {
	return []check{
		{"an extra occurrence is a message of its own, due at its time, and its series counts it", triggerMakes},
		{"an extra occurrence is of the series' present version and message", func(x *trial) {
			m := x.addSeries(t0, withPayload(9))
			next := x.changes(m, 1, withPayload(5000), onRoute("@default!high kafka:b"))
			child := x.trigger(m, t0-7)
			if got := x.get(child.Key); got.Version != x.first[m.Key]+1 || len(got.Payload) != 5000 {
				x.Errorf("the extra occurrence is of version %d, with %d bytes", got.Version, len(got.Payload))
			}
			x.wantUsage(tenant, usageOf(next, child))
		}},
		{"an extra occurrence is found also by the longest names", func(x *trial) {
			m := x.message(t0, recurring)
			m.Key = x.largest().Key
			x.insert(m)
			child := x.trigger(m, t0-1)
			x.wantRetried(m.Key, child)
			x.wantFound(everything(m.Bucket, x.own(m.Bucket), t0), x.get(child.Key))
		}},
		{"a series is triggered while its occurrence is claimed, parked or at rest, and goes on as it would",
			triggerAnytime},
		{"an extra occurrence whose time is claimed already is found", func(x *trial) {
			m := x.addSeries(t0 + 9*every)
			token := x.own(home)
			x.wantFound(everything(home, token, t0+5*every))
			child := x.trigger(m, t0+every)
			x.wantKind(x.cancel(child, t0).Err, postdate.KindTooLate)
			x.wantFound(everything(home, token, t0+5*every), x.get(child.Key))
		}},
		{"what is triggered again, or where the id is taken, conflicts and changes nothing", triggerTaken},
		{"a trigger of another version conflicts, and changes nothing", func(x *trial) {
			m := x.addSeries(t0)
			x.settled(x.goesOn(m, x.own(home), store.SettleDelivered, 1))
			x.changes(m, 2)
			want := x.get(m.Key)
			for _, version := range []uint64{0, want.Version - 1, want.Version + 1} {
				x.wantKind(x.store.Trigger(x.ctx, m.Key, version, t0+5), postdate.KindConflict)
				x.wantUntriggered(want, t0+5)
			}
			x.trigger(m, t0+5)
		}},
		{"only a series is triggered that goes on", func(x *trial) {
			for kind, records := range x.unpausable(x.own(home)) {
				for _, r := range records {
					x.wantKind(x.store.Trigger(x.ctx, r.Key, r.Version, t0+5), kind)
					if kind == postdate.KindNotFound {
						x.wantGone(r.Message)
						x.wantGone(r.Alone(t0 + 5))
					} else {
						x.wantUntriggered(r, t0+5)
					}
				}
			}
		}},
		{"an extra occurrence is settled like any other message, and counts in its series if it fails", triggerSettled},
		{"many extra occurrences are all counted, and the latest of them kept", triggerMany},
		{"Retried names extra occurrences that are pending, and they count as pending", triggerUsage},
		{"after a cancel and a trigger at once there is no extra occurrence, or Retried names it", triggerOrCancel},
		{"of a trigger and a change at once one goes through, and no count is lost", triggerOrChange},
		{"a trigger, a pause and a settlement at once are all done", triggerAndSettle},
		{"of many triggers at once each counts once, and of those of one time one goes through", triggerRace},
	}
}

// wantUntriggered expects a series, or what else has its key, to be as it was, without that extra occurrence.
func (x *trial) wantUntriggered(was postdate.Record, at postdate.Time) {
	x.Helper()
	x.wantRecord(x.get(was.Key), was)
	x.wantGone(was.Alone(at))
}

func triggerMakes(x *trial) {
	m := x.addSeries(t0+9*every, withPayload(100), onRoute("@acme!low kafka:a"), func(m *postdate.Message) {
		m.Headers, m.Traceparent, m.PartitionKey = []postdate.Header{{Name: "a", Value: "b"}}, "00-1", "k"
		m.Tracestate = "a=1"
		m.ExpiresAt, m.MayRepeat, m.Retry.MaxAttempts = t0+900_000, true, 4
	})
	series := x.get(m.Key)
	if err := x.store.Trigger(x.ctx, m.Key, series.Version, t0+50); err != nil {
		x.Fatalf("Trigger: %v", err)
	}
	child := m
	child.ScheduleID += "/" + (t0 + 50).String()
	child.ExecutionTime, child.First, child.Recurrence = t0+50, 0, nil
	want := postdate.Record{Message: child, State: postdate.State{
		Status: postdate.Pending, Version: series.Version, AttemptTime: t0 + 50,
	}}
	x.wantRecord(x.get(child.Key), want)
	series.Series = postdate.Series{Fired: 1, History: []postdate.Outcome{
		{Occurrence: t0 + 50, Status: postdate.Pending, At: t0 + 50},
	}}
	x.wantRecord(x.get(m.Key), series)
	x.wantRetried(m.Key, child)
	x.wantList(store.ListQuery{Tenant: "acme", Limit: 1}, []postdate.Message{child, m})
	for _, r := range x.list(store.ListQuery{Tenant: "acme", Limit: 2}, nil) {
		x.wantRecord(r, x.get(r.Key))
	}
	token := x.own(home)
	x.wantFound(everything(home, token, t0+49))
	x.wantFound(everything(home, token, t0+50), want)
}

func triggerAnytime(x *trial) {
	token := x.own(home)
	for i, waits := range []func(m postdate.Message){
		func(postdate.Message) {},
		func(m postdate.Message) { x.claim(everything(home, token, begins(m, 2))) },
		func(m postdate.Message) { x.settled(x.parks(m, token, 2)) },
		func(m postdate.Message) { x.pause(m) },
		func(m postdate.Message) {
			x.pause(m)
			x.settled(x.rests(m, token, 2))
		},
	} {
		for _, how := range advances {
			m := x.addSeries(t0)
			x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
			waits(m)
			child := x.trigger(m, t0+postdate.Time(i))
			x.settled(x.goesOn(m, token, how, 2)) // what was in flight before
			if got := x.get(m.Key).Series.History; len(got) != 3 || got[1].Occurrence != child.ExecutionTime {
				x.Errorf("the series has the history %+v", got)
			}
			x.settled(x.settlement(child, token, store.SettleDelivered))
			x.settle(x.after(x.isOver(m, token, store.SettleDelivered, 3)))
			x.wantStatus(m, postdate.Delivered)
		}
	}
}

func triggerTaken(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	detached := x.detach(m, token, 1)
	extra := x.trigger(m, t0+5)
	again := func() {
		x.Helper()
		series := x.get(m.Key)
		for _, taken := range []postdate.Message{extra, detached} {
			was := x.get(taken.Key)
			err := x.store.Trigger(x.ctx, m.Key, series.Version, taken.ExecutionTime)
			x.wantKind(err, postdate.KindConflict)
			x.wantRecord(x.get(taken.Key), was)
			x.wantRecord(x.get(m.Key), series)
		}
		x.wantUsage(tenant, usageOf(x.listed(tenant)...))
	}
	again()
	x.changes(m, 2)
	again()
	x.settled(x.settlement(extra, token, store.SettleDelivered))
	x.settled(x.settlement(detached, token, store.SettleFailed))
	again()
	x.wantRetried(m.Key)

	present := x.trigger(m, occurrence(m, 2)) // the occurrence itself, which is retried later
	before := x.get(present.Key)
	x.claim(everything(home, token, begins(m, 2)))
	x.settled(x.after(x.goesOn(m, token, store.SettleRetry, 2)))
	x.wantRecord(x.get(present.Key), before)
}

func triggerSettled(x *trial) {
	stale := x.own(home)
	token := x.own(home)
	for _, how := range ways {
		m := x.addSeries(t0 + every)
		child := x.trigger(m, t0)
		x.claim(everything(home, token, t0))
		s, fenced := x.settlement(child, token, how), x.settlement(child, stale, how)
		if how != store.SettleDelivered {
			x.nothing([]postdate.Key{child.Key, m.Key}, fenced)
		}
		x.settled(s)
		x.nothing([]postdate.Key{child.Key, m.Key}, s)
		failed := int64(0)
		if how == store.SettleFailed {
			failed = 1
		}
		x.wantSeries(m, 1, failed, 0)
		if how == store.SettleRetry || how == store.SettlePark {
			x.wantRetried(m.Key, child)
			x.settled(x.settlement(child, token, store.SettleFailed))
			x.wantSeries(m, 1, 1, 0)
		}
		x.wantRetried(m.Key)
	}
	m := x.addSeries(t0 + 3*every)
	child := x.trigger(m, t0+2*every)
	x.wantCancelled(child)
	x.wantSeries(m, 1, 0, 0)
	x.wantStatus(m, postdate.Pending)
	x.expire(postdate.LatestTime, 0, plenty, 1+len(ways))
	x.trigger(m, t0+2*every) // its id is free again
	x.wantSeries(m, 2, 0, 0)
}

func triggerMany(x *trial) {
	const extra = postdate.HistoryMax + 4
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleSkip, 1))
	for i := range extra {
		x.trigger(m, t0+postdate.Time(i))
	}
	x.wantSeries(m, extra, 0, 1)
	history := x.get(m.Key).Series.History
	if len(history) != postdate.HistoryMax || history[0].Occurrence != t0+extra-postdate.HistoryMax {
		x.Errorf("after %d extra occurrences the history is %+v", extra, history)
	}
	x.settled(x.goesOn(m, token, store.SettleDelivered, 2))
	x.wantSeries(m, extra+1, 0, 1)
}

func triggerUsage(x *trial) {
	m, other := x.addSeries(t0+every, withPayload(900)), x.addSeries(t0+every)
	token := x.own(home)
	one, two := x.trigger(m, t0), x.trigger(m, t0+1)
	theirs := x.trigger(other, t0)
	x.wantRetried(m.Key, one, two)
	x.wantRetried(other.Key, theirs)
	x.wantUsage(tenant, usageOf(m, other, one, two, theirs))
	version := x.get(m.Key).Version
	x.wantKind(x.store.Trigger(x.ctx, m.Key, version, t0), postdate.KindConflict)
	x.wantKind(x.store.Trigger(x.ctx, m.Key, version+1, t0+9), postdate.KindConflict)
	x.wantUsage(tenant, usageOf(m, other, one, two, theirs))
	x.pause(m)
	x.settle(x.settlement(one, token, store.SettleFailed), x.settlement(theirs, token, store.SettleDelivered))
	x.wantUsage(tenant, usageOf(m, other, two))
	x.wantRetried(m.Key, two)
	x.wantRetried(other.Key)
	x.wantCancelled(m)
	x.wantUsage(tenant, usageOf(other, two))
	x.wantCancelled(two)
	x.wantUsage(tenant, usageOf(other))
}

// triggerOrCancel cancels a series as a client does: first the series, then what Retried names.
func triggerOrCancel(x *trial) {
	const rounds = 120
	for i := range rounds {
		m := x.addSeries(t0 + every)
		version, late := x.first[m.Key], i >= rounds/2
		if i == rounds/2 { // from then on each is claimed
			x.claim(everything(home, x.own(home), begins(m, 1)))
		}
		child := m.Alone(t0 + 2*every)
		var err error
		var keys []postdate.Key
		both(func() { err = x.store.Trigger(x.ctx, m.Key, version, child.ExecutionTime) }, func() {
			if got := x.cancel(m, t0); (got.Err != nil) != late {
				x.Errorf("Cancel: got %+v", got)
			}
			keys, _ = x.store.Retried(x.ctx, m.Key)
		})
		if err != nil {
			x.wantKind(err, postdate.KindTooLate)
			x.wantGone(child)
			x.wantSeries(m, 0, 0, 0)
			continue
		}
		if !slices.Contains(keys, child.Key) {
			x.broken("a cancel was answered, Retried named %v, and %s was triggered at the same time",
				keys, child.ScheduleID)
		}
		x.first[child.Key] = version
		x.wantRecord(x.get(child.Key), fresh(child))
		x.wantSeries(m, 1, 0, 0)
	}
}

func triggerOrChange(x *trial) {
	for i := range 80 {
		m := x.addSeries(t0 + every)
		was := x.get(m.Key)
		next, child := asChanged(was, 2, withPayload(i)), was.Alone(t0)
		var triggered, changed error
		both(func() { triggered = x.store.Trigger(x.ctx, m.Key, was.Version, t0) },
			func() { _, changed = x.store.Replace(x.ctx, next, was) })
		if (triggered == nil) == (changed == nil) {
			x.broken("a trigger answered %v, and a change at the same time %v", triggered, changed)
		}
		if triggered != nil {
			x.wantKind(triggered, postdate.KindConflict)
			x.wantUntriggered(next, t0)
			continue
		}
		x.wantKind(changed, postdate.KindConflict)
		x.wantSeries(m, 1, 0, 0)
		x.first[child.Key] = was.Version
		x.wantRecord(x.get(child.Key), fresh(child))
		x.changes(m, 2)
		x.wantSeries(m, 1, 0, 0)
	}
}

func triggerAndSettle(x *trial) {
	token := x.own(home)
	for i := range 60 {
		m := x.addSeries(t0)
		x.claim(everything(home, token, begins(m, 1)))
		version := x.first[m.Key]
		s := x.goesOn(m, token, advances[i%len(advances)], 1)
		both(func() {
			if err := x.store.Trigger(x.ctx, m.Key, version, t0+3); err != nil {
				x.Errorf("Trigger: %v", err)
			}
			if err := x.store.Pause(x.ctx, m.Key, version); err != nil {
				x.Errorf("Pause: %v", err)
			}
		}, x.settling(s))
		want := postdate.Series{}.Add(postdate.Outcome{Occurrence: t0 + 3, Status: postdate.Pending, At: t0 + 3})
		want = s.Series(postdate.State{}, want)
		x.wantSeries(m, want.Fired, want.Failed, want.Skipped)
		if got := x.get(m.Key); got.Run != 2 || !got.Paused || len(got.Series.History) != 2 {
			x.broken("triggered, paused and settled at once, a series has the state %+v and the history %v",
				got.State, got.Series.History)
		}
		children := []postdate.Message{m.Alone(t0 + 3)}
		if s.How == store.SettleRetry {
			children = append(children, alone(m, 1))
		}
		x.wantRetried(m.Key, children...)
	}
}

func triggerRace(x *trial) {
	const times, each = 8, 3
	m := x.addSeries(t0 + every)
	var group sync.WaitGroup
	var mu sync.Mutex
	done := map[postdate.Time]int{}
	for i := range times * each {
		group.Go(func() {
			at := t0 + postdate.Time(i%times)
			if err := x.store.Trigger(x.ctx, m.Key, x.first[m.Key], at); err != nil {
				x.wantKind(err, postdate.KindConflict)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			done[at]++
		})
	}
	group.Wait()
	var children []postdate.Message
	for i := range postdate.Time(times) {
		children = append(children, m.Alone(t0+i))
		if n := done[t0+i]; n != 1 {
			x.broken("of %d triggers of one time %d went through", each, n)
		}
	}
	x.wantSeries(m, times, 0, 0)
	x.wantRetried(m.Key, children...)
	if n := len(x.get(m.Key).Series.History); n != times {
		x.Errorf("after %d extra occurrences the history holds %d", times, n)
	}
}

// durableChanges is a durable check.
func durableChanges(x *trial) {
	token := x.own(home)
	changed, paused, resting := x.addSeries(t0), x.addSeries(t0), x.addSeries(t0)
	triggered := x.addSeries(t0 + every)
	x.settled(x.goesOn(changed, token, store.SettleFailed, 1))
	child := x.changes(changed, 3, withPayload(5000), onRoute("kafka:b"))
	child = x.detach(child, token, 3)
	x.changes(changed, 9, withPayload(3))
	x.pause(paused)
	x.pause(resting)
	x.settled(x.rests(resting, token, 1))
	extra := x.trigger(triggered, t0+1)
	keys := keysOf([]postdate.Message{changed, paused, resting, triggered, child, extra})
	before := x.survive(keys)
	x.wantRetried(triggered.Key, extra)
	x.wantKind(x.store.Trigger(x.ctx, triggered.Key, before[3].Version, t0+1), postdate.KindConflict)
	_, err := x.store.Replace(x.ctx, asChanged(before[0], 3), asChanged(before[0], 9))
	x.wantKind(err, postdate.KindConflict)
	token = x.own(home)
	x.wantFound(everything(home, token, begins(changed, 5)), before[5], before[1], before[3], before[4])
	x.settled(x.settlement(child, token, store.SettleFailed))
	x.settled(x.settlement(extra, token, store.SettleFailed))
	x.wantSeries(changed, 2, 2, 0)
	x.wantSeries(triggered, 1, 1, 0)
	x.pause(paused)
	x.wantCancelled(resting)
}
