package storetest

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in what is claimed, or in the records of buckets.
type (
	claimsUnfenced     struct{ *Mem }
	readsWhenFenced    struct{ *Mem }
	claimedMovesBack   struct{ *Mem }
	readsWhenLate      struct{ *Mem }
	lateClaimsWrite    struct{ *Mem }
	equalClaimsWrite   struct{ *Mem }
	idleClaimsWrite    struct{ *Mem }
	neverWrites        struct{ *Mem }
	repeatsReadOn      struct{ *Mem }
	claimsAll          struct{ *Mem }
	claimsMilliseconds struct{ *Mem }
	claimsOneMore      struct{ *Mem }
	claimsTooLittle    struct{ *Mem }
	answersWhatItRead  struct{ *Mem }
	readsBehind        struct{ *Mem }
	passesOverBehind   struct{ *Mem }
	onlyReadsAll       struct{ *Mem }
	onlyClaimsAll      struct{ *Mem }
	onlyMovesAll       struct{ *Mem }
	onlyMovesBack      struct{ *Mem }
	keepsBehind        struct{ *Mem }
	keepsCaughtUp      struct{ *Mem }
	allIsNobody        struct{ *Mem }
	onlyAllReadsMore   struct{ *Mem }
	onlyOneGoesOn      struct{ *Mem }
	neverWithAll       struct{ *Mem }
	neverFalls         struct{ *Mem }
	behindByTime       struct{ *Mem }
	behindCutsNames    struct{ *Mem }
	endsTooSoon        struct{ *Mem }
	makesNoProgress    struct{ *Mem }
	checkpointHides    struct{ *Mem }
	missesTies         struct{ *Mem }
	ignoresLimit       struct{ *Mem }
	ignoresBytesMax    struct{ *Mem }
	completeTooSoon    struct{ *Mem }
	scansBeyondClaimed struct{ *Mem }
	acquireDropsBehind struct{ *Mem }
	releaseDropsBehind struct{ *Mem }
)

// claimWith claims with each claim changed, or the record that it meets.
func (m *Mem) claimWith(claims []store.Claim, change func(c *store.Claim, p *bucket.Partition)) []store.ClaimResult {
	claims = slices.Clone(claims)
	m.mu.Lock()
	for i := range claims {
		change(&claims[i], &m.Records[claims[i].Bucket])
	}
	m.mu.Unlock()
	return m.Claim(context.Background(), claims)
}

// claimThen claims, and changes results or records afterwards. A claim that is refused
// has an error in its result.
func (m *Mem) claimThen(claims []store.Claim, change func(c *store.Claim, before bucket.Partition, r *store.ClaimResult)) []store.ClaimResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.ClaimResult, len(claims))
	for i := range claims {
		before := m.Records[claims[i].Bucket]
		results[i] = m.claim(&claims[i])
		change(&claims[i], before, &results[i])
	}
	return results
}

// asIf reads what a claim would find if its bucket's record were another one.
func (m *Mem) asIf(p bucket.Partition, c *store.Claim, to bucket.Position) store.ClaimResult {
	was := m.Records[c.Bucket]
	m.Records[c.Bucket] = p
	defer func() { m.Records[c.Bucket] = was }()
	return m.Read(c, to)
}

func (s claimsUnfenced) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, p *bucket.Partition) { c.Token = p.Token })
}

func (s readsWhenFenced) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, before bucket.Partition, r *store.ClaimResult) {
		if postdate.KindOf(r.Err) == postdate.KindFenced {
			before.Claimed = c.To
			r.Due = s.asIf(before, c, c.To).Due // so the scan comes before the fence
		}
	})
}

func (s readsWhenLate) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, before bucket.Partition, r *store.ClaimResult) {
		if postdate.KindOf(r.Err) == postdate.KindConflict {
			*r = s.Read(c, c.To)
		}
	})
}

func (s claimedMovesBack) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, before bucket.Partition, r *store.ClaimResult) {
		if r.Err == nil && c.Only == "" {
			s.Records[c.Bucket].Claimed = r.To
		}
	})
}

func (s lateClaimsWrite) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, p *bucket.Partition) {
		if c.Number < p.Claims {
			c.Number = p.Claims + 1
		}
	})
}

func (s equalClaimsWrite) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, p *bucket.Partition) {
		if c.Number == p.Claims {
			p.Claims--
		}
	})
}

// A repeated claim answers what it would have written.
func (s repeatsReadOn) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, before bucket.Partition, r *store.ClaimResult) {
		if r.Err == nil && c.Number == before.Claims {
			to, _ := s.look(c)
			before.Claimed = to
			*r = s.asIf(before, c, to)
		}
	})
}

