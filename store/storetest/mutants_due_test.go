package storetest

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// And each type here in what owners do.
type (
	claimsUnfenced       struct{ *Mem }
	readsWhenFenced      struct{ *Mem }
	claimedMovesBack     struct{ *Mem }
	lateClaimsRaise      struct{ *Mem }
	equalClaimsRaise     struct{ *Mem }
	checkpointHides      struct{ *Mem }
	missesTies           struct{ *Mem }
	ignoresLimit         struct{ *Mem }
	ignoresBytesMax      struct{ *Mem }
	completeTooSoon      struct{ *Mem }
	skipsSilently        struct{ *Mem }
	scansBeyondClaimed   struct{ *Mem }
	settleIgnoresVersion struct{ *Mem }
	settleIgnoresToken   struct{ *Mem }
	settleRefusesFacts   struct{ *Mem }
	settleHidesLater     struct{ *Mem }
	parkRetries          struct{ *Mem }
	unparkIgnoresChannel struct{ *Mem }
	acquireIgnoresSeen   struct{ *Mem }
	releaseResetsToken   struct{ *Mem }
	releaseIgnoresToken  struct{ *Mem }
	looksAtAll           struct{ *Mem }
	looksAtOne           struct{ *Mem }
	looksPastReleases    struct{ *Mem }
	renewsOnce           struct{ *Mem }
	renewForgetsLasts    struct{ *Mem }
)

func (s claimsUnfenced) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	s.mu.Lock()
	for i := range claims {
		claims[i].Token = s.partitions[claims[i].Bucket].Token
	}
	s.mu.Unlock()
	return s.Mem.Claim(ctx, claims)
}

func (s readsWhenFenced) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := s.Mem.Claim(ctx, claims)
	for i := range results {
		if results[i].Err != nil {
			s.mu.Lock()
			s.partitions[claims[i].Bucket].Claimed = claims[i].Claimed // so the scan comes before the fence
			results[i].Due = s.scan(claims[i].Bucket, claims[i].Scan).Due
			s.mu.Unlock()
		}
	}
	return results
}

func (s claimedMovesBack) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := s.Mem.Claim(ctx, claims)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range claims {
		if results[i].Err == nil {
			s.partitions[claims[i].Bucket].Claimed = claims[i].Claimed
		}
	}
	return results
}

// scanChanged claims with each scan changed.
func scanChanged(m *Mem, claims []store.Claim, change func(*store.Claim)) []store.ClaimResult {
	for i := range claims {
		change(&claims[i])
	}
	return m.Claim(context.Background(), claims)
}

func (s lateClaimsRaise) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return scanChanged(s.Mem, claims, func(c *store.Claim) { c.Number = s.partitions[c.Bucket].Claims + 1 })
}

// Claim tells late claims by their times.
func (s equalClaimsRaise) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return scanChanged(s.Mem, claims, func(c *store.Claim) {
		if p := s.partitions[c.Bucket]; c.Claimed >= p.Claimed {
			c.Number = max(c.Number, p.Claims+1)
		}
	})
}

func (s checkpointHides) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return scanChanged(s.Mem, claims, func(c *store.Claim) {
		if low := (store.Position{Time: c.Checkpoint}); c.Scan.After.Before(low) {
			c.Scan.After = low
		}
	})
}

func (s missesTies) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return scanChanged(s.Mem, claims, func(c *store.Claim) {
		if c.Scan.After.ScheduleID != "" {
			c.Scan.After = store.Position{Time: c.Scan.After.Time + 1}
		}
	})
}

func (s ignoresLimit) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return scanChanged(s.Mem, claims, func(c *store.Claim) { c.Scan.Limit = plenty })
}

func (s ignoresBytesMax) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return scanChanged(s.Mem, claims, func(c *store.Claim) { c.Scan.BytesMax = roomy })
}

func (s completeTooSoon) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := s.Mem.Claim(ctx, claims)
	for i := range results {
		results[i].Complete = results[i].Err == nil
	}
	return results
}

