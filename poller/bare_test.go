package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// newBareShop is a shop that owns nothing yet and whose channels are mute. It answers
// settlements but no claims: a test takes those one at a time, and says what each finds. No
// sweep comes by itself.
func newBareShop(t *testing.T, change func(*Config)) *shop {
	s := openShop(t, func(c *Config) {
		c.SweepEvery, c.SettleGather = time.Hour, 0
		if change != nil {
			change(c)
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
	})
	s.mute = every
	s.waits = func(e Effect) bool { return has[Claim](e) || has[Unpark](e) }
	return s
}

// gainSwept gives the machine buckets with these records, numbered in order, and lets the sweep
// of each find nothing.
func (s *shop) gainSwept(records ...bucket.Partition) {
	s.t.Helper()
	left, first := len(records), len(s.m.buckets)
	for i := range records {
		records[i].Bucket = first + i
	}
	for s.gain(records...); left > 0; {
		call := s.take()
		left -= len(call.Claims)
		s.find(call)
	}
}

// gainEmpty does the same for n buckets of which nothing was ever claimed.
func (s *shop) gainEmpty(n int) {
	s.t.Helper()
	s.gainSwept(make([]bucket.Partition, n)...)
}

// behind is the record of a bucket in which channels are behind: none of their messages of the
// last half second is claimed.
func (s *shop) behind(channels ...postdate.Route) bucket.Partition {
	p := bucket.Partition{
		Checkpoint: s.now.Wall - 1_000, Claimed: bucket.UpTo(s.now.Wall - 10), Behind: map[postdate.Route]bucket.Position{},
	}
	for _, c := range channels {
		p.Behind[c] = bucket.UpTo(s.now.Wall - 500)
	}
	return p
}

// gainBehind gives the machine n more buckets in which a channel that takes nothing is behind, and lets
// something fall due in each of the first n.
func (s *shop) gainBehind(n int, c postdate.Route) {
	s.t.Helper()
	s.hold(c)
	var behind []bucket.Partition
	var due []Nudge
	for b := range n {
		behind = append(behind, s.behind(c))
		due = append(due, Nudge{b, s.now.Wall.Add(time.Second)})
	}
	for s.gainSwept(behind...); len(s.calls) > 0; {
		s.find(s.take())
	}
	s.step(Nudged{due})
	s.after(time.Second)
}

// take takes the only unanswered claim.
func (s *shop) take() Claim {
	s.t.Helper()
	var all []call
	s.calls = slices.DeleteFunc(s.calls, func(c call) bool {
		if claims(c) {
			all = append(all, c)
		}
		return claims(c)
	})
	if len(all) != 1 {
		s.t.Fatalf("%d claims are not answered, want 1: %.1000s", len(all), fmt.Sprintf("%+v", all))
	}
	return *all[0].claim
}

// find answers a claim with these messages.
func (s *shop) find(call Claim, due ...postdate.Record) {
	s.t.Helper()
	ev := Claimed{Call: call.Call}
	for _, c := range call.Claims {
		r := seen(c)
		for _, rec := range due {
			if rec.Bucket == c.Bucket {
				r.Due = append(r.Due, rec)
			}
		}
		if len(r.Due) > c.Scan.Limit {
			s.t.Fatalf("%d messages for a claim of at most %d", len(r.Due), c.Scan.Limit)
		}
		ev.Results = append(ev.Results, r)
	}
	s.step(ev)
}

// ask makes a bucket's claim due a moment later, and returns the claim.
func (s *shop) ask(number int) Claim {
	s.t.Helper()
	s.after(callSlow) // also while another call is under way
	s.nudge(number, -ms)
	return s.take()
}

// bring reads n messages of a channel from bucket 0, by as many claims as it takes.
func (s *shop) bring(channel postdate.Route, n int) {
	s.t.Helper()
	for n > 0 {
		call := s.ask(0)
		some := min(n, call.Claims[0].Scan.Limit)
		s.find(call, s.put(0, channel, some, -ms)...)
		n -= some
	}
}

// prove makes each channel confirm its first message.
func (s *shop) prove(channels ...postdate.Route) {
	s.t.Helper()
	for _, c := range channels {
		s.bring(c, 1)
		s.replyAll(c, confirmed)
	}
}

// wantShare expects that this many messages of a channel are with its broker, and this many
// were parked.
func (s *shop) wantShare(channel postdate.Route, flying, parked int) {
	s.t.Helper()
	if f, p := s.flying(channel), s.parked(channel); f != flying || p != parked {
		s.t.Errorf("%s: %d messages are with its broker and %d were parked, want %d and %d", channel, f, p, flying, parked)
	}
}

// hold sets limits so that no message of these channels goes out, or comes into the hand.
func (s *shop) hold(channels ...postdate.Route) {
	var all []store.ChannelSettings
	for _, c := range channels {
		all = append(all, store.ChannelSettings{Route: c, MaxPerSecond: 1e-6})
	}
	s.limits(all...)
}

// wantForgotten expects that the machine remembers no channels.
func (s *shop) wantForgotten() {
	s.t.Helper()
	s.m.lookForFull(s.now) // the next claim does
	if all := s.m.Channels(); len(all) > 0 || s.channelsBehind() > 0 || len(s.m.crowded) > 0 || len(s.m.peers) > 0 {
		s.t.Errorf("it remembers %+v, %d of them as behind, and %d as crowded", all, s.channelsBehind(), len(s.m.crowded))
	}
}

// channelsBehind counts those that are behind.
func (s *shop) channelsBehind() (n int) {
	for _, t := range s.m.byName {
		n += len(t.behind)
	}
	return n
}

// looked counts the sites that are looked at because of what is parked.
func (s *shop) looked() (n int) {
	for _, t := range s.m.byName {
		n += len(t.returns) + len(t.probes)
	}
	return n
}
