package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in how they forget.
type (
	forgetTakesPending   struct{ *Mem }
	forgetTakesParked    struct{ *Mem }
	forgetTakesEnding    struct{ *Mem }
	forgetTakesResting   struct{ *Mem }
	forgetIgnoresVersion struct{ *Mem }
	forgetTakesLater     struct{ *Mem }
	forgetTakesZero      struct{ *Mem }
	forgetDoesNothing    struct{ *Mem }
	forgetSparesFailed   struct{ *Mem }
	forgetSparesSeries   struct{ *Mem }
	forgetSparesRetried  struct{ *Mem }
	forgetTakesRetried   struct{ *Mem }
	forgetTakesPrefix    struct{ *Mem }
	forgetTakesOthers    struct{ *Mem }
	forgetTellsNobody    struct{ *Mem }
	forgetSaysTooLate    struct{ *Mem }
	forgetSaysNotFound   struct{ *Mem }
	forgetCancels        struct{ *Mem }
	forgetCounts         struct{ *Mem }
	forgetRaces          struct{ *Mem }
	forgetRacesOthers    struct{ *Mem }
	expireRacesForget    struct{ *Mem }
	forgetLeavesListed   struct{ *leaving }
	forgetLeavesFinished struct{ *leaving }
	forgetLeavesID       struct{ *leaving }
	forgetLeavesVersions struct{ *leaving }
)

// takes is a Forget that also drops what may says.
func (m *Mem) takes(key postdate.Key, version uint64, may func(r *Row) bool) error {
	m.mu.Lock()
	if r := m.Rows[key]; r != nil && may(r) {
		m.Drop(r)
		m.mu.Unlock()
		return nil
	}
	m.mu.Unlock()
	return m.Forget(context.Background(), key, version)
}

func (s forgetTakesPending) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.takes(key, version, func(r *Row) bool { return r.Version == version })
}

func (s forgetTakesParked) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.takes(key, version, func(r *Row) bool { return r.Version == version && r.Parked })
}

func (s forgetTakesEnding) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.takes(key, version, func(r *Row) bool { return r.Version == version && r.Ending })
}

func (s forgetTakesResting) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.takes(key, version, func(r *Row) bool { return r.Version == version && r.AttemptTime == postdate.Far })
}

func (s forgetIgnoresVersion) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.takes(key, version, func(r *Row) bool { return r.Status.Final() })
}

func (s forgetTakesLater) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.takes(key, version, func(r *Row) bool { return r.Status.Final() && r.Version >= version && version > 0 })
}

func (s forgetTakesZero) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.takes(key, version, func(r *Row) bool { return r.Status.Final() && version == 0 })
}

func (s forgetDoesNothing) Forget(_ context.Context, key postdate.Key, version uint64) error {
	if r := s.present(key); r.Status.Final() && r.Version == version {
		return nil
	}
	return s.Mem.Forget(context.Background(), key, version)
}

// spares is a Forget that refuses what no says.
func (m *Mem) spares(key postdate.Key, version uint64, no func(r postdate.Record) bool) error {
	if no(m.present(key)) {
		return store.ErrChanged(key)
	}
	return m.Forget(context.Background(), key, version)
}

func (s forgetSparesFailed) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.spares(key, version, func(r postdate.Record) bool { return r.Status == postdate.DeliveryFailed })
}

func (s forgetSparesSeries) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.spares(key, version, func(r postdate.Record) bool { return r.Occurrence != 0 })
}

func (s forgetSparesRetried) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.spares(key, version, func(r postdate.Record) bool { _, alone := r.OfSeries(); return alone })
}

// forgetWith forgets, and drops the others that goes says.
func (m *Mem) forgetWith(key postdate.Key, version uint64, goes func(other postdate.Key) bool) error {
	err := m.Forget(context.Background(), key, version)
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, r := range m.Rows {
		if err == nil && goes(other) {
			m.Drop(r)
		}
	}
	return err
}

