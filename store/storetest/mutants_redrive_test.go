package storetest

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in how they redrive and purge.
type (
	redriveKeepsVersion   struct{ *Mem }
	redriveKeepsAttempts  struct{ *Mem }
	redriveDropsMark      struct{ *Mem }
	redriveDropsLog       struct{ *Mem }
	redriveDropsError     struct{ *Mem }
	redriveKeepsParked    struct{ *Mem }
	redriveIsEarly        struct{ *Mem }
	redriveTakesEnded     struct{ *Mem }
	redriveTakesExpired   struct{ *Mem }
	redriveIgnoresVersion struct{ *Mem }
	redriveRepeatFails    struct{ *Mem }
	redriveRaces          struct{ *Mem }
	redriveCountsNone     struct{ *Mem }
	redriveCountsFailed   struct{ *Mem }
	redriveStopsAtError   struct{ *Mem }
	purgeTakesEnded       struct{ *Mem }
	purgeTakesRedriven    struct{ *Mem }
	purgeIgnoresVersion   struct{ *Mem }
	purgeSparesDoubtful   struct{ *Mem }
	purgeTellsNobody      struct{ *Mem }
	purgeStopsAtError     struct{ *Mem }
	purgeTakesSeries      struct{ *Mem }
	purgeRacesRedrive     struct{ *Mem }
)

// redriveThen redrives, and amends what this changed. old is from before it.
func (m *Mem) redriveThen(some []store.Versioned, at postdate.Time,
	change func(old *Row, r *postdate.Record)) []store.Redriven {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Redriven, len(some))
	for i := range some {
		old := m.Rows[some[i].Key]
		results[i] = m.redrive(&some[i], at)
		if r := m.Rows[some[i].Key]; r != old {
			m.amend(r.Key, func(r *postdate.Record) { change(old, r) })
			results[i].State = m.Rows[r.Key].State
		}
	}
	return results
}

func (s redriveKeepsVersion) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(old *Row, r *postdate.Record) { r.Version = old.Version })
}

func (s redriveKeepsAttempts) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(old *Row, r *postdate.Record) { r.Attempts = old.Attempts })
}

func (s redriveDropsMark) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(_ *Row, r *postdate.Record) { r.PossibleDuplicate = false })
}

func (s redriveDropsLog) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(_ *Row, r *postdate.Record) { r.Log = nil })
}

func (s redriveDropsError) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(_ *Row, r *postdate.Record) { r.LastError = "" })
}

func (s redriveKeepsParked) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(_ *Row, r *postdate.Record) { r.Parked = true })
}

func (s redriveIsEarly) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(_ *Row, r *postdate.Record) { r.AttemptTime = at })
}

func (s redriveCountsFailed) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveThen(some, at, func(_ *Row, r *postdate.Record) { r.Redriven = false })
}

// redriveAs redrives as if messages were in another state.
func (m *Mem) redriveAs(some []store.Versioned, at postdate.Time, as func(r *postdate.Record)) []store.Redriven {
	m.mu.Lock()
	for _, f := range some {
		if m.Rows[f.Key] != nil && m.Rows[f.Key].Status.Final() {
			m.amend(f.Key, as)
		}
	}
	m.mu.Unlock()
	return m.Redrive(context.Background(), some, at)
}

func (s redriveTakesEnded) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveAs(some, at, func(r *postdate.Record) { r.Status = postdate.DeliveryFailed })
}

func (s redriveTakesExpired) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	return s.redriveAs(some, at, func(r *postdate.Record) { r.ExpiresAt = 0 })
}

func (s redriveIgnoresVersion) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	whichever := make([]store.Versioned, len(some))
	for i := range some {
		whichever[i].Key = some[i].Key
	}
	return s.Mem.Redrive(ctx, whichever, at)
}

// Redrive refuses to answer for what it did before.
func (s redriveRepeatFails) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	versions := make([]uint64, len(some))
	for i := range some {
		versions[i] = s.present(some[i].Key).Version
	}
	results := s.Mem.Redrive(ctx, some, at)
	for i, r := range results {
		if r.Err == nil && r.State.Version == versions[i] {
			results[i].Err = store.ErrChanged(some[i].Key)
		}
	}
	return results
}

// Redrive looks what failed, and redrives that after others had their turn.
func (s redriveRaces) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	was := s.present(some[0].Key)
	yield()
	results := s.Mem.Redrive(ctx, some, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.Rows[some[0].Key]; was.Status == postdate.DeliveryFailed && r != nil && r.Version != was.Version+1 ||
		was.Status == postdate.DeliveryFailed && r != nil && results[0].State.Version == was.Version {
		s.amend(some[0].Key, func(r *postdate.Record) { r.Version++ })
	} else if was.Status == postdate.DeliveryFailed && r == nil {
		s.Put("", nil, was, nil)
	}
	return results
}

