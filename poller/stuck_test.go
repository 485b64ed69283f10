package poller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// Many channels that answer nothing, or that a limit holds back, leave room for one that is
// well, however long their backlogs are.
func TestStuckChannelsLeaveRoom(t *testing.T) {
	for _, n := range []int{12, 400, 1_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newShop(t, 4, nil)
			var limits []store.ChannelSettings
			for i := range n {
				if i%2 == 0 {
					limits = append(limits, store.ChannelSettings{Route: named("x:tight-%d", i), MaxPerSecond: 1})
				}
			}
			s.step(Limits{Settings: limits})
			s.mute = func(c postdate.Route) bool { return c[:6] == "x:mute" }
			for i := range n {
				name := named("x:mute-%d", i)
				if i%2 == 0 {
					name = named("x:tight-%d", i)
				}
				s.add(i%4, name, max(4_800/n, 2), -500*ms)
			}
			s.run(time.Second)
			sent := 0
			s.run(2*time.Second, func() { // a message each 5 ms
				s.add(sent%4, "x:well", 1, -ms)
				sent++
			})
			s.run(300 * ms)
			if got := s.arrived["x:well"]; got < sent {
				t.Errorf("%d of %d messages of a healthy channel arrived beside %d stuck ones", got, sent, n)
			}
			if s.m.hand > s.m.c.HandMax {
				t.Errorf("%d messages are in hand, at most %d", s.m.hand, s.m.c.HandMax)
			}
			if s.mostFlying > s.m.c.HandMax/4+n {
				t.Errorf("%d messages are with brokers that never answered", s.mostFlying)
			}
		})
	}
}

// Hosts that answer nothing, even more than may hold a quarter of the hand, leave room for a
// channel whose first message comes then: of another broker, of a new host, and a URL of its
// own at a host that has answered. If they hold half of it, only a new host waits.
func TestFirstMessagesBesideHostsThatAnswerNothing(t *testing.T) {
	s := newShop(t, 4, func(c *Config) { c.HandMax = 1_024 })
	s.mute = func(c postdate.Route) bool { return strings.HasPrefix(string(c), "https://dead") }
	s.add(0, "https://well.example/first", 1, -ms)
	s.run(time.Second)
	hosts := 0
	mute := func(n int) {
		for range 2 * n {
			s.add(hosts%4, named("https://dead-%d.example/%d", hosts/2, hosts), 1, -500*ms)
			hosts++
		}
		s.run(2 * time.Second)
	}
	arrive := func(channels ...postdate.Route) {
		t.Helper()
		for i, c := range channels {
			s.add(i%4, c, 1, -ms)
		}
		s.run(300 * ms)
		for _, c := range channels {
			if s.arrived[c] != 1 {
				t.Errorf("%s waits", c)
			}
		}
	}
	mute(300)
	arrive("inbox:first", "https://new.example/first", "https://well.example/1", "https://well.example/2")
	mute(300)
	arrive("inbox:second", "https://well.example/3", "https://well.example/4")
	if s.mostFlying != s.m.c.HandMax/2 {
		t.Errorf("%d messages are with hosts that never answered", s.mostFlying)
	}
}

// The number of hosts remembered because they answered is bounded.
func TestHostsThatAnsweredAreForgotten(t *testing.T) {
	s := newShop(t, 4, nil)
	for i := range sitesKept + 500 {
		s.add(i%4, named("https://well-%d.example/", i), 1, -ms)
		if i%500 == 499 {
			s.run(time.Second)
		}
	}
	s.run(time.Second)
	if len(s.m.sites) != sitesKept || len(s.m.kept) != sitesKept {
		t.Errorf("%d hosts are remembered, and %d as such, want %d", len(s.m.sites), len(s.m.kept), sitesKept)
	}
	if s.m.sites["https://well-0.example"] != nil || s.m.sites["https://well-700.example"] == nil {
		t.Error("others are remembered than those that answered last")
	}
}

// A host that is forgotten twice, because it went down after it had answered, is not mistaken
// for a later one of the same name.
func TestAHostThatIsForgottenTwice(t *testing.T) {
	m := newMachine(DefaultConfig())
	for _, proven := range []bool{true, false} {
		c := m.channelOf("https://a.example/1")
		c.site.proven = proven
		m.forget(c)
	}
	again := m.channelOf("https://a.example/2").site
	for i := range sitesKept {
		c := m.channelOf(named("https://well-%d.example/", i))
		c.site.proven = true
		m.forget(c)
	}
	if m.sites["https://a.example"] != again {
		t.Error("a host with a channel is forgotten")
	}
}

// An unreachable part of the store stops what lies there, and nothing else. Once it is back,
// all buckets share calls again.
func TestAPartOfTheStoreThatFails(t *testing.T) {
	s := newShop(t, 64, nil)
	s.run(3 * time.Second)
	down := true
	s.broken = func(b int) bool { return down && b%3 == 0 }
	s.run(time.Second)
	for b := range 64 {
		s.add(b, named("x:%d", b), 3, -ms)
	}
	s.run(time.Second)
	for b := range 64 {
		if got, want := s.arrived[named("x:%d", b)], 3; got != want && b%3 != 0 {
			t.Errorf("bucket %d: %d of %d arrived while others are out of reach", b, got, want)
		}
	}
	down = false
	s.run(3 * time.Second)
	for b := range 64 {
		if got := s.arrived[named("x:%d", b)]; got != 3 {
			t.Errorf("bucket %d: %d of 3 arrived when all is well again", b, got)
		}
	}
	if len(s.m.apart) > 0 {
		t.Errorf("%d lanes are left when all is well again", len(s.m.apart))
	}
}

