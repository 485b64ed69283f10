package poller

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// However much of a channel is due, a crash leaves in doubt only what can have been handed out,
// and what waits behind a limit, a pause or a backlog can be cancelled.
func TestDoubtIsBounded(t *testing.T) {
	t.Run("all goes well", func(t *testing.T) { doubtIsBounded(t, newShop(t, 4, nil)) })
	t.Run("answers of claims are lost", func(t *testing.T) {
		s, claims := newShop(t, 4, nil), 0
		s.lost = func(Claim) bool { claims++; return claims%5 == 0 }
		doubtIsBounded(t, s)
	})
}

// A claim that left a channel behind and whose answer was lost may have gone further than is
// known: when the channel catches up with what is known, it is not claimed as far.
func TestDoubtAfterAClaimWhoseAnswerWasLost(t *testing.T) {
	for _, behind := range []bool{false, true} {
		t.Run(fmt.Sprintf("behind already %t", behind), func(t *testing.T) { doubtAfterALostAnswer(t, behind) })
	}
}

func doubtAfterALostAnswer(t *testing.T, behind bool) {
	s := newShop(t, 1, nil)
	s.mute = func(c postdate.Route) bool { return c == "x:slow" }
	s.add(0, "x:slow", 100, 60*ms)
	s.run(200 * ms)
	if behind {
		s.add(0, "x:other", 1, 100*ms)
		s.run(200 * ms)
	}
	due := s.now.Wall + 500
	s.add(0, "x:slow", 4_000, 500*ms) // one scan looks at them all
	s.add(0, "x:other", 1, 510*ms)
	s.run(450 * ms)
	s.lost = func(e Claim) bool { return e.Claims[0].Only == "" }
	s.run(60 * ms)
	if len(s.store.Records[0].Behind) != 1 || s.store.Records[0].Claimed.Time <= due {
		t.Fatalf("the record is %+v: this shows nothing", s.store.Records[0])
	}
	s.mute = nil
	s.confirmAll()
	s.run(500*ms, func() {
		if len(s.m.buckets[0].record.Behind) == 0 {
			s.lost = nil
		}
		inDoubt, _ := s.doubt()
		if n := inDoubt["x:slow"]; n > s.m.c.DoubtMax {
			t.Fatalf("a crash would mark %d messages", n)
		}
	})
}

func doubtIsBounded(t *testing.T, s *shop) {
	s.mute = func(c postdate.Route) bool { return c == "x:mute" }
	s.step(Limits{Settings: []store.ChannelSettings{{Route: "x:tight", MaxPerSecond: 1}, {Route: "x:rated", MaxPerSecond: 200}, {Route: "x:off", Paused: true}}})
	for b := range 4 {
		for _, c := range []postdate.Route{"x:tight", "x:rated", "x:mute", "x:off"} {
			s.add(b, c, 700, 100*ms)
		}
	}
	checks := 0
	s.run(4*time.Second, func() {
		if checks++; checks%5 == 0 { // new ones on top
			s.add(checks%4, "x:mute", 1, -ms)
		}
		if checks%20 != 0 {
			return
		}
		inDoubt, fixed := s.doubt()
		for c, n := range inDoubt {
			if n > s.m.c.DoubtMax {
				t.Fatalf("after %d steps a crash would mark %d messages of %s", checks, n, c)
			}
		}
		if checks < 120 || s.lost != nil { // else more may have been claimed in vain
			return // what was read before it was known how much there is, is parked first
		}
		for c, most := range map[postdate.Route]int{"x:tight": 1, "x:rated": 20 + 50, "x:mute": windowMin, "x:off": 0} {
			if fixed[c] > most {
				t.Fatalf("after %d steps %d messages of %s cannot be cancelled, of which at most %d can have been handed out", checks, fixed[c], c, most)
			}
		}
	})
	if got := s.arrived["x:tight"]; got < 4 || got > 6 {
		t.Errorf("%d messages went out in 4 s at 1/s", got)
	}
	if got := s.arrived["x:rated"]; got < 780 {
		t.Errorf("%d messages went out in 4 s at 200/s", got)
	}
}

