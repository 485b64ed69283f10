package fence

import (
	"slices"
	"time"

	"github.com/postdate/postdate/bucket"
)

// A look reads every lease, and of the partition records only those from which
// something can follow for this node:
//
//   - of the buckets that it wants and does not own: one may be free, or its owner
//     dead;
//   - of the buckets of which it does not know whether they hang on its own lease, as
//     after an acquisition without an answer: while the lease moves nobody else can
//     take them;
//   - of the buckets that a hint names, or of which a release failed;
//   - and every checkEvery of those that it owns.
//
// In a quiet cluster each node owns what it wants, so a look reads a lease for each node
// and nothing else, however often the records are claimed. Nothing has to tell what changed
// since the last look, so no change can be missed: a bucket that is free, or whose owner is
// dead, belongs to somebody's share of the ring, and that node reads its record in each
// look until it owns it. Of a bucket that it owns, its claims say whether it is lost. The
// rare look at those is for claims that write nothing, or do not get through.

// checkEvery is how often a look reads what is owned.
const checkEvery = 10 * time.Second

// lookNow brings the next look forward. One that is under way may be older than the
// reason, or not read what it is about: another one follows it.
func (m *Machine) lookNow(now time.Duration) {
	m.nextLook = min(m.nextLook, now)
	m.hinted = m.looking
}

// misses says whether a bucket is wanted and not owned.
func (m *Machine) misses() bool {
	for b := range m.want {
		if m.held[b] == nil {
			return true
		}
	}
	return false
}

// records lists the buckets whose records are to be read now, by number.
func (m *Machine) records(now time.Duration) (buckets []int) {
	check := now >= m.nextCheck
	if check {
		m.nextCheck = now + checkEvery
	}
	for b := range m.want {
		if m.held[b] == nil {
			buckets = append(buckets, b)
		}
	}
	for b := range m.held {
		if check || m.named[b] {
			buckets = append(buckets, b)
		}
	}
	for b := range m.loose {
		buckets = append(buckets, b)
	}
	slices.Sort(buckets)
	return slices.Compact(buckets)
}

// resolve forgets a bucket that was loose, once its record shows that it does not hang
// on the own lease and never will: what may still be on its way there names a token
// that has passed.
func (m *Machine) resolve(p bucket.Partition) {
	if token, loose := m.loose[p.Bucket]; loose && p.Token > token && p.Lease != m.c.Lease {
		delete(m.loose, p.Bucket)
	}
}

// hold notes that a bucket is owned. It stays loose where an acquisition may still be on its
// way that saw the present token.
func (m *Machine) hold(b int, h *held) {
	m.held[b] = h
	if h.token > m.loose[b] {
		delete(m.loose, b)
	}
}

// handBack notes that a bucket is owned and to be given back, and nobody here is told.
func (m *Machine) handBack(p bucket.Partition) {
	m.hold(p.Bucket, &held{token: p.Token, draining: true, lost: true})
	m.drained[p.Bucket] = true
}

// drop notes that a bucket is not owned any more.
func (m *Machine) drop(b int) {
	delete(m.held, b)
	delete(m.drained, b)
}
