package poller

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// bench steps a machine that owns one bucket by hand.
type bench struct {
	t   *testing.T
	m   *Machine
	now postdate.Now
}

// newMachine returns a machine without jitter, of a node whose clock is right.
func newMachine(c Config) *Machine {
	return NewMachine(c, func() float64 { return 0 }, func(now postdate.Now) postdate.Time { return now.Wall })
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, m: newMachine(DefaultConfig()), now: postdate.Now{Wall: 1_000_000, Mono: time.Minute}}
	b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
	return b
}

func (b *bench) step(ev Event) []Effect { return b.m.Step(b.now, ev) }

func (b *bench) after(d time.Duration) {
	b.now.Mono += d
	b.now.Wall = b.now.Wall.Add(d)
}

// of lists the effects of one kind.
func of[E Effect](effects []Effect) (found []E) {
	for _, e := range effects {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

func records(channel postdate.Route, n int, at postdate.Time) []postdate.Record {
	all := make([]postdate.Record, n)
	for i := range all {
		m := postdate.Message{Key: postdate.Key{Tenant: channel.Tenant(), ScheduleID: string(channel[6:]) + string(rune('a'+i/26)) + string(rune('a'+i%26))}, Channel: channel.Channel(), ExecutionTime: at}
		all[i] = postdate.Record{Message: m, State: postdate.NewState(&m, 1)}
	}
	return all
}

// owned gives the machine bucket 0, with these messages in it.
func (b *bench) owned(due []postdate.Record) []Effect {
	b.t.Helper()
	claims := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{{Token: 1, Owner: "me", Lease: "me"}}}))
	if len(claims) != 1 {
		b.t.Fatalf("%d claims, want 1", len(claims))
	}
	return b.answer(claims[0], due)
}

func (b *bench) answer(c Claim, due []postdate.Record) []Effect {
	return b.step(Claimed{b.m.claimCall(), []store.ClaimResult{seen(c.Claims[0], due...)}})
}

// A rate holds over any stretch of time, whatever is due, and is used up.
func TestRateLimit(t *testing.T) {
	for _, rate := range []int{2, 50, 4_000} {
		s := newShop(t, 2, nil)
		s.limits(store.ChannelSettings{Route: "inbox:slow", MaxPerSecond: float64(rate)})
		s.add(0, "inbox:slow", 2*rate, -10*ms)
		s.add(1, "inbox:slow", rate, -10*ms)
		s.add(1, "inbox:fast", 20, -10*ms)
		begin := s.now.Mono
		s.run(2*time.Second, func() {
			if most := 1 + rate/10 + int(float64(rate)*(s.now.Mono-begin).Seconds()); s.arrived["inbox:slow"] > most {
				t.Fatalf("%d sent after %v, want at most %d", s.arrived["inbox:slow"], s.now.Mono-begin, most)
			}
		})
		if s.arrived["inbox:slow"] < 2*rate*19/20 || s.arrived["inbox:fast"] != 20 {
			t.Errorf("sent %v in 2 s, want about %d at %d/s, and all of the other channel", s.arrived, 2*rate, rate)
		}
	}
}

// A rate lets each message out at its time and not later. The machine asks to be woken for
// that, and for nothing in between.
func TestRateWakes(t *testing.T) {
	const rate = 15.0 // one and a half messages may gather
	b := newBench(t)
	b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", MaxPerSecond: rate}}})
	begin, sent, steps := b.now.Mono, 0, 0
	effects := b.owned(records("inbox:a", 4, b.now.Wall-3))
	for ; b.now.Mono < begin+300*ms; steps++ {
		for _, p := range of[Publish](effects) {
			want := begin
			if sent > 0 {
				want += time.Duration((float64(sent) - 0.5) / rate * float64(time.Second))
			}
			if off := b.now.Mono - want; len(p.Batch) != 1 || off < 0 || off > 10 {
				t.Errorf("%d messages after %d others are sent %s off their time", len(p.Batch), sent, off)
			}
			sent += len(p.Batch)
		}
		b.answerAll(effects)
		b.after(b.m.Wake(b.now))
		effects = b.step(fence.Tick{})
	}
	if sent != 4 || steps > 20 {
		t.Errorf("%d of 4 messages were sent in %d steps", sent, steps)
	}
}

// While there is a token, the machine asks for no wake-up for one.
func TestNoWakeForATokenThatIsThere(t *testing.T) {
	b := newBench(t)
	b.m.c.BatchMax, b.m.c.BatchesMax = 1, 1
	b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", MaxPerSecond: 20}}}) // two may gather
	if n := len(of[Publish](b.owned(records("inbox:a", 2, b.now.Wall-3)))); n != 1 {
		t.Fatalf("%d publishes, want 1 at a time", n)
	}
	if w := b.m.Wake(b.now); w < ms {
		t.Errorf("it wants to be woken after %s", w)
	}
}

