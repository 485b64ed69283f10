package storetest

import (
	"sync"
	"sync/atomic"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// forgetting checks that what has ended can be deleted before its retention is over.
func forgetting() []check {
	return []check{
		{"what has ended in whatever way is gone at once", forgetEnded},
		{"what is PENDING conflicts, wherever it waits, and stays as it is", forgetPending},
		{"another version conflicts, and changes nothing", func(x *trial) {
			m := x.add(t0)
			x.replace(changed(m))
			x.wantCancelled(m)
			want := x.get(m.Key)
			for _, version := range []uint64{0, want.Version - 1, want.Version + 1} {
				x.wantConflict(m, version)
			}
			x.forget(m)
		}},
		{"what is not there is KindNotFound, also what was forgotten before", func(x *trial) {
			m := x.message(t0)
			x.wantKind(x.store.Forget(x.ctx, m.Key, 1), postdate.KindNotFound)
			x.insert(m)
			x.wantCancelled(m)
			x.forget(m)
			for range 2 {
				x.wantKind(x.store.Forget(x.ctx, m.Key, x.first[m.Key]), postdate.KindNotFound)
			}
		}},
		{"the id is free for a new message, which is delivered whatever is repeated of the old one", forgetReuse},
		{"the id of a series is free for a new one", forgetSeries},
		{"what is retried of a series stays, and so do extra occurrences", forgetParent},
		{"only the message with the key goes", forgetOne},
		{"what is pending counts as before", func(x *trial) {
			m, other := x.add(t0), x.add(t0)
			x.wantCancelled(m)
			x.forget(m)
			x.wantUsage(tenant, usageOf(other))
			x.insert(m)
			x.wantUsage(tenant, usageOf(m, other))
		}},
		{"of many that forget one message exactly one does", forgetRace},
		{"who forget, expire and insert at once delete each message once, and never the next one", forgetReuseRace},
	}
}

// forget forgets what m's key has, and expects it to be nowhere.
func (x *trial) forget(m postdate.Message) {
	x.Helper()
	if err := x.store.Forget(x.ctx, m.Key, x.get(m.Key).Version); err != nil {
		x.Fatalf("Forget of %s: %v", m.ScheduleID, err)
	}
	x.wantGone(m)
	for _, r := range x.list(store.ListQuery{Tenant: m.Tenant, Limit: plenty}, nil) {
		if r.Key == m.Key {
			x.broken("%s is forgotten, and listed", m.ScheduleID)
		}
	}
}

// wantConflict expects that m is not forgotten at a version, and stays as it is.
func (x *trial) wantConflict(m postdate.Message, version uint64) {
	x.Helper()
	before := x.get(m.Key)
	x.wantKind(x.store.Forget(x.ctx, m.Key, version), postdate.KindConflict)
	x.wantRecord(x.get(m.Key), before)
}

func forgetEnded(x *trial) {
	token := x.own(home)
	cancelled, delivered, failed, kept := x.add(t0+50), x.add(t0), x.add(t0), x.add(t0)
	over, ended, stopped, parent := x.addSeries(t0), x.addSeries(t0), x.addSeries(t0+99*every), x.addSeries(t0)
	x.wantCancelled(cancelled)
	x.wantCancelled(stopped)
	child := x.detach(parent, token, 1)
	x.wantEnding(ended)
	x.settle(x.settlement(delivered, token, store.SettleDelivered), x.settlement(failed, token, store.SettleFailed),
		x.settlement(kept, token, store.SettleDelivered), x.settlement(child, token, store.SettleDelivered),
		x.isOver(over, token, store.SettleDelivered, 1), x.goesOn(ended, token, store.SettleDelivered, 1))
	for _, m := range []postdate.Message{cancelled, delivered, failed, over, ended, stopped, child} {
		x.forget(m)
	}
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 1}, []postdate.Message{kept, parent})
	x.expire(postdate.LatestTime, 0, plenty, 1) // the one that is kept
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 1}, []postdate.Message{parent})
}

func forgetPending(x *trial) {
	waiting, claimed, retried, parked := x.add(t0+99*every), x.add(t0), x.add(t0), x.add(t0)
	series, ending, paused, resting := x.addSeries(t0+99*every), x.addSeries(t0), x.addSeries(t0), x.addSeries(t0)
	token := x.own(home)
	x.claim(everything(home, token, begins(ending, 1)))
	x.settle(x.retryAt(retried, token, t0+5), x.settlement(parked, token, store.SettlePark))
	x.wantEnding(ending)
	x.pause(paused)
	x.pause(resting)
	x.settled(x.rests(resting, token, 1))
	all := []postdate.Message{waiting, claimed, retried, parked, series, ending, paused, resting}
	for _, m := range all {
		x.wantConflict(m, x.first[m.Key])
	}
	x.wantUsage(tenant, usageOf(all...))
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
	x.wantDue(everything(home, token, begins(ending, 1)), claimed, retried, ending, paused)
}

