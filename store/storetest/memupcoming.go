package storetest

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Upcoming implements store.Messages: it counts everything.
func (m *Mem) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return m.counted(&q).Slots(), nil
}

// Pending implements store.Messages.
func (m *Mem) Pending(_ context.Context, tenant string, at postdate.Time) (store.Pending, error) {
	q := store.PendingQuery(tenant, at)
	return m.counted(&q).Pending(), nil
}

func (m *Mem) counted(q *store.UpcomingQuery) *store.Forecast {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := store.NewForecast(q)
	f.Exact = true
	for _, line := range m.Waiting {
		for _, r := range line {
			if r.Tenant == q.Tenant && r.AttemptTime >= q.From && r.AttemptTime < q.To {
				f.Add(q.SlotOf(r.AttemptTime), r.Channel, store.WaitsOf(r.Parked, r.Paused), 1)
			}
		}
	}
	return f
}
