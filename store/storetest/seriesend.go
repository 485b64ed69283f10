package storetest

import (
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// seriesEnds checks how series end.
func seriesEnds() []check {
	return []check{
		{"after its last occurrence a series is DELIVERED, whatever became of that", seriesOver},
		{"a series whose occurrence is not claimed is CANCELLED at once, and keeps its counts", cancelSeries},
		{"a claimed series is ending: the cancel is too late, and says so, as often as it is made", cancelEnding},
		{"whatever settles the occurrence of a series that is ending makes it CANCELLED", endingSettled},
		{"a settlement that changes nothing does not end a series", endingStale},
		{"a series that is ending is claimed again, and is still ending", func(x *trial) {
			m := x.addSeries(t0)
			x.claim(everything(home, x.own(home), begins(m, 1)))
			x.wantEnding(m)
			token := x.own(home)
			x.wantFound(everything(home, token, begins(m, 1)), x.get(m.Key))
			x.settled(x.goesOn(m, token, store.SettleSkip, 1))
			x.wantStatus(m, postdate.Cancelled)
		}},
		{"a possible duplicate is ending, wherever it waits, and also after it is unparked", endingDoubtful},
		{"a parked series is CANCELLED at once", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			x.claim(everything(home, token, begins(m, 1)))
			x.settled(x.parks(m, token, 1))
			x.wantCancelled(m)
			x.wantParked([]int{home})
			if n := x.unpark(token, orders, t0+1, plenty); n != 0 {
				x.Errorf("Unpark moved %d messages, want none", n)
			}
			x.wantDue(everything(home, token, begins(m, 9)))
		}},
		{"only a series is ending, and only while it is PENDING", endingOthers},
		{"of many that are cancelled each stands or falls alone", cancelSeriesMany},
		{"a cancel and a settlement at once end a series, whichever is first", endingRace},
		{"a series that ended expires, and none that goes on does", expireSeries},
	}
}

// wantEnding expects that a cancel of a series is too late, and that it is ending then.
func (x *trial) wantEnding(m postdate.Message) {
	x.Helper()
	want := x.get(m.Key)
	want.Ending = true
	for range 2 {
		got := x.cancel(m, t0+7)
		x.wantKind(got.Err, postdate.KindTooLate)
		if got.State != want.State || got.Changed {
			x.broken("Cancel of a claimed series: got %+v, want the state %+v", got, want.State)
		}
		x.wantRecord(x.get(m.Key), want)
	}
}

func seriesOver(x *trial) {
	token := x.own(home)
	for _, how := range advances {
		m := x.addSeries(t0)
		x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
		x.claim(everything(home, token, begins(m, 2)))
		s := x.isOver(m, token, how, 2)
		s.At = t0 + 777
		got := x.settled(s)
		if got.Status != postdate.Delivered || got.SettledAt != s.At || got.Occurrence != occurrence(m, 2) ||
			got.Run != 2 || len(got.Series.History) != 2 {
			x.Errorf("settled as %d for the last time, a series has the state %+v and the counts %+v",
				how, got.State, got.Series)
		}
		for _, again := range advances {
			x.nothing([]postdate.Key{m.Key}, x.isOver(m, token, again, 2), x.goesOn(m, token, again, 2))
		}
		x.wantKind(x.cancel(m, t0).Err, postdate.KindTooLate)
		if how == store.SettleRetry {
			child := alone(m, 2)
			x.first[child.Key] = got.Version
			x.settled(x.settlement(child, token, store.SettleDelivered))
		}
		x.wantDue(everything(home, token, begins(m, 9)))
	}
}

