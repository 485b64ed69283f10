package poller_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
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

// The number of series is bounded: tenants and channels that come late share some. What they share
// no tenant can call its own.
func TestMetricsOfManyTenants(t *testing.T) {
	const tenants, channels = series.TenantsMax + 50, 4
	registry := prometheus.NewRegistry()
	m := poller.NewMetrics(registry)
	for i := range tenants * channels {
		tenant := fmt.Sprint("t", i%tenants)
		it := &poller.Item{Delivery: postdate.Delivery{Message: &postdate.Message{Key: postdate.Key{Tenant: tenant}, Channel: postdate.Channel(fmt.Sprint("rabbitmq:", i))}}}
		m.Published(poller.Published{Batch: []*poller.Item{it}, Results: publisher.All(1, publisher.Result{Outcome: publisher.Confirmed})}, time.Now())
		m.Settled([]store.Settlement{{Key: postdate.Key{Tenant: tenant}, How: store.SettleDelivered}, {How: store.SettlePark, Key: postdate.Key{Tenant: postdate.DefaultTenant}}})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	delivered, lateness, byPriority := map[string]float64{}, map[string]uint64{}, map[string]uint64{}
	for _, f := range families {
		if f.GetName() == "postdate_lateness_seconds" && len(f.Metric) > 200+series.TenantsMax+1 {
			t.Errorf("%d series of lateness", len(f.Metric))
		}
		for _, series := range f.Metric {
			labels := map[string]string{}
			for _, l := range series.Label {
				labels[l.GetName()] = l.GetValue()
			}
			switch tenant := labels["tenant"]; {
			case f.GetName() == "postdate_lateness_seconds":
				lateness[tenant] += series.Histogram.GetSampleCount()
			case f.GetName() == "postdate_priority_lateness_seconds":
				byPriority[tenant] += series.Histogram.GetSampleCount()
			case labels["how"] == "delivered" && tenant != postdate.DefaultTenant:
				delivered[tenant] = series.Counter.GetValue()
			case labels["how"] == "parked" && tenant == postdate.DefaultTenant && series.Counter.GetValue() != tenants*channels:
				t.Errorf("%v parked", series.Counter.GetValue())
			}
		}
	}
	const own = series.TenantsMax - 1 // and default
	if len(delivered) != own+1 || delivered["t0"] != channels || lateness["t0"] != channels ||
		delivered[series.Others] != (tenants-own)*channels || lateness[series.Others] != (tenants-own)*channels {
		t.Errorf("delivered %v, lateness %v", delivered, lateness)
	}
	delete(byPriority, postdate.DefaultTenant) // nothing was published for it
	if !maps.Equal(byPriority, lateness) {
		t.Errorf("lateness by priority %v, by channel %v", byPriority, lateness)
	}
}

// What was confirmed counts for its tenant and priority, and what was not does not. Series are there
// from the start, so that the first message counts in a rate.
func TestLatenessByPriority(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, now := poller.NewMetrics(registry), time.UnixMilli(1_800_000_000_000)
	for _, sent := range []struct {
		tenant   string
		priority postdate.Priority
		late     time.Duration
		outcome  publisher.Outcome
	}{
		{"default", postdate.PriorityHigh, time.Second, publisher.Confirmed},
		{"default", postdate.PriorityHigh, 1001 * time.Millisecond, publisher.Confirmed},
		{"default", postdate.PriorityMedium, 5 * time.Second, publisher.Confirmed},
		{"default", postdate.PriorityMedium, 6 * time.Second, publisher.Confirmed},
		{"default", postdate.PriorityLow, 20 * time.Second, publisher.Refused},
		{"acme", postdate.PriorityLow, 31 * time.Second, publisher.Confirmed},
	} {
		message := &postdate.Message{Key: postdate.Key{Tenant: sent.tenant}, Channel: "rabbitmq:orders", Priority: sent.priority}
		it := &poller.Item{Delivery: postdate.Delivery{Message: message}, Begins: postdate.WallOf(now.Add(-sent.late))}
		m.Published(poller.Published{Batch: []*poller.Item{it}, Results: publisher.All(1, publisher.Result{Outcome: sent.outcome})}, now)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		if f.GetName() != "postdate_priority_lateness_seconds" {
			continue
		}
		for _, series := range f.Metric {
			h := series.Histogram
			text := fmt.Sprintf("%d in %gs", h.GetSampleCount(), h.GetSampleSum())
			for _, b := range h.Bucket {
				if limit := b.GetUpperBound(); limit == 1 || limit == 5 || limit == 30 {
					text += fmt.Sprintf(", %d within %gs", b.GetCumulativeCount(), limit)
				}
			}
			labels := map[string]string{}
			for _, l := range series.Label {
				labels[l.GetName()] = l.GetValue()
			}
			got[labels["tenant"]+" "+labels["priority"]] = text
		}
	}
	want := map[string]string{
		"default high":   "2 in 2.001s, 1 within 1s, 2 within 5s, 2 within 30s",
		"default medium": "2 in 11s, 0 within 1s, 1 within 5s, 2 within 30s",
		"default low":    "0 in 0s, 0 within 1s, 0 within 5s, 0 within 30s",
		"acme high":      "0 in 0s, 0 within 1s, 0 within 5s, 0 within 30s",
		"acme medium":    "0 in 0s, 0 within 1s, 0 within 5s, 0 within 30s",
		"acme low":       "1 in 31s, 0 within 1s, 0 within 5s, 0 within 30s",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// BenchmarkPublished counts one message of a batch.
func BenchmarkPublished(b *testing.B) {
	for _, size := range []int{1, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := poller.NewMetrics(prometheus.NewRegistry())
			p := poller.Published{Results: publisher.All(size, publisher.Result{Outcome: publisher.Confirmed})}
			var settled []store.Settlement
			for range size {
				key := postdate.Key{Tenant: "acme"}
				p.Batch = append(p.Batch, &poller.Item{Delivery: postdate.Delivery{Message: &postdate.Message{Key: key, Channel: "rabbitmq:orders"}}})
				settled = append(settled, store.Settlement{Key: key, How: store.SettleDelivered})
			}
			for i := 0; i < b.N; i += size {
				m.Published(p, time.Now())
				m.Settled(settled)
			}
		})
	}
}

// What the store delivers and settles in one step counts as settled by its answer.
func TestSettledByDelivery(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := poller.Published{Results: publisher.All(3, publisher.Result{Outcome: publisher.Confirmed, Settled: true})}
	p.Results[2] = publisher.Result{Outcome: publisher.Unknown}
	for range p.Results {
		p.Batch = append(p.Batch, &poller.Item{Delivery: postdate.Delivery{Message: &postdate.Message{Channel: "inbox:a"}}})
	}
	poller.NewMetrics(registry).Published(p, time.UnixMilli(1_800_000_000_000))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == "postdate_settled_total" {
			for _, series := range f.Metric {
				sum += series.Counter.GetValue()
			}
		}
	}
	if sum != 2 {
		t.Errorf("%g messages count as settled, want 2", sum)
	}
}
