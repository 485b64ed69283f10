package store

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

func TestUpcomingSlots(t *testing.T) {
	q := UpcomingQuery{From: 1000, To: 3500, Step: time.Second}
	if q.Slots() != 3 {
		t.Errorf("%d slots, want 3", q.Slots())
	}
	for slot, want := range []postdate.Time{1000, 2000, 3000, 3500} {
		if got := q.Begin(slot); got != want {
			t.Errorf("slot %d begins at %d, want %d", slot, got, want)
		}
	}
	for at, want := range map[postdate.Time]int{1000: 0, 1999: 0, 2000: 1, 3000: 2, 3499: 2} {
		if got := q.SlotOf(at); got != want {
			t.Errorf("%d lies in slot %d, want %d", at, got, want)
		}
	}
	q.To = 3000
	if q.Slots() != 2 || q.Begin(2) != 3000 {
		t.Errorf("%d slots up to %d, want 2 up to 3000", q.Slots(), q.Begin(2))
	}
}

// An answer names the ten channels that have most in the whole range, in the same order in each slot.
func TestUpcomingChannels(t *testing.T) {
	q := UpcomingQuery{From: 0, To: 2000, Step: time.Second}
	f := NewForecast(&q)
	for i := range 12 {
		name := postdate.Channel(fmt.Sprintf("inbox:%02d", i))
		f.Add(0, name, ForTime, i+1)
		if i%2 == 0 {
			f.Add(1, name, ForTime, 1)
		}
	}
	f.Add(1, "inbox:00", ForTime, 100)
	f.Add(1, "inbox:00", ForChannel, 50) // which does not count
	f.Exact = true
	slots := f.Slots()
	want := []UpcomingSlot{
		{From: 0, Count: 78, Exact: true, Channels: []ChannelCount{{"inbox:00", 1}, {"inbox:10", 11}, {"inbox:11", 12}, {"inbox:08", 9},
			{"inbox:09", 10}, {"inbox:06", 7}, {"inbox:07", 8}, {"inbox:04", 5}, {"inbox:05", 6}, {"inbox:02", 3}}},
		{From: 1000, Count: 106, Exact: true, Channels: []ChannelCount{{"inbox:00", 101}, {"inbox:10", 1}, {"inbox:08", 1}, {"inbox:06", 1},
			{"inbox:04", 1}, {"inbox:02", 1}}},
	}
	if !slices.EqualFunc(slots, want, sameSlot) {
		t.Errorf("%+v, want %+v", slots, want)
	}
	q.Channel = "inbox:01"
	f = NewForecast(&q)
	f.Add(1, "inbox:01", ForTime, 2)
	f.Add(1, "inbox:00", ForTime, 5)
	if got := f.Slots(); got[0].Count != 0 || got[1].Count != 2 || got[1].Channels != nil {
		t.Errorf("of one channel: %+v", got)
	}
}

func sameSlot(a, b UpcomingSlot) bool {
	return a.From == b.From && a.Count == b.Count && a.Exact == b.Exact && slices.Equal(a.Channels, b.Channels)
}

// What is scaled is rounded so that channels together have no more than their slot.
func TestUpcomingScaled(t *testing.T) {
	q := UpcomingQuery{From: 0, To: 1000, Step: time.Second}
	f, part := NewForecast(&q), NewForecast(&q)
	for range 2 {
		part.Add(0, "inbox:a", ForTime, 1)
		part.Add(0, "inbox:b", ForTime, 1)
		f.Join(part)
	}
	f.Scale(func(int) float64 { return 64.0 / 23 })
	want := []UpcomingSlot{{Count: 11, Channels: []ChannelCount{{"inbox:a", 5}, {"inbox:b", 5}}}}
	if got := f.Slots(); !slices.EqualFunc(got, want, sameSlot) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSpread(t *testing.T) {
	for name, c := range map[string]struct {
		total  float64
		strips []Strip
		want   []float64
	}{
		"all was read": {30, []Strip{{To: 100, Read: 20, Own: 10, Last: 90}, {From: 100, To: 200}}, []float64{10, 0}},
		"the weights divide what was not read": {1020,
			[]Strip{{To: 100, Read: 10, Own: 10, More: true, Weight: 300}, {From: 100, To: 200, Read: 10, Own: 10, More: true, Weight: 100}},
			[]float64{760, 260}},
		"where nothing of the tenant's begins, nothing is": {100,
			[]Strip{{To: 100, Read: 10, Own: 10, More: true, Weight: 1}, {From: 100, To: 200, Read: 10, More: true}},
			[]float64{100, 0}},
		"without weights a strip goes on as it began": {150,
			[]Strip{{To: 100, Read: 10, Own: 10, Last: 9, More: true}, {From: 100, To: 200, Read: 10, Own: 10, Last: 119, More: true}},
			[]float64{100, 50}},
		"a peak has what the others do not have": {1_000_050,
			[]Strip{{To: 100, Read: 10, Own: 10, Last: 19, More: true}, {From: 100, To: 200, Read: 10, Own: 10, Last: 100, More: true}},
			[]float64{50, 1_000_000}},
		"two peaks share it": {1000,
			[]Strip{{To: 100, Read: 10, Own: 10, More: true}, {From: 100, To: 200, Read: 10, Own: 10, Last: 100, More: true}},
			[]float64{500, 500}},
		"within what its weight allows a strip goes on as it began": {420,
			[]Strip{{To: 100, Read: 10, Own: 10, Last: 19, More: true, Weight: 10, Within: 100}, {From: 100, To: 200, Read: 10, Own: 10, Last: 109, More: true, Weight: 10, Within: 1},
				{From: 200, To: 300, Read: 10, Own: 10, Last: 209, More: true, Weight: 20, Within: 10}},
			[]float64{10 + 40*390/227.5, 10 + 90*390/227.5, 10 + 97.5*390/227.5}},
		"a total that is behind changes nothing": {5,
			[]Strip{{To: 100, Read: 10, Own: 10, Last: 9, More: true}}, []float64{100}},
		"nor does it with weights": {5,
			[]Strip{{To: 100, Read: 10, Own: 10, Last: 9, More: true, Weight: 9}}, []float64{10}},
	} {
		got := Spread(c.total, c.strips)
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-6*max(1, b) }) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
