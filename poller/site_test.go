package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// held is a shop whose channels answer only when the test has them answer.
func held(buckets int, change func(*Config)) *shop {
	s := newShop(buckets, change)
	s.mute = func(postdate.Channel) bool { return true }
	return s
}

// reply answers the publish that has waited for longest, with one result for all of its
// messages or with one for each.
func (s *shop) reply(results ...publisher.Result) {
	p := s.unanswered[0]
	s.unanswered = s.unanswered[1:]
	s.inFly -= len(p.Batch)
	if len(results) == 1 {
		results = publisher.All(len(p.Batch), results[0])
	}
	s.step(Published{p.Batch, results})
}

// sent counts the messages of a channel that are with its broker.
func (s *shop) sent(c postdate.Channel) (n int) {
	for _, p := range s.unanswered {
		if p.Channel == c {
			n += len(p.Batch)
		}
	}
	return n
}

// tick lets so much time go by at once.
func (s *shop) tick(d time.Duration) {
	s.now = s.now.Later(d)
	s.step(fence.Tick{})
}

// untilSent waits until something is sent.
func (s *shop) untilSent(t *testing.T) {
	t.Helper()
	for range 400 {
		if len(s.unanswered) > 0 {
			return
		}
		s.run(5*time.Millisecond, nil)
	}
	t.Fatal("nothing is sent")
}

// addParked puts a message into the store that waits there for something else than a channel
// that is down, and is to be looked at in a while. state is how it is stored.
func (s *shop) addParked(b int, c postdate.Channel, look time.Duration) (state func() postdate.State) {
	s.added++
	id := fmt.Sprintf("parked-%d", s.added)
	key := postdate.Key{Bucket: b, Tenant: "t", ScheduleID: id}
	m := postdate.Message{Key: key, Channel: c, ExecutionTime: s.now.Wall - 60_000}
	r := postdate.Record{Message: m, State: postdate.NewState(&m, 1)}
	r.Parked, r.AttemptTime = true, s.now.Wall.Add(look)
	s.due[b] = append(s.due[b], r)
	s.sort(b)
	s.step(Nudged{[]Nudge{{b, r.AttemptTime}}})
	return func() postdate.State {
		return s.due[b][slices.IndexFunc(s.due[b], func(r postdate.Record) bool { return r.ScheduleID == id })].State
	}
}

// takeOver has the machine lose bucket 0 and gain it again, when somebody else has parked so
// many messages of x:a in it.
func (s *shop) takeOver(n int) {
	s.step(fence.Lost{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
	for range n {
		s.addParked(0, "x:a", time.Hour)
	}
	begin := s.now.Wall - 20_000
	s.record[0] = bucket.Partition{Owner: "n", Token: 2, Checkpoint: begin, Claimed: bucket.UpTo(s.now.Wall - 1_000)}
	s.step(fence.Gained{Partitions: []bucket.Partition{s.record[0]}})
}

var (
	confirmed = publisher.Result{Outcome: publisher.Confirmed}
	refused   = publisher.Result{Outcome: publisher.Refused, Reason: "no such queue"}
	down      = publisher.Result{Outcome: publisher.Down, Reason: "no such host"}
	unknown   = publisher.Result{Outcome: publisher.Unknown, Reason: "the answer is lost"}
)

// All URLs of a host are down together, and nothing else is.
func TestWhatIsDownTogether(t *testing.T) {
	for _, test := range []struct {
		one, other string
		together   bool
	}{
		{"http://a.example/1", "http://a.example/2", true},
		{"https://a.example/1", "https://a.example/2", true},
		{"https://a.example", "https://a.example/2", true},
		{"https://a.example/1", "https://b.example/1", false},
		{"https://a.example/1", "http://a.example/1", false},
		{"x:a/1", "x:a/2", false},
	} {
		s := held(1, nil)
		s.add(0, test.one, 1, s.now.Wall-1)
		s.reply(down)
		s.add(0, test.other, 1, s.now.Wall-1)
		if together := s.sent(postdate.Channel(test.other)) == 0; together != test.together {
			t.Errorf("%s is down: %s is held back: %t", test.one, test.other, together)
		}
	}
}

// What takes a channel down is its broker's word, or that a whole batch is without an answer
// for five seconds: not one message of many, and not an answer that is unknown at once.
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
		{noAnswer - time.Millisecond, []publisher.Result{unknown}, false},
		{noAnswer, []publisher.Result{unknown}, true},
		{2 * noAnswer, []publisher.Result{unknown, refused}, false},
		{2 * noAnswer, []publisher.Result{confirmed, unknown}, false},
	} {
		s := held(1, func(c *Config) { c.BatchMax = 2 })
		s.add(0, "x:a", 3, s.now.Wall-1) // the third stays with the broker
		s.now = s.now.Later(test.after)
		s.reply(test.results...)
		if is := s.m.View(s.now).Down == 1; is != test.down {
			t.Errorf("answered %v after %s: down %t", test.results, test.after, is)
		}
	}
}

