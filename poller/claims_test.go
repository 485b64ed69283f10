package poller

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

// Failing claims hold no memory for ever, whether all of the store or only a part of it is out
// of reach for a while.
func TestClaimsThatFailLeaveRoom(t *testing.T) {
	for _, test := range []struct {
		buckets, every int
		change         func(*Config)
	}{
		{64, 1, nil},
		{64, 1, func(c *Config) { c.PayloadBytesMax, c.HandBytesMax = 16<<20, 128<<20 }},
		{256, 3, nil},
	} {
		s := newShop(t, test.buckets, test.change)
		s.run(3 * time.Second)
		down, sent := true, 0
		s.broken = func(b int) bool { return down && b%test.every == 0 }
		s.run(2*time.Second, func() {
			s.add(sent%test.buckets, "x:well", 1, -ms)
			sent++
		})
		down = false
		s.run(10 * time.Second)
		if got := s.arrived["x:well"]; got != sent {
			t.Errorf("%d buckets: %d of %d messages arrived ten seconds after all is well", test.buckets, got, sent)
		}
	}
}

// A channel that stays behind because of a lost answer stays so through a sweep, whose pages do
// not move what is claimed.
func TestDoubtAfterALostAnswerAndASweep(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.DoubtMax = 8 })
	s.mute = func(c postdate.Route) bool { return c == "x:slow" }
	behind, worst := 0, 0
	s.lost = func(e Claim) bool {
		c := e.Claims[0]
		if len(c.Behind) > 0 {
			behind++
		}
		if behind > 1 && c.Scan.After == (bucket.Position{}) && len(s.unanswered) > 0 { // the broker answers during the sweep's first page
			s.confirmAll()
			s.after(6 * ms)
			s.step(fence.Tick{})
		}
		if inDoubt, _ := s.doubt(); s.arrived["x:slow"] <= s.m.c.DoubtMax {
			worst = max(worst, inDoubt["x:slow"])
		}
		return behind == 1 // the first claim that leaves a channel behind is written, and its answer lost
	}
	s.add(0, "x:slow", 500, 100*ms)
	for behind == 0 {
		s.run(5 * ms)
	}
	b := s.m.buckets[0]
	b.sweepAt, b.sweeping = s.now.Mono, false // a sweep falls due now
	s.run(200 * ms)
	if worst > s.m.c.DoubtMax {
		t.Errorf("a crash would mark %d messages of a channel, of which at most %d may be claimed", worst, s.m.c.DoubtMax)
	}
}

// After an orderly hand-over nothing is in doubt, even if a backlog waits unclaimed: this
// includes messages scheduled later for a time that was claimed before.
func TestNoMarksAfterAHandOverWithABacklog(t *testing.T) {
	s := newShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:tight", MaxPerSecond: 1})
	s.add(0, "x:tight", 700, 100*ms)
	s.run(5 * time.Second)
	s.drain(0)
	s.run(3 * time.Second)
	if s.gone[0] == nil || len(s.store.Records[0].Behind) == 0 {
		t.Fatalf("handed over at %v: %+v", s.gone[0], s.store.Records[0])
	}
	p := s.store.Records[0]
	p.Token++
	s.mute = every
	s.gain(p)
	s.add(0, "x:well", 1, (p.Claimed.Time - 2_000).Sub(s.now.Wall))
	s.run(3 * time.Second)
	sent := map[postdate.Route]int{}
	for _, batch := range s.unanswered {
		for _, it := range batch.Batch {
			if sent[routeOf(batch)]++; it.Delivery.PossibleDuplicate {
				t.Errorf("%s is marked", it.Delivery.Message.ScheduleID)
			}
		}
	}
	if sent["x:well"] != 1 || sent["x:tight"] == 0 {
		t.Errorf("sent %v", sent)
	}
}

