package poller

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// A channel has no more batches with its broker than it may, and none is too large.
func TestBatches(t *testing.T) {
	s := newMuteShop(t, 1, func(c *Config) { c.BatchMax, c.BatchesMax = 2, 3 })
	s.add(0, "x:a", 20, -ms)
	for range 10 {
		if left := len(s.store.Waiting[0]); len(s.unanswered) != min(3, left/2) || s.flying("x:a") != min(6, left) {
			t.Fatalf("%d messages are with the broker, in %d batches, and %d are left", s.flying("x:a"), len(s.unanswered), left)
		}
		s.reply(confirmed)
		s.run(10 * ms)
	}
}

// How many messages of a channel may be with its broker grows with those it confirms, and is
// small again after a batch without an answer.
func TestTheWindow(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.m.random = rand.New(rand.NewPCG(1, 1)).Float64 // so that a backlog has its turn
	s.add(0, "x:a", 10, -ms)
	s.add(0, "x:a", 1, -ms) // stays with the broker
	s.reply(confirmed)
	for _, n := range []int{30, 30, 300} {
		s.add(0, "x:a", n, -ms)
	}
	s.run(50 * ms)
	if s.flying("x:a") != windowMin+10 {
		t.Errorf("%d messages are with the broker after 10 were confirmed", s.flying("x:a"))
	}
	s.after(noAnswer)
	stays := s.unanswered[0]
	s.unanswered = s.unanswered[1:]
	for range len(s.unanswered) {
		s.reply(unknown)
	}
	s.untilSent()
	s.unanswered = append(s.unanswered, stays)
	s.reply(confirmed)
	s.run(2 * time.Second)
	if s.flying("x:a") != windowMin+1 {
		t.Errorf("%d messages are with the broker after it did not answer", s.flying("x:a"))
	}
}

// As many messages as a channel confirms in two seconds may be in hand, if that is more than
// what may otherwise be in doubt.
func TestWhatGoesOutFastMayBeInHand(t *testing.T) {
	s := newMuteShop(t, 1, func(c *Config) { c.DoubtMax = 16 })
	s.add(0, "x:a", 2_000, -ms)
	if s.flying("x:a") > 16 {
		t.Errorf("%d messages are with the broker at first", s.flying("x:a"))
	}
	s.run(500*ms, func() {
		if len(s.unanswered) > 0 && len(s.store.Waiting[0]) > 1_500 {
			s.reply(confirmed)
		}
	})
	if s.run(200 * ms); s.flying("x:a") < 100 {
		t.Errorf("%d messages are with the broker after it confirmed %d", s.flying("x:a"), 2_000-len(s.store.Waiting[0]))
	}
}

// What waits behind its channel's backlog can be cancelled, and comes as soon as the broker has
// answered.
func TestABacklogIsParkedAndComesBack(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.add(0, "x:a", 300, -ms)
	s.run(20 * ms)
	if _, fixed := s.doubt(); fixed["x:a"] != windowMin || s.flying("x:a") != windowMin {
		t.Errorf("%d messages cannot be cancelled, and %d are with the broker", fixed["x:a"], s.flying("x:a"))
	}
	s.mute = nil
	s.confirmAll()
	s.run(400 * ms)
	if s.arrived["x:a"] != 300 {
		t.Errorf("%d of 300 messages arrived", s.arrived["x:a"])
	}
}

// If no more than one message may be in hand at first, parked messages come back as fast as the
// store writes what became of the ones before.
func TestParkedMessagesFollowSettlements(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.DoubtMax = 1 })
	s.takeOver(30)
	if s.run(500 * ms); s.arrived["x:a"] != 30 {
		t.Errorf("%d of 30 messages arrived", s.arrived["x:a"])
	}
}

