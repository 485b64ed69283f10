package pebble

import (
	"context"
	"errors"
	"math/rand/v2"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// firstVersion draws the version of a new message. A version is compared with that of an
// earlier message only if a settlement or a replace comes after its message expired and its id
// was reused: then 1 in 2^35 is mistaken for the new one's. More bits would take more bytes in
// each state, of which a message has three; these fit into five.
func firstVersion() uint64 { return 1 + rand.Uint64N(1<<35-1) }

// messageRoomBytes is about what a message takes besides its payload and headers.
const messageRoomBytes = 256

// labelRoomBytes is about what a label takes besides its own bytes.
const labelRoomBytes = 96

// admit waits until the disk can take the messages. If it fails, nothing was written.
func (s *Store) admit(ctx context.Context, messages ...postdate.Message) error {
	if s.full.Load() {
		return s.errFull()
	}
	bytes := 0
	for i := range messages {
		bytes += messageRoomBytes + messages[i].Bytes()
		for _, label := range messages[i].Labels {
			bytes += labelRoomBytes + 3*len(label) // in the message, in its state and in a key
		}
	}
	return s.pace.admit(ctx, bytes)
}

// Insert implements store.Messages.
func (s *Store) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := make([]store.Inserted, len(messages))
	if err := s.admit(ctx, messages...); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	decide := func(w *writer, from, to int) error {
		return s.insertChunk(w, messages[from:to], results[from:to])
	}
	of := func(i int) (bucket, bytes int) { return messages[i].Bucket, messages[i].Bytes() }
	for _, f := range s.under(ctx, len(messages), of, decide) {
		for i := f.from; i < f.to; i++ {
			if results[i].Err == nil {
				results[i] = store.Inserted{Err: f.err}
			}
		}
	}
	return results
}

func (s *Store) insertChunk(w *writer, messages []postdate.Message, results []store.Inserted) error {
	w.remember(len(messages))
	for _, i := range inOrder(len(messages), func(i int) *postdate.Key { return &messages[i].Key }) {
		m := &messages[i]
		old, found, err := w.state(m.Key)
		if err != nil {
			return err
		}
		if found {
			if results[i], err = s.insertedBefore(m, &old); err != nil {
				return err
			}
			continue
		}
		st := stateOf(m, postdate.NewState(m, firstVersion()))
		w.setMessage(m)
		w.setState(m.Key, &st)
		results[i] = store.Inserted{Created: true, ExecutionTime: m.ExecutionTime, Status: postdate.Pending}
	}
	return nil
}

// insertedBefore is the result for a message whose id is taken. Only the message knows the digest of the request that
// made it.
func (s *Store) insertedBefore(m *postdate.Message, old *state) (store.Inserted, error) {
	if old.Digest == m.Digest {
		return store.Inserted{ExecutionTime: old.ExecutionTime, Status: old.Status}, nil
	}
	there, err := s.message(m.Key, old.ExecutionTime)
	if err == nil {
		if at, repeats := there.Repeats(m.Digest); repeats {
			return store.Inserted{ExecutionTime: at, Status: old.Status}, nil
		}
	} else if !errors.Is(err, lsm.ErrNotFound) { // then it comes with this very batch, and has no Original
		return store.Inserted{}, err
	}
	return store.Inserted{Err: store.ErrExists(m.Key, old.Status)}, nil
}

// Get implements store.Messages.
func (s *Store) Get(_ context.Context, key postdate.Key) (postdate.Record, error) {
	for {
		st, found, err := s.state(key)
		if err != nil {
			return postdate.Record{}, s.readError(err)
		}
		if !found {
			return postdate.Record{}, store.ErrNotFound(key)
		}
		m, err := s.message(key, st.ExecutionTime)
		if errors.Is(err, lsm.ErrNotFound) {
			if s.changed(key, &st) {
				continue // replaced or expired between the two reads: look again
			}
		}
		if err != nil {
			return postdate.Record{}, s.readError(err)
		}
		return st.record(m), s.awaitSynced()
	}
}

// changed says whether key's state is no longer what was read.
func (s *Store) changed(key postdate.Key, read *state) bool {
	now, found, err := s.state(key)
	return err == nil && (!found || now.Version != read.Version)
}

