package mongo

import (
	"context"

	"github.com/postdate/postdate"
)

// Retried implements store.Messages.
func (s *Store) Retried(_ context.Context, series postdate.Key) ([]postdate.Key, error) {
	panic("TODO")
}
