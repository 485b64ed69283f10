package sim

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

var _ store.Store = (*Store)(nil)

// Store is the world's store: a model that fulfils the store's contract (it
// passes storetest), quick where worlds are large, and with an observer who sees
// every change. Inboxes and channel settings are those of storetest.Mem.
type Store struct {
	*storetest.Mem

	mu         sync.Mutex
	partitions []bucket.Partition
	leases     []bucket.Lease // by id
	records    map[postdate.Key]*row
	oldest     postdate.Time // no record ended before
	waiting    [][]*row      // per bucket: PENDING and not parked, by attempt time
	parked     [][]*row      // per bucket: the parked ones, in the same order
	clock      func() postdate.Time
	watch      observer
	bug        bug
	created    uint64 // messages so far
	volatile   []*row // acknowledged and not durable yet, with that bug
}

// row is a record, and whether it came behind the claim.
type row struct {
	postdate.Record
	late    bool // it was due already when it was written, by its bucket's claim
	written postdate.Time
}

// observer sees every change, in the order in which they happen.
type observer interface {
	recordChanged(by string, before *row, after *row, s *store.Settlement)
	expired(node string, old []*row, letters int)
	partitionChanged(by string, before, after bucket.Partition)
	claimed(node string, c store.Claim, before, after bucket.Partition)
}

type nobody struct{}

func (nobody) recordChanged(string, *row, *row, *store.Settlement)             {}
func (nobody) expired(string, []*row, int)                                     {}
func (nobody) partitionChanged(string, bucket.Partition, bucket.Partition)     {}
func (nobody) claimed(string, store.Claim, bucket.Partition, bucket.Partition) {}

// NewStore makes an empty store with the given number of buckets.
func NewStore(buckets int) *Store {
	s := &Store{
		Mem: storetest.NewMem(buckets), partitions: make([]bucket.Partition, buckets), records: map[postdate.Key]*row{}, oldest: postdate.Far,
		waiting: make([][]*row, buckets), parked: make([][]*row, buckets),
		clock: func() postdate.Time { return 0 }, watch: nobody{},
	}
	for b := range s.partitions {
		s.partitions[b].Bucket = b
	}
	return s
}

func rowPosition(r *row) bucket.Position {
	return bucket.Position{Time: r.AttemptTime, Tenant: r.Tenant, ScheduleID: r.ScheduleID}
}

func comparePositions(a, b bucket.Position) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.ScheduleID, b.ScheduleID))
}

// lines is the line in which a record waits, or nil.
func (s *Store) line(r *row) *[]*row {
	switch {
	case r == nil || r.Status != postdate.Pending:
		return nil
	case r.Parked:
		return &s.parked[r.Bucket]
	}
	return &s.waiting[r.Bucket]
}

func place(line []*row, p bucket.Position) (int, bool) {
	return slices.BinarySearchFunc(line, p, func(r *row, p bucket.Position) int { return comparePositions(rowPosition(r), p) })
}

// put writes a record in the place of another one (nil: none), and tells of it.
// Records are never changed in place: who read one keeps what it read.
func (s *Store) put(by string, old *row, next postdate.Record, st *store.Settlement) *row {
	r := &row{Record: next, written: s.clock()}
	r.late = r.AttemptTime <= s.partitions[r.Bucket].Claimed
	if line := s.line(old); line != nil {
		i, _ := place(*line, rowPosition(old))
		*line = slices.Delete(*line, i, i+1)
	}
	if line := s.line(r); line != nil {
		i, _ := place(*line, rowPosition(r))
		*line = slices.Insert(*line, i, r)
	}
	s.records[r.Key] = r
	if r.Status.Final() {
		s.oldest = min(s.oldest, r.SettledAt)
	}
	s.watch.recordChanged(by, old, r, st)
	return r
}

// firstVersion leaves room for more reschedules than any world makes.
func (s *Store) firstVersion() uint64 {
	if s.bug == bugVersionAgain {
		return 1
	}
	s.created++
	return s.created << 32
}

// Insert implements store.Messages.
func (s *Store) Insert(_ context.Context, messages []postdate.Message) []store.Inserted {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]store.Inserted, len(messages))
	for i, m := range messages {
		old := s.records[m.Key]
		switch {
		case old == nil, s.bug == bugInsertTwice && old.Status.Final():
			r := s.put("insert", old, postdate.Record{Message: m, State: postdate.NewState(&m, s.firstVersion())}, nil)
			s.volatile = append(s.volatile, r)
			results[i] = store.Inserted{Created: true, ExecutionTime: m.ExecutionTime, Status: postdate.Pending}
		case old.Digest == m.Digest:
			results[i] = store.Inserted{ExecutionTime: old.ExecutionTime, Status: old.Status}
		default:
			results[i].Err = postdate.E(postdate.KindExists, "scheduleId %q is taken by other content", m.ScheduleID)
		}
	}
	return results
}

// Get implements store.Messages.
func (s *Store) Get(_ context.Context, key postdate.Key) (postdate.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[key]; r != nil {
		return r.Record, nil
	}
	return postdate.Record{}, notFound(key)
}

func notFound(key postdate.Key) error {
	return postdate.E(postdate.KindNotFound, "there is no message %q", key.ScheduleID)
}

