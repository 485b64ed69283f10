package storetest

import (
	"runtime"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// retriedOccurrences checks the messages that a series' occurrences become when they are retried.
func retriedOccurrences() []check {
	return []check{
		{"an occurrence that is retried becomes a message of its own, and its series goes on at once", retriedAlone},
		{"after the last occurrence one that is retried is still tried", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			x.claim(everything(home, token, begins(m, 1)))
			s := x.isOver(m, token, store.SettleRetry, 1)
			x.settled(s)
			x.wantStatus(m, postdate.Delivered)
			x.wantRetried(m.Key, alone(m, 1))
			x.wantDue(everything(home, token, s.AttemptTime), alone(m, 1))
		}},
		{"it is found also by the longest names", func(x *trial) {
			m := x.message(t0, recurring)
			m.Key = x.largest().Key
			x.insert(m)
			token := x.own(m.Bucket)
			child := x.detach(m, token, 1)
			x.wantRetried(m.Key, child)
			x.wantFound(everything(m.Bucket, token, begins(m, 2)), x.get(child.Key), x.get(m.Key))
			x.settled(x.settlement(child, token, store.SettleFailed))
			x.wantSeries(m, 1, 1, 0)
		}},
		{"it is settled like any other message", retriedSettled},
		{"it is parked and unparked like any other message", retriedParked},
		{"it is cancelled like any other message, and nothing else is", retriedCancelled},
		{"a repeated settlement neither makes it again nor changes it", retriedRepeated},
		{"one that is there already stays as it is", retriedThere},
		{"one that fails for good counts once in its series", retriedFailed},
		{"several that fail in one call all count, also while their series goes on", retriedTogether},
		{"one that does not fail for good does not count", retriedElse},
		{"its failure is not counted in a series of another version, or where none is", retriedOrphaned},
		{"its failure is counted in a series that has ended, and changes nothing else of it", retriedAfter},
		{"Retried names those of one series that are pending, and no others", retriedNamed},
		{"those that fail at once all count", retriedAtOnce},
		{"whoever sees that a series went on sees what it left behind, and the other way round", retriedAtomic},
	}
}

func retriedAlone(x *trial) {
	m := x.addSeries(t0, withPayload(100), onRoute("@acme!low kafka:a"), func(m *postdate.Message) {
		m.Headers = []postdate.Header{{Name: "a", Value: "b"}}
		m.ExpiresAt, m.MayRepeat = t0+900_000, true
		m.Retry.MaxAttempts = 4
	})
	token := x.own(home)
	x.claim(everything(home, token, begins(m, 1)))
	s := x.goesOn(m, token, store.SettleRetry, 1)
	s.Attempts, s.PossibleDuplicate, s.AttemptTime = 3, true, begins(m, 2)+77
	x.settled(s)

	child := alone(m, 1)
	if child.ScheduleID != m.ScheduleID+"/"+m.First.String() || child.ExecutionTime != m.First {
		x.Fatalf("the occurrence of %v would be %+v", m.First, child)
	}
	want := postdate.Record{Message: child, State: postdate.State{
		Status: postdate.Pending, Version: x.first[m.Key], Attempts: 3, AttemptTime: s.AttemptTime,
		PossibleDuplicate: true, LastError: s.Reason,
	}}
	x.wantRecord(x.get(child.Key), want)
	x.wantFound(everything(home, token, begins(m, 2)), x.get(m.Key))
	x.wantFound(everything(home, token, s.AttemptTime-1), x.get(m.Key))
	x.wantFound(everything(home, token, s.AttemptTime), x.get(m.Key), want)
	x.wantList(store.ListQuery{Tenant: "acme", Limit: 1}, []postdate.Message{child, m})
	x.wantList(store.ListQuery{Tenant: "acme", To: m.ExecutionTime, Limit: 1}, []postdate.Message{child})
	for _, r := range x.list(store.ListQuery{Tenant: "acme", Limit: 2}, nil) {
		x.wantRecord(r, x.get(r.Key))
	}
	early := x.goesOn(m, token, store.SettleRetry, 2)
	early.AttemptTime = t0 - 5 // by a clock that was set back
	x.settled(early)
	if got := x.get(alone(m, 2).Key); got.AttemptTime < got.ExecutionTime {
		x.Errorf("the occurrence of %v is due at %v", got.ExecutionTime, got.AttemptTime)
	}
}