// A channel that takes what it gets never runs short of messages, and none of them stays
// parked, however many are due together.
func TestABurstIsDrained(t *testing.T) {
	s := newShop(t, 8, nil)
	for b := range 8 {
		s.add(b, "x:fast", 2_500, 100*ms)
	}
	s.run(2 * time.Second)
	if s.arrived["x:fast"] != 20_000 {
		t.Errorf("%d of 20000 messages arrived in two seconds; %d of a channel are in hand", s.arrived["x:fast"], s.m.hand)
	}
}

// New messages during a claim of one channel may fill its page. What follows them is then
// claimed but was not read, so it is read before the checkpoint passes it.
func TestACatchUpThatEndsEarly(t *testing.T) {
	b := newBench(t)
	at := func(ms postdate.Time) bucket.Position { return bucket.Position{Time: b.now.Wall + ms} }
	effects := b.step(fence.Gained{Partitions: []bucket.Partition{{
		Token: 1, Owner: "me", Lease: "me", Checkpoint: at(-600).Time, Claimed: at(-10), Behind: map[postdate.Route]bucket.Position{"inbox:x": at(-500)},
	}}})
	var ended bucket.Position
	for range 20 {
		var more []Effect
		for _, call := range of[Claim](effects) {
			c := call.Claims[0]
			r := seen(c)
			switch {
			case ended != (bucket.Position{}) && c.Only == "" && !ended.Before(c.Scan.After):
				return // it is read
			case ended != (bucket.Position{}) && c.Checkpoint >= ended.Time:
				t.Fatalf("the checkpoint is %d, and behind %d nothing was read", c.Checkpoint, ended.Time)
			case ended == (bucket.Position{}) && c.Only != "":
				ended = at(-400)
				r.Ended, r.Complete = ended, false
			}
			more = append(more, b.step(Claimed{call.Call, []store.ClaimResult{r}})...)
		}
		b.after(20 * ms)
		effects = append(more, b.step(fence.Tick{})...)
	}
	t.Errorf("what follows %v is not read", ended)
}

// Channels that are behind in a bucket catch up in turn, even if its other scans take turns
// with them.
func TestChannelsCatchUpInTurn(t *testing.T) {
	s := newShop(t, 1, nil)
	b := s.m.buckets[0]
	b.sweepAt = s.now.Mono + time.Hour
	b.due, b.late = 0, bucket.Position{}
	b.record.Claimed = bucket.UpTo(s.now.Wall)
	b.record.Behind = map[postdate.Route]bucket.Position{}
	for _, c := range []postdate.Route{"x:a", "x:b", "x:c"} {
		b.record.Behind[c] = bucket.UpTo(s.now.Wall - 500)
	}
	s.m.noteBehind(b, 0)
	turns := map[string]int{}
	for range 27 {
		p, _ := s.m.choose(s.now, b, &allowed{catchUp: true})
		who := fmt.Sprint("kind ", p.kind)
		if p.only != nil {
			who = string(p.only.route)
		}
		turns[who]++
	}
	if len(turns) != 5 || turns["x:a"] != 3 || turns["x:b"] != 3 || turns["x:c"] != 3 {
		t.Errorf("the scans were chosen as often as this: %v", turns)
	}
}

