package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func cancelling() []check {
	return []check{
		{"a PENDING message is CANCELLED at the time given, and no scan returns it", cancelPending},
		{"a cancelled message stays cancelled, without an error, as of the first time", func(x *trial) {
			m := x.add(t0)
			if first := x.cancel(m, t0-100); !first.Changed {
				x.Errorf("a cancel that changed the message does not say so: %+v", first)
			}
			again := x.cancel(m, t0-50)
			if again.Err != nil || again.Changed || again.State != x.get(m.Key).State ||
				again.State.SettledAt != t0-100 {
				x.Errorf("cancelled again: got %+v, want it CANCELLED at %d", again, t0-100)
			}
		}},
		{"an id that is not there is KindNotFound", func(x *trial) {
			x.wantKind(x.cancel(x.message(t0), t0).Err, postdate.KindNotFound)
		}},
		{"a claim covers what is due up to it and not beyond", cancelBorder},
		{"a claim covers also what its page was too full for, by bytes", cancelUnscanned},
		{"the claim of a former owner covers too", func(x *trial) {
			m := x.add(t0)
			token := x.own(home)
			x.claim(everything(home, token, t0))
			x.release(store.Hold{Bucket: home, Token: token})
			x.wantTooLate(m)
			x.own(home)
			x.wantTooLate(m)
		}},
		{"a message that ended otherwise is KindTooLate, with its state", func(x *trial) {
			delivered, failed := x.add(t0), x.add(t0)
			token := x.own(home)
			x.claim(everything(home, token, t0))
			x.settle(x.settlement(delivered, token, store.SettleDelivered),
				x.settlement(failed, token, store.SettleFailed))
			x.wantTooLate(delivered)
			x.wantTooLate(failed)
		}},
		{"a message that waits for a retry is judged by its attempt time", cancelRetried},
		{"a parked message can be taken back", func(x *trial) {
			m := x.add(t0)
			token := x.own(home)
			x.claim(everything(home, token, t0))
			x.settle(x.settlement(m, token, store.SettlePark))
			x.wantCancelled(m)
			x.wantParked([]int{home})
			if n := x.unpark(token, orders, t0+1, plenty); n != 0 {
				x.Errorf("Unpark moved %d messages, want none: the parked one was cancelled", n)
			}
			x.wantDue(everything(home, token, t0+10))
		}},
		{"a possible duplicate cannot be taken back, wherever it waits", cancelDoubtful},
		{"each of many stands or falls alone, and results are in order", cancelMany},
		{"a cancel that names a version leaves every other version", cancelVersions},
	}
}

func cancelPending(x *trial) {
	m := x.add(t0)
	got := x.cancel(m, t0-100)
	want := postdate.NewState(&m, x.first[m.Key])
	want.Status, want.SettledAt = postdate.Cancelled, t0-100
	if got.Err != nil || got.State != want {
		x.Errorf("Cancel: got %+v, want the state %+v", got, want)
	}
	x.wantRecord(x.get(m.Key), postdate.Record{Message: m, State: want})
	x.wantDue(everything(home, x.own(home), t0+10))
}

func cancelBorder(x *trial) {
	at, beyond := x.add(t0), x.add(t0+1)
	token := x.own(home)
	x.wantDue(everything(home, token, t0), at)
	x.wantTooLate(at)
	x.wantCancelled(beyond)
	x.wantDue(everything(home, token, t0+10), at)
}

func cancelUnscanned(x *trial) {
	first, second, beyond := x.add(t0), x.add(t0), x.add(t0)
	c := everything(home, x.own(home), t0+5)
	c.Scan.Limit, c.Scan.BytesMax = 2, 1
	r := x.claim(c)
	x.wantIDs("a page of one byte", idsOf(r.Due), first)
	if r.Ended != place(first) || r.To != place(second) {
		x.Errorf("the scan ended at %v of %v, want %v of %v", r.Ended, r.To, place(first), place(second))
	}
	x.wantTooLate(first)
	x.wantTooLate(second)
	x.wantCancelled(beyond)
}

