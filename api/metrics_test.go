package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/internal/series"
)

// A tenant beyond the bound shares its series with others, and sees none of them. A tenant with
// the scope for metrics sees its own series, whatever the store or the door has to tell.
func TestMetricsOfManyTenants(t *testing.T) {
	r := newRig(t, withKeys)
	key := func(tenant string) string { return r.key(tenant, auth.WriteMessages, auth.Operate) }
	for i := range series.TenantsMax + 20 {
		r.send("POST", "/v1/messages", order("a"), bearer(key(fmt.Sprint("t", i))))
	}
	all := r.send("GET", "/metrics", "", bearer(adminKey)).body
	if want := fmt.Sprintf("postdate_scheduled_total{broker=\"inbox\",tenant=%q} 21\n", series.Others); !strings.Contains(all, want) {
		t.Errorf("no %s in\n%s", want, all)
	}
	if n := strings.Count(all, "postdate_scheduled_total{"); n != series.TenantsMax {
		t.Errorf("%d series of scheduled messages", n)
	}
	for tenant, want := range map[string]string{
		"t0":   "postdate_scheduled_total{broker=\"inbox\",tenant=\"t0\"} 1\n",
		"t110": "", // beyond the bound
		"t":    "",
	} {
		text := ""
		for line := range strings.Lines(r.send("GET", "/metrics", "", bearer(key(tenant))).body) {
			if strings.Contains(line, "{") && !strings.Contains(line, "postdate_cancel") {
				text += line
			}
		}
		if text != want {
			t.Errorf("%s sees %s", tenant, text)
		}
	}
}

// BenchmarkCountScheduled counts one message.
func BenchmarkCountScheduled(b *testing.B) {
	m := newMetrics(prometheus.NewRegistry())
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.countScheduled("acme", "rabbitmq")
		}
	})
}

// BenchmarkLookUp is what it would cost to look the counter up for each message.
func BenchmarkLookUp(b *testing.B) {
	m := newMetrics(prometheus.NewRegistry())
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.scheduled.WithLabelValues("acme", "rabbitmq").Inc()
		}
	})
}
