package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// A call may bring half of what there is room for, in messages and in bytes. What is in hand,
// and what unanswered calls may bring, takes up room.
func TestACallMayBringHalfOfTheRoom(t *testing.T) {
	s := newBareShop(t, func(c *Config) {
		c.HandMax, c.HandBytesMax, c.PayloadBytesMax, c.DoubtMax, c.PageMax = 1_000, 1<<20, 1<<10, 1<<20, 1<<20
		c.RetryAfter = time.Hour
	})
	s.gainEmpty(8)
	hand, handBytes, coming, comingBytes := 0, 0, 0, 0
	ask := func(number int) Claim {
		t.Helper()
		call := s.ask(number)
		scan := call.Claims[0].Scan
		messages, bytes := (1_000-hand-coming)/2, (1<<20-handBytes-comingBytes)/2
		if scan.Limit != messages || scan.BytesMax != bytes {
			t.Fatalf("a call may bring %d messages and %d bytes, want %d and %d", scan.Limit, scan.BytesMax, messages, bytes)
		}
		coming += scan.Limit
		comingBytes += scan.BytesMax
		return call
	}
	answered := func(call Claim) {
		coming -= call.Claims[0].Scan.Limit
		comingBytes -= call.Claims[0].Scan.BytesMax
	}
	first, second := ask(0), ask(1)
	due := s.put(0, "x:mute", 40, -ms)
	for i := range due {
		due[i].Payload = make([]byte, 1_000)
	}
	hand, handBytes = 40, 40_000
	s.find(first, due...)
	answered(first)
	ask(2)
	s.loseAnswer(second)
	answered(second)
	third := ask(3)
	s.find(third)
	answered(third)
	ask(4)
}

// Claims of any channel that are under way together bring at most half of what may be in doubt
// of one channel, because all may be of one. This includes claims with an unknown outcome,
// until the next claim of their bucket clears it up.
func TestClaimsOfAnyChannelTogether(t *testing.T) {
	s := newBareShop(t, func(c *Config) { c.DoubtMax = 320 })
	s.gainEmpty(8)
	ask := func(number, want int) Claim {
		t.Helper()
		call := s.ask(number)
		if got := call.Claims[0].Scan.Limit; got != want {
			t.Fatalf("a claim may bring %d messages, want %d", got, want)
		}
		return call
	}
	all := []Claim{ask(0, 80), ask(1, 40), ask(2, 20), ask(3, 10)}
	for _, call := range all {
		s.find(call)
	}
	lost := ask(0, 80)
	s.loseAnswer(lost)
	s.nudge(1, -ms)
	other := s.take()
	if got := other.Claims[0].Scan.Limit; got != 40 {
		t.Errorf("beside a claim that may be written another one may bring %d messages, want 40", got)
	}
	s.find(other)
	s.find(ask(0, 1)) // apart, to see whether it goes through
	s.find(ask(0, 80))
	s.find(ask(1, 80))
}

// Asking for the same again takes no more room than the claim that was lost: what it may have
// claimed counts once.
func TestWhatWasLostCountsOnce(t *testing.T) {
	s := newBareShop(t, func(c *Config) { c.DoubtMax = 320 })
	s.gainEmpty(2)
	one, lost := s.put(0, "x:a", 1, -ms), s.ask(0)
	s.loseAnswer(lost)     // of up to 80 messages, which it may have claimed up to its end
	s.loseAnswer(s.ask(0)) // of one of them
	s.after(retryMax)
	s.step(fence.Tick{})
	again := s.take()
	at := bucket.PositionOf(one[0].Key, one[0].AttemptTime)
	s.step(Claimed{Call: again.Call, Results: []store.ClaimResult{{Due: one, To: at, Ended: at}}}) // there is more
	more := s.take()
	if c := more.Claims[0]; c.Bucket != 0 || c.Scan.Limit != (160-78)/2 {
		t.Fatalf("beside 78 messages that may have been claimed it asks for %+v", c)
	}
	beside := s.ask(1)
	if got := beside.Claims[0].Scan.Limit; got != (160-78)/2 {
		t.Errorf("while that is asked for, another claim may bring %d messages", got)
	}
	s.find(beside)
	s.find(more)
	for len(s.calls) > 0 { // sweeps
		s.find(s.take())
	}
	if s.m.comingOfAny != 0 || len(s.m.buckets[0].unheard) > 0 {
		t.Errorf("%d messages count when all is known, %v", s.m.comingOfAny, s.m.buckets[0].unheard)
	}
}

