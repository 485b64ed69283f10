package pebble

import (
	"encoding/binary"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Inboxes with messages are listed in the order in which their oldest messages were delivered,
// so that expiry looks only at those in which something expires. Nothing is left of an empty
// inbox: its last number raises the floor, from which every empty inbox goes on. Therefore
// numbers have gaps, and whatever comes is after a reader's old cursor.

// expireInboxes deletes what e selects, and says whether none of it is left.
func (s *Store) expireInboxes(e *store.Expiry) (expired int, all bool, err error) {
	s.floorMu.Lock()
	defer s.floorMu.Unlock()
	iter, err := s.db.NewIter(&lsm.IterOptions{
		LowerBound: []byte{spaceInboxOrder}, UpperBound: appendTime([]byte{spaceInboxOrder}, max(e.DeliveredBefore, 0)),
	})
	if err != nil {
		return 0, false, s.readError(err)
	}
	old, all := s.listedIn(iter, e)
	if err := iter.Close(); err != nil {
		return 0, false, s.readError(err)
	}
	for i := 0; i < len(old) && expired < e.Limit; i++ {
		n, err := s.expireInbox(old[i], e.DeliveredBefore, e.Limit-expired)
		if err != nil {
			return expired, false, s.readError(err)
		}
		expired += n
	}
	if len(old) == 0 {
		return 0, all, nil
	}
	return expired, all && expired < e.Limit, unknown(s.db.LogData([]byte{0}, lsm.Sync)) // one sync for all of them
}

// listedIn reads places in the order of inboxes, as many as e may need. It skips those in other
// buckets, as endedBefore does, and says whether these are all.
func (s *Store) listedIn(iter *lsm.Iterator, e *store.Expiry) (old []bucket.Position, all bool) {
	ours, passed := s.among(e.Buckets), 0
	for ok := iter.First(); ok && len(old) < e.Limit && passed < examinedMax; ok = iter.Next() {
		p := splitTimed(iter.Key()[1:])
		if !ours[bucket.Of(p.Tenant, p.ScheduleID, s.c.Buckets)] {
			passed++
			continue
		}
		old = append(old, p)
	}
	return old, !iter.Valid()
}

// expireInbox deletes the messages at the front of the inbox at a place in the order, as far as
// they are old enough, and moves the inbox to the place of its next message.
func (s *Store) expireInbox(at bucket.Position, before postdate.Time, limit int) (int, error) {
	tenant, name := at.Tenant, at.ScheduleID
	box, err := s.useInbox(tenant, name)
	if err != nil {
		return 0, err
	}
	defer s.leaveInbox(box)
	// Not under the box's lock: who delivers waits for that with buckets locked. Nobody else deletes, and what
	// comes meanwhile comes behind.
	n, last, next, err := s.expiredIn(tenant, name, 0, before, limit)
	if err != nil {
		return 0, err
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if next == postdate.Far {
		if _, _, next, err = s.expiredIn(tenant, name, last+1, 0, 0); err != nil {
			return 0, err
		}
	}
	b := s.db.NewBatch()
	defer b.Close()
	b.Delete(orderKey(nil, at.Time, tenant, name), nil)
	if n > 0 {
		b.DeleteRange(inboxKey(nil, tenant, name, 0), inboxKey(nil, tenant, name, last+1), nil)
	}
	if next != postdate.Far {
		b.Set(orderKey(nil, next, tenant, name), nil, nil)
	} else if box.last > s.floor.Load() {
		s.floor.Store(box.last)
		b.Set([]byte{spaceInboxFloor}, binary.AppendUvarint(nil, box.last), nil)
	}
	if err := b.Commit(lsm.NoSync); err != nil {
		return 0, unknown(err)
	}
	box.listed = next != postdate.Far
	return n, nil
}

// expiredIn counts the messages of an inbox, from a number on, that are old enough. It also returns
// the last one's number, and when the first one that stays was delivered: postdate.Far if none
// stays. Messages are in the order of their delivery.
func (s *Store) expiredIn(tenant, name string, from uint64, before postdate.Time,
	limit int) (n int, last uint64, next postdate.Time, err error) {
	prefix := inboxPrefix(nil, tenant, name)
	iter, err := s.db.NewIter(&lsm.IterOptions{
		LowerBound: inboxKey(nil, tenant, name, from), UpperBound: after(prefix),
	})
	if err != nil {
		return 0, 0, 0, err
	}
	defer iter.Close()
	next = postdate.Far
	for ok := iter.First(); ok; ok = iter.Next() {
		at := deliveredAt(iter.Value())
		if n == limit || at >= before {
			next = at
			break
		}
		n, last = n+1, binary.BigEndian.Uint64(iter.Key()[len(prefix):])
	}
	return n, last, next, iter.Error()
}

// listPage is how many inboxes of an earlier version are listed in one write.
const listPage = 10_000

// listInboxes puts the inboxes that an earlier version left into the order of expiry, and makes
// the floor from what that version kept of empty ones. The floor goes into b, which the caller
// commits last: if it is interrupted before that, it starts again.
func (s *Store) listInboxes(b *lsm.Batch) error {
	tails, err := s.db.NewIter(spaceOnly(spaceInboxTail))
	if err != nil {
		return err
	}
	defer tails.Close()
	floor := uint64(0)
	for ok := tails.First(); ok; ok = tails.Next() {
		last, _ := binary.Uvarint(tails.Value())
		floor = max(floor, last)
	}
	if err := tails.Error(); err != nil {
		return err
	}
	iter, err := s.db.NewIter(spaceOnly(spaceInbox))
	if err != nil {
		return err
	}
	defer iter.Close()
	page := s.db.NewBatch()
	defer page.Close()
	for ok := iter.First(); ok; {
		prefix := iter.Key()[:len(iter.Key())-8]
		tenant, name, _ := splitName(prefix[1 : len(prefix)-1])
		page.Set(orderKey(nil, deliveredAt(iter.Value()), tenant, name), nil, nil)
		if page.Count() == listPage {
			if err := page.Commit(lsm.NoSync); err != nil {
				return err
			}
			page.Reset()
		}
		ok = iter.SeekGE(after(prefix))
	}
	if err := iter.Error(); err != nil {
		return err
	}
	b.Set([]byte{spaceInboxFloor}, binary.AppendUvarint(nil, floor), nil)
	b.DeleteRange([]byte{spaceInboxTail}, []byte{spaceInboxTail + 1}, nil)
	return page.Commit(lsm.NoSync)
}
