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

// Mem is the model: a simple store that fulfils the contract, and is fast even if it holds
// much. One mutex makes every call atomic. It is only for tests and simulators: nothing in it
// is durable.
type Mem struct {
	Contents

	// Clock answers renewals, and dates rows; 0: the store has none.
	Clock func() postdate.Time
	// Watch is called for each row that is written, with the row that it replaces (nil: none),
	// the call that wrote it, and the settlement, if it was one.
	Watch func(by string, before, after *Row, s *store.Settlement)

	mu       sync.Mutex
	leases   []bucket.Lease        // by id
	oldest   postdate.Time         // no row ended before this
	failed   map[postdate.Key]*Row // the rows that are DELIVERY_FAILED, which are few and listed often
	inboxes  map[inboxName]*memInbox
	channels map[postdate.Route]store.ChannelSettings
	created  uint64 // messages so far
	keys     map[string]store.APIKey
	keysAt   uint64 // the version of keys
	tenants  map[string]store.TenantSettings
	pending  map[string]*memUsage // by tenant
	requests map[postdate.Key]memRequest
	consumer map[store.ConsumerName]store.Consumer
	jobs     map[postdate.Key]store.Job
}

// Contents are what a Mem holds. A simulator reads and changes it, and takes steps that are
// part of a call: Put, Drop, Write, Read and Settles. It may do so only while nobody else calls
// the store.
type Contents struct {
	Records []bucket.Partition // by bucket
	Rows    map[postdate.Key]*Row
	Waiting [][]*Row // by bucket: PENDING, in the order of positions
	Shelved [][]*Row // by bucket: of these the parked ones, in the same order

	Seen []bucket.Position // by bucket: up to where a claim that was not written found nothing
}

// Row is a message as it was written once. It is never changed in place: whoever has read a row
// keeps what it read.
type Row struct {
	postdate.Record
	Late    bool          // its place was already claimed, or seen to be empty
	Written postdate.Time // by Mem.Clock

	route postdate.Route // of the message, which is asked for often
}

// Route shadows that of the message.
func (r *Row) Route() postdate.Route { return r.route }

func (r *Row) at() bucket.Position { return positionOf(&r.Record) }

func positionOf(r *postdate.Record) bucket.Position { return bucket.PositionOf(r.Key, r.AttemptTime) }

// NewMem makes an empty store with the given number of buckets.
func NewMem(buckets int) *Mem {
	m := &Mem{
		Contents: Contents{
			Records: make([]bucket.Partition, buckets), Rows: map[postdate.Key]*Row{},
			Waiting: make([][]*Row, buckets), Shelved: make([][]*Row, buckets),
			Seen: make([]bucket.Position, buckets),
		},
		Clock: func() postdate.Time { return 0 }, Watch: func(string, *Row, *Row, *store.Settlement) {},
		oldest: postdate.Far, failed: map[postdate.Key]*Row{}, inboxes: map[inboxName]*memInbox{},
		channels: map[postdate.Route]store.ChannelSettings{}, keys: map[string]store.APIKey{},
		tenants: map[string]store.TenantSettings{}, pending: map[string]*memUsage{},
		requests: map[postdate.Key]memRequest{}, consumer: map[store.ConsumerName]store.Consumer{},
		jobs: map[postdate.Key]store.Job{},
	}
	for b := range m.Records {
		m.Records[b].Bucket = b
	}
	return m
}

// lines are the lines in which a row waits.
func (m *Mem) lines(r *Row) []*[]*Row {
	switch {
	case r == nil || r.Status != postdate.Pending:
		return nil
	case r.Parked:
		return []*[]*Row{&m.Waiting[r.Bucket], &m.Shelved[r.Bucket]}
	}
	return []*[]*Row{&m.Waiting[r.Bucket]}
}

// seek is where a position is in a line, and whether a row waits exactly there.
func seek(line []*Row, p bucket.Position) (int, bool) {
	return slices.BinarySearchFunc(line, p, func(r *Row, p bucket.Position) int { return r.at().Compare(p) })
}

// beyond is what waits in a bucket beyond a position.
func (m *Mem) beyond(b int, after bucket.Position) []*Row {
	i, found := seek(m.Waiting[b], after)
	if found {
		i++
	}
	return m.Waiting[b][i:]
}

// Put writes a row in place of another one (nil: none), and calls Watch.
func (m *Mem) Put(by string, old *Row, next postdate.Record, s *store.Settlement) *Row {
	r := &Row{Record: next, Written: m.Clock(), route: next.Route()}
	r.Late = !m.Records[r.Bucket].ClaimedFor(r.Route()).Before(r.at()) || !m.Seen[r.Bucket].Before(r.at())
	m.leave(old)
	for _, line := range m.lines(r) {
		i, _ := seek(*line, r.at())
		*line = slices.Insert(*line, i, r)
	}
	m.count(r, 1)
	m.Rows[r.Key] = r
	if r.Status == postdate.DeliveryFailed {
		m.failed[r.Key] = r
	}
	if r.Status.Final() {
		m.oldest = min(m.oldest, r.SettledAt)
	}
	m.Watch(by, old, r, s)
	return r
}

