package storetest

import (
	"cmp"
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in how they list what recurs, what failed, or what is pending.
type (
	recurringIsIgnored   struct{ *Mem }
	recurringIsOpposite  struct{ *Mem }
	recurringMissesEnded struct{ *Mem }
	recurringAlone       struct{ *Mem }
	notRecurringIgnored  struct{ *Mem }
	recurringOfFirst     struct{ *Mem }
	failedListsRedriven  struct{ *Mem }
	failedMissesAgain    struct{ *Mem }
	failedIgnoresRange   struct{ *Mem }
	failedIgnoresTenants struct{ *Mem }
	failedStatesBare     struct{ *Mem }
	pendingByAttempt     struct{ *Mem }
	pendingMissesLater   struct{ *Mem }
	pendingMissesParked  struct{ *Mem }
	pendingFromAttempt   struct{ *Mem }
	pendingListsTwice    struct{ *Mem }
)

// listRecurring lists what a filter selects by another measure.
func (m *Mem) listRecurring(q store.ListQuery, selects func(which store.Recurring, r *postdate.Record) bool) (
	store.ListPage, error) {
	if q.Recurring == 0 {
		return m.List(context.Background(), q)
	}
	which, limit := q.Recurring, q.Limit
	q.Recurring, q.Limit = 0, plenty
	all, err := m.List(context.Background(), q)
	all.Records = slices.DeleteFunc(all.Records, func(r postdate.Record) bool { return !selects(which, &r) })
	return paged(all.Records, limit), err
}

func (s recurringIsIgnored) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listRecurring(q, func(store.Recurring, *postdate.Record) bool { return true })
}

func (s recurringIsOpposite) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listRecurring(q, func(which store.Recurring, r *postdate.Record) bool {
		return !which.Selects(r.Recurrence != nil)
	})
}

// A series that has ended counts as a message that is sent once.
func (s recurringMissesEnded) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listRecurring(q, func(which store.Recurring, r *postdate.Record) bool {
		return which.Selects(r.Recurrence != nil && r.Status == postdate.Pending)
	})
}

// Beside it no label, channel or status counts.
func (s recurringAlone) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.Recurring != 0 {
		q.Label, q.Channel, q.Status = "", "", 0
	}
	return s.Mem.List(ctx, q)
}

func (s notRecurringIgnored) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listRecurring(q, func(which store.Recurring, r *postdate.Record) bool {
		return which == store.NotRecurring || r.Recurrence != nil
	})
}

// Occurrences that are messages of their own count as what recurs.
func (s recurringOfFirst) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listRecurring(q, func(which store.Recurring, r *postdate.Record) bool {
		_, occurs := r.Key.OfSeries()
		return which.Selects(r.Recurrence != nil || occurs)
	})
}

// What was redriven is still listed.
func (s failedListsRedriven) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listStatus(q, postdate.DeliveryFailed, func(r *postdate.Record) bool {
		return r.Status == postdate.DeliveryFailed || r.Redriven
	})
}

func (s failedMissesAgain) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listStatus(q, postdate.DeliveryFailed, func(r *postdate.Record) bool {
		return r.Status == postdate.DeliveryFailed && !r.Redriven
	})
}

// listStatus lists what counts as having a status.
func (m *Mem) listStatus(q store.ListQuery, status postdate.Status, has func(r *postdate.Record) bool) (
	store.ListPage, error) {
	if q.Status != status {
		return m.List(context.Background(), q)
	}
	limit := q.Limit
	q.Status, q.Limit = 0, plenty
	all, err := m.List(context.Background(), q)
	all.Records = slices.DeleteFunc(all.Records, func(r postdate.Record) bool { return !has(&r) })
	return paged(all.Records, limit), err
}

func (s failedIgnoresRange) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.Status == postdate.DeliveryFailed {
		q.From, q.To = 0, 0
	}
	return s.Mem.List(ctx, q)
}

func (s failedIgnoresTenants) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.Status == postdate.DeliveryFailed && q.Tenant == "tenant-b" {
		q.Tenant = tenant
	}
	return s.Mem.List(ctx, q)
}

// A record of states only has no channel.
func (s failedStatesBare) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	for i := range page.Records {
		if q.StatesOnly {
			page.Records[i].Channel = ""
		}
	}
	return page, err
}

// The order is that of attempts.
func (s pendingByAttempt) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	if q.Status == postdate.Pending {
		slices.SortStableFunc(page.Records, func(a, b postdate.Record) int {
			return cmp.Compare(a.AttemptTime, b.AttemptTime)
		})
	}
	return page, err
}

// What is retried or redriven is not listed.
func (s pendingMissesLater) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listStatus(q, postdate.Pending, func(r *postdate.Record) bool {
		return r.Status == postdate.Pending && (r.AttemptTime == r.ExecutionTime || r.Parked)
	})
}

func (s pendingMissesParked) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listStatus(q, postdate.Pending, func(r *postdate.Record) bool {
		return r.Status == postdate.Pending && !r.Parked
	})
}

// A range is one of attempts.
func (s pendingFromAttempt) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	from := q.From
	q.From = 0
	return s.listStatus(q, postdate.Pending, func(r *postdate.Record) bool {
		return r.Status == postdate.Pending && r.AttemptTime >= from
	})
}

// What is parked is listed where it waits, too.
func (s pendingListsTwice) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	var all []postdate.Record
	for _, r := range page.Records {
		all = append(all, r)
		if q.Status == postdate.Pending && r.Parked {
			all = append(all, r)
		}
	}
	page.Records = all[:min(len(all), q.Limit)]
	return page, err
}

// These bugs are caught in the area of lists.
var bugsInFew = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return recurringIsIgnored{m} },
	func(m *Mem) store.Store { return recurringIsOpposite{m} },
	func(m *Mem) store.Store { return recurringMissesEnded{m} },
	func(m *Mem) store.Store { return recurringAlone{m} },
	func(m *Mem) store.Store { return notRecurringIgnored{m} },
	func(m *Mem) store.Store { return recurringOfFirst{m} },
	func(m *Mem) store.Store { return failedListsRedriven{m} },
	func(m *Mem) store.Store { return failedMissesAgain{m} },
	func(m *Mem) store.Store { return failedIgnoresRange{m} },
	func(m *Mem) store.Store { return failedIgnoresTenants{m} },
	func(m *Mem) store.Store { return failedStatesBare{m} },
	func(m *Mem) store.Store { return pendingByAttempt{m} },
	func(m *Mem) store.Store { return pendingMissesLater{m} },
	func(m *Mem) store.Store { return pendingMissesParked{m} },
	func(m *Mem) store.Store { return pendingFromAttempt{m} },
	func(m *Mem) store.Store { return pendingListsTwice{m} },
}
