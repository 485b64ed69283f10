package storetest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

var _ store.Store = (*Mem)(nil)

// Mem is the model: the simplest store that fulfils the contract. One mutex makes
// every call atomic, and every question is answered by looking at everything.
// It is for tests only: it keeps nothing, and its costs grow with what it holds.
type Mem struct {
	mu         sync.Mutex
	partitions []bucket.Partition
	leases     map[string]bucket.Lease
	records    map[postdate.Key]postdate.Record
	inboxes    map[inboxName]*memInbox
	channels   map[postdate.Channel]store.ChannelSettings
	created    uint64 // messages so far
}

// NewMem makes an empty store with the given number of buckets.
func NewMem(buckets int) *Mem {
	m := &Mem{
		partitions: make([]bucket.Partition, buckets),
		leases:     map[string]bucket.Lease{},
		records:    map[postdate.Key]postdate.Record{},
		inboxes:    map[inboxName]*memInbox{},
		channels:   map[postdate.Channel]store.ChannelSettings{},
	}
	for b := range m.partitions {
		m.partitions[b].Bucket = b
	}
	return m
}

// firstVersion leaves room for more reschedules than any test makes.
func (m *Mem) firstVersion() uint64 {
	m.created++
	return m.created << 32
}

// Insert implements store.Messages.
func (m *Mem) Insert(_ context.Context, messages []postdate.Message) []store.Inserted {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Inserted, len(messages))
	for i, message := range messages {
		old, found := m.records[message.Key]
		switch {
		case !found:
			m.records[message.Key] = postdate.Record{Message: message, State: postdate.NewState(&message, m.firstVersion())}
			results[i] = store.Inserted{Created: true, ExecutionTime: message.ExecutionTime, Status: postdate.Pending}
		case old.Digest == message.Digest:
			results[i] = store.Inserted{ExecutionTime: old.ExecutionTime, Status: old.Status}
		default:
			results[i].Err = postdate.E(postdate.KindExists, "scheduleId %q is taken by other content", message.ScheduleID)
		}
	}
	return results
}

// Get implements store.Messages.
func (m *Mem) Get(_ context.Context, key postdate.Key) (postdate.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, found := m.records[key]
	if !found {
		return postdate.Record{}, notFound(key)
	}
	return record, nil
}

func notFound(key postdate.Key) error {
	return postdate.E(postdate.KindNotFound, "there is no message %q", key.ScheduleID)
}

func tooLate(key postdate.Key) error {
	return postdate.E(postdate.KindTooLate, "the delivery of message %q may have begun, or it ended", key.ScheduleID)
}

// Replace implements store.Messages.
func (m *Mem) Replace(_ context.Context, message postdate.Message, ifVersion uint64) (postdate.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, found := m.records[message.Key]
	switch {
	case !found:
		return postdate.Record{}, notFound(message.Key)
	case old.Status != postdate.Pending:
		return old, tooLate(message.Key)
	case old.Version != ifVersion:
		return postdate.Record{}, postdate.E(postdate.KindConflict, "message %q is at another version", message.ScheduleID)
	case !m.partitions[message.Bucket].Withdrawable(old.State):
		return old, tooLate(message.Key)
	}
	next := postdate.Record{Message: message, State: postdate.NewState(&message, old.Version+1)}
	m.records[message.Key] = next
	return next, nil
}

// Cancel implements store.Messages.
func (m *Mem) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Cancelled, len(keys))
	for i, key := range keys {
		results[i] = m.cancel(key, at)
	}
	return results
}

func (m *Mem) cancel(key postdate.Key, at postdate.Time) store.Cancelled {
	record, found := m.records[key]
	switch {
	case !found:
		return store.Cancelled{Err: notFound(key)}
	case record.Status == postdate.Cancelled:
		return store.Cancelled{State: record.State}
	case !m.partitions[key.Bucket].Withdrawable(record.State):
		return store.Cancelled{State: record.State, Err: tooLate(key)}
	}
	record.Status, record.SettledAt, record.Parked = postdate.Cancelled, at, false
	m.records[key] = record
	return store.Cancelled{State: record.State, Changed: true}
}

