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

// metrics are this package's metrics.
type metrics struct {
	taken   *prometheus.CounterVec
	retried *prometheus.CounterVec
	lag     *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	return &metrics{
		taken: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_ingest_commands_total",
			Help: "Commands that were taken from brokers, by source and by what became of them: " +
				"scheduled, replaced, cancelled, repeated (done before) or bad.",
		}, []string{"source", "result"}),
		retried: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_ingest_retries_total",
			Help: "Commands that could not be carried out when they were read, and are tried again, by source; " +
				"each time counts.",
		}, []string{"source"}),
		lag: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "postdate_ingest_lag",
			Help: "Messages that wait in a source for being taken, by source.",
		}, []string{"source"}),
	}
}
