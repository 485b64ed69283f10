package storetest

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in what owners do.
type (
	settleIgnoresVersion struct{ *Mem }
	settleIgnoresToken   struct{ *Mem }
	settleRefusesFacts   struct{ *Mem }
	settleHidesLater     struct{ *Mem }
	parkRetries          struct{ *Mem }
	parkHides            struct{ *Mem }
	unparkForgetsSince   struct{ *Mem }
	unparkEarly          struct{ *Mem }
	unparkTellsNoEarly   struct{ *Mem }
	cancelJudgesParked   struct{ *Mem }
	unparkIgnoresChannel struct{ *Mem }
	unparkIgnoresTenant  struct{ *Mem }
	unparkIgnoresLow     struct{ *Mem }
	acquireIgnoresSeen   struct{ *Mem }
	releaseResetsToken   struct{ *Mem }
	releaseIgnoresToken  struct{ *Mem }
	looksAtAll           struct{ *Mem }
	looksAtOne           struct{ *Mem }
	looksPastReleases    struct{ *Mem }
	renewsOnce           struct{ *Mem }
	renewForgetsLasts    struct{ *Mem }
)

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
		if r := s.Rows[p.Key]; r != nil {
			p.Version = r.Version
		}
		return true
	})
}

func (s settleIgnoresToken) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		p.Token = s.Records[p.Key.Bucket].Token
		return true
	})
}

func (s settleRefusesFacts) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		return p.Token == s.Records[p.Key.Bucket].Token
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
			p.How, p.AttemptTime = store.SettleRetry, s.Rows[p.Key].AttemptTime
		}
		return true
	})
}

// Scans do not see what is parked, whatever its time.
func (s parkHides) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := s.Mem.Claim(ctx, claims)
	for i := range results {
		results[i].Due = slices.DeleteFunc(results[i].Due, func(r postdate.Record) bool { return r.Parked })
	}
	return results
}

func (s unparkEarly) Unpark(ctx context.Context, u store.Unpark) (int, int, error) {
	n, early, err := s.Mem.Unpark(ctx, u)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Clone(s.Waiting[u.Bucket]) {
		if next := r.Record; !r.Parked && u.At < r.ExecutionTime {
			next.AttemptTime = u.At
			s.Put("", r, next, nil)
		}
	}
	return n, early, err
}

func (s unparkTellsNoEarly) Unpark(ctx context.Context, u store.Unpark) (int, int, error) {
	n, _, err := s.Mem.Unpark(ctx, u)
	return n, 0, err
}

func (s unparkForgetsSince) Unpark(ctx context.Context, u store.Unpark) (int, int, error) {
	s.mu.Lock()
	for _, r := range slices.Clone(s.Shelved[u.Bucket]) {
		next := r.Record
		next.DownSince = 0
		s.Put("", r, next, nil)
	}
	s.mu.Unlock()
	return s.Mem.Unpark(ctx, u)
}

// A parked message is judged by its time, like any other.
func (s cancelJudgesParked) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	s.mu.Lock()
	for _, key := range keys {
		if r := s.Rows[key]; r != nil && r.Parked && !s.Records[key.Bucket].ClaimedFor(r.Route()).Before(r.at()) {
			s.mu.Unlock()
			return []store.Cancelled{{State: r.State, Err: store.ErrTooLate(key, r.State)}}
		}
	}
	s.mu.Unlock()
	return s.Mem.Cancel(ctx, keys, at)
}

func (s unparkIgnoresChannel) Unpark(ctx context.Context, u store.Unpark) (int, int, error) {
	channels, _ := s.Parked(ctx, []int{u.Bucket})
	moved, early := 0, 0
	for _, pc := range channels {
		u.Route = pc.Route
		n, e, err := s.Mem.Unpark(ctx, u)
		if err != nil {
			return moved, early, err
		}
		moved, early = moved+n, early+e
	}
	return moved, early, nil
}

func (s unparkIgnoresTenant) Unpark(ctx context.Context, u store.Unpark) (int, int, error) {
	moved, early := 0, 0
	for _, tenant := range []string{postdate.DefaultTenant, "acme"} {
		u.Route = postdate.RouteOf(tenant, u.Route.Channel())
		n, e, err := s.Mem.Unpark(ctx, u)
		if err != nil {
			return moved, early, err
		}
		moved, early = moved+n, early+e
	}
	return moved, early, nil
}

func (s unparkIgnoresLow) Unpark(ctx context.Context, u store.Unpark) (int, int, error) {
	moved, early, err := s.Mem.Unpark(ctx, u)
	if err != nil {
		return moved, early, err
	}
	u.Route = u.Route.At(postdate.PriorityLow)
	n, e, err := s.Mem.Unpark(ctx, u)
	return moved + n, early + e, err
}

func (s acquireIgnoresSeen) Acquire(ctx context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	var results []store.Acquired
	for _, w := range wants {
		s.mu.Lock()
		w.SeenToken = s.Records[w.Bucket].Token
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
		if s.Records[h.Bucket].Owner == "" {
			s.Records[h.Bucket].Token = 0
		}
	}
	return err
}

func (s releaseIgnoresToken) Release(_ context.Context, holds []store.Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		s.Records[h.Bucket].Owner, s.Records[h.Bucket].Lease = "", ""
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
	known := slices.ContainsFunc(s.leases, func(l bucket.Lease) bool { return l.ID == lease.ID })
	s.mu.Unlock()
	if known {
		return 0, nil
	}
	return s.Mem.Renew(ctx, lease)
}