func cancelSeries(x *trial) {
	m, later := x.addSeries(t0), x.addSeries(t0)
	first := x.cancel(m, t0-100)
	want := fresh(m)
	want.Version, want.Status, want.SettledAt = x.first[m.Key], postdate.Cancelled, t0-100
	if first.Err != nil || !first.Changed || first.State != want.State {
		x.Errorf("Cancel: got %+v, want the state %+v", first, want.State)
	}
	x.wantRecord(x.get(m.Key), want)
	if again := x.cancel(m, t0-50); again.Err != nil || again.Changed || again.State != want.State {
		x.Errorf("cancelled again: got %+v", again)
	}
	token := x.own(home)
	x.wantDue(everything(home, token, begins(later, 1)), later)
	x.settled(x.goesOn(later, token, store.SettleFailed, 1))
	x.wantCancelled(later) // its next occurrence is not claimed
	x.wantSeries(later, 1, 1, 0)
	if got := x.get(later.Key); got.Ending || got.Run != 2 || got.Occurrence != occurrence(later, 2) {
		x.Errorf("a cancelled series has the state %+v", got.State)
	}
	x.nothing([]postdate.Key{m.Key, later.Key}, x.goesOn(m, token, store.SettleDelivered, 1),
		x.goesOn(later, token, store.SettleDelivered, 2))
	x.wantDue(everything(home, token, begins(m, 9)))
}

func cancelEnding(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
	x.claim(everything(home, token, begins(m, 2)))
	x.wantEnding(m)
	present, err := Replace(x.ctx, x.store, changed(m), x.first[m.Key])
	x.wantKind(err, postdate.KindTooLate)
	x.wantRecord(present, x.get(m.Key))
	for _, r := range x.list(store.ListQuery{Tenant: tenant, Status: postdate.Pending, Limit: 3}, nil) {
		x.wantRecord(r, x.get(m.Key))
	}
	x.wantFound(everything(home, token, begins(m, 2)), x.get(m.Key))
	x.release(store.Hold{Bucket: home, Token: token})
	x.wantEnding(m)
}

func endingSettled(x *trial) {
	token := x.own(home)
	type settle = func(m postdate.Message, how store.Settling) store.Settlement
	end := func(settle settle, how store.Settling, counts ...int64) {
		m := x.addSeries(t0)
		x.claim(everything(home, token, begins(m, 1)))
		x.wantEnding(m)
		s := settle(m, how)
		s.At, s.PossibleDuplicate = t0+777, how == store.SettleRetry
		got := x.settled(s)
		if got.Status != postdate.Cancelled || got.SettledAt != s.At || got.Ending || got.Parked || got.DownSince != 0 {
			x.Errorf("settled as %d, a series that is ending has the state %+v", how, got.State)
		}
		x.wantSeries(m, counts[0], counts[1], counts[2])
		x.wantRetried(m.Key)
		x.wantParked([]int{home})
		x.nothing([]postdate.Key{m.Key}, s, x.goesOn(m, token, store.SettleDelivered, 1))
		again := x.cancel(m, t0+888)
		if again.Changed || again.State != got.State {
			x.Errorf("cancelled again: got %+v, want the state %+v", again, got.State)
		}
		if s.PossibleDuplicate { // its last occurrence may still arrive
			x.wantKind(again.Err, postdate.KindTooLate)
		} else if again.Err != nil {
			x.Errorf("cancelled again: %v", again.Err)
		}
		x.wantDue(everything(home, token, begins(m, 9)))
	}
	on := func(m postdate.Message, how store.Settling) store.Settlement { return x.goesOn(m, token, how, 1) }
	over := func(m postdate.Message, how store.Settling) store.Settlement { return x.isOver(m, token, how, 1) }
	bare := func(m postdate.Message, how store.Settling) store.Settlement {
		s := x.goesOn(m, token, how, 1)
		s.Next, s.DownSince = store.Next{}, t0+1
		return s
	}
	for _, way := range []settle{on, over} {
		end(way, store.SettleDelivered, 1, 0, 0)
		end(way, store.SettleFailed, 1, 1, 0)
		end(way, store.SettleRetry, 1, 1, 0) // it is not tried again
		end(way, store.SettleSkip, 0, 0, 1)
	}
	end(bare, store.SettlePark, 0, 0, 0)
	end(bare, store.SettleFailed, 0, 0, 0)
	end(bare, store.SettleRetry, 0, 0, 0)
}

