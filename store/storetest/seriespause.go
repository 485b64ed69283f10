package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// pausingSeries checks how series are paused, rest and are resumed.
func pausingSeries() []check {
	return []check{
		{"a series is paused before its occurrence is claimed, and claims return it so", pauseEarly},
		{"a series is paused after its occurrence was claimed, and claims return it so", pauseClaimed},
		{"a paused series stays paused, whatever settles its occurrence, and what is retried is not paused",
			pauseKept},
		{"a paused series stays paused when it is parked, unparked, changed and cancelled", pauseStays},
		{"a pause of another version conflicts, and changes nothing", func(x *trial) {
			m := x.addSeries(t0)
			for _, paused := range []bool{false, true} {
				want := x.get(m.Key)
				for _, version := range []uint64{0, 1, want.Version - 1, want.Version + 1} {
					x.wantKind(x.store.Pause(x.ctx, m.Key, version), postdate.KindConflict)
					x.wantRecord(x.get(m.Key), want)
				}
				if !paused {
					x.pause(m)
				}
			}
			was := x.get(m.Key)
			x.changes(m, 2)
			want := x.get(m.Key)
			x.wantKind(x.store.Pause(x.ctx, m.Key, was.Version), postdate.KindConflict)
			x.wantRecord(x.get(m.Key), want)
		}},
		{"only a series is paused that goes on", pauseOthers},
		{"a series that rests keeps its occurrence and its counts, and is never due", restWaits},
		{"only the owner lets a series rest, with its present occurrence and version", restStale},
		{"a series that rests is CANCELLED at once, although all was claimed", func(x *trial) {
			m := x.rested()
			x.wantCancelled(m)
			x.wantDue(everything(home, x.own(home), postdate.LatestTime))
		}},
		{"a series that rests is resumed, and due at its time, although all was claimed", restResumed},
		{"a series that is ending is CANCELLED when it is to rest", restEnding},
		{"of a pause and a change at once one goes through, and a pause that does is not lost", pauseOrChange},
		{"a pause is not lost in a settlement at the same time", pauseAndSettle},
		{"a pause and a cancel at once leave the series CANCELLED", pauseAndCancel},
	}
}

// wantShown expects that a series is read, listed and claimed as it is now.
func (x *trial) wantShown(m postdate.Message, token uint64, at postdate.Time) {
	x.Helper()
	want := x.get(m.Key)
	for _, r := range x.list(store.ListQuery{Tenant: tenant, Status: postdate.Pending, Limit: 3}, nil) {
		x.wantRecord(r, want)
	}
	x.wantFound(everything(home, token, at), want)
}

func pauseEarly(x *trial) {
	m := x.addSeries(t0)
	x.pause(m)
	if !x.get(m.Key).Paused {
		x.broken("a pause was answered, and the series is not paused")
	}
	token := x.own(home)
	x.wantFound(everything(home, token, begins(m, 1)-1)) // it is due when it would be
	x.wantShown(m, token, begins(m, 1))
	x.pause(m)
	x.wantShown(m, x.own(home), begins(m, 1))
}

func pauseClaimed(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleFailed, 1))
	x.wantFound(everything(home, token, begins(m, 2)), x.get(m.Key))
	x.pause(m)
	if got := x.get(m.Key); !got.Paused || got.Version != x.first[m.Key] {
		x.broken("a pause of version %d was answered, and the state is %+v", x.first[m.Key], got.State)
	}
	x.wantShown(m, token, begins(m, 2))
	x.wantNoChange(m)
}

// wantNoChange expects that a claimed series cannot be changed.
func (x *trial) wantNoChange(m postdate.Message) {
	x.Helper()
	was := x.get(m.Key)
	_, err := x.store.Replace(x.ctx, asChanged(was, 9), was)
	x.wantKind(err, postdate.KindTooLate)
	x.wantRecord(x.get(m.Key), was)
}

// pauseKept pauses series of which an occurrence is in flight, some of which were changed before.
func pauseKept(x *trial) {
	token := x.own(home)
	for i, how := range append(inFlight, inFlight...) {
		m := x.addSeries(t0 + postdate.Time(i)*10*every) // that is not claimed yet
		if i >= len(inFlight) {
			x.changes(m, 1)
		}
		changes := x.get(m.Key).Changes
		x.claim(everything(home, token, begins(m, 1)))
		x.pause(m)
		s := x.ends(m, token, how, 1)
		s.PossibleDuplicate = i%2 == 0
		got := x.settled(s)
		if !got.Paused || got.Changes != changes {
			x.broken("settled as %d, a paused series that was changed %d times has the state %+v",
				how, changes, got.State)
		}
		if how == store.SettleRetry {
			child := x.get(alone(m, 1).Key)
			if child.Paused || child.Changes != 0 {
				x.broken("an occurrence that is retried has the state %+v", child.State)
			}
			x.settled(x.settlementOf(child, token, store.SettleDelivered))
		}
		x.wantRetried(m.Key)
		run := got.Run
		for _, again := range []store.Settling{store.SettleRetry, store.SettleFailed} { // as a whole
			bare := x.ends(m, token, again, run)
			bare.Next = store.Next{}
			if bare.How == store.SettleFailed {
				bare.Next.Over = true
			}
			if got := x.settled(bare); !got.Paused || got.Changes != changes {
				x.broken("settled as %d at the end, the series has the state %+v", again, got.State)
			}
		}
	}
}

