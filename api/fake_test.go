package api

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// fakeStore is storetest's model of a store. A test can watch its calls, act between them, and
// make them fail.
type fakeStore struct {
	*storetest.Mem
	err     error                                    // every call fails with it
	noteErr error                                    // NoteRequest fails with it
	between func()                                   // runs once, before the next write
	seen    func(ctx context.Context, method string) // sees every call
	list    func(q store.ListQuery) (store.ListPage, error)
}

func newFakeStore() *fakeStore { return &fakeStore{Mem: storetest.NewMem(testBuckets)} }

// enter begins a call. Before a write, it first runs between, if that is set.
func (f *fakeStore) enter(ctx context.Context, method string) error {
	if f.seen != nil {
		f.seen(ctx, method)
	}
	if between := f.between; between != nil && method != "Get" {
		f.between = nil
		between()
	}
	return f.err
}

func (f *fakeStore) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	err := f.enter(ctx, "Insert")
	if err == nil {
		return f.Mem.Insert(ctx, messages)
	}
	results := make([]store.Inserted, len(messages))
	for i := range results {
		results[i].Err = err
	}
	return results
}

func (f *fakeStore) CreateJob(ctx context.Context, job store.Job) error {
	if err := f.enter(ctx, "CreateJob"); err != nil {
		return err
	}
	return f.Mem.CreateJob(ctx, job)
}

func (f *fakeStore) Job(ctx context.Context, key postdate.Key) (store.Job, error) {
	if f.err != nil {
		return store.Job{}, f.err
	}
	return f.Mem.Job(ctx, key)
}

func (f *fakeStore) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	err := f.enter(ctx, "Redrive")
	if err == nil {
		return f.Mem.Redrive(ctx, some, at)
	}
	results := make([]store.Redriven, len(some))
	for i := range results {
		results[i].Err = err
	}
	return results
}

func (f *fakeStore) Purge(ctx context.Context, some []store.Versioned) []error {
	err := f.enter(ctx, "Purge")
	if err == nil {
		return f.Mem.Purge(ctx, some)
	}
	results := make([]error, len(some))
	for i := range results {
		results[i] = err
	}
	return results
}

func (f *fakeStore) NoteRequest(ctx context.Context, key postdate.Key, request postdate.Digest,
	now postdate.Time) (postdate.Digest, error) {
	if f.noteErr != nil {
		return postdate.Digest{}, f.noteErr
	}
	return f.Mem.NoteRequest(ctx, key, request, now)
}

func (f *fakeStore) Get(ctx context.Context, key postdate.Key) (postdate.Record, error) {
	if err := f.enter(ctx, "Get"); err != nil {
		return postdate.Record{}, err
	}
	return f.Mem.Get(ctx, key)
}

func (f *fakeStore) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	if err := f.enter(ctx, "Replace"); err != nil {
		return postdate.Record{}, err
	}
	return f.Mem.Replace(ctx, next, was)
}

func (f *fakeStore) Pause(ctx context.Context, series postdate.Key, ifVersion uint64) error {
	if err := f.enter(ctx, "Pause"); err != nil {
		return err
	}
	return f.Mem.Pause(ctx, series, ifVersion)
}

func (f *fakeStore) Trigger(ctx context.Context, series postdate.Key, ifVersion uint64, occurrence postdate.Time) error {
	if err := f.enter(ctx, "Trigger"); err != nil {
		return err
	}
	return f.Mem.Trigger(ctx, series, ifVersion, occurrence)
}

func (f *fakeStore) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	err := f.enter(ctx, "Cancel")
	if err == nil {
		return f.Mem.Cancel(ctx, keys, at)
	}
	results := make([]store.Cancelled, len(keys))
	for i := range results {
		results[i].Err = err
	}
	return results
}

func (f *fakeStore) Retried(ctx context.Context, series postdate.Key) ([]postdate.Key, error) {
	if err := f.enter(ctx, "Retried"); err != nil {
		return nil, err
	}
	return f.Mem.Retried(ctx, series)
}