// A channel that is down is tried with one message at a time, first after ProbeMin, and then
// ever more rarely. Chance brings a try forward by up to a quarter.
func TestTheTimesOfProbes(t *testing.T) {
	for _, chance := range []float64{0, 0.5} {
		for _, outcome := range []publisher.Result{down, unknown} {
			s := held(1, nil)
			s.m.random = func() float64 { return chance }
			s.add(0, "x:a", 1, s.now.Wall-1)
			s.reply(down)
			for _, ms := range []time.Duration{250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000} {
				wait := ms*time.Millisecond - time.Duration(chance/4*float64(ms*time.Millisecond))
				s.now = s.now.Later(wait - time.Millisecond)
				if s.add(0, "x:a", 1, s.now.Wall-1); len(s.unanswered) > 0 {
					t.Fatalf("%v: it is tried earlier than %s after the last time", outcome, wait)
				}
				s.now = s.now.Later(time.Millisecond)
				s.add(0, "x:a", 1, s.now.Wall-1)
				s.add(0, "x:a", 1, s.now.Wall-1)
				if s.sent("x:a") != 1 {
					t.Fatalf("%v: %s after the last time it is tried with %d messages", outcome, wait, s.sent("x:a"))
				}
				s.reply(outcome)
			}
		}
	}
}

// The time until the next try grows with each that failed, not with each batch that was
// under way when the channel went down.
func TestBatchesThatFailTogetherAreOneFailure(t *testing.T) {
	for _, outcome := range []publisher.Result{down, unknown} {
		s := held(1, func(c *Config) { c.BatchMax = 1 })
		s.add(0, "x:a", 6, s.now.Wall-1) // one stays with the broker
		s.now = s.now.Later(noAnswer)
		for range 5 {
			s.reply(outcome)
		}
		s.now = s.now.Later(s.m.c.ProbeMin)
		if s.add(0, "x:a", 1, s.now.Wall-1); s.sent("x:a") != 2 {
			t.Errorf("%v: it is not tried: %d are with the broker", outcome, s.sent("x:a"))
		}
	}
}

// A message that was parked for something else waits for its channel from when that was known
// to be down, however often it was tried since; in each outage anew.
func TestSinceWhenAChannelIsDown(t *testing.T) {
	s := held(1, nil)
	for outage := range 2 {
		s.add(0, "x:a", 1, s.now.Wall-1)
		s.reply(down)
		began := s.now.Wall
		for _, wait := range []time.Duration{s.m.c.ProbeMin, 2 * s.m.c.ProbeMin} {
			s.now = s.now.Later(wait)
			s.add(0, "x:a", 1, s.now.Wall-1)
			s.reply(down)
		}
		state := s.addParked(0, "x:a", 20*time.Millisecond)
		s.run(50*time.Millisecond, nil)
		if since := state().DownSince; since != began {
			t.Errorf("outage %d: a message waits since %d, want %d", outage, since, began)
		}
		s.untilSent(t)
		s.reply(confirmed)
		s.mute = func(postdate.Channel) bool { return false }
		s.run(2*time.Second, nil)
		s.mute = func(postdate.Channel) bool { return true }
	}
}

