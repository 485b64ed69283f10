package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// fakeStore is a store.Messages in memory, to test what this package does around
// a store. Package storetest tests that the real stores keep their contract, and
// package node that both fit together.
type fakeStore struct {
	mu      sync.Mutex
	records map[postdate.Key]postdate.Record
	claimed postdate.Time
	err     error                                    // every call fails with it
	between func()                                   // runs once, before the next write
	seen    func(ctx context.Context, method string) // sees every call
	list    func(q store.ListQuery) (store.ListPage, error)
}

func newFakeStore() *fakeStore { return &fakeStore{records: map[postdate.Key]postdate.Record{}} }

// enter takes the lock. Before a write, it first runs between, if that is set.
func (f *fakeStore) enter(ctx context.Context, method string) error {
	f.mu.Lock()
	if f.seen != nil {
		f.seen(ctx, method)
	}
	if between := f.between; between != nil && method != "Get" {
		f.between = nil
		f.mu.Unlock()
		between()
		f.mu.Lock()
	}
	return f.err
}

func (f *fakeStore) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	err := f.enter(ctx, "Insert")
	defer f.mu.Unlock()
	results := make([]store.Inserted, len(messages))
	for i, m := range messages {
		if err != nil {
			results[i].Err = err
			continue
		}
		r, ok := f.records[m.Key]
		if ok && r.Digest != m.Digest {
			results[i].Err = postdate.E(postdate.KindExists, "taken")
			continue
		}
		if !ok {
			m.Payload = slices.Clone(m.Payload)
			r = postdate.Record{Message: m, State: postdate.NewState(&m, 1)}
			f.records[m.Key] = r
		}
		results[i] = store.Inserted{Created: !ok, ExecutionTime: r.ExecutionTime, Status: r.Status}
	}
	return results
}

func (f *fakeStore) Get(ctx context.Context, key postdate.Key) (postdate.Record, error) {
	err := f.enter(ctx, "Get")
	defer f.mu.Unlock()
	if err != nil {
		return postdate.Record{}, err
	}
	r, ok := f.records[key]
	if !ok {
		return r, postdate.E(postdate.KindNotFound, "none")
	}
	return r, nil
}

func (f *fakeStore) withdrawable(r *postdate.Record) bool {
	return bucket.Partition{Claimed: bucket.UpTo(f.claimed)}.Withdrawable(r.Key, r.Channel, r.State)
}

func (f *fakeStore) Replace(ctx context.Context, m postdate.Message, ifVersion uint64) (postdate.Record, error) {
	err := f.enter(ctx, "Replace")
	defer f.mu.Unlock()
	r, ok := f.records[m.Key]
	switch {
	case err != nil:
		return r, err
	case !ok:
		return r, postdate.E(postdate.KindNotFound, "none")
	case r.Version != ifVersion:
		return r, postdate.E(postdate.KindConflict, "version")
	case !f.withdrawable(&r):
		return r, postdate.E(postdate.KindTooLate, "too late")
	}
	r = postdate.Record{Message: m, State: postdate.NewState(&m, 1)}
	r.Version = ifVersion + 1
	f.records[m.Key] = r
	return r, nil
}

func (f *fakeStore) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	err := f.enter(ctx, "Cancel")
	defer f.mu.Unlock()
	results := make([]store.Cancelled, len(keys))
	for i, key := range keys {
		r, ok := f.records[key]
		switch {
		case err != nil:
			results[i].Err = err
			continue
		case !ok:
			results[i].Err = postdate.E(postdate.KindNotFound, "none")
			continue
		case r.Status == postdate.Cancelled:
		case !f.withdrawable(&r):
			results[i].Err = postdate.E(postdate.KindTooLate, "too late")
		default:
			r.Status, r.SettledAt = postdate.Cancelled, at
			f.records[key] = r
			results[i].Changed = true
		}
		results[i].State = r.State
	}
	return results
}

func (f *fakeStore) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	err := f.enter(ctx, "List")
	defer f.mu.Unlock()
	if err != nil {
		return store.ListPage{}, err
	}
	if f.list != nil {
		return f.list(q)
	}
	var page store.ListPage
	all := make([]postdate.Record, 0, len(f.records))
	for _, r := range f.records {
		all = append(all, r)
	}
	slices.SortFunc(all, comparePlaces)
	for _, r := range all {
		if q.Status != 0 && r.Status != q.Status || q.Channel != "" && r.Channel != q.Channel ||
			r.ExecutionTime < q.From || q.To != 0 && r.ExecutionTime >= q.To || !after(q.After, &r) {
			continue
		}
		if len(page.Records) == q.Limit {
			last := page.Records[q.Limit-1]
			page.Next = &store.ListPosition{ExecutionTime: last.ExecutionTime, Bucket: last.Bucket, ScheduleID: last.ScheduleID}
			break
		}
		page.Records = append(page.Records, r)
	}
	return page, nil
}

func comparePlaces(a, b postdate.Record) int {
	return cmp.Or(cmp.Compare(a.ExecutionTime, b.ExecutionTime), cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.ScheduleID, b.ScheduleID))
}

func after(at *store.ListPosition, r *postdate.Record) bool {
	if at == nil {
		return true
	}
	var place postdate.Record
	place.ExecutionTime, place.Key = at.ExecutionTime, postdate.Key{Bucket: at.Bucket, ScheduleID: at.ScheduleID}
	return comparePlaces(place, *r) < 0
}

// set changes a stored message without the API.
func (f *fakeStore) set(key postdate.Key, change func(*postdate.Record)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[key]
	change(&r)
	f.records[key] = r
}

func (f *fakeStore) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// fakeInbox is one inbox, whose cursors are numbers.
type fakeInbox struct {
	mu       sync.Mutex
	messages []store.InboxMessage
	err      error
	waiting  chan struct{} // takes one value for each reader that begins to wait
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
