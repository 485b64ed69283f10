package poller

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

// theirs is the route of another tenant's messages to a channel.
func theirs(c postdate.Route) postdate.Route { return postdate.RouteOf("acme", c.Channel()) }

// A backlog of one tenant's messages to a channel holds up no message of another tenant to the same
// channel, whatever the channel takes at a time.
func TestABacklogOfAnotherTenant(t *testing.T) {
	s := newMuteShop(t, 4, nil)
	for b := range 4 {
		s.add(b, "x:a", 5_000, -time.Second)
	}
	s.work(200 * ms)
	if n := s.flying("x:a"); n < windowMin {
		t.Fatalf("%d messages of the backlog are with the broker", n)
	}
	s.add(1, theirs("x:a"), 3, 0)
	s.work(50 * ms)
	if n := s.flying(theirs("x:a")); n != 3 {
		t.Errorf("%d of the other tenant's messages are with the broker, want 3", n)
	}
}

// What an operator sets for one tenant's messages to a channel is nothing to another tenant's.
func TestLimitsOfAnotherTenant(t *testing.T) {
	s := newShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:paused", Paused: true}, store.ChannelSettings{Route: theirs("x:slow"), MaxPerSecond: 1})
	for _, c := range []postdate.Route{"x:paused", "x:slow"} {
		s.add(0, c, 50, -ms)
		s.add(0, theirs(c), 50, -ms)
	}
	s.run(2 * time.Second)
	want := map[postdate.Route][2]int{"x:paused": {0, 0}, theirs("x:paused"): {50, 50}, "x:slow": {50, 50}, theirs("x:slow"): {1, 4}}
	for route, n := range want {
		if got := s.arrived[route]; got < n[0] || got > n[1] {
			t.Errorf("%d messages of %s arrived, want between %d and %d", got, route, n[0], n[1])
		}
	}
}

// What one tenant sends to a host says nothing of the host for another tenant: it cannot have the
// host taken for down.
func TestAHostOfAnotherTenant(t *testing.T) {
	s := newShop(t, 1, nil)
	s.down = func(r postdate.Route) bool { return r.Tenant() == "acme" }
	s.add(0, theirs("https://shop.example/no-such-page"), 10, -ms)
	s.run(time.Second)
	s.add(0, "https://shop.example/orders", 10, 0)
	s.run(100 * ms)
	if n := s.arrived["https://shop.example/orders"]; n != 10 {
		t.Errorf("%d messages arrived at a host that only another tenant's messages found down", n)
	}
}

// serve plays brokers that together take so many messages every ten milliseconds, first come first
// served, for a while, and returns how many of each tenant they took.
func (s *shop) serve(messages int, d time.Duration) map[string]int {
	took, debt := map[string]int{}, 0
	for end := s.now.Mono + d; s.now.Mono < end; s.work(10 * ms) {
		for debt += messages; debt > 0 && len(s.unanswered) > 0; {
			p := s.unanswered[0]
			debt -= len(p.Batch)
			took[routeOf(p).Tenant()] += len(p.Batch)
			s.reply(confirmed)
		}
	}
	return took
}

// workSlowly lets time pass in which each call of the store takes two milliseconds.
func (s *shop) workSlowly(d time.Duration) {
	for end := s.now.Mono + d; s.now.Mono < end; s.tick(2 * ms) {
		for _, c := range slices.Clone(s.calls) {
			s.answerWith(c)
		}
	}
}

// flood stores much that is due of many channels of a tenant, in two buckets.
func (s *shop) flood(tenant string, channels, each int) {
	for b := range 2 {
		for k := range each / 10 {
			for i := range channels {
				s.put(b, postdate.RouteOf(tenant, named("x:%d", i).Channel()), 10, -time.Second+time.Duration(k)*ms)
			}
		}
		s.nudge(b, -time.Second)
	}
}

