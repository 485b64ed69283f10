package pebble

import (
	"errors"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate/store"
)

// leave makes the message that a failed one leaves for its failure channel, which it has. old is the state of what
// failed. If that cannot be, it returns a settlement that says so: neither a full disk nor a damaged message must
// hold up others.
func (s *Store) leave(w *writer, p *store.Settlement, old *state) (*store.Settlement, error) {
	const without = "it did not go to its failure channel, because "
	if s.full.Load() {
		return p.WithReason(without + "the store's disk is almost full"), nil
	}
	m, err := s.message(p.Key, old.ExecutionTime)
	if errors.Is(err, errLayout) || errors.Is(err, lsm.ErrNotFound) {
		s.reportDamage(p.Key, err)
		return p.WithReason(without + "its message is damaged"), nil
	}
	if err != nil {
		return nil, err
	}
	failed := old.record(m)
	left, _ := p.Failed(&failed)
	if _, there, err := w.state(left.Key); err != nil || there {
		return p, err
	}
	st := stateOf(&left.Message, left.State)
	w.setMessage(&left.Message)
	w.setState(left.Key, &st)
	return p, nil
}
