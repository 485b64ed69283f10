package poller

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// What is in hand of a channel cannot be cancelled, and is in doubt after a crash. So no
// more of it is taken than goes out soon: that is the channel's room. A channel without room
// is left behind by claims (behind.go). What was read beyond its room is parked.

// roomOf is how many more messages of a channel may come into the hand.
func (m *Machine) roomOf(now postdate.Now, c *channel) int {
	return min(m.waitMax(now, c)-c.unsent(), m.handMax(now, c)-c.hand-c.dropped) - c.coming
}

// hasRoom says whether it is worth a call to fetch messages of a channel: not before half
// of what may wait has gone out. Where the store fails in part, what takes room there may do so
// for long: then it is worth one as soon as no more waits than there is room for.
func (m *Machine) hasRoom(now postdate.Now, c *channel) bool {
	room := m.roomOf(now, c)
	return room > 0 && (room >= m.waitMax(now, c)/2 || room >= c.unsent() && m.storeFails(now))
}

// storeFails says whether claims or settlements fail, or one of them hangs.
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
	return max(min(m.handShare(now, c)-c.inFlight, c.limited(now.Mono)), 0)
}

// handMax is how many messages of a channel may be in hand: as many as may be claimed and
// not settled, less the half of DoubtMax that is kept for claims of any channel.
func (m *Machine) handMax(now postdate.Now, c *channel) int {
	return max(m.c.DoubtMax, c.pace.best(now.Mono)) - m.c.DoubtMax/2
}

// handShare is how much of the hand a channel may fill: what its broker may have, and as
// much again. So what is stuck leaves room, however many channels there are. Where the
// hand is almost full all the same, all shares are equal.
func (m *Machine) handShare(now postdate.Now, c *channel) int {
	share := min(2*c.window, m.handMax(now, c), m.c.HandMax/2)
	if m.hand+m.coming >= m.c.HandMax/4*3 {
		share = max(m.c.HandMax/2/max(m.inHand, 1), 1)
	}
	if !c.site.proven {
		share = min(share, c.inFlight+m.unprovenRoom(c.site))
	}
	if c.limit != nil && c.limit.set.MaxInFlight > 0 {
		share = min(share, 2*c.limit.set.MaxInFlight)
	}
	return share
}

// unprovenRoom is how many more messages may be tried of a site that has not answered yet.
// All such sites of a broker may hold a quarter of the hand, and another quarter with one
// message each: so a site is tried at once beside thousands that never answer.
func (m *Machine) unprovenRoom(s *site) int {
	unproven := m.unproven[s.broker]
	if s.inFlight == 0 && unproven < m.c.HandMax/2 {
		return max(min(windowMin, m.c.HandMax/4-unproven), 1)
	}
	return max(min(windowMin-s.inFlight, m.c.HandMax/4-unproven), 0)
}

// room is how many messages, and bytes of payload, a call may bring, and of how many
// buckets: each may bring one payload of any size. It is half of what there is: a call that
// hangs leaves room for others.
func (m *Machine) room() (messages, bytes, buckets int) {
	messages, bytes = (m.c.HandMax-m.hand-m.coming)/2, (m.c.HandBytesMax-m.handBytes-m.comingBytes)/2
	return messages, bytes, min(messages, bytes/m.c.PayloadBytesMax)
}

// roomOfAny is how many messages a claim of any channel may bring: if they all are of one
// channel, no more of it is in doubt than may be.
func (m *Machine) roomOfAny() int { return max((m.c.DoubtMax/2-m.comingOfAny)/2, 1) }

// expect notes what a claim may bring, or with -1 that this is known.
func (m *Machine) expect(p *poll, sign int) {
	m.coming += sign * p.claim.Scan.Limit
	m.comingBytes += sign * p.claim.Scan.BytesMax
	m.expectOf(p.only, sign*p.counts)
	if p.only != nil {
		m.forget(p.only)
	}
}

// expectOf notes that n more messages may be claimed that are not in hand, of one channel,
// or with nil of any.
func (m *Machine) expectOf(c *channel, n int) {
	if c == nil {
		m.comingOfAny += n
		return
	}
	c.coming += n
	m.crowdIfMany(c)
}

// crowdMin is with how many messages that take its room a channel counts as crowded: then claims
// ask whether it has any. With fewer it has some, or what is read of it is parked.
func (c *Config) crowdMin() int { return max(min(windowMin, c.DoubtMax/4), 1) }

// crowdIfMany crowds a channel where many messages take its room.
func (m *Machine) crowdIfMany(c *channel) {
	if c.hand+c.dropped+c.coming >= m.c.crowdMin() {
		m.crowd(c)
	}
}

// crowd notes that a channel may have no room.
func (m *Machine) crowd(c *channel) {
	if !c.crowded {
		c.crowded = true
		m.crowded = append(m.crowded, c)
	}
}

// lookForFull lists in m.full the crowded channels that have no room, and first of them those
// that are overfull. It lets go of those that are not crowded any more. Until then a channel is
// remembered: so one that is busy keeps its window and its pace while a claim is under way.
func (m *Machine) lookForFull(now postdate.Now) {
	var full, overfull []*channel
	m.crowded = slices.DeleteFunc(m.crowded, func(c *channel) bool {
		switch {
		case c.hand+c.dropped <= m.handMax(now, c):
			c.overfullAt = 0
		case c.overfullAt == 0:
			c.overfullAt = now.Mono
		}
		switch {
		case m.roomOf(now, c) > 0:
			c.crowded = c.hand+c.dropped+c.coming >= m.c.crowdMin()
			m.forget(c)
		case c.overfull(now.Mono):
			overfull = append(overfull, c)
		default:
			full = append(full, c)
		}
		return !c.crowded
	})
	m.full, m.looked = append(overfull, full...), true
}

// stuckAfter is how long claims wait for less of a channel to be in doubt. What is in doubt for
// longer is stuck: a broker or a part of the store does not answer.
const stuckAfter = time.Second

// overfull says whether claims wait until less of a channel is in hand: what is beyond its room
// is about to be parked, if it is not stuck.
func (c *channel) overfull(now time.Duration) bool {
	return c.overfullAt != 0 && now < c.overfullAt+stuckAfter
}

// parkSurplus parks what is ready beyond a channel's room: parked it can be cancelled.
func (m *Machine) parkSurplus(now postdate.Now, c *channel) {
	most := m.waitMax(now, c)
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
	c.ready = c.ready[:most]
}

// pace is what a channel confirmed of late, second by second.
type pace struct {
	second time.Duration // the present one, counted from 0
	counts [10]int       // the present second's at second % 10
}

// add counts so many confirms.
func (p *pace) add(now time.Duration, n int) {
	p.roll(now)
	p.counts[p.second%10] += n
}

// best is how many there were in the best two seconds of the last ten.
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
