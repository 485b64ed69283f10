package sim

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// row is a message as the store holds it.
type row = storetest.Row

// Store is the world's store: the model that every store is compared with. The history sees its
// changes, and bugs can be planted in it.
type Store struct {
	*storetest.Mem

	w        *world
	volatile []*row                         // acknowledged but not durable yet, with bugNotDurable
	leftOut  map[postdate.Key]postdate.Time // messages that a page left out, and when a sweep will find them
}

func newStore(w *world) *Store {
	s := &Store{Mem: storetest.NewMem(w.plan.buckets), w: w, leftOut: map[postdate.Key]postdate.Time{}}
	s.Clock = w.wall
	return s
}

// Exclusive implements store.Housekeeping.
func (s *Store) Exclusive() bool { return s.w.plan.alone() }

// Renew implements store.Partitions: a store that is a node's own has no clock.
func (s *Store) Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error) {
	t, err := s.Mem.Renew(ctx, lease)
	if s.Exclusive() {
		t = 0
	}
	return t, err
}

// Look implements store.Partitions. In a store of its own, a process first deletes the leases
// that earlier processes left.
func (s *Store) Look(ctx context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	records, leases, err := s.Mem.Look(ctx, buckets)
	if s.Exclusive() {
		leases = slices.DeleteFunc(leases, func(l bucket.Lease) bool { return l.ID != s.w.nodes[0].proc.lease })
	}
	return records, leases, err
}

// Insert implements store.Messages.
func (s *Store) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	if s.w.bug == bugInsertTwice {
		for _, m := range messages {
			if old := s.Rows[m.Key]; old != nil && old.Status.Final() {
				s.Put("insert", old, postdate.Record{Message: m, State: postdate.NewState(&m, old.Version+1<<32)}, nil)
			}
		}
	}
	if s.w.bug == bugPriorityLost {
		for i := range messages {
			messages[i].Priority = postdate.PriorityMedium
		}
	}
	results := s.Mem.Insert(ctx, messages)
	for i, m := range messages {
		if !results[i].Created {
			continue
		}
		if s.w.bug == bugVersionAgain {
			s.Rows[m.Key].Version = 1
		}
		s.volatile = append(s.volatile, s.Rows[m.Key])
	}
	return results
}

// Cancel implements store.Messages.
func (s *Store) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	for _, key := range keys {
		r := s.Rows[key]
		switch {
		case r == nil || r.Status != postdate.Pending:
		case s.w.bug == bugNoSecondLook:
			next := r.Record
			next.State = next.State.Cancel(at)
			s.Put("cancel", r, next, nil)
		case s.w.bug == bugCancelForgotten && r.Attempts > 0 &&
			s.Records[key.Bucket].Withdrawable(key, r.Route(), r.State):
			return []store.Cancelled{{State: r.State, Changed: true}}
		case s.w.bug == bugEndingNotKept && r.Occurrence != 0 &&
			!s.Records[key.Bucket].Withdrawable(key, r.Route(), r.State):
			return []store.Cancelled{{State: r.State, Err: store.ErrTooLate(key, r.State)}}
		}
	}
	return s.Mem.Cancel(ctx, keys, at)
}

// expireFor deletes what e names, and records who asked for it.
func (s *Store) expireFor(by deletion, e store.Expiry) int {
	old, letters := s.Expired(e)
	s.w.history.expired(by, old, letters)
	return len(old) + letters
}

// failOver is a change of the primary, or the death of a process with a store of its own: what
// was acknowledged stays.
func (s *Store) failOver() {
	for _, r := range s.volatile {
		if s.w.bug == bugNotDurable && s.Rows[r.Key] == r && r.Written > s.Clock()-5_000 {
			s.Drop(r)
		}
	}
	s.volatile = nil
}

// write is the first half of a claim, for a node. Other things may happen before the second.
func (s *Store) write(node string, c store.Claim) (to bucket.Position, err error) {
	asked, before := c, s.Records[c.Bucket]
	switch {
	case s.w.bug == bugNoFence && before.Owner != "":
		c.Token = before.Token
	case s.w.bug == bugLateClaims && c.Number < before.Claims:
		s.Records[c.Bucket].Claims = c.Number - 1
		defer func() { s.Records[c.Bucket].Claims = before.Claims }()
	}
	to, err = s.Mem.Write(&c)
	if err == nil && to != (bucket.Position{}) { // otherwise nothing was written
		s.w.history.claimed(node, asked, before, s.Records[c.Bucket])
	}
	return to, err
}