// What a claim of any channel may have claimed takes no room of a channel for which a smaller claim is lost
// afterwards.
func TestWhatWasLostOfOneChannelCountsApart(t *testing.T) {
	s := newBareShop(t, func(c *Config) { c.DoubtMax = 320 })
	s.hold("x:a")
	s.gainSwept(s.behind("x:a"))
	s.loseAnswer(s.ask(0)) // of up to 80 messages of any channel
	s.limits()
	s.after(retryMax)
	s.m.buckets[0].turn = 1 // next is what is behind
	s.step(fence.Tick{})
	one := s.take()
	if c := one.Claims[0]; c.Only != "x:a" || c.Scan.Limit != 1 {
		t.Fatalf("%+v: this shows nothing", c)
	}
	s.loseAnswer(one)
	c := s.m.channelOf("x:a")
	if c.coming != 0 {
		t.Errorf("%d messages of it count, beside the one that does not", c.coming)
	}
	s.after(retryMax)
	for s.step(fence.Tick{}); len(s.calls) > 0; {
		s.find(s.take())
	}
	if s.m.comingOfAny != 0 || c.coming != 0 {
		t.Errorf("%d messages of any channel count when all is known, and %d of it", s.m.comingOfAny, c.coming)
	}
}

// A call has no more claims than messages may come, because each may bring one.
func TestACallHasNoMoreClaimsThanRoom(t *testing.T) {
	const n = 6
	t.Run("of any channel", func(t *testing.T) {
		s := newBareShop(t, func(c *Config) { c.DoubtMax = 16 }) // room for 4
		s.gain(s.partitions(n)...)
		if call := s.take(); len(call.Claims) != 4 || call.Claims[3].Scan.Limit != 1 {
			t.Errorf("where 4 messages may come: %+v", call)
		}
	})
	t.Run("of one channel", func(t *testing.T) {
		s := newBareShop(t, nil)
		s.gainBehind(n, "x:a")
		s.limits(store.ChannelSettings{Route: "x:a", MaxInFlight: 1}) // room for 2
		call := s.take()
		if in := only(call)["x:a"]; len(in) != 2 || call.Claims[0].Scan.Limit != 1 {
			t.Errorf("where 2 messages may come, a channel catches up in buckets %v", in)
		}
	})
}

// One channel fills at most half of the hand and, if the hand is almost full, no more than any
// other.
func TestTheShareOfAChannel(t *testing.T) {
	small := func(c *Config) { c.HandMax = 64 }
	t.Run("half", func(t *testing.T) {
		s := newBareShop(t, small)
		s.gainEmpty(1)
		s.prove("x:a")
		s.bring("x:a", 40)
		s.wantShare("x:a", 32, 8)
	})
	for _, test := range []struct{ brought, flying int }{{14, 14}, {15, 10}} { // 47 and 48 in hand, of three channels
		t.Run(fmt.Sprint("almost full by ", test.brought), func(t *testing.T) {
			s := newBareShop(t, small)
			s.gainEmpty(1)
			s.prove("x:a", "x:b", "x:c")
			s.bring("x:a", 32)
			s.bring("x:c", 1)
			s.bring("x:b", test.brought)
			s.wantShare("x:b", test.flying, test.brought-test.flying)
		})
	}
	for _, test := range []struct{ coming, flying int }{{0, 8}, {24, 2}} { // of twelve channels
		t.Run(fmt.Sprint("almost full by what comes: ", test.coming), func(t *testing.T) {
			s := newBareShop(t, small)
			s.gainEmpty(2)
			s.prove("x:a", "x:b")
			s.bring("x:a", 6)
			for i := range 10 {
				s.bring(named("x:other-%d", i), 1)
			}
			if test.coming > 0 {
				if got := s.ask(1).Claims[0].Scan.Limit; got != test.coming {
					t.Fatalf("%d messages may come, want %d", got, test.coming)
				}
			}
			s.bring("x:b", 8)
			s.wantShare("x:b", test.flying, 8-test.flying)
		})
	}
	t.Run("a limit", func(t *testing.T) {
		s := newBareShop(t, nil)
		s.limits(store.ChannelSettings{Route: "x:narrow", MaxInFlight: 3})
		s.gainEmpty(1)
		s.prove("x:narrow")
		s.bring("x:narrow", 20)
		s.wantShare("x:narrow", 3, 14)
	})
}

