package storetest

import (
	"context"

	"github.com/postdate/postdate/store"
)

// Upcoming implements store.Messages: it counts everything.
func (m *Mem) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := store.NewForecast(&q)
	for _, line := range m.Waiting {
		for _, r := range line {
			if r.Tenant == q.Tenant && !r.Parked && !r.Paused && r.AttemptTime >= q.From && r.AttemptTime < q.To {
				f.Add(q.SlotOf(r.AttemptTime), r.Channel, 1)
			}
		}
	}
	return f.Slots(true), nil
}
