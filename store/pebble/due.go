package pebble

import (
	"bytes"
	"context"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// examinedMax bounds how many messages one scan looks at, those that it passes
// over included, so that one bucket's scan cannot hold up the others.
const examinedMax = 20_000

// Claim implements store.Due.
func (s *Store) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := make([]store.ClaimResult, len(claims))
	claimed := make([]postdate.Time, len(claims)) // as the records have it
	decide := func(w *writer, from, to int) error {
		for i := from; i < to; i++ {
			claimed[i], results[i].Err = s.claim(w, &claims[i])
		}
		return nil
	}
	failed := func(from, to int, err error) {
		for i := from; i < to; i++ {
			if results[i].Err == nil {
				results[i].Err = err
			}
		}
	}
	s.under(ctx, len(claims), func(i int) int { return claims[i].Bucket }, decide, failed)
	// The claims are on disk, and only now is anything read.
	if err := s.scan(claims, claimed, results); err != nil {
		failed(0, len(results), s.readError(err))
	}
	if err := s.settled(); err != nil {
		failed(0, len(results), err)
	}
	return results
}

func (s *Store) claim(w *writer, c *store.Claim) (claimed postdate.Time, err error) {
	next, ok := s.partitions[c.Bucket].Claim(c.Token, c.Number, c.Checkpoint, c.Claimed)
	if !ok {
		return 0, errFenced(c.Bucket)
	}
	if next != s.partitions[c.Bucket] { // no other process can have changed it: an equal one need not be written again
		s.setPartition(w, next)
	}
	return next.Claimed, nil
}

func errFenced(bucket int) error {
	return postdate.E(postdate.KindFenced, "bucket %d belongs to another owner by now", bucket)
}

// scan reads what is due, for every claim that went through.
func (s *Store) scan(claims []store.Claim, claimed []postdate.Time, results []store.ClaimResult) error {
	r, err := s.scanner()
	if err != nil {
		return err
	}
	defer r.close()
	for i := range claims {
		if results[i].Err != nil {
			continue
		}
		scan := claims[i].Scan
		scan.To = min(scan.To, claimed[i])
		if err := r.bucket(claims[i].Bucket, &scan, &results[i]); err != nil {
			return err
		}
	}
	return nil
}

// scanner reads the due space and the messages beside it. Both are in the same
// order while nothing is retried, so neighbours are read together.
type scanner struct {
	s             *Store
	due, messages *lsm.Iterator
	key           []byte
}

func (s *Store) scanner() (*scanner, error) {
	due, err := s.db.NewIter(&lsm.IterOptions{LowerBound: []byte{spaceDue}, UpperBound: []byte{spaceDue + 1}})
	if err != nil {
		return nil, err
	}
	messages, err := s.db.NewIter(&lsm.IterOptions{LowerBound: []byte{spaceMessage}, UpperBound: []byte{spaceMessage + 1}})
	if err != nil {
		due.Close()
		return nil, err
	}
	return &scanner{s: s, due: due, messages: messages}, nil
}

func (r *scanner) close() {
	r.due.Close()
	r.messages.Close()
}

func (r *scanner) bucket(bucket int, scan *store.Scan, result *store.ClaimResult) error {
	prefix := appendBucket([]byte{spaceDue}, bucket)
	r.key = dueKey(r.key[:0], bucket, scan.After)
	ok := r.due.SeekGE(r.key)
	if ok && bytes.Equal(r.due.Key(), r.key) {
		ok = r.due.Next() // After is exclusive
	}
	payloadBytes := 0
	result.Next = postdate.Far
	for examined := 0; ok && bytes.HasPrefix(r.due.Key(), prefix); ok = r.due.Next() {
		at, readable := splitTimed(r.due.Key()[len(prefix):])
		if at.Time > scan.To {
			result.Next = at.Time
			break
		}
		if examined++; examined > examinedMax {
			return r.due.Error()
		}
		result.Ended = at
		key := postdate.Key{Bucket: bucket, Tenant: at.Tenant, ScheduleID: at.ScheduleID}
		st, err := readState(r.due.Value())
		if err != nil || !readable {
			r.s.reportDamage(key, err) // one damaged record must not stall a bucket
			continue
		}
		if _, skip := scan.Skip[st.Channel]; skip {
			skipped(result, st.Channel, at)
			continue
		}
		m, err := r.message(key, st.ExecutionTime)
		if err != nil {
			r.s.reportDamage(key, err)
			continue
		}
		result.Due = append(result.Due, postdate.Record{Message: m, State: st.State})
		if payloadBytes += len(m.Payload); len(result.Due) >= scan.Limit || payloadBytes >= scan.BytesMax {
			return r.due.Error()
		}
	}
	result.Complete, result.Ended = true, bucket.Position{Time: scan.To + 1}
	return r.due.Error()
}

func (r *scanner) message(key postdate.Key, execution postdate.Time) (postdate.Message, error) {
	r.key = messageKey(r.key[:0], key, execution)
	if !r.messages.SeekGE(r.key) || !bytes.Equal(r.messages.Key(), r.key) {
		if err := r.messages.Error(); err != nil {
			return postdate.Message{}, err
		}
		return postdate.Message{}, lsm.ErrNotFound
	}
	return readMessage(r.messages.Value(), key, execution)
}

func (s *Store) reportDamage(key postdate.Key, err error) {
	s.c.Log.Error("a due message cannot be read: it is passed over and stays PENDING", "scheduleId", key.ScheduleID, "bucket", key.Bucket, "error", err)
}

// skipped notes the first message of each channel that was passed over.
func skipped(result *store.ClaimResult, channel postdate.Channel, at bucket.Position) {
	if _, noted := result.Skipped[channel]; noted {
		return
	}
	if result.Skipped == nil {
		result.Skipped = map[postdate.Channel]bucket.Position{}
	}
	result.Skipped[channel] = at
}