// What is due in a bucket in which nothing is behind does not wait until a channel that is
// behind in very many other buckets has caught up.
func TestCatchingUpKeepsNobodyBack(t *testing.T) {
	const buckets, behindIn = 400, 300
	s := openShop(t, nil)
	s.mute, s.waits = every, storeCalls
	ps := s.partitions(buckets)
	for b := range ps {
		ps[b].Checkpoint = s.now.Wall - 70_000
		if b < behindIn {
			ps[b].Behind = map[postdate.Route]bucket.Position{"x:a": bucket.UpTo(s.now.Wall - 60_000)}
			s.put(b, "x:a", 250, -50*time.Second)
		}
	}
	s.gain(ps...)
	var asked, longest time.Duration
	for step := range 60 { // 10 ms each: a round trip of the store, and of the brokers
		calls, batches := slices.Clone(s.calls), len(s.unanswered)
		s.after(10 * ms)
		if step >= 8 && asked == 0 {
			asked = s.now.Mono
			s.add(buckets-1, "x:b", 1, -ms)
		}
		for _, c := range calls {
			s.answerWith(c)
		}
		if slices.ContainsFunc(s.unanswered[:batches], func(p Publish) bool { return p.Channel == "x:b" }) {
			asked = 0
		}
		s.confirm(batches)
		if asked != 0 {
			longest = max(longest, s.now.Mono-asked)
		}
		s.tick(0)
	}
	if longest > 100*ms {
		t.Errorf("it waits for %s", longest)
	}
}

// Channels that are behind in more buckets than one call takes have their turn one after the
// other, and so have the buckets of each.
func TestCatchingUpTakesTurns(t *testing.T) {
	const buckets, most = 100, 64
	s := openShop(t, func(c *Config) { c.DoubtMax = 8_000 })
	s.m.random, s.m.sweepsMin = rand.New(rand.NewPCG(1, 2)).Float64, 2*buckets
	s.mute = every
	ps := s.partitions(2 * buckets)
	of := func(b int) postdate.Route { return named("x:%d", b/buckets) }
	for b := range ps {
		ps[b].Checkpoint = s.now.Wall - 70_000
		ps[b].Behind = map[postdate.Route]bucket.Position{of(b): bucket.UpTo(s.now.Wall - 60_000)}
		s.put(b, of(b), 100, -50*time.Second)
	}
	s.gain(ps...)
	for _, c := range s.m.tenantOf(postdate.DefaultTenant).behind {
		s.m.prove(c.site, true)
		if c.window = 2_000; s.m.roomOf(s.now, c) < buckets {
			t.Fatalf("there is room for %d only", s.m.roomOf(s.now, c))
		}
	}
	s.m.buckets[7].polling = true
	tried := map[int]bool{}
	for call := range 4 {
		all, channels := s.m.catchingUp(s.now, most), map[postdate.Route]bool{}
		for _, b := range all {
			tried[b.hold.Bucket] = true
			channels[of(b.hold.Bucket)] = true
		}
		if len(all) != most || len(channels) != 1 {
			t.Errorf("call %d takes %d buckets for %v, want %d for one channel", call, len(all), channels, most)
		}
	}
	if len(tried) != 2*buckets-1 || tried[7] {
		t.Errorf("four calls of %d take %d of %d buckets", most, len(tried), 2*buckets-1)
	}
	c := s.m.tenantOf(postdate.DefaultTenant).behind[0]
	for c.window = 1; !s.m.hasRoom(s.now, c); c.window++ {
	}
	room := s.m.roomOf(s.now, c)
	if n := len(s.m.catchingUpIn(s.now, c, buckets)); room >= buckets-1 || n != room {
		t.Errorf("one call takes %d buckets where there is room for %d messages", n, room)
	}
	if n := len(s.m.catchingUp(s.now, most)); n != most {
		t.Errorf("with the next channel a call takes %d buckets, want %d", n, most)
	}
}

// Where a call has room for one bucket, what is new and what is behind take turns.
func TestCatchingUpWithRoomForOne(t *testing.T) {
	const behind = 8
	s := openShop(t, func(c *Config) { c.HandBytesMax, c.SweepEvery = 4*c.PayloadBytesMax, time.Hour })
	ps := s.partitions(behind + 1)
	for b := range behind {
		ps[b].Checkpoint = s.now.Wall - 70_000
		ps[b].Behind = map[postdate.Route]bucket.Position{named("x:%d", b): bucket.UpTo(s.now.Wall - 60_000)}
		s.put(b, named("x:%d", b), 2_000, -50*time.Second)
	}
	s.waits = has[Claim]
	s.m.handBytes = s.m.c.PayloadBytesMax
	s.gain(ps...)
	behindCalls, newCalls := 0, 0
	for range 60 {
		s.add(behind, "x:new", 1, -ms)
		s.tick(20 * ms)
		for _, c := range slices.Clone(s.calls) {
			if len(c.claim.Claims) != 1 {
				t.Fatalf("%d buckets are claimed, and there is room for one", len(c.claim.Claims))
			}
			if c.claim.Claims[0].Bucket == behind {
				newCalls++
			} else {
				behindCalls++
			}
			s.answerWith(c)
		}
		s.renew()
	}
	if behindCalls < 20 || newCalls < 20 {
		t.Errorf("of 60 calls %d claim what is new, and %d what is behind", newCalls, behindCalls)
	}
}

