package storetest

import (
	"context"
	"maps"
	"runtime"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug of the kind that a store can have, in what clients
// and readers do.
type (
	cancelIgnoresClaimed struct{ *Mem }
	cancelIgnoresDoubt   struct{ *Mem }
	cancelIgnoresBehind  struct{ *Mem }
	cancelIgnoresPlaces  struct{ *Mem }
	cancelRaces          struct{ *Mem }
	replaceIgnoresState  struct{ *Mem }
	replaceIgnoresOthers struct{ *Mem }
	replaceKeepsAttempts struct{ *Mem }
	insertOverwrites     struct{ *Mem }
	insertDropsHeaders   struct{ *Mem }
	insertAnswersAnew    struct{ *Mem }
	insertKnowsLast      struct{ *Mem }
	replaceDropsOriginal struct{ *Mem }
	replaceDropsMove     struct{ *Mem }
	settleDropsMove      struct{ *Mem }
	listMissesTies       struct{ *Mem }
	expireTakesPending   struct{ *Mem }
	expireIgnoresBuckets struct{ *Mem }
	expireCountsOthers   struct{ *Mem }
	inboxesIgnoreBuckets struct{ *Mem }
	inboxSkips           struct{ *Mem }
	versionsBeginAnew    struct{ *Mem }
)

// cancelAs cancels as if the records said something else.
func (m *Mem) cancelAs(keys []postdate.Key, at postdate.Time, change func(*bucket.Partition)) []store.Cancelled {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Cancelled, len(keys))
	for i, key := range keys {
		was := m.Records[key.Bucket]
		change(&m.Records[key.Bucket])
		results[i] = m.cancel(key, at)
		m.Records[key.Bucket] = was
	}
	return results
}

// Every channel is taken to be claimed as far as the others.
func (s cancelIgnoresBehind) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAs(keys, at, func(p *bucket.Partition) { p.Behind = nil })
}

// Of a channel that is behind nothing is taken to be claimed.
func (s cancelIgnoresPlaces) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAs(keys, at, func(p *bucket.Partition) {
		p.Behind = maps.Clone(p.Behind)
		for channel := range p.Behind {
			p.Behind[channel] = bucket.Position{}
		}
	})
}

func (s cancelIgnoresClaimed) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAs(keys, at, unclaimed)
}

func unclaimed(p *bucket.Partition) { p.Claimed, p.Behind = bucket.Position{}, nil }

func (s cancelIgnoresDoubt) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	s.mu.Lock()
	for _, key := range keys {
		if old := s.Rows[key]; old != nil && old.PossibleDuplicate {
			r := *old
			if r.PossibleDuplicate = false; s.withdrawable(&r) {
				s.Put("", old, r.Record, nil)
			}
		}
	}
	s.mu.Unlock()
	return s.Mem.Cancel(ctx, keys, at)
}

// Cancel looks at the claim, and acts on what it saw after others had their turn.
func (s cancelRaces) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	if len(keys) != 1 {
		return s.Mem.Cancel(ctx, keys, at)
	}
	s.mu.Lock()
	r := s.Rows[keys[0]]
	may := r != nil && s.withdrawable(r)
	s.mu.Unlock()
	if !may {
		return s.Mem.Cancel(ctx, keys, at)
	}
	for range 20 {
		runtime.Gosched()
	}
	return s.cancelAs(keys, at, unclaimed)
}

func (s replaceIgnoresState) Replace(_ context.Context, m, _ postdate.Record) (postdate.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.Rows[m.Key]
	if old == nil {
		return postdate.Record{}, store.ErrNotFound(m.Key)
	}
	m.Version = old.Version + 1
	return s.Put("", old, m, nil).Record, nil
}

func (s replaceIgnoresOthers) Replace(ctx context.Context, m, was postdate.Record) (postdate.Record, error) {
	s.mu.Lock()
	if old := s.Rows[m.Key]; old != nil {
		was = old.Record
	}
	s.mu.Unlock()
	m.Version = was.Version + 1
	return s.Mem.Replace(ctx, m, was)
}

func (s replaceKeepsAttempts) Replace(ctx context.Context, m, was postdate.Record) (postdate.Record, error) {
	old, _ := s.Get(ctx, m.Key)
	r, err := s.Mem.Replace(ctx, m, was)
	if err == nil {
		s.mu.Lock()
		r.Attempts = old.Attempts
		s.Put("", s.Rows[m.Key], r, nil)
		s.mu.Unlock()
	}
	return r, err
}

func (s insertOverwrites) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	s.mu.Lock()
	for _, m := range messages {
		if old := s.Rows[m.Key]; old != nil && old.Digest != m.Digest {
			s.Drop(old)
		}
	}
	s.mu.Unlock()
	return s.Mem.Insert(ctx, messages)
}

