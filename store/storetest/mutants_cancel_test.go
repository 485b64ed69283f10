package storetest

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in how they cancel a version.
type (
	cancelIgnoresVersion struct{ *Mem }
	cancelEndsAnyVersion struct{ *Mem }
)

func (s cancelIgnoresVersion) CancelVersions(ctx context.Context, some []store.Versioned,
	at postdate.Time) []store.Cancelled {
	keys := make([]postdate.Key, len(some))
	for i := range some {
		keys[i] = some[i].Key
	}
	return s.Mem.Cancel(ctx, keys, at)
}

// CancelVersions looks at the version of what it cancels, but not of a series that it is too late for.
func (s cancelEndsAnyVersion) CancelVersions(ctx context.Context, some []store.Versioned,
	at postdate.Time) []store.Cancelled {
	results := s.Mem.CancelVersions(ctx, some, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range some {
		if r := s.Rows[some[i].Key]; results[i].Err != nil && r != nil && r.Status == postdate.Pending &&
			r.Occurrence != 0 && !s.withdrawable(r) {
			s.amend(r.Key, func(r *postdate.Record) { r.Ending = true })
		}
	}
	return results
}