// A channel with a rate has in hand what goes out within a quarter of a second.
func TestWhatARateTakesInHand(t *testing.T) {
	now := time.Minute
	for rate, want := range map[float64]int{0: math.MaxInt, 0.5: 1, 1: 1, 2: 1, 4: 2, 100: 10 + 25, 4_000: 400 + 1_000, 1e12: 1 << 30} {
		c := &outlet{limit: &limit{set: store.ChannelSettings{MaxPerSecond: rate}}}
		if got := c.limited(now); got != want {
			t.Errorf("%d messages at %g/s, want %d", got, rate, want)
		}
	}
	if c := (&outlet{}); c.limited(now) != math.MaxInt || c.roomAt(now) != 0 {
		t.Errorf("without a limit: %d messages, from %s on", c.limited(now), c.roomAt(now))
	}
}

// If a rate lets nothing into the hand now, it is known to the nanosecond when it will.
func TestWhenARateHasRoom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	waited := 0
	for range 2_000 {
		rate := []float64{0.125, 0.5, 1, 2}[r.IntN(4)] // so that the times are exact
		now := time.Minute + time.Duration(r.IntN(8))*time.Second/8
		c := &outlet{limit: &limit{set: store.ChannelSettings{MaxPerSecond: rate}, tokens: float64(r.IntN(8)) / 8, at: now}}
		at := c.roomAt(now)
		switch room := c.limited(now) > 0; {
		case room && at != 0:
			t.Fatalf("%g tokens at %g/s: there is room, and it waits for %s", c.limit.tokens, rate, at-now)
		case !room && (c.limited(at) != 1 || c.limited(at-2) != 0):
			t.Fatalf("%g tokens at %g/s: it waits for %s, when it may have %d, and 2 ns before %d", c.limit.tokens, rate, at-now, c.limited(at), c.limited(at-2))
		case !room:
			waited++
		}
	}
	if waited < 200 {
		t.Errorf("it waited %d times: this shows nothing", waited)
	}
}

// A bound on messages in flight is kept, and each answer makes room.
func TestInFlightLimit(t *testing.T) {
	s := newShop(t, 1, nil)
	s.mute = every
	s.limits(store.ChannelSettings{Route: "inbox:narrow", MaxInFlight: 3})
	s.add(0, "inbox:narrow", 10, -10*ms)
	s.run(time.Second)
	if s.mostFlying != 3 {
		t.Fatalf("%d are in flight, want 3", s.mostFlying)
	}
	s.mute = nil
	s.confirmAll()
	s.run(4 * time.Second)
	if s.arrived["inbox:narrow"] != 10 {
		t.Errorf("%d of 10 went out", s.arrived["inbox:narrow"])
	}
}

// A paused channel's messages are parked, no probe goes out, and all of them come back when it
// is resumed.
func TestPause(t *testing.T) {
	b := newBench(t)
	b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", Paused: true}}})
	effects := b.owned(records("inbox:a", 4, b.now.Wall-10))
	b.after(10 * ms)
	effects = append(effects, b.step(fence.Tick{})...)
	if len(of[Publish](effects)) > 0 {
		t.Fatal("published to a paused channel")
	}
	settles := of[Settle](effects)
	if len(settles) != 1 || len(settles[0].Settlements) != 4 || settles[0].Settlements[0].How != store.SettlePark {
		t.Fatalf("settled: %+v", settles)
	}
	effects = b.step(Settled{Call: b.m.settleCall()})
	for range 20 {
		b.after(time.Second)
		effects = append(effects, b.step(fence.Tick{})...)
	}
	if len(of[Unpark](effects)) > 0 {
		t.Fatal("it probes a channel that is paused")
	}
	if len(of[Unpark](b.step(Limits{}))) != 1 {
		t.Error("what was parked does not become due when the channel is resumed")
	}
}

// When a channel's pause ends and a limit set earlier remains, its parked messages come back
// immediately.
func TestResumedUnderALimit(t *testing.T) {
	settings := store.ChannelSettings{Route: "inbox:a", MaxPerSecond: 5, Paused: true}
	b := newBench(t)
	b.owned(nil)
	b.step(Limits{Settings: []store.ChannelSettings{settings}})
	b.parked("inbox:a", 0)
	b.after(100 * ms)
	settings.Paused = false
	if n := len(of[Unpark](b.step(Limits{Settings: []store.ChannelSettings{settings}}))); n != 1 {
		t.Errorf("%d unparks when it is resumed, want 1", n)
	}
}

