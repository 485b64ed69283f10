package pebble

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// listedIDs are the ids that a list shows.
func listedIDs(t *testing.T, s *Store, q store.ListQuery) (ids []string) {
	t.Helper()
	q.Tenant, q.Limit = "default", 1000
	page, err := s.List(t.Context(), q)
	if err != nil || page.Next != nil {
		t.Fatal(page.Next, err)
	}
	for _, r := range page.Records {
		ids = append(ids, r.ScheduleID)
	}
	return ids
}

// listedSpaces hold the entries that lists go by, but for labels.
var listedSpaces = []byte{spaceSeries, spaceFailed, spaceDeferred}

// deferredFew is how many messages few retries or parks.
const deferredFew = 12

// few makes a store with series, failed and pending messages among others.
func few(t *testing.T, dir string) (series, failed, pending []string) {
	t.Helper()
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	acquireAll(t, s)
	for i := range 60 {
		m := openMessage(i)
		m.Key = bucket.KeyOf("default", fmt.Sprintf("m-%02d", i), openBuckets)
		m.ExecutionTime = postdate.Time(1000 + i)
		if i%5 == 0 {
			m.First, m.Recurrence = m.ExecutionTime, &postdate.Recurrence{Every: 1000, Anchor: 1000}
			series = append(series, m.ScheduleID)
		}
		if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
			t.Fatal(err)
		}
		if i%10 > 2 {
			pending = append(pending, m.ScheduleID)
		}
		switch i % 10 {
		case 0: // a series that ends
			s.Cancel(t.Context(), []postdate.Key{m.Key}, 5000)
		case 1:
			failed = append(failed, m.ScheduleID)
			err = s.Settle(t.Context(), []store.Settlement{settlementOf(t, s, m.Key, store.SettleFailed, store.Next{})})
		case 2:
			err = s.Settle(t.Context(), []store.Settlement{settlementOf(t, s, m.Key, store.SettleDelivered, store.Next{})})
		case 3:
			err = s.Settle(t.Context(), []store.Settlement{settlementOf(t, s, m.Key, store.SettleRetry, store.Next{})})
		case 4:
			err = s.Settle(t.Context(), []store.Settlement{settlementOf(t, s, m.Key, store.SettlePark, store.Next{})})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return series, failed, pending
}

// A store of an earlier version, without entries for what recurs, failed or is deferred, has them once it is opened.
func TestOpenAStoreWithoutEntries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	series, failed, pending := few(t, dir)
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, space := range listedSpaces {
		if err := s.db.DeleteRange([]byte{space}, []byte{space + 1}, lsm.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if found := listedIDs(t, s, store.ListQuery{Status: postdate.DeliveryFailed}); len(found) > 0 {
		t.Errorf("a list of what failed does not go by the entries: %v", found)
	}
	if found := listedIDs(t, s, store.ListQuery{Status: postdate.Pending}); len(found) != len(pending)-deferredFew {
		t.Errorf("a list of what is pending does not go by the entries: %v", found)
	}
	s.Close()
	opensFormer(t, dir, layoutListed-1)
	if s, err = Open(openConfig(dir)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if found := listedIDs(t, s, store.ListQuery{Recurring: store.OnlyRecurring}); !slices.Equal(found, series) {
		t.Errorf("%v recur, want %v", found, series)
	}
	if found := listedIDs(t, s, store.ListQuery{Status: postdate.DeliveryFailed}); !slices.Equal(found, failed) {
		t.Errorf("%v failed, want %v", found, failed)
	}
	if found := listedIDs(t, s, store.ListQuery{Status: postdate.Pending}); !slices.Equal(found, pending) {
		t.Errorf("%v are pending, want %v", found, pending)
	}
}

// A list of the few among many passes over no others: a page may look at few messages, and finds them all.
func TestListOfFewLooksAtFew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	series, failed, pending := few(t, dir)
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		q    store.ListQuery
		want []string
	}{
		{store.ListQuery{Recurring: store.OnlyRecurring}, series},
		{store.ListQuery{Status: postdate.DeliveryFailed}, failed},
		{store.ListQuery{Status: postdate.Pending, To: 6000}, pending}, // the deferred ones wait at 6000
	} {
		c.q.Tenant, c.q.Limit = "default", 1000
		page, err := s.list(t.Context(), c.q, len(c.want)+1)
		if err != nil || page.Next != nil || len(page.Records) != len(c.want) {
			t.Errorf("%+v: %d messages and then %v, %v; want %d", c.q, len(page.Records), page.Next, err, len(c.want))
		}
	}
	c := store.ListQuery{Tenant: "default", Recurring: store.NotRecurring, Limit: 1000}
	if page, err := s.list(t.Context(), c, 10); err != nil || page.Next == nil || len(page.Records) != 8 {
		t.Errorf("of ten messages %d do not recur, want 8 and a next page: %v", len(page.Records), err)
	}
}

// A paused series waits after all execution times: no list comes that far.
func TestListBesidePausedSeries(t *testing.T) {
	s := ownedBuckets(t, 1)
	for i := range 5 {
		m := seriesMessage(fmt.Sprint("s-", i), 1)
		if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
			t.Fatal(err)
		}
		rec, err := s.Get(t.Context(), m.Key)
		if err == nil {
			err = s.Pause(t.Context(), m.Key, rec.Version)
		}
		rests := settlementOf(t, s, m.Key, store.SettleRest, store.Next{Occurrence: rec.Occurrence, AttemptTime: postdate.Far})
		if err := errors.Join(err, s.Settle(t.Context(), []store.Settlement{rests})); err != nil {
			t.Fatal(err)
		}
	}
	q := store.ListQuery{Tenant: postdate.DefaultTenant, Status: postdate.Pending, Limit: 10}
	if page, err := s.list(t.Context(), q, 6); err != nil || len(page.Records) != 5 || page.Next != nil {
		t.Errorf("%d are listed, and then %+v: %v", len(page.Records), page.Next, err)
	}
}