func endingStale(x *trial) {
	m := x.addSeries(t0)
	stale := x.own(home)
	x.settled(x.goesOn(m, stale, store.SettleDelivered, 1))
	token := x.own(home)
	x.claim(everything(home, token, begins(m, 2)))
	x.wantEnding(m)
	for _, how := range advances {
		x.nothing([]postdate.Key{m.Key}, x.goesOn(m, token, how, 1), x.goesOn(m, token, how, 3))
		if how != store.SettleDelivered {
			x.nothing([]postdate.Key{m.Key}, x.goesOn(m, stale, how, 2))
		}
	}
	x.nothing([]postdate.Key{m.Key}, x.parks(m, stale, 2), x.parks(m, token, 1))
	x.settled(x.goesOn(m, stale, store.SettleDelivered, 2))
	x.wantStatus(m, postdate.Cancelled)
}

func endingDoubtful(x *trial) {
	parked, retried := x.addSeries(t0), x.addSeries(t0, onRoute("kafka:b"))
	token := x.own(home)
	x.claim(everything(home, token, begins(parked, 1)))
	park, retry := x.parks(parked, token, 1), x.goesOn(retried, token, store.SettleRetry, 1)
	park.PossibleDuplicate, retry.PossibleDuplicate, retry.Next = true, true, store.Next{}
	x.settled(park)
	x.settled(retry)
	x.wantEnding(parked)
	x.wantEnding(retried)
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
	want := x.get(parked.Key)
	if n := x.unpark(token, orders, begins(parked, 1)+9, plenty); n != 1 {
		x.Errorf("Unpark moved %d messages, want 1", n)
	}
	want.Parked, want.AttemptTime = false, begins(parked, 1)+9
	x.wantFound(everything(home, token, want.AttemptTime), want)
	x.wantEnding(parked)
	x.settled(x.parks(parked, token, 1))
	x.wantStatus(parked, postdate.Cancelled)
	x.settled(x.goesOn(retried, token, store.SettleDelivered, 1))
	x.wantStatus(retried, postdate.Cancelled)
}

func endingOthers(x *trial) {
	once, over := x.add(t0), x.addSeries(t0)
	token := x.own(home)
	x.claim(everything(home, token, begins(over, 1)))
	x.settled(x.isOver(over, token, store.SettleDelivered, 1))
	x.wantTooLate(once)
	x.wantTooLate(over)
	x.settled(x.retryAt(once, token, t0+50)) // it goes on as if nobody had asked
	x.wantStatus(once, postdate.Pending)
}

func cancelSeriesMany(x *trial) {
	m, next, once, missing := x.addSeries(t0), x.addSeries(t0+every), x.add(t0+every), x.message(t0, recurring)
	other := x.messageIn(abroad, tenant, t0, recurring)
	x.insert(other)
	token := x.own(home)
	child := x.detach(m, token, 1)
	x.claim(everything(home, token, begins(m, 2)))
	after := x.addSeries(t0 + 9*every)
	keys := keysOf([]postdate.Message{m, after, missing, m, child, other, next, once})
	results := x.store.Cancel(x.ctx, keys, t0-1)
	if len(results) != len(keys) {
		x.Fatalf("Cancel of %d messages answered %d results", len(keys), len(results))
	}
	for i, result := range results {
		switch i {
		case 2:
			x.wantKind(result.Err, postdate.KindNotFound)
			continue
		case 1, 5:
			if result.Err != nil || result.State.Status != postdate.Cancelled {
				x.Errorf("item %d: got %+v, want it CANCELLED", i, result)
			}
		default:
			x.wantKind(result.Err, postdate.KindTooLate)
		}
		if state := x.get(keys[i]).State; result.State != state {
			x.Errorf("item %d: got the state %+v, want the present one %+v", i, result.State, state)
		}
	}
	for _, each := range []postdate.Message{m, next, child, once} {
		want := each.Recurrence != nil
		if got := x.get(each.Key); got.Status != postdate.Pending || got.Ending != want {
			x.Errorf("%s has the state %+v, want it PENDING, and ending: %t", each.ScheduleID, got.State, want)
		}
	}
}

func endingRace(x *trial) {
	token := x.own(home)
	for i := range 60 {
		m := x.addSeries(t0)
		x.claim(everything(home, token, begins(m, 1)))
		s := x.goesOn(m, token, advances[i%2], 1)
		var group sync.WaitGroup
		group.Go(func() {
			if err := x.store.Settle(x.ctx, []store.Settlement{s}); err != nil {
				x.Errorf("Settle: %v", err)
			}
		})
		got := x.cancel(m, t0+7)
		group.Wait()
		if got.Err != nil {
			x.wantKind(got.Err, postdate.KindTooLate)
		}
		x.wantStatus(m, postdate.Cancelled)
		x.wantSeries(m, 1, int64(i%2), 0)
	}
}

