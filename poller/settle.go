package poller

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// settling is an item on its way to the store.
type settling struct {
	item *Item
	as   store.Settlement
}

// retry decides what follows a publish that was refused or is unknown.
func (m *Machine) retry(now postdate.Now, it *Item, r publisher.Result) {
	policy := it.rec.Retry.Or(m.c.Retry)
	s := store.Settlement{At: now.Wall, Attempts: it.Delivery.Attempt, Reason: r.Reason}
	if r.Permanent || s.Attempts >= policy.MaxAttempts {
		s.How = store.SettleFailed
	} else {
		s.How = store.SettleRetry
		s.AttemptTime = now.Wall.Add(max(policy.Backoff(s.Attempts, m.random()), min(r.RetryAfter, policy.MaxBackoff), 1))
		if it.rec.ExpiresAt != 0 {
			s.AttemptTime = min(s.AttemptTime, max(it.rec.ExpiresAt, now.Wall+1))
		}
	}
	m.settleAs(it, s)
}

// settleAs queues what became of an item. s says how; the rest is the item's. Of a bucket
// that was lost only deliveries are written: what else became of it is in doubt for the
// next owner, and times of this node may be those of a wrong clock.
func (m *Machine) settleAs(it *Item, s store.Settlement) {
	if it.bucket.lost && s.How != store.SettleDelivered {
		m.drop(it)
		return
	}
	it.stage = stageSettling
	s.Key, s.Version, s.Token = it.rec.Key, it.rec.Version, it.bucket.hold.Token
	s.PossibleDuplicate = it.doubt
	if len(s.Reason) > postdate.LastErrorBytesMax {
		s.Reason = s.Reason[:postdate.LastErrorBytesMax]
	}
	m.settle = append(m.settle, settling{it, s})
}

// settleReady says whether enough has gathered, or has gathered for long enough.
// What has gathered since the last settle began waits from then on.
func (m *Machine) settleReady(now postdate.Now) bool {
	return len(m.settle) >= m.c.SettleMax/4 || now.Mono >= m.settledAt+m.c.SettleGather
}

// startSettle writes what has gathered, when nothing is being written.
func (m *Machine) startSettle(now postdate.Now) {
	if m.settleUnder > 0 || len(m.settle) == 0 || now.Mono < m.nextSettle || !m.settleReady(now) {
		return
	}
	m.settledAt = now.Mono
	m.settleUnder = min(len(m.settle), m.c.SettleMax)
	settlements := make([]store.Settlement, m.settleUnder)
	for i := range settlements {
		settlements[i] = m.settle[i].as
	}
	m.emit(Settle{settlements})
}

// settled lets go of what is written. After an error the same is written again:
// settling is idempotent.
func (m *Machine) settled(now postdate.Now, err error) {
	n := m.settleUnder
	m.settleUnder = 0
	if err != nil {
		m.nextSettle = now.Mono + m.c.RetryAfter
		return
	}
	for _, s := range m.settle[:n] {
		it, b := s.item, s.item.bucket
		if s.as.How == store.SettlePark && !b.lost {
			m.parkedAt(it.channel, b.hold.Bucket)
		}
		m.drop(it)
		if s.as.How == store.SettleRetry && !b.lost {
			m.nudge(b.hold.Bucket, s.as.AttemptTime)
		}
	}
	m.settle = append(m.settle[:0:0], m.settle[n:]...)
}
