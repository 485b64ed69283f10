package storetest

import (
	"runtime"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// failed is the channel to which messages go on that fail in these checks.
const failed = "kafka:failed"

// failures checks what failed messages leave for their failure channels.
func failures() []check {
	return []check{
		{"a message that fails leaves one for its failure channel in the same step, and both count", failureLeft},
		{"what does not fail, or has no failure channel, leaves nothing", failureElse},
		{"a repeated settlement neither makes it again nor changes it", failureRepeated},
		{"a settlement that changes nothing leaves nothing", failureStale},
		{"of many settlements in one call each leaves its own", failureMany},
		{"one that is there already stays as it is", failureThere},
		{"what was left is tried, parked, cancelled, listed and deleted like any other message", failureLives},
		{"an occurrence that fails leaves a message, and its series goes on", failureOfSeries},
		{"the last occurrence of a series leaves a message, too", func(x *trial) {
			m := x.addSeries(t0)
			token := x.own(home)
			s := failing(x.isOver(m, token, store.SettleFailed, 1))
			want := x.leaves(s)
			x.wantUsage(tenant, usageOf(want.Message))
		}},
		{"an occurrence that fails after its retries leaves one, and counts once in its series", failureOfRetried},
		{"a series that was cancelled leaves nothing", failureOfEnding},
		{"what was left is no occurrence of a series, and its failure counts in none", failureNoOccurrence},
		{"several that fail at once leave one each", failureAtOnce},
		{"whoever sees that a message failed sees what it left, and the other way round", failureAtomic},
	}
}

// failing is a settlement whose message has a failure channel.
func failing(s store.Settlement) store.Settlement {
	s.FailureChannel = failed
	return s
}

// leaves settles, expects what follows, and what that leaves for the failure channel.
func (x *trial) leaves(s store.Settlement) postdate.Record {
	x.Helper()
	before := x.get(s.Key)
	left, ok := s.Failed(&before)
	if !ok {
		x.Fatalf("a settlement of %s leaves nothing", s.Key.ScheduleID)
	}
	x.settled(s)
	x.wantRecord(x.get(left.Key), left)
	x.first[left.Key] = left.Version
	return left
}

// leavesNothing settles, and expects that this leaves nothing for a failure channel.
func (x *trial) leavesNothing(s store.Settlement) {
	x.Helper()
	before := x.get(s.Key)
	of := before.Message
	if before.Occurrence != 0 {
		of = of.Alone(before.Occurrence)
	}
	x.settle(s)
	x.wantGone(of.Failed(postdate.Failure{Version: before.Version, To: failed}))
}

func failureLeft(x *trial) {
	for _, large := range []int{20, 9000} {
		m := x.message(t0, withPayload(large), onRoute("@acme!low kafka:a"), func(m *postdate.Message) {
			m.Headers = []postdate.Header{{Name: "Authorization", Value: "s"}, {Name: "own", Value: "v"}}
			m.Labels, m.FailureChannel = []string{"blue"}, "inbox:other"
			m.ExpiresAt, m.MayRepeat, m.PartitionKey, m.Retry.MaxAttempts = t0+900_000, true, "k", 4
		})
		x.insert(m)
		token := x.own(home)
		x.claim(everything(home, token, t0))
		s := failing(x.settlement(m, token, store.SettleFailed))
		s.Attempts, s.PossibleDuplicate = 4, true
		want := x.leaves(s)
		if want.Channel != failed || want.ExecutionTime != s.At || want.Attempts != 0 {
			x.Errorf("it left %+v", want)
		}
		x.wantUsage("acme", usageOf(want.Message))
		x.wantFound(everything(home, token, s.At-1))
		x.wantFound(everything(home, token, s.At), want)
		x.settled(x.settlement(want.Message, token, store.SettleDelivered))
		x.wantUsage("acme", store.Usage{})
	}
}

func failureElse(x *trial) {
	token := x.own(home)
	for _, how := range ways {
		x.leavesNothing(x.settlement(x.add(t0), token, how))
		if how != store.SettleFailed {
			x.leavesNothing(failing(x.settlement(x.add(t0), token, how)))
		}
	}
	for _, how := range advances {
		x.leavesNothing(x.goesOn(x.addSeries(t0), token, how, 1))
		if how != store.SettleFailed {
			x.leavesNothing(failing(x.goesOn(x.addSeries(t0), token, how, 1)))
		}
	}
}

func failureRepeated(x *trial) {
	m := x.add(t0)
	token := x.own(home)
	s := failing(x.settlement(m, token, store.SettleFailed))
	left := x.leaves(s)
	keys := []postdate.Key{m.Key, left.Key}
	x.nothing(keys, s, s)
	x.settled(x.retryAt(left.Message, token, left.ExecutionTime+500))
	x.nothing(keys, s)
	x.settled(x.settlement(left.Message, token, store.SettleDelivered))
	x.nothing(keys, s)
	x.forget(left.Message)
	x.settle(s)
	x.wantGone(left.Message)
}

func failureStale(x *trial) {
	m := x.add(t0)
	stale := x.own(home)
	token := x.own(home)
	s := failing(x.settlement(m, token, store.SettleFailed))
	fenced, old := s, s
	fenced.Token, old.Version = stale, s.Version+1
	for _, other := range []store.Settlement{fenced, old} {
		x.nothing([]postdate.Key{m.Key}, other)
		x.wantGone(m.Failed(postdate.Failure{Version: other.Version, To: failed}))
	}
	x.wantUsage(tenant, usageOf(m))
	x.wantCancelled(m)
	x.leavesNothing(s)
	x.wantUsage(tenant, store.Usage{})
}

func failureMany(x *trial) {
	token := x.own(home)
	var settlements []store.Settlement
	var left []postdate.Message
	for i := range 40 {
		m := x.add(t0, withPayload(i))
		s := x.settlement(m, token, ways[i%len(ways)])
		if s.How == store.SettleRetry {
			s.AttemptTime = t0 + 20_000
		}
		if i%3 != 0 {
			s = failing(s)
		}
		settlements = append(settlements, s, s)
		r := x.get(m.Key)
		if l, ok := s.Failed(&r); ok {
			left = append(left, l.Message)
		}
	}
	x.settle(settlements...)
	x.wantDue(everything(home, token, t0+9000), left...)
	if len(left) < 5 {
		x.Errorf("only %d messages were left", len(left))
	}
}

func failureThere(x *trial) {
	m := x.add(t0)
	token := x.own(home)
	s := failing(x.settlement(m, token, store.SettleFailed))
	before := x.get(m.Key)
	there, _ := s.Failed(&before)
	there.Payload = []byte(`"there"`)
	x.insert(there.Message)
	want := x.get(there.Key)
	x.settled(s)
	x.wantRecord(x.get(there.Key), want)
	x.wantUsage(tenant, usageOf(there.Message))
}

func failureLives(x *trial) {
	token := x.own(home)
	var left []postdate.Message
	for range 4 {
		left = append(left, x.leaves(failing(x.settlement(x.add(t0), token, store.SettleFailed))).Message)
	}
	x.wantList(store.ListQuery{Tenant: tenant, Channel: failed, Limit: plenty}, left)
	x.wantCancelled(left[0])
	x.settled(x.settlement(left[1], token, store.SettlePark))
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: failed})
	x.unpark(token, failed, t0+9000, plenty)
	x.settled(x.settlement(left[1], token, store.SettleDelivered))
	x.settled(x.settlement(left[2], token, store.SettleFailed))
	x.forget(left[2])
	x.wantDue(everything(home, token, t0+9000), left[3])
}

