package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// A message that is rescheduled while it is not known whether its settlement was
// written is read again once that is known, and the checkpoint does not pass it.
func TestRescheduledWhileTheSettlementIsUnknown(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_900_000_000_000, Mono: time.Second}
	rec := postdate.Record{
		Message: postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: "m"}, Channel: "x:y", ExecutionTime: now.Wall - 10},
		State:   postdate.State{Status: postdate.Pending, Version: 1, AttemptTime: now.Wall - 10},
	}
	claim := func(effects []Effect) store.Claim {
		t.Helper()
		for _, e := range effects {
			if c, ok := e.(Claim); ok {
				return c.Claims[0]
			}
		}
		t.Fatalf("no claim among %+v", effects)
		return store.Claim{}
	}
	answer := func(c store.Claim, due ...postdate.Record) []Effect {
		return m.Step(now, Claimed{m.claimCall(), []store.ClaimResult{seen(c, due...)}})
	}
	m.Step(now, fence.LeaseUntil{Mono: time.Hour, Read: now})
	c := claim(m.Step(now, fence.Gained{Partitions: []bucket.Partition{{Owner: "n", Token: 1, Checkpoint: now.Wall - 100, Claimed: bucket.UpTo(now.Wall - 100)}}}))
	effects := answer(c, rec)
	published := effects[0].(Publish)
	m.Step(now, Published{published.Batch, []publisher.Result{{Outcome: publisher.Refused, Reason: "no"}}})
	now = now.Later(10 * time.Millisecond)
	m.Step(now, fence.Tick{}) // settles
	m.Step(now, Settled{m.settleCall(), postdate.E(postdate.KindUnknown, "lost")})

	// It was written; then the client rescheduled the message, and a scan sees that.
	rec.Version, rec.AttemptTime, rec.ExecutionTime = 2, c.To.Time, c.To.Time
	now = now.Later(50 * time.Millisecond)
	effects = answer(claim(m.Step(now, Nudged{[]Nudge{{0, rec.AttemptTime}}})), rec)

	now = now.Later(DefaultConfig().RetryAfter)
	m.Step(now, fence.Tick{}) // settles again
	c = claim(append(effects, m.Step(now, Settled{Call: m.settleCall()})...))
	if c.Checkpoint >= rec.AttemptTime || !c.Scan.After.Before(bucket.Position{Time: rec.AttemptTime, Tenant: "t", ScheduleID: "m"}) {
		t.Errorf("the next claim has the checkpoint %d and reads from %d, and the message is due at %d", c.Checkpoint, c.Scan.After.Time, rec.AttemptTime)
	}
	for _, e := range answer(c, rec) {
		if p, ok := e.(Publish); ok && p.Batch[0].rec.Version == 2 {
			return
		}
	}
	t.Error("the new version is not published")
}

// A nudge for a millisecond within which a page ended is not taken for one that the
// next page finds.
func TestNudgeWhereAPageEnded(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_900_000_000_000, Mono: time.Second}
	due := bucket.Position{Time: now.Wall - 5, Tenant: "t", ScheduleID: "k"}
	m.Step(now, fence.LeaseUntil{Mono: time.Hour, Read: now})
	m.Step(now, fence.Gained{Partitions: []bucket.Partition{{Owner: "n", Token: 1, Checkpoint: now.Wall - 100, Claimed: bucket.UpTo(now.Wall - 100)}}})
	m.Step(now, Nudged{[]Nudge{{0, due.Time}}})                                                // a message "j" of the same time
	effects := m.Step(now, Claimed{m.claimCall(), []store.ClaimResult{{To: due, Ended: due}}}) // the page is full
	for range 5 {
		for _, e := range effects {
			c, ok := e.(Claim)
			if !ok {
				continue
			}
			if c.Claims[0].Scan.After.Before(bucket.Position{Time: due.Time, Tenant: "t", ScheduleID: "j"}) {
				return
			}
			effects = m.Step(now, Claimed{m.claimCall(), []store.ClaimResult{seen(c.Claims[0])}})
		}
	}
	t.Error("no scan goes back to it before the sweep")
}

// A claim that was given up may take effect after its successor: the store tells it by
// its number, so each claim has one above those of all before, whatever became of them.
func TestClaimsAreNumbered(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_900_000_000_000, Mono: time.Second}
	m.Step(now, fence.LeaseUntil{Mono: time.Hour, Read: now})
	effects := m.Step(now, fence.Gained{Partitions: []bucket.Partition{{Owner: "n", Token: 1, Claims: 7, Checkpoint: now.Wall - 100, Claimed: bucket.UpTo(now.Wall - 100)}}})
	last := uint64(7)
	for i := range 20 {
		for _, e := range effects {
			c, ok := e.(Claim)
			if !ok {
				continue
			}
			if c.Claims[0].Number <= last {
				t.Fatalf("claim number %d follows number %d", c.Claims[0].Number, last)
			}
			last = c.Claims[0].Number
			r := seen(c.Claims[0])
			if i%2 == 0 {
				r = store.ClaimResult{Err: postdate.E(postdate.KindUnknown, "lost")}
			}
			m.Step(now, Claimed{m.claimCall(), []store.ClaimResult{r}})
		}
		now = now.Later(time.Second)
		effects = m.Step(now, Nudged{[]Nudge{{0, now.Wall}}})
	}
	if last < 17 {
		t.Errorf("there were %d claims in 20 seconds: such a run shows nothing", last-7)
	}
}
