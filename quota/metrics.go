package quota

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
	"github.com/postdate/postdate/store"
)

func newRefused() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "postdate_limited_total",
		Help: "Requests, and messages of requests that were let in, that were refused for a limit of their tenant.",
	}, []string{"tenant", "limit"})
}

var (
	limitSeries = prometheus.NewDesc("postdate_tenant_limit",
		"The limits of tenants, by their names in the API; none where there is no limit.",
		[]string{"tenant", "limit"}, nil)
	messagesSeries = prometheus.NewDesc("postdate_pending_messages",
		"Messages of tenants that are pending in the store: all nodes show the same ones.", []string{"tenant"}, nil)
	bytesSeries = prometheus.NewDesc("postdate_pending_bytes",
		"Bytes of their payloads.", []string{"tenant"}, nil)
)

// countRefused counts what was refused n times, if the reason is a limit.
func (k *Keeper) countRefused(tenant string, reason error, n int) {
	var e *postdate.Error
	if errors.As(reason, &e) && e.Limit != "" {
		k.refused.WithLabelValues(k.names.Name(tenant), e.Limit).Add(float64(n))
	}
}

// Describe implements prometheus.Collector.
func (k *Keeper) Describe(to chan<- *prometheus.Desc) {
	k.refused.Describe(to)
	to <- limitSeries
	to <- messagesSeries
	to <- bytesSeries
}

// Collect implements prometheus.Collector.
func (k *Keeper) Collect(to chan<- prometheus.Metric) {
	k.refused.Collect(to)
	usages, err := k.counts.Usages(context.Background())
	if err != nil {
		return // an error would hide all metrics
	}
	gauge := func(of *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	shown := map[string]store.Usage{}
	// In an order, so that nodes name the same ones.
	for _, tenant := range slices.Sorted(maps.Keys(k.settings)) {
		shown[k.names.Name(tenant)] = store.Usage{}
	}
	for _, tenant := range slices.Sorted(maps.Keys(k.accounts)) {
		shown[k.names.Name(tenant)] = store.Usage{}
	}
	slices.SortFunc(usages, func(a, b store.TenantUsage) int { return cmp.Compare(a.Tenant, b.Tenant) })
	for _, u := range usages {
		name := k.names.Name(u.Tenant)
		sum := shown[name]
		shown[name] = store.Usage{Messages: sum.Messages + u.Messages, Bytes: sum.Bytes + u.Bytes}
	}
	for name, u := range shown {
		gauge(messagesSeries, float64(u.Messages), name)
		gauge(bytesSeries, float64(u.Bytes), name)
		if name == series.Others {
			continue
		}
		l := k.limitsOf(name)
		for limit, most := range map[string]float64{
			"requestsPerSecond": l.RequestsPerSecond, "messagesPerSecond": l.MessagesPerSecond,
			"pendingMax": float64(l.PendingMax), "bytesMax": float64(l.BytesMax), "channelsMax": float64(l.ChannelsMax),
		} {
			if most > 0 {
				gauge(limitSeries, most, name, limit)
			}
		}
	}
}
