package quota

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// shown are the series of a keeper, each as name{label value,...} value.
func (o *office) shown() (all []string) {
	r := prometheus.NewRegistry()
	r.MustRegister(o.Keeper)
	families, err := r.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			all = append(all, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(f.GetName(), "postdate_"), strings.Join(labels, ","), value))
		}
	}
	return all
}

// What operators see: limits that hold, what is pending, and how much was refused for which limit.
func TestMetrics(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 2})
	rate, most := 1.0, int64(0)
	o.Set([]store.TenantSettings{{Tenant: "b", RequestsPerSecond: &rate, PendingMax: &most}})
	o.insert(message("a", "1", 3, "x:a"), message("a", "2", 4, "x:a"), message("a", "3", 5, "x:a"), message("a", "4", 5, "x:a"))
	o.insert(message("a", "1", 3, "x:a")) // is stored already, and so not refused
	for range 4 {
		_ = o.Request("b", false)
	}
	want := []string{"limited_total{requestsPerSecond,b} 3", "limited_total{pendingMax,a} 2", "pending_bytes{a} 7", "pending_bytes{b} 0",
		"pending_messages{a} 2", "pending_messages{b} 0", "tenant_limit{pendingMax,a} 2", "tenant_limit{requestsPerSecond,b} 1"}
	slices.Sort(want)
	if got := o.shown(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("the series are\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A replacement or a rate that is refused counts, too.
func TestMetricsOfReplacementsAndRates(t *testing.T) {
	o := newOffice(t, Limits{BytesMax: 10, MessagesPerSecond: 2})
	o.insert(message("a", "1", 3, "x:a"))
	old, _ := o.store.Get(t.Context(), message("a", "1", 3, "x:a").Key)
	if _, err := storetest.Replace(t.Context(), o.held, message("a", "1", 11, "x:a"), old.Version); postdate.KindOf(err) != postdate.KindTooLarge {
		t.Errorf("a payload that never fits: %v", err)
	}
	o.insert(message("a", "2", 1, "x:a"), message("a", "3", 1, "x:a"))
	for _, want := range []string{"limited_total{bytesMax,a} 1", "limited_total{messagesPerSecond,a} 2"} {
		if got := o.shown(); !slices.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// However many tenants there are, few have series of their own, and these show no limit of others.
func TestMetricsOfManyTenants(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 5})
	const tenants = 3 * series.TenantsMax
	most := int64(9)
	o.Set([]store.TenantSettings{{Tenant: "t299", PendingMax: &most}})
	for i := range tenants {
		o.insert(message(fmt.Sprintf("t%03d", i), "1", 2, "x:a"))
	}
	o.insert(message(postdate.DefaultTenant, "1", 2, "x:a"))
	all := o.shown()
	if n := len(all); n != 3*series.TenantsMax+2 {
		t.Errorf("%d series", n)
	}
	// The default tenant, what has settings, and the first of the others have series of their own.
	const others = tenants + 1 - series.TenantsMax
	for _, want := range []string{fmt.Sprintf("pending_messages{(other)} %d", others), fmt.Sprintf("pending_bytes{(other)} %d", 2*others),
		"pending_messages{default} 1", "tenant_limit{pendingMax,t299} 9", "pending_messages{t097} 1"} {
		if !slices.Contains(all, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(all, "\n"))
		}
	}
}
