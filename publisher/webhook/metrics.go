package webhook

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// metrics are what an operator watches.
type metrics struct {
	outcomes *prometheus.CounterVec
	inFlight prometheus.Gauge
	seconds  prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_webhook_publishes_total", Help: "Webhook requests by outcome.",
		}, []string{"outcome"}),
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

// count counts results and returns them.
func (m *metrics) count(results []publisher.Result) []publisher.Result {
	var n [publisher.Unknown + 1]int
	for _, r := range results {
		n[r.Outcome]++
	}
	for outcome, n := range n {
		if n > 0 {
			m.outcomes.WithLabelValues(publisher.Outcome(outcome).String()).Add(float64(n))
		}
	}
	return results
}
