package poller

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// waiting is a shop in which messages wait for five seconds for a channel that is down.
func waiting() *shop {
	s := newShop(2, func(c *Config) { c.Retry.MaxParked, c.ParkMin = 5*time.Second, 2*time.Second })
	s.down = func(c postdate.Channel) bool { return c == "x:down" }
	s.m.random = rand.New(rand.NewPCG(1, 1)).Float64 // a backlog and what is parked take turns by chance
	return s
}

// wantFailed expects that so many messages of a channel failed, between two moments
// after the beginning.
func (s *shop) wantFailed(t *testing.T, channel string, n int, from, to time.Duration) {
	t.Helper()
	found := 0
	for id, f := range s.failed {
		if !strings.HasPrefix(id, channel) {
			continue
		}
		found++
		if after := f.at.Sub(s.begin); after < from || after > to {
			t.Errorf("%s failed after %s, want it between %s and %s", id, after, from, to)
		}
		if f.as.Attempts != 0 || f.at.Sub(f.as.At) > 50*time.Millisecond || !strings.Contains(f.as.Reason, "retry.maxParked, 5s; last error: no such host") {
			t.Errorf("%s failed after %d attempts, at %d: %s", id, f.as.Attempts, f.as.At, f.as.Reason)
		}
	}
	if found != n {
		t.Errorf("%d messages of %s failed after %s, want %d", found, channel, s.now.Wall.Sub(s.begin), n)
	}
}

// A message waits for a channel that is down for as long as its policy says, and then it
// fails. What waits for an operator, or behind a limit, does not fail.
func TestAChannelThatStaysDown(t *testing.T) {
	s := waiting()
	s.step(Limits{[]store.ChannelSettings{{Channel: "x:off", Paused: true}, {Channel: "x:tight", MaxPerSecond: 1}}})
	for b := range 2 {
		for _, c := range []string{"x:down", "x:off", "x:tight"} {
			s.add(b, c, 200, s.begin-5)
		}
	}
	s.run(4900*time.Millisecond, nil)
	s.wantFailed(t, "x:", 0, 0, 0)
	s.run(2*time.Second, nil)
	s.wantFailed(t, "x:down", 400, 5*time.Second, 7*time.Second)
	s.run(20*time.Second, nil)
	if len(s.failed) != 400 || s.arrived["x:off"] != 0 || s.arrived["x:tight"] < 25 {
		t.Errorf("%d messages failed, %v arrived", len(s.failed), s.arrived)
	}
	s.step(Limits{})
	s.run(3*time.Second, nil)
	if s.arrived["x:off"] != 400 || s.arrived["x:tight"] != 400 {
		t.Errorf("%v arrived of 400 each when nothing held them back any more", s.arrived)
	}
}

// A channel that comes back in time, also for a moment, gives its messages all the time
// again that they may wait.
func TestAChannelThatComesBack(t *testing.T) {
	s := waiting()
	s.add(0, "x:down", 3_000, s.begin-5)
	s.run(2*time.Second, nil)
	s.down = func(postdate.Channel) bool { return s.arrived["x:down"] >= 40 }
	s.run(2*time.Second, nil)
	left := 3_000 - s.arrived["x:down"]
	if left == 0 || left > 2_960 {
		t.Fatalf("%d are left: the test shows nothing", left)
	}
	s.run(10*time.Second, nil)
	s.wantFailed(t, "x:down", left, 7*time.Second, 12*time.Second)
}

// Time under a pause does not count.
func TestAPauseEndsTheWait(t *testing.T) {
	s := waiting()
	s.add(0, "x:down", 50, s.begin-5)
	s.run(2*time.Second, nil)
	s.step(Limits{[]store.ChannelSettings{{Channel: "x:down", Paused: true}}})
	s.run(2*time.Second, nil)
	s.step(Limits{})
	s.run(9*time.Second, nil)
	s.wantFailed(t, "x:down", 50, 9*time.Second, 12*time.Second)
}

// A message that can expire is parked as any other, and ends when it expires.
func TestAParkedMessageExpires(t *testing.T) {
	s := waiting()
	s.add(0, "x:down", 2, s.begin+100)
	for i := range s.due[0] {
		s.due[0][i].ExpiresAt = s.begin + 3_000
	}
	s.run(time.Second, nil)
	for _, r := range s.due[0] {
		if !r.Parked || r.AttemptTime != s.begin+3_000 {
			t.Errorf("a message that expires at %d waits as %+v", s.begin+3_000, r.State)
		}
	}
	s.run(2500*time.Millisecond, nil)
	for id, f := range s.failed {
		if f.at < s.begin+3_000 || !strings.HasPrefix(f.as.Reason, "expired at ") || !strings.Contains(f.as.Reason, "no such host") {
			t.Errorf("%s failed after %s: %s", id, f.at.Sub(s.begin), f.as.Reason)
		}
	}
	if len(s.failed) != 2 {
		t.Errorf("%d of 2 messages expired", len(s.failed))
	}
}

// Who takes a bucket over knows nothing of its channels: what has waited for long enough
// is tried before it fails, and does not fail where the channel is back or paused.
func TestWhoTakesOverTriesFirst(t *testing.T) {
	for name, test := range map[string]struct{ arrived, failed int }{"x:down": {0, 3}, "x:well": {3, 0}, "x:off": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			s := waiting()
			s.step(fence.Lost{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
			s.step(Limits{[]store.ChannelSettings{{Channel: "x:off", Paused: true}}})
			s.add(0, name, 3, s.now.Wall-60_000)
			for i := range s.due[0] {
				r := &s.due[0][i]
				r.Parked, r.DownSince, r.AttemptTime = true, s.now.Wall-10_000, s.now.Wall-5_000
			}
			p := bucket.Partition{Owner: "n", Token: 2, Checkpoint: s.now.Wall - 20_000, Claimed: bucket.UpTo(s.now.Wall - 1_000)}
			s.record[0] = p
			s.step(fence.Gained{Partitions: []bucket.Partition{p}})
			if len(s.failed) > 0 && s.m.sites[name].answered == 0 && !s.m.sites[name].tried {
				t.Fatalf("they failed before the channel was tried: %+v", s.failed)
			}
			s.run(15*time.Second, nil)
			if s.arrived[postdate.Channel(name)] != test.arrived || len(s.failed) != test.failed {
				t.Errorf("%d arrived and %d failed, want %d and %d", s.arrived[postdate.Channel(name)], len(s.failed), test.arrived, test.failed)
			}
			for _, r := range s.due[0] {
				if r.PossibleDuplicate {
					t.Errorf("%s was parked, and is in doubt", r.ScheduleID)
				}
			}
		})
	}
}

// A parked message may be unparked while it is settled, and a scan may read it in between:
// what it read is no more true, whichever answer comes first, and is not published.
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
		b.after(200 * time.Millisecond)
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
		b.after(200 * time.Millisecond)
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
