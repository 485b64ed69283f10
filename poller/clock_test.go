package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// A clock ran an hour ahead, and was set back. What is parked does not wait until it comes to
// that hour once more: neither on the node whose clock it was, nor on one that starts later.
func TestUnparksAfterTheClockWasSetBack(t *testing.T) {
	set := func(s *shop, by time.Duration) {
		s.now.Wall = s.now.Wall.Add(by)
		s.step(fence.Tick{})
		s.step(fence.LeaseUntil{Mono: 1 << 60, Read: s.now})
		s.sleep(3 * time.Second)
	}
	const stays, restarts, fresh = "stays", "restarts", "restarts, and nothing was ever settled"
	for _, node := range []string{stays, restarts, fresh} {
		s := newShop(t, 1, nil)
		s.down = every
		s.add(0, "x:a", 20, -ms)
		set(s, time.Hour)
		record := s.record[0]
		if node != stays {
			s.lose(0)
		}
		set(s, -time.Hour)
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

// After a crash what comes back from its parking is not in doubt: it was never sent. So it is
// not marked, and when it is parked again it can be cancelled.
func TestNoMarksAfterTheClockWasSetBack(t *testing.T) {
	s := newShop(t, 1, nil)
	s.limits(store.ChannelSettings{Channel: "x:a", Paused: true})
	s.add(0, "x:a", 200, -ms)
	s.sleep(2 * time.Second)
	s.add(0, "x:well", 1, time.Hour)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		s.now.Wall = s.now.Wall.Add(by)
		s.step(fence.Tick{})
		s.step(fence.LeaseUntil{Mono: 1 << 60, Read: s.now})
		s.sleep(3 * time.Second)
	}
	s.add(0, "x:well", 1, 0) // due while what is claimed lies ahead
	s.sleep(3 * time.Second)
	record := s.record[0]
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
	s.down = func(postdate.Channel) bool { return sent > 20 }
	s.limits()
	s.sleep(15 * time.Second)
	_, fixed := s.doubt()
	if sent < 20 || s.parked() < 100 || fixed["x:a"] > 0 {
		t.Errorf("%d were sent, %d are parked, and %d cannot be cancelled", sent, s.parked(), fixed["x:a"])
	}
}
