package quota

import (
	"context"
	"errors"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Redrive implements store.Messages. What is redriven is pending again, as if it were inserted. If messages of
// several tenants do not lie together, it takes more than one call of s.
func (m *messages) Redrive(ctx context.Context, all []store.Versioned, at postdate.Time) []store.Redriven {
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

// redrive redrives messages of one tenant. What has no room takes nothing of the rate: a job that waits for room
// tries again and again, and must not stop what the tenant schedules meanwhile.
func (m *messages) redrive(ctx context.Context, all []store.Versioned, at postdate.Time) []store.Redriven {
	tenant, results := all[0].Key.Tenant, make([]store.Redriven, len(all))
	defer func() { m.countRedrive(tenant, results) }()
	if err := m.keeper.rate(tenant, 0); err != nil { // saves reading
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	places, changes := m.redriveChanges(ctx, all, results)
	room, refused := m.keeper.reserve(tenant, changes)
	var fit []store.Versioned
	var fitting []int
	again := 0
	for n, i := range places {
		if refused != nil && refused[n] != nil {
			results[i].Err = refused[n]
			continue
		}
		fit, fitting = append(fit, all[i]), append(fitting, i)
		again += int(changes[n].messages)
	}
	if again > 0 {
		if err := m.keeper.rate(tenant, again); err != nil { // others took it meanwhile
			m.keeper.release(room, func(int) error { return err })
			for _, i := range fitting {
				results[i].Err = err
			}
			return results
		}
	}
	for n, r := range m.redriveReserved(ctx, fit, at, room) {
		results[fitting[n]] = r
	}
	return results
}

// redriveChanges are the places of those messages that are there, and what each of these may add.
func (m *messages) redriveChanges(ctx context.Context, all []store.Versioned,
	results []store.Redriven) (places []int, changes []change) {
	keys, each := make([]postdate.Key, len(all)), make([]change, len(all))
	for i := range all {
		keys[i] = all[i].Key
	}
	store.ReadEach(ctx, m, keys, func(i int, r *postdate.Record, err error) {
		results[i].Err = err
		if err == nil && r.Status == postdate.DeliveryFailed { // else the store says what it is
			each[i] = change{1, int64(len(r.Payload)), r.Channel}
		}
	})
	for i := range all {
		if results[i].Err == nil {
			places, changes = append(places, i), append(changes, each[i])
		}
	}
	return places, changes
}

// countRedrive counts for each limit once that a call was refused, whatever its messages: a job brings the same ones
// again and again.
func (m *messages) countRedrive(tenant string, results []store.Redriven) {
	counted := map[string]bool{}
	for i := range results {
		var e *postdate.Error
		if errors.As(results[i].Err, &e) && !counted[e.Limit] {
			counted[e.Limit] = true
			m.keeper.countRefused(tenant, e, 1)
		}
	}
}

// redriveReserved redrives what fits, and gives back what is reserved for it.
func (m *messages) redriveReserved(ctx context.Context, fit []store.Versioned, at postdate.Time,
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
