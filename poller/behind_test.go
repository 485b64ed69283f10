package poller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// A claim leaves behind channels without room. A bucket's record names no more channels, and no
// more bytes of names, than it may; those that are behind already come first, and then those of tenants
// that have few. Of a tenant with more, all is left behind.
func TestWhatIsLeftBehind(t *testing.T) {
	var many []postdate.Route
	for i := range behindMax + 4 {
		many = append(many, named("x:%02d", i))
	}
	long := func(c string, bytes int) postdate.Route { return postdate.Route("x:" + strings.Repeat(c, bytes-2)) }
	quarter := behindBytesMax / 4
	quarters := []postdate.Route{long("a", quarter), long("b", quarter), long("c", quarter), long("d", quarter), "x:e"}
	already := []postdate.Route{long("a", quarter), long("b", 2*quarter)}
	tooLong, fits := long("c", quarter+1), long("d", quarter)
	all := postdate.AllOf(postdate.DefaultTenant)
	mixed := append(slices.Clone(many), theirs("x:a"), theirs("x:b"))
	var tenants, lists []postdate.Route // more than have a place, and these
	for i := range tenantsBehindMax + 2 {
		name := fmt.Sprintf("t-%02d", i)
		tenants = append(tenants, postdate.RouteOf(name, "x:a"), postdate.RouteOf(name, "x:b"))
		if i < tenantsBehindMax {
			lists = append(lists, postdate.AllOf(name))
		}
	}
	for name, test := range map[string]struct{ already, full, want []postdate.Route }{
		"none":                    {nil, nil, nil},
		"just as many":            {nil, many[:behindMax], many[:behindMax]},
		"too many":                {nil, many, append([]postdate.Route{all}, many[:behindMax]...)},
		"names that are too long": {nil, quarters, append([]postdate.Route{all}, quarters[:4]...)},
		"others are already":      {already, []postdate.Route{tooLong, already[0], fits, "x:e"}, append([]postdate.Route{all}, already...)},
		"of one tenant too many":  {nil, mixed, append([]postdate.Route{all, theirs("x:a"), theirs("x:b")}, many[:behindMax-2]...)},
		"of too many tenants":     {many[:behindMax], tenants, append(lists, many[:behindMax]...)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBareShop(t, nil)
			s.hold(append(test.already, test.full...)...)
			s.gainEmpty(2)
			s.gainSwept(s.behind(test.already...))
			for number, call := range []Claim{s.ask(0), s.ask(1)} { // what is parked again changes nothing
				var due []postdate.Record
				for _, c := range test.full {
					due = append(due, s.put(number, c, 1, -ms)...)
				}
				s.find(call, due...)
			}
			left := s.ask(2).Claims[0].Behind
			if got := slices.Sorted(maps.Keys(left)); !slices.Equal(got, slices.Sorted(slices.Values(test.want))) {
				t.Errorf("%d channels are left behind, want %d: %.200q", len(got), len(test.want), got)
			}
			for _, c := range test.already {
				if left[c] != s.m.buckets[2].inherited.Behind[c] {
					t.Errorf("what is claimed of a channel that is behind goes to %v", left[c])
				}
			}
			tenants := map[string]bool{}
			for _, c := range test.full {
				tenants[c.Tenant()] = true
			}
			if !s.m.looked && len(test.full) > 0 {
				t.Error("it did not look for what has no room")
			}
			if s.m.lookForFull(s.now); len(s.m.full) != len(tenants) {
				t.Errorf("%d tenants have channels without room, want %d", len(s.m.full), len(tenants))
			}
			if len(s.m.crowded) != len(test.full) {
				t.Errorf("%d channels are looked at before each claim, want %d", len(s.m.crowded), len(test.full))
			}
		})
	}
}

