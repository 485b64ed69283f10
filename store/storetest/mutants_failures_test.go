package storetest

import (
	"context"
	"runtime"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in what failed messages leave for their failure channels.
type (
	failsWithout        struct{ *Mem }
	failsWithoutLater   struct{ *Mem }
	leavesBefore        struct{ *Mem }
	leavesAfter         struct{ *Mem }
	leavesThoughStale   struct{ *Mem }
	leavesThoughFenced  struct{ *Mem }
	leavesAgain         struct{ *Mem }
	leavesAtEnd         struct{ *Mem }
	leavesOnlyOne       struct{ *Mem }
	leavesOverThere     struct{ *Mem }
	leavesUncounted     struct{ *Mem }
	leavesForRetries    struct{ *Mem }
	leavesLoop          struct{ *Mem }
	leavesOccurrences   struct{ *Mem }
	leavesNotOfRetried  struct{ *Mem }
	retriedCountsLeft   struct{ *Mem }
	channelsForgetFails struct{ *Mem }
)

var bugsInFailures = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return failsWithout{m} },
	func(m *Mem) store.Store { return failsWithoutLater{m} },
	func(m *Mem) store.Store { return leavesBefore{m} },
	func(m *Mem) store.Store { return leavesAfter{m} },
	func(m *Mem) store.Store { return leavesThoughStale{m} },
	func(m *Mem) store.Store { return leavesThoughFenced{m} },
	func(m *Mem) store.Store { return leavesAgain{m} },
	func(m *Mem) store.Store { return leavesAtEnd{m} },
	func(m *Mem) store.Store { return leavesOnlyOne{m} },
	func(m *Mem) store.Store { return leavesOverThere{m} },
	func(m *Mem) store.Store { return leavesUncounted{m} },
	func(m *Mem) store.Store { return leavesForRetries{m} },
	func(m *Mem) store.Store { return leavesLoop{m} },
	func(m *Mem) store.Store { return leavesOccurrences{m} },
	func(m *Mem) store.Store { return leavesNotOfRetried{m} },
	func(m *Mem) store.Store { return retriedCountsLeft{m} },
}

// without are settlements that leave nothing where which says so.
func without(settlements []store.Settlement, which func(p *store.Settlement) bool) []store.Settlement {
	others := append([]store.Settlement(nil), settlements...)
	for i := range others {
		if which(&others[i]) {
			others[i].FailureChannel = ""
		}
	}
	return others
}

func all(*store.Settlement) bool { return true }

func (s failsWithout) Settle(ctx context.Context, settlements []store.Settlement) error {
	return s.Mem.Settle(ctx, without(settlements, all))
}

// What fails in a call with others leaves nothing.
func (s failsWithoutLater) Settle(ctx context.Context, settlements []store.Settlement) error {
	return s.Mem.Settle(ctx, without(settlements, func(p *store.Settlement) bool { return p != &settlements[0] && len(settlements) > 2 }))
}

// lefts are what settlements leave that would change something now.
func (m *Mem) lefts(settlements []store.Settlement) (left []postdate.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range settlements {
		if old := m.Settles(&settlements[i]); old != nil {
			if l, ok := settlements[i].Failed(&old.Record); ok {
				left = append(left, l)
			}
		}
	}
	return left
}

func (m *Mem) putNew(records []postdate.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		if m.Rows[r.Key] == nil {
			m.Put("", nil, r, nil)
		}
	}
}

func (s leavesBefore) Settle(ctx context.Context, settlements []store.Settlement) error {
	s.putNew(s.lefts(settlements))
	for range 20 {
		runtime.Gosched()
	}
	return s.Mem.Settle(ctx, settlements)
}

func (s leavesAfter) Settle(ctx context.Context, settlements []store.Settlement) error {
	left := s.lefts(settlements)
	err := s.Mem.Settle(ctx, without(settlements, all))
	for range 20 {
		runtime.Gosched()
	}
	s.putNew(left)
	return err
}

