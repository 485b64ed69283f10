package node

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// A node's answer ends at whichever it reaches first: whoever asks reads on from there.
const (
	reportChannelsMax = 1000
	reportBytesMax    = 256 << 10 // of names and errors
)

// channelsReport has what one node knows of a tenant's channels whose names come after a name.
type channelsReport struct {
	Channels []channelReport
	More     bool // it knows others after the last
}

type channelReport struct {
	Channel          postdate.Channel
	Down, Parked     bool
	InHand, InFlight int
	LastError        string
	LastErrorAt      postdate.Time
}

// channelsIn reports the tenant's channels among views, those after a name. The views are sorted.
func channelsIn(views []poller.ChannelView, tenant, after string) (r channelsReport) {
	size := 0
	for _, v := range views {
		name := v.Route.Channel()
		if v.Route.Tenant() != tenant || string(name) <= after {
			continue
		}
		if len(r.Channels) == reportChannelsMax || size > reportBytesMax {
			r.More = true
			break
		}
		c := channelReport{
			Channel: name, Down: v.Down && !v.Paused, Parked: v.Parked, InHand: v.InHand, InFlight: v.InFlight,
			LastError: postdate.Cut(v.Reason, postdate.LastErrorBytesMax), LastErrorAt: v.ReasonAt,
		}
		size += len(c.Channel) + len(c.LastError)
		r.Channels = append(r.Channels, c)
	}
	return r
}

// mergeChannels lists a tenant's channels after a name, of which nodes report something or something is set. If reports
// are not whole, it ends where the first of them ends: up to there it is complete.
func mergeChannels(tenant, after string, set map[postdate.Route]store.ChannelSettings,
	reports map[string]channelsReport) (list api.ChannelList) {
	by := map[postdate.Channel]*api.Channel{}
	of := func(channel postdate.Channel) *api.Channel {
		if by[channel] == nil {
			route := postdate.RouteOf(tenant, channel)
			s := set[route]
			s.Route = route
			by[channel] = &api.Channel{ChannelSettings: s}
		}
		return by[channel]
	}
	for route := range set {
		if name := route.Channel(); route.Tenant() == tenant && string(name) > after {
			of(name)
		}
	}
	var end postdate.Channel // "": none
	for node, report := range reports {
		var last postdate.Channel
		for _, c := range report.Channels {
			if string(c.Channel) > after {
				addReport(of(c.Channel), node, &c)
				last = max(last, c.Channel)
			}
		}
		if report.More && last != "" && (end == "" || last < end) {
			end = last
		}
	}
	for name, c := range by {
		if end == "" || name <= end {
			list.Channels = append(list.Channels, *c)
		}
	}
	list.More = end != "" // there may be others after it
	slices.SortFunc(list.Channels, func(a, b api.Channel) int { return cmp.Compare(a.Route, b.Route) })
	return list
}

// addReport adds what a node reports of a channel.
func addReport(to *api.Channel, node string, r *channelReport) {
	to.Down = to.Down || r.Down
	to.Parked = to.Parked || r.Parked
	to.InHand += r.InHand
	to.InFlight += r.InFlight
	if r.LastError == "" {
		return
	}
	if newer := cmp.Or(cmp.Compare(r.LastErrorAt, to.LastErrorAt), cmp.Compare(node, to.LastErrorNode)); newer > 0 {
		to.LastError, to.LastErrorAt, to.LastErrorNode = r.LastError, r.LastErrorAt, node
	}
}

// clusterChannels shows the channels of all nodes. It implements api.Channels.
type clusterChannels struct{ node *Node }

// List implements api.Channels. The settings are those that this node read last: it does not wait for the store.
func (c clusterChannels) List(ctx context.Context, tenant, after string) (api.ChannelList, error) {
	n := c.node
	about := tenant + "\x00" + after
	list, err, _ := n.watch.asks.Do(string(questionChannels)+about, func() (any, error) {
		own, err := n.reportChannels(ctx, about)
		if err != nil {
			return api.ChannelList{}, err
		}
		reports, missing := reportsOf[channelsReport](n.ask(ctx, questionChannels, about))
		reports[n.c.NodeID] = own
		list := mergeChannels(tenant, after, n.control.channels(), reports)
		list.Missing = missing
		return list, nil
	})
	return list.(api.ChannelList), err
}

// reportChannels answers the question for channels: about is a tenant and the name after which to begin.
func (n *Node) reportChannels(ctx context.Context, about string) (r channelsReport, err error) {
	views, err := n.loop.Channels(ctx)
	if err != nil {
		return r, err
	}
	tenant, after, _ := strings.Cut(about, "\x00")
	return channelsIn(views, tenant, after), nil
}

// Change implements api.Channels.
func (c clusterChannels) Change(ctx context.Context, route postdate.Route,
	f func(*store.ChannelSettings)) (store.ChannelSettings, error) {
	return c.node.control.Change(ctx, route, f)
}
