package sim

import (
	"context"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Claim implements store.Due.
func (s *Store) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	results := make([]store.ClaimResult, len(claims))
	for i, c := range claims {
		if results[i].Err = s.claimFor("", c); results[i].Err == nil {
			results[i] = s.read(c.Bucket, c.Scan)
		}
	}
	return results
}

// claimFor is the first half of a claim, for a node: the write.
func (s *Store) claimFor(node string, c store.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.partitions[c.Bucket]
	token := c.Token
	if s.bug == bugNoFence && before.Owner != "" {
		token = before.Token
	}
	number := c.Number
	if s.bug == bugEqualClaims && c.Claimed >= before.Claimed {
		number = max(number, before.Claims+1)
	}
	after, ok := before.Claim(token, number, c.Checkpoint, c.Claimed)
	if !ok {
		return fenced(c.Bucket)
	}
	s.partitions[c.Bucket] = after
	s.watch.claimed(node, c, before, after)
	return nil
}

func fenced(bucket int) error {
	return postdate.E(postdate.KindFenced, "bucket %d belongs to another owner by now", bucket)
}

// read is the second half of a claim: the scan. Other things may happen between.
func (s *Store) read(bucket int, scan store.Scan) store.ClaimResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := min(scan.To, s.partitions[bucket].Claimed)
	if s.bug == bugClaimAfterRead {
		to = scan.To
	}
	after := scan.After
	if p := (store.Position{Time: s.partitions[bucket].Checkpoint + 1}); s.bug == bugCheckpointFilters && after.Before(p) {
		after = p
	}
	result := store.ClaimResult{Skipped: map[postdate.Channel]store.Position{}, Next: postdate.Far}
	line, payloadBytes := s.waiting[bucket], 0
	i, found := place(line, after)
	if found {
		i++
	}
	for _, r := range line[i:] {
		at := rowPosition(r)
		if at.Time > to {
			result.Next = at.Time
			if s.bug == bugScanBeyond {
				for _, r := range line[i:min(i+scan.Limit, len(line))] {
					result.Due = append(result.Due, r.Record)
				}
			}
			break
		}
		result.Ended = at
		if _, skip := scan.Skip[r.Channel]; skip {
			if _, noted := result.Skipped[r.Channel]; !noted {
				result.Skipped[r.Channel] = at
			}
			continue
		}
		result.Due = append(result.Due, r.Record)
		payloadBytes += len(r.Payload)
		if len(result.Due) >= scan.Limit || payloadBytes >= scan.BytesMax {
			return result
		}
	}
	result.Complete, result.Ended = true, store.Position{Time: to + 1}
	return result
}

// Settle implements store.Due.
func (s *Store) Settle(_ context.Context, settlements []store.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range settlements {
		st := &settlements[i]
		old := s.records[st.Key]
		switch {
		case old == nil:
			continue
		case old.Status != postdate.Pending && s.bug != bugSettleFinal:
			continue
		case old.Version != st.Version && s.bug != bugSettleVersion:
			continue
		case st.How != store.SettleDelivered && st.Token != s.partitions[st.Key.Bucket].Token && s.bug != bugSettleToken:
			continue
		}
		next := old.Record
		next.State = st.State(next.State)
		s.put("settle", old, next, st)
		if s.bug == bugRowsVanish && next.Status.Final() {
			delete(s.records, st.Key)
		}
	}
	return nil
}

// Unpark implements store.Due.
func (s *Store) Unpark(_ context.Context, u store.Unpark) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.Token != s.partitions[u.Bucket].Token {
		return 0, fenced(u.Bucket)
	}
	moved := 0
	for _, r := range slices.Clone(s.parked[u.Bucket]) {
		if r.Channel == u.Channel && moved < u.Limit {
			next := r.Record
			next.Parked, next.AttemptTime = false, u.At
			s.put("unpark", r, next, nil)
			moved++
		}
	}
	return moved, nil
}

// Parked implements store.Due.
func (s *Store) Parked(_ context.Context, buckets []int) ([]store.ParkedChannel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []store.ParkedChannel
	for _, b := range buckets {
		for _, r := range s.parked[b] {
			if pc := (store.ParkedChannel{Bucket: b, Channel: r.Channel}); !slices.Contains(found, pc) {
				found = append(found, pc)
			}
		}
	}
	return found, nil
}

// Look implements store.Partitions.
func (s *Store) Look(_ context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]bucket.Partition, len(buckets))
	for i, b := range buckets {
		records[i] = s.partitions[b]
	}
	return records, slices.Clone(s.leases), nil
}

// change writes a partition record.
func (s *Store) change(by string, b int, after bucket.Partition) {
	before := s.partitions[b]
	s.partitions[b] = after
	s.watch.partitionChanged(by, before, after)
}

// Acquire implements store.Partitions.
func (s *Store) Acquire(_ context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]store.Acquired, len(wants))
	for i, want := range wants {
		next, ok := s.partitions[want.Bucket].Acquire(want.SeenToken, want.Owner, want.Lease)
		if ok {
			s.change("acquire", want.Bucket, next)
		}
		results[i] = store.Acquired{Partition: next, OK: ok}
	}
	return results, nil
}

// Release implements store.Partitions.
func (s *Store) Release(_ context.Context, holds []store.Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		next, ok := s.partitions[h.Bucket].Release(h.Token)
		if ok && s.bug == bugTokenReset {
			next.Token = 0
		}
		if ok {
			s.change("release", h.Bucket, next)
		}
	}
	return nil
}

// Renew implements store.Partitions.
func (s *Store) Renew(_ context.Context, lease bucket.Lease) (postdate.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := slices.BinarySearchFunc(s.leases, lease.ID, func(l bucket.Lease, id string) int { return strings.Compare(l.ID, id) })
	if found {
		s.leases[i] = lease
	} else {
		s.leases = slices.Insert(s.leases, i, lease)
	}
	return s.clock(), nil
}

// forget loses a checkpoint.
func (s *Store) forget(b int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions[b].Checkpoint = 0
}