// A bucket is handed over immediately if nothing in it is unanswered, whatever waits in it:
// what its channel does not take is parked, and nothing is in doubt.
func TestHandOverParksWhatWaits(t *testing.T) {
	s := newShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:tight", MaxPerSecond: 1})
	s.add(0, "x:tight", 2_000, -100*ms)
	s.run(time.Second)
	s.drain(0)
	s.run(500 * ms)
	if s.gone[0] == nil {
		t.Fatal("it is not handed over")
	}
	doubt := 0
	for _, r := range s.store.Waiting[0] {
		if r.PossibleDuplicate {
			t.Fatalf("%s is in doubt", r.ScheduleID)
		}
		if r.Status == postdate.Pending && !s.store.Records[0].Withdrawable(r.Key, r.Route(), r.State) {
			doubt++
		}
	}
	if doubt > 0 {
		t.Errorf("%d messages that were never sent are in doubt for the next owner", doubt)
	}
}

// An unanswered publish holds up a hand-over for DrainMax, and its bucket's other channels not
// at all; afterwards only what is unanswered is in doubt.
func TestHandOverWithAPublishThatIsNotAnswered(t *testing.T) {
	s := newShop(t, 1, nil)
	s.mute = func(c postdate.Route) bool { return c == "x:mute" }
	s.add(0, "x:mute", 3, -ms)
	s.run(time.Second)
	s.drain(0)
	sent, late := 0, 0
	s.run(s.m.c.DrainMax-s.m.c.DrainStep, func() {
		if s.arrived["x:well"] < sent-int(2*s.m.c.DrainStep/(5*ms)) {
			late++
		}
		s.add(0, "x:well", 1, -ms)
		sent++
	})
	if late > 0 || s.arrived["x:well"] < sent-5 {
		t.Errorf("%d of %d messages of the other channel arrived, which was late %d times", s.arrived["x:well"], sent, late)
	}
	if s.gone[0] != nil {
		t.Error("handed over though a publish is not answered")
	}
	s.run(3 * s.m.c.DrainStep)
	if s.gone[0] == nil {
		t.Fatal("it is not handed over")
	}
	for _, r := range s.store.Waiting[0] {
		if r.PossibleDuplicate != (r.Channel == "x:mute") {
			t.Errorf("%s: in doubt %t", r.ScheduleID, r.PossibleDuplicate)
		}
	}
}

// URLs of one host fail together: one of them is tried for all, and no new one is tried while
// the host is down.
func TestAHostIsTriedOnce(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	for i := range 200 {
		s.put(0, named("https://dead.example/%d", i), 1, -2*ms)
	}
	s.nudge(0, -2*ms)
	s.reply(down)
	if down := s.m.sites["https://dead.example"]; down == nil || !down.down || len(s.m.sites) != 1 {
		t.Fatalf("the sites are %v", s.m.sites)
	}
	c := s.m.channelOf("https://dead.example/new")
	if !c.site.down {
		t.Error("a new URL of a host that is down is taken for one that is up")
	}
}

// Payloads in memory are bounded, however many buckets are read at a time.
func TestPayloadsAreBounded(t *testing.T) {
	s := newShop(t, 0, func(c *Config) { c.HandBytesMax, c.PayloadBytesMax = 8<<20, 256<<10 })
	s.waits = every
	for _, c := range of[Claim](s.gain(s.partitions(4_096)...)) {
		if len(c.Claims)*s.m.c.PayloadBytesMax > s.m.c.HandBytesMax/2 {
			t.Errorf("%d buckets are read at a time, each of which may bring %d bytes: %d are allowed", len(c.Claims), s.m.c.PayloadBytesMax, s.m.c.HandBytesMax)
		}
	}
}

// If the URL that probes a host has nothing left, or is paused, another one takes over: none
// waits for ever.
func TestAnotherOneTriesForTheHost(t *testing.T) {
	for name, paused := range map[string]bool{"nothing is left": false, "it is paused": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.owned(nil)
			urls := []postdate.Route{"https://a.example/1", "https://a.example/2", "https://a.example/3"}
			var found []store.ParkedRoute
			for _, url := range urls {
				found = append(found, store.ParkedRoute{Bucket: 0, Route: url})
			}
			effects := b.step(ParkedFound{Found: found})
			if paused {
				b.step(Limits{Settings: []store.ChannelSettings{{Route: urls[1], Paused: true}}})
			}
			tried := map[postdate.Route]bool{}
			for range 6_000 {
				for unparks := of[Unpark](effects); len(unparks) > 0; unparks = unparks[1:] {
					tried[unparks[0].Unpark.Route] = true
					unparks = append(unparks, of[Unpark](b.step(Unparked{Unpark: unparks[0].Unpark, Moved: 0}))...)
				}
				b.after(5 * ms)
				effects = b.step(fence.Tick{})
				b.answerAll(effects)
				for range of[FindParked](effects) {
					b.step(ParkedFound{})
				}
			}
			for i, url := range urls {
				if !tried[url] && !(paused && i == 1) {
					t.Errorf("%s was never tried", url)
				}
			}
		})
	}
}
