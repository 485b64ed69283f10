package membership

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are this package's metrics.
type metrics struct {
	members                          prometheus.Gauge
	rejoins                          *prometheus.CounterVec
	sent, received, dropped, garbage prometheus.Counter
	refused                          *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		members: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_gossip_members", Help: "Nodes that this node believes alive, itself included.",
		}),
		rejoins: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_gossip_joins_total",
			Help: "Attempts to reach a seed or a lost node, by outcome (answered, failed).",
		}, []string{"outcome"}),
		sent:     counter("postdate_gossip_nudges_sent_total", "Nudges sent to the owners of buckets."),
		received: counter("postdate_gossip_nudges_received_total", "Nudges that arrived."),
		dropped: counter("postdate_gossip_nudges_dropped_total",
			"Nudges that could not be sent. The safety poll finds what they were about."),
		garbage: counter("postdate_gossip_garbage_total", "Packets that were not understood."),
		refused: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_gossip_refused_total", Help: "Refusals, by what is wrong (key, cluster, name).",
		}, []string{"reason"}),
	}
}
