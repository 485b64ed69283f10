package mongo

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// operationsOnFailed are what clients do with messages that failed.
func (x *routed) operationsOnFailed() map[string]func() func() error {
	ctx, s := x.t.Context(), x.s
	failed := func(at postdate.Time) (some []store.Versioned) {
		settlements := x.settlements(at, store.SettleFailed)
		x.must(s.Settle(ctx, settlements))
		for _, p := range settlements {
			some = append(some, store.Versioned{Key: p.Key, Version: p.Version})
		}
		return some
	}
	return map[string]func() func() error{
		"Redrive": func() func() error {
			some := failed(routedNow + 710_000)
			return func() error {
				for _, r := range s.Redrive(ctx, some, routedNow+9_000_000) {
					if r.Err != nil {
						return r.Err
					}
				}
				return nil
			}
		},
		"Purge": func() func() error {
			some := failed(routedNow + 720_000)
			return func() error {
				for _, err := range s.Purge(ctx, some) {
					if err != nil {
						return err
					}
				}
				return nil
			}
		},
	}
}