// settlementOf is a settlement of a message as it is.
func (x *trial) settlementOf(r postdate.Record, token uint64, how store.Settling) store.Settlement {
	x.first[r.Key] = r.Version
	return x.settlement(r.Message, token, how)
}

func pauseStays(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.claim(everything(home, token, begins(m, 1)))
	x.settled(x.parks(m, token, 1))
	x.pause(m) // nobody can be sending it
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
	want := x.get(m.Key)
	if n := x.unpark(token, orders, begins(m, 1)+9, plenty); n != 1 {
		x.Errorf("Unpark moved %d messages, want 1", n)
	}
	want.Parked, want.AttemptTime = false, begins(m, 1)+9
	x.wantRecord(x.get(m.Key), want)
	x.wantShown(m, token, want.AttemptTime)
	x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
	x.changes(m, 3, withPayload(20))
	x.wantCancelled(m)
	if got := x.get(m.Key); !got.Paused || got.Changes != 1 {
		x.Errorf("a cancelled series that was paused and changed has the state %+v", got.State)
	}
}

// unpausable are messages that can be neither paused nor triggered, with the reason.
func (x *trial) unpausable(token uint64) map[postdate.Kind][]postdate.Record {
	ending, cancelled, over, ended := x.addSeries(t0), x.addSeries(t0+99*every), x.addSeries(t0), x.addSeries(t0)
	once, sent, parent := x.add(t0), x.add(t0), x.addSeries(t0)
	x.wantCancelled(cancelled)
	child := x.detach(parent, token, 1)
	x.wantEnding(ending)
	x.wantEnding(ended)
	x.settled(x.goesOn(ended, token, store.SettleDelivered, 1))
	x.settled(x.isOver(over, token, store.SettleDelivered, 1))
	x.settled(x.settlement(sent, token, store.SettleDelivered))
	of := func(messages ...postdate.Message) (all []postdate.Record) {
		for _, m := range messages {
			all = append(all, x.get(m.Key))
		}
		return all
	}
	return map[postdate.Kind][]postdate.Record{
		postdate.KindTooLate:  of(ending, cancelled, over, ended, sent),
		postdate.KindConflict: of(once, child),
		postdate.KindNotFound: {postdate.NewRecord(x.message(t0, recurring), 1)},
	}
}

func pauseOthers(x *trial) {
	for kind, records := range x.unpausable(x.own(home)) {
		for _, r := range records {
			x.wantKind(x.store.Pause(x.ctx, r.Key, r.Version), kind)
			if kind == postdate.KindNotFound {
				x.wantGone(r.Message)
			} else {
				x.wantRecord(x.get(r.Key), r)
			}
		}
	}
}

// rested is a series that rests with its second occurrence. All is claimed.
func (x *trial) rested() postdate.Message {
	x.Helper()
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
	x.pause(m)
	x.claim(everything(home, token, postdate.LatestTime))
	x.settled(x.rests(m, token, 2))
	return m
}

func restWaits(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleFailed, 1))
	x.changes(m, 2)
	x.pause(m)
	x.claim(everything(home, token, begins(m, 2)))
	want := x.get(m.Key)
	want.AttemptTime = postdate.Far
	s := x.rests(m, token, 2)
	x.settled(s)
	x.wantRecord(x.get(m.Key), want)
	x.nothing([]postdate.Key{m.Key}, s)
	if r := x.claim(everything(home, token, postdate.LatestTime)); len(r.Due) > 0 {
		x.broken("a series that rests is due: %v", idsOf(r.Due))
	}
	x.wantList(store.ListQuery{Tenant: tenant, Status: postdate.Pending, Limit: 2}, []postdate.Message{m})
	x.wantUsage(tenant, usageOf(m))
	x.pause(m)

	parked := x.addSeries(t0)
	x.settled(x.parks(parked, token, 1))
	x.pause(parked)
	x.settled(x.rests(parked, token, 1)) // a scan returned it when its time had come
	x.wantParked([]int{home})
	x.wantFound(everything(home, token, postdate.LatestTime))
	x.settled(x.goesOn(parked, token, store.SettleDelivered, 1)) // a delivery is a fact
}

