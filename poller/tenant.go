package poller

import (
	"cmp"
	"math"
	"slices"

	"github.com/postdate/postdate"
)

// What there is to share out goes to tenants first, by their weights, and then to the channels of
// each: the hand, where it is almost full, catching up, and what comes back from parking. So a
// tenant with very much that is due, in however many channels, takes from another one only what
// their weights say.

// tenant is what the machine knows of one tenant. There are no more of them than have credentials,
// so none is forgotten.
type tenant struct {
	name     string
	weight   int
	channels int            // those that are known
	inHand   int            // its outlets with messages in memory
	all      postdate.Route // stands for all of its channels in the records of buckets
	behind   []*channel     // its channels of which less is claimed than of others, in turn
	behindIn []*owned       // buckets whose records say that all of it is behind, in turn
	looks    int            // for buckets in which something of it can catch up
	full     []*channel     // its channels without room, the overfull ones first
	returns  siteHeap       // its sites that are up and have messages parked
	probes   siteHeap       // its sites that are down and have messages parked
	unproven map[string]int // messages with sites that have not answered yet, by their brokers

	unparks int    // under way
	turn    uint64 // of the last one that began
}

func (m *Machine) tenantOf(name string) *tenant {
	t := m.tenants[name]
	if t == nil {
		t = &tenant{name: name, all: postdate.AllOf(name), weight: max(m.weightOf[name], 1), unproven: map[string]int{}}
		m.tenants[name] = t
		m.byName = append(m.byName, t)
	}
	return t
}

// setWeights takes in what operators set for tenants. One without a weight has 1.
func (m *Machine) setWeights(weights map[string]int) {
	m.weightOf, m.weightInHand = weights, 0
	for _, t := range m.byName {
		if t.weight = max(weights[t.name], 1); t.inHand > 0 {
			m.weightInHand += t.weight
		}
	}
}

// holds adds n outlets to those of a tenant that have messages in memory.
func (m *Machine) holds(t *tenant, n int) {
	before := t.inHand
	t.inHand += n
	switch {
	case before == 0:
		m.weightInHand += t.weight
	case t.inHand == 0:
		m.weightInHand -= t.weight
	}
}

// handPart is a tenant's part of n messages of the hand, among the tenants that have some in it.
func (m *Machine) handPart(t *tenant, n int) int {
	all := m.weightInHand
	if t.inHand == 0 {
		all += t.weight
	}
	return n * t.weight / all
}

// flightPart is how much of a channel may be with its broker while other tenants also have more due
// to the same channel than goes out: a part by weight of what all of them have there, and an eighth more,
// so that all can grow. A broker that serves in order of arrival then serves by weight.
func (m *Machine) flightPart(o *outlet) int {
	if len(o.peers.all) == 1 || !o.competes() {
		return math.MaxInt
	}
	p := o.peers
	if p.step != m.steps {
		p.step, p.weights, p.flying = m.steps, 0, 0
		for _, peer := range p.all {
			if peer.competes() {
				p.weights += peer.site.tenant.weight
				p.flying += peer.flying()
			}
		}
	}
	if p.weights <= o.site.tenant.weight {
		return math.MaxInt
	}
	return max(p.flying*o.site.tenant.weight/p.weights*9/8, windowMin)
}

// competes reports whether more is due than goes out, and only the broker is the reason.
func (o *outlet) competes() bool {
	return !o.site.down && o.limit == nil && slices.ContainsFunc(o.channels, func(c *channel) bool {
		return len(c.behindIn) > 0 || c.parkedIn.len() > 0
	})
}

// peers are the outlets of all tenants to one channel. How much those that compete weigh and have
// in flight is summed up once in a step: each of thousands asks for it.
type peers struct {
	all             []*outlet
	step            uint64 // the one in which the sums were made
	weights, flying int
}

func (m *Machine) joinPeers(o *outlet) {
	name := o.name.Channel()
	p := m.peers[name]
	if p == nil {
		p = &peers{}
		m.peers[name] = p
	}
	o.peers = p
	p.all = append(p.all, o)
}

func (m *Machine) leavePeers(o *outlet) {
	o.peers.all = slices.DeleteFunc(o.peers.all, func(peer *outlet) bool { return peer == o })
	if len(o.peers.all) == 0 {
		delete(m.peers, o.name.Channel())
	}
}

// fallBehind notes that a bucket's record says that a channel is behind.
func (m *Machine) fallBehind(c *channel, b *owned) {
	c.behindIn = append(c.behindIn, b)
	if t := c.site.tenant; len(c.behindIn) == 1 {
		t.behind = append(t.behind, c)
	}
}

