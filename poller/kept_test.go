package poller

import (
	"testing"

	"github.com/postdate/postdate"
)

// What is settled is let go at once, with its payload, although a message before it in its bucket hangs: else a
// bucket would keep all that follows, which the bounds of the hand do not count.
func TestWhatIsSettledIsNotKept(t *testing.T) {
	const hangs, flows, rounds, each = "inbox:hangs", "inbox:flows", 20, 50
	s := newShop(t, 1, nil)
	s.mute = func(c postdate.Route) bool { return c == hangs }
	s.add(0, hangs, 1, 0)
	s.run(100 * ms)
	for range rounds {
		s.add(0, flows, each, 0)
		s.run(100 * ms)
	}
	if s.flying() != 1 || s.arrived[flows] != rounds*each {
		t.Fatalf("%d are flying and %d arrived", s.flying(), s.arrived[flows])
	}
	if kept, inHand := s.m.buckets[0].oldest.Len(), s.m.hand; kept != 1 || inHand != 1 {
		t.Errorf("%d messages are kept, and %d are in hand", kept, inHand)
	}
}