func (s forgetTakesRetried) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.forgetWith(key, version, func(other postdate.Key) bool { of, is := other.OfSeries(); return is && of == key })
}

func (s forgetTakesPrefix) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.forgetWith(key, version, func(other postdate.Key) bool {
		return other.Tenant == key.Tenant && strings.HasPrefix(other.ScheduleID, key.ScheduleID)
	})
}

func (s forgetTakesOthers) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.forgetWith(key, version, func(other postdate.Key) bool { return other.ScheduleID == key.ScheduleID })
}

// answers is a Forget with another answer in place of an error of a kind.
func (m *Mem) answers(key postdate.Key, version uint64, kind postdate.Kind, answer error) error {
	err := m.Forget(context.Background(), key, version)
	if err != nil && postdate.KindOf(err) == kind {
		return answer
	}
	return err
}

func (s forgetTellsNobody) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.answers(key, version, postdate.KindNotFound, nil)
}

func (s forgetSaysTooLate) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.answers(key, version, postdate.KindConflict, store.ErrTooLate(key, s.present(key).State))
}

func (s forgetSaysNotFound) Forget(_ context.Context, key postdate.Key, version uint64) error {
	return s.answers(key, version, postdate.KindConflict, store.ErrNotFound(key))
}

func (s forgetCancels) Forget(ctx context.Context, key postdate.Key, version uint64) error {
	if r := s.present(key); r.Version == version && r.Status == postdate.Pending {
		s.Cancel(ctx, []postdate.Key{key}, t0)
	}
	return s.Mem.Forget(ctx, key, version)
}

func (s forgetCounts) Forget(ctx context.Context, key postdate.Key, version uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.Rows[key]
	if r == nil {
		return store.ErrNotFound(key)
	}
	err := store.CheckFinal(key, r.State, version)
	if err == nil {
		s.Drop(r)
		pending := *r
		pending.Status = postdate.Pending
		s.count(&pending, -1)
	}
	return err
}

// Forget looks whether it may, and deletes what is there after others had their turn.
func (s forgetRaces) Forget(ctx context.Context, key postdate.Key, version uint64) error {
	if r := s.present(key); r.Version == version && r.Status.Final() {
		yield()
		return s.takes(key, version, func(*Row) bool { return true })
	}
	return s.Mem.Forget(ctx, key, version)
}

// Forget also takes for its own what somebody else has deleted since it looked.
func (s forgetRacesOthers) Forget(ctx context.Context, key postdate.Key, version uint64) error {
	if r := s.present(key); r.Version == version && r.Status.Final() {
		yield()
		_ = s.Mem.Forget(ctx, key, version)
		return nil
	}
	return s.Mem.Forget(ctx, key, version)
}

// Expire deletes by the id what it has selected before others had their turn.
func (s expireRacesForget) Expire(ctx context.Context, e store.Expiry) (int, error) {
	s.mu.Lock()
	old := s.past(&e)
	s.mu.Unlock()
	yield()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range old {
		if now := s.Rows[r.Key]; now != nil {
			s.Drop(now)
		}
	}
	return len(old) + s.expireInboxes(&e), nil
}

// leaving is a store that remembers what it forgot.
type leaving struct {
	*Mem
	lock sync.Mutex
	left map[postdate.Key]postdate.Record
}

func leave(m *Mem) *leaving { return &leaving{Mem: m, left: map[postdate.Key]postdate.Record{}} }

func (s *leaving) Forget(ctx context.Context, key postdate.Key, version uint64) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	r := s.present(key)
	err := s.Mem.Forget(ctx, key, version)
	if err == nil {
		s.left[key] = r
	}
	return err
}

func (s forgetLeavesListed) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, r := range s.left {
		if selects(&q, &r) && len(page.Records) < q.Limit {
			page.Records = append(page.Records, r)
		}
	}
	return page, err
}

