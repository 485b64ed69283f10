package pebble

import (
	"bytes"
	"context"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Settle implements store.Due.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) error {
	decide := func(w *writer, from, to int) error {
		w.remember(to - from)
		for _, i := range inOrder(to-from, func(i int) *postdate.Key { return &settlements[from+i].Key }) {
			if _, err := s.settle(w, &settlements[from+i]); err != nil {
				return err
			}
		}
		return nil
	}
	return s.underAll(ctx, len(settlements), func(i int) (bucket, bytes int) {
		if p := &settlements[i]; p.Leaves() || p.Detaches() {
			bytes = postdate.PayloadBytesMax // leave or detach may copy its message, whose size only the store knows
		}
		return settlements[i].Key.Bucket, bytes
	}, decide)
}

// settle writes a settlement, and reports whether it changes anything.
func (s *Store) settle(w *writer, p *store.Settlement) (settled bool, err error) {
	old, found, err := w.state(p.Key)
	if err != nil {
		return false, err
	}
	if !found || old.Status != postdate.Pending || old.Version != p.Version || old.Occurrence != p.Occurrence {
		return false, nil // somebody settled it, or it is not what was published
	}
	if p.How != store.SettleDelivered && !s.partitions[p.Key.Bucket].Holds(p.Token) {
		return false, nil
	}
	if p.Leaves() && !old.Ending {
		if p, err = s.leave(w, p, &old); err != nil {
			return false, err
		}
	}
	st := old
	if p.Advances() {
		if p, err = s.detach(w, p, &old); err != nil {
			return false, err
		}
		st.Series = p.Series(old.State, old.Series)
	}
	st.State, st.Log = p.State(old.State), p.Log(old.Log)
	if !old.Status.CanBecome(st.Status) {
		panic("a settlement that the transition table does not have: " + old.Status.String() + " to " +
			st.Status.String())
	}
	w.unplace(p.Key, &old)
	w.setState(p.Key, &st)
	if p.How == store.SettleFailed && !old.Redriven {
		return true, s.countFailed(w, p)
	}
	return true, nil
}

// Unpark implements store.Due.
func (s *Store) Unpark(ctx context.Context, u store.Unpark) (found, early int, err error) {
	decide := func(w *writer, _, _ int) error {
		if !s.partitions[u.Bucket].Holds(u.Token) {
			return bucket.ErrFenced(u.Bucket)
		}
		prefix := parkedPrefix(nil, u.Bucket, u.Route)
		iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
		if err != nil {
			return err
		}
		defer iter.Close()
		for ok := iter.First(); ok && found < u.Limit; ok = iter.Next() {
			at := splitTimed(iter.Key()[len(prefix):])
			key := postdate.Key{Bucket: u.Bucket, Tenant: at.Tenant, ScheduleID: at.ScheduleID}
			st, err := readState(iter.Value())
			if err != nil {
				s.reportDamage(key, err)
				continue
			}
			w.unplace(key, &st)
			st.Parked, st.AttemptTime = false, max(u.At, st.notBefore())
			w.setState(key, &st)
			found++
			if st.notBefore() > u.At {
				early++
			}
		}
		return iter.Error()
	}
	err = s.underAll(ctx, 1, func(int) (int, int) { return u.Bucket, 0 }, decide)
	return found, early, err
}

// Parked implements store.Due. It reads one key per route and bucket.
func (s *Store) Parked(_ context.Context, buckets []int) ([]store.ParkedRoute, error) {
	iter, err := s.db.NewIter(spaceOnly(spaceParked))
	if err != nil {
		return nil, s.readError(err)
	}
	defer iter.Close()
	var found []store.ParkedRoute
	for _, b := range slices.Sorted(slices.Values(buckets)) {
		prefix := appendBucket([]byte{spaceParked}, b)
		for ok := iter.SeekGE(prefix); ok && bytes.HasPrefix(iter.Key(), prefix); {
			name, _, _ := bytes.Cut(iter.Key()[len(prefix):], []byte{0})
			route := postdate.Route(name)
			found = append(found, store.ParkedRoute{Bucket: b, Route: route})
			ok = iter.SeekGE(after(parkedPrefix(nil, b, route)))
		}
		if err := iter.Error(); err != nil { // the next seek would clear it
			return found, s.readError(err)
		}
	}
	return found, nil
}
