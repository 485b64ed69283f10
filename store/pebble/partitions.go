package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Look implements store.Partitions.
func (s *Store) Look(_ context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	records := make([]bucket.Partition, len(buckets))
	for i, b := range buckets {
		records[i] = s.partition(b)
	}
	iter, err := s.db.NewIter(spaceOnly(spaceLease))
	if err != nil {
		return nil, nil, s.readError(err)
	}
	defer iter.Close()
	var leases []bucket.Lease
	for ok := iter.First(); ok; ok = iter.Next() {
		leases = append(leases, readLease(iter.Value(), string(iter.Key()[1:])))
	}
	return records, leases, s.readError(iter.Error())
}

// Acquire implements store.Partitions.
func (s *Store) Acquire(ctx context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	results := make([]store.Acquired, len(wants))
	decide := func(w *writer, from, to int) error {
		for i := from; i < to; i++ {
			next, ok := s.partitions[wants[i].Bucket].Acquire(wants[i].SeenToken, wants[i].Owner, wants[i].Lease)
			if ok {
				s.setPartition(w, next)
			}
			results[i] = store.Acquired{Partition: next, OK: ok}
		}
		return nil
	}
	return results, s.underAll(ctx, len(wants), func(i int) (int, int) { return wants[i].Bucket, 0 }, decide)
}

// Release implements store.Partitions.
func (s *Store) Release(ctx context.Context, holds []store.Hold) error {
	decide := func(w *writer, from, to int) error {
		for i := from; i < to; i++ {
			if next, ok := s.partitions[holds[i].Bucket].Release(holds[i].Token); ok {
				s.setPartition(w, next)
			}
		}
		return nil
	}
	return s.underAll(ctx, len(holds), func(i int) (int, int) { return holds[i].Bucket, 0 }, decide)
}

// partition is a bucket's record; its Behind is never modified.
func (s *Store) partition(bucket int) bucket.Partition {
	s.locks[bucket].Lock()
	defer s.locks[bucket].Unlock()
	return s.partitions[bucket]
}

func (s *Store) setPartition(w *writer, p bucket.Partition) {
	s.partitions[p.Bucket] = p
	w.key = partitionKey(w.key[:0], p.Bucket)
	w.value = appendPartition(w.value[:0], p)
	w.batch.Set(w.key, w.value, nil)
}

// Renew implements store.Partitions.
func (s *Store) Renew(_ context.Context, lease bucket.Lease) (postdate.Time, error) {
	s.leaseMu.Lock()
	defer s.leaseMu.Unlock()
	return 0, unknown(s.db.Set(leaseKey(nil, lease.ID), appendLease(nil, lease), lsm.Sync))
}

// Expire implements store.Housekeeping.
func (s *Store) Expire(ctx context.Context, e store.Expiry) (int, error) {
	if len(e.Buckets) == 0 {
		return 0, nil
	}
	// A damaged block in the way of one must not fill the disk with the other.
	messages, err := s.expireMessages(ctx, &e)
	inbox, all, inboxErr := s.expireInboxes(&e)
	if inboxErr == nil && all {
		inboxErr = s.expireConsumers(ctx, &e)
	}
	requests, requestsErr := s.expireRequests(ctx, &e)
	return messages + inbox + requests, errors.Join(err, inboxErr, requestsErr, s.expireJobs(ctx, &e))
}

// ended is a message, a request, a consumer or a job with the time from which its retention counts.
type ended struct {
	key postdate.Key
	at  postdate.Time
}

func (s *Store) expireMessages(ctx context.Context, e *store.Expiry) (int, error) {
	old, err := s.endedBefore(spaceFinished, e, e.SettledBefore)
	if err != nil {
		return 0, s.readError(err)
	}
	deleted := 0
	decide := func(w *writer, from, to int) error {
		for _, f := range old[from:to] {
			st, found, err := w.state(f.key)
			if err != nil {
				return err
			}
			if found && st.Status.Final() && st.SettledAt == f.at {
				w.forget(f.key, &st)
				deleted++
			} else {
				w.unfinish(f.key, f.at)
			}
		}
		return nil
	}
	err = s.underAll(ctx, len(old), func(i int) (int, int) { return old[i].key.Bucket, 0 }, decide)
	return deleted, err
}

// endedBefore lists what e selects in a space, oldest first. The keys are in the order of time, so that
// what expires together is stored together, and those in other buckets are skipped. As a rule
// there are none: the one node that has this store open owns every bucket, except while it
// starts, stops, or has lost its lease. A call that skips many ends, so that pages do not look
// at the same messages again and again; what follows them waits until the node owns their
// buckets.
func (s *Store) endedBefore(space byte, e *store.Expiry, before postdate.Time) ([]ended, error) {
	iter, err := s.db.NewIter(&lsm.IterOptions{
		LowerBound: []byte{space}, UpperBound: appendTime([]byte{space}, max(before, 0)),
	})
	if err != nil {
		return nil, err
	}
	defer iter.Close()
	var old []ended
	ours, passed := s.among(e.Buckets), 0
	for ok := iter.First(); ok && len(old) < e.Limit && passed < examinedMax; ok = iter.Next() {
		at, key, _ := splitEnded(iter.Key())
		if !ours[key.Bucket] {
			passed++
			continue
		}
		old = append(old, ended{key, at})
	}
	return old, iter.Error()
}

// among says for each bucket whether it is one of these.
func (s *Store) among(buckets []int) []bool {
	all := make([]bool, s.c.Buckets)
	for _, b := range buckets {
		all[b] = true
	}
	return all
}

func appendLease(b []byte, l bucket.Lease) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, l.Renewals), uint64(l.Lasts))
}

// readLease also reads what earlier versions wrote: the renewals alone.
func readLease(v []byte, id string) bucket.Lease {
	renewals, n := binary.Uvarint(v)
	lasts, _ := binary.Uvarint(v[max(n, 0):])
	return bucket.Lease{ID: id, Renewals: renewals, Lasts: time.Duration(lasts)}
}
