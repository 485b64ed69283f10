package poller

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/stats"
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

// A view names the first of the channels that are down, and counts all.
func TestViewNamesTheFirstThatAreDown(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	for i := range 3 * stats.DownMax {
		name := postdate.Route(fmt.Sprintf("x:%02d", i*7%(3*stats.DownMax)))
		s.m.outlets[name] = &outlet{name: name, site: &site{down: i != 0, reason: "no such host"}}
	}
	v := s.m.View(s.now)
	first, last := v.FirstDown[0], v.FirstDown[len(v.FirstDown)-1]
	if v.Down != 3*stats.DownMax-1 || len(v.FirstDown) != stats.DownMax || last.Channel != "x:10" ||
		first != (stats.DownChannel{Tenant: postdate.DefaultTenant, Channel: "x:01", Reason: "no such host"}) {
		t.Errorf("%d are down, first %+v", v.Down, v.FirstDown)
	}
}

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
		for _, takes := range []float64{1, 10} { // 200 and 2,000 a second
			s, run := newCounter(t, takes)
			s.backlog(8_000, of.behind)
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
			if s.arrived[of.behind] == 8_000 {
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
		"by a fast broker": {},
	} {
		t.Run(name, func(t *testing.T) {
			shops := 1
			if limit.None() {
				shops = 4 // turns are drawn, and what goes out in large batches has few of them
			}
			var sent [3]int
			random := testrun.Random(t).Float64 // one for all, so that each draws others
			for range shops {
				for i, n := range sharesOfPriorities(t, name, limit, random) {
					sent[i] += n
				}
			}
			if name == "after an outage" { // what is back first does not wait for the rest
				if sent[0] <= sent[1] || sent[1] <= sent[2] || sent[2] == 0 {
					t.Errorf("%d are sent", sent)
				}
				return
			}
			all := float64(sent[0] + sent[1] + sent[2])
			for i, n := range sent {
				want, off := float64(postdate.Priorities()[i].Weight())/13, []float64{0.4, 0.7, 1.2}[i]
				if got := float64(n) / all; math.Abs(got-want) > want*off {
					t.Errorf("%s has %.2f of %g, want about %.2f", postdate.Priorities()[i], got, all, want)
				}
			}
		})
	}
}

// sharesOfPriorities returns how many of each priority went out.
func sharesOfPriorities(t *testing.T, name string, limit store.ChannelSettings, random func() float64) [3]int {
	t.Helper()
	takes, lasts := 5.0, 5*time.Second
	if name == "by a slow broker" || limit.MaxInFlight > 0 {
		takes, lasts = 1, 10*time.Second
	}
	backlog := 4_000
	if name == "by a fast broker" {
		takes, lasts, backlog = 20, 2*time.Second, 8_000
	}
	s, run := newCounter(t, takes)
	s.m.random = random
	if limit.None() {
		s.m.c.PageMax, s.m.c.BatchMax = 50, 50 // smaller ones, and so more draws
	}
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
		s.backlog(backlog, high, medium, low)
	}
	run(lasts, never)
	return [3]int{s.arrived[high], s.arrived[medium], s.arrived[low]}
}