func failureOfSeries(x *trial) {
	m := x.addSeries(t0, withPayload(100))
	token := x.own(home)
	for run := 1; run <= 3; run++ {
		s := failing(x.goesOn(m, token, store.SettleFailed, run))
		left := x.leaves(s)
		if of := alone(m, run); left.ScheduleID[:len(of.ScheduleID)] != of.ScheduleID || left.Recurrence != nil {
			x.Errorf("the occurrence of run %d left %+v", run, left)
		}
		x.wantSeries(m, int64(run), int64(run), 0)
		x.nothing([]postdate.Key{m.Key, left.Key}, s)
		x.settled(x.settlement(left.Message, token, store.SettleDelivered))
		x.wantUsage(tenant, usageOf(m))
	}
}

func failureOfRetried(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	child := x.detach(m, token, 1)
	s := failing(x.settlement(child, token, store.SettleFailed))
	left := x.leaves(s)
	x.wantSeries(m, 1, 1, 0)
	x.nothing([]postdate.Key{m.Key, child.Key, left.Key}, s)
	x.wantRetried(m.Key)
	x.wantUsage(tenant, usageOf(m, left.Message))
}

func failureOfEnding(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	x.claim(everything(home, token, begins(m, 1)))
	x.cancel(m, t0+7) // too late: it ends with what is on its way
	x.leavesNothing(failing(x.goesOn(m, token, store.SettleFailed, 1)))
	x.wantStatus(m, postdate.Cancelled)
	x.wantUsage(tenant, store.Usage{})
}