// If the hand is almost full, all channels that have messages there get equal shares; channels
// that had some earlier do not count.
func TestSharesOfAHandThatIsAlmostFull(t *testing.T) {
	s := newMuteShop(t, 1, func(c *Config) { c.HandMax = 64 })
	for i := range 4 {
		s.add(0, named("before:%d", i), 1, -ms)
		s.reply(confirmed)
		s.run(10 * ms)
	}
	for _, c := range []postdate.Route{"a:a", "b:b", "c:c"} { // each of another broker, whose sites may have a quarter
		s.add(0, c, 16, -ms)
	}
	s.add(0, "d:d", 16, -ms)
	if s.run(20 * ms); s.flying("d:d") != 8 {
		t.Errorf("%d messages of the last of four channels are in flight, want an eighth of the hand", s.flying("d:d"))
	}
}

// A waiting channel is looked at once in each step, however much of it is ready. Once nothing
// of it is ready it is not looked at, asks for no wake-up, and holds no memory.
func TestWhatAChannelCosts(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:a", MaxPerSecond: 2, MaxInFlight: 1})
	s.add(0, "x:a", 1, -ms)
	s.run(10 * ms)
	if wake := s.m.Wake(s.now); wake < 600*ms {
		t.Errorf("nothing waits, and it wants to be woken after %s", wake)
	}
	s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 10})
	s.add(0, "x:a", 100, -ms)
	if len(s.m.ready) != 1 {
		t.Errorf("one channel is looked at %d times", len(s.m.ready))
	}
	s.limits()
	if c := s.m.channels["x:a"]; len(s.m.ready) != 0 || cap(c.ready) != 0 {
		t.Errorf("%d channels are looked at, with room for %d messages", len(s.m.ready), cap(c.ready))
	}
}

// A rate is kept even if an operator meanwhile bounds what is in flight to less than is.
func TestARateIsKeptUnderAnotherLimit(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:a", MaxPerSecond: 1})
	s.add(0, "x:a", 10, -ms)
	s.run(2100 * ms)
	if s.flying("x:a") != 3 {
		t.Fatalf("%d messages are sent after two seconds at 1/s", s.flying("x:a"))
	}
	s.run(700 * ms) // the next one is in hand
	s.limits(store.ChannelSettings{Route: "x:a", MaxPerSecond: 1, MaxInFlight: 1})
	s.run(20 * ms)
	s.limits(store.ChannelSettings{Route: "x:a", MaxPerSecond: 1})
	s.run(100 * ms)
	if s.flying("x:a") != 3 {
		t.Errorf("%d messages are sent after less than three seconds at 1/s", s.flying("x:a"))
	}
}

// Nothing is published once less than LeaseMargin of the lease is left, until it is renewed.
func TestNothingIsPublishedWithoutALease(t *testing.T) {
	for _, early := range []time.Duration{0, ms} {
		b := &bench{t: t, m: newMachine(DefaultConfig()), now: postdate.Now{Wall: 1_000_000, Mono: time.Minute}}
		b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Second, Read: b.now})
		wait := time.Second - b.m.c.LeaseMargin - early
		b.owned(records("inbox:a", 1, b.now.Wall.Add(wait)-1))
		b.after(wait)
		want := 0
		if early > 0 {
			want = 1
		}
		if got := len(of[Publish](b.step(fence.Tick{}))); got != want {
			t.Errorf("%s before the margin begins: %d publishes, want %d", early, got, want)
		}
		if got := len(of[Publish](b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now}))); got != 1-want {
			t.Errorf("after the renewal: %d publishes, want %d", got, 1-want)
		}
	}
}

// What waits for its channel when its bucket is lost is not published.
func TestWhatIsReadyInALostBucket(t *testing.T) {
	s := newMuteShop(t, 2, nil)
	s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 1})
	s.add(0, "x:a", 2, -ms)
	if v := s.m.View(s.now); v.Hand != 2 || s.flying("x:a") != 1 {
		t.Fatalf("%d messages are in hand, and %d of them sent", v.Hand, s.flying("x:a"))
	}
	s.lose(0)
	if s.reply(confirmed); len(s.unanswered) > 0 {
		t.Error("it is published")
	}
	s.add(1, "x:a", 1, -ms)
	if s.run(100 * ms); s.flying("x:a") != 1 {
		t.Errorf("%d messages of another bucket are sent", s.flying("x:a"))
	}
}