// What comes in may be more urgent than what is behind, if that is all of low priority. So low has fewer turns
// then, and some all the same. What is new has the others, and what is late keeps its own.
func TestLowCatchesUpInFewerTurns(t *testing.T) {
	for _, test := range []struct {
		of          postdate.Priority
		least, most int // turns to catch up, of 300
	}{{postdate.PriorityLow, 10, 60}, {postdate.PriorityMedium, 90, 110}} {
		s := newShop(t, 1, nil)
		s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
		route := postdate.Route("x:a").At(test.of)
		b := s.m.buckets[0]
		b.sweepAt, b.due = s.now.Mono+time.Hour, 0
		b.record.Claimed = bucket.UpTo(s.now.Wall)
		b.record.Behind = map[postdate.Route]bucket.Position{route: bucket.UpTo(s.now.Wall - 500)}
		s.m.noteBehind(b, 0)
		turns := map[scanKind]int{}
		for range 300 {
			b.late = bucket.Position{}
			p, _ := s.m.choose(s.now, b, &allowed{catchUp: true})
			turns[p.kind]++
		}
		if n := turns[scanBehind]; n < test.least || n > test.most {
			t.Errorf("priority %v catches up in %d of 300 turns, want %d to %d", test.of, n, test.least, test.most)
		}
		if turns[scanLate] != 100 {
			t.Errorf("beside priority %v what is late has %d of 300 turns, want its 100", test.of, turns[scanLate])
		}
	}
}

// What is in doubt is bounded even if the bound is very small.
func TestDoubtIsBoundedByVeryFew(t *testing.T) {
	for doubtMax := 2; doubtMax <= 8; doubtMax++ {
		s := newShop(t, 4, func(c *Config) { c.DoubtMax = doubtMax })
		s.mute = every
		for b := range 4 {
			s.add(b, "x:mute", 100, 100*ms)
		}
		s.run(time.Second, func() {
			if inDoubt, _ := s.doubt(); inDoubt["x:mute"] > doubtMax {
				t.Fatalf("a crash would mark %d messages, want at most %d", inDoubt["x:mute"], doubtMax)
			}
		})
		if s.m.hand == 0 {
			t.Errorf("with a bound of %d nothing was taken", doubtMax)
		}
	}
}

// If a bucket's record names as many channels as behind as it may, a further one cannot be left
// behind. Still no more of it is claimed than may be in doubt, and its neighbours go on.
func TestDoubtOfOneChannelMore(t *testing.T) {
	s := newShop(t, 3, func(c *Config) { c.DoubtMax = 200 })
	s.alone = true
	s.mute = func(c postdate.Route) bool { return c != "x:well" && c != "x:other" }
	s.add(2, "x:other", 150, 30*ms) // they will not be settled
	s.run(10 * ms)
	s.broken = func(b int) bool { return b == 2 }
	for range 15 {
		for i := range behindMax {
			for b := range 2 {
				s.add(b, named("x:%d", i), 10, -ms)
			}
		}
		s.run(10 * ms)
	}
	if n := len(s.store.Records[0].Behind); n != behindMax {
		t.Fatalf("%d channels are behind", n)
	}
	const sent, burst = 150, 2_000
	for b := range 2 {
		s.add(b, "x:burst", burst/2, 100*ms)
		for i := range sent / 2 {
			s.add(b, "x:well", 1, time.Duration(i)*2*ms)
		}
	}
	worst := 0
	s.run(time.Second, func() {
		inDoubt, _ := s.doubt()
		worst = max(worst, inDoubt["x:burst"])
	})
	if worst > s.m.c.DoubtMax || worst < s.m.c.DoubtMax/2 {
		t.Errorf("a crash would mark %d messages of a channel, of which at most %d may be claimed", worst, s.m.c.DoubtMax)
	}
	if s.arrived["x:well"] != sent || s.parked("x:burst") < burst-s.m.c.DoubtMax {
		t.Errorf("%d of %d messages beside it arrived, and %d of it are parked", s.arrived["x:well"], sent, s.parked("x:burst"))
	}
}