func (f *fakeStore) Forget(ctx context.Context, key postdate.Key, ifVersion uint64) error {
	if err := f.enter(ctx, "Forget"); err != nil {
		return err
	}
	return f.Mem.Forget(ctx, key, ifVersion)
}

func (f *fakeStore) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if err := f.enter(ctx, "List"); err != nil {
		return store.ListPage{}, err
	}
	if f.list != nil {
		return f.list(q)
	}
	return f.Mem.List(ctx, q)
}

func (f *fakeStore) Upcoming(ctx context.Context, q store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	if err := f.enter(ctx, "Upcoming"); err != nil {
		return nil, err
	}
	return f.Mem.Upcoming(ctx, q)
}

func (f *fakeStore) CreateKey(ctx context.Context, key store.APIKey) error {
	if err := f.enter(ctx, "CreateKey"); err != nil {
		return err
	}
	return f.Mem.CreateKey(ctx, key)
}

func (f *fakeStore) RevokeKey(ctx context.Context, id string) error {
	if err := f.enter(ctx, "RevokeKey"); err != nil {
		return err
	}
	return f.Mem.RevokeKey(ctx, id)
}

func (f *fakeStore) Keys(ctx context.Context) ([]store.APIKey, error) {
	if err := f.enter(ctx, "Keys"); err != nil {
		return nil, err
	}
	return f.Mem.Keys(ctx)
}

// set changes a message that is stored, without the API, while no call is under way in the model.
func (f *fakeStore) set(key postdate.Key, change func(*postdate.Record)) {
	old := f.Rows[key]
	next := old.Record
	change(&next)
	f.Put("set", old, next, nil)
}

// claim claims everything that is due until then.
func (f *fakeStore) claim(until postdate.Time) {
	for b := range f.Records {
		f.Records[b].Claimed = bucket.UpTo(until)
	}
}

// fakeInbox is one inbox, whose cursors are numbers.
type fakeInbox struct {
	mu       sync.Mutex
	messages []store.InboxMessage
	err      error
	waiting  chan struct{} // takes one value for each reader that begins to wait

	received     []store.InboxReceive
	acknowledged []store.Receipt
}

func (f *fakeInbox) Read(ctx context.Context, r store.InboxRead) ([]store.InboxMessage, string, error) {
	after, limit, wait := r.After, r.Limit, r.Wait
	f.mu.Lock()
	if f.err != nil {
		defer f.mu.Unlock()
		return nil, "", f.err
	}
	from := 0
	if after != "" {
		var err error
		if from, err = strconv.Atoi(after); err != nil {
			f.mu.Unlock()
			return nil, "", postdate.E(postdate.KindInvalid, "after %q is not a cursor", after)
		}
	}
	to := min(len(f.messages), from+limit)
	page := f.messages[min(from, to):to]
	f.mu.Unlock()
	if len(page) > 0 || wait == 0 {
		return page, strconv.Itoa(max(from, to)), nil
	}
	if f.waiting != nil {
		f.waiting <- struct{}{}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, "", ctx.Err()
	case <-timer.C:
		return nil, after, nil
	}
}

func (f *fakeInbox) Receive(ctx context.Context, r store.InboxReceive) ([]store.Received, error) {
	messages, _, err := f.Read(ctx, store.InboxRead{Limit: r.Limit, Wait: r.Wait})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received = append(f.received, r)
	received := make([]store.Received, len(messages))
	for i, m := range messages {
		received[i] = store.Received{InboxMessage: m, Receipt: store.Receipt{Place: store.InboxPlace{Number: int64(i)}, ID: 7}, Deliveries: i + 1}
	}
	return received, err
}

// Acknowledge finds that every other message was received again.
func (f *fakeInbox) Acknowledge(_ context.Context, name store.ConsumerName, receipts []store.Receipt) ([]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acknowledged = append(f.acknowledged, receipts...)
	errs := make([]error, len(receipts))
	for i := 1; i < len(receipts); i += 2 {
		errs[i] = postdate.E(postdate.KindTooLate, "received again")
	}
	return errs, f.err
}
