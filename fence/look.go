package fence

import (
	"slices"
	"time"

	"github.com/postdate/postdate/bucket"
)

// A look reads every lease, but only the partition records that can matter to this node:
//
//   - those of the buckets that it wants and does not own: one may be free, or its owner dead;
//   - those of the buckets that may hang on its own lease, as after an acquisition without an
//     answer: while the lease moves, nobody else can take them;
//   - those of the buckets that a hint names, or whose release failed;
//   - and every checkEvery, those of the buckets that it owns.
//
// In a quiet cluster each node owns what it wants, so a look reads one lease per node and
// nothing else, however often the records are claimed. A look does not rely on news of what
// changed since the last one, so it cannot miss a change: a bucket that is free, or whose owner
// is dead, belongs to some node's share of the ring, and that node reads its record in each
// look until it owns it. A node's claims tell it whether it has lost a bucket. The rare look at
// owned buckets is for claims that write nothing, or do not get through.

// checkEvery is how often a look also reads the records of owned buckets.
const checkEvery = 10 * time.Second

// lookNow brings the next look forward. A look under way may have begun too early, or may not
// read the records concerned, so another one follows it.
func (m *Machine) lookNow(now time.Duration) {
	m.nextLook = min(m.nextLook, now)
	m.hinted = m.looking
}

// misses reports whether a bucket is wanted and not owned.
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

// resolve forgets a loose bucket once its record shows that it does not hang on this node's
// lease and never will: any request that is still on its way names a token that has passed.
func (m *Machine) resolve(p bucket.Partition) {
	if token, loose := m.loose[p.Bucket]; loose && p.Token > token && p.Lease != m.c.Lease {
		delete(m.loose, p.Bucket)
	}
}

// hold notes that a bucket is owned. The bucket stays loose if an acquisition that saw the
// present token may still be on its way.
func (m *Machine) hold(b int, h *held) {
	m.held[b] = h
	if h.token > m.loose[b] {
		delete(m.loose, b)
	}
}

// handBack notes that a bucket is owned and to be given back, without a Gained or Lost.
func (m *Machine) handBack(p bucket.Partition) {
	m.hold(p.Bucket, &held{token: p.Token, draining: true, lost: true})
	m.drained[p.Bucket] = true
}

// drop notes that a bucket is no longer owned.
func (m *Machine) drop(b int) {
	delete(m.held, b)
	delete(m.drained, b)
}
