package storetest

import (
	"slices"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// redriving checks that what failed can be tried again.
func redriving() []check {
	return []check{
		{"what failed is due again at the next version without attempts, with its mark, error and log", redriveStates},
		{"what has not failed conflicts, and stays as it is", redriveOthers},
		{"who repeats a redrive learns that it is done, and changes nothing", redriveAgain},
		{"another version conflicts, and changes nothing", func(x *trial) {
			m := x.fails(x.add(t0), x.own(home))
			for _, version := range []uint64{x.first[m.Key] + 1, x.first[m.Key] - 2} {
				before := x.get(m.Key)
				x.wantKind(x.redrive(store.Versioned{Key: m.Key, Version: version}, t0+9).Err, postdate.KindConflict)
				x.wantRecord(x.get(m.Key), before)
			}
		}},
		{"what is not there is KindNotFound", func(x *trial) {
			x.wantKind(x.redrive(store.Versioned{Key: x.message(t0).Key}, t0).Err, postdate.KindNotFound)
		}},
		{"what has expired is KindTooLate, and stays as it is", func(x *trial) {
			m := x.fails(x.add(t0, func(m *postdate.Message) { m.ExpiresAt = t0 + 50 }), x.own(home))
			before := x.get(m.Key)
			x.wantKind(x.redrive(store.Versioned{Key: m.Key}, t0+50).Err, postdate.KindTooLate)
			x.wantRecord(x.get(m.Key), before)
			x.redriven(m, t0+49)
		}},
		{"a message does not become due before its execution time", func(x *trial) {
			m := x.fails(x.add(t0+50), x.own(home))
			if got := x.redriven(m, t0).AttemptTime; got != t0+50 {
				x.broken("a message of %v is redriven at %v", m.ExecutionTime, got)
			}
		}},
		{"a settlement of the version that failed changes nothing of the next one", redriveOldSettled},
		{"each of many stands or falls alone, and results are in order", redriveMany},
		{"what is redriven is pending, and stays past the retention", redrivePending},
		{"it can be cancelled, unless an earlier attempt may have arrived", redriveCancelled},
		{"of many that redrive a message at once each sees the next version", redriveRace},
		{"a series counts an occurrence that failed once, however often it is redriven", redriveOccurrence},
		{"who redrive and purge a message at once agree on one of these", redriveOrPurge},
	}
}

// fails claims m and lets it fail after an attempt.
func (x *trial) fails(m postdate.Message, token uint64) postdate.Message {
	x.Helper()
	x.settled(x.attempt(m, token, store.SettleFailed, 3+len(x.get(m.Key).Log)))
	return m
}

func (x *trial) redrive(f store.Versioned, at postdate.Time) store.Redriven {
	x.Helper()
	results := x.store.Redrive(x.ctx, []store.Versioned{f}, at)
	if len(results) != 1 {
		x.Fatalf("Redrive of one message answered %d results", len(results))
	}
	return results[0]
}

// redriven redrives m, which failed, and expects what that makes of it.
func (x *trial) redriven(m postdate.Message, at postdate.Time) postdate.Record {
	x.Helper()
	want := x.get(m.Key)
	want.State = want.State.Redrive(max(at, m.ExecutionTime))
	got := x.redrive(store.Versioned{Key: m.Key, Version: want.Version - 1}, at)
	if got.Err != nil || got.State != want.State {
		x.Errorf("Redrive of %s: got %+v, want the state %+v", m.ScheduleID, got, want.State)
	}
	x.wantRecord(x.get(m.Key), want)
	x.first[m.Key] = want.Version
	return want
}

func redriveStates(x *trial) {
	token := x.own(home)
	for _, doubtful := range []bool{false, true} {
		m := x.add(t0)
		x.claim(everything(home, token, t0))
		parked := x.settlement(m, token, store.SettlePark)
		parked.DownSince = t0 + 1
		x.settled(parked)
		s := x.attempt(m, token, store.SettleFailed, 3)
		s.PossibleDuplicate, s.Reason = doubtful, "the broker said »no«"
		x.settled(s)
		before := x.get(m.Key)
		x.redriven(m, t0+70)
		got := x.get(m.Key)
		want := postdate.State{Status: postdate.Pending, Version: before.Version + 1, AttemptTime: t0 + 70,
			PossibleDuplicate: doubtful, LastError: s.Reason, Redriven: true}
		if got.State != want {
			x.broken("a redriven message has the state %+v, want %+v", got.State, want)
		}
		x.wantLog(m, before.Log...)
		x.wantDue(everything(home, token, t0+69))
		x.wantFound(everything(home, token, t0+70), got)
		x.settled(x.attempt(m, token, store.SettleDelivered, 1))
		x.wantDue(everything(home, token, t0+70))
	}
}

func redriveOthers(x *trial) {
	token := x.own(home)
	waiting, delivered, cancelled := x.add(t0), x.add(t0), x.add(t0)
	x.settle(x.settlement(delivered, token, store.SettleDelivered))
	x.wantCancelled(cancelled)
	for _, m := range []postdate.Message{waiting, delivered, cancelled} {
		before := x.get(m.Key)
		got := x.redrive(store.Versioned{Key: m.Key, Version: before.Version}, t0+9)
		x.wantKind(got.Err, postdate.KindConflict)
		if got.State != before.State {
			x.Errorf("Redrive answered the state %+v, want the present one %+v", got.State, before.State)
		}
		if m.Key != waiting.Key {
			x.wantKind(x.redrive(store.Versioned{Key: m.Key}, t0+9).Err, postdate.KindConflict)
		}
		x.wantRecord(x.get(m.Key), before)
	}
}

func redriveAgain(x *trial) {
	token := x.own(home)
	m := x.fails(x.add(t0), token)
	failed := store.Versioned{Key: m.Key, Version: x.first[m.Key]}
	x.redriven(m, t0+9)
	again := func(f store.Versioned) {
		x.Helper()
		before := x.get(m.Key)
		if got := x.redrive(f, t0+99); got.Err != nil || got.State != before.State {
			x.Errorf("Redrive again: got %+v, want the state %+v", got, before.State)
		}
		x.wantRecord(x.get(m.Key), before)
	}
	again(failed)
	again(store.Versioned{Key: m.Key})
	x.settled(x.retryAt(m, token, t0+50))
	again(failed)
	again(store.Versioned{Key: m.Key})
	x.settled(x.settlement(m, token, store.SettleFailed))
	again(failed) // it failed anew
}

func redriveOldSettled(x *trial) {
	token := x.own(home)
	m := x.fails(x.add(t0), token)
	late := x.inEveryWay(m, token)
	x.redriven(m, t0+9)
	x.nothing([]postdate.Key{m.Key}, late...)
	x.wantDue(everything(home, token, t0+9), m)
}

func redriveMany(x *trial) {
	token, other := x.own(home), x.own(abroad)
	a, b, far := x.fails(x.add(t0), token), x.fails(x.add(t0+5), token), x.messageIn(abroad, tenant, t0)
	x.insert(far)
	x.fails(far, other)
	missing, delivered := x.message(t0), x.add(t0)
	x.settle(x.settlement(delivered, token, store.SettleDelivered))
	some := []store.Versioned{{Key: b.Key}, {Key: missing.Key}, {Key: a.Key, Version: x.first[a.Key]},
		{Key: delivered.Key}, {Key: far.Key}, {Key: a.Key}, {Key: b.Key, Version: 1}}
	results := x.store.Redrive(x.ctx, some, t0+9)
	if len(results) != len(some) {
		x.Fatalf("Redrive of %d messages answered %d results", len(some), len(results))
	}
	x.wantKind(results[1].Err, postdate.KindNotFound)
	x.wantKind(results[3].Err, postdate.KindConflict)
	x.wantKind(results[6].Err, postdate.KindConflict)
	for _, i := range []int{0, 2, 4, 5} {
		r := x.get(some[i].Key)
		if results[i].Err != nil || results[i].State != r.State || r.Status != postdate.Pending ||
			r.Version != x.first[r.Key]+1 {
			x.broken("item %d: got %+v, and the message is %+v", i, results[i], r.State)
		}
	}
	x.wantStatus(delivered, postdate.Delivered)
	x.wantDue(everything(home, token, t0+9), a, b)
	x.wantDue(everything(abroad, other, t0+9), far)
}

func redrivePending(x *trial) {
	token := x.own(home)
	m, other := x.fails(x.add(t0, withPayload(100)), token), x.add(t0)
	x.wantUsage(tenant, usageOf(other))
	x.redriven(m, t0+9)
	x.wantUsage(tenant, usageOf(m, other))
	x.redrive(store.Versioned{Key: m.Key}, t0+9)
	x.wantUsage(tenant, usageOf(m, other))
	x.expire(postdate.LatestTime, 0, plenty, 0)
	s := x.settlement(m, token, store.SettleFailed)
	s.At = t0 + 20_000
	x.settled(s)
	x.wantUsage(tenant, usageOf(other))
	x.expire(s.At, 0, plenty, 0)
	x.expire(s.At+1, 0, plenty, 1)
	x.wantGone(m)
}

func redriveCancelled(x *trial) {
	token := x.own(home)
	certain, doubtful := x.fails(x.add(t0), token), x.add(t0)
	s := x.settlement(doubtful, token, store.SettleFailed)
	s.PossibleDuplicate = true
	x.settled(s)
	x.redriven(certain, t0+9)
	x.redriven(doubtful, t0+9)
	x.wantCancelled(certain)
	x.wantTooLate(doubtful)
	x.wantDue(everything(home, token, t0+9), doubtful)
}

func redriveRace(x *trial) {
	m := x.fails(x.add(t0), x.own(home))
	version := x.first[m.Key]
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			f := store.Versioned{Key: m.Key}
			if i%2 == 0 {
				f.Version = version
			}
			got := x.store.Redrive(x.ctx, []store.Versioned{f}, t0+9)[0]
			if got.Err != nil || got.State.Version != version+1 {
				x.broken("a redrive of version %d among others: %+v", version, got)
			}
		})
	}
	group.Wait()
	if got := x.get(m.Key).Version; got != version+1 {
		x.broken("redriven many times at once, a message went from version %d to %d", version, got)
	}
	x.wantUsage(tenant, usageOf(m))
}

