package poller

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// waiting is a shop in which messages wait for five seconds for a channel that is down.
func waiting(t *testing.T) *shop {
	s := newShop(t, 2, func(c *Config) { c.Retry.MaxParked, c.ParkMin = 5*time.Second, 2*time.Second })
	s.down = func(c postdate.Route) bool { return c == "x:down" }
	s.m.random = rand.New(rand.NewPCG(1, 1)).Float64 // a backlog and what is parked take turns by chance
	return s
}

// wantFailed expects that n messages of a channel failed between two times after the start.
func (s *shop) wantFailed(channel string, n int, from, to time.Duration) {
	s.t.Helper()
	found := 0
	for id, f := range s.failed {
		if !strings.HasPrefix(id, channel) {
			continue
		}
		found++
		if after := f.at.Sub(s.begin.Wall); after < from || after > to {
			s.t.Errorf("%s failed after %s, want it between %s and %s", id, after, from, to)
		}
		if f.as.Attempts != 0 || f.at.Sub(f.as.At) > 50*ms || !strings.Contains(f.as.Reason, "retry.maxParked, 5s; last error: no such host") {
			s.t.Errorf("%s failed after %d attempts, at %d: %s", id, f.as.Attempts, f.as.At, f.as.Reason)
		}
	}
	if found != n {
		s.t.Errorf("%d messages of %s failed after %s, want %d", found, channel, s.now.Wall.Sub(s.begin.Wall), n)
	}
}

// A message waits for a channel that is down as long as its policy says, and then fails. What
// waits for an operator, or behind a limit, does not fail.
func TestAChannelThatStaysDown(t *testing.T) {
	s := waiting(t)
	s.step(Limits{Settings: []store.ChannelSettings{{Route: "x:off", Paused: true}, {Route: "x:tight", MaxPerSecond: 1}}})
	for b := range 2 {
		for _, c := range []postdate.Route{"x:down", "x:off", "x:tight"} {
			s.add(b, c, 200, -5*ms)
		}
	}
	s.run(4900 * ms)
	s.wantFailed("x:", 0, 0, 0)
	s.run(2 * time.Second)
	s.wantFailed("x:down", 400, 5*time.Second, 7*time.Second)
	s.run(20 * time.Second)
	if len(s.failed) != 400 || s.arrived["x:off"] != 0 || s.arrived["x:tight"] < 25 {
		t.Errorf("%d messages failed, %v arrived", len(s.failed), s.arrived)
	}
	s.limits()
	s.run(3 * time.Second)
	if s.arrived["x:off"] != 400 || s.arrived["x:tight"] != 400 {
		t.Errorf("%v arrived of 400 each when nothing held them back any more", s.arrived)
	}
}

// If a channel comes back in time, even for a moment, its messages may again wait for the full
// time.
func TestAChannelThatComesBack(t *testing.T) {
	s := waiting(t)
	s.add(0, "x:down", 3_000, -5*ms)
	s.run(2 * time.Second)
	s.down = func(postdate.Route) bool { return s.arrived["x:down"] >= 40 }
	s.run(2 * time.Second)
	left := 3_000 - s.arrived["x:down"]
	if left == 0 || left > 2_960 {
		t.Fatalf("%d are left: the test shows nothing", left)
	}
	s.run(10 * time.Second)
	s.wantFailed("x:down", left, 7*time.Second, 12*time.Second)
}

// Time under a pause does not count.
func TestAPauseEndsTheWait(t *testing.T) {
	s := waiting(t)
	s.add(0, "x:down", 50, -5*ms)
	s.run(2 * time.Second)
	s.limits(store.ChannelSettings{Route: "x:down", Paused: true})
	s.run(2 * time.Second)
	s.limits()
	s.run(9 * time.Second)
	s.wantFailed("x:down", 50, 9*time.Second, 12*time.Second)
}

