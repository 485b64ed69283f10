package pebble

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// patience is a context that ends once it was asked so often.
type patience struct {
	context.Context
	left int
}

func (p *patience) Err() error {
	if p.left--; p.left < 0 {
		return context.Canceled
	}
	return nil
}

// largeMessages are ten messages: two chunks, and half of one.
func largeMessages() (all []postdate.Message) {
	for i := range 10 {
		key := postdate.Key{Bucket: i % 2, Tenant: postdate.DefaultTenant, ScheduleID: fmt.Sprint("large-", i)}
		all = append(all, postdate.Message{Key: key, Channel: "inbox:a", ExecutionTime: 1000,
			Payload: make([]byte, chunkBytesMax/4)})
	}
	return all
}

// What is written under one hold of the locks, and is one batch, is bounded in bytes: a call that gives up after a
// chunk has written that and no more.
func TestLargeMessagesAreInsertedInChunks(t *testing.T) {
	s := ownedBuckets(t, 2)
	for i, r := range s.Insert(&patience{t.Context(), 2}, largeMessages()) {
		if done := r.Err == nil; done != (i < 8) || !done && postdate.KindOf(r.Err) != postdate.KindUnavailable {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
}

// Headers count as payloads do.
func TestLargeHeadersAreInsertedInChunks(t *testing.T) {
	s := ownedBuckets(t, 1)
	var all []postdate.Message
	for i := range 10 {
		key := postdate.Key{Tenant: postdate.DefaultTenant, ScheduleID: fmt.Sprint(i)}
		all = append(all, postdate.Message{Key: key, Channel: "inbox:a", ExecutionTime: 1000,
			Headers: []postdate.Header{{Name: "n", Value: strings.Repeat("v", chunkBytesMax/4)}}})
	}
	for i, r := range s.Insert(&patience{t.Context(), 1}, all) {
		if done := r.Err == nil; done != (i < 4) {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
}

// What failed messages leave for their failure channels is bounded, too, as if each were as large as may be.
func TestWhatLargeMessagesLeaveIsWrittenInChunks(t *testing.T) {
	const chunk = chunkBytesMax / postdate.PayloadBytesMax
	s := ownedBuckets(t, 1)
	var all []store.Settlement
	for i := range 2 * chunk {
		m := insertAt(t, s, 0, fmt.Sprint(i), 1000)
		st := settlementOf(t, s, m.Key, store.SettleFailed, store.Next{})
		st.FailureChannel = "inbox:failed"
		all = append(all, st)
	}
	if err := s.Settle(&patience{t.Context(), 1}, all); postdate.KindOf(err) != postdate.KindUnavailable {
		t.Errorf("the call has %v", err)
	}
	failed := 0
	for i := range all {
		if st, _, _ := s.state(all[i].Key); st.Status == postdate.DeliveryFailed {
			failed++
		}
	}
	if failed != chunk {
		t.Errorf("%d were settled in one batch, want %d", failed, chunk)
	}
}

// The same is true of deliveries. A next call delivers the rest.
func TestLargeMessagesAreDeliveredInChunks(t *testing.T) {
	s := ownedBuckets(t, 2)
	messages := largeMessages()
	var all []store.InboxDelivery
	for i, r := range s.Insert(t.Context(), messages) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		all = append(all, deliveryOf(t, s, &messages[i], "a"))
	}
	for i, err := range s.Deliver(&patience{t.Context(), 2}, all) {
		if done := err == nil; done != (i < 8) || !done && postdate.KindOf(err) != postdate.KindUnavailable {
			t.Errorf("message %d: %v", i, err)
		}
	}
	for _, err := range s.Deliver(t.Context(), all) {
		if err != nil {
			t.Error(err)
		}
	}
	var read []string
	for cursor := ""; ; {
		page, next, err := s.ReadInbox(t.Context(), postdate.DefaultTenant, "a", cursor, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			read = append(read, m.ScheduleID)
		}
		cursor = next
	}
	if len(read) != len(all) {
		t.Errorf("the inbox holds %v, want each of %d messages once", read, len(all))
	}
}

// seriesThatGoOn inserts n series, and returns how the first occurrence of each is to be settled.
func seriesThatGoOn(t *testing.T, s *Store, n int, how store.Settling) (all []store.Settlement) {
	t.Helper()
	for i := range n {
		m := seriesMessage(fmt.Sprint(i), 1)
		if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		all = append(all, settlementOf(t, s, m.Key, how, store.Next{Occurrence: 2000, AttemptTime: 2000}))
	}
	return all
}

// The same is true of occurrences that are to be retried while their series goes on: each copies its message.
func TestRetriedOccurrencesAreSettledInChunks(t *testing.T) {
	const chunk = chunkBytesMax / postdate.PayloadBytesMax
	s := ownedBuckets(t, 1)
	all := seriesThatGoOn(t, s, 2*chunk, store.SettleRetry)
	if err := s.Settle(&patience{t.Context(), 1}, all); postdate.KindOf(err) != postdate.KindUnavailable {
		t.Errorf("the call has %v", err)
	}
	settled := 0
	for i := range all {
		if state, _, _ := s.state(all[i].Key); state.Run == 2 {
			settled++
		}
	}
	if settled != chunk {
		t.Errorf("%d were settled in one batch, want %d", settled, chunk)
	}
}

// A series that goes on after a delivery copies nothing: many of them are one batch.
func TestSeriesThatGoOnAreOneBatch(t *testing.T) {
	s := ownedBuckets(t, 1)
	all := seriesThatGoOn(t, s, chunkMax, store.SettleDelivered)
	if err := s.Settle(&patience{t.Context(), 1}, all); err != nil {
		t.Error(err)
	}
}

// Pebble takes the bytes out of a batch that is larger than half a memtable. Such a write is one all the same: readers
// of the inbox see it, and reads do not wait for its sync for ever.
func TestABatchLargerThanHalfAMemtable(t *testing.T) {
	c := DefaultConfig("store")
	c.Buckets, c.MemtableSize = 2, 1<<20
	s, err := OpenWith(c, Parts{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	acquireAll(t, s)
	wantRead := func(n int) {
		t.Helper()
		got, _, err := s.ReadInbox(t.Context(), postdate.DefaultTenant, "a", "", 100)
		if err != nil || len(got) != n {
			t.Errorf("the inbox holds %d messages, want %d: %v", len(got), n, err)
		}
		if unsynced := s.unsynced.Load(); unsynced != 0 {
			t.Errorf("%d writes are on their way to the disk", unsynced)
		}
	}
	large := make([]byte, c.MemtableSize)
	m := postdate.Message{Key: postdate.Key{Bucket: 1, Tenant: postdate.DefaultTenant, ScheduleID: "large"},
		Channel: "inbox:a", ExecutionTime: 1000, Payload: large}
	if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	wantRead(0)
	if errs := s.Deliver(t.Context(), []store.InboxDelivery{deliveryOf(t, s, &m, "a")}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	wantRead(1)
	appended := store.InboxMessage{Tenant: postdate.DefaultTenant, Inbox: "a", DeliveredAt: 1500, Payload: large}
	if err := s.AppendInbox(t.Context(), []store.InboxMessage{appended}); err != nil {
		t.Fatal(err)
	}
	wantRead(2)
}
