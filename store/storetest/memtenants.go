package storetest

import (
	"context"
	"maps"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

var _ store.Tenants = (*Mem)(nil)

// memUsage is what one tenant has pending.
type memUsage struct {
	messages, bytes int64
	channels        map[postdate.Channel]int64 // messages for each
}

// count notes that a row comes (1) or goes (-1), if it is PENDING.
func (m *Mem) count(r *Row, change int64) {
	if r == nil || r.Status != postdate.Pending {
		return
	}
	u := m.pending[r.Tenant]
	if u == nil {
		u = &memUsage{channels: map[postdate.Channel]int64{}}
		m.pending[r.Tenant] = u
	}
	u.messages += change
	u.bytes += change * int64(len(r.Payload))
	if u.channels[r.Channel] += change; u.channels[r.Channel] == 0 {
		delete(u.channels, r.Channel)
	}
	if u.messages == 0 {
		delete(m.pending, r.Tenant)
	}
}

func (u *memUsage) usage() store.Usage {
	return store.Usage{Messages: u.messages, Bytes: u.bytes, Channels: int64(len(u.channels))}
}

// Tenants implements store.Tenants.
func (m *Mem) Tenants(context.Context) ([]store.TenantSettings, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.tenants)), nil
}

// SetTenant implements store.Tenants.
func (m *Mem) SetTenant(_ context.Context, settings store.TenantSettings) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tenants[settings.Tenant] = settings
	if settings.None() {
		delete(m.tenants, settings.Tenant)
	}
	return nil
}

// Usages implements store.Tenants.
func (m *Mem) Usages(context.Context) ([]store.TenantUsage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []store.TenantUsage
	for tenant, u := range m.pending {
		all = append(all, store.TenantUsage{Tenant: tenant, Usage: u.usage()})
	}
	return all, nil
}

// UsageOf implements store.Tenants. It is exact.
func (m *Mem) UsageOf(tenant string, channel postdate.Channel) (usage store.Usage, uses bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.pending[tenant]
	if u == nil {
		return store.Usage{}, false
	}
	return u.usage(), u.channels[channel] > 0
}
