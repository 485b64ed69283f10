package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// AppendInbox implements store.Inbox.
func (s *Store) AppendInbox(_ context.Context, messages []store.InboxMessage) error {
	for from, to := 0, 0; from < len(messages); from = to {
		to = runEnd(from, len(messages), func(i int) *store.InboxMessage { return &messages[i] })
		if err := s.appendRun(messages[from:to]); err != nil {
			return err
		}
	}
	return nil
}

// runEnd is where the run of messages for one inbox that begins at from ends, of n of them.
func runEnd(from, n int, message func(i int) *store.InboxMessage) int {
	first, to := message(from), from+1
	for to < n && message(to).Inbox == first.Inbox && message(to).Tenant == first.Tenant {
		to++
	}
	return to
}

func (s *Store) appendRun(messages []store.InboxMessage) error {
	box, err := s.useInbox(messages[0].Tenant, messages[0].Inbox)
	if err != nil {
		return err
	}
	defer s.leaveInbox(box)
	w := s.writer()
	w.openInbox(box)
	for i := range messages {
		w.append(&messages[i])
	}
	w.apply()
	return w.sync()
}

// Deliver implements store.Deliverer.
func (s *Store) Deliver(ctx context.Context, deliveries []store.InboxDelivery) []error {
	errs := make([]error, len(deliveries))
	for from, to := 0, 0; from < len(deliveries); from = to {
		to = runEnd(from, len(deliveries), func(i int) *store.InboxMessage { return &deliveries[i].Message })
		s.deliverRun(ctx, deliveries[from:to], errs[from:to])
	}
	return errs
}

// deliverRun delivers messages to one inbox. It numbers them once nothing can fail any more.
func (s *Store) deliverRun(ctx context.Context, run []store.InboxDelivery, errs []error) {
	box, err := s.useInbox(run[0].Message.Tenant, run[0].Message.Inbox)
	if err != nil {
		fill(errs, err)
		return
	}
	defer s.leaveInbox(box)
	decide := func(w *writer, from, to int) error {
		w.remember(to - from)
		settled := make([]bool, to-from)
		for _, i := range inOrder(to-from, func(i int) *postdate.Key { return &run[from+i].Settlement.Key }) {
			changed, err := s.settle(w, &run[from+i].Settlement)
			settled[i], errs[from+i] = changed, s.readError(err) // a delivery reads first: nothing is written
		}
		if slices.Contains(settled, true) {
			w.openInbox(box)
		}
		for i := range settled {
			if settled[i] {
				w.append(&run[from+i].Message)
			}
		}
		return nil
	}
	of := func(i int) (bucket, bytes int) { return run[i].Settlement.Key.Bucket, run[i].Message.Bytes() }
	for _, f := range s.under(ctx, len(run), of, decide) {
		fill(errs[f.from:f.to], f.err)
	}
}

func fill(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
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
	bytes := 0
	for ok := iter.First(); ok && len(messages) < limit && bytes < store.PageBytesMax; ok = iter.Next() {
		from = binary.BigEndian.Uint64(iter.Key()[len(iter.Key())-8:])
		m, err := readInboxMessage(iter.Value(), tenant, name)
		if err != nil {
			s.c.Log.Error("an inbox message cannot be read and is passed over",
				"inbox", name, "number", from, "error", err)
			continue
		}
		m.Place.Number = int64(from)
		messages = append(messages, m)
		bytes += m.Bytes()
	}
	return messages, s.cursor(from), s.readError(iter.Error())
}

// ReadPlaces implements store.Inbox. What has a place was read, and so is on disk.
func (s *Store) ReadPlaces(_ context.Context, tenant, name string,
	places []store.InboxPlace) (messages []store.InboxMessage, left []store.InboxPlace, err error) {
	bytes := 0
	for i, place := range places {
		if bytes >= store.PageBytesMax {
			return messages, places[i:], nil
		}
		v, closer, err := s.db.Get(inboxKey(nil, tenant, name, uint64(place.Number)))
		if errors.Is(err, lsm.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, s.readError(err)
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
		bytes += m.Bytes()
	}
	return messages, nil, nil
}

// A cursor is the store's name and a number: without the name, a cursor of another store would
// silently skip messages.
func (s *Store) cursor(number uint64) string { return fmt.Sprintf("%08x-%d", s.birth, number) }

func (s *Store) readCursor(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	name, rest, _ := strings.Cut(cursor, "-")
	place, _, _ := strings.Cut(rest, "-") // one of MongoDB has two numbers
	birth, err := strconv.ParseUint(name, 16, 32)
	number, numberErr := strconv.ParseUint(place, 10, 64)
	switch err = errors.Join(err, numberErr); {
	case err == nil && uint32(birth) != s.birth:
		return 0, store.ErrCursorForeign(cursor)
	case err != nil || s.cursor(number) != cursor:
		return 0, store.ErrCursorInvalid(cursor)
	}
	return number, nil
}
