// Package series bounds how many tenants have series of their own in a node's metrics: each series takes
// memory in the node and in what reads it, and tenants are as many as have credentials.
package series

import "sync"

// TenantsMax is how many tenants have series of their own.
const TenantsMax = 100

// Others is the tenant in the series of all others. No tenant can be named so.
const Others = "(other)"

// Tenants names the tenants of one set of series. It is safe for concurrent use.
type Tenants struct {
	mu  sync.Mutex
	own map[string]struct{}
}

// Name is how a tenant's series name it: by its own name, if it is one of the first.
func (t *Tenants) Name(tenant string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.own == nil {
		t.own = map[string]struct{}{}
	}
	if _, is := t.own[tenant]; !is && len(t.own) == TenantsMax {
		return Others
	}
	t.own[tenant] = struct{}{}
	return tenant
}
