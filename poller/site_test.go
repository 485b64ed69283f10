package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/publisher"
)

// addParked stores a message that is parked for a reason other than a channel that is down, and
// that is to be looked at after a while. state returns how it is stored.
func (s *shop) addParked(b int, c postdate.Route, look time.Duration) (state func() postdate.State) {
	key := s.put(b, c, 1, -time.Minute)[0].Key
	s.change(key, func(r *postdate.Record) { r.Parked, r.AttemptTime = true, s.now.Wall.Add(look) })
	s.nudge(b, look)
	return func() postdate.State { return s.row(key).State }
}

// takeOver makes the machine lose bucket 0 and gain it again after somebody else has parked n
// messages of x:a in it.
func (s *shop) takeOver(n int) {
	s.lose(0)
	for range n {
		s.addParked(0, "x:a", time.Hour)
	}
	s.gain(bucket.Partition{Token: 2, Checkpoint: s.now.Wall - 20_000, Claimed: bucket.UpTo(s.now.Wall - 1_000)})
}

// All URLs of a host are down together, and nothing else is.
func TestWhatIsDownTogether(t *testing.T) {
	for _, test := range []struct {
		one, other postdate.Route
		together   bool
	}{
		{"http://a.example/1", "http://a.example/2", true},
		{"https://a.example/1", "https://a.example/2", true},
		{"https://a.example", "https://a.example/2", true},
		{"https://a.example/1", "https://b.example/1", false},
		{"https://a.example/1", "http://a.example/1", false},
		{"x:a/1", "x:a/2", false},
	} {
		s := newMuteShop(t, 1, nil)
		s.add(0, test.one, 1, -ms)
		s.reply(down)
		s.add(0, test.other, 1, -ms)
		if together := s.flying(test.other) == 0; together != test.together {
			t.Errorf("%s is down: %s is held back: %t", test.one, test.other, together)
		}
	}
}

// A channel goes down if its broker says so, or if a whole batch has no answer for five
// seconds; not for one message of many, and not for outcomes that are unknown immediately.
func TestWhatTakesAChannelDown(t *testing.T) {
	for _, test := range []struct {
		after   time.Duration
		results []publisher.Result
		down    bool
	}{
		{0, []publisher.Result{confirmed}, false},
		{0, []publisher.Result{refused}, false},
		{0, []publisher.Result{down}, true},
		{0, []publisher.Result{unknown}, false},
		{noAnswer - ms, []publisher.Result{unknown}, false},
		{noAnswer, []publisher.Result{unknown}, true},
		{2 * noAnswer, []publisher.Result{unknown, refused}, false},
		{2 * noAnswer, []publisher.Result{confirmed, unknown}, false},
	} {
		s := newMuteShop(t, 1, func(c *Config) { c.BatchMax = 2 })
		s.add(0, "x:a", 3, -ms) // the third stays with the broker
		s.after(test.after)
		s.reply(test.results...)
		if is := s.m.View(s.now).Down == 1; is != test.down {
			t.Errorf("answered %v after %s: down %t", test.results, test.after, is)
		}
	}
}

// A channel that is down is tried with one message at a time, first after ProbeMin, and then
// less and less often. Chance brings a try forward by up to a quarter.
func TestTheTimesOfProbes(t *testing.T) {
	for _, chance := range []float64{0, 0.5} {
		for _, outcome := range []publisher.Result{down, unknown} {
			s := newMuteShop(t, 1, nil)
			s.m.random = func() float64 { return chance }
			s.add(0, "x:a", 1, -ms)
			s.reply(down)
			for _, pause := range []time.Duration{250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000} {
				wait := pause*ms - time.Duration(chance/4*float64(pause*ms))
				s.after(wait - ms)
				if s.add(0, "x:a", 1, -ms); len(s.unanswered) > 0 {
					t.Fatalf("%v: it is tried earlier than %s after the last time", outcome, wait)
				}
				s.after(ms)
				s.add(0, "x:a", 1, -ms)
				s.add(0, "x:a", 1, -ms)
				if s.flying("x:a") != 1 {
					t.Fatalf("%v: %s after the last time it is tried with %d messages", outcome, wait, s.flying("x:a"))
				}
				s.reply(outcome)
			}
		}
	}
}

// The time until the next try grows with each try that failed, not with each batch that was
// under way when the channel went down.
func TestBatchesThatFailTogetherAreOneFailure(t *testing.T) {
	for _, outcome := range []publisher.Result{down, unknown} {
		s := newMuteShop(t, 1, func(c *Config) { c.BatchMax = 1 })
		s.add(0, "x:a", 6, -ms) // one stays with the broker
		s.after(noAnswer)
		for range 5 {
			s.reply(outcome)
		}
		s.after(s.m.c.ProbeMin)
		if s.add(0, "x:a", 1, -ms); s.flying("x:a") != 2 {
			t.Errorf("%v: it is not tried: %d are with the broker", outcome, s.flying("x:a"))
		}
	}
}

