package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
)

// newBacklogShop has one bucket with so many messages of a channel that a scan over them takes
// longer than the pause between two sweeps, and behind them one message of another channel.
// Nothing is answered automatically.
func newBacklogShop(t *testing.T, n int) *shop {
	s := openShop(t, nil)
	s.mute, s.waits = every, storeCalls
	for i := range n {
		s.put(0, "x:stuck", 1, -time.Duration(n-i)*ms)
	}
	s.put(0, "x:free", 1, 500*ms)
	s.gain(bucket.Partition{})
	return s
}

// A backlog that takes longer to scan than the pause between two sweeps does not keep another
// channel's message from being read.
func TestALongBacklogHidesNoOtherChannel(t *testing.T) {
	s := newBacklogShop(t, 140_000)
	for s.now.Mono < s.begin.Mono+time.Minute {
		switch {
		case s.flying("x:free") > 0:
			return
		case slices.ContainsFunc(s.calls, claims):
			s.after(400 * ms)
			s.answer(claims)
		default:
			s.tick(max(s.m.Wake(s.now), ms))
		}
	}
	t.Error("the other channel's message was not published within a minute")
}

// A bucket with a long backlog is handed over within DrainMax, not at the backlog's end.
func TestDrainWithABacklog(t *testing.T) {
	s := newBacklogShop(t, 20_000)
	s.watch = func(e Effect) {
		if has[fence.Drained](e) && s.m.hand > 0 {
			t.Errorf("%d messages are still in hand", s.m.hand)
		}
	}
	for s.gone[0] == nil && s.now.Mono < s.begin.Mono+time.Minute {
		calls := slices.Clone(s.calls)
		s.tick(50 * ms)
		if len(s.unanswered) > 0 {
			s.reply(confirmed)
			if s.now.Mono < s.begin.Mono+time.Second { // some are delivered before it is to go
				s.drain(0)
			}
		}
		for _, c := range calls {
			s.answerWith(c)
		}
	}
	if s.gone[0] == nil {
		t.Fatal("not handed over")
	}
	if late := s.gone[0][0] - time.Second; late > s.m.c.DrainMax+2*time.Second {
		t.Errorf("handed over after %s", late)
	}
}

// A steady stream of messages that are due immediately does not put off the sweep.
func TestLateMessagesDoNotPutOffTheSweep(t *testing.T) {
	b := newBench(t)
	effects := b.step(fence.Gained{Partitions: []bucket.Partition{{Owner: "n", Token: 1}}})
	sweeps := 0
	for end := b.now.Mono + 20*time.Second; b.now.Mono < end; b.after(5 * ms) {
		next := b.step(Nudged{[]Nudge{{0, b.now.Wall - 1}}}) // while the claim is under way, and behind what was read
		for _, c := range of[Claim](effects) {
			if c.Claims[0].Scan.After == (bucket.Position{}) {
				sweeps++
			}
		}
		next = append(next, b.answerAll(effects)...)
		for _, f := range of[FindParked](effects) {
			next = append(next, b.step(ParkedFound{Buckets: f.Buckets})...)
		}
		effects = next
	}
	if sweeps < 5 {
		t.Errorf("%d sweeps in 20 s, want one every %s", sweeps, DefaultConfig().SweepEvery)
	}
}

// A node that slept through a hand-over begins nothing new in the bucket when it wakes up after
// the time for it: the checkpoint would pass what it drops then.
func TestAHandOverThatIsSleptThrough(t *testing.T) {
	s := newShop(t, 1, nil)
	s.mute = func(c postdate.Route) bool { return c == "x:mute" }
	s.add(0, "x:mute", 1, -ms)
	s.run(100 * ms)
	s.drain(0)
	s.run(time.Second) // it works on for its other channels
	s.after(s.m.c.DrainMax + s.m.c.DrainStep)
	due := s.now.Wall + 30
	s.add(0, "x:well", 1, 30*ms)
	for range 100 {
		s.run(5 * ms)
		for _, r := range s.store.Waiting[0] {
			if r.Channel == "x:well" && s.store.Records[0].Checkpoint >= due {
				t.Fatalf("the checkpoint is %d, beyond a message that is due at %d and not settled", s.store.Records[0].Checkpoint, due)
			}
		}
		s.add(0, "x:well", 1, 35*ms)
	}
	if s.gone[0] == nil {
		t.Error("the bucket is not handed over")
	}
}

// A lane whose settlements failed joins the others when they go through again, even if slow
// brokers answer all the time, and each settlement takes longer than the next one waits for it.
func TestALaneJoinsBesideSlowAnswers(t *testing.T) {
	for _, test := range []struct{ takes, lasts time.Duration }{{3 * callSlow / 2, 5 * time.Second}, {3 * time.Second, 20 * time.Second}} {
		t.Run(fmt.Sprint(test.takes), func(t *testing.T) {
			const buckets, hosts = 8, 600
			s := newSlowShop(t, buckets, nil)
			s.mute = func(c postdate.Route) bool { return c != "x:a" }
			for n := range hosts {
				s.add(n%buckets, named("x:slow-%d", n), 1, -ms)
				s.work(5 * ms)
			}
			begin, sent := s.now.Mono, 0
			for n := 0; s.now.Mono < begin+test.lasts; n++ {
				s.sleep(5 * ms)
				if n%4 == 0 { // 50 a second
					s.add(sent%buckets, "x:a", 1, -ms)
					sent++
				}
				if n%(int(test.lasts/ms)/1_000) == 0 {
					s.confirm(min(len(s.unanswered), 1))
				}
				for _, c := range slices.Clone(s.calls) {
					took, failing := s.now.Mono-s.begin.Mono-c.at, c.settle != nil && s.now.Mono < begin+500*ms
					if took >= test.takes || failing || c.claim != nil {
						s.broken = func(int) bool { return failing }
						s.answerWith(c)
					}
				}
			}
			if missing := sent - s.arrived["x:a"]; missing > 5 || len(s.m.apart) > 0 {
				t.Errorf("%d of %d messages did not arrive, and %d lanes are apart", missing, sent, len(s.m.apart))
			}
		})
	}
}

// It joins them once none of its calls is under way, even if something waits to be settled.
func TestALaneJoinsWithSomethingToSettle(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.mute = func(c postdate.Route) bool { return c == "x:late" }
	s.add(3, "x:late", 1, -ms)
	s.add(3, "x:a", 1, -ms)
	for s.answer(claims) {
	}
	s.broken = func(b int) bool { return b == 3 }
	s.answer(settles)
	s.broken = nil
	s.add(3, "x:b", 1, -ms)
	s.sleep(150 * ms)
	s.answer(settles) // it is well again, while a claim is under way
	s.confirm(1)
	if len(s.m.apart) != 1 || len(s.calls) != 1 {
		t.Fatalf("%d lanes are apart, under way are %+v, want one and a claim", len(s.m.apart), s.calls)
	}
	s.answer(claims)
	if len(s.m.apart) > 0 {
		t.Error("it is apart though nothing of it is under way")
	}
	s.answerAll()
	s.wantTogether()
}
