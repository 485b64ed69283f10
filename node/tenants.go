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
	by := map[string]*api.Tenant{}
	of := func(tenant string) *api.Tenant {
		if by[tenant] == nil {
			by[tenant] = &api.Tenant{Name: tenant, Set: store.TenantSettings{Tenant: tenant}}
		}
		return by[tenant]
	}
	for _, tenant := range others {
		of(tenant)
	}
	for route := range c.channels() {
		of(route.Tenant())
	}
	for _, s := range set {
		of(s.Tenant).Set = s
	}
	for _, u := range usages {
		of(u.Tenant).Usage = u.Usage
	}
	all := make([]api.Tenant, 0, len(by))
	for _, t := range by {
		t.Limits = c.quota.LimitsWith(t.Set)
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b api.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// ChangeTenant implements api.Tenants. If two nodes change a tenant at the same time, the last change
// wins as a whole.
func (c *control) ChangeTenant(ctx context.Context, tenant string, f func(*store.TenantSettings)) (api.Tenant, error) {
	turn := c.turnOf(tenant)
	if err := take(ctx, turn); err != nil {
		return api.Tenant{}, err
	}
	defer turn.Release(1)
	s, err := c.changeTenant(ctx, tenant, f)
	if err != nil {
		return api.Tenant{}, err
	}
	c.changed(ctx)
	usage, _ := c.store.UsageOf(tenant, "")
	return api.Tenant{Name: tenant, Limits: c.quota.LimitsWith(s), Set: s, Usage: usage}, nil
}

// changeTenant changes the settings in the store. Changes on this node come one after another, so that
// none undoes another.
func (c *control) changeTenant(ctx context.Context, tenant string,
	f func(*store.TenantSettings)) (store.TenantSettings, error) {
	s := store.TenantSettings{Tenant: tenant}
	if err := take(ctx, c.reading); err != nil {
		return s, err
	}
	defer c.reading.Release(1)
	all, err := c.store.Tenants(ctx)
	if err != nil {
		return s, notRead(err)
	}
	if i := slices.IndexFunc(all, func(s store.TenantSettings) bool { return s.Tenant == tenant }); i >= 0 {
		s = all[i]
	}
	f(&s)
	return s, c.store.SetTenant(ctx, s)
}
