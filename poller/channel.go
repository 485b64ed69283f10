package poller

import (
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// channel is what the machine knows of one route.
type channel struct {
	*outlet
	route    postdate.Route
	priority postdate.Priority
	ready    []*Item // due, in order
	listed   bool    // is in Machine.ready
	batches  int     // publishes in flight
	hand     int     // items in memory
	settling int     // of these, on their way to the store: no fault of the channel
	looks    int     // and parked ones that are to be looked at

	coming     int           // messages that claims and unparks of it alone may bring
	dropped    int           // messages that were dropped when the lease ended, and were not read again yet
	crowded    bool          // is in Machine.crowded
	overfullAt time.Duration // since when more of it is in hand than may be, as Machine.full saw; 0: it is not
	behindIn   []*owned      // buckets whose records say that it is behind, in turn

	inFlight int // messages with the broker

	parkedIn rotation[*owned] // buckets that may have some of it parked
}

// windowMin is how many messages of a channel may be with its broker before the first one is
// confirmed, and again after a batch got no answer. A broker that never answers holds no more
// than that.
const windowMin = 64

// noAnswer is how long a batch with only unknown outcomes must take to show that its channel
// does not answer. Then messages are tried one at a time.
const noAnswer = 5 * time.Second

// site is what fails as one for a tenant: a broker's channel, or all URLs of one host. What one
// tenant sends to a host says nothing of it for others. A site that takes nothing is down: its
// messages are parked in the store, where they take no memory and can be cancelled. One at a time
// is sent as a probe, less and less often, until one goes through.
type site struct {
	name     postdate.Route // a channel or, of URLs, a host
	tenant   *tenant
	broker   string
	channels map[*channel]struct{}
	inFlight int  // messages with the broker
	proven   bool // it has answered, and left no whole batch unanswered since
	kept     bool // is in Machine.kept
	down     bool
	tried    bool          // it is known to be down, and not only assumed
	downAt   postdate.Time // since when that is known
	answered postdate.Time // when it answered last; 0: not that this node knows
	reason   string
	backoff  time.Duration
	probeAt  time.Duration // the next probe, while down
	probing  bool          // a probe is with the broker
	parking                // its messages that are parked in the store
}

// siteOf names the site of an outlet's route.
func siteOf(r postdate.Route) postdate.Route {
	tenant, c := r.Split()
	if broker := c.Broker(); broker == "http" || broker == "https" {
		host := strings.ToLower(strings.TrimPrefix(c.Target(), "//"))
		if end := strings.IndexAny(host, "/?"); end >= 0 { // a query may follow without a path
			host = host[:end]
		}
		return postdate.RouteOf(tenant, postdate.Channel(broker+"://"+host))
	}
	return r
}

func (m *Machine) channelOf(route postdate.Route) *channel {
	c := m.channels[route]
	if c == nil {
		c = &channel{outlet: m.outletOf(route), route: route, priority: route.Priority()}
		c.outlet.add(c)
		c.site.channels[c] = struct{}{}
		m.channels[route] = c
		if c.priority != postdate.PriorityMedium {
			m.prioritized++
		}
	}
	return c
}

// forget drops a channel if nothing is known about it but its name.
func (m *Machine) forget(c *channel) {
	if c.hand > 0 || c.parkedIn.len() > 0 || len(c.behindIn) > 0 || c.coming > 0 || c.dropped > 0 || c.crowded ||
		m.channels[c.route] != c {
		return
	}
	delete(m.channels, c.route)
	if c.priority != postdate.PriorityMedium {
		m.prioritized--
	}
	m.remove(c)
	if delete(c.site.channels, c); len(c.site.channels) == 0 {
		m.keep(c.site)
	}
}

// sitesKept is how many sites without channels are remembered because they have answered.
const sitesKept = 4_096

// keep remembers a site that has no channels left, if it has answered. When there are too many,
// it forgets the one kept longest. A site that went down meanwhile is forgotten immediately.
func (m *Machine) keep(s *site) {
	if !s.proven || s.down {
		delete(m.sites, s.name)
		return
	}
	if !s.kept {
		s.kept = true
		m.kept = append(m.kept, s)
	}
	if len(m.kept) <= sitesKept {
		return
	}
	s, m.kept = m.kept[0], m.kept[1:]
	if s.kept = false; len(s.channels) == 0 && m.sites[s.name] == s {
		delete(m.sites, s.name)
	}
}

// doubtful is how many messages of the channel are claimed and not settled, or may be.
func (c *channel) doubtful() int { return c.hand + c.dropped + c.coming }

// waiting is how many wait to go to the broker, or may soon.
func (c *channel) waiting() int { return c.unsent() + c.coming }

// unsent is how many of the channel's messages in hand wait to go to the broker.
func (c *channel) unsent() int { return c.hand - c.settling - c.looks - c.inFlight }

func inHand(c *channel) int { return c.hand }

// count adds n to the messages of a channel in memory.
func (m *Machine) count(c *channel, n int) {
	c.hand += n
	m.hand += n
	switch {
	case c.hand == 0:
		if c.sum(inHand) == 0 {
			m.holds(c.site.tenant, -1)
		}
		m.lookSoon(c.site)
		m.forget(c)
	case c.sum(inHand) == n: // the first
		m.holds(c.site.tenant, 1)
	}
	m.crowdIfMany(c)
}

func (m *Machine) makeReady(it *Item) {
	it.stage = stageReady
	c := it.channel
	c.ready = append(c.ready, it)
	if !c.listed {
		c.listed = true
		m.ready = append(m.ready, c)
	}
}

// publish sends what is ready, channel by channel.
func (m *Machine) publish(now postdate.Now) {
	if len(m.ready) == 0 || !m.leased(now) {
		return
	}
	channels := m.sendOrder(m.ready)
	m.ready = nil
	for _, c := range channels {
		m.sift(now, c)
		m.expireReady(now, c)
		m.skipReady(now, c)
		m.settleParked(now, c)
		if c.site.down || c.paused() {
			m.probeAndPark(now, c)
		}
		m.parkLeaving(now, c, staysBehind)
		for c.batches < m.c.BatchesMax {
			// More may be in flight than is still allowed: a negative n would add tokens.
			n := c.allowed(now, min(len(c.ready), m.c.BatchMax, m.sendMax(now, c)))
			if n == 0 {
				break
			}
			m.send(now, c, n)
		}
		m.parkLeaving(now, c, func(it *Item) bool { return it.bucket.resting() })
		m.parkSurplus(now, c)
		c.listed = len(c.ready) > 0
		if c.listed {
			m.ready = append(m.ready, c)
		} else {
			c.ready = nil
		}
	}
}

// sendMax is how many more messages of a channel may go to its broker.
func (m *Machine) sendMax(now postdate.Now, c *channel) int {
	return max(min(min(c.window, m.handShare(now, c))-c.flying(), c.flightMax()-c.inFlight), 0)
}

// prove notes whether a site answers.
func (m *Machine) prove(s *site, answers bool) {
	switch {
	case answers && !s.proven:
		m.unprove(s, -s.inFlight)
	case !answers && s.proven:
		m.unprove(s, s.inFlight)
	}
	s.proven = answers
}

// unprove adds n to the messages with sites that have not answered yet.
func (m *Machine) unprove(s *site, n int) {
	m.unproven[s.broker] += n
	s.tenant.unproven[s.broker] += n
}

// fly adds n to the messages of a channel that are with its broker.
func (m *Machine) fly(c *channel, n int) {
	c.inFlight += n
	c.site.inFlight += n
	if !c.site.proven {
		m.unprove(c.site, n)
	}
}

// sift takes out what was dropped, and what is no longer due because the wall clock was set
// back.
func (m *Machine) sift(now postdate.Now, c *channel) {
	c.ready = slices.DeleteFunc(c.ready, func(it *Item) bool {
		if it.stage == stageReady && it.due > now.Wall {
			it.stage = stageWaiting
			heap.Push(&m.waiting, it)
		}
		return it.stage != stageReady
	})
}

// expireReady ends the ready messages that have expired.
func (m *Machine) expireReady(now postdate.Now, c *channel) {
	c.ready = slices.DeleteFunc(c.ready, func(it *Item) bool {
		expires := it.rec.ExpiresAt
		if expires == 0 || now.Wall < expires {
			return false
		}
		reason := "expired at " + expires.String() + " before it was delivered"
		if it.doubt {
			reason = "expired at " + expires.String() + "; an earlier attempt may have been delivered"
		}
		if it.rec.LastError != "" {
			reason += "; last error: " + it.rec.LastError
		}
		m.settleAs(it, store.Settlement{How: store.SettleFailed, At: m.endsAt(now), Attempts: it.rec.Attempts,
			Reason: reason})
		return true
	})
}

// probeAndPark sends one message to a site that is down, if it is time for a probe, and parks
// the others.
func (m *Machine) probeAndPark(now postdate.Now, c *channel) {
	if len(c.ready) > 0 && !c.paused() && !c.site.probing && now.Mono >= c.site.probeAt {
		c.site.probing, c.site.onWayUntil = true, 0
		c.ready[0].probe = true
		m.send(now, c, 1)
	}
	for _, it := range c.ready {
		m.parkOrGiveUp(now, it)
	}
	c.ready = nil
}

func (m *Machine) send(now postdate.Now, c *channel, n int) {
	batch := slices.Clone(c.ready[:n])
	clear(c.ready[:n]) // else what is settled stays in memory until all that is ready has gone out
	c.ready = c.ready[n:]
	c.batches++
	m.fly(c, n)
	for _, it := range batch {
		if it.due > now.Wall || it.rec.NotBefore() >= now.Wall {
			panic("poller: about to publish early: " + it.rec.ScheduleID)
		}
		if it.rec.Parked {
			panic("poller: about to publish what can be cancelled: " + it.rec.ScheduleID)
		}
		it.stage, it.sent = stagePublishing, now.Mono
	}
	p := Publish{Channel: c.route.Channel(), Batch: batch}
	if c.delivers {
		p.Settlements = make([]store.Settlement, n)
		for i, it := range batch {
			p.Settlements[i] = m.asDelivered(now, it)
		}
	}
	m.emit(p)
}

// published handles the results of a batch.
func (m *Machine) published(now postdate.Now, ev Published) {
	c := ev.Batch[0].channel
	c.batches--
	m.fly(c, -len(ev.Batch))
	probe := ev.Batch[0].probe
	if probe {
		c.site.probing = false
	}
	unknown := 0
	for i, it := range ev.Batch {
		r := ev.Results[i]
		if r.Outcome != publisher.Confirmed {
			c.lastError, c.errorAt = r.Reason, now.Wall
		}
		switch r.Outcome {
		case publisher.Confirmed:
			m.up(now, c.site)
			m.prove(c.site, true)
			c.pace.add(now.Mono, 1)
			c.window = min(c.window+1, m.c.BatchesMax*m.c.BatchMax)
		case publisher.Refused:
			m.up(now, c.site)
			m.prove(c.site, true)
		case publisher.Down:
			m.goDown(now, c.site, r.Reason, probe)
		default: // whatever is not known is unknown
			unknown++
			if probe {
				m.goDown(now, c.site, r.Reason, true)
			}
		}
		m.ended(now, it, r)
	}
	if unknown == len(ev.Batch) && now.Mono-ev.Batch[0].sent >= noAnswer {
		m.prove(c.site, false)
		c.window = windowMin
		m.goDown(now, c.site, ev.Results[0].Reason, false)
	}
	m.lookSoon(c.site)
}

// ended decides what follows a publish. An abandoned publish is still settled if it was
// confirmed: a delivery is a fact.
func (m *Machine) ended(now postdate.Now, it *Item, r publisher.Result) {
	switch {
	case it.stage != stagePublishing && r.Outcome == publisher.Confirmed && !r.Settled:
		settling{nil, it.bucket, m.asDelivered(now, it)}.queue()
	case it.stage != stagePublishing:
	case r.Settled:
		m.wrote(settling{it, it.bucket, m.asDelivered(now, it)})
	case r.Outcome == publisher.Confirmed:
		m.settleAs(it, m.asDelivered(now, it))
	case r.Outcome == publisher.Refused:
		m.retry(now, it, r)
	case r.Outcome == publisher.Down:
		m.parkOrGiveUp(now, it)
	default:
		m.doubt(it)
		m.retry(now, it, r)
	}
}

// up notes that a site answers, so what is parked for it may come back.
func (m *Machine) up(now postdate.Now, s *site) {
	if s.answered = now.Wall; !s.down {
		return
	}
	s.down, s.backoff, s.reason = false, 0, ""
}

func byRoute(a, b *channel) int { return strings.Compare(string(a.route), string(b.route)) }

// goDown notes that a site takes nothing. The back-off grows with each failed probe, not with
// each message.
func (m *Machine) goDown(now postdate.Now, s *site, reason string, probe bool) {
	if s.down && s.tried && !probe {
		return
	}
	if !s.down || !s.tried {
		s.downAt = now.Wall
	}
	s.down, s.tried, s.reason, s.brings = true, true, reason, 1
	s.backoff = min(max(2*s.backoff, m.c.ProbeMin), m.c.ProbeMax)
	s.probeAt = now.Mono + s.backoff - time.Duration(m.random()*float64(s.backoff)/4)
}
