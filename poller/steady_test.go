package poller

import (
	"math/rand/v2"
	"testing"
	"time"
)

// While a channel with steady traffic is down, what is new is sent as the probe, and what comes
// back meanwhile is parked again. It was due, so no more than one comes back at a time.
func TestProbesBesideSteadyTraffic(t *testing.T) {
	for _, slow := range []time.Duration{2 * ms, 20 * ms, 200 * ms} {
		s := newShop(t, 1, nil)
		s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
		s.down = every
		s.add(0, "x:a", 2_000, -ms)
		s.sleep(time.Second)
		type held struct {
			Unpark
			at time.Duration
		}
		var under []held
		most := 0
		s.waits = func(e Effect) bool {
			u, is := e.(Unpark)
			if is {
				under = append(under, held{u, s.now.Mono + slow})
				most = max(most, u.Unpark.Limit)
			}
			return is
		}
		for range 12_000 {
			s.after(ms)
			s.add(0, "x:a", 1, -ms)
			for len(under) > 0 && under[0].at <= s.now.Mono {
				u := under[0]
				under = under[1:]
				s.step(s.unpark(u.Unpark.Unpark))
			}
			s.renew()
		}
		if most > 1 {
			t.Errorf("unparks take %s: up to %d came back as probes, want 1", slow, most)
		}
	}
}
