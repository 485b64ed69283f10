package store_test

import (
	"fmt"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// What goes may be added before what comes: until then nothing below zero is shown.
func TestTally(t *testing.T) {
	tally := store.NewTally()
	want := func(tenant string, slot store.Slot, usage store.Usage, uses bool) {
		t.Helper()
		if got, used := tally.Of(tenant, slot); got != usage || used != uses {
			t.Errorf("slot %d of %s: %+v, %t; want %+v, %t", slot, tenant, got, used, usage, uses)
		}
	}
	tally.Add(store.Change{Tenant: "a", Slot: 1, Messages: -2, Bytes: -20})
	want("a", 1, store.Usage{}, false)
	if all := tally.All(); len(all) != 0 {
		t.Errorf("%+v is listed", all)
	}
	tally.Add(store.Change{Tenant: "a", Slot: 1, Messages: 3, Bytes: 25}, store.Change{Tenant: "a", Slot: 2, Messages: 1})
	want("a", 1, store.Usage{Messages: 2, Bytes: 5, Channels: 2}, true)
	want("a", 3, store.Usage{Messages: 2, Bytes: 5, Channels: 2}, false)
	want("b", 1, store.Usage{}, false)
	changes := tally.Take()
	want("a", 1, store.Usage{}, false)
	tally.Add(changes...)
	want("a", 2, store.Usage{Messages: 2, Bytes: 5, Channels: 2}, true)
	tally.Add(store.Change{Tenant: "a", Slot: 1, Messages: -1, Bytes: -5}, store.Change{Tenant: "a", Slot: 2, Messages: -1})
	want("a", 1, store.Usage{}, false)
	if left := tally.Take(); len(left) != 0 {
		t.Errorf("%+v is left", left)
	}
}

// Channels spread over the slots, in another way in each store.
func TestSlots(t *testing.T) {
	const channels = 1000
	slots, moved := map[store.Slot]bool{}, 0
	for i := range channels {
		c := postdate.Channel(fmt.Sprint("inbox:", i))
		slots[store.SlotOf(c, 1)] = true
		if store.SlotOf(c, 1) != store.SlotOf(c, 2) {
			moved++
		}
	}
	if len(slots) < channels-40 || moved < channels-10 { // 8 channels fewer are expected
		t.Errorf("%d channels have %d slots, and %d others with another seed", channels, len(slots), moved)
	}
}