// Sweeps of buckets in which something is behind have to pass over that. So those that fall due together are
// spread over calls. They all come soon, and those of other buckets do not wait.
func TestSweepsOfWhatIsBehindAreSpread(t *testing.T) {
	const n = 400
	s := newShop(t, 0, func(c *Config) { c.SweepEvery = time.Hour })
	s.hold("x:a")
	var all []bucket.Partition
	for i := range n + 1 {
		p := s.behind("x:a")
		if p.Bucket = i; i == n {
			p.Behind = nil
		}
		all = append(all, p)
	}
	s.gain(all...)
	s.sleep(5 * time.Second)
	for _, b := range s.m.buckets {
		b.sweepAt, b.sweeping = s.now.Mono, false
		s.m.touch(b)
	}
	swept, most := map[int]bool{}, 0
	s.watch = func(e Effect) {
		if call, is := e.(Claim); is {
			before := len(swept)
			for _, b := range sweptIn(call) {
				swept[b] = true
			}
			most = max(most, len(swept)-before)
		}
	}
	s.run(1500 * ms)
	if want := sweepsMin + 1; len(swept) != n+1 || most != want {
		t.Errorf("%d of %d buckets are swept, up to %d in a call, want up to %d", len(swept), n+1, most, want)
	}
}

func sweptIn(call Claim) (buckets []int) {
	for _, c := range call.Claims {
		if c.Only == "" && c.Scan.After == (bucket.Position{}) {
			buckets = append(buckets, c.Bucket)
		}
	}
	return buckets
}

// A call has as many sweeps as fell due and were not in the calls before, a few in any case, and a quarter of all
// at most: those that have been due for longest.
func TestLastSweep(t *testing.T) {
	s := newShop(t, 0, func(c *Config) { c.SweepEvery = 2 * time.Second })
	s.now.Mono = time.Hour
	var all []*owned
	for i := range 64 {
		b := &owned{sweepAt: s.now.Mono - time.Duration(i/2)*ms, hold: store.Hold{Bucket: i},
			record: bucket.Partition{Behind: map[postdate.Route]bucket.Position{"x:a": {}}}}
		s.m.buckets[i] = b
		all = append(all, b)
	}
	all[63].polling, all[62].lost, all[61].record.Behind, all[60].sweeping = true, true, nil, true
	for after, want := range map[time.Duration]int{
		0: 57, 100 * ms: 57, 150 * ms: 57, 160 * ms: 54, 250 * ms: 53, time.Second: 45, time.Hour: 45,
	} {
		if got := s.m.lastSweep(s.now, &lane{sweepsFrom: s.now.Mono - after}, slices.Concat(all, all)); got == nil || got.hold.Bucket != want {
			t.Errorf("after %s: %+v, want bucket %d", after, got, want)
		}
	}
	l := &lane{}
	if got := s.m.lastSweep(s.now, l, all[:10]); got != nil {
		t.Errorf("ten fall due, and the last is %+v", got)
	}
	if got := s.m.lastSweep(s.now, l, all); got == nil || got.hold.Bucket != 55 {
		t.Errorf("after a call that had ten: %+v, want the sixth, bucket 55", got)
	}
	for in, want := range map[time.Duration]bool{501 * ms: true, 500 * ms: false} { // a sweep may come a little early
		all[16].sweepAt = s.now.Mono + in
		if got := s.m.lastSweep(s.now, &lane{}, all[:17]); (got == nil) != want {
			t.Errorf("where one more is due in %s: %+v", in, got)
		}
	}
}

