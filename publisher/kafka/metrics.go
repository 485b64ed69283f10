package kafka

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/publisher"
)

// metrics are what an operator watches.
type metrics struct {
	connects prometheus.Counter
	outcomes publisher.Outcomes
}

func newMetrics(p *Publisher, registry prometheus.Registerer) *metrics {
	auto := promauto.With(registry)
	publisher.GaugePhase(auto, "postdate_kafka_connected", "1 while Kafka answers.", p.State, publisher.Connected)
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "postdate_kafka_in_flight", Help: "Messages that were handed over for Kafka and are not finished.",
	}, func() float64 { return float64(p.inFlight()) })
	return &metrics{
		connects: auto.NewCounter(prometheus.CounterOpts{
			Name: "postdate_kafka_connects_total",
			Help: "Connections made to Kafka's brokers; each broker takes a few.",
		}),
		outcomes: publisher.NewOutcomes(auto, "postdate_kafka_publishes_total", "Publishes to Kafka by outcome."),
	}
}

func (p *Publisher) inFlight() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		n += len(s.queue)
	}
	for _, t := range p.topics {
		n += len(t.waiting)
		for _, l := range t.lanes {
			n += len(l.queue)
			if l.batch != nil {
				n += len(l.batch.items)
			}
		}
	}
	return n
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (m *metrics) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		m.connects.Inc()
	}
}
