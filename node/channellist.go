package node

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/stats"
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
	Channels   []channelReport
	More       bool     // it knows others after the last
	OthersRest bool     // brokers confirmed nothing of others in the last minute, but for webhooks at BusyHosts
	BusyHosts  []string // hosts, as metrics name them, whose webhooks took something in that minute
}

type channelReport struct {
	Channel          postdate.Channel
	Down, Parked     bool
	InHand, InFlight int
	LastError        string
	LastErrorAt      postdate.Time
	PerSecond        *float64 // what brokers confirmed in the last minute; nil: not known
}

// channelsIn reports the tenant's channels among views and rates, those after a name.
func channelsIn(views []poller.ChannelView, rates *stats.ChannelRates, tenant, after string) channelsReport {
	own, known := []poller.ChannelView{}, map[postdate.Route]bool{}
	for _, v := range views {
		if v.Route.Tenant() == tenant {
			own, known[v.Route] = append(own, v), true
		}
	}
	for _, channel := range rates.Active() {
		if route := postdate.RouteOf(tenant, channel); !known[route] {
			own = append(own, poller.ChannelView{Route: route})
		}
	}
	slices.SortFunc(own, func(a, b poller.ChannelView) int { return cmp.Compare(a.Route, b.Route) })
	r, size := channelsReport{OthersRest: rates.OthersRest(), BusyHosts: rates.BusyHosts()}, 0
	for _, v := range own {
		name := v.Route.Channel()
		if string(name) <= after {
			continue
		}
		if len(r.Channels) == reportChannelsMax || size > reportBytesMax {
			r.More = true
			break
		}
		c := channelReport{
			Channel: name, Down: v.Down, Parked: v.Parked, InHand: v.InHand, InFlight: v.InFlight,
			LastError: postdate.Cut(v.Reason, postdate.LastErrorBytesMax), LastErrorAt: v.ReasonAt,
		}
		if perSecond, is := rates.Of(name); is {
			c.PerSecond = &perSecond
		}
		size += len(c.Channel) + len(c.LastError)
		r.Channels = append(r.Channels, c)
	}
	return r
}

// channelSum adds up what nodes report of a channel.
type channelSum struct {
	api.Channel
	perSecond float64
	rated     int // nodes that report it with their rate
	resting   int // nodes that report it, and of which all rests that they do not report
}

// mergeChannels lists a tenant's channels after a name, of which nodes report something, something is set, or something
// is pending. If reports are not whole, it ends where the first of them ends: up to there it is complete. pending is
// nil if it is not known.
func mergeChannels(tenant, after string, set map[postdate.Route]store.ChannelSettings,
	reports map[string]channelsReport, pending *store.Pending) (list api.ChannelList) {
	by := map[postdate.Channel]*channelSum{}
	of := func(channel postdate.Channel) *channelSum {
		if by[channel] == nil {
			route := postdate.RouteOf(tenant, channel)
			s := set[route]
			s.Route = route
			by[channel] = &channelSum{Channel: api.Channel{ChannelSettings: s}}
		}
		return by[channel]
	}
	for route := range set {
		if name := route.Channel(); route.Tenant() == tenant && string(name) > after {
			of(name)
		}
	}
	if pending != nil {
		for name := range pending.Channels {
			if string(name) > after {
				of(name)
			}
		}
	}
	var end postdate.Channel             // "": none
	resting, busy := 0, map[string]int{} // nodes: see OthersRest
	for node, report := range reports {
		var last postdate.Channel
		for _, c := range report.Channels {
			if string(c.Channel) > after {
				of(c.Channel).add(node, &c, report.OthersRest)
				last = max(last, c.Channel)
			}
		}
		if report.More && last != "" && (end == "" || last < end) {
			end = last
		}
		if report.OthersRest {
			resting++
			for _, host := range report.BusyHosts {
				busy[host]++
			}
		}
	}
	for name, c := range by {
		if end == "" || name <= end {
			known := c.rated+resting-c.resting-busy[name.Shown()] == len(reports)
			list.Channels = append(list.Channels, c.result(known, pending))
		}
	}
	list.More = end != "" // there may be others after it
	slices.SortFunc(list.Channels, func(a, b api.Channel) int { return cmp.Compare(a.Route, b.Route) })
	return list
}

// result is the channel with its rate, if that is known, and what is pending of it.
func (c *channelSum) result(rateKnown bool, pending *store.Pending) api.Channel {
	if rateKnown {
		c.PerSecond = &c.perSecond
	}
	if pending != nil {
		if n, known := pending.Of(c.Route.Channel()); known {
			c.Pending, c.Exact = &n, pending.Exact
		}
	}
	return c.Channel
}

// add adds what a node reports; othersRest says whether all rests that this node does not report.
func (c *channelSum) add(node string, r *channelReport, othersRest bool) {
	if othersRest {
		c.resting++
	}
	if r.PerSecond != nil {
		c.rated++
		c.perSecond += *r.PerSecond
	}
	c.Down = c.Down || r.Down
	c.Parked = c.Parked || r.Parked
	c.InHand += r.InHand
	c.InFlight += r.InFlight
	if r.LastError == "" {
		return
	}
	if newer := cmp.Or(cmp.Compare(r.LastErrorAt, c.LastErrorAt), cmp.Compare(node, c.LastErrorNode)); newer > 0 {
		c.LastError, c.LastErrorAt, c.LastErrorNode = r.LastError, r.LastErrorAt, node
	}
}

// clusterChannels shows the channels of all nodes. It implements api.Channels.
type clusterChannels struct{ node *Node }

// List implements api.Channels. The settings are those that this node read last: it does not wait for the store.
func (c clusterChannels) List(ctx context.Context, tenant, after string) (api.ChannelList, error) {
	n := c.node
	about := tenant + "\x00" + after
	list, err, _ := n.watch.asks.Do(string(questionChannels)+about, func() (any, error) {
		look := n.pending.look(tenant) // meanwhile
		own, err := n.reportChannels(ctx, about)
		if err != nil {
			return api.ChannelList{}, err
		}
		reports, missing := reportsOf[channelsReport](n.ask(ctx, questionChannels, about))
		reports[n.c.NodeID] = own
		list := mergeChannels(tenant, after, n.control.channels(), reports, look.result(ctx))
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
	rates := n.watch.channelRates(tenant)
	return channelsIn(views, &rates, tenant, after), nil
}

// Change implements api.Channels.
func (c clusterChannels) Change(ctx context.Context, route postdate.Route,
	f func(*store.ChannelSettings)) (store.ChannelSettings, error) {
	return c.node.control.Change(ctx, route, f)
}
