package store

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/postdate/postdate"
)

// readsMax is how many messages of a call are read at a time.
const readsMax = 16

// ReadEach reads messages side by side, and calls do with each, from several goroutines at the same time. It keeps none
// of them, as they may be large. It returns once do was called for all.
func ReadEach(ctx context.Context, s Messages, keys []postdate.Key, do func(i int, r *postdate.Record, err error)) {
	var group errgroup.Group
	group.SetLimit(readsMax)
	for i, key := range keys {
		group.Go(func() error {
			r, err := s.Get(ctx, key)
			do(i, &r, err)
			return nil
		})
	}
	_ = group.Wait() // do has the errors
}