func retriedSettled(x *trial) {
	token := x.own(home)
	for _, how := range ways {
		m := x.addSeries(t0)
		child := x.detach(m, token, 1)
		s := x.settlement(child, token, how)
		s.AttemptTime, s.Attempts = begins(m, 1)+20_000, 2
		x.settled(s)
		x.nothing([]postdate.Key{child.Key, m.Key}, s, s)
		x.settle(x.isOver(m, token, store.SettleDelivered, 2))
		if s.How == store.SettleRetry || s.How == store.SettlePark {
			x.wantFound(everything(home, token, s.AttemptTime), x.get(child.Key))
			x.wantRetried(m.Key, child)
			x.settled(x.settlement(child, token, store.SettleDelivered))
		}
		x.wantRetried(m.Key)
		x.wantFound(everything(home, token, begins(m, 5)))
	}
}

func retriedParked(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	child := x.detach(m, token, 1)
	x.settled(x.settlement(child, token, store.SettlePark))
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
	x.wantRetried(m.Key, child)
	if n := x.unpark(token, orders, t0-7, plenty); n != 1 {
		x.Errorf("Unpark moved %d messages, want 1", n)
	}
	x.wantParked([]int{home})
	x.wantDue(everything(home, token, child.ExecutionTime-1))
	x.wantDue(everything(home, token, child.ExecutionTime), child)
}

func retriedCancelled(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	one, two, three := x.detach(m, token, 1), x.detach(m, token, 2), x.detach(m, token, 3)
	before := x.get(m.Key)
	x.settled(x.retryAt(one, token, begins(m, 3)+1))
	x.wantCancelled(one)
	x.claim(everything(home, token, x.get(two.Key).AttemptTime))
	x.wantTooLate(two)
	if x.get(two.Key).Ending {
		x.Errorf("a message that is sent once is ending")
	}
	x.settled(x.settlement(two, token, store.SettlePark)) // it goes on as if nobody had asked
	x.wantStatus(two, postdate.Pending)
	x.wantRecord(x.get(m.Key), before)
	x.wantCancelled(m)
	x.wantStatus(three, postdate.Pending)
	x.wantRetried(m.Key, two, three)
}

func retriedRepeated(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	child := x.detach(m, token, 1)
	again := x.goesOn(m, token, store.SettleRetry, 1)
	keys := []postdate.Key{m.Key, child.Key}
	x.nothing(keys, again, again)
	x.settled(x.retryAt(child, token, begins(m, 1)+55))
	x.nothing(keys, again)
	x.settled(x.settlement(child, token, store.SettleDelivered))
	x.nothing(keys, again)
	x.wantRetried(m.Key)
	x.expire(postdate.LatestTime, 0, plenty, 1)
	x.nothing([]postdate.Key{m.Key}, again)
	x.wantGone(child)
	x.wantRetried(m.Key)
}

// retriedThere lets the same occurrence be retried in two versions of its series.
func retriedThere(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	child := x.detach(m, token, 1)
	next := changed(m)
	x.replace(next)
	before := x.get(child.Key)
	s := x.after(x.goesOn(next, token, store.SettleRetry, 1))
	s.Attempts, s.AttemptTime = 1, begins(m, 1)+500
	x.settled(s)
	x.wantRecord(x.get(child.Key), before)
	x.wantRetried(m.Key, child)
	x.settled(x.settlement(child, token, store.SettleDelivered))
	x.wantSeries(m, 1, 0, 0)
}

