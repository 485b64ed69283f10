package pebble

import (
	"context"
	"encoding/binary"
	"errors"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// consumerOf is the key of a consumer. It is in the bucket of its inbox.
func (s *Store) consumerOf(name store.ConsumerName) postdate.Key {
	return postdate.Key{Bucket: bucket.Of(name.Tenant, name.Inbox, s.c.Buckets), Tenant: name.Tenant,
		ScheduleID: name.Inbox + "\x00" + name.Consumer}
}

// Consumer implements store.Consumers.
func (s *Store) Consumer(_ context.Context, name store.ConsumerName) (store.Consumer, error) {
	c, err := s.consumer(s.consumerOf(name))
	if err != nil {
		return store.Consumer{}, s.readError(err)
	}
	return c, s.awaitSynced()
}

// consumer reads a consumer as it is. It is the zero Consumer if there is none.
func (s *Store) consumer(key postdate.Key) (store.Consumer, error) {
	v, closer, err := s.db.Get(consumerKey(nil, key))
	if errors.Is(err, lsm.ErrNotFound) {
		return store.Consumer{}, nil
	}
	if err != nil {
		return store.Consumer{}, err
	}
	defer closer.Close()
	return readConsumer(v)
}

// SetConsumer implements store.Consumers. What makes the record longer waits until the disk can take it; what makes it
// shorter, as acknowledging does, goes on.
func (s *Store) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64,
	to store.Consumer) (done bool, err error) {
	key := s.consumerOf(name)
	was, err := s.consumer(key)
	if err != nil {
		return false, s.readError(err)
	}
	if from == 0 || len(to.Open) > len(was.Open) {
		if err := s.admit(ctx); err != nil {
			return false, err
		}
	}
	err = s.underAll(ctx, 1, func(int) (int, int) { return key.Bucket, 0 }, func(w *writer, _, _ int) error {
		old, err := s.consumer(key)
		if err != nil || old.Version != from {
			return err
		}
		if old.Version != 0 {
			w.batch.Delete(endedKey(nil, spaceUsed, old.UsedAt, key), nil)
		}
		w.batch.Set(consumerKey(nil, key), appendConsumer(nil, &to), nil)
		w.batch.Set(endedKey(nil, spaceUsed, to.UsedAt, key), nil, nil)
		done = true
		return nil
	})
	return done && err == nil, err
}

// expireConsumers deletes the consumers that e selects. One that was used since it was listed has another place in
// their order, and stays.
func (s *Store) expireConsumers(ctx context.Context, e *store.Expiry) error {
	old, err := s.endedBefore(spaceUsed, e, e.DeliveredBefore)
	if err != nil {
		return s.readError(err)
	}
	decide := func(w *writer, from, to int) error {
		for _, o := range old[from:to] {
			c, err := s.consumer(o.key)
			if err == nil && c.UsedAt != o.at {
				continue
			}
			if err != nil {
				s.c.Log.Error("a consumer of an inbox cannot be read and is forgotten", "key", o.key.ScheduleID,
					"error", err)
			}
			w.batch.Delete(consumerKey(nil, o.key), nil)
			w.batch.Delete(endedKey(nil, spaceUsed, o.at, o.key), nil)
		}
		return nil
	}
	return s.underAll(ctx, len(old), func(i int) (int, int) { return old[i].key.Bucket, 0 }, decide)
}

func appendConsumer(b []byte, c *store.Consumer) []byte {
	b = append(b, layout)
	b = binary.AppendUvarint(b, c.Version)
	b = appendTimes(b, c.UsedAt)
	b = appendText(b, c.Cursor)
	b = binary.AppendVarint(b, c.Reached)
	b = binary.AppendUvarint(b, uint64(len(c.Open)))
	for _, o := range c.Open {
		b = binary.AppendVarint(b, o.Place.Segment)
		b = binary.AppendVarint(b, o.Place.Number)
		b = appendTimes(b, o.Until)
		b = binary.AppendUvarint(b, uint64(o.Deliveries))
		b = binary.AppendUvarint(b, o.Receipt)
	}
	return b
}

func readConsumer(v []byte) (c store.Consumer, err error) {
	r := reader{rest: v}
	r.layout()
	c.Version, c.UsedAt, c.Cursor, c.Reached = r.uvarint(), r.time(), r.text(), r.varint()
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		return c, errLayout
	}
	for range n {
		c.Open = append(c.Open, store.OpenMessage{
			Place: store.InboxPlace{Segment: r.varint(), Number: r.varint()}, Until: r.time(),
			Deliveries: int(r.uvarint()), Receipt: r.uvarint(),
		})
	}
	return c, r.end()
}
