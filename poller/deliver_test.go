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

func delivers(c *Config) { c.Delivers = true }

// settled is the store's answer to what it delivers and settles.
var settled = publisher.Result{Outcome: publisher.Confirmed, Settled: true}

// What the store delivers and settles in one step goes to it with its settlement, and is settled by its
// answer.
func TestDeliverSettles(t *testing.T) {
	for _, marked := range []bool{false, true} {
		for _, lost := range []bool{false, true} { // while the store delivers
			b := newSleeper(t, delivers)
			m := b.due(0)
			m.PossibleDuplicate = marked
			b.after(time.Second)
			p := of[Publish](b.read(m))
			if len(p) != 1 || len(p[0].Settlements) != 1 {
				t.Fatalf("published as %+v", p)
			}
			s := p[0].Settlements[0]
			if s.Key != m.Key || s.Version != m.Version || s.Token != 1 || s.How != store.SettleDelivered || s.Attempts != 1 ||
				s.Outcome != postdate.AttemptDelivered || s.PossibleDuplicate != marked {
				t.Errorf("settled as %+v", s)
			}
			if lost {
				b.step(fence.Lost{Holds: holds(0)})
			}
			if more := of[Settle](b.step(Published{p[0].Batch, publisher.All(1, settled)})); len(more) > 0 {
				t.Errorf("settled once more: %+v", more)
			}
			b.after(time.Second)
			if more := of[Settle](b.step(fence.Tick{})); len(more) > 0 || b.m.hand != 0 {
				t.Errorf("lost %v: %d messages are in hand, settled as %+v", lost, b.m.hand, more)
			}
		}
	}
}

// Only inboxes are in the store.
func TestOnlyInboxesAreDelivered(t *testing.T) {
	b := newSleeper(t, delivers)
	m := records("rabbitmq:a", 1, b.now.Wall)[0]
	b.after(time.Second)
	effects := b.read(m)
	if p := of[Publish](effects); len(p) != 1 || p[0].Settlements != nil {
		t.Fatalf("published as %+v", p)
	}
	if s := b.onlySettlement(b.outcome(effects, publisher.Result{Outcome: publisher.Confirmed})); s.How != store.SettleDelivered {
		t.Errorf("settled as %+v", s)
	}
}

// An unknown outcome leaves no doubt, nor does a crash: what is PENDING was not delivered. What carries a
// mark keeps it.
func TestDeliverLeavesNoDoubt(t *testing.T) {
	for _, marked := range []bool{false, true} {
		b := newSleeper(t, delivers)
		m := b.due(0)
		m.PossibleDuplicate = marked
		b.after(time.Second)
		s := b.onlySettlement(b.outcome(b.read(m), publisher.Result{Outcome: publisher.Unknown, Reason: "?"}))
		if s.How != store.SettleRetry || s.PossibleDuplicate != marked || s.Outcome != postdate.AttemptUnknown {
			t.Errorf("marked %v: settled as %+v", marked, s)
		}

		b = newSleeper(t, delivers)
		b.gain(1, func(p *bucket.Partition) {
			p.Checkpoint, p.Claimed = b.now.Wall-5000, bucket.UpTo(b.now.Wall+5000)
		})
		m.Bucket = 1
		b.after(time.Second)
		if p := of[Publish](b.read(m)); len(p) != 1 || p[0].Batch[0].Delivery.PossibleDuplicate != marked {
			t.Errorf("after a crash, marked %v: published as %+v", marked, p)
		}
	}
}

// A series goes on from a delivery that is settled.
func TestDeliverGoesOnWithASeries(t *testing.T) {
	b := newSleeper(t, delivers)
	m := b.due(0)
	m.Recurrence = &postdate.Recurrence{Every: time.Minute, Anchor: m.ExecutionTime}
	m.First = m.ExecutionTime
	m.State = postdate.NewState(&m.Message, 1)
	b.after(time.Second)
	p := of[Publish](b.read(m))
	if len(p) != 1 || !p[0].Settlements[0].Advances() {
		t.Fatalf("published as %+v", p)
	}
	next := p[0].Settlements[0].Next
	b.step(Published{p[0].Batch, publisher.All(1, settled)})
	b.after(next.AttemptTime.Sub(b.now.Wall) - 10*time.Millisecond)
	claims := of[Claim](b.step(fence.Tick{}))
	if len(claims) != 1 || claims[0].Claims[0].To.Time < next.AttemptTime {
		t.Errorf("the next occurrence at %v is claimed as %+v", next.AttemptTime, claims)
	}
}

// A stop waits no longer for a store that hangs. What it delivers all the same is settled, and what it does not
// deliver is in no doubt.
func TestDeliverIsAbandoned(t *testing.T) {
	b := newSleeper(t, delivers)
	p := of[Publish](b.read(b.due(-10 * ms)))
	b.step(fence.Drain{Holds: holds(0)})
	var s []Settle
	for range 10 {
		b.after(time.Second)
		s = append(s, of[Settle](b.step(fence.Tick{}))...)
	}
	if len(s) != 1 || len(p) != 1 || s[0].Settlements[0].How != store.SettleRetry || s[0].Settlements[0].PossibleDuplicate {
		t.Fatalf("settled as %+v", s)
	}
	b.step(Published{p[0].Batch, publisher.All(1, settled)})
	b.step(Settled{Call: s[0].Call})
	if b.m.hand != 0 {
		t.Errorf("%d messages are in hand", b.m.hand)
	}
}