// leave removes a row (nil: none) from its lines, and from what is counted.
func (m *Mem) leave(r *Row) {
	m.count(r, -1)
	if r != nil {
		delete(m.failed, r.Key)
	}
	for _, line := range m.lines(r) {
		i, _ := seek(*line, r.at())
		*line = slices.Delete(*line, i, i+1)
	}
}

// Drop removes a row, and does not call Watch.
func (m *Mem) Drop(r *Row) {
	m.leave(r)
	delete(m.Rows, r.Key)
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
		old := m.Rows[message.Key]
		if old == nil {
			m.Put("insert", nil, postdate.Record{Message: message,
				State: postdate.NewState(&message, m.firstVersion())}, nil)
			results[i] = store.Inserted{Created: true, ExecutionTime: message.ExecutionTime, Status: postdate.Pending}
		} else if at, repeats := old.Repeats(message.Digest); repeats {
			results[i] = store.Inserted{ExecutionTime: at, Status: old.Status}
		} else {
			results[i].Err = store.ErrExists(message.Key, old.Status)
		}
	}
	return results
}

// Get implements store.Messages.
func (m *Mem) Get(_ context.Context, key postdate.Key) (postdate.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.Rows[key]; r != nil {
		return r.Record, nil
	}
	return postdate.Record{}, store.ErrNotFound(key)
}

func (m *Mem) withdrawable(r *Row) bool {
	return m.Records[r.Bucket].Withdrawable(r.Key, r.Route(), r.State)
}

// Replace implements store.Messages.
func (m *Mem) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.Rows[next.Key]
	switch {
	case old == nil:
		return postdate.Record{}, store.ErrNotFound(next.Key)
	case old.Status != postdate.Pending:
		return old.Record, store.ErrTooLate(next.Key, old.State)
	case !old.Same(&was):
		return postdate.Record{}, store.ErrChanged(next.Key)
	case !m.withdrawable(old):
		return old.Record, store.ErrTooLate(next.Key, old.State)
	}
	next.Log = store.ReplacedLog(&next.Message, old.Log)
	return m.Put("replace", old, next, nil).Record, nil
}

// Pause implements store.Messages.
func (m *Mem) Pause(_ context.Context, series postdate.Key, ifVersion uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, err := m.goingOn(series, ifVersion)
	if err == nil && !old.Paused {
		next := old.Record
		next.Paused = true
		m.Put("pause", old, next, nil)
	}
	return err
}

// Trigger implements store.Messages.
func (m *Mem) Trigger(_ context.Context, series postdate.Key, ifVersion uint64, occurrence postdate.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, err := m.goingOn(series, ifVersion)
	if err != nil {
		return err
	}
	extra := postdate.NewRecord(old.Alone(occurrence), old.Version)
	if m.Rows[extra.Key] != nil {
		return store.ErrChanged(extra.Key)
	}
	next := old.Record
	next.Series = next.Series.Triggered(occurrence)
	m.Put("trigger", nil, extra, nil)
	m.Put("trigger", old, next, nil)
	return nil
}

// goingOn returns the row of a series that goes on, at that version.
func (m *Mem) goingOn(series postdate.Key, version uint64) (*Row, error) {
	old := m.Rows[series]
	if old == nil {
		return nil, store.ErrNotFound(series)
	}
	return old, store.CheckGoingOn(series, old.State, version)
}

// Cancel implements store.Messages.
func (m *Mem) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return m.CancelVersions(ctx, store.AnyVersion(keys), at)
}

// CancelVersions implements store.Messages.
func (m *Mem) CancelVersions(_ context.Context, some []store.Versioned, at postdate.Time) []store.Cancelled {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]store.Cancelled, len(some))
	for i := range some {
		if old := m.Rows[some[i].Key]; old != nil {
			if results[i].Err = some[i].Check(old.State); results[i].Err != nil {
				continue
			}
		}
		results[i] = m.cancel(some[i].Key, at)
	}
	return results
}

func (m *Mem) cancel(key postdate.Key, at postdate.Time) store.Cancelled {
	old := m.Rows[key]
	switch {
	case old == nil:
		return store.Cancelled{Err: store.ErrNotFound(key)}
	case old.Withdrawn():
		return store.Cancelled{State: old.State}
	case !m.withdrawable(old):
		if old.Status == postdate.Pending && old.Occurrence != 0 && !old.Ending {
			next := old.Record
			next.Ending = true
			old = m.Put("cancel", old, next, nil)
		}
		return store.Cancelled{State: old.State, Err: store.ErrTooLate(key, old.State)}
	}
	next := old.Record
	next.State = next.State.Cancel(at)
	return store.Cancelled{State: m.Put("cancel", old, next, nil).State, Changed: true}
}

