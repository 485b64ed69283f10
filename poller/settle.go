package poller

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// settling is what became of an item, on its way to the store.
type settling struct {
	item   *Item // nil: it is no longer in hand
	bucket *owned
	as     store.Settlement
}

// queue adds s to the settlements of its bucket's lane.
func (s settling) queue() { s.bucket.lane.settle = append(s.bucket.lane.settle, s) }

// doubt notes that a publish of an item may have arrived, unless the store would have it as delivered then.
func (m *Machine) doubt(it *Item) { it.doubt = it.doubt || !it.channel.delivers }

// asDelivered is the settlement of an item that the broker confirms.
func (m *Machine) asDelivered(now postdate.Now, it *Item) store.Settlement {
	s := store.Settlement{How: store.SettleDelivered, At: m.endsAt(now), Attempts: it.Delivery.Attempt,
		Outcome: postdate.AttemptDelivered, Node: m.c.Node, PossibleDuplicate: it.doubt}
	it.name(&s)
	return s
}

// retry decides what follows a publish that was refused or has an unknown outcome.
func (m *Machine) retry(now postdate.Now, it *Item, r publisher.Result) {
	policy := it.rec.Retry.Or(m.c.Retry)
	s := store.Settlement{At: m.endsAt(now), Attempts: it.Delivery.Attempt, Reason: r.Reason, Node: m.c.Node,
		Outcome: postdate.AttemptUnknown}
	if r.Outcome == publisher.Refused {
		s.Outcome = postdate.AttemptRefused
	}
	switch {
	case r.Permanent || s.Attempts >= policy.MaxAttempts:
		s.How = store.SettleFailed
	case it.rec.Occurrence != 0 && m.c.Fits != nil && !m.c.Fits(it.rec.Tenant, len(it.rec.Payload)):
		s.How = store.SettleFailed
		s.Reason = "it is not retried, because its tenant has no room for it beside the series: " + s.Reason
	default:
		s.How = store.SettleRetry
		s.AttemptTime = now.Wall.Add(max(policy.Backoff(s.Attempts, m.random()), min(r.RetryAfter, policy.MaxBackoff),
			1))
		if it.rec.ExpiresAt != 0 {
			s.AttemptTime = min(s.AttemptTime, max(it.rec.ExpiresAt, now.Wall+1))
		}
	}
	m.settleAs(it, s)
}

// settleAs queues what became of an item. s says how, and the item supplies the rest. For a
// lost bucket only deliveries are written: the next owner has the rest in doubt, and times of
// this node may come from a wrong clock.
func (m *Machine) settleAs(it *Item, s store.Settlement) {
	if it.bucket.lost && s.How != store.SettleDelivered {
		m.drop(it)
		return
	}
	it.stage = stageSettling
	it.channel.settling++
	if it.rec.Parked {
		it.channel.looks--
	}
	it.name(&s)
	if it.rec.Occurrence != 0 {
		s.At = m.endsAt(m.stepped)
	}
	s.PossibleDuplicate = it.doubt
	if s.How == store.SettleFailed {
		s.FailureChannel = it.failureChannel()
	}
	s.Reason = postdate.Cut(s.Reason, postdate.LastErrorBytesMax)
	settling{it, it.bucket, s}.queue()
}

// name fills in what a settlement is for, and the token.
func (it *Item) name(s *store.Settlement) {
	s.Key, s.ExecutionTime, s.Version, s.Token = it.rec.Key, it.rec.ExecutionTime, it.rec.Version, it.bucket.hold.Token
	if s.Occurrence = it.rec.Occurrence; s.Occurrence != 0 {
		it.nameNext(s)
	}
}

// nameNext fills in how a series goes on.
func (it *Item) nameNext(s *store.Settlement) {
	if it.rule != nil && s.How != store.SettlePark && s.How != store.SettleRest && !s.Advances() {
		s.Next = it.following()
	}
}

// settleReady reports whether enough has gathered, or whether it has waited long enough. The
// wait counts from when the last settle began.
func (l *lane) settleReady(now time.Duration, c Config) bool {
	return len(l.settle) >= c.SettleMax/4 || now >= l.settleAt+c.SettleGather
}

// startSettles writes what has gathered.
func (m *Machine) startSettles(now postdate.Now) {
	m.startSettle(now, m.common)
	for _, l := range m.apart {
		m.startSettle(now, l)
	}
}

func (m *Machine) startSettle(now postdate.Now, l *lane) {
	if len(l.settle) == 0 || !mayCall(now.Mono, l.settles, l.settleAt, max(l.nextSettle, l.joinBy)) ||
		!l.settleReady(now.Mono, m.c) {
		return
	}
	n := min(len(l.settle), m.c.SettleMax)
	items := l.settle[:n:n]
	l.settle = append([]settling(nil), l.settle[n:]...) // [:0:0] would keep what is settled
	settlements := make([]store.Settlement, n)
	for i := range settlements {
		settlements[i] = items[i].as
	}
	l.settles++
	l.settleAt = now.Mono
	m.calls++
	m.settlings[m.calls] = &settlingCall{l, now.Mono, items}
	m.emit(Settle{m.calls, settlements})
}

// settled handles the answer to a Settle. After an error the same settlements are written again, because
// settling is idempotent.
func (m *Machine) settled(now postdate.Now, ev Settled) {
	call := m.settlings[ev.Call]
	delete(m.settlings, ev.Call)
	l := call.lane
	l.settles--
	if ev.Err != nil {
		m.settleAgain(now, call)
		return
	}
	for _, s := range call.items {
		m.wrote(s)
	}
	m.succeeded(now, l, call.began)
}

// wrote drops an item whose settlement is written, and sees to what that leaves to do.
func (m *Machine) wrote(s settling) {
	it, b := s.item, s.bucket
	if it != nil {
		if s.as.How == store.SettlePark && !b.lost {
			m.noteParked(it.channel, b)
		}
		m.drop(it)
	}
	if b.lost {
		return
	}
	switch {
	case s.as.How == store.SettleRetry || s.as.How == store.SettlePark:
		m.nudge(b.hold.Bucket, spanOf(s.as.Again()))
	case s.as.Leaves():
		m.nudge(b.hold.Bucket, spanOf(s.as.At))
	}
	if s.as.Advances() && !s.as.Next.Over {
		if it != nil {
			b.arm(it, s.as.Next)
		}
		m.nudge(b.hold.Bucket, spanOf(s.as.Next.AttemptTime))
	}
}

// settleAgain puts back in front what was not written, or not for certain.
func (m *Machine) settleAgain(now postdate.Now, call *settlingCall) {
	l := call.lane
	l.settle = append(call.items, l.settle...)
	var buckets []*owned
	for _, s := range call.items {
		if !slices.Contains(buckets, s.bucket) {
			buckets = append(buckets, s.bucket)
		}
	}
	m.failed(now, l, buckets, func(l *lane) *time.Duration { return &l.nextSettle })
}
