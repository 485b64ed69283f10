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

// Claims that fail hold no memory for ever: neither where all of the store is out of reach
// for a while, nor where a part of it is.
func TestClaimsThatFailLeaveRoom(t *testing.T) {
	for _, test := range []struct {
		buckets, every int
		change         func(*Config)
	}{
		{64, 1, nil},
		{64, 1, func(c *Config) { c.PayloadBytesMax, c.HandBytesMax = 16<<20, 128<<20 }},
		{256, 3, nil},
	} {
		s := newShop(test.buckets, test.change)
		s.run(3*time.Second, nil)
		down, sent := true, 0
		s.broken = func(b int) bool { return down && b%test.every == 0 }
		s.run(2*time.Second, func() {
			s.add(sent%test.buckets, "x:well", 1, s.now.Wall-1)
			sent++
		})
		down = false
		s.run(10*time.Second, nil)
		if got := s.arrived["x:well"]; got != sent {
			t.Errorf("%d buckets: %d of %d messages arrived ten seconds after all is well", test.buckets, got, sent)
		}
	}
}

// A channel that stays behind because of a lost answer stays so through a sweep, whose
// pages do not move what is claimed.
func TestDoubtAfterALostAnswerAndASweep(t *testing.T) {
	s := newShop(1, func(c *Config) { c.DoubtMax = 8 })
	s.mute = func(c postdate.Channel) bool { return c == "x:slow" }
	behind, worst := 0, 0
	s.lost = func(e Claim) bool {
		c := e.Claims[0]
		if len(c.Behind) > 0 {
			behind++
		}
		if behind > 1 && c.Scan.After == (bucket.Position{}) && s.unanswered != nil { // the broker answers during the sweep's first page
			s.answer()
			s.now = s.now.Later(6 * time.Millisecond)
			s.step(fence.Tick{})
		}
		if inDoubt, _ := s.doubt(); s.arrived["x:slow"] <= s.m.c.DoubtMax {
			worst = max(worst, inDoubt["x:slow"])
		}
		return behind == 1 // the first claim that leaves a channel behind is written, and its answer lost
	}
	s.add(0, "x:slow", 500, s.now.Wall+100)
	for behind == 0 {
		s.run(5*time.Millisecond, nil)
	}
	b := s.m.buckets[0]
	b.sweepAt, b.sweeping = s.now.Mono, false // a sweep falls due now
	s.run(200*time.Millisecond, nil)
	if worst > s.m.c.DoubtMax {
		t.Errorf("a crash would mark %d messages of a channel, of which at most %d may be claimed", worst, s.m.c.DoubtMax)
	}
}