func (s skipsSilently) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := s.Mem.Claim(ctx, claims)
	for i := range results {
		results[i].Skipped = nil
	}
	return results
}

func (s scansBeyondClaimed) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := s.Mem.Claim(ctx, claims)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range claims {
		if results[i].Err == nil {
			was := s.partitions[c.Bucket].Claimed
			s.partitions[c.Bucket].Claimed = postdate.Far
			results[i] = s.scan(c.Bucket, c.Scan)
			s.partitions[c.Bucket].Claimed = was
		}
	}
	return results
}

// settleChanged settles with each settlement changed, or left out.
func settleChanged(m *Mem, settlements []store.Settlement, keep func(*store.Settlement) bool) error {
	var kept []store.Settlement
	m.mu.Lock()
	for _, s := range settlements {
		if keep(&s) {
			kept = append(kept, s)
		}
	}
	m.mu.Unlock()
	return m.Settle(context.Background(), kept)
}

func (s settleIgnoresVersion) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		p.Version = s.records[p.Key].Version
		return true
	})
}

func (s settleIgnoresToken) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		p.Token = s.partitions[p.Key.Bucket].Token
		return true
	})
}

func (s settleRefusesFacts) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		return p.Token == s.partitions[p.Key.Bucket].Token
	})
}

func (s settleHidesLater) Settle(_ context.Context, settlements []store.Settlement) error {
	seen := map[postdate.Key]bool{}
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		again := seen[p.Key]
		seen[p.Key] = true
		return !again
	})
}

func (s parkRetries) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		if p.How == store.SettlePark {
			p.How, p.AttemptTime = store.SettleRetry, s.records[p.Key].AttemptTime
		}
		return true
	})
}

func (s unparkIgnoresChannel) Unpark(ctx context.Context, u store.Unpark) (int, error) {
	channels, _ := s.Parked(ctx, []int{u.Bucket})
	moved := 0
	for _, pc := range channels {
		u.Channel = pc.Channel
		n, err := s.Mem.Unpark(ctx, u)
		if err != nil {
			return moved, err
		}
		moved += n
	}
	return moved, nil
}

func (s acquireIgnoresSeen) Acquire(ctx context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	var results []store.Acquired
	for _, w := range wants {
		s.mu.Lock()
		w.SeenToken = s.partitions[w.Bucket].Token
		s.mu.Unlock()
		got, _ := s.Mem.Acquire(ctx, []store.Acquisition{w})
		results = append(results, got...)
	}
	return results, nil
}

func (s releaseResetsToken) Release(ctx context.Context, holds []store.Hold) error {
	err := s.Mem.Release(ctx, holds)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		if s.partitions[h.Bucket].Owner == "" {
			s.partitions[h.Bucket].Token = 0
		}
	}
	return err
}

func (s releaseIgnoresToken) Release(_ context.Context, holds []store.Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		s.partitions[h.Bucket].Owner, s.partitions[h.Bucket].Lease = "", ""
	}
	return nil
}

func (s looksAtAll) Look(ctx context.Context, _ []int) ([]bucket.Partition, []bucket.Lease, error) {
	return s.Mem.Look(ctx, s.everywhere(store.Expiry{}).Buckets)
}

func (s looksAtOne) Look(ctx context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	return s.Mem.Look(ctx, buckets[:min(len(buckets), 1)])
}

// Look shows what an acquisition changed, and not what a release did.
func (s looksPastReleases) Look(ctx context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	records, leases, err := s.Mem.Look(ctx, buckets)
	for i, p := range records {
		if p.Token > 0 && p.Owner == "" {
			records[i].Owner = "node-a"
		}
	}
	return records, leases, err
}

func (s renewForgetsLasts) Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error) {
	lease.Lasts = 0
	return s.Mem.Renew(ctx, lease)
}

func (s renewsOnce) Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error) {
	s.mu.Lock()
	_, known := s.leases[lease.ID]
	s.mu.Unlock()
	if known {
		return 0, nil
	}
	return s.Mem.Renew(ctx, lease)
}
