package rabbitmq

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/postdate/postdate/publisher"
)

// metrics are what an operator watches.
type metrics struct {
	connects prometheus.Counter
	outcomes publisher.Outcomes
}

func newMetrics(p *Publisher, registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	publisher.GaugePhase(auto, "postdate_rabbitmq_connected", "1 while RabbitMQ takes messages.",
		p.State, publisher.Connected)
	publisher.GaugePhase(auto, "postdate_rabbitmq_blocked", "1 while RabbitMQ is connected and blocks publishers.",
		p.State, publisher.Blocked)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "postdate_rabbitmq_in_flight", Help: "Messages that RabbitMQ has not answered.",
	}, func() float64 { return float64(p.inFlight()) })
	return &metrics{
		connects: auto.NewCounter(prometheus.CounterOpts{
			Name: "postdate_rabbitmq_connects_total",
			Help: "Connections made to RabbitMQ; all but the first replace a lost one.",
		}),
		outcomes: publisher.NewOutcomes(auto, "postdate_rabbitmq_publishes_total", "Publishes to RabbitMQ by outcome."),
	}
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