// Beside a backlog, busy buckets and a slow store, no bucket waits for long for its sweep.
func TestNoSweepWaitsForLong(t *testing.T) {
	const n, busy = 64, 60
	r := testrun.Random(t)
	for _, takes := range []time.Duration{20 * ms, 200 * ms, 500 * ms} {
		s := openShop(t, func(c *Config) { c.FindEvery = time.Hour })
		s.waits = storeCalls
		s.hold("x:a")
		var all []bucket.Partition
		for i := range n {
			p := s.behind("x:a")
			p.Bucket = i
			all = append(all, p)
		}
		s.gain(all...)
		begun := s.now.Mono + 5*time.Second
		swept, longest := map[int]time.Duration{}, time.Duration(0)
		s.watch = func(e Effect) {
			if call, is := e.(Claim); is {
				for _, b := range sweptIn(call) {
					longest = max(longest, s.now.Mono-max(swept[b], begun))
					swept[b] = s.now.Mono
				}
			}
		}
		for step := 0; s.now.Mono < begun+35*time.Second; step++ {
			s.sleep(5 * ms)
			for i := range busy {
				if r.IntN(8) == 0 {
					s.add(i, "x:b", 1, 30*ms+time.Duration(r.IntN(40))*ms)
				}
			}
			if step%200 == 0 {
				s.renew()
			}
			for _, c := range slices.Clone(s.calls) {
				took := s.now.Mono - s.begin.Mono - c.at
				if c.settle != nil || took >= takes*time.Duration(60+c.number*37%80)/100 {
					s.answerWith(c)
				}
			}
		}
		for b := range n {
			longest = max(longest, s.now.Mono-swept[b])
		}
		if longest > 2*s.m.c.SweepEvery {
			t.Errorf("where claims take %s, a bucket waits for its sweep for %s", takes, longest)
		}
	}
}

// However many buckets have something new, no more than catchUpMax of a call catch up: the others read what
// is new.
func TestFewOfACallCatchUp(t *testing.T) {
	const n = 100
	s := newBareShop(t, nil)
	s.gainBehind(n, "x:a")
	s.m.channels["x:a"].window = 1_000
	s.m.prove(s.m.channels["x:a"].site, true)
	s.limits()
	for call := range 4 {
		c := s.take()
		if in := len(only(c)["x:a"]); in > catchUpMax || in == 0 {
			t.Errorf("in call %d of %d buckets a channel catches up in %d, want 1 to %d", call, len(c.Claims), in, catchUpMax)
		}
		if call == 0 && len(c.Claims) < 64 {
			t.Errorf("the first call has %d buckets", len(c.Claims))
		}
		s.find(c)
		s.after(ms)
		for b := range n {
			s.nudge(b, -ms)
		}
	}
}

// Beside so many buckets in which something new is due that they fill each call, channels that
// are behind catch up, and none of them much faster than the others.
func TestCatchingUpBesideWhatIsNew(t *testing.T) {
	const busy, channels, rounds = 400, 4, 24
	s := openShop(t, func(c *Config) { c.DoubtMax, c.HandMax, c.SweepEvery = 4_000, 1<<18, time.Hour })
	s.m.random, s.m.sweepsMin = rand.New(rand.NewPCG(1, 2)).Float64, 64*channels
	late := func(i int) postdate.Route { return named("x:late%d", i) }
	ps := s.partitions(busy + 64*channels)
	for i := range 64 * channels {
		p := &ps[busy+i]
		p.Checkpoint = s.now.Wall - 70_000
		p.Behind = map[postdate.Route]bucket.Position{late(i / 64): bucket.UpTo(s.now.Wall - 60_000)}
		s.put(p.Bucket, late(i/64), 2_000, -50*time.Second)
	}
	s.waits = has[Claim]
	s.gain(ps...)
	for i := range channels {
		c := s.m.channels[late(i)]
		s.m.prove(c.site, true)
		c.window = 2_000
	}
	for range rounds {
		for b := range busy {
			s.put(b, "x:new", 1, -ms)
			s.m.nudge(b, spanSince(s.now.Wall-1))
		}
		s.tick(20 * ms)
		for _, c := range slices.Clone(s.calls) {
			s.answerWith(c)
		}
		s.renew()
	}
	least, most := s.arrived[late(0)], s.arrived[late(0)]
	for i := range channels {
		least, most = min(least, s.arrived[late(i)]), max(most, s.arrived[late(i)])
	}
	if least < most/2 || s.arrived["x:new"] < rounds*busy/8 {
		t.Errorf("arrived: %v", s.arrived)
	}
	for b := range busy {
		s.m.nudge(b, spanSince(s.now.Wall-1))
	}
	s.m.fileTouched()
	for _, b := range s.m.choices(s.now, false, 64) {
		if b.hold.Bucket >= busy {
			t.Errorf("bucket %d, in which a channel is behind, uses up its turn in a call that has no place for it", b.hold.Bucket)
			break
		}
	}
}

