package storetest

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in what they say is upcoming.
type (
	upcomingByExecution  struct{ *Mem }
	upcomingCountsAll    struct{ *Mem }
	upcomingCountsParked struct{ *Mem }
	upcomingCountsPaused struct{ *Mem }
	upcomingMixesTenants struct{ *Mem }
	upcomingTakesTo      struct{ *Mem }
	upcomingMissesFrom   struct{ *Mem }
	upcomingIsOneBucket  struct{ *Mem }
	upcomingIgnoresLow   struct{ *Mem }
	upcomingMixesAll     struct{ *Mem }
	upcomingNamesMore    struct{ *Mem }
	upcomingIsNeverExact struct{ *Mem }
	upcomingLeavesGaps   struct{ *Mem }
	pendingIsUpcoming    struct{ *Mem }
	pendingIsAllDue      struct{ *Mem }
	pendingMixesTenants  struct{ *Mem }
)

// forecast counts the rows that counts selects at the times that it gives.
func (m *Mem) forecast(q *store.UpcomingQuery, counts func(r *Row) (at postdate.Time, ok bool)) *store.Forecast {
	f := store.NewForecast(q)
	f.Exact = true
	for _, r := range m.Rows {
		if at, ok := counts(r); ok && at >= q.From && at < q.To {
			f.Add(q.SlotOf(at), r.Channel, store.ForTime, 1)
		}
	}
	return f
}

// waitsFor is what counts in a store without a bug.
func waitsFor(q *store.UpcomingQuery, r *Row) bool {
	return r.Tenant == q.Tenant && r.Status == postdate.Pending && !r.Parked && !r.Paused
}

func (s upcomingByExecution) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) { return r.ExecutionTime, waitsFor(&q, r) }).Slots(), nil
}

func (s upcomingCountsAll) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) {
		return r.AttemptTime, r.Tenant == q.Tenant && !r.Parked && !r.Paused
	}).Slots(), nil
}

func (s upcomingCountsParked) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) {
		return r.AttemptTime, waitsFor(&q, r) || r.Parked && r.Tenant == q.Tenant
	}).Slots(), nil
}

func (s upcomingCountsPaused) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) {
		return r.AttemptTime, waitsFor(&q, r) || r.Paused && r.Tenant == q.Tenant
	}).Slots(), nil
}

func (s upcomingMixesTenants) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) {
		other := q
		other.Tenant = r.Tenant
		return r.AttemptTime, waitsFor(&other, r)
	}).Slots(), nil
}

func (s upcomingTakesTo) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) {
		if r.AttemptTime == q.To {
			return q.To - 1, waitsFor(&q, r)
		}
		return r.AttemptTime, waitsFor(&q, r)
	}).Slots(), nil
}

func (s upcomingMissesFrom) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) {
		return r.AttemptTime, r.AttemptTime != q.From && waitsFor(&q, r)
	}).Slots(), nil
}

func (s upcomingIsOneBucket) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	f := s.forecast(&q, func(r *Row) (postdate.Time, bool) { return r.AttemptTime, r.Bucket == 0 && waitsFor(&q, r) })
	f.Scale(func(int) float64 { return float64(s.Buckets()) })
	return f.Slots(), nil
}

// Only a channel's messages of the usual priority count.
func (s upcomingIgnoresLow) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) {
		return r.AttemptTime, waitsFor(&q, r) && (q.Channel == "" || r.Route() == postdate.RouteOf(r.Tenant, q.Channel))
	}).Slots(), nil
}

// With a channel all are counted.
func (s upcomingMixesAll) Upcoming(_ context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	q.Channel = ""
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) { return r.AttemptTime, waitsFor(&q, r) }).Slots(), nil
}

// Each slot names the channels that have most in it.
func (s upcomingNamesMore) Upcoming(ctx context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	slots, err := s.Mem.Upcoming(ctx, q)
	for i := range slots {
		one := q
		one.From, one.To = q.Begin(i), q.Begin(i+1)
		own, _ := s.Mem.Upcoming(ctx, one)
		slots[i].Channels = own[0].Channels
	}
	return slots, err
}

func (s upcomingIsNeverExact) Upcoming(ctx context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	slots, err := s.Mem.Upcoming(ctx, q)
	for i := range slots {
		slots[i].Exact = slots[i].Count > 0
	}
	return slots, err
}

func (s upcomingLeavesGaps) Upcoming(ctx context.Context, q store.UpcomingQuery) (some []store.UpcomingSlot, err error) {
	slots, err := s.Mem.Upcoming(ctx, q)
	for i := range slots {
		if slots[i].Count > 0 {
			some = append(some, slots[i])
		}
	}
	return some, err
}

// What waits for its time alone is pending.
func (s pendingIsUpcoming) Pending(_ context.Context, tenant string, at postdate.Time) (store.Pending, error) {
	q := store.PendingQuery(tenant, at)
	return s.forecast(&q, func(r *Row) (postdate.Time, bool) { return r.AttemptTime, waitsFor(&q, r) }).Pending(), nil
}

func (s pendingIsAllDue) Pending(ctx context.Context, tenant string, _ postdate.Time) (store.Pending, error) {
	return s.Mem.Pending(ctx, tenant, postdate.LatestTime)
}

func (s pendingMixesTenants) Pending(_ context.Context, tenant string, at postdate.Time) (store.Pending, error) {
	q := store.PendingQuery(tenant, at)
	f := s.counted(&q)
	q.Tenant = "tenant-b"
	f.Join(s.counted(&q))
	return f.Pending(), nil
}

var bugsInUpcoming = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return upcomingByExecution{m} },
	func(m *Mem) store.Store { return upcomingCountsAll{m} },
	func(m *Mem) store.Store { return upcomingCountsParked{m} },
	func(m *Mem) store.Store { return upcomingCountsPaused{m} },
	func(m *Mem) store.Store { return upcomingMixesTenants{m} },
	func(m *Mem) store.Store { return upcomingTakesTo{m} },
	func(m *Mem) store.Store { return upcomingMissesFrom{m} },
	func(m *Mem) store.Store { return upcomingIsOneBucket{m} },
	func(m *Mem) store.Store { return upcomingIgnoresLow{m} },
	func(m *Mem) store.Store { return upcomingMixesAll{m} },
	func(m *Mem) store.Store { return upcomingNamesMore{m} },
	func(m *Mem) store.Store { return upcomingIsNeverExact{m} },
	func(m *Mem) store.Store { return upcomingLeavesGaps{m} },
	func(m *Mem) store.Store { return pendingIsUpcoming{m} },
	func(m *Mem) store.Store { return pendingIsAllDue{m} },
	func(m *Mem) store.Store { return pendingMixesTenants{m} },
}