func cancelRetried(x *trial) {
	within, beyond := x.add(t0), x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0+100))
	x.settle(x.retryAt(within, token, t0+100), x.retryAt(beyond, token, t0+101))
	x.wantTooLate(within)
	x.wantCancelled(beyond)
	x.wantDue(everything(home, token, t0+200), within)
}

func cancelDoubtful(x *trial) {
	retried, parked, unparked := x.add(t0), x.add(t0), x.add(t0, onRoute("kafka:b"))
	token := x.own(home)
	x.claim(everything(home, token, t0))
	retry := x.retryAt(retried, token, t0+5000)
	park, park2 := x.settlement(parked, token, store.SettlePark), x.settlement(unparked, token, store.SettlePark)
	retry.PossibleDuplicate, park.PossibleDuplicate, park2.PossibleDuplicate = true, true, true
	x.settle(retry, park, park2)
	if n := x.unpark(token, "kafka:b", t0+5000, plenty); n != 1 {
		x.Errorf("Unpark moved %d messages, want 1", n)
	}
	x.wantTooLate(retried)
	x.wantTooLate(parked)
	x.wantTooLate(unparked)
}

func cancelMany(x *trial) {
	a, late, other := x.add(t0+10), x.add(t0), x.messageIn(abroad, tenant, t0)
	x.insert(other)
	x.claim(everything(home, x.own(home), t0))
	missing := x.message(t0)
	keys := []postdate.Key{a.Key, missing.Key, late.Key, a.Key, other.Key}
	results := x.store.Cancel(x.ctx, keys, t0-1)
	if len(results) != len(keys) {
		x.Fatalf("Cancel of %d messages answered %d results", len(keys), len(results))
	}
	x.wantKind(results[1].Err, postdate.KindNotFound)
	x.wantKind(results[2].Err, postdate.KindTooLate)
	for _, i := range []int{0, 3, 4} {
		if results[i].Err != nil || results[i].State != x.get(keys[i]).State ||
			results[i].State.Status != postdate.Cancelled {
			x.Errorf("item %d: got %+v, want it CANCELLED", i, results[i])
		}
	}
	x.wantStatus(late, postdate.Pending)
}

func cancelVersions(x *trial) {
	m, other, missing, series := x.add(t0+10), x.add(t0+10), x.message(t0), x.addSeries(t0+10)
	at := func(m postdate.Message, more uint64) store.Versioned {
		return store.Versioned{Key: m.Key, Version: x.get(m.Key).Version + more}
	}
	some := []store.Versioned{at(m, 1), {Key: missing.Key, Version: 1}, at(series, 1), at(other, 0), {Key: other.Key}}
	for range 2 { // repeated, it answers the same
		results := x.store.CancelVersions(x.ctx, some, t0-1)
		if len(results) != len(some) {
			x.Fatalf("CancelVersions of %d messages answered %d results", len(some), len(results))
		}
		x.wantKind(results[0].Err, postdate.KindConflict)
		x.wantKind(results[1].Err, postdate.KindNotFound)
		x.wantKind(results[2].Err, postdate.KindConflict)
		for _, r := range results[3:] {
			if r.Err != nil || r.State.Status != postdate.Cancelled {
				x.Errorf("at its version: got %+v, want it CANCELLED", r)
			}
		}
	}
	x.wantStatus(m, postdate.Pending)
	x.wantStatus(series, postdate.Pending)
	x.wantKind(x.store.CancelVersions(x.ctx, []store.Versioned{at(other, 1)}, t0)[0].Err, postdate.KindConflict)

	// Nor does a series end that is in its owner's hands.
	x.claim(everything(home, x.own(home), begins(series, 1)))
	x.wantKind(x.store.CancelVersions(x.ctx, []store.Versioned{at(series, 1)}, t0)[0].Err, postdate.KindConflict)
	if x.get(series.Key).Ending {
		x.Errorf("a series at another version ends")
	}
	x.wantKind(x.store.CancelVersions(x.ctx, []store.Versioned{at(series, 0)}, t0)[0].Err, postdate.KindTooLate)
	if !x.get(series.Key).Ending {
		x.Errorf("a series at its version does not end")
	}
}
