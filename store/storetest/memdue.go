package storetest

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// examinedMax bounds how many messages one claim looks at, those that it passes over
// included, as stores do.
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
	to, err := m.write(c)
	if err != nil {
		return store.ClaimResult{Err: err}
	}
	return m.read(c, to)
}

// write looks how far the scan goes, and claims that. It says up to where the record
// covers the scan then: a claim that is repeated moves nothing.
func (m *Mem) write(c *store.Claim) (to bucket.Position, err error) {
	claim := c.Claim
	claim.To = m.look(c)
	next, err := m.partitions[c.Bucket].Claim(claim)
	if err != nil {
		return to, err
	}
	m.partitions[c.Bucket] = next
	return earliest(claim.To, next.ClaimedFor(c.Only)), nil
}

func earliest(p, q bucket.Position) bucket.Position {
	if q.Before(p) {
		return q
	}
	return p
}

// look is where the scan ends.
func (m *Mem) look(c *store.Claim) bucket.Position {
	found := 0
	for examined, r := range m.behind(c.Bucket, c.Scan.After) {
		at := positionOf(&r)
		if c.To.Before(at) {
			break
		}
		if covers(c, &r) {
			found++
		}
		if found == c.Scan.Limit || examined+1 == examinedMax {
			return at
		}
	}
	return c.To
}

// covers says whether a claim is of a message at all, wherever it ends.
func covers(c *store.Claim, r *postdate.Record) bool {
	if c.Only != "" {
		return r.Channel == c.Only
	}
	to, behind := c.Behind[r.Channel]
	return !behind || !to.Before(positionOf(r))
}

// read is the scan, up to a position and never beyond what the record covers.
func (m *Mem) read(c *store.Claim, to bucket.Position) store.ClaimResult {
	result := store.ClaimResult{To: to, Ended: to}
	payloadBytes := 0
	for _, r := range m.behind(c.Bucket, c.Scan.After) {
		at := positionOf(&r)
		if to.Before(at) {
			break
		}
		if !covers(c, &r) || m.partitions[c.Bucket].ClaimedFor(r.Channel).Before(at) {
			continue
		}
		result.Due = append(result.Due, r)
		payloadBytes += len(r.Payload)
		if len(result.Due) >= c.Scan.Limit || payloadBytes >= c.Scan.BytesMax {
			result.Ended = at
			break
		}
	}
	if result.Complete = result.Ended == c.To; result.Complete {
		result.Next = postdate.Far
		if beyond := m.behind(c.Bucket, c.To); len(beyond) > 0 {
			result.Next = beyond[0].AttemptTime
		}
	}
	return result
}

// behind lists what waits behind a position.
func (m *Mem) behind(b int, after bucket.Position) []postdate.Record {
	return m.waiting(b, func(r *postdate.Record) bool { return !r.Parked && after.Before(positionOf(r)) })
}

func fenced(bucket int) error {
	return postdate.E(postdate.KindFenced, "bucket %d belongs to another owner by now", bucket)
}

// waiting lists a bucket's PENDING messages that are wanted, in the order of their
// attempts.
func (m *Mem) waiting(bucket int, wanted func(*postdate.Record) bool) []postdate.Record {
	var found []postdate.Record
	for key, r := range m.records {
		if key.Bucket == bucket && r.Status == postdate.Pending && wanted(&r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b postdate.Record) int { return positionOf(&a).Compare(positionOf(&b)) })
	return found
}

func positionOf(r *postdate.Record) bucket.Position {
	return bucket.PositionOf(r.Key, r.AttemptTime)
}

// Settle implements store.Due.
func (m *Mem) Settle(_ context.Context, settlements []store.Settlement) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range settlements {
		s := &settlements[i]
		r, found := m.records[s.Key]
		if !found || r.Status != postdate.Pending || r.Version != s.Version {
			continue
		}
		if s.How != store.SettleDelivered && s.Token != m.partitions[s.Key.Bucket].Token {
			continue
		}
		r.State = s.State(r.State)
		m.records[s.Key] = r
	}
	return nil
}

// Unpark implements store.Due.
func (m *Mem) Unpark(_ context.Context, u store.Unpark) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.Token != m.partitions[u.Bucket].Token {
		return 0, fenced(u.Bucket)
	}
	parked := m.waiting(u.Bucket, func(r *postdate.Record) bool { return r.Parked && r.Channel == u.Channel })
	parked = parked[:min(u.Limit, len(parked))]
	for _, r := range parked {
		r.Parked, r.AttemptTime = false, u.At
		m.records[r.Key] = r
	}
	return len(parked), nil
}

// Parked implements store.Due.
func (m *Mem) Parked(_ context.Context, buckets []int) ([]store.ParkedChannel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []store.ParkedChannel
	for _, b := range buckets {
		for _, r := range m.waiting(b, func(r *postdate.Record) bool { return r.Parked }) {
			if pc := (store.ParkedChannel{Bucket: b, Channel: r.Channel}); !slices.Contains(found, pc) {
				found = append(found, pc)
			}
		}
	}
	return found, nil
}