func redriveOccurrence(x *trial) {
	token := x.own(home)
	m := x.addSeries(t0)
	child := x.fails(x.detach(m, token, 1), token)
	x.wantSeries(m, 1, 1, 0)
	x.wantRetried(m.Key)
	x.redriven(child, begins(m, 1)+9)
	x.wantRetried(m.Key, child)
	x.fails(child, token)
	x.wantSeries(m, 1, 1, 0)
	was := x.get(m.Key)
	x.puts(asChanged(was, was.Run), was) // now the series has the version of what is redriven
	x.redriven(child, begins(m, 1)+9)
	x.fails(child, token)
	x.wantSeries(m, 1, 1, 0)
	second := x.detach(m, token, 2)
	x.fails(second, token)
	x.wantSeries(m, 2, 2, 0)
}

func redriveOrPurge(x *trial) {
	token := x.own(home)
	for range 20 {
		m := x.fails(x.add(t0), token)
		f := []store.Versioned{{Key: m.Key, Version: x.first[m.Key]}}
		var group sync.WaitGroup
		var redriven store.Redriven
		var purged error
		group.Go(func() { redriven = x.store.Redrive(x.ctx, f, t0+9)[0] })
		group.Go(func() { purged = x.store.Purge(x.ctx, f)[0] })
		group.Wait()
		_, err := x.store.Get(x.ctx, m.Key)
		if (redriven.Err == nil) == (purged == nil) || (purged == nil) == (err == nil) {
			x.broken("redriven: %v, purged: %v, and then there: %v", redriven.Err, purged, err)
		}
	}
}

