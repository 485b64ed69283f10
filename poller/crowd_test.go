package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate/store"
)

// What claims under way may bring crowds a channel even while it has room: when it has none
// left, claims of any channel leave it behind.
func TestWhatIsComingCrowds(t *testing.T) {
	s := newBareShop(t, nil)
	limit := func(n int) { s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: n}) }
	s.gainEmpty(1)
	s.prove("x:a")
	limit(s.m.c.crowdMin() / 2) // room for twice as many
	s.after(callSlow)
	s.gainSwept(s.behind("x:a"))
	if c := s.take().Claims[0]; c.Only != "x:a" || c.Scan.Limit != s.m.c.crowdMin() {
		t.Fatalf("%+v: this shows nothing", c)
	}
	s.after(callSlow)
	s.limits()
	s.find(s.ask(0))
	limit(s.m.c.crowdMin() / 2)
	if _, left := s.ask(0).Claims[0].Behind["x:a"]; !left {
		t.Error("it is not left behind")
	}
}

// What several lapses drop crowds a channel, even if each dropped little.
func TestWhatLapsesDropCrowds(t *testing.T) {
	const room = 4
	s := newShop(t, room+1, func(c *Config) { c.DoubtMax, c.SweepEvery = 2*room, time.Hour })
	s.mute, s.alone = every, true
	for bad := range room {
		s.add(bad, "x:a", 1, 15*ms)
		s.broken = func(b int) bool { return b <= bad }
		s.lapse()
	}
	if c := s.m.channels["x:a"]; c == nil || c.dropped != room {
		t.Fatalf("%+v: this shows nothing", c)
	}
	left := false
	s.watch = func(e Effect) {
		if claim, is := e.(Claim); is && claim.Claims[0].Bucket == room {
			_, left = claim.Claims[0].Behind["x:a"]
		}
	}
	s.add(room, "x:other", 1, -ms)
	if !left {
		t.Error("it is not left behind")
	}
}

// A channel with little in hand again is not looked at before claims.
func TestFewDoNotCrowd(t *testing.T) {
	s := newBareShop(t, nil)
	s.gainEmpty(1)
	s.prove("x:a")
	s.bring("x:a", 100)
	if s.m.channels["x:a"].hand != 100 || len(s.m.crowded) != 1 {
		t.Fatalf("%+v: this shows nothing", s.m.channels["x:a"])
	}
	s.reply(confirmed)
	s.ask(0)
	if c := s.m.channels["x:a"]; c.hand < 2 || c.hand >= s.m.c.crowdMin() || len(s.m.crowded) > 0 {
		t.Errorf("%d are in hand, and %d channels are crowded", c.hand, len(s.m.crowded))
	}
}

// A channel whose messages were all settled while a claim was under way keeps its window for
// what that claim brings, so a busy channel parks nothing.
func TestABusyChannelKeepsItsWindow(t *testing.T) {
	s := newBareShop(t, nil)
	s.gainEmpty(1)
	s.prove("x:a")
	s.bring("x:a", 100)
	claim := s.ask(0)
	for len(s.unanswered) > 0 {
		s.reply(confirmed)
	}
	if s.m.hand > 0 {
		t.Fatalf("%d are in hand: this shows nothing", s.m.hand)
	}
	s.find(claim, s.put(0, "x:a", 200, -ms)...)
	if n := s.parked(); n > 0 {
		t.Errorf("%d are parked", n)
	}
}
