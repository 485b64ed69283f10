package poller

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// slowUnparks makes a shop's store take a while for each unpark, which is written when it begins
// or, if late, when it is answered. The shop must call answer; most is the largest unpark.
func slowUnparks(s *shop, takes time.Duration, late bool) (answer func(), most *int) {
	type underWay struct {
		effect Unpark
		answer Unparked
		at     time.Duration
	}
	var under []underWay
	most = new(int)
	s.waits = func(e Effect) bool {
		u, is := e.(Unpark)
		if is {
			w := underWay{effect: u, at: s.now.Mono + takes}
			if !late {
				w.answer = s.unpark(u.Unpark)
			}
			under = append(under, w)
			*most = max(*most, u.Unpark.Limit)
		}
		return is
	}
	return func() {
		s.renew()
		for len(under) > 0 && under[0].at <= s.now.Mono {
			w := under[0]
			under = under[1:]
			if late {
				w.answer = s.unpark(w.effect.Unpark)
			}
			s.step(w.answer)
		}
	}, most
}

// While a channel with steady traffic is down, what is new is sent as the probe, and what comes
// back meanwhile is parked again. It was due, so no more than one comes back at a time.
func TestProbesBesideSteadyTraffic(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, takes := range []time.Duration{0, 20 * ms, 200 * ms} {
			s := newShop(t, 1, nil)
			s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
			s.down = every
			s.add(0, "x:a", 2_000, -ms)
			s.sleep(time.Second)
			answer, most := slowUnparks(s, takes, late)
			s.run(12*time.Second, func() { s.add(0, "x:a", 5, -ms) }, answer)
			if *most != 1 {
				t.Errorf("unparks take %s, written late: %v: up to %d came back as probes, want 1", takes, late, *most)
			}
		}
	}
}

// The same after a restart and a clock that was set back, where unparked messages get the time of
// the checkpoint: what is due lies after that, and is not early.
func TestProbesAtTheTimeOfTheCheckpoint(t *testing.T) {
	s := newShop(t, 1, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.down = every
	s.add(0, "x:a", 2_000, -ms)
	s.sleep(time.Second)
	b := s.m.buckets[0]
	b.inherited = bucket.Partition{Checkpoint: s.now.Wall - 10_000, Claimed: bucket.UpTo(s.now.Wall.Add(time.Hour))}
	b.unparkAt = s.now.Wall.Add(time.Hour)
	answer, most := slowUnparks(s, 5*ms, true)
	unparks := s.waits
	s.waits = func(e Effect) bool { return unparks(e) || has[Claim](e) }
	s.run(5*time.Second, answer, func() {
		if s.now.Mono%(200*ms) == 0 {
			s.answerAll()
		}
	})
	if *most != 1 || b.unparkAt > s.now.Wall {
		t.Errorf("up to %d came back as probes, want 1, for %v", *most, b.unparkAt)
	}
}

// Probes grow for as long as all that comes back is early, and begin with one again after that.
func TestTheSizeOfProbes(t *testing.T) {
	b := withParked(t, 4, nil)
	unparks := b.parked("inbox:p", 1)
	for _, want := range []int{1, 2, 4, 8, 1, 2} {
		b.after(b.m.c.ProbeMin)
		unparks = append(unparks, of[Unpark](b.step(fence.Tick{}))...)
		if len(unparks) != 1 || unparks[0].Unpark.Limit != want {
			t.Fatalf("unparked %+v, want one of %d", unparks, want)
		}
		answer := Unparked{Unpark: unparks[0].Unpark, Moved: want, Early: want}
		if want == 8 {
			answer.Early--
		}
		unparks = of[Unpark](b.step(answer))
	}
}

// early is the channel of newEarlyShop.
const early = "http://h.example/a"

// newEarlyShop has three messages parked that are due, behind a thousand that were parked while
// the clock ran an hour ahead, for URLs of one host. The host is up again.
func newEarlyShop(t *testing.T, urls int) *shop {
	const buckets = 8
	s := newShop(t, buckets, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.down = every
	for i := range 1_000 {
		url := postdate.Route(early)
		if n := i % urls; n > 0 {
			url = named("%s/%d", early, n)
		}
		s.put(i%buckets, url, 1, 30*time.Minute)
	}
	s.setClock(time.Hour)
	s.add(0, early, 3, -time.Hour-ms)
	s.sleep(3 * time.Second)
	s.down = nil
	return s
}

// Three that are due come within a minute from behind a thousand that are not, whatever else
// goes on.
func TestProbesOfWhatIsParkedAhead(t *testing.T) {
	const other = "http://h.example/b"
	worlds := map[string]func(s *shop) (each func()){
		"other sites are down": func(s *shop) func() {
			s.down = func(c postdate.Route) bool { return c == "x:down" }
			return func() { s.add(0, "x:down", 1, -ms) }
		},
		"another channel of the site is paused": func(s *shop) func() {
			s.limits(store.ChannelSettings{Route: other, Paused: true})
			return func() { s.add(0, other, 1, -ms) }
		},
		"the channel may have one in flight": func(s *shop) func() {
			s.limits(store.ChannelSettings{Route: early, MaxInFlight: 1})
			return func() {}
		},
		"another channel of the site has a limit": func(s *shop) func() {
			s.limits(store.ChannelSettings{Route: other, MaxInFlight: 1})
			s.add(1, other, 100, 30*time.Minute)
			return func() {}
		},
		"a bucket is lost": func(s *shop) func() {
			at := s.now.Mono + time.Second
			return func() {
				if at != 0 && s.now.Mono >= at {
					s.lose(3)
					at = 0
				}
			}
		},
		"a bucket is out of reach": func(s *shop) func() {
			s.alone, s.broken = true, func(b int) bool { return b == 3 }
			return func() {}
		},
		"others keep the buckets busy": func(s *shop) func() {
			return func() { s.add(s.added%8, "x:up", 1, -ms) }
		},
	}
	for name, world := range worlds {
		for _, urls := range []int{1, 1_000} {
			s := newEarlyShop(t, urls)
			answer, _ := slowUnparks(s, 20*ms, true)
			each := world(s)
			s.now.Wall = s.now.Wall.Add(-time.Hour)
			s.run(time.Minute, each, answer)
			if n := s.arrived[early]; n != 3 {
				t.Errorf("%s, %d URLs: %d of 3 arrived within a minute", name, urls, n)
			}
		}
	}
}
