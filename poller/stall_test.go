package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// longBucket is one bucket with so many messages of a channel that answers
// nothing that a scan over them takes longer than the pause between two sweeps, and
// behind them one message of another channel.
type longBucket struct{ rows []postdate.Record }

const scannedMax = 20_000

func newLongBucket(n int, end postdate.Time) *longBucket {
	b := &longBucket{}
	for i := range n {
		b.add(fmt.Sprintf("a%07d", i), "x:stuck", end-postdate.Time(n-i))
	}
	b.add("b", "x:free", end+500)
	return b
}

func (b *longBucket) add(id string, c postdate.Channel, at postdate.Time) {
	b.rows = append(b.rows, postdate.Record{
		Message: postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: id}, Channel: c, ExecutionTime: at},
		State:   postdate.State{Status: postdate.Pending, Version: 1, AttemptTime: at},
	})
}

// A backlog that takes longer to pass over than the pause between two sweeps does
// not keep another channel's message from being read.
func TestALongBacklogHidesNoOtherChannel(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_900_000_000_000, Mono: time.Second}
	b := newLongBucket(140_000, now.Wall)
	m.Step(now, fence.LeaseUntil{Mono: time.Hour, Read: now})
	effects := m.Step(now, fence.Gained{Partitions: []bucket.Partition{{Owner: "n", Token: 1}}})
	for end := now.Mono + time.Minute; now.Mono < end; {
		var next []Effect
		claimed := false
		for _, e := range effects {
			switch e := e.(type) {
			case Claim:
				claimed = true
				now = now.Later(400 * time.Millisecond)
				next = append(next, m.Step(now, Claimed{m.claimCall(), []store.ClaimResult{found(b.rows, e.Claims[0], scannedMax)}})...)
			case Publish:
				if e.Channel == "x:free" {
					return
				}
			case FindParked:
				next = append(next, m.Step(now, ParkedFound{e.Buckets, nil, nil})...)
			}
		}
		if !claimed {
			now = now.Later(max(m.Wake(now), time.Millisecond))
			next = append(next, m.Step(now, fence.Tick{})...)
		}
		effects = next
	}
	t.Error("the other channel's message was not published within a minute")
}

// A bucket with a long backlog is handed over within DrainMax, not at the
// backlog's end.
func TestDrainWithABacklog(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_900_000_000_000, Mono: time.Second}
	b := newLongBucket(20_000, now.Wall)
	m.Step(now, fence.LeaseUntil{Mono: time.Hour, Read: now})
	var slow []Publish // in flight
	effects := m.Step(now, fence.Gained{Partitions: []bucket.Partition{{Owner: "n", Token: 1}}})
	for end := now.Mono + time.Minute; now.Mono < end; now = now.Later(50 * time.Millisecond) {
		next := m.Step(now, fence.Tick{})
		if len(slow) > 0 {
			next = append(next, m.Step(now, Published{slow[0].Batch, publisher.All(len(slow[0].Batch), confirmed)})...)
			slow = slow[1:]
			if now.Mono < 2*time.Second { // some are delivered before it is to go
				next = append(next, m.Step(now, fence.Drain{Holds: []store.Hold{{Token: 1}}})...)
			}
		}
		for _, e := range effects {
			switch e := e.(type) {
			case Claim:
				next = append(next, m.Step(now, Claimed{m.claimCall(), []store.ClaimResult{found(b.rows, e.Claims[0], scannedMax)}})...)
			case Publish:
				slow = append(slow, e)
			case Settle:
				next = append(next, m.Step(now, Settled{Call: m.settleCall()})...)
			case FindParked:
				next = append(next, m.Step(now, ParkedFound{e.Buckets, nil, nil})...)
			case fence.Drained:
				if late := now.Mono - 2*time.Second; late > DefaultConfig().DrainMax+2*time.Second {
					t.Errorf("handed over after %s", late)
				}
				if m.hand > 0 {
					t.Errorf("%d messages are still in hand", m.hand)
				}
				return
			}
		}
		effects = next
	}
	t.Error("not handed over")
}

// A steady stream of messages that are due at once does not put off the sweep.
func TestLateMessagesDoNotPutOffTheSweep(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_900_000_000_000, Mono: time.Second}
	m.Step(now, fence.LeaseUntil{Mono: time.Hour, Read: now})
	effects := m.Step(now, fence.Gained{Partitions: []bucket.Partition{{Owner: "n", Token: 1}}})
	sweeps := 0
	for end := now.Mono + 20*time.Second; now.Mono < end; now = now.Later(5 * time.Millisecond) {
		next := m.Step(now, Nudged{[]Nudge{{0, now.Wall - 1}}}) // while the claim is under way, and behind what was read
		for _, e := range effects {
			switch e := e.(type) {
			case Claim:
				scan := e.Claims[0].Scan
				if scan.After == (bucket.Position{}) {
					sweeps++
				}
				next = append(next, m.Step(now, Claimed{m.claimCall(), []store.ClaimResult{seen(e.Claims[0])}})...)
			case FindParked:
				next = append(next, m.Step(now, ParkedFound{e.Buckets, nil, nil})...)
			}
		}
		effects = next
	}
	if sweeps < 5 {
		t.Errorf("%d sweeps in 20 s, want one every %s", sweeps, DefaultConfig().SweepEvery)
	}
}

// A node that slept while it was to hand a bucket over begins nothing new in it when it
// wakes up after the time for that: what it drops then would be passed by the checkpoint.
func TestAHandOverThatIsSleptThrough(t *testing.T) {
	s := newShop(t, 1, nil)
	s.mute = func(c postdate.Channel) bool { return c == "x:mute" }
	s.add(0, "x:mute", 1, -ms)
	s.run(100 * time.Millisecond)
	s.drain(0)
	s.run(time.Second) // it works on for its other channels
	s.after(s.m.c.DrainMax + s.m.c.DrainStep)
	due := s.now.Wall + 30
	s.add(0, "x:well", 1, due.Sub(s.now.Wall))
	for range 100 {
		s.run(5 * time.Millisecond)
		for _, r := range s.rows[0] {
			if r.Channel == "x:well" && s.record[0].Checkpoint >= due {
				t.Fatalf("the checkpoint is %d, beyond a message that is due at %d and not settled", s.record[0].Checkpoint, due)
			}
		}
		s.add(0, "x:well", 1, 35*ms)
	}
	if s.gone[0] == nil {
		t.Error("the bucket is not handed over")
	}
}