// Replace implements store.Messages.
func (s *Store) Replace(ctx context.Context, next, was postdate.Record) (present postdate.Record, err error) {
	if err := s.admit(ctx, next.Message); err != nil {
		return postdate.Record{}, err
	}
	m := &next.Message
	var refused error
	decide := func(w *writer, _, _ int) error {
		old, found, err := w.state(m.Key)
		if err != nil {
			return err
		}
		if refused = s.mayReplace(m.Key, &old, found, &was); refused != nil {
			if postdate.KindOf(refused) == postdate.KindTooLate {
				message, err := s.message(m.Key, old.ExecutionTime)
				present = old.record(message)
				return err
			}
			return nil
		}
		next.Log = store.ReplacedLog(m, old.Log)
		st := stateOf(m, next.State)
		st.Series, st.Log = next.Series, next.Log
		w.unplace(m.Key, &old)
		w.deleteMessage(m.Key, &old)
		w.setMessage(m)
		w.setState(m.Key, &st)
		present = next
		return nil
	}
	if err := s.underAll(ctx, 1, func(int) (int, int) { return m.Bucket, 0 }, decide); err != nil {
		return postdate.Record{}, err
	}
	return present, refused
}

func (s *Store) mayReplace(key postdate.Key, old *state, found bool, was *postdate.Record) error {
	present := postdate.Record{State: old.State, Series: old.Series}
	switch {
	case !found:
		return store.ErrNotFound(key)
	case old.Status != postdate.Pending:
		return store.ErrTooLate(key, old.State)
	case !present.Same(was):
		return store.ErrChanged(key)
	case !s.partitions[key.Bucket].Withdrawable(key, old.route(key.Tenant), old.State):
		return store.ErrTooLate(key, old.State)
	}
	return nil
}

// Forget implements store.Messages.
func (s *Store) Forget(ctx context.Context, key postdate.Key, ifVersion uint64) error {
	return s.underAll(ctx, 1, func(int) (int, int) { return key.Bucket, 0 }, func(w *writer, _, _ int) error {
		st, found, err := w.state(key)
		switch {
		case err != nil:
			return err
		case !found:
			return store.ErrNotFound(key)
		}
		if err := store.CheckFinal(key, st.State, ifVersion); err != nil {
			return err
		}
		w.forget(key, &st)
		return nil
	})
}

// Cancel implements store.Messages.
func (s *Store) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.CancelVersions(ctx, store.AnyVersion(keys), at)
}

// CancelVersions implements store.Messages.
func (s *Store) CancelVersions(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Cancelled {
	results := make([]store.Cancelled, len(some))
	decide := func(w *writer, from, to int) error {
		w.remember(to - from)
		for i := from; i < to; i++ {
			var err error
			if results[i], err = s.cancel(w, &some[i], at); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range s.under(ctx, len(some), func(i int) (int, int) { return some[i].Key.Bucket, 0 }, decide) {
		for i := f.from; i < f.to; i++ {
			if results[i].Err == nil {
				results[i] = store.Cancelled{Err: f.err}
			}
		}
	}
	return results
}

// cancel runs under the bucket's lock, as claims do: either it sees the claim, or the scan that
// follows the claim sees the cancel.
func (s *Store) cancel(w *writer, v *store.Versioned, at postdate.Time) (store.Cancelled, error) {
	key := v.Key
	old, found, err := w.state(key)
	switch {
	case err != nil:
		return store.Cancelled{}, err
	case !found:
		return store.Cancelled{Err: store.ErrNotFound(key)}, nil
	case v.Check(old.State) != nil:
		return store.Cancelled{Err: v.Check(old.State)}, nil
	case old.Withdrawn():
		return store.Cancelled{State: old.State}, nil
	case !s.partitions[key.Bucket].Withdrawable(key, old.route(key.Tenant), old.State):
		if old.Status == postdate.Pending && old.Occurrence != 0 && !old.Ending {
			w.unplace(key, &old)
			old.Ending = true
			w.setState(key, &old)
		}
		return store.Cancelled{State: old.State, Err: store.ErrTooLate(key, old.State)}, nil
	}
	w.unplace(key, &old)
	st := old
	st.State = st.State.Cancel(at)
	w.setState(key, &st)
	return store.Cancelled{State: st.State, Changed: true}, nil
}
