package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A series is one message. Its state also says which occurrence is present and, unless it is of
// layoutLean, what became of those before. An occurrence that is retried on its own is an ordinary
// message in the same bucket, so that the bucket's lock covers both.

// detach makes the occurrence that a settlement leaves to be retried a message of its own. old is
// the state of its series. If that cannot be, it returns the settlement that fails the occurrence
// instead: neither a full disk nor a damaged message must hold up others.
func (s *Store) detach(w *writer, p *store.Settlement, old *state) (*store.Settlement, error) {
	next, ok := p.Alone(old.State)
	if !ok {
		return p, nil
	}
	if s.full.Load() {
		return failed(p, "the store's disk is almost full"), nil
	}
	series, err := s.message(p.Key, old.ExecutionTime)
	if errors.Is(err, errLayout) || errors.Is(err, lsm.ErrNotFound) {
		s.reportDamage(p.Key, err)
		return failed(p, "its message is damaged"), nil
	}
	if err != nil {
		return nil, err
	}
	m := series.Alone(old.Occurrence)
	if _, there, err := w.state(m.Key); err != nil || there {
		return p, err
	}
	st := stateOf(&m, next)
	st.Log = p.AloneLog()
	w.setMessage(&m)
	w.setState(m.Key, &st)
	return p, nil
}

// failed is a settlement that fails an occurrence which cannot be retried.
func failed(p *store.Settlement, why string) *store.Settlement {
	other := p.WithReason("it is not retried, because " + why)
	other.How = store.SettleFailed
	return other
}

// countFailed counts for a series that an occurrence which was retried on its own failed for good.
func (s *Store) countFailed(w *writer, p *store.Settlement) error {
	key, is := p.Key.OfSeries()
	if !is {
		return nil
	}
	st, found, err := w.state(key)
	if err != nil || !found || !st.Owns(p.Version) {
		return err
	}
	w.unplace(key, &st)
	st.Series.Failed++
	w.setState(key, &st)
	return nil
}

// Pause implements store.Messages.
func (s *Store) Pause(ctx context.Context, series postdate.Key, ifVersion uint64) error {
	return s.changeSeries(ctx, series, ifVersion, func(_ *writer, st *state) error {
		st.Paused = true
		return nil
	})
}

// Trigger implements store.Messages.
func (s *Store) Trigger(ctx context.Context, series postdate.Key, ifVersion uint64,
	occurrence postdate.Time) error {
	r, err := s.Get(ctx, series)
	if err == nil {
		err = s.admit(ctx, r.Message)
	}
	if err != nil {
		return err
	}
	return s.changeSeries(ctx, series, ifVersion, func(w *writer, st *state) error {
		m, err := s.message(series, st.ExecutionTime)
		if err != nil {
			return err
		}
		m = m.Alone(occurrence)
		if _, there, err := w.state(m.Key); err != nil || there {
			return cmp.Or(err, store.ErrChanged(m.Key))
		}
		extra := stateOf(&m, postdate.NewState(&m, st.Version))
		w.setMessage(&m)
		w.setState(m.Key, &extra)
		st.Series = st.Series.Triggered(occurrence)
		return nil
	})
}

// changeSeries changes the state of a series that goes on, if it is still at ifVersion. After an error of
// change nothing is written.
func (s *Store) changeSeries(ctx context.Context, series postdate.Key, ifVersion uint64,
	change func(w *writer, st *state) error) error {
	return s.underAll(ctx, 1, func(int) (int, int) { return series.Bucket, 0 }, func(w *writer, _, _ int) error {
		old, found, err := w.state(series)
		switch {
		case err != nil:
			return err
		case !found:
			return store.ErrNotFound(series)
		}
		if err := store.CheckGoingOn(series, old.State, ifVersion); err != nil {
			return err
		}
		st := old
		if err := change(w, &st); err != nil {
			return err
		}
		w.unplace(series, &old)
		w.setState(series, &st)
		return nil
	})
}

// Retried implements store.Messages. It reads the state of each occurrence that was ever retried
// and has not expired.
func (s *Store) Retried(ctx context.Context, series postdate.Key) ([]postdate.Key, error) {
	keys, err := s.retried(ctx, series)
	if err != nil {
		return nil, s.readError(err)
	}
	return keys, s.awaitSynced()
}

