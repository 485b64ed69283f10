package storetest

import (
	"sync"
	"sync/atomic"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func replacing() []check {
	return []check{
		{"the new version stands in the old one's place, without its attempts", replaceRetried},
		{"another version is KindConflict and changes nothing", func(x *trial) {
			m := x.add(t0)
			for _, version := range []uint64{0, 2, 3} {
				_, err := x.store.Replace(x.ctx, changed(m), version)
				x.wantKind(err, postdate.KindConflict)
			}
			x.wantRecord(x.get(m.Key), fresh(m))
		}},
		{"an id that is not there is KindNotFound and stays so", func(x *trial) {
			m := x.message(t0)
			_, err := x.store.Replace(x.ctx, m, 1)
			x.wantKind(err, postdate.KindNotFound)
			_, err = x.store.Get(x.ctx, m.Key)
			x.wantKind(err, postdate.KindNotFound)
		}},
		{"a replace that is too late answers the present record, whole", replaceLate},
		{"a message moves in the due order", replaceMoves},
		{"a message may be put to a time that is claimed already, and is found", replaceBehind},
		{"a parked message waits for its new time and no more for its channel", replaceParked},
		{"versions grow by one", replaceGrows},
		{"of many that replace one version exactly one does", replaceRace},
	}
}

func (x *trial) replace(m postdate.Message, ifVersion uint64) postdate.Record {
	x.Helper()
	got, err := x.store.Replace(x.ctx, m, ifVersion)
	if err != nil {
		x.Fatalf("Replace of %s at version %d: %v", m.ScheduleID, ifVersion, err)
	}
	want := fresh(m)
	want.Version = ifVersion + 1
	x.wantRecord(got, want)
	x.wantRecord(x.get(m.Key), want)
	return got
}

func replaceRetried(x *trial) {
	m := x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(retryAt(m, token, t0+5000))
	next := changed(m, onChannel("kafka:invoices"))
	next.ExecutionTime, next.Headers = t0+60, []postdate.Header{{Name: "a", Value: "b"}}
	x.replace(next, 1)
}

func replaceLate(x *trial) {
	claimed, delivered := x.add(t0), x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(settlement(delivered, token, store.SettleDelivered))
	for _, m := range []postdate.Message{claimed, delivered} {
		present, err := x.store.Replace(x.ctx, changed(m), 1)
		x.wantKind(err, postdate.KindTooLate)
		x.wantRecord(present, x.get(m.Key))
	}
}

func replaceMoves(x *trial) {
	a, b, c := x.add(t0), x.add(t0+10), x.add(t0+20)
	later, earlier := changed(a), changed(c)
	later.ExecutionTime, earlier.ExecutionTime = t0+30, t0+5
	x.replace(later, 1)
	x.replace(earlier, 1)
	token := x.own(home)
	x.wantDue(everything(home, token, t0+29), c, b)
	x.wantDue(everything(home, token, t0+40), c, b, a)
	page, err := x.store.List(x.ctx, store.ListQuery{Tenant: tenant, Limit: plenty})
	if err != nil {
		x.Fatalf("List: %v", err)
	}
	x.wantIDs("a list", idsOf(page.Records), c, b, a)
}

func replaceBehind(x *trial) {
	m := x.add(t0 + 100)
	token := x.own(home)
	x.claim(everything(home, token, t0+50))
	next := changed(m)
	next.ExecutionTime = t0 + 1
	x.replace(next, 1)
	x.wantDue(everything(home, token, t0+60), next)
	x.wantKind(x.cancel(next, t0).Err, postdate.KindTooLate)
}

func replaceParked(x *trial) {
	m := x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(settlement(m, token, store.SettlePark))
	next := changed(m)
	next.ExecutionTime = t0 + 10
	x.replace(next, 1)
	x.wantParked([]int{home})
	x.wantDue(everything(home, token, t0+10), next)
}

func replaceGrows(x *trial) {
	m := x.add(t0)
	for version := uint64(1); version < 6; version++ {
		m = changed(m)
		m.ExecutionTime++
		x.replace(m, version)
	}
}

func replaceRace(x *trial) {
	m := x.add(t0)
	var group sync.WaitGroup
	var won atomic.Int32
	for i := range 16 {
		next := changed(m)
		next.ExecutionTime += postdate.Time(i)
		group.Go(func() {
			if _, err := x.store.Replace(x.ctx, next, 1); err == nil {
				won.Add(1)
			} else {
				x.wantKind(err, postdate.KindConflict)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		x.Errorf("%d replaced version 1, want 1", won.Load())
	}
	if r := x.get(m.Key); r.Version != 2 {
		x.Errorf("the message is at version %d, want 2", r.Version)
	}
	token := x.own(home)
	if got := x.due(everything(home, token, t0+100)); len(got) != 1 {
		x.Errorf("a scan found %v, want the message once", idsOf(got))
	}
}
