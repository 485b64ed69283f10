package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// doubt counts, per channel, the messages that a crash would leave in doubt now, and those
// that cannot be cancelled.
func (s *shop) doubt() (inDoubt, fixed map[postdate.Channel]int) {
	inDoubt, fixed = map[postdate.Channel]int{}, map[postdate.Channel]int{}
	for b, due := range s.due {
		record := s.record[b]
		for _, r := range due {
			if !r.Parked && record.InDoubt(r.Channel, bucket.PositionOf(r.Key, r.AttemptTime)) {
				inDoubt[r.Channel]++
			}
			if !record.Withdrawable(r.Key, r.Channel, r.State) {
				fixed[r.Channel]++
			}
		}
	}
	return inDoubt, fixed
}

// However much of a channel is due: what a crash leaves in doubt is what can have been
// handed out, and what waits behind a limit, a pause or a backlog can be cancelled.
func TestDoubtIsBounded(t *testing.T) {
	s := newShop(4, nil)
	s.mute = func(c postdate.Channel) bool { return c == "x:mute" }
	s.step(Limits{[]store.ChannelSettings{{Channel: "x:tight", MaxPerSecond: 1}, {Channel: "x:rated", MaxPerSecond: 200}, {Channel: "x:off", Paused: true}}})
	for b := range 4 {
		for _, c := range []string{"x:tight", "x:rated", "x:mute", "x:off"} {
			s.add(b, c, 700, s.now.Wall-500)
		}
	}
	checks := 0
	s.run(4*time.Second, func() {
		if checks++; checks%5 == 0 { // new ones on top
			s.add(checks%4, "x:mute", 1, s.now.Wall-1)
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
		if checks < 100 {
			return // what was read before it was known how much there is, is parked first
		}
		for c, most := range map[postdate.Channel]int{"x:tight": 1, "x:rated": 20 + 50, "x:mute": windowMin, "x:off": 0} {
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

// A channel that takes what it gets is never short of messages, and nothing of it is
// parked for good, however much is due at once.
func TestABurstIsDrained(t *testing.T) {
	s := newShop(8, nil)
	for b := range 8 {
		s.add(b, "x:fast", 2_500, s.now.Wall+100)
	}
	s.run(2*time.Second, nil)
	if s.arrived["x:fast"] != 20_000 {
		t.Errorf("%d of 20000 messages arrived in two seconds; %d of a channel are in hand", s.arrived["x:fast"], s.m.hand)
	}
}
