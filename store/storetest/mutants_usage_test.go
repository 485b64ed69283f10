package storetest

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in what is kept and counted for tenants.
type (
	zeroIsDefault       struct{ *Mem }
	weightIsLost        struct{ *Mem }
	settingsAddUp       struct{ *Mem }
	noneIsListed        struct{ *Mem }
	settleCountsAgain   struct{ *Mem }
	settleCountsRetries struct{ *Mem }
	fencedCounts        struct{ *Mem }
	replaceKeepsBytes   struct{ *Mem }
	replaceKeepsChannel struct{ *Mem }
	cancelCountsAgain   struct{ *Mem }
	insertCountsAgain   struct{ *Mem }
	unparkCounts        struct{ *Mem }
	expireCounts        struct{ *Mem }
	tenantsShareCounts  struct{ *Mem }
	channelsNeverGo     struct{ *Mem }
	listsNothingPending struct{ *Mem }
)

// miscount counts a message once more, or once less.
func (m *Mem) miscount(key postdate.Key, by int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.Rows[key]; r != nil {
		counted := *r
		counted.Status = postdate.Pending
		m.count(&counted, by)
	}
}

// status is that of a message; 0: there is none.
func (m *Mem) status(key postdate.Key) postdate.Status {
	r, _ := m.Get(context.Background(), key)
	return r.Status
}

func (s zeroIsDefault) SetTenant(ctx context.Context, t store.TenantSettings) error {
	if t.PendingMax != nil && *t.PendingMax == 0 {
		t.PendingMax = nil
	}
	return s.Mem.SetTenant(ctx, t)
}

func (s weightIsLost) SetTenant(ctx context.Context, t store.TenantSettings) error {
	t.Weight = nil
	return s.Mem.SetTenant(ctx, t)
}

func (s settingsAddUp) SetTenant(ctx context.Context, t store.TenantSettings) error {
	s.mu.Lock()
	if old := s.tenants[t.Tenant]; t.BytesMax == nil && !t.None() {
		t.BytesMax = old.BytesMax
	}
	s.mu.Unlock()
	return s.Mem.SetTenant(ctx, t)
}

func (s noneIsListed) SetTenant(_ context.Context, t store.TenantSettings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenants[t.Tenant] = t
	return nil
}

func (s settleCountsAgain) Settle(ctx context.Context, settlements []store.Settlement) error {
	for _, p := range settlements {
		if p.How == store.SettleDelivered && s.status(p.Key) == postdate.Delivered {
			s.miscount(p.Key, -1)
		}
	}
	return s.Mem.Settle(ctx, settlements)
}

func (s settleCountsRetries) Settle(ctx context.Context, settlements []store.Settlement) error {
	err := s.Mem.Settle(ctx, settlements)
	for _, p := range settlements {
		if p.How == store.SettleRetry && s.status(p.Key) == postdate.Pending {
			s.miscount(p.Key, -1)
		}
	}
	return err
}

func (s fencedCounts) Settle(ctx context.Context, settlements []store.Settlement) error {
	for _, p := range settlements {
		s.mu.Lock()
		holds := s.Records[p.Key.Bucket].Holds(p.Token)
		s.mu.Unlock()
		if p.How == store.SettleFailed && !holds && s.status(p.Key) == postdate.Pending {
			s.miscount(p.Key, -1)
		}
	}
	return s.Mem.Settle(ctx, settlements)
}

// replaceAs replaces, and counts the new message as if the old one had been another.
func (m *Mem) replaceAs(next, was postdate.Record, change func(old *postdate.Message)) (postdate.Record, error) {
	old, _ := m.Get(context.Background(), next.Key)
	r, err := m.Replace(context.Background(), next, was)
	if err != nil {
		return r, err
	}
	wrong := old
	change(&wrong.Message)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(&Row{Record: old}, 1)
	m.count(&Row{Record: wrong}, -1)
	return r, nil
}

func (s replaceKeepsBytes) Replace(_ context.Context, m, was postdate.Record) (postdate.Record, error) {
	return s.replaceAs(m, was, func(old *postdate.Message) { old.Payload = m.Payload })
}

func (s replaceKeepsChannel) Replace(_ context.Context, m, was postdate.Record) (postdate.Record, error) {
	return s.replaceAs(m, was, func(old *postdate.Message) { old.Channel = m.Channel })
}

func (s cancelCountsAgain) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	for _, key := range keys {
		if s.status(key) == postdate.Cancelled {
			s.miscount(key, -1)
		}
	}
	return s.Mem.Cancel(ctx, keys, at)
}

func (s insertCountsAgain) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := s.Mem.Insert(ctx, messages)
	for i := range results {
		if results[i].Err == nil && !results[i].Created {
			s.miscount(messages[i].Key, 1)
		}
	}
	return results
}

func (s unparkCounts) Unpark(ctx context.Context, u store.Unpark) (found, early int, err error) {
	s.mu.Lock()
	shelved := slices.Clone(s.Shelved[u.Bucket])
	s.mu.Unlock()
	for _, r := range shelved {
		s.miscount(r.Key, 1)
	}
	return s.Mem.Unpark(ctx, u)
}

func (s expireCounts) Expire(ctx context.Context, e store.Expiry) (int, error) {
	s.mu.Lock()
	old := s.past(&e)
	s.mu.Unlock()
	for _, r := range old {
		s.miscount(r.Key, -1)
	}
	return s.Mem.Expire(ctx, e)
}

func (s tenantsShareCounts) UsageOf(_ string, channel postdate.Channel) (u store.Usage, uses bool) {
	for _, name := range []string{tenant, "tenant-b"} {
		more, also := s.Mem.UsageOf(name, channel)
		u.Messages, u.Bytes, u.Channels, uses = u.Messages+more.Messages, u.Bytes+more.Bytes, u.Channels+more.Channels, uses || also
	}
	return u, uses
}

func (s channelsNeverGo) UsageOf(tenant string, channel postdate.Channel) (store.Usage, bool) {
	u, _ := s.Mem.UsageOf(tenant, channel)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.Rows {
		if r.Tenant == tenant && r.Channel == channel {
			return u, true
		}
	}
	return u, false
}

func (s listsNothingPending) Usages(ctx context.Context) ([]store.TenantUsage, error) {
	all, err := s.Mem.Usages(ctx)
	return append(all, store.TenantUsage{Tenant: "tenant-c"}), err
}