func (s redriveCountsNone) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	results := s.Mem.Redrive(ctx, some, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range results {
		if r.Err == nil {
			s.count(s.Rows[some[i].Key], -1)
		}
	}
	return results
}

func (s redriveStopsAtError) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	results := make([]store.Redriven, len(some))
	for i := range some {
		if results[i] = s.Mem.Redrive(ctx, some[i:i+1], at)[0]; results[i].Err != nil {
			return results
		}
	}
	return results
}

// purgeAs purges as if messages were in another state, and answers for each.
func (m *Mem) purgeAs(some []store.Versioned, may func(f *store.Versioned, r *Row) bool) []error {
	results := make([]error, len(some))
	for i := range some {
		m.mu.Lock()
		r := m.Rows[some[i].Key]
		goes := r != nil && may(&some[i], r)
		if goes {
			m.Drop(r)
		}
		m.mu.Unlock()
		if !goes {
			results[i] = m.Purge(context.Background(), some[i:i+1])[0]
		}
	}
	return results
}

func (s purgeTakesEnded) Purge(_ context.Context, some []store.Versioned) []error {
	return s.purgeAs(some, func(_ *store.Versioned, r *Row) bool { return r.Status.Final() })
}

func (s purgeTakesRedriven) Purge(_ context.Context, some []store.Versioned) []error {
	return s.purgeAs(some, func(_ *store.Versioned, r *Row) bool { return r.Redriven })
}

func (s purgeIgnoresVersion) Purge(_ context.Context, some []store.Versioned) []error {
	return s.purgeAs(some, func(_ *store.Versioned, r *Row) bool { return r.Status == postdate.DeliveryFailed })
}

func (s purgeTakesSeries) Purge(ctx context.Context, some []store.Versioned) []error {
	results := s.Mem.Purge(ctx, some)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.Rows {
		if _, is := key.OfSeries(); is && results[0] == nil {
			s.Drop(r)
		}
	}
	return results
}

func (s purgeSparesDoubtful) Purge(ctx context.Context, some []store.Versioned) []error {
	if s.present(some[0].Key).PossibleDuplicate {
		return []error{store.ErrChanged(some[0].Key)}
	}
	return s.Mem.Purge(ctx, some)
}

func (s purgeTellsNobody) Purge(ctx context.Context, some []store.Versioned) []error {
	results := s.Mem.Purge(ctx, some)
	for i, err := range results {
		if err != nil && postdate.KindOf(err) == postdate.KindNotFound {
			results[i] = nil
		}
	}
	return results
}

func (s purgeStopsAtError) Purge(ctx context.Context, some []store.Versioned) []error {
	results := make([]error, len(some))
	for i := range some {
		if results[i] = s.Mem.Purge(ctx, some[i:i+1])[0]; results[i] != nil {
			return results
		}
	}
	return results
}

// Purge deletes by the id what it saw failed before others had their turn.
func (s purgeRacesRedrive) Purge(ctx context.Context, some []store.Versioned) []error {
	if s.present(some[0].Key).Status == postdate.DeliveryFailed {
		yield()
		return s.purgeAs(some, func(*store.Versioned, *Row) bool { return true })
	}
	return s.Mem.Purge(ctx, some)
}

var bugsInRedrive = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return redriveKeepsVersion{m} },
	func(m *Mem) store.Store { return redriveKeepsAttempts{m} },
	func(m *Mem) store.Store { return redriveDropsMark{m} },
	func(m *Mem) store.Store { return redriveDropsLog{m} },
	func(m *Mem) store.Store { return redriveDropsError{m} },
	func(m *Mem) store.Store { return redriveKeepsParked{m} },
	func(m *Mem) store.Store { return redriveIsEarly{m} },
	func(m *Mem) store.Store { return redriveTakesEnded{m} },
	func(m *Mem) store.Store { return redriveTakesExpired{m} },
	func(m *Mem) store.Store { return redriveIgnoresVersion{m} },
	func(m *Mem) store.Store { return redriveRepeatFails{m} },
	func(m *Mem) store.Store { return redriveRaces{m} },
	func(m *Mem) store.Store { return redriveCountsNone{m} },
	func(m *Mem) store.Store { return redriveCountsFailed{m} },
	func(m *Mem) store.Store { return redriveStopsAtError{m} },
	func(m *Mem) store.Store { return purgeRacesRedrive{m} },
}

var bugsInPurge = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return purgeTakesEnded{m} },
	func(m *Mem) store.Store { return purgeTakesRedriven{m} },
	func(m *Mem) store.Store { return purgeIgnoresVersion{m} },
	func(m *Mem) store.Store { return purgeSparesDoubtful{m} },
	func(m *Mem) store.Store { return purgeTellsNobody{m} },
	func(m *Mem) store.Store { return purgeStopsAtError{m} },
	func(m *Mem) store.Store { return purgeTakesSeries{m} },
}
