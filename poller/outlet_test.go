package poller

import (
	"math"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

const (
	high   postdate.Route = "@default!high x:a"
	medium postdate.Route = "x:a"
	low    postdate.Route = "@default!low x:a"
)

// newCounter is a shop whose broker takes so many messages in 5 ms, in the order in which they come.
// While it runs, no crash may leave more in doubt than of one channel.
func newCounter(t *testing.T, takes float64) (s *shop, run func(d time.Duration, until func() bool)) {
	s = newMuteShop(t, 8, nil)
	s.m.random = testrun.Random(t).Float64
	credit := 0.0
	return s, func(d time.Duration, until func() bool) {
		t.Helper()
		for end := s.now.Mono + d; s.now.Mono < end && !until(); {
			s.run(5 * ms)
			credit = min(credit+takes, max(takes, 500))
			for len(s.unanswered) > 0 && float64(len(s.unanswered[0].Batch)) <= credit {
				credit -= float64(len(s.unanswered[0].Batch))
				s.reply(confirmed)
			}
			if (s.now.Mono-s.begin.Mono)%(50*ms) != 0 {
				continue
			}
			inDoubt, sum := 0, max(s.m.c.DoubtMax, s.m.outlets[medium].best(s.now.Mono))
			all, _ := s.doubt()
			for _, n := range all {
				inDoubt += n
			}
			if inDoubt > sum {
				t.Fatalf("a crash after %s leaves %d messages in doubt, and may leave %d", s.now.Mono-s.begin.Mono, inDoubt, sum)
			}
		}
	}
}

// best is what an outlet confirmed in its best two seconds; 0 if there is none.
func (o *outlet) best(now time.Duration) int {
	if o == nil {
		return 0
	}
	return o.pace.best(now)
}

func never() bool { return false }

func (s *shop) backlog(n int, routes ...postdate.Route) {
	for _, r := range routes {
		for b := range 8 {
			s.add(b, r, n/8, -time.Minute)
		}
	}
}

// What is urgent does not wait for a backlog of a lower priority, whatever its broker takes, but for
// what the broker already has.
func TestABacklogOfALowerPriority(t *testing.T) {
	for _, of := range []struct{ behind, urgent postdate.Route }{{low, high}, {low, medium}, {medium, high}} {
		for _, takes := range []float64{1, 10, 25} { // 200, 2,000 and 5,000 a second
			s, run := newCounter(t, takes)
			s.backlog(16_000, of.behind)
			run(2*time.Second, never)
			if s.flying() == 0 {
				t.Fatal("the backlog waits for nothing")
			}
			most := time.Second
			if of.behind == medium { // what is with the broker goes first
				most = 300*ms + time.Duration(float64(s.flying())/takes)*5*ms
			}
			s.add(3, of.urgent, 20, 0)
			began := s.now.Mono
			run(10*time.Second, func() bool { return s.arrived[of.urgent] == 20 })
			if late := s.now.Mono - began; late > most {
				t.Errorf("20 of %s are sent %s late beside a backlog of %s of which %g a second are taken", of.urgent, late, of.behind, 200*takes)
			}
			if s.arrived[of.behind] == 16_000 {
				t.Error("there is no backlog left")
			}
		}
	}
}

// What goes out is shared as the priorities weigh, also where an operator limits it, and where it was
// parked. The lowest goes on.
func TestSharesOfPriorities(t *testing.T) {
	for name, limit := range map[string]store.ChannelSettings{
		"by the broker":    {},
		"by a rate":        {MaxPerSecond: 400},
		"one at a time":    {MaxInFlight: 1},
		"after an outage":  {},
		"eight at a time":  {MaxInFlight: 8},
		"by a slow rate":   {MaxPerSecond: 40},
		"by a slow broker": {},
	} {
		t.Run(name, func(t *testing.T) {
			takes, lasts := 5.0, 5*time.Second
			if name == "by a slow broker" || limit.MaxInFlight > 0 {
				takes, lasts = 1, 10*time.Second
			}
			s, run := newCounter(t, takes)
			limit.Route = medium
			s.limits(limit)
			if name == "after an outage" {
				s.down, s.mute = every, nil
				s.backlog(4_000, high, medium, low)
				s.run(time.Second)
				if s.parked() < 11_000 {
					t.Fatalf("%d are parked", s.parked())
				}
				s.down, s.mute = nil, every
			} else {
				s.backlog(4_000, high, medium, low)
			}
			run(lasts, never)
			h, m, l := s.arrived[high], s.arrived[medium], s.arrived[low]
			all := float64(h + m + l)
			if name == "after an outage" { // what is back first does not wait for the rest
				if h <= m || m <= l || l == 0 {
					t.Errorf("%d, %d and %d are sent", h, m, l)
				}
				return
			}
			for i, n := range []int{h, m, l} {
				want, off := float64(postdate.Priorities()[i].Weight())/13, []float64{0.4, 0.7, 1.2}[i]
				if got := float64(n) / all; math.Abs(got-want) > want*off {
					t.Errorf("%s has %.2f of %g, want about %.2f", postdate.Priorities()[i], got, all, want)
				}
			}
		})
	}
}

// A low priority alone is as fast as any.
func TestALowPriorityAlone(t *testing.T) {
	arrived := map[postdate.Route]int{}
	for _, r := range []postdate.Route{medium, low} {
		s, run := newCounter(t, 30)
		s.backlog(24_000, r)
		run(2*time.Second, never)
		before := s.arrived[r]
		run(2*time.Second, never)
		arrived[r] = s.arrived[r] - before
	}
	if l, m := arrived[low], arrived[medium]; l < m*9/10 {
		t.Errorf("of a low priority %d go out, of a medium one %d", l, m)
	}
}

// An operator sees a channel once, and stops all of it; when nothing of it is left it is forgotten.
func TestPrioritiesAreOneChannel(t *testing.T) {
	s := newShop(t, 2, nil)
	s.limits(store.ChannelSettings{Route: medium, Paused: true})
	s.add(0, high, 2, 0)
	s.add(1, low, 3, 0)
	s.run(time.Second)
	want := ChannelView{Route: medium, Paused: true, Parked: true}
	if all := s.m.Channels(); len(all) != 1 || all[0] != want || s.parked(high) != 2 || s.parked(low) != 3 {
		t.Fatalf("of a paused channel: %+v, %d and %d parked", all, s.parked(high), s.parked(low))
	}
	s.limits()
	s.run(3 * time.Second)
	if s.arrived[high] != 2 || s.arrived[low] != 3 || s.arrived[medium] != 0 {
		t.Errorf("after the pause %v arrived", s.arrived)
	}
	if m := s.m; len(m.channels)+len(m.outlets)+len(m.peers)+m.prioritized != 0 {
		t.Errorf("%d channels, %d outlets, %d peers and %d of a priority are left", len(m.channels), len(m.outlets), len(m.peers), m.prioritized)
	}
}

func TestPickPriority(t *testing.T) {
	m := newMachine(DefaultConfig())
	m.random = testrun.Random(t).Float64
	for _, some := range [][]postdate.Priority{{postdate.PriorityLow}, {postdate.PriorityHigh, postdate.PriorityLow},
		{postdate.PriorityHigh, postdate.PriorityMedium, postdate.PriorityLow}} {
		var marked prioritySet
		weights := 0
		for _, p := range some {
			marked[p] = true
			weights += p.Weight()
		}
		picked := map[postdate.Priority]int{}
		for range 13_000 {
			picked[m.pickPriority(marked)]++
		}
		for _, p := range postdate.Priorities() {
			want := 0
			if marked[p] {
				want = 13_000 * p.Weight() / weights
			}
			if got := picked[p]; math.Abs(float64(got-want)) > float64(want)/5 {
				t.Errorf("of %v, %s is picked %d times, want about %d", some, p, got, want)
			}
		}
	}
}

// Each leaves half for the next higher one, all together have no more than there is, and a single place
// is for whoever comes.
func TestShareOf(t *testing.T) {
	m := newMachine(DefaultConfig())
	channels := []*channel{m.channelOf(low), m.channelOf(medium), m.channelOf(high)}
	for _, test := range []struct{ low, medium, high, forLow, forMedium, forHigh int }{
		{0, 0, 0, 25, 50, 100},
		{25, 0, 0, 0, 25, 75},
		{0, 50, 0, 0, 0, 50},
		{10, 45, 0, -5, -5, 45},
		{0, 0, 100, 0, 0, 0},
		{0, 0, 60, 25, 40, 40},
		{0, 0, 90, 10, 10, 10},
		{60, 30, 30, -40, -40, -20},
	} {
		for i, n := range []int{test.low, test.medium, test.high} {
			channels[i].hand = n
		}
		got := [...]int{channels[0].shareOf(100, inHand), channels[1].shareOf(100, inHand), channels[2].shareOf(100, inHand)}
		if want := [...]int{test.forLow, test.forMedium, test.forHigh}; got != want {
			t.Errorf("%+v: more may come: %v", test, got)
		}
	}
	for n := range 2 {
		if got := channels[0].shareOf(n, func(*channel) int { return 0 }); got != n {
			t.Errorf("of %d, a low priority may take %d", n, got)
		}
	}
}

// While a broker answers nothing, a low priority has a quarter of the window, and twice that cannot be
// cancelled; the rest is for higher ones, which go out at once.
func TestWhatASlowBrokerHasOfALowPriority(t *testing.T) {
	for _, urgent := range []postdate.Route{high, medium} {
		s := newMuteShop(t, 8, nil)
		s.backlog(1_600, low)
		s.run(500 * ms)
		if _, fixed := s.doubt(); s.flying(low) != windowMin/lowPart || fixed[low] > 2*windowMin/lowPart {
			t.Errorf("%d of a low priority are with the broker, and %d cannot be cancelled", s.flying(low), fixed[low])
		}
		s.add(3, urgent, 20, 0)
		s.add(4, urgent, 20, 200*ms)
		s.run(500 * ms)
		if n := s.flying(urgent); n != 40 {
			t.Errorf("%d of %s are with the broker, want 40", n, urgent)
		}
	}
}

// What is overdue is so since it was due, also in buckets that were idle for long when a backlog came.
func TestOverdueOfABacklog(t *testing.T) {
	s := newShop(t, 8, nil)
	s.run(40 * time.Second)
	s.limits(store.ChannelSettings{Route: medium, MaxPerSecond: 20})
	due := s.now.Wall
	for b := range 8 {
		s.add(b, low, 40, 0)
		s.add(b, high, 80, 0)
	}
	for range 10 {
		s.run(500 * ms)
		for b, since := range s.m.View(s.now).Overdue {
			if since < due-100 {
				t.Fatalf("%s after all came, bucket %d is overdue since %s before that", s.now.Wall.Sub(due), b, due.Sub(since))
			}
		}
	}
	if len(s.m.View(s.now).Overdue) == 0 {
		t.Error("nothing is overdue")
	}
}
