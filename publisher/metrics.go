package publisher

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Outcomes counts what became of publishes.
type Outcomes struct{ *prometheus.CounterVec }

// NewOutcomes makes the counter of this name.
func NewOutcomes(auto promauto.Factory, name, help string) Outcomes {
	return Outcomes{auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"outcome"})}
}

// Count counts results and returns them.
func (o Outcomes) Count(results []Result) []Result {
	var n [Unknown + 1]int
	for _, r := range results {
		n[r.Outcome]++
	}
	for outcome, n := range n {
		if n > 0 {
			o.WithLabelValues(Outcome(outcome).String()).Add(float64(n))
		}
	}
	return results
}

// GaugePhase makes a gauge that is 1 while a publisher is in a phase.
func GaugePhase(auto promauto.Factory, name, help string, state func() State, in Phase) {
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if state().Phase == in {
			return 1
		}
		return 0
	})
}