// A message with an expiry is parked like any other, and ends when it expires.
func TestAParkedMessageExpires(t *testing.T) {
	s := waiting(t)
	s.add(0, "x:down", 2, 100*ms)
	for _, r := range slices.Clone(s.store.Waiting[0]) {
		s.change(r.Key, func(r *postdate.Record) { r.ExpiresAt = s.begin.Wall + 3_000 })
	}
	s.run(time.Second)
	for _, r := range s.store.Waiting[0] {
		if !r.Parked || r.AttemptTime != s.begin.Wall+3_000 {
			t.Errorf("a message that expires at %d waits as %+v", s.begin.Wall+3_000, r.State)
		}
	}
	s.run(2500 * ms)
	for id, f := range s.failed {
		if f.at < s.begin.Wall+3_000 || !strings.HasPrefix(f.as.Reason, "expired at ") || !strings.Contains(f.as.Reason, "no such host") {
			t.Errorf("%s failed after %s: %s", id, f.at.Sub(s.begin.Wall), f.as.Reason)
		}
	}
	if len(s.failed) != 2 {
		t.Errorf("%d of 2 messages expired", len(s.failed))
	}
}

// A new owner knows nothing about a bucket's channels: a message that has waited long enough is
// tried before it fails, and does not fail if the channel is back or paused.
func TestWhoTakesOverTriesFirst(t *testing.T) {
	for name, test := range map[postdate.Route]struct{ arrived, failed int }{"x:down": {0, 3}, "x:well": {3, 0}, "x:off": {0, 0}} {
		t.Run(string(name), func(t *testing.T) {
			s := waiting(t)
			s.lose(0)
			s.limits(store.ChannelSettings{Route: "x:off", Paused: true})
			s.add(0, name, 3, -time.Minute)
			for _, r := range slices.Clone(s.store.Waiting[0]) {
				s.change(r.Key, func(r *postdate.Record) {
					r.Parked, r.DownSince, r.AttemptTime = true, s.now.Wall-10_000, s.now.Wall-5_000
				})
			}
			s.gain(bucket.Partition{Token: 2, Checkpoint: s.now.Wall - 20_000, Claimed: bucket.UpTo(s.now.Wall - 1_000)})
			if len(s.failed) > 0 && s.m.sites[name].answered == 0 && !s.m.sites[name].tried {
				t.Fatalf("they failed before the channel was tried: %+v", s.failed)
			}
			s.run(15 * time.Second)
			if s.arrived[name] != test.arrived || len(s.failed) != test.failed {
				t.Errorf("%d arrived and %d failed, want %d and %d", s.arrived[name], len(s.failed), test.arrived, test.failed)
			}
			for _, r := range s.store.Waiting[0] {
				if r.PossibleDuplicate {
					t.Errorf("%s was parked, and is in doubt", r.ScheduleID)
				}
			}
		})
	}
}

// A parked message may be unparked while it is settled, and a scan may read it in between: what
// it read is no longer true, whichever answer comes first, and is not published.
func TestUnparkedWhileItIsSettled(t *testing.T) {
	for _, settledFirst := range []bool{true, false} {
		b := newBench(t)
		b.m.c.SettleGather = 0
		due := records("inbox:x", 1, b.now.Wall-60_000)
		rec := &due[0]
		rec.Parked, rec.DownSince, rec.AttemptTime = true, b.now.Wall-50_000, b.now.Wall-1_000
		b.owned(nil)
		claim := of[Claim](b.step(Nudged{[]Nudge{{0, rec.AttemptTime}}}))[0]
		settles := of[Settle](b.answer(claim, due))
		if len(settles) != 1 || settles[0].Settlements[0].How != store.SettlePark {
			t.Fatalf("settled: %+v", settles)
		}
		b.after(200 * ms)
		claim = of[Claim](b.step(Nudged{[]Nudge{{0, b.now.Wall - 100}}}))[0]
		unparked := due[0]
		unparked.Parked, unparked.AttemptTime = false, b.now.Wall-50
		var effects []Effect
		if settledFirst {
			b.step(Settled{Call: b.m.settleCall()})
			effects = b.answer(claim, []postdate.Record{unparked})
		} else {
			effects = b.answer(claim, []postdate.Record{unparked})
			effects = append(effects, b.step(Settled{Call: b.m.settleCall()})...)
		}
		b.after(200 * ms)
		effects = append(effects, b.step(fence.Tick{})...)
		if len(of[Publish](effects)) > 0 {
			t.Errorf("published, and it is settled or parked (the settlement is answered first: %t)", settledFirst)
		}
		claims := of[Claim](effects)
		if len(claims) == 0 || claims[0].Claims[0].Scan.After.Time > unparked.AttemptTime || claims[0].Claims[0].Checkpoint >= unparked.AttemptTime {
			t.Errorf("it is not looked at again: %+v (the settlement is answered first: %t)", claims, settledFirst)
		}
	}
}