// List implements store.Messages.
func (m *Mem) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []postdate.Record
	for _, r := range m.records {
		if selects(&q, &r) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b postdate.Record) int {
		return compareListed(listPosition(&a), listPosition(&b))
	})
	page := store.ListPage{Records: all}
	if len(all) > q.Limit {
		page.Records = all[:q.Limit]
		last := listPosition(&all[q.Limit-1])
		page.Next = &last
	}
	return page, nil
}

func selects(q *store.ListQuery, r *postdate.Record) bool {
	return r.Tenant == q.Tenant &&
		(q.Status == 0 || r.Status == q.Status) &&
		(q.Channel == "" || r.Channel == q.Channel) &&
		r.ExecutionTime >= q.From &&
		(q.To == 0 || r.ExecutionTime < q.To) &&
		(q.After == nil || compareListed(listPosition(r), *q.After) > 0)
}

func listPosition(r *postdate.Record) store.ListPosition {
	return store.ListPosition{ExecutionTime: r.ExecutionTime, Bucket: r.Bucket, ScheduleID: r.ScheduleID}
}

// compareListed is the order of a list. It is of one tenant, which therefore
// does not count.
func compareListed(a, b store.ListPosition) int {
	return cmp.Or(
		cmp.Compare(a.ExecutionTime, b.ExecutionTime),
		cmp.Compare(a.Bucket, b.Bucket),
		strings.Compare(a.ScheduleID, b.ScheduleID),
	)
}

// Look implements store.Partitions.
func (m *Mem) Look(_ context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var records []bucket.Partition
	for _, b := range buckets {
		records = append(records, m.partitions[b])
	}
	var leases []bucket.Lease
	for _, lease := range m.leases {
		leases = append(leases, lease)
	}
	return records, leases, nil
}

// Acquire implements store.Partitions.
func (m *Mem) Acquire(_ context.Context, wants []store.Acquisition) ([]store.Acquired, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Acquired, len(wants))
	for i, w := range wants {
		next, ok := m.partitions[w.Bucket].Acquire(w.SeenToken, w.Owner, w.Lease)
		m.partitions[w.Bucket] = next
		results[i] = store.Acquired{Partition: next, OK: ok}
	}
	return results, nil
}

// Release implements store.Partitions.
func (m *Mem) Release(_ context.Context, holds []store.Hold) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range holds {
		m.partitions[h.Bucket], _ = m.partitions[h.Bucket].Release(h.Token)
	}
	return nil
}

// Renew implements store.Partitions.
func (m *Mem) Renew(_ context.Context, lease bucket.Lease) (postdate.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases[lease.ID] = lease
	return 0, nil
}

// Channels implements store.Channels.
func (m *Mem) Channels(context.Context) ([]store.ChannelSettings, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.channels)), nil
}

// SetChannel implements store.Channels.
func (m *Mem) SetChannel(_ context.Context, settings store.ChannelSettings) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.channels[settings.Channel] = settings
	if settings.None() {
		delete(m.channels, settings.Channel)
	}
	return nil
}

// Buckets implements store.Housekeeping.
func (m *Mem) Buckets() int { return len(m.partitions) }

// Exclusive implements store.Housekeeping: no other process reads this memory.
func (m *Mem) Exclusive() bool { return true }

// Expire implements store.Housekeeping.
func (m *Mem) Expire(_ context.Context, e store.Expiry) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	expired := 0
	for key, r := range m.records {
		if expired < e.Limit && slices.Contains(e.Buckets, key.Bucket) && r.Status.Final() && r.SettledAt < e.SettledBefore {
			delete(m.records, key)
			expired++
		}
	}
	return expired + m.expireInboxes(&e), nil
}

// Close implements store.Housekeeping.
func (m *Mem) Close() error { return nil }
