package poller

import (
	"fmt"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// few is a shop with room for 64 messages: 16 of them may be with sites of a broker that never
// answered, and 16 more with one message each.
func few(t *testing.T) *shop { return newMuteShop(t, 1, func(c *Config) { c.HandMax = 64 }) }

func host(name string, url int) postdate.Route { return named("https://%s.example/%d", name, url) }

// A host that has answered, even with a refusal, has room next to those that never did. An
// unknown outcome is no answer.
func TestWhatProvesAHost(t *testing.T) {
	for _, test := range []struct {
		said   publisher.Result
		proven bool
	}{{confirmed, true}, {refused, true}, {unknown, false}} {
		s := few(t)
		s.add(0, host("a", 1), 1, -ms)
		s.reply(test.said)
		s.run(10 * ms)
		for i := range 32 {
			s.add(0, host(fmt.Sprint("dead-", i), 1), 1, -ms)
		}
		s.add(0, host("a", 2), 1, -ms)
		if goes := len(s.unanswered) == 33; goes != test.proven {
			t.Errorf("%v: another message to it goes out: %t, with %d others", test.said, goes, len(s.unanswered))
		}
	}
}

// Once a host has answered, its messages in flight take no room from hosts that have not.
func TestAHostThatIsProvenFreesItsRoom(t *testing.T) {
	s := few(t)
	s.add(0, host("a", 1), 8, -ms)
	s.add(0, host("a", 1), 8, -ms)
	s.add(0, host("a", 1), 8, -ms)
	if n := s.flying(host("a", 1)); n != 16 {
		t.Errorf("%d messages are with a host that has not answered, want 16", n)
	}
	s.reply(confirmed)
	s.run(10 * ms)
	s.add(0, host("b", 1), 24, -ms)
	if n := s.flying(host("b", 1)); n != 16 {
		t.Errorf("%d messages are with another host, want 16", n)
	}
}

// A host that leaves a batch without an answer counts, with all its messages in flight, as one
// that never answered, until it answers again.
func TestAHostThatAnswersNoMore(t *testing.T) {
	for _, proven := range []bool{true, false} {
		s := few(t)
		sent := func(name string) int {
			s.add(0, host(name, 1), 1, -ms)
			return s.flying(host(name, 1))
		}
		n := 18 // with each of two URLs
		if proven {
			s.add(0, host("a", 1), 1, -ms)
			s.reply(confirmed)
			s.run(10 * ms)
		} else {
			n = 7
		}
		s.add(0, host("a", 1), 1, -ms)
		for url := range 2 {
			s.add(0, host("a", url), n, -ms)
		}
		if s.flying() != 1+2*n {
			t.Fatalf("%d messages are with a host", s.flying())
		}
		s.after(noAnswer)
		s.reply(unknown)
		if went := sent("b") == 1; went == proven {
			t.Errorf("a host that answered before: %t: beside it another one's message goes out: %t", proven, went)
		}
		s.reply(confirmed)
		if sent("c") != 1 {
			t.Errorf("a host that answered before: %t: after it answered again, another one has no room", proven)
		}
	}
}

// A host that was down is forgotten with the last of its messages: the next one goes out
// immediately.
func TestAHostThatWasDownIsForgotten(t *testing.T) {
	for _, proven := range []bool{true, false} {
		s := newMuteShop(t, 2, nil)
		if proven {
			s.add(0, "x:a", 1, -ms)
			s.reply(confirmed)
			s.run(10 * ms)
		}
		s.add(0, "x:a", 1, -ms)
		s.reply(down)
		s.run(10 * ms)
		s.lose(0)
		s.add(1, "x:a", 1, -ms)
		if s.flying("x:a") != 1 {
			t.Errorf("it answered before: %t: the next message waits", proven)
		}
	}
}

// A host that comes and goes very often takes no place from other remembered hosts, and neither
// do those that never answered.
func TestWhoIsRemembered(t *testing.T) {
	m := newMachine(DefaultConfig())
	come := func(c postdate.Route, proven bool) {
		of := m.channelOf(c)
		of.site.proven = proven
		m.forget(of)
	}
	come(host("once", 1), true)
	for i := range sitesKept {
		come(host("often", 1), true)
		come(host(fmt.Sprint("dead-", i), 1), false)
	}
	if m.sites["https://once.example"] == nil || len(m.sites) != 2 {
		t.Errorf("%d hosts are remembered, one of them %t", len(m.sites), m.sites["https://once.example"] != nil)
	}
}