// hurt is a bench whose channel inbox:x was tried once, with this outcome; 0: it was not tried.
// A message waits five seconds for it, and no probe goes out.
func hurt(t *testing.T, outcome publisher.Outcome) *bench {
	b := newBench(t)
	c := &b.m.c
	c.SettleGather, c.SweepEvery, c.Retry.MaxParked, c.ParkMin, c.ProbeMin, c.ProbeMax = 0, time.Hour, 5*time.Second, 2*time.Second, time.Hour, time.Hour
	b.quiet(b.owned(nil))
	b.after(time.Second)
	if outcome != 0 {
		b.try(outcome)
	}
	b.after(time.Second)
	return b
}

// try sends a message to inbox:x, with this outcome.
func (b *bench) try(outcome publisher.Outcome) {
	b.t.Helper()
	due := records("inbox:x", 1, b.now.Wall-1)
	due[0].ScheduleID = "tried"
	effects := b.scan(due)
	published := of[Publish](effects)
	if len(published) != 1 {
		b.t.Fatalf("published: %+v", published)
	}
	effects = append(effects, b.step(Published{published[0].Batch, []publisher.Result{{Outcome: outcome, Reason: "no such host"}}})...)
	b.quiet(append(effects, b.step(Settled{Call: b.m.settleCall()})...))
}

// quiet answers claims with no messages, until none is under way.
func (b *bench) quiet(effects []Effect) {
	for len(effects) > 0 {
		effects = b.answerAll(effects)
	}
}

// scan lets the machine find these messages in bucket 0.
func (b *bench) scan(due []postdate.Record) []Effect {
	b.t.Helper()
	claims := of[Claim](b.step(Nudged{[]Nudge{{0, b.now.Wall - 1}}}))
	if len(claims) != 1 {
		b.t.Fatalf("%d claims", len(claims))
	}
	return b.answer(claims[0], due)
}

// looked is how a message is settled that a scan finds, parked or not, and that has waited for
// its channel since downSince; 0: it waited for something else.
func (b *bench) looked(parked bool, downSince postdate.Time, change func(*postdate.Record)) store.Settlement {
	b.t.Helper()
	due := records("inbox:x", 1, b.now.Wall-1)
	due[0].Parked, due[0].DownSince, due[0].LastError = parked, downSince, "as it was"
	if change != nil {
		change(&due[0])
	}
	effects := b.scan(due)
	settles := of[Settle](effects)
	if len(settles) != 1 || len(settles[0].Settlements) != 1 {
		b.t.Fatalf("settled: %+v", settles)
	}
	b.quiet(append(effects, b.step(Settled{Call: settles[0].Call})...))
	return settles[0].Settlements[0]
}

// wantParked expects that a message waits until this long after now, for a channel that went
// down `ago` before now or, without ago, for something else.
func (b *bench) wantParked(s store.Settlement, reason string, until time.Duration, ago ...time.Duration) {
	b.t.Helper()
	since := postdate.Time(0)
	for _, d := range ago {
		since = b.now.Wall.Add(-d)
	}
	if s.How != store.SettlePark || s.Reason != reason || s.AttemptTime.Sub(b.now.Wall) != until || s.DownSince != since {
		b.t.Errorf("settled as %+v, %s from now: want it parked for %s, for %q, since %d", s, s.AttemptTime.Sub(b.now.Wall), until, reason, since)
	}
}