// What lies ahead of a clock that was set back keeps no other channel from catching up.
func TestCatchingUpBesideWhatLiesAhead(t *testing.T) {
	const buckets, due = 100, 2_000
	s := openShop(t, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	ps := s.partitions(buckets)
	for b := range ps { // as a node left it whose clock was an hour ahead
		ps[b].Claimed = bucket.UpTo(s.now.Wall.Add(time.Hour))
		ps[b].Behind = map[postdate.Route]bucket.Position{"x:ahead": bucket.UpTo(s.now.Wall.Add(30 * time.Minute))}
	}
	ps[buckets-1].Behind["x:late"] = bucket.Position{Time: s.now.Wall - 1_000}
	s.put(buckets-1, "x:late", due, -500*ms)
	s.gain(ps...)
	s.m.prove(s.m.channels["x:ahead"].site, true)
	s.m.channels["x:ahead"].window = 500
	for _, b := range s.m.catchingUp(s.now, buckets) {
		if b.hold.Bucket != buckets-1 {
			t.Errorf("bucket %d is to catch up, and all lies ahead there", b.hold.Bucket)
		}
	}
	for range 5 {
		s.sleep(time.Second)
		s.renew()
	}
	if n := s.arrived["x:late"]; n != due {
		t.Errorf("%d of %d that are due arrived within 5 s", n, due)
	}
}

// A machine that no longer owns anything forgets all channels, even if an unpark was under way.
func TestNoChannelIsLeftByAnUnpark(t *testing.T) {
	b := newBench(t)
	b.owned(nil)
	unparks := of[Unpark](b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 0, Route: "x:a"}}}))
	if len(unparks) != 1 {
		t.Fatalf("%d unparks", len(unparks))
	}
	b.step(fence.Lost{Holds: holds(0)})
	b.step(Unparked{Unpark: unparks[0].Unpark, Moved: 1})
	if len(b.m.channels) > 0 {
		t.Errorf("%d channels are left", len(b.m.channels))
	}
}

// The same holds if a claim was under way for a channel that was behind. The claim is small,
// since only the next claim would look at a crowded channel.
func TestNoChannelIsLeftByAClaim(t *testing.T) {
	b := newBench(t)
	b.m.c.HandMax = b.m.c.crowdMin()
	claims := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{{
		Token: 1, Owner: "me", Lease: "me", Checkpoint: b.now.Wall - 1_000, Claimed: bucket.UpTo(b.now.Wall - 500),
		Behind: map[postdate.Route]bucket.Position{"x:a": bucket.UpTo(b.now.Wall - 900)},
	}}}))
	for len(claims) > 0 && claims[0].Claims[0].Only == "" {
		claims = of[Claim](b.answer(claims[0], nil))
	}
	if len(claims) != 1 {
		t.Fatalf("%d claims of what is behind, want 1", len(claims))
	}
	b.step(fence.Lost{Holds: holds(0)})
	b.answer(claims[0], nil)
	if len(b.m.channels) > 0 {
		t.Errorf("%d channels are left", len(b.m.channels))
	}
}

// A claim whose answer was lost counts until it is known how far it went. A smaller claim after
// it, which shows whether the store is back, is not enough.
func TestDoubtAfterManyLostAnswers(t *testing.T) {
	s := newShop(t, 6, func(c *Config) { c.DoubtMax = 64 })
	s.mute = every
	s.lost = func(e Claim) bool { return e.Claims[0].Scan.Limit > 1 }
	for b := range 6 {
		s.add(b, "x:slow", 100, 100*ms)
	}
	worst := 0
	s.run(3*time.Second, func() {
		inDoubt, _ := s.doubt()
		worst = max(worst, inDoubt["x:slow"])
	})
	if worst > s.m.c.DoubtMax {
		t.Errorf("a crash would mark %d messages of a channel, of which at most %d may be claimed", worst, s.m.c.DoubtMax)
	}
	s.lost = nil
	s.run(3 * time.Second)
	if s.m.comingOfAny != 0 {
		t.Errorf("%d messages count as claimed when all is well", s.m.comingOfAny)
	}
}

