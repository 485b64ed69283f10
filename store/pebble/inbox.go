package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// inbox numbers the messages of one inbox.
type inbox struct {
	mu   sync.Mutex // held from numbering to applying, so that numbers become visible in order
	last uint64     // the last number given

	durableMu sync.Mutex
	durable   uint64 // the last number on disk: readers see no further, or a power loss could give a number twice
}

// inboxOf loads the inbox's last number on first use.
func (s *Store) inboxOf(tenant, name string, forWriting bool) (*inbox, error) {
	s.inboxMu.Lock()
	defer s.inboxMu.Unlock()
	id := tenant + "\x00" + name
	if box := s.inboxes[id]; box != nil {
		return box, nil
	}
	last, err := s.lastNumber(tenant, name)
	if err != nil {
		return nil, s.readError(err)
	}
	box := &inbox{last: last, durable: last}
	if last > 0 || forWriting { // a reader may ask for any name: that is not kept
		s.inboxes[id] = box
	}
	return box, nil
}

func (s *Store) lastNumber(tenant, name string) (uint64, error) {
	tail, closer, err := s.db.Get(inboxPrefix(nil, spaceInboxTail, tenant, name))
	var last uint64
	switch {
	case err == nil:
		last, _ = binary.Uvarint(tail)
		closer.Close()
	case !errors.Is(err, lsm.ErrNotFound):
		return 0, err
	}
	prefix := inboxPrefix(nil, spaceInbox, tenant, name)
	iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return 0, err
	}
	defer iter.Close()
	if iter.Last() {
		last = max(last, binary.BigEndian.Uint64(iter.Key()[len(prefix):]))
	}
	return last, iter.Error()
}