// Expire deletes also by what forgotten messages left in the order of the retention.
func (s forgetLeavesFinished) Expire(ctx context.Context, e store.Expiry) (int, error) {
	n, err := s.Mem.Expire(ctx, e)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, was := range s.left {
		if was.SettledAt < e.SettledBefore && slices.Contains(e.Buckets, key.Bucket) {
			delete(s.left, key)
			if r := s.Rows[key]; r != nil {
				s.Drop(r)
			}
			n++
		}
	}
	return n, err
}

func (s forgetLeavesID) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	s.lock.Lock()
	defer s.lock.Unlock()
	results := make([]store.Inserted, len(messages))
	for i, m := range messages {
		if was, is := s.left[m.Key]; is {
			results[i].Err = store.ErrExists(m.Key, was.Status)
		} else {
			results[i] = s.Mem.Insert(ctx, messages[i:i+1])[0]
		}
	}
	return results
}

// Insert goes on with the versions of what was forgotten.
func (s forgetLeavesVersions) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := s.Mem.Insert(ctx, messages)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range messages {
		if was, is := s.left[m.Key]; is && results[i].Created {
			s.amend(m.Key, func(r *postdate.Record) { r.Version = was.Version })
		}
	}
	return results
}

// These bugs are caught in the area of what is forgotten. Some show as well where what has expired is reused.
var bugsInForget = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return forgetTakesPending{m} },
	func(m *Mem) store.Store { return forgetTakesParked{m} },
	func(m *Mem) store.Store { return forgetTakesEnding{m} },
	func(m *Mem) store.Store { return forgetTakesResting{m} },
	func(m *Mem) store.Store { return forgetIgnoresVersion{m} },
	func(m *Mem) store.Store { return forgetTakesLater{m} },
	func(m *Mem) store.Store { return forgetTakesZero{m} },
	func(m *Mem) store.Store { return forgetDoesNothing{m} },
	func(m *Mem) store.Store { return forgetSparesFailed{m} },
	func(m *Mem) store.Store { return forgetSparesSeries{m} },
	func(m *Mem) store.Store { return forgetSparesRetried{m} },
	func(m *Mem) store.Store { return forgetTakesRetried{m} },
	func(m *Mem) store.Store { return forgetTakesPrefix{m} },
	func(m *Mem) store.Store { return forgetTakesOthers{m} },
	func(m *Mem) store.Store { return forgetTellsNobody{m} },
	func(m *Mem) store.Store { return forgetSaysTooLate{m} },
	func(m *Mem) store.Store { return forgetSaysNotFound{m} },
	func(m *Mem) store.Store { return forgetCancels{m} },
	func(m *Mem) store.Store { return forgetCounts{m} },
	func(m *Mem) store.Store { return forgetRaces{m} },
	func(m *Mem) store.Store { return forgetRacesOthers{m} },
	func(m *Mem) store.Store { return expireRacesForget{m} },
	func(m *Mem) store.Store { return forgetLeavesListed{leave(m)} },
	func(m *Mem) store.Store { return forgetLeavesFinished{leave(m)} },
	func(m *Mem) store.Store { return forgetLeavesID{leave(m)} },
	func(m *Mem) store.Store { return forgetLeavesVersions{leave(m)} },
	func(m *Mem) store.Store { return versionsBeginAnew{m} },
	func(m *Mem) store.Store { return settleIgnoresVersion{m} },
}

// TestLostForgetIsCaught: what was forgotten is there again after a crash.
func TestLostForgetIsCaught(t *testing.T) {
	reopen := func(s store.Store) store.Store {
		l := s.(*leaving)
		for key, r := range l.left {
			if l.Rows[key] == nil {
				l.Put("", nil, r, nil)
			}
		}
		return s
	}
	if !slices.ContainsFunc(durable(), func(c check) bool { return observe(c, leave(NewMem(8)), reopen) != "" }) {
		t.Error("no check caught it")
	}
}
