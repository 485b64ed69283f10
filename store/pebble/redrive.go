package pebble

import (
	"context"
	"errors"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Redrive implements store.Messages.
func (s *Store) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	results := make([]store.Redriven, len(some))
	if s.full.Load() {
		for i := range results {
			results[i].Err = s.errFull()
		}
		return results
	}
	decide := func(w *writer, from, to int) (err error) {
		w.remember(to - from)
		for i := from; i < to && err == nil; i++ {
			results[i], err = s.redrive(w, &some[i], at)
		}
		return err
	}
	for _, f := range s.under(ctx, len(some), func(i int) (int, int) { return some[i].Key.Bucket, 0 }, decide) {
		for i := f.from; i < f.to; i++ {
			if results[i].Err == nil {
				results[i].Err = f.err
			}
		}
	}
	return results
}

func (s *Store) redrive(w *writer, f *store.Versioned, at postdate.Time) (store.Redriven, error) {
	st, found, err := w.state(f.Key)
	switch {
	case err != nil:
		return store.Redriven{}, err
	case !found:
		return store.Redriven{Err: store.ErrNotFound(f.Key)}, nil
	}
	var expires postdate.Time
	if st.Status == postdate.DeliveryFailed {
		m, err := s.message(f.Key, st.ExecutionTime)
		if errors.Is(err, errLayout) || errors.Is(err, lsm.ErrNotFound) {
			s.reportDamage(f.Key, err)
			return store.Redriven{State: st.State, Err: s.readError(err)}, nil
		}
		if err != nil {
			return store.Redriven{}, err
		}
		expires, st.PayloadBytes = m.ExpiresAt, len(m.Payload)
	}
	next, now, err := f.Redrive(st.State, st.notBefore(), expires, at)
	if now {
		w.unend(f.Key, &st)
		st.State = next
		w.setState(f.Key, &st)
	}
	return store.Redriven{State: next, Err: err}, nil
}

// Purge implements store.Messages. Like every deletion it goes on when the disk is full.
func (s *Store) Purge(ctx context.Context, some []store.Versioned) []error {
	results := make([]error, len(some))
	decide := func(w *writer, from, to int) error {
		gone := map[postdate.Key]bool{}
		for i := from; i < to; i++ {
			f := &some[i]
			st, found, err := w.state(f.Key)
			if err != nil {
				return err
			}
			if !found || gone[f.Key] {
				results[i] = store.ErrNotFound(f.Key)
			} else if results[i] = f.CheckPurge(st.State); results[i] == nil {
				w.forget(f.Key, &st)
				gone[f.Key] = true
			}
		}
		return nil
	}
	for _, f := range s.under(ctx, len(some), func(i int) (int, int) { return some[i].Key.Bucket, 0 }, decide) {
		for i := f.from; i < f.to; i++ {
			if results[i] == nil {
				results[i] = f.err
			}
		}
	}
	return results
}
