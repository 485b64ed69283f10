package rabbitmq

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// metrics are what an operator watches.
type metrics struct {
	connects prometheus.Counter
	outcomes publisher.Outcomes
}

func newMetrics(p *Publisher, registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		connects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "postdate_rabbitmq_connects_total",
			Help: "Connections made to RabbitMQ; all but the first replace a lost one.",
		}),
		outcomes: publisher.NewOutcomes("rabbitmq", "Publishes to RabbitMQ by outcome."),
	}
	if registry == nil {
		return m, nil
	}
	phase := func(name, help string, in Phase) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if p.State().Phase == in {
				return 1
			}
			return 0
		})
	}
	for _, c := range []prometheus.Collector{
		m.connects, m.outcomes,
		phase("postdate_rabbitmq_connected", "1 while RabbitMQ takes messages.", Connected),
		phase("postdate_rabbitmq_blocked", "1 while RabbitMQ is connected and blocks publishers.", Blocked),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "postdate_rabbitmq_in_flight", Help: "Messages that RabbitMQ has not answered.",
		}, func() float64 { return float64(p.inFlight()) }),
	} {
		if err := registry.Register(c); err != nil {
			return nil, postdate.E(postdate.KindInternal, "register the RabbitMQ publisher's metrics: %w", err)
		}
	}
	return m, nil
}

func (p *Publisher) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, l := range p.lanes {
		n += len(l.open)
	}
	return n
}