// A claim begins beside an overfull channel if that is left behind, or its tenant, or if it claims no more.
// One of all of a tenant names no others.
func TestBesideAnOverfullChannel(t *testing.T) {
	now := postdate.Now{Wall: 1_000, Mono: time.Minute}
	all := postdate.AllOf("acme")
	channels, tenants := map[postdate.Route]bucket.Position{}, map[postdate.Route]bucket.Position{}
	for i := range behindMax {
		channels[named("x:%d", i)] = bucket.UpTo(10)
	}
	for i := range tenantsBehindMax {
		tenants[postdate.AllOf(fmt.Sprint("t-", i))] = bucket.UpTo(10)
	}
	for name, test := range map[string]struct {
		also     map[postdate.Route]bucket.Position // besides channels
		of       string
		to       postdate.Time
		overfull bool
		want     bool
		left     postdate.Time // up to where it says that all of acme is claimed; 0: it says nothing
	}{
		"its tenant is left behind":        {nil, "", 200, true, true, 100},
		"its tenant is behind already":     {map[postdate.Route]bucket.Position{all: bucket.UpTo(50)}, "", 200, true, true, 50},
		"no place is left":                 {tenants, "", 200, true, false, 0},
		"no place, and it is not overfull": {tenants, "", 200, false, true, 0},
		"no place, and nothing is claimed": {tenants, "", 100, true, true, 0},
		"the tenant's claim":               {map[postdate.Route]bucket.Position{all: bucket.UpTo(50)}, "acme", 60, true, false, 50},
		"the tenant's, of nothing more":    {map[postdate.Route]bucket.Position{all: bucket.UpTo(50)}, "acme", 50, true, true, 50},
		"the tenant's, not overfull":       {map[postdate.Route]bucket.Position{all: bucket.UpTo(50)}, "acme", 60, false, true, 50},
	} {
		m := newMachine(DefaultConfig())
		acme, other := m.tenantOf("acme"), m.tenantOf("other")
		c := m.channelOf(theirs("x:new"))
		if test.overfull {
			c.overfullAt = now.Mono - ms
		}
		m.looked, m.full = true, []*tenant{acme}
		acme.full = []*channel{c}
		b := &owned{record: bucket.Partition{Claimed: bucket.UpTo(100), Behind: maps.Clone(channels)}}
		maps.Copy(b.record.Behind, test.also)
		p := poll{bucket: b, claim: store.Claim{Claim: bucket.Claim{To: bucket.UpTo(test.to)}}}
		if test.of != "" {
			p.of = acme
			delete(b.record.Behind, "x:0") // a place for one
			b.record.Behind[theirs("x:else")] = bucket.UpTo(10)
			m.full, other.full, b.overdue = []*tenant{other, acme}, []*channel{m.channelOf("@other x:a")}, []*overdue{{tenant: other}}
		}
		if got := m.leaveBehind(now, &p); got != test.want {
			t.Errorf("%s: it may begin: %t", name, got)
		}
		if at := p.claim.Behind[all]; at != bucket.UpTo(test.left) && (test.left > 0 || at != bucket.Position{}) {
			t.Errorf("%s: all of the tenant is claimed up to %v", name, at)
		}
		if n := len(p.claim.Behind); test.of != "" && n != len(b.record.Behind) {
			t.Errorf("%s: it names %d as behind, and the record %d", name, n, len(b.record.Behind))
		}
	}
}

// However many tenants have channels without room, a claim waits for the last one that is overfull and
// has no place, and for none that follows it.
func TestTheLastOverfullTenant(t *testing.T) {
	now := postdate.Now{Wall: 1_000, Mono: time.Minute}
	for _, test := range []struct {
		before, after int // tenants with a full channel, before and after the one with an overfull channel
		overfull      bool
		want          bool
	}{{40, 0, true, false}, {40, 5, true, false}, {40, 5, false, true}, {10, 40, true, true}, {31, 40, true, true}, {32, 40, true, false}} {
		m := newMachine(DefaultConfig())
		fill := func(tenant string, channels, hand int) {
			for i := range channels {
				c := m.channelOf(postdate.RouteOf(tenant, postdate.Channel(fmt.Sprint("x:", i))))
				c.hand, c.crowded = hand, true
				m.crowded = append(m.crowded, c)
			}
		}
		for i := range test.before {
			fill(fmt.Sprint("before-", i), 1, 200)
		}
		hand := 200
		if test.overfull {
			hand = 10_000
		}
		fill("last", 2, hand)
		for i := range test.after {
			fill(fmt.Sprint("after-", i), 3, 200)
		}
		p := poll{bucket: &owned{record: bucket.Partition{Claimed: bucket.UpTo(100)}}, claim: store.Claim{Claim: bucket.Claim{To: bucket.UpTo(200)}}}
		if got := m.leaveBehind(now, &p); got != test.want || len(m.full) != test.before+1+test.after {
			t.Errorf("%+v: it may begin: %t; %d tenants have something without room", test, got, len(m.full))
		}
	}
}