// However much of one tenant is due, it holds up no message of another one: on more channels than a
// bucket's record can name, whose brokers do not answer; and on channels that take all that is read, so
// that the store is what takes the time.
func TestAFloodOfAnotherTenant(t *testing.T) {
	for _, flooder := range []string{postdate.DefaultTenant, "many"} {
		for _, answers := range []bool{false, true} {
			s := newShop(t, 2, nil)
			s.waits = storeCalls
			s.mute = func(r postdate.Route) bool { return !answers || r == theirs("y:a") }
			s.flood(flooder, 32, 250)
			s.workSlowly(30 * ms)
			for b := range 2 {
				s.add(b, theirs("y:a"), 3, 0)
			}
			s.workSlowly(20 * ms)
			if n := s.flying(theirs("y:a")); n != 6 {
				t.Errorf("%d of the other tenant's messages are with the broker, want 6 (%s floods, brokers answer: %t)", n, flooder, answers)
			}
		}
	}
}

// Where the store is what takes the time, tenants that both have more due than it gives share by weight.
func TestTenantsShareTheStoreByWeight(t *testing.T) {
	for _, weight := range []int{1, 3} {
		s := newShop(t, 2, func(c *Config) { c.DoubtMax = 400 }) // many small claims
		random := testrun.Random(t)
		s.m.random = random.Float64
		s.waits = storeCalls
		s.step(Limits{Weights: map[string]int{"acme": weight}})
		s.flood("many", 32, 250)
		s.flood("acme", 8, 1_000)
		s.workSlowly(200 * ms)
		n := map[string]int{}
		for route, arrived := range s.arrived {
			n[route.Tenant()] += arrived
		}
		share, want := float64(n["acme"])/float64(n["acme"]+n["many"]), float64(weight)/float64(weight+1)
		if share < want-0.15 || share > want+0.15 {
			t.Errorf("with the weight %d, acme has %.2f of what arrived: %v", weight, share, n)
		}
	}
}

// A scan that did not come to its end, long after the time of what it found, shows whose messages hold
// up those that follow, and who does most. One that is near, or comes to its end, shows nothing; nor does one of what is
// claimed already.
func TestWhatIsOverdue(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 10_000}
	found := make([]postdate.Record, 3)
	found[0].Tenant, found[1].Tenant, found[2].Tenant = "b", "a", "a"
	for _, test := range []struct {
		ended    postdate.Time
		complete bool
		want     int
	}{{9_000, false, 2}, {9_899, false, 2}, {9_900, false, 0}, {9_000, true, 0}, {10_040, false, 0}, {8_999, false, 0}} {
		b := &owned{overdue: []*overdue{{tenant: m.tenantOf("before")}}, record: bucket.Partition{Claimed: bucket.Position{Time: 9_000}}}
		m.noteOverdue(now, b, &store.ClaimResult{Due: found, Ended: bucket.Position{Time: test.ended}, Complete: test.complete})
		if len(b.overdue) != test.want || test.want > 0 && (b.overdue[0].tenant.name != "a" || b.overdue[1].tenant.name != "b") {
			t.Errorf("after a scan that ended at %d (complete: %t), %d tenants are overdue, want %d", test.ended, test.complete, len(b.overdue), test.want)
		}
	}
}

// For what is overdue, a tenant's channels are left behind one by one if it has few and there are places,
// so that its others go on; else all of it is.
func TestWhatIsOverdueIsLeftBehind(t *testing.T) {
	for name, test := range map[string]struct {
		channels, found, places int
		want                    int // channels; -1: all of the tenant
	}{
		"one of one": {1, 1, behindMax, 1}, "one of many": {overdueMax + 1, 1, behindMax, -1}, "one of as many as may be": {overdueMax, 1, behindMax, 1},
		"two of two, and one that is behind": {2, 2, 2, 3}, "no place for one": {2, 2, 1, -1},
	} {
		m := newMachine(DefaultConfig())
		o := &overdue{tenant: m.tenantOf("acme")}
		for i := range test.channels {
			c := m.channelOf(named("@acme x:%d", i))
			if i < test.found {
				o.routes = append(o.routes, c.route)
			}
		}
		s := placesOf(bucket.Partition{Claimed: bucket.UpTo(100)})
		for i := range behindMax - test.places {
			s.add(named("x:%d", i), bucket.UpTo(1))
		}
		if test.found == 2 { // what is named needs no place
			o.routes = append([]postdate.Route{"x:0"}, o.routes...)
			s.behind["x:0"] = bucket.UpTo(100)
		}
		s.leaveOverdue(o)
		left := 0
		for _, route := range o.routes {
			if at, is := s.behind[route]; is && at == bucket.UpTo(100) {
				left++
			}
		}
		if _, all := s.behind[o.tenant.all]; all != (test.want < 0) || !all && left != test.want {
			t.Errorf("%s: left are %v", name, s.behind)
		}
	}
}