func (s *Store) retried(ctx context.Context, series postdate.Key) (keys []postdate.Key, err error) {
	prefix := occurrencesPrefix(nil, series)
	iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, err
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		if err := ctx.Err(); err != nil {
			return nil, postdate.E(postdate.KindUnavailable, "given up before all were read: %w", err)
		}
		st, err := readState(iter.Value())
		if err != nil {
			return nil, err
		}
		key := series
		_, key.ScheduleID, _ = splitName(iter.Key()[1+bucketBytes:])
		if st.Status == postdate.Pending && !key.OfFailure() {
			keys = append(keys, key)
		}
	}
	return keys, iter.Error()
}

// appendOccurrence writes what the state of a series has beyond that of any other message.
func appendOccurrence(b []byte, s *state, form byte) []byte {
	b = appendTimes(b, s.Occurrence)
	b = binary.AppendUvarint(b, uint64(s.Run))
	if form != layoutLean {
		b = appendSeries(b, s)
	}
	if s.Changes != 0 { // states of earlier versions end here
		b = binary.AppendUvarint(b, uint64(s.Changes))
	}
	return b
}

// appendSeries writes what became of the occurrences.
func appendSeries(b []byte, s *state) []byte {
	for _, n := range []int64{s.Series.Fired, s.Series.Failed, s.Series.Skipped} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = append(b, byte(len(s.Series.History)))
	for _, o := range s.Series.History {
		b = append(appendTimes(b, o.Occurrence, o.At), byte(o.Status))
		b = binary.AppendUvarint(b, uint64(o.Attempts))
		b = binary.AppendUvarint(b, uint64(o.Skipped))
	}
	return b
}

func (r *reader) occurrence(s *state, form byte) {
	s.Occurrence, s.Run = r.time(), int(r.count())
	r.failed = r.failed || s.Occurrence <= 0
	if form != layoutLean {
		r.series(s)
	}
	if len(r.rest) > 0 {
		s.Changes = int(r.count())
		r.failed = r.failed || s.Changes == 0
	}
}

func (r *reader) series(s *state) {
	s.Series.Fired, s.Series.Failed, s.Series.Skipped = r.count(), r.count(), r.count()
	n := r.byte()
	if r.failed = r.failed || n > postdate.HistoryMax; !r.failed && n > 0 {
		s.Series.History = make([]postdate.Outcome, 0, n)
	}
	for ; n > 0 && !r.failed; n-- {
		o := postdate.Outcome{Occurrence: r.time(), At: r.time(), Status: postdate.Status(r.byte())}
		o.Attempts, o.Skipped = int(r.count()), r.count()
		r.failed = r.failed || o.Status > postdate.DeliveryFailed
		s.Series.History = append(s.Series.History, o)
	}
}

// count reads a number that is never negative.
func (r *reader) count() int64 {
	n := r.uvarint()
	r.failed = r.failed || n > math.MaxInt64
	return int64(n)
}

// appendRecurrence writes what a series has beyond any other message.
func appendRecurrence(b []byte, m *postdate.Message) []byte {
	c := m.Recurrence
	b = appendTimes(b, m.First, c.Anchor, c.Start, c.End)
	for _, n := range []int64{int64(c.Every), int64(c.MaxRuns), int64(c.Jitter), int64(c.MisfireAfter)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = append(b, byte(c.Misfire), byte(c.Gap), byte(c.Overlap))
	return appendText(appendText(b, c.Cron), c.Timezone)
}

func (r *reader) recurrence(m *postdate.Message) {
	c := &postdate.Recurrence{}
	m.Recurrence = c
	m.First, c.Anchor, c.Start, c.End = r.time(), r.time(), r.time(), r.time()
	c.Every, c.MaxRuns = time.Duration(r.uvarint()), int(r.uvarint())
	c.Jitter, c.MisfireAfter = time.Duration(r.uvarint()), time.Duration(r.uvarint())
	c.Misfire, c.Gap, c.Overlap = postdate.Misfire(r.byte()), postdate.Gap(r.byte()), postdate.Overlap(r.byte())
	c.Cron, c.Timezone = r.text(), r.text()
	r.failed = r.failed || c.Misfire > postdate.MisfireSkip || c.Gap > postdate.GapSkip ||
		c.Overlap > postdate.OverlapBoth
}
