package api

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// CancelListed cancels messages as [Cancel] does, if they are still at the versions that were read. The occurrences of
// a series that are messages of their own come first, and once more after it: what goes wrong before leaves the series
// as it is, so that who lists it again finds it. There is one error for each record.
func CancelListed(ctx context.Context, from store.Messages, records []postdate.Record, at postdate.Time) []error {
	errs := make([]error, len(records))
	var some []store.Versioned
	var places []int
	for i := range records {
		r := &records[i]
		if r.Occurrence != 0 {
			now, err := from.Get(ctx, r.Key)
			switch {
			case err == nil && now.Version != r.Version:
				err = store.ErrChanged(r.Key)
			case err == nil:
				_, err = takeRetried(ctx, from, r.Key, postdate.Far, at)
			}
			if err != nil && postdate.KindOf(err) != postdate.KindInternal { // damage does not keep the series going
				errs[i] = err
				continue
			}
		}
		some, places = append(some, store.Versioned{Key: r.Key, Version: r.Version}), append(places, i)
	}
	if len(some) == 0 {
		return errs
	}
	for n, result := range from.CancelVersions(ctx, some, at) {
		err := result.Err
		if result.State.Occurrence != 0 {
			last := cancelRetried(ctx, from, some[n].Key, postdate.Far, at)
			if err == nil || postdate.KindOf(last) == postdate.KindUnknown {
				err = last
			}
		}
		errs[places[n]] = err
	}
	return errs
}
