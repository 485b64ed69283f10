package poller

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// A channel's messages in hand cannot be cancelled, and a crash leaves them in doubt. So no
// more are taken than go out soon: that is the channel's room. Claims leave a channel without
// room behind (behind.go). Messages read beyond its room are parked.

// roomOf is how many more messages of a channel may come into the hand.
func (m *Machine) roomOf(now postdate.Now, c *channel) int {
	wait := m.waitMax(now, c)
	room := c.shareOf(wait, (*channel).waiting)
	if wait > 0 { // each priority may have one there, so that its turn to send can come
		room = max(room, 1-c.waiting())
	}
	return min(room, c.shareOf(m.handMax(now, c), (*channel).doubtful))
}

// limitOf is how many messages the next claim of a channel may bring in a call that has of[c] more such
// claims, beside what those of its outlet's priorities bring that come before it.
func (m *Machine) limitOf(now postdate.Now, c *channel, of, brings map[*channel]int) int {
	room := m.roomOf(now, c)
	if len(c.channels) == 1 {
		return room / of[c]
	}
	for _, o := range c.channels {
		room -= brings[o]
	}
	limit := room / of[c]
	of[c]--
	brings[c] += max(limit, 1)
	return limit
}

// hasRoom reports whether it is worth a call to fetch messages of a channel: usually once half
// of what may wait has gone out. If a part of the store fails, messages there may take up room
// for long, and so may messages of other priorities; then a call is worth it if there is room for as
// many messages as wait.
func (m *Machine) hasRoom(now postdate.Now, c *channel) bool {
	room := m.roomOf(now, c)
	return room > 0 && (room >= m.waitMax(now, c)/2 ||
		room >= c.unsent() && (m.storeFails(now) || len(c.channels) > 1))
}

// storeFails reports whether claims or settlements fail, or one of them hangs.
func (m *Machine) storeFails(now postdate.Now) bool {
	if len(m.apart) > 0 {
		return true
	}
	for _, call := range m.settlings { // of either callsMax at most: all are of one lane
		if now.Mono >= call.began+stuckAfter {
			return true
		}
	}
	for _, call := range m.claimings {
		if now.Mono >= call.began+stuckAfter {
			return true
		}
	}
	return false
}

// waitMax is how many messages of a channel may be in hand and not with its broker.
func (m *Machine) waitMax(now postdate.Now, c *channel) int {
	return max(min(m.handShare(now, c)-c.flying(), 2*c.flightMax()-c.inFlight, c.limited(now.Mono)), 0)
}

// handMax is how many messages of a channel may be in hand: as many as may be claimed and not
// settled, less the half of DoubtMax that is reserved for claims of any channel.
func (m *Machine) handMax(now postdate.Now, c *channel) int {
	return max(m.c.DoubtMax, c.pace.best(now.Mono)) - m.c.DoubtMax/2
}

// handShare is how much of the hand a channel may fill: twice what its broker may have. So
// stuck messages leave room for others, however many channels there are. If the hand is almost
// full all the same, tenants share half of it by their weights, and so do the channels of each
// in equal parts.
func (m *Machine) handShare(now postdate.Now, c *channel) int {
	t := c.site.tenant
	share := min(2*c.window, m.handMax(now, c), m.c.HandMax/2, m.flightPart(c.outlet))
	if m.hand+m.coming >= m.c.HandMax/4*3 {
		share = max(m.handPart(t, m.c.HandMax/2)/max(t.inHand, 1), 1)
	}
	if !c.site.proven {
		share = min(share, c.flying()+m.unprovenRoom(c.site))
	}
	if c.limit != nil && c.limit.set.MaxInFlight > 0 {
		share = min(share, 2*c.limit.set.MaxInFlight)
	}
	return share
}

// unprovenRoom is how many more messages may be tried of a site that has not answered yet: what all
// such sites of a broker leave of the hand, or what those of its tenant leave of the tenant's part.
func (m *Machine) unprovenRoom(s *site) int {
	ofAll := unprovenRoomOf(s, m.unproven[s.broker], m.c.HandMax/4)
	return max(ofAll, unprovenRoomOf(s, s.tenant.unproven[s.broker], max(m.handPart(s.tenant, m.c.HandMax)/4, 1)))
}

// unprovenRoomOf lets sites that have not answered hold a quarter, and another quarter with one
// message each. So a new site is tried immediately, even next to thousands that never answer.
func unprovenRoomOf(s *site, unproven, quarter int) int {
	if s.inFlight == 0 && unproven < 2*quarter {
		return max(min(windowMin, quarter-unproven), 1)
	}
	return max(min(windowMin-s.inFlight, quarter-unproven), 0)
}

// room is how many messages and bytes a call may bring, and for how many buckets: each
// may bring one payload of any size. It is half of what is free, so that a call that hangs
// leaves room for others.
func (m *Machine) room() (messages, bytes, buckets int) {
	messages, bytes = (m.c.HandMax-m.hand-m.coming)/2, (m.c.HandBytesMax-m.handBytes-m.comingBytes)/2
	return messages, bytes, min(messages, bytes/m.c.PayloadBytesMax)
}

// roomOfAny is how many messages a claim of any channel may bring. Even if all are of one
// channel, it keeps to the bound on what may be in doubt.
func (m *Machine) roomOfAny() int { return max((m.c.DoubtMax/2-m.comingOfAny)/2, 1) }

