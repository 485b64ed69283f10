package series

import (
	"fmt"
	"testing"

	"github.com/postdate/postdate"
)

// The first tenants keep their names, however many come later.
func TestTenants(t *testing.T) {
	var all Tenants
	for range 2 {
		for i := range TenantsMax + 3 {
			tenant, want := fmt.Sprint("t", i), Others
			if i < TenantsMax {
				want = tenant
			}
			if got := all.Name(tenant); got != want {
				t.Errorf("the series of %s name it %s, want %s", tenant, got, want)
			}
		}
	}
	if postdate.CheckTenant(Others) == nil {
		t.Errorf("a tenant may be called %q", Others)
	}
}
