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

	window    int // messages that may be with the broker; it grows with each that is confirmed
	pace      pace
	limit     *limit // what an operator set of it, or nil
	lastError string // the broker's last words that were no confirm

	drawn   postdate.Priority // which of them sends first in this step
	drawnIn uint64            // the step in which that was drawn
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
	m.outlets[name] = o
	m.joinPeers(o)
	return o
}

// add makes c one of the outlet's channels.
func (o *outlet) add(c *channel) {
	o.channels = append(o.channels, c)
	slices.SortFunc(o.channels, func(a, b *channel) int { return b.priority.Weight() - a.priority.Weight() })
}

// remove undoes add, and forgets an outlet that has no channels left.
func (m *Machine) remove(c *channel) {
	o := c.outlet
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

// left is what is left for c of n that the outlet may have; of counts how much each channel has. A
// channel and those of lower priorities leave half for the next higher one that has messages, so that
// it has room at once.
func (c *channel) left(n int, of func(*channel) int) (left int) {
	left = n
	for above, o := range c.channels { // the highest priority first
		taken := 0
		for _, lower := range c.channels[above:] {
			taken += of(lower)
		}
		left = min(left, max(n>>above, min(n, 1))-taken)
		if o == c {
			break
		}
	}
	return left
}

// lowPart: of what may be with a broker, low priority takes a quarter at most. The rest is for what
// comes next, which waits behind what the broker has.
const lowPart = 4

// flightMax is how many messages of a channel may be with its broker.
func (c *channel) flightMax() int {
	if c.priority == postdate.PriorityLow {
		return max(c.window/lowPart, 1)
	}
	return c.window
}

// priorities marks some priorities.
type priorities [postdate.PriorityLow + 1]bool

// draw picks one of some priorities, each as often as it weighs.
func (m *Machine) draw(some priorities) (drawn postdate.Priority) {
	weights, n := 0, 0
	for _, p := range postdate.Priorities() {
		if some[p] {
			drawn = p
			weights += p.Weight()
			n++
		}
	}
	if n <= 1 {
		return drawn
	}
	at := m.random() * float64(weights)
	for _, p := range postdate.Priorities() {
		if some[p] {
			if drawn = p; at < float64(p.Weight()) {
				break
			}
			at -= float64(p.Weight())
		}
	}
	return drawn
}

// inTurn puts channels in the order in which they send: of each outlet first the priority whose turn it
// is, and then higher ones before lower.
func (m *Machine) inTurn(channels []*channel) []*channel {
	if m.prioritized == 0 {
		return channels
	}
	for _, c := range channels {
		if c.drawnIn == m.steps {
			continue
		}
		var ready priorities
		for _, o := range c.channels {
			ready[o.priority] = len(o.ready) > 0
		}
		c.drawnIn, c.drawn = m.steps, m.draw(ready)
	}
	slices.SortStableFunc(channels, func(a, b *channel) int {
		return inOrder(a.priority, a.drawn) - inOrder(b.priority, b.drawn)
	})
	return channels
}

// inOrder is the place of a priority if another one, or the same, comes first.
func inOrder(p, first postdate.Priority) int {
	if p == first {
		return 0
	}
	return 1 + slices.Index(postdate.Priorities(), p)
}

// takeTurns puts a tenant's channels behind in the order in which they catch up: first those of one
// priority, each as often as it weighs.
func (m *Machine) takeTurns(t *tenant) {
	if m.prioritized == 0 {
		return
	}
	var behind priorities
	for _, c := range t.behind {
		behind[c.priority] = true
	}
	first := m.draw(behind)
	slices.SortStableFunc(t.behind, func(a, b *channel) int {
		return inOrder(a.priority, first) - inOrder(b.priority, first)
	})
}

// ofOnePriority keeps the routes of one priority, each as often as it weighs.
func (m *Machine) ofOnePriority(routes []postdate.Route) []postdate.Route {
	if m.prioritized == 0 {
		return routes
	}
	var behind priorities
	for _, r := range routes {
		behind[r.Priority()] = true
	}
	drawn := m.draw(behind)
	return slices.DeleteFunc(routes, func(r postdate.Route) bool { return r.Priority() != drawn })
}

// takesTurn reports whether parked messages of a channel come back in this turn: always, or as often as
// the channel weighs if higher priorities of the outlet also have some.
func (m *Machine) takesTurn(c *channel) bool {
	for _, o := range c.channels { // the highest priority first
		if o.parkedIn.len() > 0 {
			return o == c || m.random()*float64(o.priority.Weight()) < float64(c.priority.Weight())
		}
	}
	return true
}