// read is the second half of a claim: the scan.
func (s *Store) read(c store.Claim, to bucket.Position) store.ClaimResult {
	record := s.Records[c.Bucket]
	defer func() { s.Records[c.Bucket] = record }()
	switch s.w.bug {
	case bugCheckpointFilters:
		if low := bucket.UpTo(record.Checkpoint); c.Scan.After.Before(low) {
			c.Scan.After = low
		}
	case bugClaimAfterRead:
		s.Records[c.Bucket].Claimed, s.Records[c.Bucket].Behind = bucket.UpTo(postdate.Far), c.Behind
		if c.Only != "" {
			s.Records[c.Bucket].Behind = nil
		}
	case bugBehindIsRead:
		s.Records[c.Bucket].Behind, c.Behind = nil, nil
	}
	result := s.Mem.Read(&c, to)
	s.w.history.seriesRead(c.Token, result.Due)
	if s.w.bug == bugPauseIgnored {
		for i := range result.Due {
			result.Due[i].Paused = false
		}
	}
	s.asBehindRouter(&result)
	if s.w.bug == bugScanBeyond && result.Complete {
		line := s.Waiting[c.Bucket]
		i := slices.IndexFunc(line, func(r *row) bool { return c.To.Before(bucket.PositionOf(r.Key, r.AttemptTime)) })
		if i >= 0 {
			for _, r := range line[i:min(i+c.Scan.Limit, len(line))] {
				result.Due = append(result.Due, r.Record)
			}
		}
	}
	return result
}

// asBehindRouter changes a page as a sharded store may: it leaves out a message whose change is
// under way and cannot be stopped, and its Next may be earlier than the next message's time.
func (s *Store) asBehindRouter(r *store.ClaimResult) {
	if s.Exclusive() {
		return
	}
	r.Due = slices.DeleteFunc(r.Due, func(rec postdate.Record) bool {
		if s.w.plan.quiet() || s.w.r.IntN(heldEvery) != 0 {
			return false
		}
		if r.LeftOut == (bucket.Position{}) {
			r.LeftOut = bucket.PositionOf(rec.Key, rec.AttemptTime)
		}
		s.leftOut[rec.Key] = s.w.wall().Add(s.w.plan.poller.SweepEvery)
		return true
	})
	if r.Complete && s.w.r.IntN(nextEarlyEvery) == 0 {
		r.Next = r.Ended.Time + postdate.Time(s.w.r.Int64N(1+int64(min(r.Next-r.Ended.Time, 10_000))))
	}
}

const (
	heldEvery      = 2000 // one in that many messages is left out of its page
	nextEarlyEvery = 20   // one in that many pages gives an earlier Next
)

// Settle implements store.Due.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) error {
	for i := range settlements {
		st := &settlements[i]
		s.leavesWrongly(st)
		old := s.Rows[st.Key]
		if old != nil && old.Version == st.Version && old.ExecutionTime != st.ExecutionTime &&
			s.w.bug != bugVersionAgain {
			panic("a settlement names another execution time than its message has: a sharded store does not find it")
		}
		if old != nil && s.settlesAnyway(old, st) {
			next := old.Record
			next.Ending = next.Ending && s.w.bug != bugEndingIgnored
			next.State, next.Series = st.State(next.State), st.Series(next.State, next.Series)
			next.Paused = next.Paused && s.w.bug != bugPauseForgotten
			if left, ok := st.Failed(&old.Record); ok && s.Rows[left.Key] == nil {
				s.Put("settle", nil, left, st)
			}
			s.Put("settle", old, next, st)
		}
	}
	err := s.Mem.Settle(ctx, settlements)
	for i := range settlements {
		if r := s.Rows[settlements[i].Key]; s.w.bug == bugRowsVanish && r != nil && r.Status.Final() {
			s.Drop(r)
		}
	}
	return err
}