// A message that was parked for another reason waits for its channel from when that was known
// to be down, however often it was tried since; it starts over with each outage.
func TestSinceWhenAChannelIsDown(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	for outage := range 2 {
		s.add(0, "x:a", 1, -ms)
		s.reply(down)
		began := s.now.Wall
		for _, wait := range []time.Duration{s.m.c.ProbeMin, 2 * s.m.c.ProbeMin} {
			s.after(wait)
			s.add(0, "x:a", 1, -ms)
			s.reply(down)
		}
		state := s.addParked(0, "x:a", 20*ms)
		s.run(50 * ms)
		if since := state().DownSince; since != began {
			t.Errorf("outage %d: a message waits since %d, want %d", outage, since, began)
		}
		s.untilSent()
		s.reply(confirmed)
		s.mute = nil
		s.run(2 * time.Second)
		s.mute = every
	}
}

// A node that takes over a bucket with parked messages does not know since when their channel
// is down until it has tried it.
func TestSinceWhenAChannelIsDownAfterATakeOver(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.takeOver(2)
	s.untilSent()
	failed := s.now.Wall
	s.reply(down)
	state := s.addParked(0, "x:a", 20*ms)
	s.run(50 * ms)
	if since := state().DownSince; since != failed {
		t.Errorf("a message waits since %d, want %d", since, failed)
	}
}

// A host that answers one of its URLs, even with a refusal, is back for all of them.
func TestAHostIsBackForAllItsURLs(t *testing.T) {
	for _, outcome := range []publisher.Result{confirmed, refused} {
		s := newMuteShop(t, 1, nil)
		s.add(0, "https://a.example/1", 1, -ms)
		s.reply(down)
		s.add(0, "https://a.example/2", 1, -ms)
		s.run(400 * ms)
		if len(s.unanswered) != 1 {
			t.Fatalf("%d messages are sent, want one that tries the host", len(s.unanswered))
		}
		tried := s.unanswered[0].Channel
		s.reply(outcome)
		s.run(100 * ms)
		if len(s.unanswered) != 1 || s.unanswered[0].Channel == tried {
			t.Errorf("%v: the other URL's message is not sent: %v", outcome, s.unanswered)
		}
	}
}

// A parked message in hand to be looked at does not serve as its channel's probe: another one
// becomes due for that, and when the look comes, nothing of it is sent.
func TestALookIsNoProbe(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	s.add(0, "x:a", 1, -ms)
	s.reply(down)
	s.run(20 * ms)
	s.addParked(0, "x:a", s.m.c.ProbeMin-5*ms)
	s.tick(s.m.c.ProbeMin - 45*ms)
	s.tick(20 * ms)
	unparked := func() (n int) {
		for _, r := range s.store.Waiting[0] {
			if !r.Parked {
				n++
			}
		}
		return n
	}
	if hand := s.m.View(s.now).Hand; hand != 1 || unparked() != 0 {
		t.Fatalf("%d messages are in hand, %d unparked: the test shows nothing", hand, unparked())
	}
	s.tick(5 * ms)
	if unparked() != 1 {
		t.Errorf("%d messages are unparked when the channel is to be tried, want 1", unparked())
	}
	s.tick(15 * ms)
	if len(s.unanswered) > 0 {
		t.Errorf("what is parked is sent")
	}
	s.run(s.m.c.ProbeMin + 100*ms) // it was parked again, so another one is
	if s.flying("x:a") != 1 {
		t.Errorf("the channel is tried with %d messages", s.flying("x:a"))
	}
}

// A message that is with its broker when the channel goes down is its probe: no other is
// unparked next to it. When the last one was answered, one is.
func TestWhatIsOnItsWayIsTheProbe(t *testing.T) {
	s := newMuteShop(t, 1, func(c *Config) { c.BatchMax = 1 })
	s.add(0, "x:a", 3, -ms)
	for answered := range 3 {
		s.reply(down)
		s.run(time.Second)
		if with := max(2-answered, 1); s.flying("x:a") != with || s.parked("x:a") != 3-with {
			t.Errorf("after %d answers %d messages are with the broker and %d parked, want %d and %d", answered+1, s.flying("x:a"), s.parked("x:a"), with, 3-with)
		}
	}
}

// All URLs of a host fail as one, however they are written.
func TestURLsOfOneHost(t *testing.T) {
	for _, c := range []postdate.Route{"https://dead.example", "https://dead.example/a/b?c=d", "https://dead.example?a=1", "https://dead.example?a=/b", "https://Dead.Example/a"} {
		if at := siteOf(c); at != "https://dead.example" {
			t.Errorf("%s is taken for one of %s", c, at)
		}
	}
	for _, c := range []postdate.Route{"http://dead.example/", "https://dead.example:8443/", "https://other.example/", "kafka:dead.example"} {
		if siteOf(c) == "https://dead.example" {
			t.Errorf("%s is taken for one of another site", c)
		}
	}
}
