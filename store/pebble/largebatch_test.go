package pebble

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

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