// claimedTo makes claims that end elsewhere than the look did.
func (m *Mem) claimedTo(claims []store.Claim, end func(c *store.Claim, to bucket.Position) bucket.Position) []store.ClaimResult {
	return m.claimThen(claims, func(c *store.Claim, before bucket.Partition, r *store.ClaimResult) {
		if r.Err == nil && c.Number > before.Claims {
			claim := c.Claim
			claim.To = end(c, r.To)
			m.Records[c.Bucket], _ = before.Claim(claim)
		}
	})
}

// The claim is written as it was asked for, whatever the look finds.
func (s claimsAll) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimedTo(claims, func(c *store.Claim, _ bucket.Position) bucket.Position { return c.To })
}

func (s claimsMilliseconds) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimedTo(claims, func(_ *store.Claim, to bucket.Position) bucket.Position { return bucket.UpTo(to.Time) })
}

// The store looks beyond its page for the first message that does not belong to it.
func (s claimsOneMore) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimedTo(claims, func(c *store.Claim, _ bucket.Position) bucket.Position {
		more := *c
		more.Scan.Limit++
		to, _ := s.look(&more)
		return to
	})
}

// The claim covers what BytesMax left out, and says that it does not.
func (s answersWhatItRead) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(_ *store.Claim, _ bucket.Partition, r *store.ClaimResult) { r.To = r.Ended })
}

// The limit also counts what the scan skips.
func (s claimsTooLittle) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, _ *bucket.Partition) {
		if waiting := s.beyond(c.Bucket, c.Scan.After); len(waiting) > c.Scan.Limit {
			if to := waiting[c.Scan.Limit-1].at(); to.Before(c.To) {
				c.To = to
			}
		}
	})
}

// readsAs claims, and reads as if the claim were another one.
func (m *Mem) readsAs(claims []store.Claim, change func(*store.Claim)) []store.ClaimResult {
	return m.claimThen(claims, func(c *store.Claim, _ bucket.Partition, r *store.ClaimResult) {
		if r.Err == nil {
			other, p := *c, m.Records[c.Bucket]
			change(&other)
			p.Behind = other.Behind
			*r = m.asIf(p, &other, r.To)
		}
	})
}

func (s readsBehind) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.readsAs(claims, func(c *store.Claim) { c.Behind = nil })
}

// A channel that is behind is skipped altogether.
func (s passesOverBehind) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.readsAs(claims, func(c *store.Claim) {
		c.Behind = maps.Clone(c.Behind)
		for channel := range c.Behind {
			if channel != c.Only {
				c.Behind[channel] = bucket.Position{}
			}
		}
	})
}

func (s onlyReadsAll) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.readsAs(claims, func(c *store.Claim) { c.Only = "" })
}

// writesAs puts another record in the place of the one that a claim wrote.
func (m *Mem) writesAs(claims []store.Claim, change func(c *store.Claim, before bucket.Partition, p *bucket.Partition)) []store.ClaimResult {
	return m.claimThen(claims, func(c *store.Claim, before bucket.Partition, r *store.ClaimResult) {
		if r.Err == nil && c.Number > before.Claims {
			p := m.Records[c.Bucket]
			p.Behind = maps.Clone(p.Behind)
			change(c, before, &p)
			m.Records[c.Bucket] = p
		}
	})
}

func (s onlyClaimsAll) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		if c.Only != "" && p.Claimed.Before(c.To) {
			p.Claimed = c.To
		}
	})
}

// Only moves all that is behind.
func (s onlyMovesAll) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		for channel, to := range p.Behind {
			if c.Only != "" {
				p.Behind[channel] = to.Latest(p.Behind[c.Only])
			}
		}
	})
}

func (s onlyMovesBack) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		if c.Only != "" && c.To.Before(p.Claimed) {
			p.Behind[c.Only] = c.To
		}
	})
}

func (s keepsBehind) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		for channel, to := range before.Behind {
			if _, behind := p.Behind[channel]; !behind && p.Behind != nil {
				p.Behind[channel] = to
			} else if !behind {
				p.Behind = places{channel: to}
			}
		}
	})
}

// A channel that has come up to the others stays in the record.
func (s keepsCaughtUp) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		if _, behind := p.Behind[c.Only]; c.Only != "" && !behind {
			if p.Behind == nil {
				p.Behind = places{}
			}
			p.Behind[c.Only] = p.Claimed
		}
	})
}

