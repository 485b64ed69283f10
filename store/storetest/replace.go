package storetest

import (
	"context"
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
			first := x.first[m.Key]
			for _, version := range []uint64{0, first - 1, first + 1, first + 2} {
				_, err := Replace(x.ctx, x.store, changed(m), version)
				x.wantKind(err, postdate.KindConflict)
			}
			x.wantRecord(x.get(m.Key), fresh(m))
		}},
		{"an id that is not there is KindNotFound and stays so", func(x *trial) {
			m := x.message(t0)
			_, err := Replace(x.ctx, x.store, m, 1)
			x.wantKind(err, postdate.KindNotFound)
			_, err = x.store.Get(x.ctx, m.Key)
			x.wantKind(err, postdate.KindNotFound)
		}},
		{"a replace that is too late answers the present record, whole", replaceLate},
		{"a message moves in the due order", replaceMoves},
		{"a message may be put to a time that is claimed already, and is found", replaceBehind},
		{"a parked message waits for its new time and no more for its channel", replaceParked},
		{"a move is kept until the next one, whatever becomes of the message", replaceKeepsMove},
		{"versions grow by one", replaceGrows},
		{"of many that replace one version exactly one does", replaceRace},
	}
}

// Replace replaces a message by m as a PUT does, if it is still at ifVersion.
func Replace(ctx context.Context, s store.Messages, m postdate.Message, ifVersion uint64) (postdate.Record, error) {
	was, _ := s.Get(ctx, m.Key) // of a series also the rest has to be as it was
	was.Version = ifVersion
	return s.Replace(ctx, postdate.NewRecord(m, ifVersion+1), was)
}

// replace replaces the present version, and expects the next one.
func (x *trial) replace(m postdate.Message) postdate.Record {
	x.Helper()
	ifVersion := x.get(m.Key).Version
	got, err := Replace(x.ctx, x.store, m, ifVersion)
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
	x.settle(x.retryAt(m, token, t0+5000))
	next := changed(m, onRoute("kafka:invoices"))
	next.ExecutionTime, next.Headers = t0+60, []postdate.Header{{Name: "a", Value: "b"}}
	x.replace(next)
}

func replaceLate(x *trial) {
	claimed, delivered := x.add(t0), x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.settlement(delivered, token, store.SettleDelivered))
	for _, m := range []postdate.Message{claimed, delivered} {
		present, err := Replace(x.ctx, x.store, changed(m), x.first[m.Key])
		x.wantKind(err, postdate.KindTooLate)
		x.wantRecord(present, x.get(m.Key))
	}
}

func replaceMoves(x *trial) {
	a, b, c := x.add(t0), x.add(t0+10), x.add(t0+20)
	later, earlier := changed(a), changed(c)
	later.ExecutionTime, earlier.ExecutionTime = t0+30, t0+5
	x.replace(later)
	x.replace(earlier)
	token := x.own(home)
	x.wantDue(everything(home, token, t0+29), c, b)
	x.wantDue(everything(home, token, t0+40), c, b, a)
	page, err := x.store.List(x.ctx, store.ListQuery{Tenant: tenant, Limit: plenty})
	if err != nil {
		x.Fatalf("List: %v", err)
	}
	x.wantIDs("a list", idsOf(page.Records), c, b, a)
}

func replaceKeepsMove(x *trial) {
	m := x.add(t0 + 100)
	moved := changed(m)
	moved.ExecutionTime, moved.Moved = t0, postdate.Move{At: t0 - 7, From: m.ExecutionTime}
	x.replace(moved)
	token := x.own(home)
	x.wantDue(everything(home, token, t0), moved)
	for _, how := range []store.Settling{store.SettleRetry, store.SettlePark, store.SettleFailed} {
		s := x.settlement(moved, token, how)
		s.Version = x.get(m.Key).Version
		x.settle(s)
		x.wantMove(m.Key, moved.Moved)
	}
	if r := x.store.Redrive(x.ctx, store.AnyVersion([]postdate.Key{m.Key}), t0+200)[0]; r.Err != nil {
		x.Fatalf("Redrive: %v", r.Err)
	}
	x.wantMove(m.Key, moved.Moved)
	again := changed(moved)
	again.ExecutionTime, again.Moved = t0+300, postdate.Move{At: t0 + 250, From: t0}
	x.replace(again)
	if r := x.cancel(again, t0+260); r.Err != nil {
		x.Fatalf("Cancel: %v", r.Err)
	}
	x.wantMove(m.Key, again.Moved)
}

// wantMove expects a message to have been moved so, and to have what it had else.
func (x *trial) wantMove(key postdate.Key, want postdate.Move) {
	x.Helper()
	if got := x.get(key).Moved; got != want {
		x.broken("after a settlement, a redrive or a cancel the message was moved by %v, want %v", got, want)
	}
}

func replaceBehind(x *trial) {
	m := x.add(t0 + 100)
	token := x.own(home)
	x.claim(everything(home, token, t0+50))
	next := changed(m)
	next.ExecutionTime = t0 + 1
	x.replace(next)
	x.wantDue(everything(home, token, t0+60), next)
	x.wantKind(x.cancel(next, t0).Err, postdate.KindTooLate)
}

func replaceParked(x *trial) {
	m := x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.settlement(m, token, store.SettlePark))
	next := changed(m)
	next.ExecutionTime = t0 + 10
	x.replace(next)
	x.wantParked([]int{home})
	x.wantDue(everything(home, token, t0+10), next)
}

func replaceGrows(x *trial) {
	m := x.add(t0)
	for n := range uint64(5) {
		next := changed(m)
		next.ExecutionTime += postdate.Time(n)
		if got := x.replace(next); got.Version != x.first[m.Key]+n+1 {
			x.Errorf("after %d replaces the message is at version %d, and was created at %d",
				n+1, got.Version, x.first[m.Key])
		}
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
			if _, err := Replace(x.ctx, x.store, next, x.first[m.Key]); err == nil {
				won.Add(1)
			} else {
				x.wantKind(err, postdate.KindConflict)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		x.Errorf("%d replaced the first version, want 1", won.Load())
	}
	if r := x.get(m.Key); r.Version != x.first[m.Key]+1 {
		x.Errorf("the message is at version %d, want %d", r.Version, x.first[m.Key]+1)
	}
	token := x.own(home)
	if got := x.due(everything(home, token, t0+100)); len(got) != 1 {
		x.Errorf("a scan found %v, want the message once", idsOf(got))
	}
}
