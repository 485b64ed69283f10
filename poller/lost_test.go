package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// A node whose clock is set far ahead loses its buckets when a renewal shows it, possibly
// before anybody has taken them. What it had with a broker must not be postponed by that clock:
// it would be PENDING for as long as the clock is ahead.
func TestRetryAfterALossByAWrongClock(t *testing.T) {
	for _, outcome := range []publisher.Outcome{publisher.Confirmed, publisher.Refused, publisher.Unknown, publisher.Down} {
		b := newBench(t)
		due := records("inbox:a", 1, b.now.Wall-20)
		due[0].ExpiresAt = b.now.Wall.Add(100 * time.Hour)
		published := of[Publish](b.owned(due))
		if len(published) != 1 {
			t.Fatalf("%d publishes, want 1", len(published))
		}
		b.now.Wall = b.now.Wall.Add(48 * time.Hour)
		b.step(fence.Tick{})
		b.after(ms)
		b.step(fence.Lost{Holds: holds(0)})
		b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
		effects := b.step(Published{Batch: published[0].Batch, Results: []publisher.Result{{Outcome: outcome}}})
		b.after(time.Second)
		settled := of[Settle](append(effects, b.step(fence.Tick{})...))
		if outcome == publisher.Confirmed {
			if len(settled) != 1 || settled[0].Settlements[0].How != store.SettleDelivered {
				t.Errorf("what was confirmed is settled as %+v", settled)
			}
			continue
		}
		if len(settled) != 0 {
			t.Errorf("outcome %d: it is settled as %+v, %s after it was due", outcome, settled, settled[0].Settlements[0].AttemptTime.Sub(due[0].ExecutionTime))
		}
		if v := b.m.View(b.now); v.Hand != 0 {
			t.Errorf("outcome %d: %d messages stay in hand", outcome, v.Hand)
		}
	}
}

// What was confirmed while the clock was behind keeps the date that it got then, even if the
// store could not be reached until the clock was right again: by a date of the wrong clock it
// would be deleted immediately.
func TestTheDateOfADelivery(t *testing.T) {
	b := newBench(t)
	right := b.now.Wall
	b.m.endsAt = func(now postdate.Now) postdate.Time { return max(now.Wall, right) }
	published := of[Publish](b.owned(records("inbox:a", 1, right-20)))
	b.step(fence.Lost{Holds: holds(0)})
	b.now.Wall = right.Add(-48 * time.Hour)
	b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
	effects := b.step(Published{Batch: published[0].Batch, Results: []publisher.Result{confirmed}})
	for range 2 {
		b.after(time.Second)
		settled := of[Settle](append(effects, b.step(fence.Tick{})...))
		if len(settled) != 1 || settled[0].Settlements[0].At != right {
			t.Errorf("it is settled as %+v, want a date of %d", settled, right)
		}
		b.now.Wall = right
		effects = b.step(Settled{settled[0].Call, postdate.E(postdate.KindUnavailable, "no primary")})
	}
}