// What is in hand when the lease ends is dropped, to be claimed and read again. Until it is
// read again, even if that fails for a while, it is in doubt and takes room.
func TestDoubtOfWhatALapseDrops(t *testing.T) {
	s := newShop(t, 32, func(c *Config) { c.DoubtMax = 200 })
	s.mute, s.alone = every, true
	for b := range 32 {
		s.add(b, "x:slow", 250, 10*time.Second)
	}
	worst := 0
	look := func() {
		inDoubt, _ := s.doubt()
		worst = max(worst, inDoubt["x:slow"])
	}
	s.run(9_980*ms, look) // in hand, and not with the broker
	for _, bad := range []int{0, 24, 26, 28, 30, 31} {
		s.broken = func(b int) bool { return b < bad }
		s.lapse()
		s.now.Wall -= 94 // no more than a clock may be set: it is not due yet
		s.run(95*ms, look)
	}
	if most := s.m.c.DoubtMax / 2; worst > most || worst < most/2 { // the other half is for claims of any channel
		t.Errorf("a crash would mark %d messages of a channel, of which at most %d may be claimed by itself", worst, most)
	}
	s.broken, s.mute = nil, nil
	s.confirmAll()
	s.run(20 * time.Second)
	if c := s.m.channels["x:slow"]; s.arrived["x:slow"] != 8_000 || c != nil {
		t.Errorf("%d of 8000 arrived, and it is remembered as %+v", s.arrived["x:slow"], c)
	}
}

// Messages of a claim that was under way when the lease ended are in doubt, and take room until
// they are claimed again.
func TestDoubtOfClaimsUnderWayAtALapse(t *testing.T) {
	const buckets = 8
	s := newSlowShop(t, buckets, func(c *Config) { c.HandBytesMax = 2 * c.PayloadBytesMax }) // a claim of one bucket at a time
	s.mute = every
	s.after(buckets * time.Second)
	for b := range buckets {
		s.add(b, "x:a", 1_000, -time.Duration(b)*time.Second) // it comes before the others
		s.lapse()
		s.answer(claims)
	}
	inDoubt, _ := s.doubt()
	s.wantInDoubt(inDoubt["x:a"])
	s.waits, s.mute = nil, nil
	s.answerAll()
	s.run(10 * time.Second)
	if n := s.arrived["x:a"]; n != buckets*1_000 || s.m.comingOfAny != 0 {
		t.Errorf("%d of %d arrived, and %d take room", n, buckets*1_000, s.m.comingOfAny)
	}
}

// What lies ahead of a clock that was set back is not read again before its time, and takes no
// room of its channel until then.
func TestWhatALapseDropsAheadOfTheClock(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.DoubtMax = 16 })
	s.add(0, "x:a", 40, time.Hour)
	s.now.Wall = s.now.Wall.Add(time.Hour - 20*ms)
	s.renew()
	s.run(5 * ms)
	if s.m.channels["x:a"].hand < 4 {
		t.Fatalf("%+v: this shows nothing", s.m.channels["x:a"])
	}
	s.now.Wall = s.now.Wall.Add(-time.Hour)
	s.step(fence.Tick{})
	s.lapse()
	s.add(0, "x:a", 60, 100*ms)
	s.run(time.Second)
	if n := len(s.m.buckets[0].dropped); s.arrived["x:a"] != 60 || n > 0 {
		t.Errorf("%d of 60 arrived, and %d are still to be read again", s.arrived["x:a"], n)
	}
}