func (s versionsBeginAnew) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := s.Mem.Insert(ctx, messages)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range messages {
		if results[i].Created {
			old := s.Rows[m.Key]
			next := old.Record
			next.Version = 1
			s.Put("", old, next, nil)
		}
	}
	return results
}

func (s insertDropsHeaders) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	kept := append([]postdate.Message(nil), messages...)
	for i := range kept {
		kept[i].Headers = nil
	}
	return s.Mem.Insert(ctx, kept)
}

func (s insertAnswersAnew) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := s.Mem.Insert(ctx, messages)
	for i := range results {
		if results[i].Err == nil {
			results[i].ExecutionTime = messages[i].ExecutionTime
		}
	}
	return results
}

func (s insertKnowsLast) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := s.Mem.Insert(ctx, messages)
	for i, m := range messages {
		if old, _ := s.Get(ctx, m.Key); old.Digest != m.Digest {
			results[i] = store.Inserted{Err: store.ErrExists(m.Key, old.Status)}
		}
	}
	return results
}

func (s replaceDropsOriginal) Replace(ctx context.Context, m, was postdate.Record) (postdate.Record, error) {
	m.Original = postdate.Original{}
	return s.Mem.Replace(ctx, m, was)
}

func (s replaceDropsMove) Replace(ctx context.Context, m, was postdate.Record) (postdate.Record, error) {
	m.Moved = postdate.Move{}
	return s.Mem.Replace(ctx, m, was)
}

func (s settleDropsMove) Settle(ctx context.Context, settlements []store.Settlement) error {
	err := s.Mem.Settle(ctx, settlements)
	for i := range settlements {
		if r := s.Rows[settlements[i].Key]; r != nil && r.Moved != (postdate.Move{}) {
			next := r.Record
			next.Moved = postdate.Move{}
			s.Put("settle", r, next, nil)
		}
	}
	return err
}

func (s listMissesTies) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.After != nil {
		q.After = &store.ListPosition{ExecutionTime: q.After.ExecutionTime + 1}
	}
	return s.Mem.List(ctx, q)
}

func (s expireTakesPending) Expire(_ context.Context, e store.Expiry) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	expired := 0
	for key, r := range s.Rows {
		if expired < e.Limit && slices.Contains(e.Buckets, key.Bucket) && r.SettledAt < e.SettledBefore {
			s.Drop(r)
			expired++
		}
	}
	return expired + s.expireInboxes(&e), nil
}

// everywhere is e for all buckets.
func (m *Mem) everywhere(e store.Expiry) store.Expiry {
	e.Buckets = nil
	for b := range m.Records {
		e.Buckets = append(e.Buckets, b)
	}
	return e
}

func (s expireIgnoresBuckets) Expire(ctx context.Context, e store.Expiry) (int, error) {
	all := s.everywhere(e)
	all.DeliveredBefore = 0
	messages, _ := s.Mem.Expire(ctx, all)
	e.SettledBefore = 0
	letters, err := s.Mem.Expire(ctx, e)
	return messages + letters, err
}

func (s inboxesIgnoreBuckets) Expire(ctx context.Context, e store.Expiry) (int, error) {
	all := s.everywhere(e)
	all.SettledBefore = 0
	letters, _ := s.Mem.Expire(ctx, all)
	e.DeliveredBefore = 0
	messages, err := s.Mem.Expire(ctx, e)
	return messages + letters, err
}

// Expire spends its limit on whatever is old, and then keeps what lies elsewhere.
func (s expireCountsOthers) Expire(ctx context.Context, e store.Expiry) (int, error) {
	s.mu.Lock()
	for key, r := range s.Rows {
		if r.Status.Final() && r.SettledAt < e.SettledBefore && !slices.Contains(e.Buckets, key.Bucket) {
			e.Limit = max(0, e.Limit-1)
		}
	}
	s.mu.Unlock()
	return s.Mem.Expire(ctx, e)
}

// AppendInbox takes a message's place first, and puts the message there after others had their
// turn: a reader may have passed it.
func (s inboxSkips) AppendInbox(ctx context.Context, messages []store.InboxMessage) error {
	if err := s.Mem.AppendInbox(ctx, make([]store.InboxMessage, 0)); err != nil || len(messages) == 0 {
		return err
	}
	name := inboxName{messages[0].Tenant, messages[0].Inbox}
	s.mu.Lock()
	box := s.inboxes[name]
	if box == nil || len(box.messages) < 2 {
		s.mu.Unlock()
		return s.Mem.AppendInbox(ctx, messages)
	}
	place := len(box.messages)
	s.mu.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	box.messages = append(box.messages[:place:place], append(append([]store.InboxMessage(nil), messages...), box.messages[place:]...)...)
	return nil
}