// BenchmarkLeaveBehind is what a claim costs where very many tenants have a channel without room.
func BenchmarkLeaveBehind(b *testing.B) {
	for _, n := range []int{40, 400, 4_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := newMachine(DefaultConfig())
			for i := range n {
				t := m.tenantOf(fmt.Sprint("t-", i))
				t.full = []*channel{m.channelOf(postdate.RouteOf(t.name, "x:a"))}
				m.full = append(m.full, t)
			}
			m.looked = true
			o := &owned{record: bucket.Partition{Claimed: bucket.UpTo(100)}}
			for b.Loop() {
				p := poll{bucket: o, claim: store.Claim{Claim: bucket.Claim{To: bucket.UpTo(200)}}}
				if !m.leaveBehind(postdate.Now{Wall: 1_000}, &p) || len(p.claim.Behind) != behindMax+tenantsBehindMax {
					b.Fatalf("it leaves %d behind", len(p.claim.Behind))
				}
			}
		})
	}
}

// A channel that has exactly its fill is not left behind: most never have more than that.
func TestJustItsFillIsNotLeftBehind(t *testing.T) {
	for _, n := range []int{2, 3} {
		s := newBareShop(t, nil)
		s.limits(store.ChannelSettings{Route: "x:narrow", MaxInFlight: 1})
		s.gainEmpty(1)
		s.prove("x:narrow")
		s.bring("x:narrow", n)
		if _, left := s.ask(0).Claims[0].Behind["x:narrow"]; left != (n > 2) {
			t.Errorf("with %d messages it is left behind: %t", n, left)
		}
	}
}

// A channel is forgotten once nothing of it is in hand, parked or behind, even if it was
// crowded, or if a bucket was lost while it caught up.
func TestChannelsAreForgotten(t *testing.T) {
	t.Run("it was crowded", func(t *testing.T) {
		s := newBareShop(t, func(c *Config) { c.DoubtMax = 8 })
		s.gainEmpty(1)
		s.prove("x:a")
		s.bring("x:a", 2)
		s.replyAll("x:a", confirmed)
		s.find(s.ask(0))
		s.wantForgotten()
	})
	few := []store.ChannelSettings{{Route: "x:a", MaxInFlight: 2}, {Route: "x:b", MaxInFlight: 2}} // so that it is not crowded
	t.Run("it caught up", func(t *testing.T) {
		s := newBareShop(t, nil)
		s.limits(few...)
		s.gainSwept(s.behind("x:a", "x:b"), s.behind("x:a"))
		for len(s.calls) > 0 {
			s.find(s.take())
		}
		s.wantForgotten()
	})
	t.Run("its bucket was lost", func(t *testing.T) {
		s := newBareShop(t, nil)
		s.hold("x:a", "x:b")
		s.gainSwept(s.behind("x:a", "x:b"), s.behind("x:a"))
		s.lose(0, 1)
		s.wantForgotten()
	})
	t.Run("its bucket was lost while it caught up", func(t *testing.T) {
		s := newBareShop(t, nil)
		s.gainSwept(s.behind("x:a"))
		call := s.take()
		s.lose(0)
		s.find(call)
		s.wantForgotten()
	})
	t.Run("its bucket was lost after a claim without an answer", func(t *testing.T) {
		s := newBareShop(t, nil)
		s.limits(few...)
		s.gainSwept(s.behind("x:a"))
		s.loseAnswer(s.take())
		s.lose(0)
		s.wantForgotten()
	})
}

// A lost bucket affects no others: what is behind there catches up as soon as there is room.
func TestALostBucketLeavesOthersBehind(t *testing.T) {
	s := newBareShop(t, nil)
	s.hold("x:a", "x:b", "x:c")
	s.gainSwept(s.behind("x:a", "x:c"), s.behind("x:a"), s.behind("x:b"), s.behind("x:b"))
	s.lose(0, 2)
	s.limits()
	if got := fmt.Sprint(only(s.take())); got != "map[x:a:[1] x:b:[3]]" {
		t.Errorf("catching up: %s", got)
	}
}

