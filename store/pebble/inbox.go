package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate/store"
)

// AppendInbox implements store.Inbox.
func (s *Store) AppendInbox(_ context.Context, messages []store.InboxMessage) error {
	// Each run of messages for one inbox is one write.
	for from := 0; from < len(messages); {
		to := from + 1
		for to < len(messages) && messages[to].Inbox == messages[from].Inbox &&
			messages[to].Tenant == messages[from].Tenant {
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
	box, err := s.useInbox(messages[0].Tenant, messages[0].Inbox)
	if err != nil {
		return err
	}
	defer s.leaveInbox(box)
	w := s.writer()
	box.mu.Lock()
	number := box.last
	for i := range messages {
		number++
		w.key = inboxKey(w.key[:0], messages[i].Tenant, messages[i].Inbox, number)
		w.value = appendInboxMessage(w.value[:0], &messages[i])
		w.batch.Set(w.key, w.value, nil)
	}
	if !box.listed {
		w.key = orderKey(w.key[:0], messages[0].DeliveredAt, messages[0].Tenant, messages[0].Inbox)
		w.batch.Set(w.key, nil, nil)
	}
	w.apply()
	box.last, box.listed = number, true
	box.mu.Unlock()
	if err := w.sync(); err != nil {
		return err
	}
	box.reached(number) // the log is in order: all before is on disk too
	return nil
}

// ReadInbox implements store.Inbox.
func (s *Store) ReadInbox(_ context.Context, tenant, name, cursor string,
	limit int) ([]store.InboxMessage, string, error) {
	from, err := s.readCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	box, err := s.useInbox(tenant, name)
	if err != nil {
		return nil, "", err
	}
	defer s.leaveInbox(box)
	durable := box.durable.Load()
	if from > durable {
		return nil, "", store.ErrCursorAhead(cursor)
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
			s.c.Log.Error("an inbox message cannot be read and is passed over",
				"inbox", name, "number", from, "error", err)
			continue
		}
		m.Place.Number = int64(from)
		messages = append(messages, m)
	}
	return messages, s.cursor(from), s.readError(iter.Error())
}

// ReadPlaces implements store.Inbox. What has a place was read, and so is on disk.
func (s *Store) ReadPlaces(_ context.Context, tenant, name string,
	places []store.InboxPlace) (messages []store.InboxMessage, err error) {
	for _, place := range places {
		v, closer, err := s.db.Get(inboxKey(nil, tenant, name, uint64(place.Number)))
		if errors.Is(err, lsm.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, s.readError(err)
		}
		m, err := readInboxMessage(v, tenant, name)
		_ = closer.Close() // it returns no error
		if err != nil {
			s.c.Log.Error("an inbox message cannot be read and is passed over",
				"inbox", name, "number", place.Number, "error", err)
			continue
		}
		m.Place = place
		messages = append(messages, m)
	}
	return messages, nil
}

// A cursor is the store's name and a number: without the name, a cursor of another store would
// silently skip messages.
func (s *Store) cursor(number uint64) string { return fmt.Sprintf("%08x-%d", s.birth, number) }

func (s *Store) readCursor(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	var birth uint32
	var number uint64
	n, err := fmt.Sscanf(cursor, "%08x-%d", &birth, &number)
	switch {
	case n == 2 && err == nil && birth != s.birth:
		return 0, store.ErrCursorForeign(cursor)
	case n != 2 || err != nil || s.cursor(number) != cursor:
		return 0, store.ErrCursorInvalid(cursor)
	}
	return number, nil
}
