package webhook

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// metrics are what an operator watches.
type metrics struct {
	outcomes publisher.Outcomes
	inFlight prometheus.Gauge
	seconds  prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		outcomes: publisher.NewOutcomes("webhook", "Webhook requests by outcome."),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_webhook_in_flight", Help: "Webhook requests that are not answered.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "postdate_webhook_seconds", Help: "How long webhook requests take, answered or not.",
			Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30},
		}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.outcomes, m.inFlight, m.seconds} {
		if err := registry.Register(c); err != nil {
			return nil, postdate.E(postdate.KindInternal, "register the webhook publisher's metrics: %w", err)
		}
	}
	return m, nil
}
