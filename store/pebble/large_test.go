package pebble

import (
	"context"
	"fmt"
	"testing"

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
