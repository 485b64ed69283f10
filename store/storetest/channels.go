package storetest

import (
	"cmp"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func channels() []check {
	return []check{
		{"of a new store's channels nothing is set", func(x *trial) { x.wantChannels() }},
		{"what is set of a channel is listed as it was set last", setChannels},
		{"settings that are all zero are as none", func(x *trial) {
			x.setChannel(store.ChannelSettings{Channel: orders, Paused: true})
			x.setChannel(store.ChannelSettings{Channel: orders})
			x.setChannel(store.ChannelSettings{Channel: "inbox:never-set"})
			x.wantChannels()
		}},
	}
}

func setChannels(x *trial) {
	first := store.ChannelSettings{Channel: orders, Paused: true}
	second := store.ChannelSettings{Channel: "https://host/path?q=1", MaxPerSecond: 0.5, MaxInFlight: 7}
	x.setChannel(first)
	x.setChannel(second)
	x.wantChannels(first, second)
	first.Paused, first.MaxPerSecond = false, 1e6
	x.setChannel(first)
	x.setChannel(first) // repeated
	x.wantChannels(first, second)
}

func (x *trial) setChannel(s store.ChannelSettings) {
	x.Helper()
	if err := x.store.SetChannel(x.ctx, s); err != nil {
		x.Fatalf("SetChannel of %+v: %v", s, err)
	}
}

func (x *trial) wantChannels(want ...store.ChannelSettings) {
	x.Helper()
	got, err := x.store.Channels(x.ctx)
	if err != nil {
		x.Fatalf("Channels: %v", err)
	}
	order := func(a, b store.ChannelSettings) int { return cmp.Compare(a.Channel, b.Channel) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		x.Errorf("the settings are %+v, want %+v", got, want)
	}
}

// channelsSurvive is a durable check: what an operator paused stays paused.
func channelsSurvive(x *trial) {
	paused := store.ChannelSettings{Channel: orders, Paused: true, MaxPerSecond: 2}
	x.setChannel(paused)
	x.setChannel(store.ChannelSettings{Channel: postdate.Channel("inbox:a"), Paused: true})
	x.setChannel(store.ChannelSettings{Channel: postdate.Channel("inbox:a")})
	x.crash()
	x.wantChannels(paused)
}