func retriedFailed(x *trial) {
	m := x.addSeries(t0)
	stale := x.own(home)
	token := x.own(home)
	one, two := x.detach(m, token, 1), x.detach(m, token, 2)
	x.wantSeries(m, 2, 0, 0)
	failed := x.settlement(one, token, store.SettleFailed)
	fenced, old, ahead := failed, failed, failed
	fenced.Token, old.Version, ahead.Version = stale, failed.Version-1, failed.Version+1
	x.nothing([]postdate.Key{one.Key, m.Key}, fenced, old, ahead)
	want := x.get(m.Key)
	want.Series.Failed++
	x.settled(failed)
	x.wantRecord(x.get(m.Key), want)
	x.nothing([]postdate.Key{one.Key, two.Key, m.Key}, failed, failed)
	twice := x.settlement(two, token, store.SettleFailed)
	x.settle(twice, failed, twice)
	x.wantSeries(m, 2, 2, 0)
	x.wantFound(everything(home, token, begins(m, 3)), x.get(m.Key))
	x.settled(x.goesOn(m, token, store.SettleFailed, 3))
	x.nothing([]postdate.Key{m.Key}, failed, twice)
	x.wantSeries(m, 3, 3, 0)
}

func retriedTogether(x *trial) {
	m, other := x.addSeries(t0), x.addSeries(t0)
	token := x.own(home)
	var failed []store.Settlement
	for run := 1; run <= 6; run++ {
		failed = append(failed, x.settlement(x.detach(m, token, run), token, store.SettleFailed))
	}
	theirs := x.settlement(x.detach(other, token, 1), token, store.SettleFailed)
	x.settle(failed[0], theirs, failed[1])
	x.wantSeries(m, 6, 2, 0)
	x.wantSeries(other, 1, 1, 0)
	x.settle(failed[2], x.goesOn(m, token, store.SettleFailed, 7), failed[3])
	x.wantSeries(m, 7, 5, 0)
	if got := x.get(m.Key); got.Run != 8 || len(got.Series.History) != 7 {
		x.Errorf("the series is at run %d, with %d outcomes", got.Run, len(got.Series.History))
	}
	x.settle(x.goesOn(m, token, store.SettleDelivered, 8), failed[4], failed[5],
		x.goesOn(m, token, store.SettleFailed, 8))
	x.wantSeries(m, 8, 7, 0)
	x.wantFound(everything(home, token, begins(m, 9)), x.get(other.Key), x.get(m.Key))
	x.settle(failed...)
	x.wantSeries(m, 8, 7, 0)
}

func retriedElse(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	for run, how := range []store.Settling{store.SettleRetry, store.SettlePark, store.SettleDelivered} {
		child := x.detach(m, token, run+1)
		x.settled(x.settlement(child, token, how))
		x.wantSeries(m, int64(run+1), 0, 0)
	}
	last := x.detach(m, token, 4)
	x.settled(x.retryAt(last, token, begins(m, 9)))
	x.wantCancelled(last)
	x.wantSeries(m, 4, 0, 0)
}

func retriedOrphaned(x *trial) {
	token := x.own(home)
	replaced, once, gone, reused := x.addSeries(t0), x.addSeries(t0), x.addSeries(t0), x.addSeries(t0)
	series := []postdate.Message{replaced, once, gone, reused}
	var failed []store.Settlement
	for _, m := range series {
		failed = append(failed, x.settlement(x.detach(m, token, 1), token, store.SettleFailed))
	}
	x.replace(changed(replaced))
	x.replace(changed(once, single))
	x.settle(x.isOver(gone, token, store.SettleDelivered, 2))
	x.wantCancelled(reused)
	x.expire(postdate.LatestTime, 0, plenty, 2)
	x.insert(reused)
	x.settle(failed...)
	for i, m := range series {
		x.wantRetried(m.Key)
		if got := x.get(failed[i].Key).Status; got != postdate.DeliveryFailed {
			x.Errorf("%s is %s", failed[i].Key.ScheduleID, got)
		}
		if m.Key != gone.Key {
			x.wantSeries(m, 0, 0, 0)
		}
	}
	x.wantGone(gone)
}

func retriedAfter(x *trial) {
	token := x.own(home)
	over, cancelled := x.addSeries(t0), x.addSeries(t0)
	for _, m := range []postdate.Message{over, cancelled} {
		failed := x.settlement(x.detach(m, token, 1), token, store.SettleFailed)
		if failed.At = t0 + 900_000; m.Key == over.Key {
			x.settled(x.isOver(m, token, store.SettleDelivered, 2))
		} else {
			x.wantCancelled(m)
		}
		want := x.get(m.Key)
		want.Series.Failed++
		x.settle(failed)
		x.wantRecord(x.get(m.Key), want)
		x.nothing([]postdate.Key{m.Key}, failed)
	}
	x.wantUsage(tenant, store.Usage{})
	x.wantDue(everything(home, token, t0+900_000))
	x.expire(t0+800_000, 0, plenty, 2)
	x.wantGone(over)
	x.wantGone(cancelled)
}

