package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Claim implements store.Due.
func (m *Mem) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.ClaimResult, len(claims))
	for i, c := range claims {
		next, ok := m.partitions[c.Bucket].Claim(c.Token, c.Number, c.Checkpoint, c.Claimed)
		if !ok {
			results[i].Err = fenced(c.Bucket)
			continue
		}
		m.partitions[c.Bucket] = next
		results[i] = m.scan(c.Bucket, c.Scan)
	}
	return results
}

func fenced(bucket int) error {
	return postdate.E(postdate.KindFenced, "bucket %d belongs to another owner by now", bucket)
}

func (m *Mem) scan(bucket int, scan store.Scan) store.ClaimResult {
	to := min(scan.To, m.partitions[bucket].Claimed)
	result := store.ClaimResult{Skipped: map[postdate.Channel]bucket.Position{}, Next: postdate.Far}
	payloadBytes := 0
	waiting := m.waiting(bucket, func(r *postdate.Record) bool { return !r.Parked && scan.After.Before(positionOf(r)) })
	for _, r := range waiting {
		at := positionOf(&r)
		if at.Time > to {
			result.Next = at.Time
			break
		}
		result.Ended = at
		if _, skip := scan.Skip[r.Channel]; skip {
			if _, noted := result.Skipped[r.Channel]; !noted {
				result.Skipped[r.Channel] = at
			}
			continue
		}
		result.Due = append(result.Due, r)
		payloadBytes += len(r.Payload)
		if len(result.Due) >= scan.Limit || payloadBytes >= scan.BytesMax {
			return result
		}
	}
	result.Complete, result.Ended = true, bucket.Position{Time: to + 1}
	return result
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
	slices.SortFunc(found, func(a, b postdate.Record) int { return comparePositions(positionOf(&a), positionOf(&b)) })
	return found
}

func positionOf(r *postdate.Record) bucket.Position {
	return bucket.Position{Time: r.AttemptTime, Tenant: r.Tenant, ScheduleID: r.ScheduleID}
}

func comparePositions(a, b bucket.Position) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.ScheduleID, b.ScheduleID))
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