// After an orderly hand-over nothing is in doubt, though a backlog waits unclaimed: nor is
// what is scheduled later for a time that was claimed before.
func TestNoMarksAfterAHandOverWithABacklog(t *testing.T) {
	s := newShop(1, nil)
	s.step(Limits{[]store.ChannelSettings{{Channel: "x:tight", MaxPerSecond: 1}}})
	s.add(0, "x:tight", 700, s.now.Wall+100)
	s.run(5*time.Second, nil)
	s.step(fence.Drain{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
	s.run(3*time.Second, nil)
	if !s.gone[0] || len(s.record[0].Behind) == 0 {
		t.Fatalf("handed over %t: %+v", s.gone[0], s.record[0])
	}
	p := s.record[0]
	p.Token++
	s.record[0] = p
	s.mute = func(postdate.Channel) bool { return true }
	s.step(fence.Gained{Partitions: []bucket.Partition{p}})
	s.add(0, "x:well", 1, p.Claimed.Time-2_000)
	s.run(3*time.Second, nil)
	sent := map[postdate.Channel]int{}
	for _, batch := range s.unanswered {
		for _, it := range batch.Batch {
			if sent[batch.Channel]++; it.Delivery.PossibleDuplicate {
				t.Errorf("%s is marked", it.Delivery.Message.ScheduleID)
			}
		}
	}
	if sent["x:well"] != 1 || sent["x:tight"] == 0 {
		t.Errorf("sent %v", sent)
	}
}

// What is due in a bucket in which nothing is behind does not wait until a channel that
// is behind in very many others has caught up.
func TestCatchingUpKeepsNobodyBack(t *testing.T) {
	const buckets, behindIn = 400, 300
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_900_000_000_000, Mono: time.Minute}
	m.Step(now, fence.LeaseUntil{Mono: 1 << 60, Read: now})
	rows := map[int][]postdate.Record{}
	add := func(b int, c postdate.Channel, id string, at postdate.Time) {
		message := postdate.Message{Key: postdate.Key{Bucket: b, Tenant: "t", ScheduleID: id}, Channel: c, ExecutionTime: at}
		rows[b] = append(rows[b], postdate.Record{Message: message, State: postdate.NewState(&message, 1)})
	}
	var ps []bucket.Partition
	for b := range buckets {
		p := bucket.Partition{Bucket: b, Owner: "n", Token: 1, Checkpoint: now.Wall - 70_000, Claimed: bucket.UpTo(now.Wall - 1000)}
		if b < behindIn {
			p.Behind = map[postdate.Channel]bucket.Position{"x:a": bucket.UpTo(now.Wall - 60_000)}
			for i := range 250 {
				add(b, "x:a", fmt.Sprintf("a%04d", i), now.Wall-50_000)
			}
		}
		ps = append(ps, p)
	}
	effects := m.Step(now, fence.Gained{Partitions: ps})
	var asked, longest time.Duration
	for step := range 60 { // 10 ms each: a round trip of the store
		now = now.Later(10 * time.Millisecond)
		var next []Effect
		if step >= 8 && asked == 0 {
			asked = now.Mono
			add(buckets-1, "x:b", fmt.Sprint("b", step), now.Wall-1)
			next = m.Step(now, Nudged{[]Nudge{{buckets - 1, now.Wall - 1}}})
		}
		for _, e := range effects {
			switch e := e.(type) {
			case Claim:
				ev := Claimed{Call: e.Call}
				for _, c := range e.Claims {
					ev.Results = append(ev.Results, found(rows[c.Bucket], c, 20_000))
				}
				next = append(next, m.Step(now, ev)...)
			case Publish:
				if e.Channel == "x:b" {
					asked = 0
				}
				next = append(next, m.Step(now, Published{e.Batch, publisher.All(len(e.Batch), publisher.Result{Outcome: publisher.Confirmed})})...)
			case Settle:
				for _, s := range e.Settlements {
					rows[s.Key.Bucket] = slices.DeleteFunc(rows[s.Key.Bucket], func(r postdate.Record) bool { return r.Key == s.Key })
				}
				next = append(next, m.Step(now, Settled{Call: e.Call})...)
			case FindParked:
				next = append(next, m.Step(now, ParkedFound{Buckets: e.Buckets})...)
			}
		}
		if asked != 0 {
			longest = max(longest, now.Mono-asked)
		}
		effects = append(next, m.Step(now, fence.Tick{})...)
	}
	if longest > 100*time.Millisecond {
		t.Errorf("it waits for %s", longest)
	}
}

// A machine that owns nothing any more knows of no channel, though an unpark was under way.
func TestNoChannelIsLeft(t *testing.T) {
	b := newBench(t)
	b.owned(nil)
	unparks := of[Unpark](b.step(ParkedFound{Found: []store.ParkedChannel{{Bucket: 0, Channel: "x:a"}}}))
	if len(unparks) != 1 {
		t.Fatalf("%d unparks", len(unparks))
	}
	b.step(fence.Lost{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
	b.step(Unparked{Unpark: unparks[0].Unpark, Moved: 1})
	if len(b.m.channels) > 0 {
		t.Errorf("%d channels are left", len(b.m.channels))
	}
}

// A claim whose answer was lost counts until it is known how far it went: not only until a
// smaller one follows, which shows whether the store is back.
func TestDoubtAfterManyLostAnswers(t *testing.T) {
	s := newShop(6, func(c *Config) { c.DoubtMax = 64 })
	s.mute = func(postdate.Channel) bool { return true }
	s.lost = func(e Claim) bool { return e.Claims[0].Scan.Limit > 1 }
	for b := range 6 {
		s.add(b, "x:slow", 100, s.now.Wall+100)
	}
	worst := 0
	s.run(3*time.Second, func() {
		inDoubt, _ := s.doubt()
		worst = max(worst, inDoubt["x:slow"])
	})
	if worst > s.m.c.DoubtMax {
		t.Errorf("a crash would mark %d messages of a channel, of which at most %d may be claimed", worst, s.m.c.DoubtMax)
	}
	s.lost = nil
	s.run(3*time.Second, nil)
	if s.m.comingOfAny != 0 {
		t.Errorf("%d messages count as claimed when all is well", s.m.comingOfAny)
	}
}