// A node that takes a bucket over with parked messages does not know since when their channel
// is down until it has tried it.
func TestSinceWhenAChannelIsDownAfterATakeOver(t *testing.T) {
	s := held(1, nil)
	s.takeOver(2)
	s.untilSent(t)
	failed := s.now.Wall
	s.reply(down)
	state := s.addParked(0, "x:a", 20*time.Millisecond)
	s.run(50*time.Millisecond, nil)
	if since := state().DownSince; since != failed {
		t.Errorf("a message waits since %d, want %d", since, failed)
	}
}

// A host that answers one of its URLs, even with a refusal, is back for all of them.
func TestAHostIsBackForAllItsURLs(t *testing.T) {
	for _, outcome := range []publisher.Result{confirmed, refused} {
		s := held(1, nil)
		s.add(0, "https://a.example/1", 1, s.now.Wall-1)
		s.reply(down)
		s.add(0, "https://a.example/2", 1, s.now.Wall-1)
		s.run(400*time.Millisecond, nil)
		if len(s.unanswered) != 1 {
			t.Fatalf("%d messages are sent, want one that tries the host", len(s.unanswered))
		}
		tried := s.unanswered[0].Channel
		s.reply(outcome)
		s.run(100*time.Millisecond, nil)
		if len(s.unanswered) != 1 || s.unanswered[0].Channel == tried {
			t.Errorf("%v: the other URL's message is not sent: %v", outcome, s.unanswered)
		}
	}
}

// A parked message that is in hand, to be looked at, is not the one that tries its channel:
// another one is made due for that, and when the look comes, nothing of it is sent.
func TestALookIsNoProbe(t *testing.T) {
	s := held(1, nil)
	s.add(0, "x:a", 1, s.now.Wall-1)
	s.reply(down)
	s.run(20*time.Millisecond, nil)
	s.addParked(0, "x:a", s.m.c.ProbeMin-5*time.Millisecond)
	s.tick(s.m.c.ProbeMin - 45*time.Millisecond)
	s.tick(20 * time.Millisecond)
	unparked := func() (n int) {
		for _, r := range s.due[0] {
			if !r.Parked {
				n++
			}
		}
		return n
	}
	if hand := s.m.View(s.now).Hand; hand != 1 || unparked() != 0 {
		t.Fatalf("%d messages are in hand, %d unparked: the test shows nothing", hand, unparked())
	}
	s.tick(5 * time.Millisecond)
	if unparked() != 1 {
		t.Errorf("%d messages are unparked when the channel is to be tried, want 1", unparked())
	}
	s.tick(15 * time.Millisecond)
	if len(s.unanswered) > 0 {
		t.Errorf("what is parked is sent")
	}
	s.run(100*time.Millisecond, nil)
	if s.sent("x:a") != 1 {
		t.Errorf("the channel is tried with %d messages", s.sent("x:a"))
	}
}

// All URLs of a host fail as one, however they are written.
func TestURLsOfOneHost(t *testing.T) {
	for _, c := range []postdate.Channel{"https://dead.example", "https://dead.example/a/b?c=d", "https://dead.example?a=1", "https://dead.example?a=/b", "https://Dead.Example/a"} {
		if at := siteOf(c); at != "https://dead.example" {
			t.Errorf("%s is taken for one of %s", c, at)
		}
	}
	for _, c := range []postdate.Channel{"http://dead.example/", "https://dead.example:8443/", "https://other.example/", "kafka:dead.example"} {
		if siteOf(c) == "https://dead.example" {
			t.Errorf("%s is taken for one of another site", c)
		}
	}
}