// only lists, by channel, the buckets of a call in which the channel catches up.
func only(call Claim) map[postdate.Route][]int {
	in := map[postdate.Route][]int{}
	for _, c := range call.Claims {
		if c.Only != "" {
			in[c.Only] = append(in[c.Only], c.Bucket)
		}
	}
	return in
}

// A channel that is left behind in a bucket where another already is catches up by itself.
func TestALaterOneCatchesUp(t *testing.T) {
	s := newBareShop(t, nil)
	s.m.random = func() float64 { return 0.9 } // its backlog comes before what is parked of it
	s.hold("x:a", "x:b")
	s.gainSwept(s.behind("x:a"))
	s.find(s.ask(0), s.put(0, "x:b", 1, -ms)...)
	s.find(s.ask(0))
	s.hold("x:a")
	if got := fmt.Sprint(only(s.take())); got != "map[x:b:[0]]" {
		t.Errorf("catching up: %s", got)
	}
}

// When one bucket has caught up, the others go on immediately.
func TestOthersGoOnCatchingUp(t *testing.T) {
	s := newBareShop(t, nil)
	s.gainSwept(s.behind("x:a"), s.behind("x:a"), s.behind("x:a"))
	call := s.take()
	ev := Claimed{Call: call.Call}
	for i, c := range call.Claims {
		r := seen(c)
		if i > 0 { // as where a scan has examined as much as it may
			r.Ended = bucket.Position{Time: c.Scan.After.Time + 100}
			r.To, r.Complete = r.Ended, false
		}
		ev.Results = append(ev.Results, r)
	}
	s.step(ev)
	if got := fmt.Sprint(only(s.take())); got != "map[x:a:[1 2]]" {
		t.Errorf("catching up: %s", got)
	}
}

// A bucket whose calls fail catches up apart from the others.
func TestABucketThatFailsCatchesUpApart(t *testing.T) {
	s := newBareShop(t, nil)
	s.hold("x:a")
	s.gainSwept(s.behind("x:a"), s.behind("x:a"))
	s.loseAnswer(s.ask(0))
	s.limits()
	if call := s.take(); len(call.Claims) != 1 || fmt.Sprint(only(call)) != "map[x:a:[1]]" {
		t.Errorf("catching up beside a bucket whose last call failed: %+v", call)
	}
}

// If an answer is lost while a channel catches up, the same is asked again as soon as a call is
// allowed, even if a settlement shows first that the store answers: what the lost claim may
// have brought takes no room from it.
func TestCatchingUpGoesOnAfterALostAnswer(t *testing.T) {
	for _, settles := range []bool{false, true} {
		s := newBareShop(t, nil)
		s.hold("x:a")
		s.gainSwept(s.behind("x:a"))
		s.bring("x:other", 1)
		s.limits()
		s.loseAnswer(s.take())
		if settles {
			s.replyAll("x:other", confirmed)
		} else {
			s.after(s.m.c.RetryAfter)
			s.step(fence.Tick{})
		}
		if got := fmt.Sprint(only(s.take())); got != "map[x:a:[0]]" {
			t.Errorf("catching up: %s (a settlement shows that the store answers: %t)", got, settles)
		}
	}
}

// A channel that a claim without an answer may have left behind is remembered, although nothing of it is in
// hand: the record names it, and it is looked up by its name.
func TestWhatALostClaimLeftBehindIsRemembered(t *testing.T) {
	s := newBareShop(t, func(c *Config) { c.DoubtMax = 16 })
	s.gainEmpty(2)
	s.bring("x:a", 8)
	lost := s.ask(1)
	if _, left := lost.Claims[0].Behind["x:a"]; !left {
		t.Fatalf("the claim leaves nothing behind: %+v", lost)
	}
	s.loseAnswer(lost)
	s.replyAll("x:a", confirmed)
	if s.m.channels["x:a"] == nil || s.channelsBehind() != 1 {
		t.Error("it is forgotten")
	}
}

