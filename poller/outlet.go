package poller

import (
	"slices"

	"github.com/postdate/postdate"
)

// A tenant's messages to one broker's channel wait in up to three channels, one for each priority.
// What the broker takes, an operator limits or a crash may leave in doubt is of all of them together.
// While more than one has messages, chance decides whose turn it is when something may be sent, read or
// brought back: that of each as often as it weighs.

// outlet is what a tenant's channels of all priorities share.
type outlet struct {
	name     postdate.Route // without a priority
	site     *site
	peers    *peers
	channels []*channel // the highest priority first

	delivers bool // the store delivers and settles its messages in one step: one that is PENDING was not delivered

	window    int // messages that may be with the broker; it grows with each that is confirmed
	pace      pace
	limit     *limit // what an operator set of it, or nil
	lastError string // the broker's last words that were no confirm
	errorAt   postdate.Time

	first postdate.Priority // the one that sends first in this step
}

// outletOf returns the outlet of a route, which may be new.
func (m *Machine) outletOf(route postdate.Route) *outlet {
	name := route.At(postdate.PriorityMedium)
	o := m.outlets[name]
	if o != nil {
		return o
	}
	at := siteOf(name)
	if m.sites[at] == nil {
		tenant, to := name.Split()
		m.sites[at] = &site{name: at, tenant: m.tenantOf(tenant), broker: to.Broker(),
			channels: map[*channel]struct{}{}}
	}
	o = &outlet{name: name, site: m.sites[at], limit: m.limits[name], window: windowMin}
	o.delivers = m.c.Delivers && o.site.broker == "inbox"
	m.outlets[name] = o
	m.joinPeers(o)
	return o
}

// add makes c one of the outlet's channels.
func (o *outlet) add(c *channel) {
	o.channels = append(o.channels, c)
	o.site.tenant.channels++
	slices.SortFunc(o.channels, func(a, b *channel) int { return b.priority.Weight() - a.priority.Weight() })
}

// remove undoes add, and forgets an outlet that has no channels left.
func (m *Machine) remove(c *channel) {
	o := c.outlet
	o.site.tenant.channels--
	o.channels = slices.DeleteFunc(o.channels, func(other *channel) bool { return other == c })
	if len(o.channels) == 0 {
		delete(m.outlets, o.name)
		m.leavePeers(o)
	}
}

// sum adds up something of all channels of the outlet.
func (o *outlet) sum(of func(*channel) int) (n int) {
	for _, c := range o.channels {
		n += of(c)
	}
	return n
}

// flying is how many messages of all priorities are with the broker.
func (o *outlet) flying() int { return o.sum(func(c *channel) int { return c.inFlight }) }

// shareOf is how much more of the outlet's n a channel may take; of counts how much each has. Each
// priority and those below it leave half for the next higher one that is known, so that it has room at
// once.
func (c *channel) shareOf(n int, of func(*channel) int) (more int) {
	more = n
	for above, o := range c.channels { // the highest priority first
		taken := 0
		for _, lower := range c.channels[above:] {
			taken += of(lower)
		}
		more = min(more, max(n>>above, min(n, 1))-taken)
		if o == c {
			break
		}
	}
	return more
}

// lowPart: of the window, low priority takes a quarter at most, because what comes next waits behind
// what the broker has; and of a bucket's turns to catch up, while it alone is behind.
const lowPart = 4

// flightMax is how many messages of a channel may be with its broker, as far as its window says.
func (c *channel) flightMax() int {
	if c.priority == postdate.PriorityLow {
		return max(c.window/lowPart, 1)
	}
	return c.window
}

// prioritySet marks some priorities.
type prioritySet [postdate.PriorityLow + 1]bool

// pickPriority picks one of some priorities, each as often as it weighs.
func (m *Machine) pickPriority(some prioritySet) (picked postdate.Priority) {
	weights := 0
	for _, p := range postdate.Priorities() {
		if !some[p] {
			continue
		}
		weights += p.Weight()
		if weights == p.Weight() || m.random()*float64(weights) < float64(p.Weight()) {
			picked = p
		}
	}
	return picked
}

// having is the priorities of those channels that have something.
func (o *outlet) having(some func(*channel) bool) (having prioritySet) {
	for _, c := range o.channels {
		having[c.priority] = some(c)
	}
	return having
}

// sendOrder puts channels in the order in which they send: of each outlet first the priority whose turn it
// is, and then higher ones before lower.
func (m *Machine) sendOrder(channels []*channel) []*channel {
	if m.prioritized == 0 {
		return channels
	}
	several := false
	for _, c := range channels {
		if len(c.channels) > 1 {
			several = true
			c.first = m.pickPriority(c.having(func(o *channel) bool { return len(o.ready) > 0 }))
		}
	}
	if several {
		slices.SortStableFunc(channels, func(a, b *channel) int {
			return b.rank() - a.rank()
		})
	}
	return channels
}

// rank is larger the sooner a channel sends.
func (c *channel) rank() int {
	if c.priority == c.first {
		return postdate.PriorityHigh.Weight() + 1
	}
	return c.priority.Weight()
}

// ofOnePriority keeps the routes of one priority, each as often as it weighs.
func (m *Machine) ofOnePriority(routes []postdate.Route) []postdate.Route {
	if m.prioritized == 0 {
		return routes
	}
	var behind prioritySet
	for _, r := range routes {
		behind[r.Priority()] = true
	}
	one := m.pickPriority(behind)
	return slices.DeleteFunc(routes, func(r postdate.Route) bool { return r.Priority() != one })
}

// mayReturn reports whether parked messages of a channel come back in this turn, which is as often as it
// weighs among the priorities that have some.
func (m *Machine) mayReturn(c *channel) bool {
	parked := c.having(func(o *channel) bool { return o.parkedIn.len() > 0 })
	return m.pickPriority(parked) == c.priority
}
