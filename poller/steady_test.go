package poller

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

// slowUnparks lets unparks of a shop take a while. Each is written at once or, if late, when it is
// answered. The returned func answers those whose time has come; most is the largest one.
func slowUnparks(s *shop, takes time.Duration, late bool) (answer func(), most *int) {
	type held struct {
		effect Unpark
		answer Unparked
		at     time.Duration
	}
	var under []held
	most = new(int)
	s.waits = func(e Effect) bool {
		u, is := e.(Unpark)
		if is {
			h := held{effect: u, at: s.now.Mono + takes}
			if !late {
				h.answer = s.unpark(u.Unpark)
			}
			under = append(under, h)
			*most = max(*most, u.Unpark.Limit)
		}
		return is
	}
	return func() {
		for len(under) > 0 && under[0].at <= s.now.Mono {
			h := under[0]
			under = under[1:]
			if late {
				h.answer = s.unpark(h.effect.Unpark)
			}
			s.step(h.answer)
		}
	}, most
}

// While a channel with steady traffic is down, what is new is sent as the probe, and what comes
// back meanwhile is parked again. It was due, so no more than one comes back at a time.
func TestProbesBesideSteadyTraffic(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, takes := range []time.Duration{2 * ms, 20 * ms, 200 * ms} {
			s := newShop(t, 1, nil)
			s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
			s.down = every
			s.add(0, "x:a", 2_000, -ms)
			s.sleep(time.Second)
			answer, most := slowUnparks(s, takes, late)
			for range 12_000 {
				s.after(ms)
				s.add(0, "x:a", 1, -ms)
				answer()
				s.renew()
			}
			if *most > 1 {
				t.Errorf("unparks take %s, written late: %v: up to %d came back as probes, want 1", takes, late, *most)
			}
		}
	}
}

// The same without new messages: what came back may be read, sent and parked again before its
// unpark is answered.
func TestProbesThatAreReadBeforeTheAnswer(t *testing.T) {
	s := newShop(t, 1, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.down = every
	s.add(0, "x:a", 2_000, -ms)
	s.sleep(time.Second)
	answer, most := slowUnparks(s, 200*ms, false)
	for range 4_000 {
		s.after(5 * ms)
		s.add(0, "x:up", 1, -ms) // it lets the bucket be read
		answer()
		s.renew()
	}
	if *most > 1 {
		t.Errorf("up to %d came back as probes, want 1", *most)
	}
}

// What is due on another site that is down says nothing of what is parked ahead of its time.
func TestProbesOfOtherSitesSayNothing(t *testing.T) {
	s := newShop(t, 1, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.down = every
	s.add(0, "x:a", 1_000, 30*time.Minute)
	s.setClock(time.Hour)
	s.add(0, "x:a", 3, -time.Hour-ms)
	s.sleep(3 * time.Second)
	s.down = func(c postdate.Channel) bool { return c != "x:a" }
	answer, _ := slowUnparks(s, 400*ms, true)
	s.now.Wall = s.now.Wall.Add(-time.Hour)
	for range 12_000 {
		s.after(5 * ms)
		s.add(0, "x:down", 1, -ms)
		answer()
		s.renew()
	}
	if n := s.arrived["x:a"]; n != 3 {
		t.Errorf("%d of 3 arrived within a minute", n)
	}
}

// A site goes down while hundreds come back, or when none of them is on its way any more. They
// were due, so they lead to no larger probes.
func TestProbesAfterManyCameBack(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		s := newShop(t, 1, nil)
		s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
		s.down = every
		s.add(0, "x:a", 20_000, -ms)
		s.sleep(time.Second)
		answer, most := slowUnparks(s, 20*ms, true)
		s.down = nil
		run := func(d time.Duration) {
			for range d / ms {
				s.after(ms)
				answer()
				s.renew()
			}
		}
		for *most < 100 {
			run(ms)
		}
		if arrived {
			s.mute = every
			run(time.Second)
			s.mute = nil
			for _, p := range s.unanswered {
				s.publish(p, down)
			}
			s.unanswered = nil
		}
		s.down = every
		for !s.m.channels["x:a"].site.down {
			run(ms)
		}
		*most = 0
		run(5 * time.Second)
		if *most != 1 {
			t.Errorf("after all had arrived: %v: up to %d came back as probes, want 1", arrived, *most)
		}
	}
}
