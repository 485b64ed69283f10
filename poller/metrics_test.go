package poller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
)

// Tokens stand in the paths of webhooks: metrics show their hosts.
func TestMetricsShowNoPaths(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := poller.NewMetrics(registry)
	for _, channel := range []postdate.Channel{"https://hooks.example.com:8443/T0/s3cret?key=s3cret", "https://hooks.example.com:8443/T1", "rabbitmq:orders"} {
		it := &poller.Item{Delivery: postdate.Delivery{Message: &postdate.Message{Channel: channel}}}
		m.Published(poller.Published{Batch: []*poller.Item{it}, Results: publisher.All(1, publisher.Result{Outcome: publisher.Confirmed})}, time.Now())
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range families {
		all.WriteString(f.String())
	}
	if text := all.String(); strings.Contains(text, "s3cret") || strings.Contains(text, "/T1") || !strings.Contains(text, `"https://hooks.example.com:8443"`) || !strings.Contains(text, `"rabbitmq:orders"`) {
		t.Error(text)
	}
}