// A channel that was fast has many messages in hand that cannot be settled, and few may now be
// in doubt. Buckets whose records can name no further channel as behind go on.
func TestBehindBesideWhatCannotBeSettled(t *testing.T) {
	long := strings.Repeat("y", 1_990)
	a, b, fast := postdate.Route("https://a/"+long), postdate.Route("https://b/"+long), postdate.Route("https://fast/"+long)
	s := newShop(t, 4, nil)
	s.alone = true
	s.limits(store.ChannelSettings{Route: a, MaxPerSecond: 20}, store.ChannelSettings{Route: b, MaxPerSecond: 20})
	for range 15 {
		s.add(0, a, 100, 40*ms)
		s.add(0, b, 100, 40*ms)
		s.run(10 * ms)
	}
	s.run(time.Second)
	s.mute = func(c postdate.Route) bool { return c == fast }
	for range 600 { // 4,000 a second, for three seconds
		s.add(1, fast, 20, 30*ms)
		n := s.flying(fast)
		s.run(5 * ms)
		if n > 0 {
			s.replyAll(fast, confirmed)
		}
	}
	for range 6 {
		s.add(1, fast, 400, -ms)
		s.run(20 * ms)
	}
	s.broken = func(b int) bool { return b == 1 }
	s.replyAll(fast, confirmed)
	s.run(15 * time.Second)
	if c := s.m.channels[fast]; c.settling <= s.m.handMax(s.now, c) || len(s.store.Records[0].Behind) != 2 {
		t.Fatalf("%d are being settled, and %d channels are behind: this shows nothing", c.settling, len(s.store.Records[0].Behind))
	}
	well, limited := s.arrived["x:well"], s.arrived[a]
	for range 100 {
		s.add(0, "x:well", 1, 0)
		s.run(50 * ms)
	}
	if well, limited = s.arrived["x:well"]-well, s.arrived[a]-limited; well < 99 || limited < 90 {
		t.Errorf("in five seconds %d of 100 arrived of a channel that is well, and %d of 100 of one with a rate", well, limited)
	}
}

// Messages that a lapse dropped in an unreachable part of the store take no tokens of their
// channel's rate from messages elsewhere.
func TestWhatALapseDropsLeavesTheRate(t *testing.T) {
	s := newShop(t, 8, nil)
	s.alone = true
	s.limits(store.ChannelSettings{Route: "x:rated", MaxPerSecond: 20})
	for b := range 8 {
		s.add(b, "x:rated", 2+b/4*100, 3*time.Second+time.Duration(b/4)*200*ms)
	}
	s.run(2_980 * ms)
	s.broken = func(b int) bool { return b < 4 }
	s.lapse()
	if n := s.m.channels["x:rated"].dropped; n < 8 {
		t.Fatalf("%d were dropped", n)
	}
	s.run(15 * time.Second)
	if c := s.m.channels["x:rated"]; s.arrived["x:rated"] < 280 || c.dropped > 0 {
		t.Errorf("%d arrived in 15 s at 20 a second, and %d still take room", s.arrived["x:rated"], c.dropped)
	}
	s.broken = nil
	s.run(15 * time.Second)
	if n := s.arrived["x:rated"]; n != 416 || len(s.m.channels) > 0 {
		t.Errorf("%d of 416 arrived, and %d channels are remembered", n, len(s.m.channels))
	}
}

// If a bucket is lost, what a lapse dropped there is left to the next owner.
func TestWhatALapseDropsIsLost(t *testing.T) {
	s := newShop(t, 2, nil)
	s.alone = true
	s.add(0, "x:a", 20, 30*ms)
	s.run(5 * ms)
	s.broken = func(b int) bool { return b == 0 }
	s.lapse()
	if c := s.m.channels["x:a"]; c == nil || c.dropped != 20 {
		t.Fatalf("%+v: this shows nothing", c)
	}
	s.lose(0)
	s.run(time.Second)
	if len(s.m.channels) > 0 {
		t.Errorf("%d channels are remembered", len(s.m.channels))
	}
}

// An id that a lapse dropped may come back as another channel's message.
func TestWhatALapseDropsOfAnotherChannel(t *testing.T) {
	s := newShop(t, 1, nil)
	key := s.put(0, "x:a", 1, 30*ms)[0].Key
	s.nudge(0, 30*ms)
	s.run(5 * ms)
	s.change(key, func(r *postdate.Record) { r.Channel = "x:b" })
	s.lapse()
	s.run(500 * ms)
	if s.arrived["x:b"] != 1 || len(s.m.channels) > 0 {
		t.Errorf("%d arrived, and %d channels are remembered", s.arrived["x:b"], len(s.m.channels))
	}
}
