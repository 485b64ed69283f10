package node

import (
	"cmp"
	"context"
	"slices"

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
	all, err := c.store.Tenants(ctx)
	if err != nil {
		return api.Tenant{}, err
	}
	s := store.TenantSettings{Tenant: tenant}
	if i := slices.IndexFunc(all, func(s store.TenantSettings) bool { return s.Tenant == tenant }); i >= 0 {
		s = all[i]
	}
	f(&s)
	if err := c.store.SetTenant(ctx, s); err != nil {
		return api.Tenant{}, err
	}
	c.tell()
	if err := c.read(ctx); err != nil {
		return api.Tenant{}, err
	}
	usage, _ := c.store.UsageOf(tenant, "")
	return api.Tenant{Name: tenant, Limits: c.quota.LimitsOf(tenant), Usage: usage}, nil
}
