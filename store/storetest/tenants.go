package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/postdate/postdate/store"
)

func tenants() []check {
	return []check{
		{"of a new store's tenants nothing is set", func(x *trial) { x.wantTenants() }},
		{"what is set of a tenant is listed as it was set last", func(x *trial) {
			full, other := fullTenant("tenant-b"), store.TenantSettings{Tenant: "c", Weight: ptr(7)}
			x.setTenant(full)
			x.setTenant(other)
			x.setTenant(other) // repeated
			x.wantTenants(full, other)
			full.BytesMax, full.Weight = nil, ptr(1)
			x.setTenant(full)
			x.wantTenants(full, other)
		}},
		{"each field of a tenant's settings stands alone, and 0 is not the default", func(x *trial) {
			for _, s := range singleFields() {
				x.setTenant(s)
				x.wantTenants(s)
			}
		}},
		{"a tenant of which nothing is set any longer is as if nothing had ever been set", func(x *trial) {
			x.setTenant(fullTenant(tenant))
			x.setTenant(store.TenantSettings{Tenant: tenant})
			x.setTenant(store.TenantSettings{Tenant: "never-set"})
			x.wantTenants()
		}},
	}
}

func ptr[T any](v T) *T { return &v }

// fullTenant has every field set.
func fullTenant(name string) store.TenantSettings {
	return store.TenantSettings{
		Tenant: name, RequestsPerSecond: ptr(0.5), MessagesPerSecond: ptr(1e6),
		PendingMax: ptr(int64(1) << 40), BytesMax: ptr(int64(3)), ChannelsMax: ptr(int64(0)), Weight: ptr(1000),
	}
}

// singleFields are settings of one tenant with one field each, once with 0 and once with more.
func singleFields() (all []store.TenantSettings) {
	for _, v := range []int64{0, 9} {
		all = append(all,
			store.TenantSettings{RequestsPerSecond: ptr(float64(v))},
			store.TenantSettings{MessagesPerSecond: ptr(float64(v))},
			store.TenantSettings{PendingMax: ptr(v)}, store.TenantSettings{BytesMax: ptr(v)},
			store.TenantSettings{ChannelsMax: ptr(v)}, store.TenantSettings{Weight: ptr(int(v))})
	}
	for i := range all {
		all[i].Tenant = "tenant-b"
	}
	return all
}

func (x *trial) setTenant(s store.TenantSettings) {
	x.Helper()
	if err := x.store.SetTenant(x.ctx, s); err != nil {
		x.Fatalf("SetTenant of %s: %v", s.Tenant, err)
	}
}

func (x *trial) wantTenants(want ...store.TenantSettings) {
	x.Helper()
	got, err := x.store.Tenants(x.ctx)
	if err != nil {
		x.Fatalf("Tenants: %v", err)
	}
	byName := func(a, b store.TenantSettings) int { return strings.Compare(a.Tenant, b.Tenant) }
	slices.SortFunc(got, byName)
	slices.SortFunc(want, byName)
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		x.Errorf("the tenants' settings are %s, want %s", valuesOf(got), valuesOf(want))
	}
}

// tenantsSurvive is a durable check.
func tenantsSurvive(x *trial) {
	x.setTenant(fullTenant("kept"))
	x.setTenant(fullTenant("gone"))
	x.setTenant(store.TenantSettings{Tenant: "gone"})
	x.crash()
	x.wantTenants(fullTenant("kept"))
	usageSurvives(x)
}

// valuesOf shows settings with what their fields point to.
func valuesOf(all []store.TenantSettings) string {
	var b strings.Builder
	for _, s := range all {
		fields := reflect.ValueOf(s)
		for i := range fields.NumField() {
			fmt.Fprint(&b, " ", reflect.Indirect(fields.Field(i)))
		}
		b.WriteString(";")
	}
	return b.String()
}