// deliver puts one message, sent as e, into its inbox and settles it, in one step.
func (s *Store) deliver(e *emission, st store.Settlement) {
	if s.Settles(&st) == nil && s.w.bug != bugDeliversAgain {
		return
	}
	e.mayArrive = true
	s.w.history.arrived(e)
	if s.w.bug == bugDeliversApart && s.w.r.IntN(8) == 0 {
		return
	}
	_ = s.Settle(ctx, []store.Settlement{st}) // it returns no error
}

// leavesWrongly does what a planted bug makes of a settlement and of what it leaves for a failure channel.
func (s *Store) leavesWrongly(st *store.Settlement) {
	old, as := s.Rows[st.Key], *st
	switch {
	case s.w.bug == bugFailsWithout:
		st.FailureChannel = ""
	case old == nil:
	case s.w.bug == bugRetryLeaves && st.How == store.SettleRetry && old.Status == postdate.Pending:
		as.How, as.FailureChannel = store.SettleFailed, old.FailureChannel
		if left, ok := as.Failed(&old.Record); ok && s.Rows[left.Key] == nil {
			s.Put("settle", nil, left, st)
		}
	case s.w.bug == bugLeftVanishes && old.OfFailure() && !old.Status.Final():
		s.Drop(old)
	}
}

// settlesAnyway reports whether a planted bug lets a settlement through.
func (s *Store) settlesAnyway(old *row, st *store.Settlement) bool {
	pending, version := old.Status == postdate.Pending, old.Version == st.Version
	token := st.How == store.SettleDelivered || st.Token == s.Records[st.Key.Bucket].Token
	if old.Occurrence != 0 {
		return pending && version && token && s.seriesGoesOnAnyway(old, st)
	}
	switch s.w.bug {
	case bugSettleFinal:
		return !pending && version && token
	case bugSettleVersion:
		return pending && !version && token
	case bugSettleToken:
		return pending && version && !token
	}
	return false
}

// seriesGoesOnAnyway is the same for a series.
func (s *Store) seriesGoesOnAnyway(old *row, st *store.Settlement) bool {
	switch s.w.bug {
	case bugOccurrenceIgnored:
		return st.Occurrence != old.Occurrence
	case bugEndingIgnored:
		return st.Occurrence == old.Occurrence && old.Ending && st.Advances()
	case bugPauseForgotten:
		return st.Occurrence == old.Occurrence && old.Paused && st.Advances()
	case bugRetriedLost:
		return st.Occurrence == old.Occurrence && st.How == store.SettleRetry && !old.Ending
	}
	return false
}

// armTwice moves on the series that were due in a bucket which is taken over, if that bug is planted.
func (s *Store) armTwice(b int) {
	if s.w.bug != bugArmedTwice {
		return
	}
	for _, r := range slices.Clone(s.Waiting[b]) {
		next := r.Record
		if at, ok := s.w.history.storyOf(r).next(r); ok && r.AttemptTime < s.w.wall() {
			next.Occurrence, next.AttemptTime, next.Run = at, at, r.Run+1
			s.Put("settle", r, next, nil)
		}
	}
}

// Acquire implements store.Partitions.
func (s *Store) Acquire(ctx context.Context, wants []store.Acquisition) (results []store.Acquired, err error) {
	for i, want := range wants {
		before := s.Records[want.Bucket]
		got, _ := s.Mem.Acquire(ctx, wants[i:i+1])
		if got[0].OK {
			s.armTwice(want.Bucket)
			s.w.history.partitionChanged("acquire", before, got[0].Partition)
		}
		results = append(results, got...)
	}
	return results, nil
}

// Release implements store.Partitions.
func (s *Store) Release(ctx context.Context, holds []store.Hold) error {
	for i, hold := range holds {
		before := s.Records[hold.Bucket]
		s.Mem.Release(ctx, holds[i:i+1])
		if s.w.bug == bugTokenReset && before.Token == hold.Token {
			s.Records[hold.Bucket].Token = 0
		}
		if before.Token == hold.Token {
			s.w.history.partitionChanged("release", before, s.Records[hold.Bucket])
		}
	}
	return nil
}

// forget loses a checkpoint.
func (s *Store) forget(b int) { s.Records[b].Checkpoint = 0 }