// all is the record of a bucket in which all of some tenants is behind.
func (s *shop) allBehind(tenants ...string) bucket.Partition {
	var all []postdate.Route
	for _, name := range tenants {
		all = append(all, postdate.AllOf(name))
	}
	return s.behind(all...)
}

// Tenants that are behind in a bucket catch up as often as they weigh, and are forgotten with the bucket.
func TestTenantsCatchUp(t *testing.T) {
	s := newBareShop(t, nil)
	random := testrun.Random(t)
	s.m.random = random.Float64
	s.step(Limits{Weights: map[string]int{"b": 3}})
	s.gainSwept(s.allBehind("a", "b", "c"))
	b, turns := s.m.buckets[0], map[string]int{}
	for range 1_000 {
		p := poll{bucket: b, claim: store.Claim{Claim: bucket.Claim{To: bucket.UpTo(s.now.Wall)}}}
		if !s.m.catchUp(s.now, b, &p) || p.only != nil || p.claim.Only != p.of.all || p.claim.To != bucket.UpTo(s.now.Wall) {
			t.Fatalf("catching up is %+v", p)
		}
		turns[p.of.name]++
	}
	if turns["b"] < 520 || turns["b"] > 680 || turns["a"] < 140 || turns["c"] < 140 {
		t.Errorf("of 1000 turns a, b and c had %v, want 200, 600 and 200", turns)
	}
	s.lose(0)
	for _, one := range s.m.byName {
		if len(one.behindIn) > 0 {
			t.Errorf("%s is behind in a bucket that was lost", one.name)
		}
	}
}

// If all of a tenant is behind, every other turn is for that, and its channels share the rest.
func TestAllChannelsHaveTurns(t *testing.T) {
	for channels := 1; channels <= 4; channels++ {
		s := newBareShop(t, nil)
		all := []postdate.Route{postdate.AllOf("acme")}
		for i := range channels {
			all = append(all, theirs(postdate.Route(fmt.Sprint("x:", i))))
		}
		record := s.behind(all...)
		record.Behind[all[0]] = bucket.UpTo(s.now.Wall - 250)
		s.gainSwept(record)
		b, turns := s.m.buckets[0], map[postdate.Route]int{}
		for range scanTurns * 2 * channels {
			p := poll{bucket: b, claim: store.Claim{Claim: bucket.Claim{To: bucket.UpTo(s.now.Wall)}}}
			if !s.m.catchUp(s.now, b, &p) {
				t.Fatal("nothing catches up")
			}
			turns[p.claim.Only]++
			b.turn++
		}
		for i, route := range all {
			if want := scanTurns * []int{channels, 1}[min(i, 1)]; turns[route] != want {
				t.Errorf("of %d channels and all of their tenant, %q had %d turns, want %d", channels, route, turns[route], want)
			}
		}
	}
}

// A channel that is further behind than its tenant comes up to the tenant's place, and no further.
func TestAChannelCatchesUpWithItsTenant(t *testing.T) {
	m := newMachine(DefaultConfig())
	all := postdate.AllOf("acme")
	b := &owned{record: bucket.Partition{Claimed: bucket.UpTo(900),
		Behind: map[postdate.Route]bucket.Position{all: bucket.UpTo(500), theirs("x:a"): bucket.UpTo(100), "x:a": bucket.UpTo(100)}}}
	for route, want := range map[postdate.Route]postdate.Time{theirs("x:a"): 500, "x:a": 900, all: 900} {
		if _, to, ok := m.lag(b, route, bucket.UpTo(2_000)); !ok || to != bucket.UpTo(want) {
			t.Errorf("%q can catch up to %v, want %d (%t)", route, to, want, ok)
		}
	}
	if _, to, ok := m.lag(b, theirs("x:a"), bucket.UpTo(300)); !ok || to != bucket.UpTo(300) {
		t.Errorf("at 300 it can catch up to %v (%t)", to, ok)
	}
}