// Sites of a broker that have not answered yet hold a quarter of the hand, none more than it
// may before its first answer, and another quarter with one message each.
func TestTheShareOfSitesThatNeverAnswered(t *testing.T) {
	s := newBareShop(t, func(c *Config) { c.HandMax = 256 })
	s.gainEmpty(1)
	s.bring("x:first", 70)
	s.wantShare("x:first", windowMin, 6)
	s.bring("x:second", 5)
	s.wantShare("x:second", 1, 4)
	for i := range 62 {
		s.bring(named("x:other-%d", i), 1)
	}
	s.bring("x:last", 1)
	s.wantShare("x:last", 1, 0)
	s.bring("x:beyond", 1)
	s.wantShare("x:beyond", 0, 1)
	s.bring("y:other", 1)
	s.wantShare("y:other", 1, 0)
}

// Sites that have not answered may be tried with what all of them leave, or with what their tenant leaves
// of its part, whichever is more.
func TestWhatATenantLeavesOfItsPart(t *testing.T) {
	for _, test := range []struct{ ofAll, ofTenant, want int }{
		{0, 0, windowMin}, {200, 0, windowMin}, {0, 200, windowMin}, {200, 70, 58}, {120, 200, 8}, {256, 256, 0},
	} {
		m := newMachine(DefaultConfig())
		m.c.HandMax = 512
		s := m.channelOf("x:a").site
		m.unproven[s.broker], s.tenant.unproven[s.broker] = test.ofAll, test.ofTenant
		if got := m.unprovenRoom(s); got != test.want {
			t.Errorf("beside %d of all and %d of the tenant there is room for %d, want %d", test.ofAll, test.ofTenant, got, test.want)
		}
	}
}

// A site that has messages in flight and has not answered yet gets more as long as it and the
// others of its broker have room.
func TestMoreForASiteThatHasNotAnswered(t *testing.T) {
	for _, test := range []struct{ others, flying int }{{0, 64}, {40, 24}} {
		s := newBareShop(t, func(c *Config) { c.HandMax = 256 })
		s.gainEmpty(1)
		s.bring("x:first", 10)
		s.bring("x:second", test.others)
		s.bring("x:first", 60)
		s.wantShare("x:first", test.flying, 70-test.flying)
	}
}

// A message parked because its channel has its fill counts as waiting for the channel only if
// that never answered and may be down. Otherwise there is no reason to give it up.
func TestSinceWhenASurplusWaits(t *testing.T) {
	for _, proven := range []bool{false, true} {
		s := newBareShop(t, nil)
		s.limits(store.ChannelSettings{Route: "x:narrow", MaxInFlight: 1})
		s.gainEmpty(1)
		if proven {
			s.prove("x:narrow")
		}
		s.bring("x:narrow", 3)
		last := s.log[len(s.log)-1].settle.Settlements
		parked := last[len(last)-1]
		want := s.now.Wall
		if proven {
			want = 0
		}
		if parked.How != store.SettlePark || parked.DownSince != want {
			t.Errorf("it has answered %t: the surplus is settled as %+v, want it parked since %d", proven, parked, want)
		}
	}
}

// Unsettled messages are in doubt: a channel with as many of them as allowed is left behind,
// even if nothing waits for its broker.
func TestWhatIsNotSettledTakesRoom(t *testing.T) {
	for _, n := range []int{9, 10} {
		s := newBareShop(t, func(c *Config) { c.DoubtMax = 20 })
		s.gainEmpty(1)
		s.waits = storeCalls
		call := s.ask(0)
		s.find(call, s.put(0, "x:a", 5, -ms)...)
		s.bring("x:a", n-5)
		s.replyAll("x:a", refused)
		if _, left := s.ask(0).Claims[0].Behind["x:a"]; left != (n == 10) {
			t.Errorf("with %d messages that are not settled the channel is left behind: %t", n, left)
		}
	}
}