// What a claim without an answer may have claimed counts, except for one message, until a later
// claim of its bucket is answered.
func TestALostClaimCountsUntilAnotherOneIsHeardOf(t *testing.T) {
	s := newBareShop(t, nil)
	narrow := func(n int) { s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: n}) }
	narrow(4) // room for 8
	s.gainSwept(s.behind("x:a"))
	s.loseAnswer(s.take())
	s.hold("x:a")
	s.after(s.m.c.RetryAfter)
	s.step(fence.Tick{})
	s.gainSwept(s.behind("x:a"))
	narrow(8) // room for 16
	if len(s.calls) != 2 {
		t.Fatalf("%d claims are not answered, want 2: %+v", len(s.calls), s.calls)
	}
	beside, again := *s.calls[0].claim, *s.calls[1].claim
	if c := beside.Claims[0]; c.Only != "x:a" || c.Bucket != 1 || c.Scan.Limit != 9 {
		t.Errorf("beside a claim that may have brought 8 messages there is %+v", c)
	}
	if c := again.Claims[0]; c.Only != "x:a" || c.Bucket != 0 || c.Scan.Limit != 1 {
		t.Errorf("the one that was lost is followed by %+v", c)
	}
	s.find(beside)
	s.find(again)
	if c := s.m.channelOf("x:a"); c.coming > 0 {
		t.Errorf("%d messages count when all is known", c.coming)
	}
}

// What claims of one channel may bring takes up its room until they are answered; this includes
// claims of other calls.
func TestAChannelCatchesUpWithinItsRoom(t *testing.T) {
	s := newBareShop(t, nil)
	s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 4}) // room for 8
	s.gainSwept(s.behind("x:a"), s.behind("x:a"))
	first := s.take()
	for _, c := range first.Claims {
		if c.Only != "x:a" || c.Scan.Limit != 4 {
			t.Errorf("a claim in which a channel with room for 8 catches up beside another: %+v", c)
		}
	}
	s.after(callSlow)
	s.gainSwept(s.behind("x:a"))
	s.after(callSlow)
	s.step(fence.Tick{})
	if len(s.calls) > 0 {
		t.Fatalf("there is no room for what may come, and there are more claims: %+v", s.calls)
	}
	s.find(first, s.put(0, "x:a", 2, -ms)...)
	if c := s.take().Claims[0]; c.Only != "x:a" || c.Bucket != 2 || c.Scan.Limit != 6 {
		t.Errorf("the next claim is %+v, want one of x:a in bucket 2 that may bring 6 messages", c)
	}
}

// A channel catches up when half of what may wait for its broker has gone out, not earlier: a
// small call costs as much. It does not cut short the wait for others to share a call.
func TestHalfGoesOutBeforeMoreComes(t *testing.T) {
	for _, nudged := range []bool{false, true} {
		s := newBareShop(t, func(c *Config) { c.BatchMax = 1 })
		s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 8})
		s.gainSwept(s.behind("x:a"))
		call := s.take()
		c := call.Claims[0]
		r := seen(c, s.put(0, "x:a", c.Scan.Limit, -ms)...)
		r.Ended = bucket.Position{Time: c.Scan.After.Time + 100}
		r.To, r.Complete = r.Ended, false
		s.step(Claimed{call.Call, []store.ClaimResult{r}})
		if len(s.unanswered) != 8 || c.Scan.Limit != 16 {
			t.Fatalf("%d of %d messages are with the broker, want 8 of 16", len(s.unanswered), c.Scan.Limit)
		}
		s.after(time.Second)
		for range 3 {
			s.reply(confirmed)
			if nudged {
				s.nudge(0, s.m.c.Ahead-s.m.c.Gather/2)
			}
			if len(s.calls) > 0 {
				t.Fatalf("claimed before half has gone out (nudged %t): %+v", nudged, s.calls)
			}
		}
		if nudged {
			continue
		}
		s.reply(confirmed)
		if c := s.take().Claims[0]; c.Only != "x:a" || c.Scan.Limit != 4 {
			t.Errorf("when half has gone out: %+v", c)
		}
	}
}