// What a claim of all of a tenant may have claimed, of which no answer came, counts until another claim
// of the bucket is answered; the tenant stays behind.
func TestALostClaimOfATenant(t *testing.T) {
	s := newBareShop(t, nil)
	s.gainSwept(s.allBehind("acme"))
	before := s.m.buckets[0].record
	call := s.take()
	if call.Claims[0].Only != postdate.AllOf("acme") {
		t.Fatalf("the claim is %+v", call.Claims[0])
	}
	s.loseAnswer(call)
	if n := s.m.comingOfAny; n != call.Claims[0].Scan.Limit-1 {
		t.Errorf("%d messages count, of a claim of at most %d", n, call.Claims[0].Scan.Limit)
	}
	s.after(s.m.c.RetryAfter)
	s.step(fence.Tick{})
	again := s.take()
	if c := again.Claims[0]; c.Only != call.Claims[0].Only || !maps.Equal(c.Behind, before.Behind) {
		t.Errorf("the next claim is %+v", c)
	}
	s.find(again)
	if n := s.m.comingOfAny - len(s.calls); n > 0 {
		t.Errorf("%d messages count when all is known", n)
	}
}

// Where tenants have more due than goes out, it goes out by their weights: to one channel, and to
// many channels of one tenant beside one of another.
func TestTenantsShareByWeight(t *testing.T) {
	for _, test := range []struct {
		name           string
		weight         int // of acme; the other tenant has 1
		channels       int // of the other tenant; acme has one
		atLeast, under float64
	}{
		{"equal weights, one channel", 1, 1, 0.4, 0.6},
		{"three times the weight, one channel", 3, 1, 0.65, 0.85},
		{"equal weights, one channel beside many", 1, 200, 0.3, 0.7},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newMuteShop(t, 4, func(c *Config) { c.HandMax = 2_048 })
			s.step(Limits{Weights: map[string]int{"acme": test.weight}})
			for i := range test.channels {
				for b := range 4 {
					s.add(b, named("x:%d", i), 3_000/test.channels, -time.Second)
				}
			}
			for b := range 4 {
				s.add(b, theirs("x:0"), 3_000, -time.Second)
			}
			s.serve(40, 2*time.Second) // windows grow, slowly while many others have messages before them
			took := s.serve(40, time.Second)
			share := float64(took["acme"]) / float64(took["acme"]+took[postdate.DefaultTenant])
			if share < test.atLeast || share > test.under {
				t.Errorf("%.2f of what went out was acme's, want %.2f to %.2f: %v", share, test.atLeast, test.under, took)
			}
		})
	}
}

// However little a tenant weighs beside others, a new site of its own is tried.
func TestTheLightestTenantIsTried(t *testing.T) {
	s := newMuteShop(t, 1, func(c *Config) { c.HandMax = 64 })
	weights := map[string]int{}
	for i := range 30 {
		tenant := named("heavy-%d", i)
		weights[string(tenant)] = 1000
		s.add(0, postdate.RouteOf(string(tenant), "x:a"), 1, -ms)
	}
	s.step(Limits{Weights: weights})
	s.work(20 * ms)
	s.add(0, theirs("x:new"), 1, 0)
	s.work(20 * ms)
	if n := s.flying(theirs("x:new")); n != 1 {
		t.Errorf("%d messages of the lightest tenant are with the broker, want 1", n)
	}
}

