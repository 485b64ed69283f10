package storetest

import (
	"context"
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Faulty is a store in memory whose inserts can fail.
type Faulty struct {
	*Mem

	mu    sync.Mutex
	fault func(calls int) (err error, written bool)
	calls int
	made  int
}

// NewFaulty makes an empty store of 8 buckets in which nothing fails yet.
func NewFaulty() *Faulty { return &Faulty{Mem: NewMem(8)} }

// Set sets how the call of Insert with this number ends, and whether it writes all the same; nil:
// none fails.
func (f *Faulty) Set(fault func(calls int) (err error, written bool)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// Insert implements store.Messages.
func (f *Faulty) Insert(ctx context.Context, batch []postdate.Message) []store.Inserted {
	f.mu.Lock()
	f.calls++
	fault, calls := f.fault, f.calls
	f.mu.Unlock()
	var err error
	written := true
	if fault != nil {
		err, written = fault(calls)
	}
	results := make([]store.Inserted, len(batch))
	if written {
		results = f.Mem.Insert(ctx, batch)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range results {
		if results[i].Created {
			f.made++
		}
		if err != nil {
			results[i] = store.Inserted{Err: err}
		}
	}
	return results
}

// Count returns how many messages were created.
func (f *Faulty) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made
}

// All returns the messages of the default tenant, by id.
func (f *Faulty) All(t *testing.T) map[string]postdate.Record {
	t.Helper()
	page, err := f.List(context.Background(), store.ListQuery{Tenant: postdate.DefaultTenant, Limit: 1_000_000})
	if err != nil || page.Next != nil {
		t.Fatal(page.Next, err)
	}
	all := map[string]postdate.Record{}
	for _, r := range page.Records {
		all[r.ScheduleID] = r
	}
	return all
}
