package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// What is pending is counted in the same batch that changes it, so that the counts are exact
// after every end of the process. Each batch adds to the slots that it changes, without reading
// them: Pebble's merging sums up. When the store is opened, only the sums are read.

// addCounts sums up. A value is a list of pairs, messages and bytes, that are to be added, and
// so Pebble's own merger, which concatenates values, would do as well. It is what every store
// names as its merger, and no other name opens the store.
var addCounts = &lsm.Merger{
	Name: lsm.DefaultMerger.Name,
	Merge: func(_, value []byte) (lsm.ValueMerger, error) {
		sum := &countSum{}
		return sum, sum.add(value)
	},
}

// countSum implements lsm.ValueMerger. It deletes no sum that is zero: each takes some bytes, there are
// at most 65,536 for a tenant, and Pebble 2.1.7 panics over a merger that deletes
// (TestUsageIsCompacted).
type countSum struct{ messages, bytes int64 }

func (s *countSum) add(value []byte) error {
	for len(value) > 0 {
		messages, n := binary.Varint(value)
		bytes, m := binary.Varint(value[max(n, 0):])
		if n <= 0 || m <= 0 {
			return errLayout
		}
		s.messages += messages
		s.bytes += bytes
		value = value[n+m:]
	}
	return nil
}

func (s *countSum) append(b []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, s.messages), s.bytes)
}

func (s *countSum) MergeNewer(value []byte) error { return s.add(value) }
func (s *countSum) MergeOlder(value []byte) error { return s.add(value) }

func (s *countSum) Finish(bool) ([]byte, io.Closer, error) { return s.append(nil), nil, nil }

func usageKey(k []byte, tenant string, slot store.Slot) []byte {
	k = append(append(k, spaceUsage), tenant...)
	return binary.BigEndian.AppendUint16(append(k, 0), uint16(slot))
}

// count notes that a PENDING message comes (1) or goes (-1).
func (w *writer) count(tenant string, st *state, by int64) {
	if st.Channel != w.channel { // a channel's neighbours are mostly its own
		w.channel, w.slot = st.Channel, store.SlotOf(st.Channel, w.s.birth)
	}
	w.counts = store.AddChange(w.counts, change(tenant, w.slot, st, by))
}

// change is a PENDING message as a change. One that is unsized comes and goes in one batch.
func change(tenant string, slot store.Slot, st *state, by int64) store.Change {
	return store.Change{Tenant: tenant, Slot: slot, Messages: by, Bytes: by * int64(max(st.PayloadBytes, 0))}
}

// writeCounts adds the counts to the batch.
func (w *writer) writeCounts() {
	for i := range w.counts {
		if c := &w.counts[i]; !c.Nothing() {
			w.key = usageKey(w.key[:0], c.Tenant, c.Slot)
			w.value = (&countSum{c.Messages, c.Bytes}).append(w.value[:0])
			w.batch.Merge(w.key, w.value, nil)
		}
	}
}

// payloadBytes is the size of a payload whose state does not tell it. That of a message which
// cannot be read counts as 0.
func (s *Store) payloadBytes(key postdate.Key, execution postdate.Time) int {
	m, err := s.message(key, execution)
	if err != nil {
		return 0
	}
	return len(m.Payload)
}

// loadCounts reads the sums.
func (s *Store) loadCounts() error {
	iter, err := s.db.NewIter(spaceOnly(spaceUsage))
	if err != nil {
		return err
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		tenant, slot, ok := bytes.Cut(iter.Key()[1:], []byte{0})
		var sum countSum
		if err := sum.add(iter.Value()); err != nil || !ok || len(slot) != 2 {
			return errLayout
		}
		s.pending.Add(store.Change{Tenant: string(tenant), Slot: store.Slot(binary.BigEndian.Uint16(slot)),
			Messages: sum.messages, Bytes: sum.bytes})
	}
	return iter.Error()
}

// countAll counts what an earlier version left pending, and puts the sums into b. It walks
// through the messages in the order in which they are stored.
func (s *Store) countAll(b *lsm.Batch) error {
	began, messages := time.Now(), 0
	s.c.Log.Info("counting what is pending, once: an earlier version wrote this store", "dir", s.c.Dir)
	r, err := s.scanner(nil)
	if err != nil {
		return err
	}
	defer r.close()
	sums := store.NewTally()
	count := func(key postdate.Key, value []byte) {
		st, err := readState(value)
		if err != nil {
			return // nobody can deliver it either
		}
		if m, err := r.message(key, st.ExecutionTime); err == nil {
			st.PayloadBytes = len(m.Payload)
		}
		messages++
		sums.Add(change(key.Tenant, store.SlotOf(st.Channel, s.birth), &st, 1))
	}
	for ok := r.due.First(); ok; ok = r.due.Next() {
		count(waitingKey(r.due.Key()), r.due.Value())
	}
	if err := errors.Join(r.due.Error(), s.eachParkedAlone(r.due, count)); err != nil {
		return err
	}
	w := &writer{s: s, batch: b, counts: sums.Take()}
	b.DeleteRange([]byte{spaceUsage}, []byte{spaceUsage + 1}, nil)
	w.writeCounts()
	s.c.Log.Info("counted what is pending", "messages", messages, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// waitingKey is the key of the message that waits at a due key.
func waitingKey(k []byte) postdate.Key {
	at := splitTimed(k[1+bucketBytes:])
	return postdate.Key{Bucket: int(binary.BigEndian.Uint16(k[1:])), Tenant: at.Tenant, ScheduleID: at.ScheduleID}
}

// eachParkedAlone calls do for each parked message that has no place in the due space: those of
// an early version.
func (s *Store) eachParkedAlone(due *lsm.Iterator, do func(key postdate.Key, value []byte)) error {
	iter, err := s.db.NewIter(spaceOnly(spaceParked))
	if err != nil {
		return err
	}
	defer iter.Close()
	var k []byte
	for ok := iter.First(); ok; ok = iter.Next() {
		bucketPart := iter.Key()[1 : 1+bucketBytes]
		_, place, _ := bytes.Cut(iter.Key()[1+bucketBytes:], []byte{0})
		k = append(append(append(k[:0], spaceDue), bucketPart...), place...)
		if !due.SeekGE(k) || !bytes.Equal(due.Key(), k) {
			do(waitingKey(k), iter.Value())
		}
	}
	return errors.Join(due.Error(), iter.Error())
}

// moveParked puts what an earlier version parked for a tenant where its route is: then all tenants'
// messages for a channel lay together.
func (s *Store) moveParked(b *lsm.Batch) error {
	iter, err := s.db.NewIter(spaceOnly(spaceParked))
	if err != nil {
		return err
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		k := iter.Key()
		channel, place, _ := bytes.Cut(k[1+bucketBytes:], []byte{0})
		at := splitTimed(place)
		if at.Tenant == postdate.DefaultTenant {
			continue
		}
		number := int(binary.BigEndian.Uint16(k[1:]))
		b.Set(parkedKey(nil, number, postdate.RouteOf(at.Tenant, postdate.Channel(channel)), at), iter.Value(), nil)
		b.Delete(k, nil)
	}
	return iter.Error()
}

// Usages implements store.Tenants. It waits for no disk: whoever looks why one is full asks for it, too.
func (s *Store) Usages(context.Context) ([]store.TenantUsage, error) {
	return s.pending.All(), nil
}

// UsageOf implements store.Tenants.
func (s *Store) UsageOf(tenant string, channel postdate.Channel) (store.Usage, bool) {
	return s.pending.Of(tenant, store.SlotOf(channel, s.birth))
}
