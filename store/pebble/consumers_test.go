package pebble

import (
	"log/slog"
	"strconv"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// On a disk that is almost full no consumer is made or grows; what is open is acknowledged all the same.
func TestConsumersOnAFullDisk(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), Buckets: 4, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	name := store.ConsumerName{Tenant: "t", Inbox: "x", Consumer: "worker"}
	set := func(name store.ConsumerName, from uint64, open int) (bool, error) {
		return s.SetConsumer(t.Context(), name, from, store.Consumer{Version: from + 1, Reached: 9, Open: make([]store.OpenMessage, open)})
	}
	if done, err := set(name, 0, 2); !done || err != nil {
		t.Fatal(done, err)
	}
	s.full.Store(true)
	other := name
	other.Consumer = "other"
	if done, err := set(other, 0, 0); done || postdate.KindOf(err) != postdate.KindFull {
		t.Errorf("a consumer is made: %v, %v", done, err)
	}
	if done, err := set(name, 1, 3); done || postdate.KindOf(err) != postdate.KindFull {
		t.Errorf("a consumer grows: %v, %v", done, err)
	}
	for open := range 3 {
		if done, err := set(name, uint64(open+1), 2-open); !done || err != nil {
			t.Errorf("acknowledging, which leaves %d open: %v, %v", 2-open, done, err)
		}
	}
}

// A consumer is not forgotten while expiry has not come to its messages, because others' stood in the way.
func TestConsumersStayWithTheirMessages(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), Buckets: 4, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	name := store.ConsumerName{Tenant: "t", Inbox: "x", Consumer: "worker"}
	ours := bucket.Of(name.Tenant, name.Inbox, 4)
	b := s.db.NewBatch()
	for i, others := 0, 0; others < examinedMax; i++ {
		if inbox := strconv.Itoa(i); bucket.Of("t", inbox, 4) != ours {
			b.Set(orderKey(nil, 1, "t", inbox), nil, nil)
			others++
		}
	}
	if err := b.Commit(lsm.NoSync); err != nil {
		t.Fatal(err)
	}
	if err := s.AppendInbox(t.Context(), []store.InboxMessage{{Tenant: "t", Inbox: "x", ScheduleID: "a", DeliveredAt: 5}}); err != nil {
		t.Fatal(err)
	}
	if done, err := s.SetConsumer(t.Context(), name, 0, store.Consumer{Version: 1, UsedAt: 5}); !done || err != nil {
		t.Fatal(done, err)
	}
	version := func(buckets ...int) uint64 {
		if _, err := s.Expire(t.Context(), store.Expiry{Buckets: buckets, DeliveredBefore: 9, Limit: 2 * examinedMax}); err != nil {
			t.Fatal(err)
		}
		c, err := s.Consumer(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return c.Version
	}
	if version(ours) != 1 {
		t.Error("the consumer is forgotten before its message")
	}
	if version(0, 1, 2, 3) != 0 {
		t.Error("the consumer is still there, and its message is gone")
	}
}
