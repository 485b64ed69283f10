package poller

import (
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate/store"
)

// growWindow makes the window of a channel grow, and its pace drop to nothing. One of its
// messages stays with the broker, so that the channel is not forgotten.
func (s *shop) growWindow(bucket int) {
	s.mute = every
	s.add(bucket, "x:a", 1, -ms)
	s.run(10 * ms)
	for range 20 {
		s.add(bucket, "x:a", 60, -ms)
		s.run(20 * ms)
		for len(s.unanswered) > 1 {
			p := s.unanswered[1]
			s.unanswered = slices.Delete(s.unanswered, 1, 2)
			s.publish(p, confirmed)
		}
	}
	s.run(12 * time.Second)
}

// wait puts the number of messages given by in into the hand for each bucket, where they wait,
// and makes these buckets unreachable when the lease has ended.
func (s *shop) wait(buckets int, in func(bucket int) int) {
	for b := range buckets {
		s.put(b, "x:a", in(b), 15*ms)
	}
	for range 4 {
		for b := range buckets {
			s.nudge(b, 15*ms)
		}
		s.after(ms)
	}
	s.broken, s.alone = func(b int) bool { return b < buckets }, true
	s.lapse()
}

// wantInDoubt expects that no more messages of a channel were in doubt than allowed, and at
// least half as many.
func (s *shop) wantInDoubt(worst int) {
	s.t.Helper()
	if most := s.m.c.DoubtMax; worst > most || worst < most/2 {
		s.t.Errorf("a crash would mark %d messages of a channel, of which at most %d may be claimed", worst, most)
	}
}

// Messages of a channel that a lapse dropped count even if a bucket's record already names 16
// other channels as behind.
func TestDoubtOfWhatALapseDropsBesideManyBehind(t *testing.T) {
	const first = 200 // of the buckets with many behind
	s := newShop(t, first+2, func(c *Config) { c.SweepEvery, c.FindEvery = time.Hour, time.Hour })
	var limits []store.ChannelSettings
	for i := range behindMax {
		limits = append(limits, store.ChannelSettings{Route: named("x:rated%d", i), MaxPerSecond: 0.5})
	}
	s.limits(limits...)
	for range 15 {
		for i := range behindMax {
			for b := range 2 {
				s.add(first+b, named("x:rated%d", i), 10, 15*ms)
			}
		}
		s.run(10 * ms)
	}
	s.run(time.Second)
	if a, b := len(s.store.Records[first].Behind), len(s.store.Records[first+1].Behind); a != behindMax || b != behindMax {
		t.Fatalf("%d and %d are behind", a, b)
	}
	s.growWindow(first - 1)
	s.wait(126, func(b int) int { return 3 + min(110/(b+1), 1) })
	if n := s.m.channels["x:a"].dropped; n < 370 {
		t.Fatalf("%d are dropped: this shows nothing", n)
	}
	worst := 0
	for b := range 2 {
		s.add(first+b, "x:a", 1_000, 15*ms)
	}
	s.run(500*ms, func() {
		inDoubt, _ := s.doubt()
		worst = max(worst, inDoubt["x:a"])
	})
	s.wantInDoubt(worst)
}

// Messages of a channel that a lapse dropped take its room, even if few are in hand again.
func TestDoubtOfWhatALapseDropsBesideFew(t *testing.T) {
	for _, doubtMax := range []int{256, 1_000} {
		const bad = 126
		s := newSlowShop(t, bad+10, func(c *Config) { c.DoubtMax = doubtMax })
		s.waits = nil
		s.growWindow(bad + 9)
		waiting := doubtMax/2 - 6
		s.wait(bad, func(b int) int { return (waiting + bad - 1 - b) / bad })
		if n := s.m.channels["x:a"].dropped; n < waiting-10 {
			t.Fatalf("%d of %d are dropped: this shows nothing", n, waiting)
		}
		s.add(bad, "x:a", s.m.c.crowdMin()-3, -ms)
		s.run(5 * ms)
		s.waits = func(e Effect) bool {
			claim, is := e.(Claim)
			return has[Settle](e) || is && !slices.ContainsFunc(claim.Claims, func(c store.Claim) bool { return c.Bucket < bad })
		}
		for b := range callsMax { // as many claims are under way
			s.add(bad+1+b, "x:a", 1_000, -ms)
			s.run(100 * ms)
		}
		worst := 0
		for _, c := range slices.Clone(s.calls) {
			if c.claim != nil {
				s.answerWith(c)
			}
			inDoubt, _ := s.doubt()
			worst = max(worst, inDoubt["x:a"])
		}
		s.wantInDoubt(worst)
	}
}