func restStale(x *trial) {
	m := x.addSeries(t0)
	stale := x.own(home)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleDelivered, 1))
	x.pause(m)
	x.claim(everything(home, token, begins(m, 2)))
	fenced, ahead, old, next := x.rests(m, stale, 2), x.rests(m, token+1, 2), x.rests(m, token, 2), x.rests(m, token, 2)
	old.Version--
	next.Version++
	x.nothing([]postdate.Key{m.Key}, fenced, ahead, old, next, x.rests(m, token, 1), x.rests(m, token, 3))
	x.wantShown(m, token, begins(m, 2))
	x.settled(x.rests(m, token, 2))
	x.nothing([]postdate.Key{m.Key}, x.rests(m, token, 1), x.goesOn(m, token, store.SettleFailed, 1))
}

func restResumed(x *trial) {
	m := x.rested()
	token := x.partition(home).Token
	resumed := func(present int) postdate.Record {
		was := x.get(m.Key)
		next := asChanged(was, present)
		next.Paused = !was.Paused
		x.puts(next, was)
		return next
	}
	want := resumed(3)
	x.wantFound(everything(home, token, postdate.LatestTime), want)
	x.settled(x.after(x.goesOn(m, token, store.SettleDelivered, 3)))
	if got := x.get(m.Key); got.Run != 3 || got.Occurrence != occurrence(m, 4) || got.Paused {
		x.Errorf("the series that was resumed has the state %+v", got.State)
	}
	x.settled(x.after(x.isOver(m, token, store.SettleDelivered, 4)))

	m = x.rested()
	was := x.get(m.Key)
	edited := asChanged(was, 2, withPayload(6000))
	edited.AttemptTime = postdate.Far // changed, and still at rest
	x.puts(edited, was)
	token = x.partition(home).Token
	x.wantFound(everything(home, token, postdate.LatestTime))
	x.wantFound(everything(home, token, postdate.LatestTime), resumed(5))
}

func restEnding(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.settled(x.goesOn(m, token, store.SettleFailed, 1))
	x.claim(everything(home, token, begins(m, 2)))
	x.pause(m)
	x.wantEnding(m)
	s := x.rests(m, token, 2)
	s.At = t0 + 777
	x.settled(s)
	want := x.get(m.Key)
	if want.Status != postdate.Cancelled || want.SettledAt != s.At || want.Ending || !want.Withdrawn() {
		x.broken("a series that was ending and is to rest has the state %+v", want.State)
	}
	x.wantSeries(m, 1, 1, 0)
	x.nothing([]postdate.Key{m.Key}, s, x.goesOn(m, token, store.SettleDelivered, 2))
	if got := x.cancel(m, t0); got.Err != nil || got.Changed {
		x.Errorf("cancelled again: got %+v", got)
	}
	x.wantDue(everything(home, token, postdate.LatestTime))
}

func pauseOrChange(x *trial) {
	for i := range 100 {
		m := x.addSeries(t0 + every)
		was := x.get(m.Key)
		next := asChanged(was, 1, withPayload(i))
		var paused, changed error
		both(func() { paused = x.store.Pause(x.ctx, m.Key, was.Version) },
			func() { _, changed = x.store.Replace(x.ctx, next, was) })
		if (paused == nil) == (changed == nil) {
			x.broken("a pause answered %v, and a change at the same time %v", paused, changed)
		}
		want := next
		if paused == nil {
			x.wantKind(changed, postdate.KindConflict)
			want = was
			want.Paused = true
		} else {
			x.wantKind(paused, postdate.KindConflict)
		}
		x.wantRecord(x.get(m.Key), want)
	}
}

func pauseAndSettle(x *trial) {
	token := x.own(home)
	for i := range 80 {
		m := x.addSeries(t0)
		x.claim(everything(home, token, begins(m, 1)))
		want := x.get(m.Key)
		s := x.goesOn(m, token, advances[i%len(advances)], 1)
		want.State, want.Series = s.State(want.State), s.Series(want.State, want.Series)
		want.Paused = true
		both(func() {
			if err := x.store.Pause(x.ctx, m.Key, want.Version); err != nil {
				x.Errorf("Pause: %v", err)
			}
		}, x.settling(s))
		x.wantRecord(x.get(m.Key), want)
	}
}

func pauseAndCancel(x *trial) {
	for range 60 {
		m := x.addSeries(t0 + every)
		var err error
		both(func() { err = x.store.Pause(x.ctx, m.Key, x.first[m.Key]) }, func() {
			if got := x.cancel(m, t0); got.Err != nil {
				x.Errorf("Cancel: got %+v", got)
			}
		})
		if err != nil {
			x.wantKind(err, postdate.KindTooLate)
		}
		if got := x.get(m.Key); got.Status != postdate.Cancelled || got.Paused != (err == nil) {
			x.broken("a pause answered %v, and after a cancel at the same time the state is %+v", err, got.State)
		}
	}
}