// catchingUp picks at most that many buckets of the common lane in which a channel or a tenant can
// catch up now. Each tenant has a part of them by its weight, and what others leave. Tenants take turns,
// and so do the channels of each and the buckets of each channel.
func (m *Machine) catchingUp(now postdate.Now, most int) (all []*owned) {
	tenants, weights := m.behindInTurn()
	var more []*tenant // those that may have more to catch up
	for _, t := range tenants {
		part := min(max(most*t.weight/weights, 1), most-len(all))
		some := m.catchingUpOf(now, t, part)
		if all = append(all, some...); len(some) == part {
			more = append(more, t)
		}
	}
	for _, t := range more {
		all = append(all, m.catchingUpOf(now, t, most-len(all))...)
	}
	return all
}

// behindInTurn lists the tenants that have something behind, another one first with each call, and
// what they weigh together.
func (m *Machine) behindInTurn() (tenants []*tenant, weights int) {
	for _, t := range m.byName {
		if len(t.behind)+len(t.behindIn) > 0 {
			tenants = append(tenants, t)
			weights += t.weight
		}
	}
	if len(tenants) == 0 {
		return nil, 0
	}
	m.behindTurn++
	first := m.behindTurn % len(tenants)
	return append(tenants[first:], tenants[:first]...), weights
}

// catchingUpOf is catchingUp for one tenant. If all that it has is behind, half of the buckets at
// most are for single channels, and of an odd number one more in every other call.
func (m *Machine) catchingUpOf(now postdate.Now, t *tenant, most int) (all []*owned) {
	if most <= 0 {
		return nil
	}
	ofChannels := most
	if len(t.behindIn) > 0 {
		t.looks++
		ofChannels = (most + t.looks%2) / 2
	}
	for range len(t.behind) {
		if len(all) >= ofChannels {
			break
		}
		c := t.behind[0]
		t.behind = t.behind[1:]
		if m.hasRoom(now, c) {
			all = append(all, m.catchingUpIn(now, c, ofChannels-len(all))...)
		}
		if len(c.behindIn) > 0 {
			t.behind = append(t.behind, c)
			continue
		}
		c.behindIn = nil
		m.forget(c)
	}
	var some []*owned
	t.behindIn, some = m.laggingIn(now, t.all, t.behindIn, len(t.behindIn), most-len(all))
	return append(all, some...)
}

// nextLook is the site to look at now, if there is one: of the tenant that has the fewest unparks
// under way for its weight, and among equals has waited longest. Sites that are down also wait for
// the budget of probes.
func (m *Machine) nextLook(now postdate.Now) (next *site) {
	for _, t := range m.byName {
		s := t.nextLook(now, m.budgetAt <= now.Mono)
		if s != nil && (next == nil || t.before(next.tenant)) {
			next = s
		}
	}
	return next
}

// before reports whether an unpark of t comes before one of o.
func (t *tenant) before(o *tenant) bool {
	return cmp.Or(cmp.Compare(t.unparks*o.weight, o.unparks*t.weight), cmp.Compare(t.turn, o.turn)) < 0
}

// nextLook is the tenant's site to look at now, if there is one.
func (t *tenant) nextLook(now postdate.Now, mayProbe bool) (next *site) {
	if len(t.returns) > 0 && t.returns[0].lookAt <= now.Mono {
		next = t.returns[0]
	}
	if mayProbe && len(t.probes) > 0 && t.probes[0].lookAt <= now.Mono &&
		(next == nil || t.probes[0].lookedAtBefore(next)) {
		next = t.probes[0]
	}
	return next
}

// wakeUnparks asks to be woken when the next unparks may begin.
func (m *Machine) wakeUnparks(w *waker) {
	if len(m.unparks) == m.c.UnparksMax {
		return
	}
	from := m.unparksFrom()
	for _, t := range m.byName {
		if len(t.returns) > 0 {
			w.mono(max(t.returns[0].lookAt, from))
		}
		if len(t.probes) > 0 {
			w.mono(max(t.probes[0].lookAt, m.budgetAt, from))
		}
	}
	if m.retries.len() > 0 {
		w.mono(max(m.nextRetry, from))
	}
}

// wakeBehind asks to be woken when a rate lets more of a channel that is behind into the hand.
func (m *Machine) wakeBehind(w *waker) {
	for _, t := range m.byName {
		for _, c := range t.behind {
			w.mono(c.roomAt(w.tried.Mono))
		}
	}
}