// AppendInbox implements store.Inbox.
func (s *Store) AppendInbox(_ context.Context, messages []store.InboxMessage) error {
	// Each run of messages for one inbox is one write.
	for from := 0; from < len(messages); {
		to := from + 1
		for to < len(messages) && messages[to].Inbox == messages[from].Inbox && messages[to].Tenant == messages[from].Tenant {
			to++
		}
		if err := s.appendRun(messages[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

func (s *Store) appendRun(messages []store.InboxMessage) error {
	box, err := s.inboxOf(messages[0].Tenant, messages[0].Inbox, true)
	if err != nil {
		return err
	}
	w := s.writer()
	box.mu.Lock()
	number := box.last
	for i := range messages {
		number++
		w.key = inboxKey(w.key[:0], messages[i].Tenant, messages[i].Inbox, number)
		w.value = appendInboxMessage(w.value[:0], &messages[i])
		w.batch.Set(w.key, w.value, nil)
	}
	err = w.apply()
	if err == nil {
		box.last = number
	}
	box.mu.Unlock()
	if err != nil {
		w.batch.Close()
		return postdate.E(postdate.KindUnavailable, "the inbox cannot be written: %w", err)
	}
	if err := w.sync(); err != nil {
		return err
	}
	box.durableMu.Lock()
	box.durable = max(box.durable, number) // the log is in order: all before is on disk too
	box.durableMu.Unlock()
	return nil
}

// ReadInbox implements store.Inbox.
func (s *Store) ReadInbox(_ context.Context, tenant, name, cursor string, limit int) ([]store.InboxMessage, string, error) {
	from, err := s.readCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	box, err := s.inboxOf(tenant, name, false)
	if err != nil {
		return nil, "", err
	}
	box.durableMu.Lock()
	durable := box.durable
	box.durableMu.Unlock()
	if from > durable {
		return nil, "", postdate.E(postdate.KindInvalid, "cursor %q is ahead of the inbox: begin again without one", cursor)
	}
	if from == durable {
		return nil, s.cursor(from), nil
	}
	iter, err := s.db.NewIter(&lsm.IterOptions{
		LowerBound: inboxKey(nil, tenant, name, from+1), UpperBound: inboxKey(nil, tenant, name, durable+1),
	})
	if err != nil {
		return nil, "", s.readError(err)
	}
	defer iter.Close()
	var messages []store.InboxMessage
	for ok := iter.First(); ok && len(messages) < limit; ok = iter.Next() {
		from = binary.BigEndian.Uint64(iter.Key()[len(iter.Key())-8:])
		m, err := readInboxMessage(iter.Value(), tenant, name)
		if err != nil {
			s.c.Log.Error("an inbox message cannot be read and is passed over", "inbox", name, "number", from, "error", err)
			continue
		}
		messages = append(messages, m)
	}
	return messages, s.cursor(from), s.readErrorOrNil(iter.Error())
}

// A cursor is the store's name and a number: one from another store would
// silently skip messages.
func (s *Store) cursor(number uint64) string { return fmt.Sprintf("%08x-%d", s.birth, number) }

func (s *Store) readCursor(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	var birth uint32
	var number uint64
	if n, err := fmt.Sscanf(cursor, "%08x-%d", &birth, &number); n != 2 || err != nil || s.cursor(number) != strings.Clone(cursor) {
		if n == 2 && birth != s.birth {
			return 0, postdate.E(postdate.KindInvalid, "cursor %q is of another store: begin again without one", cursor)
		}
		return 0, postdate.E(postdate.KindInvalid, "cursor %q is none that was given out: begin again without one", cursor)
	}
	return number, nil
}

// expireInboxes deletes what e selects. It looks at the first message of every inbox.
func (s *Store) expireInboxes(e *store.Expiry) (int, error) {
	iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: []byte{spaceInbox}, UpperBound: []byte{spaceInbox + 1}})
	if err != nil {
		return 0, s.readError(err)
	}
	defer iter.Close()
	var prefix []byte
	ours, expired := s.among(e.Buckets), 0
	for ok := iter.First(); ok && expired < e.Limit; ok = iter.SeekGE(after(prefix)) {
		prefix = inboxPrefixOf(iter.Key())
		tenant, name, _ := splitName(prefix[1 : len(prefix)-1])
		if !ours[bucket.Of(tenant, name, s.c.Buckets)] {
			continue
		}
		n, last, err := s.expiredIn(iter, prefix, e.DeliveredBefore, e.Limit-expired)
		if err != nil {
			return expired, s.readError(err)
		}
		if n > 0 {
			if err := s.cutInbox(prefix, last); err != nil {
				return expired, err
			}
			expired += n
		}
	}
	return expired, s.readErrorOrNil(iter.Error())
}

// inboxPrefixOf cuts the number off an inbox key.
func inboxPrefixOf(key []byte) []byte { return append([]byte(nil), key[:len(key)-8]...) }

// expiredIn counts the messages at the front of an inbox that are old enough,
// and gives the last one's number. Messages lie in the order of their delivery.
func (s *Store) expiredIn(iter *lsm.Iterator, prefix []byte, before postdate.Time, limit int) (n int, last uint64, err error) {
	for ok := iter.SeekGE(prefix); ok && n < limit; ok = iter.Next() {
		if len(iter.Key()) != len(prefix)+8 || string(iter.Key()[:len(prefix)]) != string(prefix) {
			break
		}
		m, err := readInboxMessage(iter.Value(), "", "")
		if err == nil && m.DeliveredAt >= before {
			break
		}
		n, last = n+1, binary.BigEndian.Uint64(iter.Key()[len(prefix):])
	}
	return n, last, iter.Error()
}

// cutInbox deletes an inbox's messages up to number last, and keeps that number,
// so that it is never given again.
func (s *Store) cutInbox(prefix []byte, last uint64) error {
	b := s.db.NewBatch()
	defer b.Close()
	b.DeleteRange(prefix, binary.BigEndian.AppendUint64(append([]byte(nil), prefix...), last+1), nil)
	tail := append([]byte{spaceInboxTail}, prefix[1:]...)
	b.Set(tail, binary.AppendUvarint(nil, last), nil)
	return unknown(b.Commit(lsm.Sync))
}