func failureNoOccurrence(x *trial) {
	m := x.addSeries(t0)
	token := x.own(home)
	left := x.leaves(failing(x.goesOn(m, token, store.SettleFailed, 1)))
	x.wantRetried(m.Key)
	x.settled(x.settlement(left.Message, token, store.SettleFailed))
	x.wantSeries(m, 1, 1, 0)
	x.wantCancelled(m)
}

func failureAtOnce(x *trial) {
	token := x.own(home)
	var group sync.WaitGroup
	var left []postdate.Message
	for range 12 {
		s := failing(x.settlement(x.add(t0), token, store.SettleFailed))
		r := x.get(s.Key)
		l, _ := s.Failed(&r)
		left = append(left, l.Message)
		for range 2 {
			group.Go(func() {
				if err := x.store.Settle(x.ctx, []store.Settlement{s}); err != nil {
					x.Errorf("Settle: %v", err)
				}
			})
		}
	}
	group.Wait()
	x.wantDue(everything(home, token, t0+9000), left...)
	x.wantUsage(tenant, usageOf(left...))
}

// failureAtomic reads while messages fail: what one read shows, the next must show too.
func failureAtomic(x *trial) {
	token := x.own(home)
	var settlements []store.Settlement
	for range 40 {
		settlements = append(settlements, failing(x.settlement(x.add(t0), token, store.SettleFailed)))
	}
	var group sync.WaitGroup
	group.Go(func() {
		for _, s := range settlements {
			if err := x.store.Settle(x.ctx, []store.Settlement{s}); err != nil {
				x.Errorf("Settle: %v", err)
			}
			runtime.Gosched()
		}
	})
	defer group.Wait() // also if a read below gives up
	for _, s := range settlements {
		m := postdate.Message{Key: s.Key}
		left := m.Failed(postdate.Failure{Version: s.Version, To: failed}).Key
		for range 100_000 {
			_, err := x.store.Get(x.ctx, left)
			r := x.get(s.Key)
			if err == nil && r.Status != postdate.DeliveryFailed {
				x.broken("%s is there, and what it tells of is %s", left.ScheduleID, r.Status)
			}
			if r.Status == postdate.DeliveryFailed {
				x.get(left) // or else it gives up
				break
			}
			runtime.Gosched()
		}
	}
}

// durableFailures is a durable check.
func durableFailures(x *trial) {
	m, series := x.add(t0), x.addSeries(t0)
	token := x.own(home)
	one := x.leaves(failing(x.settlement(m, token, store.SettleFailed)))
	two := x.leaves(failing(x.goesOn(series, token, store.SettleFailed, 1)))
	want := x.survive([]postdate.Key{m.Key, series.Key, one.Key, two.Key})
	for _, r := range want {
		x.wantRecord(x.get(r.Key), r)
	}
}
