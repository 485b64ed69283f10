package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
)

// metrics are this package's metrics.
type metrics struct {
	requests  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	scheduled *prometheus.CounterVec
	cancelled *prometheus.CounterVec
	tooLate   *prometheus.CounterVec

	mu      sync.Mutex
	names   series.Tenants
	tenants map[string]*tenantSeries // by these
}

// tenantSeries are a tenant's counters. They are looked up once, not for each message.
type tenantSeries struct {
	name               string
	cancelled, tooLate prometheus.Counter
	scheduled          map[string]prometheus.Counter // by broker
}

func newMetrics(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	m := &metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_http_requests_total",
			Help: "HTTP requests that were answered, by route, method and status code.",
		}, []string{"route", "method", "code"}),
		latency: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "postdate_http_request_seconds",
			Help: "Time from a request's arrival to its answer, by route and method; " +
				"a long poll counts with its wait.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
		scheduled: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_scheduled_total",
			Help: "Messages that were scheduled, by tenant and broker; a repeated request counts once.",
		}, []string{"tenant", "broker"}),
		cancelled: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_cancelled_total",
			Help: "Messages that were cancelled, by tenant; a repeated request counts once.",
		}, []string{"tenant"}),
		tooLate: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_cancel_too_late_total",
			Help: "Cancels that were refused because delivery had begun or was done, by tenant.",
		}, []string{"tenant"}),
		tenants: map[string]*tenantSeries{},
	}
	m.tenant(postdate.DefaultTenant)
	return m
}

// of returns the series of a tenant.
func (m *metrics) of(tenant string) *tenantSeries {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tenant(tenant)
}

// tenant is of while the lock is held.
func (m *metrics) tenant(name string) *tenantSeries {
	if t := m.tenants[name]; t != nil {
		return t
	}
	name = m.names.Name(name)
	if t := m.tenants[name]; t != nil { // that of the others
		return t
	}
	t := &tenantSeries{name: name, scheduled: map[string]prometheus.Counter{},
		cancelled: m.cancelled.WithLabelValues(name), tooLate: m.tooLate.WithLabelValues(name)}
	m.tenants[name] = t
	return t
}

// countScheduled counts a message that was created.
func (m *metrics) countScheduled(tenant, broker string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tenant(tenant)
	c := t.scheduled[broker]
	if c == nil {
		c = m.scheduled.WithLabelValues(t.name, broker)
		t.scheduled[broker] = c
	}
	c.Inc()
}

// CountCancelled counts messages of a tenant that were cancelled other than by a request that names them.
func (s *Server) CountCancelled(tenant string, n int) {
	s.metrics.of(tenant).cancelled.Add(float64(n))
}

func (m *metrics) observe(route, method string, code int, took time.Duration) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default: // a client must not be able to create new series
		method = "other"
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(code)).Inc()
	m.latency.WithLabelValues(route, method).Observe(took.Seconds())
}
