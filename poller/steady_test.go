package poller

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// slowShop is a shop whose store takes its time.
type slowShop struct {
	*shop
	calls   time.Duration // what claims and settlements take
	unparks time.Duration
	late    bool // an unpark is written when it is answered, and not when it begins

	under []slowUnpark
	most  int // that one unpark asked for
}

type slowUnpark struct {
	effect Unpark
	answer Unparked
	at     time.Duration
}

// newDownShop has messages parked that are due, in a bucket of its own channel, which is down.
func newDownShop(t *testing.T, parked int) *slowShop {
	s := newShop(t, 1, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.down = every
	s.add(0, "x:a", parked, -ms)
	s.sleep(time.Second)
	return &slowShop{shop: s}
}

// newEarlyShop has three messages parked that are due, behind a thousand that were parked while
// the clock ran an hour ahead. The channel is up again.
func newEarlyShop(t *testing.T, c postdate.Channel, buckets int) *slowShop {
	s := newShop(t, buckets, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.down = every
	for b := range buckets {
		s.add(b, c, 1_000/buckets, 30*time.Minute)
	}
	s.setClock(time.Hour)
	s.add(0, c, 3, -time.Hour-ms)
	s.sleep(3 * time.Second)
	s.now.Wall = s.now.Wall.Add(-time.Hour)
	s.down = nil
	return &slowShop{shop: s}
}

// slow makes the store slow from now on.
func (s *slowShop) slow(calls, unparks time.Duration) {
	s.calls, s.unparks = calls, unparks
	s.waits = func(e Effect) bool {
		u, is := e.(Unpark)
		if is {
			slow := slowUnpark{effect: u, at: s.now.Mono + s.unparks}
			if !s.late {
				slow.answer = s.unpark(u.Unpark)
			}
			s.under = append(s.under, slow)
			s.most = max(s.most, u.Unpark.Limit)
		}
		return is || s.calls > 0 && storeCalls(e)
	}
}

// pass lets time pass in steps of 5 ms.
func (s *slowShop) pass(d time.Duration, each func()) {
	for range d / (5 * ms) {
		s.after(5 * ms)
		if each != nil {
			each()
		}
		for s.answer(func(c call) bool { return s.begin.Mono+c.at+s.calls <= s.now.Mono }) {
		}
		for len(s.under) > 0 && s.under[0].at <= s.now.Mono {
			slow := s.under[0]
			s.under = s.under[1:]
			if s.late {
				slow.answer = s.unpark(slow.effect.Unpark)
			}
			s.step(slow.answer)
		}
		s.step(fence.Tick{})
		s.renew()
	}
}

// broughtIn is the bucket of the last probe that was ahead of its time; 0 if there is none.
func (s *slowShop) broughtIn(c *channel) int {
	if c == nil || c.site.broughtIn == nil {
		return 0
	}
	return c.site.broughtIn.hold.Bucket
}

// wantSingleProbes expects that one message came back at a time.
func (s *slowShop) wantSingleProbes(world string) {
	s.t.Helper()
	if s.most != 1 {
		s.t.Errorf("%s: up to %d came back as probes, want 1", world, s.most)
	}
}

// While a channel with steady traffic is down, what is new is sent as the probe, and what comes
// back meanwhile is parked again. It was due, so no more than one comes back at a time.
func TestProbesBesideSteadyTraffic(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, unparks := range []time.Duration{0, 20 * ms, 200 * ms} {
			s := newDownShop(t, 2_000)
			s.late = late
			s.slow(0, unparks)
			s.pass(12*time.Second, func() { s.add(0, "x:a", 5, -ms) })
			s.wantSingleProbes("unparks take " + unparks.String())
		}
	}
}

// The same without new messages: what came back may be read, sent and parked again before its
// unpark is answered.
func TestProbesThatAreReadBeforeTheAnswer(t *testing.T) {
	s := newDownShop(t, 2_000)
	s.slow(0, 200*ms)
	s.pass(20*time.Second, func() { s.add(0, "x:up", 1, -ms) }) // it lets the bucket be read
	s.wantSingleProbes("")
}

// The same where what comes back lies behind what was read while the clock ran ahead.
func TestProbesThatAreReadLate(t *testing.T) {
	s := newShop(t, 1, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.setClock(time.Hour)
	s.add(0, "x:up", 1, -ms)
	s.sleep(time.Second)
	s.now.Wall = s.now.Wall.Add(-time.Hour)
	s.down = func(c postdate.Channel) bool { return c == "x:a" }
	s.add(0, "x:a", 2_000, -ms)
	s.sleep(time.Second)
	slow := &slowShop{shop: s}
	slow.slow(400*ms, 5*ms)
	slow.pass(20*time.Second, nil)
	slow.wantSingleProbes("")
}

// A site goes down while hundreds come back. They were due, so they lead to no larger probes:
// neither where they come next, nor where they are with the broker before their unpark is
// answered, nor where none comes back any more.
func TestProbesAfterManyCameBack(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, muted := range []time.Duration{0, 100 * ms, time.Second} {
			s := newDownShop(t, 20_000)
			s.late = late
			s.slow(0, 100*ms)
			others := func() { s.add(0, "x:up", 1, -ms) } // they let the bucket be read
			s.down = nil
			s.pass(3*time.Second, others)
			isA := func(c postdate.Channel) bool { return c == "x:a" }
			s.mute = isA
			c := s.m.channels["x:a"]
			for end := s.now.Mono + muted; s.now.Mono < end && (len(s.under) == 0 || c.unsent() > 0 || s.flying() < 512); {
				s.pass(5*ms, others)
			}
			s.mute, s.down = nil, isA
			unanswered := s.unanswered
			s.unanswered = nil
			for _, p := range unanswered {
				s.publish(p, down)
			}
			for !c.site.down {
				s.pass(5*ms, others)
			}
			s.most = 0
			s.pass(5*time.Second, others)
			s.wantSingleProbes("they were with the broker for up to " + muted.String())
		}
	}
}

// Three that are due come within a minute from behind a thousand that are not, whatever else
// goes on.
func TestProbesOfWhatIsParkedAhead(t *testing.T) {
	const a, other = "http://h.example/a", "http://h.example/b"
	worlds := map[string]func(s *slowShop) (each func()){
		"other sites are down": func(s *slowShop) func() {
			s.down = func(c postdate.Channel) bool { return c != a }
			s.slow(0, 400*ms)
			return func() { s.add(0, "x:down", 1, -ms) }
		},
		"another channel of the site is paused": func(s *slowShop) func() {
			s.limits(store.ChannelSettings{Channel: other, Paused: true})
			s.slow(0, 5*ms)
			return func() { s.add(0, other, 1, -ms) }
		},
		"what another channel of the site has expires": func(s *slowShop) func() {
			s.slow(0, 5*ms)
			return func() {
				for _, r := range s.put(0, other, 1, -ms) {
					s.change(r.Key, func(r *postdate.Record) { r.ExpiresAt = s.now.Wall })
				}
				s.nudge(0, -ms)
			}
		},
		"claims take longer than a probe waits": func(s *slowShop) func() {
			s.slow(300*ms, 5*ms)
			return nil
		},
		"the store is slow, and others keep it busy": func(s *slowShop) func() {
			s.slow(200*ms, 5*ms)
			return func() { s.add(s.added%8, "x:up", 1, -ms) }
		},
	}
	once := func(s *slowShop, do func(bucket int)) func() {
		return func() {
			c := s.m.channels[a]
			if b := s.broughtIn(c); b > 0 && do != nil && !c.site.read() {
				do(b)
				do = nil
			}
		}
	}
	worlds["the bucket of a probe is lost"] = func(s *slowShop) func() {
		s.slow(100*ms, 5*ms)
		return once(s, func(bucket int) { s.lose(bucket) })
	}
	worlds["the bucket of a probe is out of reach"] = func(s *slowShop) func() {
		s.slow(100*ms, 5*ms)
		s.alone = true
		return once(s, func(bucket int) { s.broken = func(b int) bool { return b == bucket } })
	}
	for name, world := range worlds {
		s := newEarlyShop(t, a, 8)
		s.pass(time.Minute, world(s))
		if n := s.arrived[a]; n != 3 {
			t.Errorf("%s: %d of 3 arrived within a minute", name, n)
		}
	}
}