// If there is room for few buckets, those in which a channel is behind and those in which
// something is due take turns to come first. The former take at most half of the room.
func TestCatchingUpTakesHalfOfTheRoom(t *testing.T) {
	const n, most = 60, 16
	s := newBareShop(t, func(c *Config) { c.PayloadBytesMax, c.HandBytesMax = 1<<10, 2*most<<10 })
	s.m.sweepsMin = n
	s.gainEmpty(n)
	s.gainBehind(n, "x:a")
	s.limits()
	first := 0
	for len(s.calls) > 0 {
		call := s.take()
		behind := len(only(call)["x:a"])
		if behind > most/2 || len(call.Claims) > most {
			t.Fatalf("of %d buckets a channel catches up in %d, want at most %d and %d", len(call.Claims), behind, most, most/2)
		}
		if behind == most/2 && len(call.Claims) == most {
			first++
		}
		s.find(call)
	}
	if first < 2 {
		t.Errorf("%d calls were full, half of them with buckets in which the channel catches up", first)
	}
}

// A call that is filled by one channel's buckets takes no turn from those of the next channel.
func TestBucketsCatchUpInTurn(t *testing.T) {
	const most = 16
	s := newBareShop(t, func(c *Config) { c.PayloadBytesMax, c.HandBytesMax = 1<<10, 2*most<<10 })
	s.hold("x:a", "x:b")
	s.m.sweepsMin = 2 * most // all buckets are swept at once
	var behind []bucket.Partition
	for range most / 2 {
		behind = append(behind, s.behind("x:a"))
	}
	s.gainSwept(append(behind, s.behind("x:b"), s.behind("x:b"), s.behind("x:b"))...)
	s.limits(store.ChannelSettings{Route: "x:b", MaxInFlight: 1}) // room for two
	var turns []int
	for len(s.calls) > 0 {
		call := s.take()
		turns = append(turns, only(call)["x:b"]...)
		s.find(call)
	}
	if !slices.Equal(turns, []int{8, 9, 10}) {
		t.Errorf("a channel catches up in buckets %v, want 8, 9 and 10", turns)
	}
}

// If a channel has no room, another one that is behind in the same bucket catches up.
func TestAnotherOneCatchesUp(t *testing.T) {
	s := newBareShop(t, nil)
	s.hold("x:a", "x:b", "x:c")
	s.gainSwept(s.behind("x:a", "x:b", "x:c"), s.behind("x:a", "x:b", "x:c"))
	s.hold("x:a", "x:b")
	if got := fmt.Sprint(only(s.take())); got != "map[x:c:[0 1]]" {
		t.Errorf("catching up: %s", got)
	}
}

// After the wall clock was set back, what is claimed lies far ahead. A channel that is behind
// is then claimed up to what is due soon, at least a whole Gather at a time.
func TestCatchingUpAfterTheClockWasSetBack(t *testing.T) {
	gather := postdate.Time(DefaultConfig().Gather.Milliseconds())
	soon := func(s *shop) bucket.Position { return bucket.UpTo(s.now.Wall.Add(s.m.c.Ahead)) }
	for _, test := range []struct {
		claimed, lacks postdate.Time // what is claimed beyond soon, and what of it is not of the channel
		want           bool
	}{{10_000, 0, false}, {10_000, gather - 1, false}, {10_000, gather, true}, {0, 1, true}, {0, gather, true}} {
		s := newBareShop(t, nil)
		p := s.behind()
		p.Claimed = bucket.Position{Time: soon(s).Time + test.claimed}
		p.Behind["x:a"] = bucket.Position{Time: soon(s).Time - test.lacks}
		s.gainSwept(p)
		switch {
		case len(s.calls) == 0 && test.want:
			t.Errorf("%+v: it does not catch up", test)
		case len(s.calls) > 0 && (!test.want || s.calls[0].claim.Claims[0].Only != "x:a" || s.calls[0].claim.Claims[0].To != soon(s)):
			t.Errorf("%+v: %+v", test, s.calls)
		}
	}
}

// If a channel also has parked messages, chance decides whether its backlog or the parked ones
// come first. During a pause no parked message can come, and the backlog is parked.
func TestABacklogBesideWhatIsParked(t *testing.T) {
	for _, test := range []struct {
		parked, paused bool
		random         float64
		want           bool
	}{{true, false, 0.49, false}, {true, false, 0.5, true}, {true, true, 0, true}, {false, false, 0, true}} {
		s := newBareShop(t, nil)
		s.m.random = func() float64 { return test.random }
		s.hold("x:a")
		s.gainSwept(s.behind("x:a"))
		if test.parked {
			s.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 0, Route: "x:a"}}})
		}
		s.limits(store.ChannelSettings{Route: "x:a", Paused: test.paused})
		if got := len(s.calls) > 0; got != test.want {
			t.Errorf("%+v: the backlog is claimed: %t", test, got)
		}
	}
}

