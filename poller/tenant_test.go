package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
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
					s.add(b, named("x:%d", i), 2_000/test.channels, -time.Second)
				}
			}
			for b := range 4 {
				s.add(b, theirs("x:0"), 2_000, -time.Second)
			}
			s.serve(40, time.Second) // windows grow
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
				for _, c := range m.peers["x:a"].all {
					m.hasRoom(postdate.Now{}, c)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/tenant")
		})
	}
}