// A wall clock that is set makes nothing due before a renewal of the lease has checked it and
// new claims are made; this holds even if it is set back meanwhile.
func TestAClockThatIsSetMakesNothingDue(t *testing.T) {
	b := newBench(t)
	b.owned(records("inbox:a", 3, b.now.Wall+20))
	before := b.now
	quiet := func(what string, ev Event) {
		t.Helper()
		if effects := b.step(ev); len(of[Publish](effects)) > 0 || len(of[Claim](effects)) > 0 {
			t.Fatalf("%s: %+v", what, effects)
		}
	}
	b.after(ms)
	b.now.Wall += 30_000
	if set := of[fence.ClockSet](b.step(fence.Tick{})); len(set) != 1 || set[0].By != 30*time.Second {
		t.Fatalf("said of the clock: %+v", set)
	}
	quiet("set ahead", fence.Tick{})
	quiet("renewed before that", fence.LeaseUntil{Mono: before.Mono + time.Hour, Read: before})
	b.after(10 * ms)
	quiet("still ahead", fence.Tick{})
	if set := of[fence.ClockSet](b.step(fence.Tick{})); len(set) > 0 {
		t.Fatalf("said again of the clock: %+v", set)
	}
	b.now.Wall -= 30_000
	quiet("set back", fence.Tick{})
	effects := b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
	if len(of[Publish](effects)) > 0 || len(of[Claim](effects)) != 1 {
		t.Fatalf("after the renewal: %+v", effects)
	}
	effects = b.answer(of[Claim](effects)[0], records("inbox:a", 3, b.now.Wall+10))
	if len(of[Publish](effects)) > 0 {
		t.Fatal("published early")
	}
	b.after(20 * ms)
	if len(of[Publish](b.step(fence.Tick{}))) != 1 {
		t.Error("not published in time by the clock that was set right")
	}
}

// What is in hand when the lease runs out is claimed anew after the renewal, not published; so
// is what a claim under way then brings.
func TestALapsedLeaseMakesClaimsVoid(t *testing.T) {
	b := newBench(t)
	effects := b.owned(records("inbox:a", 3, b.now.Wall+20))
	if len(of[Publish](effects)) > 0 {
		t.Fatal("published early")
	}
	b.m.leaseUntil = b.now.Mono + time.Second
	b.after(2 * time.Second)
	effects = b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
	if len(of[Publish](effects)) > 0 {
		t.Fatal("published on the strength of a claim from before the lease ran out")
	}
	claims := of[Claim](effects)
	if len(claims) != 1 {
		t.Fatalf("%d claims, want a new one", len(claims))
	}
	if c := claims[0].Claims[0]; c.Checkpoint >= b.now.Wall-1980 || c.Scan.After.Time > b.now.Wall-1980 {
		t.Errorf("the new claim %+v does not cover what was in hand", c)
	}
	b.m.leaseUntil = b.now.Mono + time.Second
	b.after(2 * time.Second) // once more, while the claim is under way
	b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
	effects = b.answer(claims[0], records("inbox:a", 3, b.now.Wall-3980))
	if len(of[Publish](effects)) > 0 {
		t.Fatal("published on the strength of a claim that was under way when the lease ran out")
	}
	claims = of[Claim](effects)
	if len(claims) != 1 {
		t.Fatalf("%d claims, want a third one", len(claims))
	}
	if len(of[Publish](b.answer(claims[0], records("inbox:a", 3, b.now.Wall-3980)))) != 1 {
		t.Error("not published under a claim of the present lease")
	}
}

// After the wall clock was set back, what lies ahead of it is read when its time
// comes, not again and again.
func TestAClockSetBackCausesNoSpin(t *testing.T) {
	b := newBench(t)
	effects := b.owned(nil)
	b.now.Wall -= 60_000
	claims := 0
	for begin := b.now.Mono; b.now.Mono < begin+10*time.Second; {
		var next []Effect
		for _, c := range of[Claim](effects) {
			claims++
			next = append(next, b.answer(c, nil)...)
		}
		for _, f := range of[FindParked](effects) {
			next = append(next, b.step(ParkedFound{Buckets: f.Buckets})...)
		}
		if len(next) == 0 {
			b.after(max(b.m.Wake(b.now), ms))
			next = b.step(fence.Tick{})
		}
		effects = next
		if claims > 50 {
			t.Fatalf("%d claims in %v", claims, b.now.Mono-begin)
		}
	}
}

// If the wall clock is set back to before what is behind, that stays known, and the checkpoint
// does not pass it.
func TestBehindBeyondTheClock(t *testing.T) {
	b := newBench(t)
	at := b.now.Wall + 30
	full := bucket.Position{Time: at, Tenant: postdate.DefaultTenant, ScheduleID: "m"}
	b.now.Wall -= 60_000
	other := bucket.Position{Time: b.now.Wall - 5}
	claims := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{{
		Token: 1, Owner: "me", Lease: "me", Claimed: bucket.UpTo(at + 1),
		Behind: map[postdate.Route]bucket.Position{"inbox:full": full, "inbox:other": other},
	}}}))
	for _, c := range claims {
		b.answer(c, nil)
	}
	o, most := b.m.buckets[0], 0
	for range 2_000 {
		b.after(ms)
		for _, c := range of[Claim](b.step(fence.Tick{})) {
			most++
			b.answer(c, nil)
		}
		if o.record.Behind["inbox:full"] != full || o.settledUpTo() >= at {
			t.Fatalf("%v is behind, and the checkpoint may come up to %d", o.record.Behind, o.settledUpTo())
		}
	}
	if most > 150 {
		t.Errorf("%d claims in two seconds", most)
	}
}