// retriedNamed has series whose ids begin alike, in one bucket where there are two of them.
func retriedNamed(x *trial) {
	m := x.message(t0, recurring)
	for bucket.Of(tenant, m.ScheduleID+"0", x.store.Buckets()) != home {
		m = x.message(t0, recurring)
	}
	all := []postdate.Message{m}
	for _, end := range []string{"0", ".", "-", "~", ":"} {
		other := m
		other.Key = bucket.KeyOf(tenant, m.ScheduleID+end, x.store.Buckets())
		all = append(all, other)
	}
	for _, name := range []string{"defaul", "default0", "t"} {
		other := m
		other.Key = bucket.KeyOf(name, m.ScheduleID, x.store.Buckets())
		all = append(all, other)
	}
	x.insert(all...)
	for _, m := range all {
		x.wantRetried(m.Key)
	}
	tokens := map[int]uint64{}
	of := map[postdate.Key][]postdate.Message{}
	for i, m := range all {
		if tokens[m.Bucket] == 0 {
			tokens[m.Bucket] = x.own(m.Bucket)
		}
		for run := 1; run <= 1+i%3; run++ {
			of[m.Key] = append(of[m.Key], x.detach(m, tokens[m.Bucket], run))
		}
	}
	for _, m := range all {
		x.wantRetried(m.Key, of[m.Key]...)
	}
	x.settle(x.settlement(of[m.Key][0], tokens[home], store.SettleDelivered))
	x.wantRetried(m.Key)
	x.wantRetried(x.message(t0).Key)
	for _, m := range all[1:] {
		x.wantRetried(m.Key, of[m.Key]...)
	}
}

func retriedAtOnce(x *trial) {
	const runs = 12
	m := x.addSeries(t0)
	token := x.own(home)
	var children []postdate.Message
	for run := 1; run <= runs; run++ {
		children = append(children, x.detach(m, token, run))
	}
	var group sync.WaitGroup
	for i, child := range children {
		s := x.settlement(child, token, store.SettleFailed)
		on := x.goesOn(m, token, store.SettleRetry, runs+1)
		group.Go(func() {
			for _, settlements := range [][]store.Settlement{{s}, {s, on}}[i%2:] {
				if err := x.store.Settle(x.ctx, settlements); err != nil {
					x.Errorf("Settle: %v", err)
				}
			}
		})
	}
	group.Wait()
	x.wantSeries(m, runs+1, runs, 0)
	x.wantRetried(m.Key, alone(m, runs+1))
	if got := x.get(m.Key); got.Run != runs+2 || len(got.Series.History) != runs+1 {
		x.Errorf("the series is at run %d, with %d outcomes", got.Run, len(got.Series.History))
	}
}

// retriedAtomic reads while a series goes on: what it shows first, the rest must show too.
func retriedAtomic(x *trial) {
	const runs = 40
	m := x.addSeries(t0)
	token := x.own(home)
	var group sync.WaitGroup
	group.Go(func() {
		for run := 1; run <= runs; run++ {
			s := x.goesOn(m, token, store.SettleRetry, run)
			if err := x.store.Settle(x.ctx, []store.Settlement{s}); err != nil {
				x.Errorf("Settle: %v", err)
			}
			runtime.Gosched()
		}
	})
	defer group.Wait() // also if a read below gives up
	for range 100_000 {
		r, err := x.store.Get(x.ctx, m.Key)
		if err != nil {
			x.Fatalf("Get: %v", err)
		}
		if r.Run > 1 {
			x.get(alone(m, r.Run-1).Key) // or else it gives up
		}
		if _, err := x.store.Get(x.ctx, alone(m, r.Run).Key); err == nil && x.get(m.Key).Run == r.Run {
			x.broken("the occurrence of run %d is retried, and its series has not gone on", r.Run)
		}
		if r.Run > runs {
			return
		}
	}
	x.Errorf("the series has not gone on")
}