// If a wall clock is set back a little, ready messages wait again, until their first
// millisecond.
func TestAClockSetBackALittle(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 1})
	s.add(0, "x:a", 2, -ms)
	s.now.Wall -= 50
	if s.reply(confirmed); len(s.unanswered) > 0 {
		t.Fatal("published early")
	}
	if wake := s.m.Wake(s.now); wake > 50*ms {
		t.Errorf("it wants to be woken after %s", wake)
	}
	if s.tick(49 * ms); len(s.unanswered) > 0 {
		t.Fatal("published early")
	}
	if s.tick(ms); s.flying("x:a") != 1 {
		t.Error("not published in time")
	}
}

// The last line of defence: what is not due, or can be cancelled, is never given to a broker.
func TestSendRefuses(t *testing.T) {
	now := postdate.Now{Wall: 1_000_000, Mono: time.Minute}
	for _, test := range []struct {
		execution, due postdate.Time
		parked, goes   bool
	}{
		{now.Wall - 1, now.Wall, false, true},
		{now.Wall - 1, now.Wall + 1, false, false},
		{now.Wall, now.Wall, false, false},
		{now.Wall + 1, now.Wall, false, false},
		{now.Wall - 1, now.Wall, true, false},
	} {
		m := newMachine(DefaultConfig())
		message := postdate.Message{Channel: "x:a", ExecutionTime: test.execution}
		rec := postdate.Record{Message: message, State: postdate.NewState(&message, 1)}
		rec.Parked = test.parked
		c := m.channelOf("x:a")
		c.ready = []*Item{{rec: &rec, channel: c, due: test.due}}
		goes := func() (goes bool) {
			defer func() { goes = recover() == nil }()
			m.send(now, c, 1)
			return
		}()
		if goes != test.goes {
			t.Errorf("%+v: it goes out: %t", test, goes)
		}
	}
}

// A message that waits for its channel ends when it expires, to the millisecond, and says
// whether it may have arrived.
func TestAReadyMessageExpires(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 2})
	end := s.now.Wall + 1_000
	s.add(0, "x:a", 2, 100*ms)
	s.add(0, "x:a", 2, 101*ms)
	last := s.store.Waiting[0][2:]
	plain, doubtful := last[0].ScheduleID, last[1].ScheduleID
	for _, r := range slices.Clone(last) {
		s.change(r.Key, func(next *postdate.Record) { next.ExpiresAt, next.PossibleDuplicate = end, r.ScheduleID == doubtful })
	}
	s.run(200 * ms)
	if v := s.m.View(s.now); v.Hand != 4 || s.flying("x:a") != 2 {
		t.Fatalf("%d messages are in hand, and %d of them sent", v.Hand, s.flying("x:a"))
	}
	s.tick(end.Sub(s.now.Wall) - ms)
	s.tick(0)
	if s.m.View(s.now).Hand != 4 || len(s.failed) > 0 {
		t.Errorf("it ends early: %+v", s.failed)
	}
	s.tick(ms)
	s.run(10 * ms)
	for id, how := range map[string]string{plain: "before it was delivered", doubtful: "may have been delivered"} {
		as := s.failed[id].as
		if as.At != end || !strings.HasPrefix(as.Reason, "expired at "+end.String()) || !strings.HasSuffix(as.Reason, how) {
			t.Errorf("%s ends at %d, want %d: %q", id, as.At, end, as.Reason)
		}
	}
}

