package poller

import (
	"runtime"
	"testing"
	"weak"

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

// One message of a page hangs: the payloads of the others of the page are let go.
func TestAHungMessageKeepsNoPage(t *testing.T) {
	s := newBareShop(t, nil)
	s.gainEmpty(1)
	call := s.ask(0)
	kept := func() weak.Pointer[byte] {
		page := append(s.put(0, "inbox:hangs", 1, -ms), s.put(0, "inbox:flows", 1, -ms)...)
		page[1].Payload = make([]byte, 1<<20)
		s.find(call, page...)
		return weak.Make(&page[1].Payload[0])
	}()
	for _, p := range s.unanswered {
		if routeOf(p) == "inbox:flows" {
			s.publish(p, confirmed)
		}
	}
	s.tick(ms)
	s.tick(ms)
	s.unanswered, s.calls, s.log = nil, nil, nil
	for range 3 {
		runtime.GC()
	}
	if b := s.m.buckets[0]; len(b.hand) != 1 || kept.Value() != nil {
		t.Errorf("%d are in hand, with %d bytes; what is settled is kept: %v", len(b.hand), s.m.handBytes, kept.Value() != nil)
	}
	runtime.KeepAlive(s)
}

// What has gone to a broker is no longer among what is ready, which may be thousands.
func TestWhatIsSentIsNotKeptReady(t *testing.T) {
	s := newSlowShop(t, 1, nil)
	some := records("inbox:a", 3, s.now.Wall-500)
	for i := range some {
		s.m.take(s.now, poll{bucket: s.m.buckets[0]}, &some[i])
	}
	c := s.m.channelOf(some[0].Route())
	ready := c.ready
	s.m.send(s.now, c, 2)
	if len(ready) != 3 || ready[0] != nil || ready[1] != nil || ready[2] == nil || len(c.ready) != 1 {
		t.Errorf("of %v are left %v", ready, c.ready)
	}
}
