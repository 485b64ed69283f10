package pebble

import (
	"log/slog"
	"testing"

	"github.com/postdate/postdate"
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