// A bucket that is being handed over parks what waits for a channel, both at the start and
// while it works on for its other channels.
func TestALeavingBucketParksWhatWaits(t *testing.T) {
	t.Run("at once", func(t *testing.T) {
		s := newMuteShop(t, 1, nil)
		s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 1})
		s.add(0, "x:a", 2, -ms)
		s.drain(0)
		s.run(20 * ms)
		if s.flying("x:a") != 1 || s.parked() != 1 {
			t.Errorf("%d messages are sent, and %d parked", s.flying("x:a"), s.parked())
		}
	})
	t.Run("later", func(t *testing.T) {
		s := newMuteShop(t, 1, nil)
		s.add(0, "x:a", 1, -ms)
		s.drain(0)
		s.run(s.m.c.DrainStep + 100*ms)
		s.add(0, "x:a", 1, -ms)
		s.add(0, "x:b", 1, -ms)
		s.run(100 * ms)
		if s.flying("x:a") != 1 || s.flying("x:b") != 1 || s.parked() != 1 {
			t.Errorf("%d and %d messages are sent, and %d parked", s.flying("x:a"), s.flying("x:b"), s.parked())
		}
	})
}

// A channel is shown with the last answer of its broker that was not a confirm.
func TestTheLastError(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.add(0, "x:a", 3, -ms)
	s.add(0, "x:a", 1, -ms) // stays with the broker
	if all := s.m.Channels(); len(all) != 1 || all[0].Reason != "" || all[0].InHand != 4 || all[0].InFlight != 4 {
		t.Errorf("before: %+v", all)
	}
	s.reply(unknown, refused, confirmed)
	if all := s.m.Channels(); len(all) != 1 || all[0].Reason != refused.Reason || all[0].InFlight != 1 {
		t.Errorf("after: %+v", all)
	}
}

// A message with an unknown outcome is in doubt from then on; one that was refused is not.
func TestUnknownIsInDoubt(t *testing.T) {
	for _, outcome := range []publisher.Result{unknown, refused} {
		s := newMuteShop(t, 1, nil)
		s.add(0, "x:a", 1, -ms)
		s.reply(outcome)
		s.run(10 * ms)
		if r := s.store.Waiting[0][0]; r.PossibleDuplicate != (outcome == unknown) || r.Attempts != 1 {
			t.Errorf("%v: it is stored as %+v", outcome, r.State)
		}
	}
}

// A broker may answer when nobody waits any more: a delivery is still settled, with the mark,
// and any other answer changes nothing.
func TestAnAnswerAfterAHandOver(t *testing.T) {
	for _, outcome := range []publisher.Result{confirmed, refused, unknown, down} {
		b := newBench(t)
		rec := records("inbox:a", 1, b.now.Wall-20)
		rec[0].Version = 7
		published := of[Publish](b.owned(rec))[0]
		b.step(fence.Drain{Holds: holds(0)})
		var effects []Effect
		for range 2 {
			b.after(b.m.c.DrainMax)
			effects = append(effects, b.step(fence.Tick{})...)
		}
		settles := of[Settle](effects)
		if len(settles) != 1 || settles[0].Settlements[0].How != store.SettleRetry {
			t.Fatalf("given up as %+v", settles)
		}
		effects = b.step(Settled{Call: settles[0].Call})
		effects = append(effects, b.step(Published{published.Batch, []publisher.Result{outcome}})...)
		b.after(time.Second)
		settles = of[Settle](append(effects, b.step(fence.Tick{})...))
		if outcome != confirmed {
			if len(settles) > 0 {
				t.Errorf("%v: settled again: %+v", outcome, settles)
			}
			continue
		}
		if len(settles) != 1 {
			t.Fatalf("%d settles, want 1", len(settles))
		}
		want := store.Settlement{
			Key: rec[0].Key, ExecutionTime: rec[0].ExecutionTime, Version: 7, Token: 1, How: store.SettleDelivered, Attempts: 1, PossibleDuplicate: true,
			Outcome: postdate.AttemptDelivered,
		}
		got := settles[0].Settlements[0]
		if want.At = got.At; got != want {
			t.Errorf("settled as %+v, want %+v", got, want)
		}
	}
}