// BenchmarkPeers is one look at whether thousands of tenants, who all have more due to one channel than
// goes out, have room: it must cost each of them little, however many they are.
func BenchmarkPeers(b *testing.B) {
	for _, n := range []int{100, 1_000, 4_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := NewMachine(DefaultConfig(), func() float64 { return 0 }, func(n postdate.Now) postdate.Time { return n.Wall })
			o := &owned{}
			for i := range n {
				m.fallBehind(m.channelOf(postdate.RouteOf(fmt.Sprint("t-", i), "x:a")), o)
			}
			for b.Loop() {
				m.steps++
				for _, o := range m.peers["x:a"].all {
					m.hasRoom(postdate.Now{}, o.channels[0])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/tenant")
		})
	}
}

// shareholder gives a machine a tenant with a weight, and channels of it that are behind in a bucket each.
func shareholder(m *Machine, name string, weight, behind int) *tenant {
	t := m.tenantOf(name)
	t.weight = weight
	for i := range behind {
		c := m.channelOf(postdate.RouteOf(name, postdate.Channel(fmt.Sprint("x:", i))))
		c.site.proven = true
		c.window = 1_000
		b := &owned{lane: m.common, record: bucket.Partition{Claimed: bucket.UpTo(9_000),
			Behind: map[postdate.Route]bucket.Position{c.route: bucket.UpTo(1_000)}}, behind: map[postdate.Route]postdate.Time{c.route: 0}}
		m.fallBehind(c, b)
	}
	return t
}

// Each tenant that is behind catches up in its part of the buckets of a call, and in what others leave.
func TestCatchingUpByWeight(t *testing.T) {
	now := postdate.Now{Wall: 10_000, Mono: time.Minute}
	of := func(all []*owned) map[string]int {
		got := map[string]int{}
		for _, b := range all {
			for route := range b.behind {
				got[route.Tenant()]++
			}
		}
		return got
	}
	m := newMachine(DefaultConfig())
	shareholder(m, "idle", 100, 0)
	shareholder(m, "a", 2, 20)
	shareholder(m, "b", 1, 20)
	shareholder(m, "c", 1, 20)
	for range 3 {
		if got := of(m.catchingUp(now, 8)); !maps.Equal(got, map[string]int{"a": 4, "b": 2, "c": 2}) {
			t.Errorf("of 8 buckets the tenants have %v", got)
		}
	}
	if got := of(m.catchingUp(now, 2)); len(got) != 2 {
		t.Errorf("of 2 buckets the tenants have %v", got)
	}
	m = newMachine(DefaultConfig())
	shareholder(m, "a", 1, 20)
	shareholder(m, "b", 1, 1)
	if got := of(m.catchingUp(now, 8)); got["a"] != 7 || got["b"] < 1 {
		t.Errorf("beside a tenant with one bucket another one has %v of 8", got)
	}
}

// A tenant whose channel was behind in a lost bucket alone has nothing behind.
func TestNothingIsBehindInALostBucket(t *testing.T) {
	m := newMachine(DefaultConfig())
	one := shareholder(m, "a", 1, 1)
	m.forgetBehind(one.behind[0].behindIn[0])
	if len(one.behind) > 0 {
		t.Error("a channel is behind")
	}
}

// If all of a tenant is behind, half of the buckets are for that.
func TestCatchingUpWithAll(t *testing.T) {
	m := newMachine(DefaultConfig())
	one := shareholder(m, "a", 1, 20)
	for range 20 {
		one.behindIn = append(one.behindIn, &owned{lane: m.common, record: bucket.Partition{Claimed: bucket.UpTo(9_000),
			Behind: map[postdate.Route]bucket.Position{one.all: bucket.UpTo(1_000)}}})
	}
	ofAll := 0
	for range 2 {
		got := m.catchingUp(postdate.Now{Wall: 10_000, Mono: time.Minute}, 7)
		for _, b := range got {
			if _, all := b.record.Behind[one.all]; all {
				ofAll++
			}
		}
		if len(got) != 7 {
			t.Errorf("%d buckets catch up, want 7", len(got))
		}
	}
	if ofAll != 7 {
		t.Errorf("of 14 buckets %d are for all of the tenant, want 7", ofAll)
	}
}