// A message that is looked at waits on from when its channel went down, or fails after long.
func TestHowLongAParkedMessageWaits(t *testing.T) {
	const waits = 5 * time.Second
	b := hurt(t, publisher.Down)
	since := func(ago time.Duration) postdate.Time { return b.now.Wall.Add(-ago) }
	b.wantParked(b.looked(true, since(waits-ms), nil), "no such host", ms, waits-ms)
	if s := b.looked(true, since(waits), nil); s.How != store.SettleFailed || s.At != b.now.Wall || strings.Contains(s.Reason, "may have been delivered") {
		t.Errorf("settled as %+v", s)
	}
	s := b.looked(true, since(waits), func(r *postdate.Record) { r.PossibleDuplicate = true })
	if s.How != store.SettleFailed || !strings.Contains(s.Reason, "may have been delivered") || !s.PossibleDuplicate {
		t.Errorf("settled as %+v", s)
	}
	// It waited for something else when the channel went down, and when it is new.
	b.wantParked(b.looked(true, 0, nil), "no such host", waits-time.Second, time.Second)
	b.wantParked(b.looked(false, 0, nil), "no such host", waits, 0)
}

// Nothing fails for a channel that is unknown to this node, or known only because an earlier
// owner parked messages for it.
func TestAParkedMessageOfAChannelThatWasNotTried(t *testing.T) {
	b := hurt(t, 0)
	b.wantParked(b.looked(true, 0, nil), "", 5*time.Second, 0)
	b.wantParked(b.looked(true, b.now.Wall.Add(-time.Minute), nil), "as it was", time.Hour, time.Minute)
	b = hurt(t, 0)
	b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 0, Route: "inbox:x"}}})
	b.wantParked(b.looked(true, b.now.Wall.Add(-time.Minute), nil), "as it was", time.Hour, time.Minute)
}

// For a channel that answers, and for an operator, a message waits without an end: it is looked
// at again after as long as it would wait for its channel, or after ParkMin.
func TestAParkedMessageOfAChannelThatAnswers(t *testing.T) {
	b := hurt(t, publisher.Confirmed)
	hasty := func(r *postdate.Record) { r.Retry.MaxParked = time.Second }
	for _, ago := range []postdate.Time{0, b.now.Wall - 60_000} {
		b.wantParked(b.looked(true, ago, nil), "as it was", 5*time.Second)
		b.wantParked(b.looked(true, ago, hasty), "as it was", 2*time.Second)
	}
	b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:x", Paused: true}}})
	b.wantParked(b.looked(true, b.now.Wall-60_000, nil), "the channel is paused", 5*time.Second)
	b.wantParked(b.looked(true, b.now.Wall-60_000, hasty), "the channel is paused", 2*time.Second)
}

// An answer or the end of a pause that dates from before the wall clock was set back does not
// make a message wait until the clock is there again.
func TestAWaitOverAClockSetBack(t *testing.T) {
	for _, pause := range []bool{false, true} {
		b := hurt(t, 0)
		if pause {
			b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:x", Paused: true}}})
			b.step(Limits{})
		} else {
			b.try(publisher.Confirmed)
		}
		b.now.Wall -= 60_000
		b.step(fence.Tick{})
		b.after(ms)
		b.quiet(b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now}))
		b.try(publisher.Down)
		since := b.now.Wall
		b.after(time.Second)
		b.wantParked(b.looked(true, since, nil), "no such host", 4*time.Second, time.Second)
		b.after(4 * time.Second)
		if s := b.looked(true, since, nil); s.How != store.SettleFailed {
			t.Errorf("a pause %t: settled as %+v", pause, s)
		}
	}
}

// What is parked because its bucket leaves is never due at a time in the past, even if it has
// waited for its channel longer than it may: it would be read again immediately.
func TestALeavingMessageThatWaitedForLong(t *testing.T) {
	b := hurt(t, publisher.Confirmed)
	b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:x", MaxInFlight: 1}}})
	due := records("inbox:x", 2, b.now.Wall-1)
	for i := range due {
		due[i].DownSince = b.now.Wall - 60_000
	}
	b.scan(due)
	settles := of[Settle](b.step(fence.Drain{Holds: holds(0)}))
	if len(settles) == 0 {
		b.after(ms)
		settles = of[Settle](b.step(fence.Tick{}))
	}
	if len(settles) != 1 || len(settles[0].Settlements) != 1 || settles[0].Settlements[0].AttemptTime <= b.now.Wall {
		t.Errorf("settled at %d: %+v", b.now.Wall, settles)
	}
}
