package node

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/stats"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// viewsOf are of channels inbox:0000 and so on, with names that are as long as given.
func viewsOf(tenant string, n, long int) (all []poller.ChannelView) {
	for i := range n {
		name := fmt.Sprintf("inbox:%04d", i) + strings.Repeat("x", max(long-10, 0))
		all = append(all, poller.ChannelView{Route: postdate.RouteOf(tenant, postdate.Channel(name)), InHand: 1})
	}
	return all
}

// What nodes know of a channel is added up, and the worst of it counts. Of their errors it is the latest.
func TestMergeOfChannels(t *testing.T) {
	route := func(channel postdate.Channel) postdate.Route { return postdate.RouteOf("acme", channel) }
	set := map[postdate.Route]store.ChannelSettings{
		route("inbox:at-rest"): {Route: route("inbox:at-rest"), MaxInFlight: 3}, route("inbox:x"): {Route: route("inbox:x"), Paused: true},
		"inbox:of-another": {Route: "inbox:of-another", Paused: true},
	}
	reports := map[string]channelsReport{
		"a": {Channels: []channelReport{
			{Channel: "inbox:x", InHand: 2, InFlight: 1, LastError: "no", LastErrorAt: 5}, {Channel: "inbox:y", Down: true, Parked: true},
		}},
		"b": {Channels: []channelReport{
			{Channel: "inbox:x", InHand: 3, InFlight: 2, Down: true, LastError: "never", LastErrorAt: 7}, {Channel: "inbox:y", InHand: 1},
		}},
		"c": {Channels: []channelReport{{Channel: "inbox:x", LastError: "not yet", LastErrorAt: 5}}},
	}
	want := api.ChannelList{Channels: []api.Channel{
		{ChannelSettings: set[route("inbox:at-rest")]},
		{ChannelSettings: set[route("inbox:x")], Down: true, InHand: 5, InFlight: 3, LastError: "never", LastErrorAt: 7, LastErrorNode: "b"},
		{ChannelSettings: store.ChannelSettings{Route: route("inbox:y")}, Down: true, InHand: 1, Parked: true},
	}}
	if got := mergeChannels("acme", "", set, reports, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want.Channels = want.Channels[2:]
	if got := mergeChannels("acme", "inbox:x", set, reports, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("behind inbox:x: got %+v, want %+v", got, want)
	}
}

// The rate of a channel is the sum of all nodes', if each of them knows its own. What is pending is that of the store.
func TestRatesAndPendingInTheMerge(t *testing.T) {
	rate := func(perSecond float64) *float64 { return &perSecond }
	reports := map[string]channelsReport{
		"a": {OthersRest: true, Channels: []channelReport{{Channel: "inbox:x", PerSecond: rate(2)}, {Channel: "https://host/y"}}},
		"b": {OthersRest: true, Channels: []channelReport{{Channel: "inbox:x", PerSecond: rate(.5)}, {Channel: "inbox:z", PerSecond: rate(4)}}},
	}
	pending := &store.Pending{Exact: true, Channels: map[postdate.Channel]store.PendingCount{"inbox:far": {All: 7}, "inbox:x": {All: 5, Due: 2}}}
	check := func(when string, want ...api.Channel) {
		t.Helper()
		for i := range want {
			want[i].Exact = want[i].Pending != nil
		}
		if got := mergeChannels("acme", "", nil, reports, pending); !reflect.DeepEqual(got.Channels, want) {
			t.Errorf("%s: got %+v, want %+v", when, got.Channels, want)
		}
	}
	of := func(name postdate.Channel, perSecond *float64, pending *store.PendingCount) api.Channel {
		settings := store.ChannelSettings{Route: postdate.RouteOf("acme", name)}
		return api.Channel{ChannelSettings: settings, PerSecond: perSecond, Pending: pending}
	}
	none := &store.PendingCount{}
	check("all know", of("https://host/y", nil, none), of("inbox:far", rate(0), &store.PendingCount{All: 7}),
		of("inbox:x", rate(2.5), &store.PendingCount{All: 5, Due: 2}), of("inbox:z", rate(4), none))
	pending.More = true
	reports["c"] = channelsReport{Channels: []channelReport{{Channel: "inbox:z", PerSecond: rate(1)}}} // its other channels share a series
	check("c knows one", of("https://host/y", nil, nil), of("inbox:far", nil, &store.PendingCount{All: 7}),
		of("inbox:x", nil, &store.PendingCount{All: 5, Due: 2}), of("inbox:z", rate(5), nil))
}

// A node forgets a webhook when it has no more of its messages. What its host took is then not the rate of none.
func TestRatesOfWebhooksThatNodesForgot(t *testing.T) {
	var r stats.Recorder
	registry := prometheus.NewRegistry()
	publishes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postdate_publishes_total"}, []string{"tenant", "channel", "outcome"})
	registry.MustRegister(publishes)
	for at := range postdate.Time(2) {
		publishes.WithLabelValues("acme", "https://host", "confirmed").Add(60)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		r.Record(10_000*(1+at), stats.Read(families))
	}
	rates := r.ChannelRates("acme")
	reports := map[string]channelsReport{"a": channelsIn(nil, &rates, "acme", ""), "b": {OthersRest: true}}
	pending := &store.Pending{Exact: true, Channels: map[postdate.Channel]store.PendingCount{"https://host/x": {All: 1}, "https://quiet/x": {All: 1}}}
	for _, c := range mergeChannels("acme", "", nil, reports, pending).Channels {
		if known := c.PerSecond != nil; known != (c.Route.Channel() == "https://quiet/x") {
			t.Errorf("the rate of %s is known: %t", c.Route.Channel(), known)
		}
	}
}

// An answer is bounded, whatever a node knows, and whoever reads on from its end gets every channel once, with what
// all nodes know of it.
func TestChannelsThatExceedAnAnswer(t *testing.T) {
	for name, views := range map[string][]poller.ChannelView{
		"many": viewsOf("acme", 2*reportChannelsMax+7, 0), "long": viewsOf("acme", 600, postdate.ChannelBytesMax),
	} {
		t.Run(name, func(t *testing.T) {
			some := slices.DeleteFunc(slices.Clone(views), func(v poller.ChannelView) bool { return v.Route[len(v.Route)-1]%2 == 0 })
			all := slices.Concat(viewsOf("abc", 10, 0), views, viewsOf("beta", 10, 0))
			none := &stats.ChannelRates{}
			seen, lists := []postdate.Route{}, 0
			for after, more := "", true; more; lists++ {
				a, b := channelsIn(all, none, "acme", after), channelsIn(some, none, "acme", after)
				if text, err := json.Marshal(a); err != nil || len(text) > 600<<10 || len(a.Channels) > reportChannelsMax {
					t.Fatalf("an answer has %d channels and %d bytes, %v", len(a.Channels), len(text), err)
				}
				list := mergeChannels("acme", after, nil, map[string]channelsReport{"a": a, "b": b}, nil)
				for _, c := range list.Channels {
					seen = append(seen, c.Route)
					if want := map[bool]int{true: 2, false: 1}[slices.ContainsFunc(some, func(v poller.ChannelView) bool { return v.Route == c.Route })]; c.InHand != want {
						t.Fatalf("%s has %d in hand, want %d", c.Route, c.InHand, want)
					}
				}
				more, after = list.More, string(seen[len(seen)-1].Channel())
			}
			if !slices.EqualFunc(seen, views, func(r postdate.Route, v poller.ChannelView) bool { return r == v.Route }) || lists < 3 {
				t.Errorf("%d channels were listed in %d parts, want %d", len(seen), lists, len(views))
			}
		})
	}
}

// An answer that says nothing useful does no harm.
func TestOddReportsOfChannels(t *testing.T) {
	list := mergeChannels("acme", "inbox:b", nil, map[string]channelsReport{
		"a": {More: true}, "b": {More: true, Channels: []channelReport{{Channel: "inbox:a"}}}, "c": {Channels: []channelReport{{Channel: "inbox:c"}}},
	}, nil)
	if len(list.Channels) != 1 || list.More {
		t.Errorf("got %+v", list)
	}
}