// If most of a channel's room is taken by messages that cannot be settled or claimed in one
// bucket, or that its broker does not answer, the rest of it serves the other buckets.
func TestAChannelGoesOnBesideWhatCannotBeSettled(t *testing.T) {
	fails := func(s *shop) { s.broken = func(b int) bool { return b == 0 } }
	hangs := func(s *shop) {
		s.waits = func(e Effect) bool {
			settle, is := e.(Settle)
			return is && slices.ContainsFunc(settle.Settlements, func(x store.Settlement) bool { return x.Key.Bucket == 0 })
		}
	}
	for _, test := range []struct {
		what          string
		stop          func(*shop)
		stuck, flying int
	}{{"it fails", fails, 350, 0}, {"it fails, and a batch is not answered", fails, 350, 80}, {"it hangs", hangs, 350, 0}} {
		const sent = 3_000
		s := newMuteShop(t, 4, nil)
		s.alone = true
		s.add(0, "x:a", 1, -ms)
		s.run(10 * ms)
		s.mute = nil
		for range 10 { // its window grows
			s.add(1, "x:a", 100, -ms)
			s.run(50 * ms)
		}
		s.mute = every
		s.add(0, "x:a", test.stuck, 0)
		s.run(100 * ms)
		test.stop(s)
		s.confirmAll()
		s.run(11 * time.Second) // its pace is forgotten
		s.add(3, "x:a", test.flying, -ms)
		s.run(50 * ms)
		if c := s.m.channels["x:a"]; c == nil || c.settling != test.stuck+1 || c.inFlight != test.flying || s.m.handMax(s.now, c) != 500 {
			t.Fatalf("%s: %+v: this shows nothing", test.what, c)
		}
		s.mute = nil
		before := s.arrived["x:a"]
		for b := 1; b < 4; b++ {
			s.add(b, "x:a", sent/3, -ms)
		}
		s.run(time.Second)
		if n := s.arrived["x:a"] - before; n != sent {
			t.Errorf("%s: %d of %d arrived in a second", test.what, n, sent)
		}
	}
}

// A channel that only a claim without an answer has left behind is remembered, even when
// nothing of it is in hand any more, and catches up.
func TestCatchingUpAfterAClaimWithoutAnAnswer(t *testing.T) {
	s := newBareShop(t, nil)
	s.gainEmpty(2)
	s.prove("x:a")
	s.find(s.ask(1), s.put(1, "x:a", 2*windowMin, -ms)...)
	claim := s.ask(0)
	if _, left := claim.Claims[0].Behind["x:a"]; !left {
		t.Fatalf("%+v: this shows nothing", claim)
	}
	s.loseAnswer(claim)
	for len(s.unanswered) > 0 {
		s.reply(confirmed)
	}
	s.nudge(1, -ms)
	s.find(s.take()) // it is not crowded any more
	s.after(s.m.c.RetryAfter)
	s.step(fence.Tick{})
	caught := false
	for len(s.calls) > 0 {
		call := s.take()
		caught = caught || call.Claims[0].Only == "x:a"
		s.find(call)
	}
	if !caught {
		t.Error("it does not catch up")
	}
}

// If a claim hangs that may bring most of what its channel has room for, the channel catches up
// in other buckets with the rest of its room.
func TestAChannelGoesOnBesideAClaimThatHangs(t *testing.T) {
	s := newBareShop(t, nil)
	limit := func(n int) { s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: n}) }
	limit(4) // room for 8
	s.gainSwept(s.behind("x:a"))
	s.take()
	limit(6) // room for 12
	s.after(callSlow)
	s.gainSwept(s.behind("x:a"))
	for _, wait := range []time.Duration{stuckAfter - callSlow - ms, ms} {
		if len(s.calls) > 0 {
			t.Fatalf("there is little room, and a claim that is slow is not waited for: %+v", s.calls)
		}
		s.after(wait)
		s.step(fence.Tick{})
	}
	if c := s.take().Claims[0]; c.Only != "x:a" || c.Bucket != 1 || c.Scan.Limit != 4 {
		t.Errorf("beside a claim of 8 messages that hangs there is %+v", c)
	}
}

// If the store is well, slow settlements do not lead to many small and wasteful claims.
func TestHalfIsSettledBeforeMoreComes(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.SettleMax = 50 })
	s.waits = has[Settle]
	for s.arrived["x:a"] < s.m.c.DoubtMax/2 {
		s.add(0, "x:a", 10, -ms)
		s.run(5 * ms)
	}
	s.add(0, "x:a", 200, 0) // the last ones are left behind
	s.run(5 * ms)
	c, before := s.m.channels["x:a"], len(s.log)
	if len(c.behindIn) == 0 || c.settling != c.hand {
		t.Fatalf("%+v: this shows nothing", c)
	}
	for s.m.roomOf(s.now, c) < s.m.c.SettleMax {
		s.answer(settles)
		s.run(5 * ms)
	}
	s.run(100 * ms)
	for _, c := range s.log[before:] {
		if c.claim != nil && c.claim.Claims[0].Only == "x:a" {
			t.Errorf("more is claimed when little is settled: %+v", c.claim)
		}
	}
}