// A low priority alone is as fast as any.
func TestALowPriorityAlone(t *testing.T) {
	arrived := map[postdate.Route]int{}
	for _, r := range []postdate.Route{medium, low} {
		s, run := newCounter(t, 8)
		s.backlog(8_000, r)
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
	if m := s.m; len(m.channels)+len(m.outlets)+len(m.peers)+m.prioritized+m.byName[0].channels != 0 {
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

// Where the store is what takes the time, priorities share what it gives by their weights, and together
// take no more than one channel may.
func TestPrioritiesShareTheStore(t *testing.T) {
	for _, page := range []int{512, 20} {
		prioritiesShareTheStore(t, page)
	}
}

func prioritiesShareTheStore(t *testing.T, page int) {
	t.Helper()
	s := newShop(t, 8, func(c *Config) { c.DoubtMax, c.PageMax = 400, page })
	s.m.random = testrun.Random(t).Float64
	s.waits = storeCalls
	most := 0
	s.watch = func(e Effect) {
		call, is := e.(Claim)
		if is && slices.ContainsFunc(call.Claims, func(c store.Claim) bool { return c.Only == low || c.Only == high }) {
			o := s.m.outlets[medium]
			most = max(most, o.sum((*channel).doubtful)-s.m.handMax(s.now, o.channels[0])-len(call.Claims))
		}
	}
	for k := range time.Duration(100) {
		for b := range 8 {
			s.put(b, high, 30, 100*ms+k*ms)
			s.put(b, low, 30, 100*ms+k*ms)
		}
	}
	for b := range 8 {
		s.nudge(b, 100*ms)
	}
	for s.arrived[high] < 12_000 {
		s.workSlowly(2 * ms)
	}
	h, l := s.arrived[high], s.arrived[low]
	if most > 0 {
		t.Errorf("%d more may be claimed than of one channel", most)
	}
	// Turns are drawn, and large pages have few of them.
	if share := float64(h) / float64(h+l); l == 0 || share < 0.8 && page == 20 {
		t.Errorf("%d of a high and %d of a low priority arrived", h, l)
	}
}

// Of the priorities that have something ready, each sends first as often as it weighs.
func TestSendOrder(t *testing.T) {
	m := newMachine(DefaultConfig())
	m.random = testrun.Random(t).Float64
	h, md, l := m.channelOf(high), m.channelOf(medium), m.channelOf(low)
	other := m.channelOf("x:b")
	md.ready, l.ready, other.ready = []*Item{{}}, []*Item{{}}, []*Item{{}}
	lowFirst := 0
	for range 1_000 {
		order := m.sendOrder([]*channel{other, l, md})
		if len(order) != 3 || order[0] != other && order[1] != other && order[2] != other {
			t.Fatalf("of 3 channels, %d are sent", len(order))
		}
		at := func(c *channel) int { return slices.Index(order, c) }
		if at(l) < at(md) {
			lowFirst++
		}
	}
	if lowFirst < 120 || lowFirst > 280 {
		t.Errorf("low is before medium %d times in 1,000, want about 200", lowFirst)
	}
	h.ready = []*Item{{}}
	m.random = func() float64 { return 0.99 }
	if order := m.sendOrder([]*channel{l, md, h}); order[0] != h || order[1] != md || order[2] != l {
		t.Error("if high is first, medium does not come before low")
	}
}

// A tenant whose brokers hang does not take the hand from others by having several priorities.
func TestPrioritiesOfManySilentChannels(t *testing.T) {
	s := newShop(t, 8, nil)
	s.mute = func(r postdate.Route) bool { return r.Tenant() == "acme" }
	for i := range 180 {
		of := named("@acme x:%d", i)
		s.m.prove(s.m.channelOf(of).site, true)
		s.add(i%8, of, 100, 0)
		s.add(i%8, of.At(postdate.PriorityLow), 3, 0)
	}
	for range 6 {
		s.add(3, "x:b", 1, 0)
		before := s.arrived["x:b"]
		s.run(500 * ms)
		if s.arrived["x:b"] == before {
			t.Fatalf("%s after the others came, nothing arrives, and %d are in hand", s.now.Mono-s.begin.Mono, s.m.hand)
		}
	}
}

// newOutlet is an outlet with all priorities, whose site has answered.
func newOutlet() (m *Machine, h, md, l *channel) {
	m = newMachine(DefaultConfig())
	h, md, l = m.channelOf(high), m.channelOf(medium), m.channelOf(low)
	h.site.proven = true
	return m, h, md, l
}

// However few messages may wait, each priority may have one.
func TestEachPriorityMayHaveOneWait(t *testing.T) {
	m, h, _, l := newOutlet()
	h.outlet.limit = &limit{set: store.ChannelSettings{MaxInFlight: 1}}
	h.hand = 2
	if got := m.roomOf(postdate.Now{}, l); got != 1 {
		t.Errorf("beside two of a high priority, %d of a low one may come", got)
	}
	l.hand = 1
	if got := m.roomOf(postdate.Now{}, l); got > 0 {
		t.Errorf("beside one that waits, %d more may come", got)
	}
}

// What claims of one call bring of other priorities takes room.
func TestRoomBesideOtherPriorities(t *testing.T) {
	m, h, md, l := newOutlet()
	room := m.roomOf(postdate.Now{}, md)
	of, brings := map[*channel]int{md: 2, h: 1}, map[*channel]int{h: 5, l: 2}
	first, second := m.limitOf(postdate.Now{}, md, of, brings), m.limitOf(postdate.Now{}, md, of, brings)
	if first != (room-7)/2 || second != room-7-first {
		t.Errorf("of room for %d, 7 of which are taken, claims bring %d and %d", room, first, second)
	}
	brings[l] = 2 * room
	if got := m.limitOf(postdate.Now{}, h, of, brings); got > 0 || brings[h] != 6 {
		t.Errorf("without room a claim brings %d, and %d are counted", got, brings[h]-5)
	}
}

// A channel is crowded only if it has messages itself, and its outlet many.
func TestCrowdsByOutlet(t *testing.T) {
	m, h, _, l := newOutlet()
	l.hand = m.c.crowdMin() - 1
	if m.crowds(h) || m.crowds(l) {
		t.Error("few are a crowd")
	}
	l.hand++
	if m.crowds(h) || !m.crowds(l) {
		t.Errorf("of many, the one that has none is crowded: %t, the other one: %t", m.crowds(h), m.crowds(l))
	}
	h.hand = 1
	if !m.crowds(h) {
		t.Error("a first one of another priority is no part of the crowd")
	}
}

// Of those that may wait, what higher priorities have is theirs. What the broker has of lower ones gives
// as many a place, but not under a limit, nor if the hand is almost full.
func TestWaitMaxBeside(t *testing.T) {
	m, h, md, l := newOutlet()
	m.c.HandMax, m.c.DoubtMax = 1_000, 40 // a crowd are 10
	for _, test := range []struct {
		high, low, hand, limit int
		want                   int
	}{
		{0, 0, 0, 0, 5}, {3, 0, 0, 0, 2}, {5, 0, 0, 0, 1}, {9, 0, 0, 0, 1},
		{0, 4, 0, 0, 5}, {0, 8, 0, 0, 8}, {0, 30, 0, 0, 10},
		{0, 8, 749, 0, 8}, {0, 8, 750, 0, 5}, {0, 8, 0, 1, 5},
	} {
		h.hand, l.inFlight, l.hand, m.hand, m.coming = test.high, test.low, test.low, test.hand-test.hand/3, test.hand/3
		md.hand = 7 // what it has itself makes no difference
		h.outlet.limit = nil
		if test.limit > 0 {
			h.outlet.limit = &limit{}
		}
		if got := m.waitMaxBeside(md, 5); got != test.want {
			t.Errorf("%+v: %d may wait", test, got)
		}
	}
}

// Parked messages come back in turns only while higher priorities have some parked, too; a turn that is
// another one's comes again soon.
func TestReturnsInTurn(t *testing.T) {
	m, h, _, l := newOutlet()
	near, far := &owned{lane: m.common}, &owned{lane: m.common}
	m.random = func() float64 { return 0.99 } // the highest
	l.parkedIn.add(near)
	if !m.mayReturn(l) {
		t.Error("a priority that has some alone has no turn")
	}
	h.parkedIn.add(far)
	if m.mayReturn(l) || !m.mayReturn(h) {
		t.Error("the higher priority has no turn")
	}
	h.site.parked.add(l)
	h.site.parked.add(h)
	m.retries.add(far) // it may be out of reach
	if again := m.unpark(postdate.Now{Mono: time.Minute}, h.site); again != time.Minute+lookOn {
		t.Errorf("the next turn comes after %s", again-time.Minute)
	}
}

// What is due first may be in hand, late, claimed by an earlier owner, known to come, or behind.
func TestFirstDue(t *testing.T) {
	route := medium
	for name, test := range map[string]struct {
		change func(*owned)
		want   postdate.Time
	}{
		"nothing":              {func(*owned) {}, postdate.Far},
		"late":                 {func(b *owned) { b.late = bucket.UpTo(40) }, bucket.UpTo(40).Time},
		"late again":           {func(b *owned) { b.late, b.again = bucket.UpTo(40), spans{spanOf(50), spanFrom(bucket.UpTo(30))} }, bucket.UpTo(30).Time},
		"claimed and not read": {func(b *owned) { b.record.Claimed = bucket.UpTo(200) }, bucket.UpTo(100).Time},
		"known":                {func(b *owned) { b.due = 150 }, 150},
		"behind":               {func(b *owned) { b.record.Behind = map[postdate.Route]bucket.Position{route: bucket.UpTo(70)} }, bucket.UpTo(70).Time},
		"behind, claimed long ago": {func(b *owned) {
			b.record.Behind = map[postdate.Route]bucket.Position{route: {Time: 1}}
			b.behind[route] = 90
		}, 90},
		"behind, since nobody knows": {func(b *owned) { b.record.Behind = map[postdate.Route]bucket.Position{route: {}} }, postdate.Far},
	} {
		b := &owned{read: bucket.UpTo(100), late: nowhere, due: postdate.Far, behind: map[postdate.Route]postdate.Time{}}
		test.change(b)
		if got := b.firstDue(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// While a broker does not answer, no more wait than it has, and one of each further priority, whatever the
// priorities of what comes: the rest is parked, and can be cancelled.
func TestWhatWaitsOfAllPriorities(t *testing.T) {
	s := newMuteShop(t, 8, nil)
	s.m.random = testrun.Random(t).Float64
	s.limits(store.ChannelSettings{Route: medium, MaxInFlight: 8})
	for i := range 400 {
		s.add(i%8, []postdate.Route{high, medium, low}[i%3], 3, 0)
		s.run(5 * ms)
		all := 0
		_, fixed := s.doubt()
		for _, n := range fixed {
			all += n
		}
		if i > 100 && all > 2*s.flying()+2 {
			t.Fatalf("%d are with the broker, and %d cannot be cancelled", s.flying(), all)
		}
	}
}
