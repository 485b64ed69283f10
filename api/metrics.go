package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are this package's metrics.
type metrics struct {
	requests  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	scheduled *prometheus.CounterVec
	cancelled prometheus.Counter
	tooLate   prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	return &metrics{
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
			Help: "Messages that were scheduled, by broker; a repeated request counts once.",
		}, []string{"broker"}),
		cancelled: auto.NewCounter(prometheus.CounterOpts{
			Name: "postdate_cancelled_total",
			Help: "Messages that were cancelled; a repeated request counts once.",
		}),
		tooLate: auto.NewCounter(prometheus.CounterOpts{
			Name: "postdate_cancel_too_late_total",
			Help: "Cancels that were refused because delivery had begun or was done.",
		}),
	}
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