// What is to be shared is shared by weight among those that take part.
func TestParts(t *testing.T) {
	m := newMachine(DefaultConfig())
	a, b := m.tenantOf("a"), m.tenantOf("b")
	m.holds(a, 2)
	m.setWeights(map[string]int{"a": 3, "b": 5})
	if m.weightInHand != 3 || m.handPart(a, 100) != 100 || m.handPart(b, 80) != 50 {
		t.Errorf("of 3 in the hand a has %d %%, and b would have %d of 80", m.handPart(a, 100), m.handPart(b, 80))
	}
	m.holds(b, 1)
	m.holds(a, -1)
	if m.weightInHand != 8 || m.handPart(a, 80) != 30 || m.handPart(b, 80) != 50 {
		t.Errorf("of %d in the hand they have %d and %d of 80", m.weightInHand, m.handPart(a, 80), m.handPart(b, 80))
	}
	m.holds(a, -1)
	if m.weightInHand != 5 {
		t.Errorf("without a, %d are in the hand", m.weightInHand)
	}
}

// A channel has its part of what a broker has of all tenants that compete for it.
func TestFlightPart(t *testing.T) {
	m := newMachine(DefaultConfig())
	shareholder(m, "a", 3, 1)
	shareholder(m, "b", 1, 1)
	a, b := m.channelOf("@a x:0"), m.channelOf("@b x:0")
	a.inFlight, b.inFlight = 500, 300
	m.steps++
	if got := m.flightPart(a.outlet); got != 800*3/4*9/8 {
		t.Errorf("the heavier one has %d", got)
	}
	if got := m.flightPart(b.outlet); got != 800/4*9/8 {
		t.Errorf("the lighter one has %d", got)
	}
	a.inFlight, b.inFlight = 64, 64
	m.steps++
	if got := m.flightPart(b.outlet); got != windowMin {
		t.Errorf("where little goes out the lighter one has %d", got)
	}
	a.inFlight, b.inFlight = 500, 300
	m.steps++
	for name, change := range map[string]func(c *channel){
		"is down": func(c *channel) { c.site.down = true }, "is limited": func(c *channel) { c.limit = &limit{} }, "has no more due": func(c *channel) { c.behindIn = nil },
	} {
		before, outlet, site := *b, *b.outlet, *b.site
		change(b)
		m.steps++
		if got := m.flightPart(a.outlet); got != math.MaxInt {
			t.Errorf("beside one that %s it has %d", name, got)
		}
		if got := m.flightPart(b.outlet); got != math.MaxInt {
			t.Errorf("one that %s has %d", name, got)
		}
		*b, *b.outlet, *b.site = before, outlet, site
	}
	b.behindIn = nil
	b.parkedIn.add(&owned{})
	m.steps++
	if got := m.flightPart(a.outlet); got == math.MaxInt {
		t.Error("one whose messages wait parked does not count")
	}
	m.leavePeers(b.outlet)
	if len(a.peers.all) != 1 || m.flightPart(a.outlet) != math.MaxInt {
		t.Errorf("%d channels are left", len(a.peers.all))
	}
}

// The next unpark is of the tenant with the fewest under way for its weight; of equals, of the one that has
// waited longest, and of two that never had one, of the first.
func TestWhoseUnparkIsNext(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Mono: time.Minute}
	want := func(name string) {
		t.Helper()
		if s := m.nextLook(now); s == nil || s.tenant.name != name {
			t.Errorf("next is %+v, want %s", s, name)
		}
	}
	a, b := m.tenantOf("a"), m.tenantOf("b")
	for _, one := range []*tenant{a, b} {
		m.queueFor(&site{tenant: one}, 0)
	}
	want("a")
	a.turn = 1
	want("b")
	b.turn = 2
	want("a")
	a.unparks, b.unparks = 2, 1
	want("b")
	a.weight = 3
	want("a") // 2 of 3 are fewer than 1 of 1
	b.weight = 2
	want("b") // 1 of 2 is fewer than 2 of 3
	a.weight, b.weight, a.unparks, b.unparks = 1, 3, 1, 2
	want("b")
}