// purging checks that what failed can be deleted.
func purging() []check {
	return []check{
		{"what failed is gone at once, and its id is free", func(x *trial) {
			token := x.own(home)
			m, doubtful := x.fails(x.add(t0), token), x.add(t0)
			s := x.settlement(doubtful, token, store.SettleFailed)
			s.PossibleDuplicate = true
			x.settled(s)
			x.purged(store.Versioned{Key: m.Key})
			x.purged(store.Versioned{Key: doubtful.Key, Version: x.first[doubtful.Key]})
			x.wantGone(m)
			x.wantGone(doubtful)
			x.expire(postdate.LatestTime, 0, plenty, 0)
			x.insert(m)
			x.wantUsage(tenant, usageOf(m))
			x.wantFound(everything(home, token, t0), x.get(m.Key))
		}},
		{"what has not failed conflicts, and stays as it is", purgeOthers},
		{"what is not there is KindNotFound, also what was purged before", func(x *trial) {
			m := x.fails(x.add(t0), x.own(home))
			x.purged(store.Versioned{Key: m.Key})
			for _, version := range []uint64{0, x.first[m.Key]} {
				x.wantKind(x.purge(store.Versioned{Key: m.Key, Version: version})[0], postdate.KindNotFound)
			}
		}},
		{"each of many stands or falls alone, and results are in order", purgeMany},
		{"of many that purge a message at once all see that it is gone", func(x *trial) {
			m := x.fails(x.add(t0), x.own(home))
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					if err := x.store.Purge(x.ctx, []store.Versioned{{Key: m.Key}})[0]; err != nil {
						x.wantKind(err, postdate.KindNotFound)
					}
				})
			}
			group.Wait()
			x.wantGone(m)
		}},
		{"an occurrence of a series goes alone", func(x *trial) {
			token := x.own(home)
			m := x.addSeries(t0)
			first, second := x.detach(m, token, 1), x.detach(m, token, 2)
			x.fails(first, token)
			x.purged(store.Versioned{Key: first.Key})
			x.wantGone(first)
			x.wantRetried(m.Key, second)
			x.wantSeries(m, 2, 1, 0)
		}},
	}
}

