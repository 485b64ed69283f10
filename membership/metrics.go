package membership

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
)

// metrics are this package's metrics.
type metrics struct {
	members                          prometheus.Gauge
	rejoins                          *prometheus.CounterVec
	sent, received, dropped, garbage prometheus.Counter
	refused                          *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		members: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_gossip_members", Help: "Nodes that this node believes alive, itself included.",
		}),
		rejoins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_gossip_joins_total",
			Help: "Attempts to reach a seed or a lost node, by outcome (answered, failed).",
		}, []string{"outcome"}),
		sent:     counter("postdate_gossip_nudges_sent_total", "Nudges sent to the owners of buckets."),
		received: counter("postdate_gossip_nudges_received_total", "Nudges that arrived."),
		dropped: counter("postdate_gossip_nudges_dropped_total",
			"Nudges that could not be sent. The safety poll finds what they were about."),
		garbage: counter("postdate_gossip_garbage_total", "Packets that were not understood."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_gossip_refused_total", Help: "Refusals, by what is wrong (key, cluster, name).",
		}, []string{"reason"}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.members, m.rejoins, m.sent, m.received, m.dropped, m.garbage,
		m.refused} {
		if err := registry.Register(c); err != nil {
			return nil, postdate.E(postdate.KindInternal, "register the gossip's metrics: %w", err)
		}
	}
	return m, nil
}
