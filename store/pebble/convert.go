package pebble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// The layouts of stores. Layout 3 has states of layoutLean, and layout 13 messages of layoutMoved.
const (
	// layoutOrdered lists inboxes in order, and keeps one floor of numbers for all empty ones.
	layoutOrdered = 2
	// layoutCounted counts what is pending, and has states of layoutSized.
	layoutCounted = 4
	// layoutDelivers has nothing PENDING that is in an inbox, unless its state says so.
	layoutDelivers = 10
	// layoutListed lists by entries of their own what recurs, what failed, and what is deferred.
	layoutListed = 14
	// layoutNow is what this version writes. Earlier ones refuse it: they do not know all that is in it.
	layoutNow = 14
)

// convert makes a store of an earlier layout one of the present layout, in one write.
func (s *Store) convert(written byte) error {
	if written == layoutNow {
		return nil
	}
	b := s.db.NewBatch()
	defer b.Close()
	if written < layoutOrdered {
		if err := s.listInboxes(b); err != nil {
			return err
		}
	}
	if written < layoutCounted {
		if err := errors.Join(s.countAll(b), s.moveParked(b)); err != nil {
			return err
		}
	}
	if written < layoutDelivers {
		if err := s.doubtInboxes(b); err != nil {
			return err
		}
	}
	if written < layoutListed {
		if err := s.listAll(b); err != nil {
			return err
		}
	}
	b.Set([]byte{spaceBirth}, appendBirth(nil, s.c.Buckets, s.birth), nil)
	if err := b.Commit(lsm.Sync); err != nil {
		return err
	}
	s.c.Log.Info("the store is converted", "from layout", written, "to", layoutNow)
	return nil
}

// doubtInboxes marks the messages that an earlier version may have put into inboxes and not settled, as claims say:
// from now on what is PENDING without a mark was surely not delivered there.
func (s *Store) doubtInboxes(b *lsm.Batch) error {
	due, err := s.db.NewIter(spaceOnly(spaceDue))
	if err != nil {
		return err
	}
	defer due.Close()
	w := &writer{s: s, batch: b} // what it counts adds up to nothing
	defer w.read.close()
	for _, p := range s.partitions {
		begin := timedKey(nil, spaceDue, p.Bucket, bucket.Position{Time: p.Checkpoint})
		for ok := due.SeekGE(begin); ok && bytes.HasPrefix(due.Key(), begin[:1+bucketBytes]); ok = due.Next() {
			at := splitTimed(due.Key()[1+bucketBytes:])
			if p.Claimed.Before(at) {
				break // what is left behind ends earlier
			}
			key := waitingKey(due.Key())
			lean, err := readState(due.Value())
			if err != nil || lean.Channel.Broker() != "inbox" || lean.Parked || !p.InDoubt(lean.route(key.Tenant), at) {
				continue // what cannot be read is not delivered, either
			}
			if err := w.doubt(key); err != nil {
				return err
			}
		}
		if err := due.Error(); err != nil { // the next seek would clear it
			return err
		}
	}
	return nil
}

// doubt marks a message that is PENDING. One that is damaged stays as it is: nobody can settle it.
func (w *writer) doubt(key postdate.Key) error {
	st, found, err := w.read.state(w.s, key)
	if err != nil && !errors.Is(err, errLayout) && !lsm.IsCorruptionError(err) {
		return err
	}
	if err != nil || !found {
		return nil
	}
	w.unplace(key, &st)
	st.PossibleDuplicate = true
	w.setState(key, &st)
	return nil
}

// listAll makes the entries of what recurs, of what failed and of what is deferred. What cannot be read is not listed,
// either.
func (s *Store) listAll(b *lsm.Batch) error {
	began := time.Now()
	s.c.Log.Info("looking for what recurs, failed or is deferred, once: an earlier version wrote this store",
		"dir", s.c.Dir)
	iter, err := s.db.NewIter(spaceOnly(spaceState))
	if err != nil {
		return err
	}
	defer iter.Close()
	recur, failed, deferred := 0, 0, 0
	for ok := iter.First(); ok; ok = iter.Next() {
		st, err := readState(iter.Value())
		k := iter.Key()
		if err != nil || len(k) < 1+bucketBytes {
			continue
		}
		key := postdate.Key{Bucket: int(binary.BigEndian.Uint16(k[1:]))}
		key.Tenant, key.ScheduleID, _ = splitName(k[1+bucketBytes:])
		if st.Occurrence != 0 {
			b.Set(entryKey(nil, spaceSeries, key, st.ExecutionTime), nil, nil)
			recur++
		}
		if st.Status == postdate.DeliveryFailed {
			b.Set(entryKey(nil, spaceFailed, key, st.ExecutionTime), nil, nil)
			failed++
		}
		if st.deferred() {
			b.Set(entryKey(nil, spaceDeferred, key, st.ExecutionTime), nil, nil)
			deferred++
		}
	}
	s.c.Log.Info("listed what recurs, failed or is deferred", "recur", recur, "failed", failed, "deferred", deferred,
		"took", time.Since(began).Round(time.Millisecond))
	return iter.Error()
}
