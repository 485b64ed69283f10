package storetest

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Redrive implements store.Messages.
func (m *Mem) Redrive(_ context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Redriven, len(some))
	for i := range some {
		results[i] = m.redrive(&some[i], at)
	}
	return results
}

func (m *Mem) redrive(f *store.Versioned, at postdate.Time) store.Redriven {
	old := m.Rows[f.Key]
	if old == nil {
		return store.Redriven{Err: store.ErrNotFound(f.Key)}
	}
	state, now, err := f.Redrive(old.State, old.NotBefore(), old.ExpiresAt, at)
	if now {
		next := old.Record
		next.State = state
		m.Put("redrive", old, next, nil)
	}
	return store.Redriven{State: state, Err: err}
}

// Purge implements store.Messages.
func (m *Mem) Purge(_ context.Context, some []store.Versioned) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]error, len(some))
	for i := range some {
		old := m.Rows[some[i].Key]
		if old == nil {
			results[i] = store.ErrNotFound(some[i].Key)
		} else if results[i] = some[i].CheckPurge(old.State); results[i] == nil {
			m.Drop(old)
		}
	}
	return results
}