func expireSeries(x *trial) {
	token := x.own(home)
	over, cancelled, ended := x.addSeries(t0), x.addSeries(t0), x.addSeries(t0)
	lives, ending := x.addSeries(t0), x.addSeries(t0)
	x.claim(everything(home, token, begins(over, 1)))
	x.settled(x.goesOn(lives, token, store.SettleDelivered, 1))
	x.settled(x.goesOn(cancelled, token, store.SettleDelivered, 1))
	x.wantEnding(ending)
	x.wantEnding(ended)
	child := alone(over, 1)
	for _, s := range []store.Settlement{
		x.isOver(over, token, store.SettleRetry, 1), x.goesOn(ended, token, store.SettleDelivered, 1),
	} {
		s.At = t0 + 9
		x.settled(s)
	}
	x.cancel(cancelled, t0+9)
	x.expire(t0+9, 0, plenty, 0)
	x.expire(t0+10, 0, plenty, 3)
	for _, m := range []postdate.Message{over, cancelled, ended} {
		x.wantGone(m)
	}
	x.expire(postdate.LatestTime, 0, plenty, 0)
	x.wantRetried(over.Key, child) // it outlives its series
	x.wantStatus(child, postdate.Pending)
	x.wantStatus(lives, postdate.Pending)
	x.wantStatus(ending, postdate.Pending)
	x.insert(over) // the id is free again
	x.wantRecord(x.get(over.Key), fresh(over))
	x.wantDue(everything(home, token, begins(over, 2)), over, ending, child, lives)
}

// durableSeries is a durable check.
func durableSeries(x *trial) {
	m, unborn, parked := x.addSeries(t0), x.addSeries(t0+99*every), x.addSeries(t0)
	token := x.own(home)
	one, two := x.detach(m, token, 1), x.detach(m, token, 2)
	x.settled(x.goesOn(m, token, store.SettleSkip, 3))
	x.settled(x.settlement(one, token, store.SettleFailed))
	x.settled(x.parks(parked, token, 1))
	again := x.goesOn(m, token, store.SettleRetry, 2)
	keys := keysOf([]postdate.Message{m, unborn, parked, one, two})
	before := x.survive(keys)
	x.nothing(keys, again, x.settlement(one, token, store.SettleFailed))
	x.wantSeries(m, 2, 1, 1)
	x.wantRetried(m.Key, two)
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
	token = x.own(home)
	x.wantFound(everything(home, token, begins(m, 4)), before[2], before[4], before[0])
	x.settled(x.settlement(two, token, store.SettleFailed))
	x.settled(x.isOver(m, token, store.SettleDelivered, 4))
	over := x.get(m.Key)
	x.shareUsage()
	x.crash()
	x.wantRecord(x.get(m.Key), over)
	x.wantRetried(m.Key)
	x.shareUsage()
	x.wantUsage(tenant, usageOf(unborn, parked))
	x.wantFound(everything(home, token, begins(m, 9)), before[2])
}

// durableEnding is a durable check.
func durableEnding(x *trial) {
	m, other := x.addSeries(t0), x.addSeries(t0)
	token := x.own(home)
	x.claim(everything(home, token, begins(m, 1)))
	x.wantEnding(m)
	x.wantEnding(other)
	x.settled(x.goesOn(other, token, store.SettleDelivered, 1))
	want, ended := x.get(m.Key), x.get(other.Key)
	x.crash()
	x.wantRecord(x.get(m.Key), want)
	x.wantRecord(x.get(other.Key), ended)
	token = x.own(home)
	x.wantFound(everything(home, token, begins(m, 1)), want)
	x.settled(x.goesOn(m, token, store.SettleRetry, 1))
	x.wantStatus(m, postdate.Cancelled)
	ended = x.get(m.Key)
	x.crash()
	x.wantRecord(x.get(m.Key), ended)
	x.wantRetried(m.Key)
	x.wantDue(everything(home, token, begins(m, 9)))
}