// leaveFor leaves what settlements for which which says so would leave, whether they change something or not.
func (m *Mem) leaveFor(settlements []store.Settlement, which func(r *Row, p *store.Settlement) bool) error {
	return m.settleThen(settlements, func(old *Row, p *store.Settlement) {
		r := m.Rows[p.Key]
		if old != nil || r == nil || !which(r, p) {
			return
		}
		if l, ok := p.Failed(&r.Record); ok {
			l = postdate.NewRecord(r.Failed(postdate.Failure{Version: p.Version, To: p.FailureChannel, At: p.At}), p.Version)
			if m.Rows[l.Key] == nil {
				m.Put("", nil, l, nil)
			}
		}
	})
}

func (s leavesThoughStale) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.leaveFor(settlements, func(r *Row, p *store.Settlement) bool { return r.Version != p.Version })
}

func (s leavesThoughFenced) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.leaveFor(settlements, func(r *Row, p *store.Settlement) bool { return r.Status == postdate.Pending && r.Version == p.Version })
}

func (s leavesAgain) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.leaveFor(settlements, func(r *Row, p *store.Settlement) bool { return r.Status == postdate.DeliveryFailed })
}

func (s leavesAtEnd) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if old != nil && old.Ending && p.Leaves() {
			open := old.Record
			open.Ending = false
			l, _ := p.Failed(&open)
			s.Put("", nil, l, nil)
		}
	})
}

func (s leavesOnlyOne) Settle(ctx context.Context, settlements []store.Settlement) error {
	left := false
	return s.Mem.Settle(ctx, without(settlements, func(p *store.Settlement) bool {
		was := left
		left = left || p.Leaves()
		return was
	}))
}

func (s leavesOverThere) Settle(ctx context.Context, settlements []store.Settlement) error {
	left := s.lefts(settlements)
	s.mu.Lock()
	for _, l := range left {
		if old := s.Rows[l.Key]; old != nil {
			s.Drop(old)
		}
	}
	s.mu.Unlock()
	return s.Mem.Settle(ctx, settlements)
}

// amendLeft settles, and changes what was left.
func (m *Mem) amendLeft(settlements []store.Settlement, change func(r *postdate.Record)) error {
	return m.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if old == nil {
			return
		}
		if l, ok := p.Failed(&old.Record); ok {
			m.amend(l.Key, change)
		}
	})
}

func (s leavesUncounted) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendLeft(settlements, func(r *postdate.Record) { s.count(&Row{Record: *r}, -1) })
}

func (s leavesLoop) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendLeft(settlements, func(r *postdate.Record) { r.FailureChannel = failed })
}

// What is left of an occurrence recurs.
func (s leavesOccurrences) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if old == nil || old.Occurrence == 0 {
			return
		}
		if l, ok := p.Failed(&old.Record); ok {
			s.amend(l.Key, func(r *postdate.Record) { r.Occurrence, r.Run = old.Occurrence, old.Run })
		}
	})
}

func (s leavesForRetries) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if old != nil && p.How != store.SettleFailed && p.FailureChannel != "" {
			as := *p
			as.How = store.SettleFailed
			if l, ok := as.Failed(&old.Record); ok && s.Rows[l.Key] == nil {
				s.Put("", nil, l, nil)
			}
		}
	})
}

func (s leavesNotOfRetried) Settle(ctx context.Context, settlements []store.Settlement) error {
	return s.Mem.Settle(ctx, without(settlements, func(p *store.Settlement) bool { _, is := p.Key.OfSeries(); return is }))
}

func (s retriedCountsLeft) Retried(ctx context.Context, series postdate.Key) ([]postdate.Key, error) {
	keys, err := s.Mem.Retried(ctx, series)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.Rows {
		if key.OfFailure() && key.ClientID() == series.ScheduleID && key.ScheduleID[len(series.ScheduleID)] == '/' {
			keys = append(keys, key)
		}
	}
	return keys, err
}

func (s channelsForgetFails) SetChannel(ctx context.Context, c store.ChannelSettings) error {
	c.FailureChannel = ""
	return s.Mem.SetChannel(ctx, c)
}