func forgetReuse(x *trial) {
	token := x.own(home)
	for _, same := range []bool{true, false} {
		for first := range ways {
			m := x.add(t0)
			x.claim(everything(home, token, t0))
			late, old := x.inEveryWay(m, token), x.first[m.Key]
			x.settle(late[first])
			x.settle(late[0]) // delivered after all
			x.forget(m)
			again := m
			if !same {
				again = changed(m)
				again.ExecutionTime = t0 - 5
			}
			x.insert(again)
			if x.first[m.Key] == old {
				x.broken("a new message has the version of the one that was forgotten")
			}
			want := x.get(m.Key)
			x.wantRecord(want, fresh(again))
			x.nothing([]postdate.Key{m.Key}, late...)
			x.wantConflict(again, old)
			x.expire(postdate.LatestTime, 0, plenty, 0)
			x.wantFound(everything(home, token, t0), want)
			x.settled(x.settlement(again, token, store.SettleDelivered))
			x.expire(postdate.LatestTime, 0, plenty, 1)
			x.wantGone(m)
		}
	}
}

func forgetSeries(x *trial) {
	token := x.own(home)
	m := x.addSeries(t0)
	child := x.detach(m, token, 1)
	x.wantCancelled(m)
	old := x.goesOn(m, token, store.SettleDelivered, 1)
	x.forget(m)
	again := changed(m)
	x.insert(again)
	x.wantRecord(x.get(m.Key), fresh(again))
	x.nothing([]postdate.Key{m.Key}, old)
	x.settled(x.settlement(child, token, store.SettleFailed))
	x.wantSeries(again, 0, 0, 0) // it was of another one
	x.claim(everything(home, token, begins(again, 1)))
	x.settled(x.goesOn(again, token, store.SettleDelivered, 1))
	x.wantSeries(again, 1, 0, 0)
}

func forgetParent(x *trial) {
	token := x.own(home)
	m := x.addSeries(t0)
	child := x.detach(m, token, 1)
	extra := x.trigger(m, t0-7)
	x.wantCancelled(m)
	before := []postdate.Record{x.get(child.Key), x.get(extra.Key)}
	x.forget(m)
	for _, r := range before {
		x.wantRecord(x.get(r.Key), r)
	}
	x.wantRetried(m.Key, child, extra)
	x.wantUsage(tenant, usageOf(child, extra))
	x.settled(x.settlement(extra, token, store.SettleFailed))
	x.wantFound(everything(home, token, before[0].AttemptTime), before[0])
	x.settled(x.settlement(child, token, store.SettleDelivered))
	x.wantGone(m)
	x.forget(child)
	x.wantStatus(extra, postdate.DeliveryFailed)
}

// forgetOne forgets one of several messages that are alike but for a part of their keys.
func forgetOne(x *trial) {
	m := x.messageIn(home, tenant, t0)
	longer, theirs := m, m
	longer.ScheduleID += "0"
	theirs.Tenant = "tenant-b"
	for _, other := range []postdate.Message{longer, theirs} {
		x.insert(other)
		x.wantCancelled(other)
	}
	x.wantKind(x.store.Forget(x.ctx, m.Key, x.first[longer.Key]), postdate.KindNotFound)
	x.insert(m)
	x.wantCancelled(m)
	x.forget(m)
	x.wantStatus(longer, postdate.Cancelled)
	x.wantStatus(theirs, postdate.Cancelled)
	x.expire(postdate.LatestTime, 0, plenty, 2)
}

func forgetRace(x *trial) {
	m := x.add(t0)
	x.wantCancelled(m)
	var group sync.WaitGroup
	var won atomic.Int32
	for range 16 {
		group.Go(func() {
			if err := x.store.Forget(x.ctx, m.Key, x.first[m.Key]); err == nil {
				won.Add(1)
			} else {
				x.wantKind(err, postdate.KindNotFound)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		x.Errorf("%d forgot one message, want 1", won.Load())
	}
	x.wantGone(m)
}

// forgetReuseRace makes a message, cancels it and makes it again, while others delete it.
func forgetReuseRace(x *trial) {
	const rounds = 25
	m := x.message(t0)
	all := store.Expiry{Buckets: []int{home}, SettledBefore: postdate.LatestTime, Limit: plenty}
	var group sync.WaitGroup
	var deleted atomic.Int64
	var version atomic.Uint64
	stop := make(chan struct{})
	others := func(forget func() (n int, err error)) {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n, err := forget()
				deleted.Add(int64(n))
				kind := postdate.KindOf(err)
				if err != nil && kind != postdate.KindNotFound && kind != postdate.KindConflict {
					x.Errorf("deleting what has ended: %v", err)
				}
			}
		})
	}
	for range 3 {
		others(func() (int, error) {
			if err := x.store.Forget(x.ctx, m.Key, version.Load()); err != nil {
				return 0, err
			}
			return 1, nil
		})
	}
	others(func() (int, error) { return x.store.Expire(x.ctx, all) })
	for made := 0; made < rounds; {
		r := x.store.Insert(x.ctx, []postdate.Message{m})[0]
		if !r.Created { // the last one is still there, or about to go
			continue
		}
		made++
		rec, err := x.store.Get(x.ctx, m.Key)
		if err != nil {
			x.broken("a message that nobody cancelled is gone: %v", err)
			break
		}
		version.Store(rec.Version)
		if c := x.store.Cancel(x.ctx, []postdate.Key{m.Key}, t0)[0]; c.Err != nil || !c.Changed {
			x.broken("a message that nobody else cancelled: %+v", c)
			break
		}
	}
	close(stop)
	group.Wait()
	last, err := x.store.Expire(x.ctx, all)
	if n := deleted.Load() + int64(last); err != nil || n != rounds {
		x.Errorf("%d messages were deleted in all, want %d (%v)", n, rounds, err)
	}
}
