package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// bench steps a machine that owns one bucket by hand.
type bench struct {
	t   *testing.T
	m   *Machine
	now postdate.Now
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, m: NewMachine(DefaultConfig(), func() float64 { return 0 }), now: postdate.Now{Wall: 1_000_000, Mono: time.Minute}}
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

func records(channel postdate.Channel, n int, at postdate.Time) []postdate.Record {
	all := make([]postdate.Record, n)
	for i := range all {
		m := postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: string(channel[6:]) + string(rune('a'+i/26)) + string(rune('a'+i%26))}, Channel: channel, ExecutionTime: at}
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
	to := c.Claims[0].Scan.To
	return b.step(Claimed{b.m.claimCall(), []store.ClaimResult{{Due: due, Complete: true, Ended: bucket.Position{Time: to + 1}, Next: postdate.Far}}})
}

func (b *bench) confirm(p Publish) []Effect {
	return b.step(Published{p.Batch, publisher.All(len(p.Batch), publisher.Result{Outcome: publisher.Confirmed})})
}

// A rate is kept over any stretch of time, whatever is due, and is used up.
func TestRateLimit(t *testing.T) {
	b := newBench(t)
	b.step(Limits{[]store.ChannelSettings{{Channel: "inbox:slow", MaxPerSecond: 50}}})
	effects := b.owned(append(records("inbox:slow", 300, b.now.Wall-10), records("inbox:fast", 20, b.now.Wall-10)...))
	sent := map[postdate.Channel]int{}
	begin := b.now.Mono
	for b.now.Mono < begin+2*time.Second {
		var next []Effect
		for _, p := range of[Publish](effects) {
			sent[p.Channel] += len(p.Batch)
			next = append(next, b.confirm(p)...)
		}
		for _, c := range of[Claim](effects) {
			next = append(next, b.answer(c, nil)...)
		}
		if len(of[Settle](effects)) > 0 {
			next = append(next, b.step(Settled{Call: b.m.settleCall()})...)
		}
		if most := 6 + int(50*(b.now.Mono-begin).Seconds()); sent["inbox:slow"] > most {
			t.Fatalf("%d sent after %v, want at most %d", sent["inbox:slow"], b.now.Mono-begin, most)
		}
		if len(next) == 0 {
			wait := b.m.Wake(b.now)
			if wait <= 0 {
				t.Fatal("it spins")
			}
			b.after(max(wait, time.Millisecond))
			next = b.step(fence.Tick{})
		}
		effects = next
	}
	if sent["inbox:slow"] < 95 || sent["inbox:fast"] != 20 {
		t.Errorf("sent %v in 2 s, want about 100 at 50/s, and all of the other channel", sent)
	}
}

// A bound on what is in flight is kept, and what comes back makes room.
func TestInFlightLimit(t *testing.T) {
	b := newBench(t)
	b.step(Limits{[]store.ChannelSettings{{Channel: "inbox:narrow", MaxInFlight: 3}}})
	total := 0
	for effects := b.owned(records("inbox:narrow", 10, b.now.Wall-10)); ; {
		published := of[Publish](effects)
		if len(published) == 0 {
			break
		}
		if len(published) != 1 || len(published[0].Batch) > 3 {
			t.Fatalf("%d batches at a time", len(published))
		}
		total += len(published[0].Batch)
		effects = b.confirm(published[0])
	}
	if total != 10 {
		t.Errorf("%d of 10 went out", total)
	}
}

// A paused channel's messages are parked, no probe goes out, and all of them come
// when it is resumed.
func TestPause(t *testing.T) {
	b := newBench(t)
	b.step(Limits{[]store.ChannelSettings{{Channel: "inbox:a", Paused: true}}})
	effects := b.owned(records("inbox:a", 4, b.now.Wall-10))
	b.after(10 * time.Millisecond)
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

// A wall clock that is set makes nothing due before a renewal of the lease has judged
// it, whose claims are new; also not where it is set back meanwhile.
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
	b.after(time.Millisecond)
	b.now.Wall += 30_000
	if set := of[fence.ClockSet](b.step(fence.Tick{})); len(set) != 1 || set[0].By != 30*time.Second {
		t.Fatalf("said of the clock: %+v", set)
	}
	quiet("set ahead", fence.Tick{})
	quiet("renewed before that", fence.LeaseUntil{Mono: before.Mono + time.Hour, Read: before})
	b.after(10 * time.Millisecond)
	quiet("still ahead", fence.Tick{})
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
	b.after(20 * time.Millisecond)
	if len(of[Publish](b.step(fence.Tick{}))) != 1 {
		t.Error("not published in time by the clock that was set right")
	}
}

// What is in hand when the lease runs out is not published when it comes back,
// but claimed anew; so is what a claim brings that was under way.
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
			b.after(max(b.m.Wake(b.now), time.Millisecond))
			next = b.step(fence.Tick{})
		}
		effects = next
		if claims > 50 {
			t.Fatalf("%d claims in %v", claims, b.now.Mono-begin)
		}
	}
}

// What was held back of a congested channel stays known where the wall clock is set
// back to before it, and the checkpoint does not pass it.
func TestHeldBeyondTheClock(t *testing.T) {
	b := newBench(t)
	b.owned(nil)
	o := b.m.buckets[0]
	at := bucket.Position{Time: o.read.Time - 5, Tenant: "t", ScheduleID: "m"}
	o.held["inbox:full"] = at
	b.now.Wall -= 60_000
	o.held["inbox:other"] = bucket.Position{Time: b.now.Wall - 5} // as a scan that was complete leaves it
	for range 20 {
		b.after(100 * time.Millisecond)
		for _, c := range of[Claim](b.step(fence.Tick{})) {
			b.answer(c, nil)
		}
		if held, ok := o.held["inbox:full"]; !ok || o.settledUpTo() >= at.Time {
			t.Fatalf("held from %v (%v), and the checkpoint may come up to %d, beyond %d", held, ok, o.settledUpTo(), at.Time)
		}
	}
}
