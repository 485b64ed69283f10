package store

import (
	"fmt"
	"testing"

	"github.com/postdate/postdate"
)

// The slots of all that is pending have no gap, from what is due to what waits for no time.
func TestPendingSlots(t *testing.T) {
	const now = postdate.Time(1_800_000_000_000)
	q := PendingQuery("acme", now)
	for at, want := range map[postdate.Time]int{0: 0, now: 0, now + 1: 1, now + 60_001: 2, now + 960_000: 2, now + 960_001: 3} {
		if got := q.SlotOf(at); got != want {
			t.Errorf("%d lies in slot %d, want %d", at, got, want)
		}
	}
	n := q.Slots()
	for slot := range n {
		begin, end := q.Begin(slot), q.Begin(slot+1)
		if begin >= end || q.SlotOf(begin) != slot || q.SlotOf(end-1) != slot {
			t.Errorf("slot %d is from %d to %d", slot, begin, end)
		}
	}
	if q.Begin(0) != 0 || q.Begin(n) <= postdate.Far || n > 15 {
		t.Errorf("%d slots from %d to %d", n, q.Begin(0), q.Begin(n))
	}
}

// However many channels there are, those that have most are named, and of the others nothing is said.
func TestPendingOfManyChannels(t *testing.T) {
	q := PendingQuery("acme", 1000)
	f := NewForecast(&q)
	name := func(i int) postdate.Channel { return postdate.Channel(fmt.Sprint("inbox:", i)) }
	for i := range PendingChannelsMax {
		f.Add(i%2, name(i), ForTime, 2)
	}
	p := f.Pending()
	if _, known := p.Of("inbox:x"); known {
		t.Error("an estimate tells of a channel of which it found nothing")
	}
	f.Exact = true
	p = f.Pending()
	if n, known := p.Of("inbox:x"); p.More || !known || n != (PendingCount{}) {
		t.Errorf("of a channel that has none %+v is known: %t", n, known)
	}
	f.Add(0, "inbox:x", ForTime, 1)
	p = f.Pending()
	if _, known := p.Of("inbox:x"); !p.More || known || len(p.Channels) != PendingChannelsMax {
		t.Errorf("%d channels are named, and the last is known: %t", len(p.Channels), known)
	}
	for i, want := range []PendingCount{{All: 2, Due: 2}, {All: 2}} {
		if n, known := p.Of(name(i)); !known || n != want {
			t.Errorf("channel %d has %+v, want %+v", i, n, want)
		}
	}
}
