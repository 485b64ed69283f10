package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/postdate/postdate/publisher"
)

// metrics are what an operator watches.
type metrics struct {
	outcomes publisher.Outcomes
	inFlight prometheus.Gauge
	seconds  prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	return &metrics{
		outcomes: publisher.NewOutcomes(auto, "postdate_webhook_publishes_total", "Webhook requests by outcome."),
		inFlight: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_webhook_in_flight", Help: "Webhook requests that are not answered.",
		}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "postdate_webhook_seconds", Help: "How long webhook requests take, answered or not.",
			Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30},
		}),
	}
}