// A deferred message comes back to its execution time while looks raise the low-water mark: no list misses it.
func TestListBesideWhatComesBack(t *testing.T) {
	s, err := OpenWith(openConfig("store"), Parts{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := openMessage(0)
	m.Bucket = 0
	if err := s.Insert(t.Context(), []postdate.Message{m})[0].Err; err != nil {
		t.Fatal(err)
	}
	place := func(ctx context.Context, at postdate.Time) error {
		return s.underAll(ctx, 1, func(int) (int, int) { return m.Bucket, 0 }, func(w *writer, _, _ int) error {
			st, _, err := w.state(m.Key)
			w.unplace(m.Key, &st)
			st.AttemptTime = at
			w.setState(m.Key, &st)
			return err
		})
	}
	ctx, end := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	defer func() { end(); changes.Wait() }()
	changes.Go(func() {
		for ctx.Err() == nil {
			later := m.ExecutionTime + 1000
			if err := errors.Join(place(t.Context(), later), place(t.Context(), m.ExecutionTime)); err != nil {
				t.Error(err)
			}
			l := s.beginLook(m.Bucket)
			if err := place(t.Context(), later); err != nil {
				t.Error(err)
			}
			s.endLook(m.Bucket, l, bucket.Position{Time: later})
		}
	})
	for range 1000 {
		if found := listedIDs(t, s, store.ListQuery{Status: postdate.Pending}); len(found) != 1 {
			t.Errorf("a list has %v", found)
			break
		}
	}
}

// Nothing is left of the entries once everything has expired.
func TestEntriesExpireWithTheirMessages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	_, failed, _ := few(t, dir)
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	redriven := store.Versioned{Key: bucket.KeyOf("default", failed[0], openBuckets)}
	if r := s.Redrive(t.Context(), []store.Versioned{redriven}, 6000); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	var keys []postdate.Key
	for _, id := range listedIDs(t, s, store.ListQuery{Status: postdate.Pending}) {
		keys = append(keys, bucket.KeyOf("default", id, openBuckets))
	}
	s.Cancel(t.Context(), keys, 7000)
	buckets := make([]int, openBuckets)
	for b := range buckets {
		buckets[b] = b
	}
	if _, err := s.Expire(t.Context(), store.Expiry{Buckets: buckets, SettledBefore: 9000, DeliveredBefore: 9000,
		Limit: 1000}); err != nil {
		t.Fatal(err)
	}
	for _, space := range listedSpaces {
		iter, err := s.db.NewIter(spaceOnly(space))
		if err != nil {
			t.Fatal(err)
		}
		defer iter.Close()
		for ok := iter.First(); ok; ok = iter.Next() {
			t.Errorf("the entry %q is left", iter.Key())
		}
	}
	if left := listedIDs(t, s, store.ListQuery{}); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