func late(key postdate.Key) error {
	return postdate.E(postdate.KindTooLate, "the delivery of message %q may have begun, or it ended", key.ScheduleID)
}

// withdrawable is the rule of cancel and replace.
func (s *Store) withdrawable(r *row) bool {
	if s.bug == bugNoSecondLook {
		return r.Status == postdate.Pending
	}
	return s.partitions[r.Bucket].Withdrawable(r.State)
}

// Replace implements store.Messages.
func (s *Store) Replace(_ context.Context, m postdate.Message, ifVersion uint64) (postdate.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[m.Key]
	switch {
	case old == nil:
		return postdate.Record{}, notFound(m.Key)
	case old.Status != postdate.Pending:
		return old.Record, late(m.Key)
	case old.Version != ifVersion:
		return postdate.Record{}, postdate.E(postdate.KindConflict, "message %q is at another version", m.ScheduleID)
	case !s.withdrawable(old):
		return old.Record, late(m.Key)
	}
	next := postdate.Record{Message: m, State: postdate.NewState(&m, old.Version+1)}
	return s.put("replace", old, next, nil).Record, nil
}

// Cancel implements store.Messages.
func (s *Store) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]store.Cancelled, len(keys))
	for i, key := range keys {
		results[i] = s.cancel(key, at)
	}
	return results
}

func (s *Store) cancel(key postdate.Key, at postdate.Time) store.Cancelled {
	old := s.records[key]
	switch {
	case old == nil:
		return store.Cancelled{Err: notFound(key)}
	case old.Status == postdate.Cancelled:
		return store.Cancelled{State: old.State}
	case !s.withdrawable(old):
		return store.Cancelled{State: old.State, Err: late(key)}
	case s.bug == bugCancelForgotten && old.Attempts > 0:
		return store.Cancelled{State: old.State, Changed: true}
	}
	next := old.Record
	next.Status, next.SettledAt, next.Parked = postdate.Cancelled, at, false
	return store.Cancelled{State: s.put("cancel", old, next, nil).State, Changed: true}
}

// List implements store.Messages.
func (s *Store) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*row
	for _, r := range s.records {
		if selected(&q, &r.Record) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *row) int { return compareListed(listPosition(&a.Record), listPosition(&b.Record)) })
	var page store.ListPage
	for i, r := range all {
		if i == q.Limit {
			last := listPosition(&page.Records[i-1])
			page.Next = &last
			break
		}
		page.Records = append(page.Records, r.Record)
	}
	return page, nil
}

func selected(q *store.ListQuery, r *postdate.Record) bool {
	return r.Tenant == q.Tenant && (q.Status == 0 || r.Status == q.Status) && (q.Channel == "" || r.Channel == q.Channel) &&
		r.ExecutionTime >= q.From && (q.To == 0 || r.ExecutionTime < q.To) &&
		(q.After == nil || compareListed(listPosition(r), *q.After) > 0)
}

func listPosition(r *postdate.Record) store.ListPosition {
	return store.ListPosition{ExecutionTime: r.ExecutionTime, Bucket: r.Bucket, ScheduleID: r.ScheduleID}
}

func compareListed(a, b store.ListPosition) int {
	return cmp.Or(cmp.Compare(a.ExecutionTime, b.ExecutionTime), cmp.Compare(a.Bucket, b.Bucket), strings.Compare(a.ScheduleID, b.ScheduleID))
}

// Exclusive implements store.Housekeeping: every node of the world uses it.
func (s *Store) Exclusive() bool { return false }

// Expire implements store.Housekeeping.
func (s *Store) Expire(_ context.Context, e store.Expiry) (int, error) {
	return s.expireFor("", e), nil
}

// expireFor deletes for a node.
func (s *Store) expireFor(node string, e store.Expiry) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.past(e)
	slices.SortFunc(old, func(a, b *row) int { // the same ones in every run of a world
		return cmp.Or(cmp.Compare(a.SettledAt, b.SettledAt), compareListed(listPosition(&a.Record), listPosition(&b.Record)), strings.Compare(a.Tenant, b.Tenant))
	})
	old = old[:min(len(old), e.Limit)]
	for _, r := range old {
		delete(s.records, r.Key)
	}
	letters, _ := s.Mem.Expire(ctx, e)
	s.watch.expired(node, old, letters)
	return len(old) + letters
}

// past lists what e selects, in whatever order. Mostly there is nothing, and it costs
// nothing.
func (s *Store) past(e store.Expiry) (old []*row) {
	if e.SettledBefore <= s.oldest {
		return nil
	}
	s.oldest = postdate.Far
	for _, r := range s.records {
		switch {
		case !r.Status.Final():
		case r.SettledAt < e.SettledBefore && slices.Contains(e.Buckets, r.Bucket):
			old = append(old, r)
			fallthrough // the limit may leave it
		default:
			s.oldest = min(s.oldest, r.SettledAt)
		}
	}
	return old
}

// failOver is what a change of the primary does: what was acknowledged stays.
func (s *Store) failOver() {
	if s.bug == bugNotDurable {
		for _, r := range s.volatile {
			if s.records[r.Key] == r && r.written > s.clock()-5_000 {
				delete(s.records, r.Key)
				line := s.line(r)
				i, _ := place(*line, rowPosition(r))
				*line = slices.Delete(*line, i, i+1)
			}
		}
	}
	s.volatile = nil
}
