package node

import (
	"cmp"
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/store"
)

// ListTenants implements api.Tenants.
func (c *control) ListTenants(ctx context.Context, others []string) ([]api.Tenant, error) {
	set, err := c.store.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	usages, err := c.store.Usages(ctx)
	if err != nil {
		return nil, err
	}
	by := map[string]store.Usage{}
	for _, tenant := range others {
		by[tenant] = store.Usage{}
	}
	for _, s := range set {
		by[s.Tenant] = store.Usage{}
	}
	for _, u := range usages {
		by[u.Tenant] = u.Usage
	}
	all := make([]api.Tenant, 0, len(by))
	for name, usage := range by {
		all = append(all, api.Tenant{Name: name, Limits: c.quota.LimitsOf(name), Usage: usage})
	}
	slices.SortFunc(all, func(a, b api.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// ChangeTenant implements api.Tenants. If two nodes change a tenant at the same time, the last change
// wins as a whole.
func (c *control) ChangeTenant(ctx context.Context, tenant string, f func(*store.TenantSettings)) (api.Tenant, error) {
	s, err := c.changeTenant(ctx, tenant, f)
	if err != nil {
		return api.Tenant{}, err
	}
	c.tell()
	_ = c.read(ctx) // it is set already: if this fails, the next regular reading has it
	usage, _ := c.store.UsageOf(tenant, "")
	return api.Tenant{Name: tenant, Limits: c.quota.LimitsWith(s), Usage: usage}, nil
}

// changeTenant changes the settings in the store. Changes on this node come one after another, so that
// none undoes another.
func (c *control) changeTenant(ctx context.Context, tenant string,
	f func(*store.TenantSettings)) (store.TenantSettings, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	s := store.TenantSettings{Tenant: tenant}
	all, err := c.store.Tenants(ctx)
	if err != nil {
		return s, postdate.E(postdate.KindUnavailable, "what is set cannot be read: %w", err)
	}
	if i := slices.IndexFunc(all, func(s store.TenantSettings) bool { return s.Tenant == tenant }); i >= 0 {
		s = all[i]
	}
	f(&s)
	return s, c.store.SetTenant(ctx, s)
}
