package quota

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Redrive implements store.Messages. What is redriven is pending again, as if it were inserted. If messages of
// several tenants do not lie together, it takes more than one call of s.
func (m *messages) Redrive(ctx context.Context, all []store.Failed, at postdate.Time) []store.Redriven {
	if !m.keeper.anybody.Load() {
		return m.Messages.Redrive(ctx, all, at)
	}
	results := make([]store.Redriven, 0, len(all))
	for from, to := 0, 0; from < len(all); from = to {
		for to < len(all) && all[to].Key.Tenant == all[from].Key.Tenant {
			to++
		}
		results = append(results, m.redrive(ctx, all[from:to], at)...)
	}
	return results
}

// redrive redrives messages of one tenant.
func (m *messages) redrive(ctx context.Context, all []store.Failed, at postdate.Time) []store.Redriven {
	tenant, results := all[0].Key.Tenant, make([]store.Redriven, len(all))
	if err := m.keeper.takeRate(tenant, len(all)); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	var places []int
	var changes []change
	for i := range all {
		r, err := m.Get(ctx, all[i].Key)
		if results[i].Err = err; err != nil {
			continue
		}
		places = append(places, i)
		if r.Status == postdate.DeliveryFailed {
			changes = append(changes, change{1, int64(len(r.Payload)), r.Channel})
		} else {
			changes = append(changes, change{}) // the store says what it is
		}
	}
	room, refused := m.keeper.reserve(tenant, changes)
	var fit []store.Failed
	var fitting []int
	for n, i := range places {
		if refused != nil && refused[n] != nil {
			results[i].Err = refused[n]
			m.keeper.countRefused(tenant, refused[n], 1)
			continue
		}
		fit, fitting = append(fit, all[i]), append(fitting, i)
	}
	for n, r := range m.redriveReserved(ctx, fit, at, room) {
		results[fitting[n]] = r
	}
	return results
}

// redriveReserved redrives what fits, and gives back what is reserved for it.
func (m *messages) redriveReserved(ctx context.Context, fit []store.Failed, at postdate.Time,
	room reserved) (redriven []store.Redriven) {
	defer func() {
		m.keeper.release(room, func(i int) error {
			if redriven == nil {
				return errPanic
			}
			return redriven[i].Err
		})
	}()
	if len(fit) == 0 {
		return nil
	}
	return m.Messages.Redrive(ctx, fit, at)
}