// Retried implements store.Messages.
func (m *Mem) Retried(_ context.Context, series postdate.Key) (keys []postdate.Key, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.Rows {
		if of, is := key.OfSeries(); is && of == series && r.Status == postdate.Pending {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b postdate.Key) int { return strings.Compare(a.ScheduleID, b.ScheduleID) })
	return keys, nil
}

// Forget implements store.Messages.
func (m *Mem) Forget(_ context.Context, key postdate.Key, ifVersion uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.Rows[key]
	if old == nil {
		return store.ErrNotFound(key)
	}
	err := store.CheckFinal(key, old.State, ifVersion)
	if err == nil {
		m.Drop(old)
	}
	return err
}

// List implements store.Messages.
func (m *Mem) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := m.Rows
	if q.Status == postdate.DeliveryFailed {
		rows = m.failed
	}
	var all []*Row
	for _, r := range rows {
		if selects(&q, &r.Record) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *Row) int { return compareListed(listPosition(&a.Record), listPosition(&b.Record)) })
	var page store.ListPage
	bytes := 0
	for i, r := range all {
		if i == q.Limit || bytes >= store.PageBytesMax {
			last := listPosition(&page.Records[i-1])
			page.Next = &last
			break
		}
		page.Records = append(page.Records, r.Record)
		bytes += r.Bytes()
	}
	return page, nil
}

func selects(q *store.ListQuery, r *postdate.Record) bool {
	return r.Tenant == q.Tenant &&
		(q.Status == 0 || r.Status == q.Status) &&
		(q.Channel == "" || r.Channel == q.Channel) &&
		strings.HasPrefix(r.ScheduleID, q.IDPrefix) &&
		(q.Label == "" || slices.Contains(r.Labels, q.Label)) &&
		q.Recurring.Selects(r.Recurrence != nil) &&
		r.ExecutionTime >= q.From &&
		(q.To == 0 || r.ExecutionTime < q.To) &&
		(q.After == nil || compareListed(listPosition(r), *q.After) > 0)
}

func listPosition(r *postdate.Record) store.ListPosition {
	return store.ListPosition{ExecutionTime: r.ExecutionTime, Bucket: r.Bucket, ScheduleID: r.ScheduleID}
}

// compareListed is the order of a list. A list has only one tenant, so the tenant does not
// count.
func compareListed(a, b store.ListPosition) int {
	if c := cmp.Compare(a.ExecutionTime, b.ExecutionTime); c != 0 { // mostly
		return c
	}
	return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), strings.Compare(a.ScheduleID, b.ScheduleID))
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
	m.channels[settings.Route] = settings
	if settings.None() {
		delete(m.channels, settings.Route)
	}
	return nil
}

// Buckets implements store.Housekeeping.
func (m *Mem) Buckets() int { return len(m.Records) }

// Exclusive implements store.Housekeeping: no other process reads this memory.
func (m *Mem) Exclusive() bool { return true }

// Name implements store.Housekeeping.
func (m *Mem) Name() string { return "memory" }

// Expire implements store.Housekeeping.
func (m *Mem) Expire(_ context.Context, e store.Expiry) (int, error) {
	old, others := m.Expired(e)
	return len(old) + others, nil
}

// Expired deletes what e selects. It returns the messages, oldest first, and the number of
// inbox messages and requests.
func (m *Mem) Expired(e store.Expiry) (old []*Row, others int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old = m.past(&e)
	slices.SortFunc(old, func(a, b *Row) int { // so that every run of a simulation deletes the same ones
		return cmp.Or(cmp.Compare(a.SettledAt, b.SettledAt), a.at().Compare(b.at()))
	})
	old = old[:min(len(old), e.Limit)]
	for _, r := range old {
		m.Drop(r)
	}
	letters := m.expireInboxes(&e)
	if letters < e.Limit {
		m.expireConsumers(&e)
	}
	m.expireJobs(&e)
	return old, letters + m.expireRequests(&e)
}

// past lists what e selects. Mostly there is nothing, which m.oldest shows without a search.
func (m *Mem) past(e *store.Expiry) (old []*Row) {
	if e.SettledBefore <= m.oldest {
		return nil
	}
	m.oldest = postdate.Far
	for _, r := range m.Rows {
		if !r.Status.Final() {
			continue
		}
		m.oldest = min(m.oldest, r.SettledAt) // the limit may leave it
		if r.SettledAt < e.SettledBefore && slices.Contains(e.Buckets, r.Bucket) {
			old = append(old, r)
		}
	}
	return old
}

// Close implements store.Housekeeping.
func (m *Mem) Close() error { return nil }