// expect adds what a claim may bring, or with sign -1 takes it off again.
func (m *Machine) expect(p *poll, sign int) {
	m.coming += sign * p.claim.Scan.Limit
	m.comingBytes += sign * p.claim.Scan.BytesMax
	m.expectOf(p.only, sign*p.counts)
	if p.only != nil {
		m.forget(p.only)
	}
}

// expectOf adds n to the messages that may be claimed but are not in hand: of the channel c, or
// of any channel if c is nil.
func (m *Machine) expectOf(c *channel, n int) {
	if c == nil {
		m.comingOfAny += n
		return
	}
	c.coming += n
	m.crowdIfMany(c)
}

// crowdMin is how many messages must take up a channel's room for claims to check that it has
// any left. A channel with fewer has room, or what is read of it is parked.
func (c *Config) crowdMin() int { return max(min(windowMin, c.DoubtMax/4), 1) }

// crowdIfMany crowds a channel if many messages take up its room.
func (m *Machine) crowdIfMany(c *channel) {
	if m.crowds(c) {
		m.crowd(c)
	}
}

// crowds reports whether so many messages of its outlet take up room that a channel may have none.
func (m *Machine) crowds(c *channel) bool {
	return c.doubtful() > 0 && c.sum((*channel).doubtful) >= m.c.crowdMin()
}

// crowd notes that a channel may have no room.
func (m *Machine) crowd(c *channel) {
	if !c.crowded {
		c.crowded = true
		m.crowded = append(m.crowded, c)
	}
}

// lookForFull lists each tenant's crowded channels that have no room, and in m.full the tenants with
// such channels, those with the fewest first. It drops channels that are no longer crowded. A crowded
// channel is not forgotten, so a busy one keeps its window and its pace while a claim is under way.
func (m *Machine) lookForFull(now postdate.Now) {
	var full, overfull []*channel
	m.crowded = slices.DeleteFunc(m.crowded, func(c *channel) bool {
		switch {
		case c.sum(func(c *channel) int { return c.hand + c.dropped }) <= m.handMax(now, c):
			c.overfullAt = 0
		case c.overfullAt == 0:
			c.overfullAt = now.Mono
		}
		switch {
		case m.roomOf(now, c) > 0:
			c.crowded = m.crowds(c)
			m.forget(c)
		case c.overfull(now.Mono):
			overfull = append(overfull, c)
		default:
			full = append(full, c)
		}
		return !c.crowded
	})
	for _, t := range m.full {
		t.full = nil
	}
	m.full = nil
	for _, c := range append(overfull, full...) {
		t := c.site.tenant
		if len(t.full) == 0 {
			m.full = append(m.full, t)
		}
		t.full = append(t.full, c)
	}
	m.looked = true
	slices.SortStableFunc(m.full, func(a, b *tenant) int { return len(a.full) - len(b.full) })
	m.overfull = len(m.full)
	for m.overfull > 0 && !m.full[m.overfull-1].full[0].overfull(now.Mono) {
		m.overfull--
	}
}

// stuckAfter is how long claims wait for fewer messages of a channel to be in doubt. Messages
// in doubt for longer are stuck: a broker or a part of the store does not answer.
const stuckAfter = time.Second

// overfull reports whether claims wait until fewer messages of a channel are in hand: those
// beyond its room are about to be parked, unless they are stuck.
func (c *channel) overfull(now time.Duration) bool {
	return c.overfullAt != 0 && now < c.overfullAt+stuckAfter
}

// waitMaxBeside is how many messages of a channel may wait of those that may wait of all priorities. What
// higher ones have is theirs, but for one message. What the broker has of lower ones takes the place of
// as many that go next, unless an operator limits them or the hand is almost full.
func (m *Machine) waitMaxBeside(c *channel, most int) int {
	higher, lower := 0, 0
	for _, o := range c.channels {
		switch {
		case o.priority.Weight() > c.priority.Weight():
			higher += o.unsent()
		case o != c:
			lower += o.inFlight
		}
	}
	beside := min(most, max(most-higher, 1))
	if c.limit == nil && m.hand+m.coming < m.c.HandMax/4*3 {
		beside = max(beside, min(lower, m.c.crowdMin()))
	}
	return beside
}

// parkSurplus parks what is ready beyond a channel's room, so that it can be cancelled.
func (m *Machine) parkSurplus(now postdate.Now, c *channel) {
	most := m.waitMaxBeside(c, m.waitMax(now, c))
	if len(c.ready) <= most {
		return
	}
	m.crowd(c)
	since := postdate.Time(0)
	if c.site.answered == 0 {
		since = now.Wall // it may be down
	}
	for _, it := range c.ready[most:] {
		m.park(now, it, it.rec.LastError, since)
	}
	c.ready = slices.Delete(c.ready, most, len(c.ready))
}

// pace is what a channel confirmed in each of the last ten seconds.
type pace struct {
	second time.Duration // the present one, counted from 0
	counts [10]int       // the present second's at second % 10
}

// add counts n confirms.
func (p *pace) add(now time.Duration, n int) {
	p.roll(now)
	p.counts[p.second%10] += n
}

// best is the number of confirms in the best two consecutive seconds of the last ten.
func (p *pace) best(now time.Duration) (most int) {
	p.roll(now)
	for i := range 9 {
		at := p.second + 10 - time.Duration(i)
		most = max(most, p.counts[at%10]+p.counts[(at-1)%10])
	}
	return most
}

func (p *pace) roll(now time.Duration) {
	for second := now / time.Second; p.second < second; {
		p.second = max(p.second+1, second-9)
		p.counts[p.second%10] = 0
	}
}
