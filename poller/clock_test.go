package poller

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// setClock sets the wall clock, and lets three seconds pass.
func (s *shop) setClock(by time.Duration) {
	s.now.Wall = s.now.Wall.Add(by)
	s.step(fence.Tick{})
	s.renew()
	s.sleep(3 * time.Second)
}

// After a clock that ran an hour ahead is set back, parked messages do not wait until it shows
// that hour again: neither on the node whose clock it was, nor on one that starts later.
func TestUnparksAfterTheClockWasSetBack(t *testing.T) {
	const stays, restarts, fresh = "stays", "restarts", "restarts, and nothing was ever settled"
	for _, node := range []string{stays, restarts, fresh} {
		s := newShop(t, 1, nil)
		s.down = every
		s.watch = func(e Effect) {
			if u, is := e.(Unpark); is && u.Unpark.At <= 0 {
				t.Errorf("%s: %+v asks for a time before every scan", node, u)
			}
		}
		s.add(0, "x:a", 20, -ms)
		s.setClock(time.Hour)
		record := s.store.Records[0]
		if node != stays {
			s.lose(0)
		}
		s.setClock(-time.Hour)
		if node != stays {
			record.Token++
			if node == fresh {
				record.Checkpoint = 0
			}
			s.gain(record)
		}
		s.sleep(3 * time.Second)
		s.down = nil
		s.sleep(15 * time.Second)
		if s.arrived["x:a"] != 20 {
			t.Errorf("%s: %d of 20 arrived", node, s.arrived["x:a"])
		}
	}
}

// After a crash, messages that come back from parking are not in doubt, because they were never
// sent. So they are not marked, and can be cancelled when they are parked again.
func TestNoMarksAfterTheClockWasSetBack(t *testing.T) {
	s := newShop(t, 1, nil)
	s.limits(store.ChannelSettings{Route: "x:a", Paused: true})
	s.add(0, "x:a", 200, -ms)
	s.sleep(2 * time.Second)
	s.add(0, "x:well", 1, time.Hour)
	s.setClock(time.Hour)
	s.setClock(-time.Hour)
	s.add(0, "x:well", 1, 0) // due while what is claimed lies ahead
	s.sleep(3 * time.Second)
	record := s.store.Records[0]
	s.lose(0)
	record.Token++
	s.gain(record)
	sent := 0
	s.watch = func(e Effect) {
		if p, is := e.(Publish); is {
			for _, it := range p.Batch {
				if sent++; it.Delivery.PossibleDuplicate {
					t.Errorf("%s is marked", it.Delivery.Message.ScheduleID)
				}
			}
		}
	}
	s.down = func(postdate.Route) bool { return sent > 20 }
	s.limits()
	s.sleep(15 * time.Second)
	_, fixed := s.doubt()
	if sent < 20 || s.parked() < 100 || fixed["x:a"] > 0 {
		t.Errorf("%d were sent, %d are parked, and %d cannot be cancelled", sent, s.parked(), fixed["x:a"])
	}
}

// While a clock ran ahead, messages of the next hour seemed due and were parked. When it is set
// back and their channel takes messages again, they wait for their time in the store: they
// leave room for those that are due, and do not serve as probes.
func TestParkedAheadOfTheirTime(t *testing.T) {
	const due = 20
	for _, early := range []int{0, 1, 2_000} {
		for _, paused := range []bool{false, true} {
			s := newShop(t, 1, func(c *Config) { c.DoubtMax = 40 })
			s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
			last := 1
			s.watch = func(e Effect) {
				u, is := e.(Unpark)
				if !is || !s.m.channels["x:a"].site.down {
					return
				}
				if n := u.Unpark.Limit; n > s.m.c.DoubtMax/4 || n > 2*last {
					t.Errorf("%d come back as probes after %d, more than half of what has room, or than twice as many", n, last)
				}
				last = u.Unpark.Limit
			}
			if paused {
				s.limits(store.ChannelSettings{Route: "x:a", Paused: true})
			} else {
				s.down = every
			}
			s.add(0, "x:a", early, 30*time.Minute)
			s.setClock(time.Hour)
			s.add(0, "x:a", due, -time.Hour-ms)
			s.sleep(3 * time.Second)
			s.setClock(-time.Hour)
			s.limits()
			s.down = nil
			for range 60 {
				s.sleep(time.Second)
				s.renew() // else what the rig rounds off its times ends the lease
			}
			if c := s.m.channels["x:a"]; s.arrived["x:a"] != due || s.parked() > 0 || c != nil && c.hand > 0 {
				t.Errorf("%d early ones, paused %v: %d of %d that are due arrived, %d are parked; the channel is %+v", early, paused, s.arrived["x:a"], due, s.parked(), c)
			}
			s.sleep(time.Hour)
			s.renew()
			s.sleep(time.Second)
			if n := s.arrived["x:a"]; n != due+early {
				t.Errorf("%d of %d arrived when all were due", n, due+early)
			}
		}
	}
}

// Such messages use up probes, but other sites that are down get their turn, and within seconds
// all wait for their time.
func TestProbesBesideWhatIsParkedAheadOfItsTime(t *testing.T) {
	const sites = 4
	s := newShop(t, sites, nil)
	s.m.random = rand.New(rand.NewPCG(1, 2)).Float64
	s.down = every
	for i := range sites {
		s.add(i, named("x:early%d", i), 1_500, 30*time.Minute)
	}
	s.add(0, "x:back", 3, -ms)
	s.setClock(time.Hour)
	s.setClock(-time.Hour)
	s.down = func(c postdate.Route) bool { return c != "x:back" }
	for range 15 {
		s.sleep(time.Second)
		s.renew()
	}
	if s.arrived["x:back"] != 3 || s.parked() > 0 {
		t.Errorf("%d of 3 arrived, and %d are parked", s.arrived["x:back"], s.parked())
	}
}