// What is said of all of a tenant is said of no channel.
func (s allIsNobody) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.readsAs(claims, func(c *store.Claim) {
		if c.Behind = maps.Clone(c.Behind); c.Only == "" {
			maps.DeleteFunc(c.Behind, func(route postdate.Route, _ bucket.Position) bool { return route.IsAll() })
		}
	})
}

// A claim of only one tenant takes in the channels that are further behind.
func (s onlyAllReadsMore) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.readsAs(claims, func(c *store.Claim) {
		if c.Only.IsAll() {
			c.Behind = places{c.Only: c.Behind[c.Only]}
		}
	})
}

// A claim of only one channel goes further than its tenant.
func (s onlyOneGoesOn) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		if _, behind := c.Behind[postdate.AllOf(c.Only.Tenant())]; behind && c.Only != "" && !c.Only.IsAll() {
			p.Behind[c.Only] = p.Claimed.Earliest(c.To)
		}
	})
}

// A channel that has come up to its tenant's others stays behind on its own.
func (s neverWithAll) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		if all, behind := p.Behind[postdate.AllOf(c.Only.Tenant())]; behind && c.Only != "" && !c.Only.IsAll() {
			p.Behind[c.Only] = c.Behind[c.Only].Latest(c.To).Earliest(all)
		}
	})
}

// A channel falls behind no more than once.
func (s neverFalls) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		for channel, to := range p.Behind {
			if was := before.ClaimedFor(channel); to.Before(was) {
				p.Behind[channel] = was
			}
		}
	})
}

// The places in Behind keep only their times.
func (s behindByTime) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		for channel, to := range p.Behind {
			p.Behind[channel] = bucket.Position{Time: to.Time}
		}
	})
}

// Channels are kept as keys of a format in which a dot has a meaning.
func (s behindCutsNames) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.writesAs(claims, func(c *store.Claim, before bucket.Partition, p *bucket.Partition) {
		for channel, to := range p.Behind {
			name, _, _ := strings.Cut(string(channel), ".")
			delete(p.Behind, channel)
			p.Behind[postdate.Route(name)] = to
		}
	})
}

func (s acquireDropsBehind) Acquire(ctx context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	results, err := s.Mem.Acquire(ctx, wants)
	for i := range results {
		results[i].Partition.Behind = nil
	}
	return results, err
}

func (s releaseDropsBehind) Release(ctx context.Context, holds []store.Hold) error {
	err := s.Mem.Release(ctx, holds)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		s.Records[h.Bucket].Behind = nil
	}
	return err
}

// A claim with IfDue is written even if nothing is due.
func (s idleClaimsWrite) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, _ *bucket.Partition) { c.IfDue = false })
}

// neverWrites takes back what a claim with IfDue wrote.
func (s neverWrites) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, before bucket.Partition, _ *store.ClaimResult) {
		if c.IfDue {
			s.Records[c.Bucket] = before
		}
	})
}

func (s endsTooSoon) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, _ bucket.Partition, r *store.ClaimResult) {
		if len(s.beyond(c.Bucket, c.Scan.After)) >= examinedMax {
			r.Complete, r.Ended, r.To = true, c.To, c.To
		}
	})
}

// A scan that returned nothing stays where it is.
func (s makesNoProgress) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, _ bucket.Partition, r *store.ClaimResult) {
		if !r.Complete && len(r.Due) == 0 {
			r.Ended = c.Scan.After
		}
	})
}

func (s checkpointHides) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, _ *bucket.Partition) {
		if low := (bucket.Position{Time: c.Checkpoint}); c.Scan.After.Before(low) {
			c.Scan.After = low
		}
	})
}

func (s missesTies) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, _ *bucket.Partition) {
		if c.Scan.After.ScheduleID != "" {
			c.Scan.After = bucket.UpTo(c.Scan.After.Time)
		}
	})
}

func (s ignoresLimit) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, _ *bucket.Partition) { c.Scan.Limit = plenty })
}

func (s ignoresBytesMax) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimWith(claims, func(c *store.Claim, _ *bucket.Partition) { c.Scan.BytesMax = roomy })
}

func (s completeTooSoon) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(_ *store.Claim, _ bucket.Partition, r *store.ClaimResult) { r.Complete = r.Err == nil })
}

// The scan goes on to where the claim was meant to go.
func (s scansBeyondClaimed) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimThen(claims, func(c *store.Claim, _ bucket.Partition, r *store.ClaimResult) {
		if r.Err == nil {
			p := s.Records[c.Bucket]
			p.Claimed = bucket.UpTo(postdate.Far)
			*r = s.asIf(p, c, c.To)
		}
	})
}
