package ingest

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label result.
const (
	howScheduled = "scheduled"
	howReplaced  = "replaced"
	howCancelled = "cancelled"
	howRepeated  = "repeated" // already done before
	howBad       = "bad"
)

// Metrics are this package's series, for all sources of a node.
type Metrics struct {
	taken   *prometheus.CounterVec
	retried *prometheus.CounterVec
	lag     *prometheus.GaugeVec
}

// NewMetrics registers the series. Without a registry nobody sees them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	auto := promauto.With(registry)
	return &Metrics{
		taken: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_ingest_commands_total",
			Help: "Commands that were taken from brokers, by tenant, source and what became of them: " +
				"scheduled, replaced, cancelled, repeated (done before) or bad.",
		}, []string{"tenant", "source", "result"}),
		retried: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_ingest_retries_total",
			Help: "Commands that could not be carried out when they were read, and are tried again, by tenant and " +
				"source; each time counts.",
		}, []string{"tenant", "source"}),
		lag: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "postdate_ingest_lag",
			Help: "Messages that wait in a source for being taken, by tenant and source.",
		}, []string{"tenant", "source"}),
	}
}

// ofSource are the counters of one source.
type ofSource struct {
	taken   map[string]prometheus.Counter // by result
	retried prometheus.Counter
}

func (m *Metrics) of(tenant, source string) *ofSource {
	s := &ofSource{
		taken: map[string]prometheus.Counter{}, retried: m.retried.WithLabelValues(tenant, source),
	}
	for _, how := range []string{howScheduled, howReplaced, howCancelled, howRepeated, howBad} {
		s.taken[how] = m.taken.WithLabelValues(tenant, source, how)
	}
	return s
}
