package storetest

import (
	"cmp"
	"slices"

	"github.com/postdate/postdate/store"
)

func channels() []check {
	return []check{
		{"of a new store's channels nothing is set", func(x *trial) { x.wantChannels() }},
		{"what is set of a channel is listed as it was set last", setChannels},
		{"settings that are all zero are as none", func(x *trial) {
			x.setChannel(store.ChannelSettings{Route: orders, Paused: true})
			x.setChannel(store.ChannelSettings{Route: orders})
			x.setChannel(store.ChannelSettings{Route: "inbox:never-set"})
			x.wantChannels()
		}},
	}
}

func setChannels(x *trial) {
	first := store.ChannelSettings{Route: orders, Paused: true}
	second := store.ChannelSettings{Route: "https://host/path?q=1", MaxPerSecond: 0.5, MaxInFlight: 7}
	theirs := store.ChannelSettings{Route: "@acme " + orders, MaxInFlight: 3} // of the same channel, and another tenant
	x.setChannel(first)
	x.setChannel(second)
	x.setChannel(theirs)
	x.wantChannels(first, second, theirs)
	first.Paused, first.MaxPerSecond, first.FailureChannel = false, 1e6, "inbox:failed"
	x.setChannel(first)
	x.setChannel(first) // repeated
	x.wantChannels(first, second, theirs)
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
	order := func(a, b store.ChannelSettings) int { return cmp.Compare(a.Route, b.Route) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		x.Errorf("the settings are %+v, want %+v", got, want)
	}
}

// channelsSurvive is a durable check: what an operator paused stays paused.
func channelsSurvive(x *trial) {
	paused := store.ChannelSettings{Route: orders, Paused: true, MaxPerSecond: 2}
	failing := store.ChannelSettings{Route: "inbox:b", FailureChannel: "inbox:failed"}
	x.setChannel(paused)
	x.setChannel(failing)
	x.setChannel(store.ChannelSettings{Route: "inbox:a", Paused: true})
	x.setChannel(store.ChannelSettings{Route: "inbox:a"})
	x.crash()
	x.wantChannels(paused, failing)
}
