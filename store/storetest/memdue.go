package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// examinedMax bounds how many messages one claim looks at, including those that it skips, as
// stores do.
const examinedMax = 5000

// Claim implements store.Due.
func (m *Mem) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.ClaimResult, len(claims))
	for i := range claims {
		results[i] = m.claim(&claims[i])
	}
	return results
}

func (m *Mem) claim(c *store.Claim) store.ClaimResult {
	to, err := m.Write(c)
	if err != nil {
		return store.ClaimResult{Err: err}
	}
	return m.Read(c, to)
}

// Write is the first half of a claim: it looks how far the scan goes, and claims that. It
// returns up to where the record then covers the scan: a repeated claim moves nothing. The zero
// Position means that nothing was due and nothing was written.
func (m *Mem) Write(c *store.Claim) (to bucket.Position, err error) {
	claim := c.Claim
	due := false
	if claim.To, due = m.look(c); !due && c.IfDue && claim.To == c.To {
		m.Seen[c.Bucket] = m.Seen[c.Bucket].Latest(c.To)
		return to, nil
	}
	next, err := m.Records[c.Bucket].Claim(claim)
	if err != nil {
		return to, err
	}
	m.Records[c.Bucket] = next
	return claim.To.Earliest(next.ClaimedFor(c.Only)), nil
}

// look returns where the scan ends, and whether it finds something.
func (m *Mem) look(c *store.Claim) (to bucket.Position, due bool) {
	found := 0
	for examined, r := range m.beyond(c.Bucket, c.Scan.After) {
		if c.To.Before(r.at()) {
			break
		}
		if c.Covers(r.Route(), r.at()) {
			found++
		}
		if found == c.Scan.Limit || examined+1 == examinedMax {
			return r.at(), found > 0
		}
	}
	return c.To, found > 0
}

// Read is the second half: the scan, up to a position, and never beyond what the record covers
// when Read is called.
func (m *Mem) Read(c *store.Claim, to bucket.Position) store.ClaimResult {
	result := store.ClaimResult{To: to, Ended: to}
	if to == (bucket.Position{}) { // nothing was written, and nothing is read
		to, result.Ended = c.Scan.After, c.To
	}
	bytes := 0
	for _, r := range m.beyond(c.Bucket, c.Scan.After) {
		at := r.at()
		if to.Before(at) {
			break
		}
		if !c.Covers(r.Route(), at) || m.Records[c.Bucket].ClaimedFor(r.Route()).Before(at) {
			continue
		}
		result.Due = append(result.Due, r.Record)
		bytes += r.Bytes()
		if len(result.Due) >= c.Scan.Limit || bytes >= c.Scan.BytesMax {
			result.Ended = at
			break
		}
	}
	if result.Complete = result.Ended == c.To; result.Complete {
		result.Next = postdate.Far
		if more := m.beyond(c.Bucket, c.To); len(more) > 0 {
			result.Next = more[0].AttemptTime
		}
	}
	return result
}

// Settle implements store.Due.
func (m *Mem) Settle(_ context.Context, settlements []store.Settlement) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range settlements {
		if old := m.Settles(&settlements[i]); old != nil {
			m.settle(old, &settlements[i])
		}
	}
	return nil
}

// Settles returns the row that a settlement changes; nil: it changes none.
func (m *Mem) Settles(s *store.Settlement) *Row {
	old := m.Rows[s.Key]
	if old == nil || old.Status != postdate.Pending || old.Version != s.Version || old.Occurrence != s.Occurrence {
		return nil
	}
	if s.How != store.SettleDelivered && !m.Records[s.Key.Bucket].Holds(s.Token) {
		return nil
	}
	return old
}

func (m *Mem) settle(old *Row, s *store.Settlement) {
	if left, ok := s.Failed(&old.Record); ok && m.Rows[left.Key] == nil {
		m.Put("settle", nil, left, s)
	}
	if state, ok := s.Alone(old.State); ok {
		alone := postdate.Record{Message: old.Alone(old.Occurrence), State: state, Log: s.AloneLog()}
		if m.Rows[alone.Key] == nil {
			m.Put("settle", nil, alone, s)
		}
	}
	next := old.Record
	next.State, next.Series, next.Log = s.State(old.State), s.Series(old.State, old.Series), s.Log(old.Log)
	m.Put("settle", old, next, s)
	key, is := s.Key.OfSeries()
	first := s.How == store.SettleFailed && !old.Redriven
	if series := m.Rows[key]; is && first && series != nil && series.Owns(s.Version) {
		next := series.Record
		next.Series.Failed++
		m.Put("settle", series, next, s)
	}
}

// Unpark implements store.Due.
func (m *Mem) Unpark(_ context.Context, u store.Unpark) (found, early int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.Records[u.Bucket].Holds(u.Token) {
		return 0, 0, bucket.ErrFenced(u.Bucket)
	}
	for _, r := range slices.Clone(m.Shelved[u.Bucket]) {
		if r.Route() == u.Route && found < u.Limit {
			next := r.Record
			next.Parked, next.AttemptTime = false, max(u.At, r.NotBefore())
			m.Put("unpark", r, next, nil)
			found++
			if r.NotBefore() > u.At {
				early++
			}
		}
	}
	return found, early, nil
}

// Parked implements store.Due.
func (m *Mem) Parked(_ context.Context, buckets []int) ([]store.ParkedRoute, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []store.ParkedRoute
	for _, b := range buckets {
		for _, r := range m.Shelved[b] {
			if pc := (store.ParkedRoute{Bucket: b, Route: r.Route()}); !slices.Contains(found, pc) {
				found = append(found, pc)
			}
		}
	}
	return found, nil
}

// Look implements store.Partitions.
func (m *Mem) Look(_ context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	records := make([]bucket.Partition, len(buckets))
	for i, b := range buckets {
		records[i] = m.Records[b]
	}
	return records, slices.Clone(m.leases), nil
}

// Acquire implements store.Partitions.
func (m *Mem) Acquire(_ context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Acquired, len(wants))
	for i, w := range wants {
		next, ok := m.Records[w.Bucket].Acquire(w.SeenToken, w.Owner, w.Lease)
		m.Records[w.Bucket] = next
		results[i] = store.Acquired{Partition: next, OK: ok}
	}
	return results, nil
}

// Release implements store.Partitions.
func (m *Mem) Release(_ context.Context, holds []store.Hold) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range holds {
		m.Records[h.Bucket], _ = m.Records[h.Bucket].Release(h.Token)
	}
	return nil
}

// Renew implements store.Partitions.
func (m *Mem) Renew(_ context.Context, lease bucket.Lease) (postdate.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := slices.BinarySearchFunc(m.leases, lease.ID,
		func(l bucket.Lease, id string) int { return strings.Compare(l.ID, id) })
	if !found {
		m.leases = slices.Insert(m.leases, i, lease)
	}
	m.leases[i] = lease
	return m.Clock(), nil
}