// The known record of a bucket is changed only in a copy, because claims under way and what
// earlier owners left share its map.
func TestARecordIsNotChanged(t *testing.T) {
	s := newBareShop(t, nil)
	s.hold("x:a", "x:b")
	s.gainEmpty(1)
	s.bring("x:b", 1)
	p := s.behind("x:a")
	p.Bucket = 1
	s.gain(p)
	sweep := s.take()
	if len(sweep.Claims[0].Behind) != 2 {
		t.Fatalf("the claim is %+v, want one that leaves two channels behind", sweep.Claims[0])
	}
	s.loseAnswer(sweep)
	if len(p.Behind) != 1 {
		t.Errorf("the record that was handed in says %v", p.Behind)
	}
}

// A channel that catches up after a claim with an unknown outcome stays behind where it has
// come to, and others stay where they were, because that claim may have gone further.
func TestStillBehindAfterALostAnswer(t *testing.T) {
	s := newBareShop(t, nil)
	s.hold("x:a", "x:b")
	p := s.behind("x:a", "x:b")
	s.gainSwept(p)
	s.find(s.ask(0))
	s.loseAnswer(s.ask(0))
	s.hold("x:b")
	s.after(s.m.c.RetryAfter)
	s.step(fence.Tick{})
	call := s.take()
	c := call.Claims[0]
	if c.Only != "x:a" {
		t.Fatalf("the next claim is %+v, want one in which x:a catches up", c)
	}
	s.find(call)
	behind := map[postdate.Route]bucket.Position{"x:a": c.To, "x:b": p.Behind["x:b"]}
	if next := s.take().Claims[0]; next.Only != "" || !maps.Equal(next.Behind, behind) {
		t.Errorf("then it is %+v, want one of all channels that leaves behind %v", next, behind)
	}
}

// Whichever answers to claims are lost, what is with a broker stays claimed, so that a crash
// leaves it in doubt; and what was left behind comes without a sweep.
func TestCatchingUpWithLostAnswers(t *testing.T) {
	for every := 2; every <= 6; every++ {
		s := newShop(t, 2, func(c *Config) { c.SweepEvery = time.Hour })
		s.m.random = func() float64 { return 0.9 } // what is behind comes before what is parked
		held := []store.ChannelSettings{{Route: "x:a", MaxPerSecond: 1e-6}, {Route: "x:b", MaxPerSecond: 1e-6}}
		s.limits(held...)
		claims, added := 0, 0
		check := func() {
			for _, p := range s.unanswered {
				for _, it := range p.Batch {
					record, at := s.store.Records[it.rec.Bucket], bucket.PositionOf(it.rec.Key, it.rec.AttemptTime)
					if !record.InDoubt(routeOf(p), at) {
						t.Fatalf("%s is with its broker and in no doubt, where every %d. answer is lost: %+v", it.rec.ScheduleID, every, record)
					}
				}
			}
			if added++; added <= 120 && added%4 == 1 {
				for _, c := range []postdate.Route{"x:a", "x:b", "x:other"} {
					s.add(0, c, 1, 20*ms)
					s.add(1, c, 1, 20*ms)
				}
			}
		}
		s.run(300*ms, check)
		s.lost = func(Claim) bool { claims++; return claims%every == 0 }
		s.mute = func(c postdate.Route) bool { return c == "x:a" }
		s.run(100*ms, check)
		s.limits(held[1:]...)
		s.run(200*ms, check)
		s.limits()
		s.run(time.Second, check)
		s.mute, s.lost = nil, nil
		s.confirmAll()
		s.run(2*time.Second, check)
		for _, c := range []postdate.Route{"x:a", "x:b", "x:other"} {
			if s.arrived[c] != 60 {
				t.Errorf("every %d: %d of 60 messages of %s arrived", every, s.arrived[c], c)
			}
		}
	}
}