func (x *trial) purge(some ...store.Versioned) []error {
	x.Helper()
	results := x.store.Purge(x.ctx, some)
	if len(results) != len(some) {
		x.Fatalf("Purge of %d messages answered %d results", len(some), len(results))
	}
	return results
}

func (x *trial) purged(f store.Versioned) {
	x.Helper()
	if err := x.purge(f)[0]; err != nil {
		x.Errorf("Purge of %s: %v", f.Key.ScheduleID, err)
	}
}

func purgeOthers(x *trial) {
	token := x.own(home)
	waiting, delivered, cancelled, redriven := x.add(t0), x.add(t0), x.add(t0), x.fails(x.add(t0), token)
	failed := x.fails(x.add(t0), token)
	x.settle(x.settlement(delivered, token, store.SettleDelivered))
	x.wantCancelled(cancelled)
	x.redriven(redriven, t0+9)
	for _, m := range []postdate.Message{waiting, delivered, cancelled, redriven} {
		before := x.get(m.Key)
		for _, version := range []uint64{0, before.Version, before.Version - 1} {
			x.wantKind(x.purge(store.Versioned{Key: m.Key, Version: version})[0], postdate.KindConflict)
		}
		x.wantRecord(x.get(m.Key), before)
	}
	x.wantKind(x.purge(store.Versioned{Key: failed.Key, Version: x.first[failed.Key] + 1})[0], postdate.KindConflict)
	x.wantStatus(failed, postdate.DeliveryFailed)
}

func purgeMany(x *trial) {
	token := x.own(home)
	var some []store.Versioned
	for range 5 {
		some = append(some, store.Versioned{Key: x.fails(x.add(t0), token).Key})
	}
	kept, missing := x.add(t0), x.message(t0)
	some = slices.Concat(some[:2], []store.Versioned{{Key: kept.Key}, {Key: missing.Key}}, some[2:], some[:1])
	results := x.purge(some...)
	for i, err := range results {
		switch i {
		case 2:
			x.wantKind(err, postdate.KindConflict)
		case 3, 7:
			x.wantKind(err, postdate.KindNotFound)
		default:
			_, there := x.store.Get(x.ctx, some[i].Key)
			if err != nil || there == nil {
				x.Errorf("item %d: %v, and then Get: %v", i, err, there)
			}
		}
	}
	x.wantList(store.ListQuery{Tenant: tenant, Limit: plenty}, []postdate.Message{kept})
}

func durableRedriven(x *trial) {
	token := x.own(home)
	m, gone := x.fails(x.add(t0), token), x.fails(x.add(t0), token)
	want := x.redriven(m, t0+9)
	x.purged(store.Versioned{Key: gone.Key})
	x.crash()
	x.wantRecord(x.get(m.Key), want)
	x.wantGone(gone)
	x.wantFound(everything(home, x.own(home), t0+9), want)
}
