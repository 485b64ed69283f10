package poller

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// channelLabelsMax bounds how many channels have series of their own; the others
// share one.
const channelLabelsMax = 200

// Metrics are the poller's series.
type Metrics struct {
	outcomes *prometheus.CounterVec
	lateness *prometheus.HistogramVec
	ended    *prometheus.CounterVec
	marked   prometheus.Counter
	overdue  prometheus.Gauge
	hand     prometheus.Gauge
	down     prometheus.Gauge

	mu     sync.Mutex
	labels map[string]bool
}

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	return &Metrics{
		outcomes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_publishes_total",
			Help: "Publishes by channel and outcome (confirmed, refused, down, unknown).",
		}, []string{"channel", "outcome"}),
		lateness: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "postdate_lateness_seconds", Help: "From the execution time to the broker's confirm.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600},
		}, []string{"channel"}),
		ended: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_settled_total", Help: "Attempts by what became of them (delivered, retry, failed, parked).",
		}, []string{"how"}),
		marked: auto.NewCounter(prometheus.CounterOpts{
			Name: "postdate_possible_duplicates_total",
			Help: "Messages published with the mark of a possible duplicate.",
		}),
		overdue: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_overdue_seconds", Help: "How long the earliest due message that is not settled has been " +
				"due; 0 where none is. Parked messages do not count.",
		}),
		hand: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_messages_in_hand", Help: "Messages in memory: claimed and not settled.",
		}),
		down: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_channels_down", Help: "Channels that take nothing at present; their messages are parked.",
		}),
		labels: map[string]bool{},
	}
}

func (m *Metrics) label(c postdate.Channel) string {
	name := c.Shown()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.labels[name] && len(m.labels) >= channelLabelsMax {
		return "other"
	}
	m.labels[name] = true
	return name
}

// Published counts the outcomes of a batch that ended at a given time.
func (m *Metrics) Published(p Published, at time.Time) {
	name := m.label(p.Batch[0].Delivery.Message.Channel)
	lateness := m.lateness.WithLabelValues(name)
	var counts [publisher.Unknown + 1]int
	marked := 0
	for i, it := range p.Batch {
		outcome := p.Results[i].Outcome
		if outcome > publisher.Unknown {
			outcome = publisher.Unknown
		}
		counts[outcome]++
		if outcome == publisher.Confirmed {
			lateness.Observe(at.Sub(it.Delivery.Message.ExecutionTime.Std()).Seconds())
		}
		if it.Delivery.PossibleDuplicate {
			marked++
		}
	}
	for outcome, n := range counts {
		if n > 0 {
			m.outcomes.WithLabelValues(name, publisher.Outcome(outcome).String()).Add(float64(n))
		}
	}
	m.marked.Add(float64(marked))
}

var settlingNames = [...]string{store.SettleDelivered: "delivered", store.SettleRetry: "retry",
	store.SettleFailed: "failed", store.SettlePark: "parked"}

// Settled counts the settlements that were written.
func (m *Metrics) Settled(ss []store.Settlement) {
	var counts [len(settlingNames)]int
	for i := range ss {
		counts[ss[i].How]++
	}
	for how, n := range counts {
		if n > 0 {
			m.ended.WithLabelValues(settlingNames[how]).Add(float64(n))
		}
	}
}

// Observe sets the gauges from v.
func (m *Metrics) Observe(v View) {
	var most time.Duration
	for _, t := range v.Overdue {
		most = max(most, v.At.Wall.Sub(t))
	}
	m.overdue.Set(most.Seconds())
	m.hand.Set(float64(v.Hand))
	m.down.Set(float64(v.Down))
}
