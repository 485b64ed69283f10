package poller

import (
	"maps"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// What is in hand of a channel cannot be cancelled, and is in doubt after a crash. So no
// more of it is taken than goes out soon. Once a channel has no room, claims leave it
// behind: what is due of it stays unclaimed in the store, and comes when there is room
// again. What was read beyond that is parked.

// behindMax and behindBytesMax bound how many channels a bucket's record names as behind,
// and how many bytes their names take. What is read of further ones is parked.
const (
	behindMax      = 16
	behindBytesMax = 4 << 10
)

// lagging is what is known of a channel's messages that are due and not claimed.
type lagging struct {
	behindIn []*owned // buckets whose records say that it is behind, in turn
	coming   int      // messages that claims and unparks of it alone may bring
	crowded  bool     // is in Machine.crowded
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

// roomOf is how many more messages of a channel may come into the hand.
func (m *Machine) roomOf(now postdate.Now, c *channel) int {
	return min(m.waitMax(now, c)-(c.unsent()-c.inFlight), m.handMax(now, c)-c.hand) - c.coming
}

// waitMax is how many messages of a channel may be in hand and not with its broker.
func (m *Machine) waitMax(now postdate.Now, c *channel) int {
	return max(min(m.share(now, c)-c.inFlight, c.limited(now.Mono)), 0)
}

// handMax is how many messages of a channel may be in hand: as many as may be claimed and
// not settled, less the half of DoubtMax that is kept for claims of any channel.
func (m *Machine) handMax(now postdate.Now, c *channel) int {
	return max(m.c.DoubtMax, c.pace.best(now.Mono)) - m.c.DoubtMax/2
}

// share is how much of the hand a channel may fill: what its broker may have, and as much
// again. So what is stuck leaves room, however many channels there are. Where the hand
// is almost full all the same, shares are equal.
func (m *Machine) share(now postdate.Now, c *channel) int {
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

// hasRoom says whether it is worth a call to fetch messages of a channel: not before half
// of what may wait has gone out.
func (m *Machine) hasRoom(now postdate.Now, c *channel) bool {
	return m.roomOf(now, c) >= max(m.waitMax(now, c)/2, 1)
}

// crowdMin is from how many messages in hand on a channel is looked at before each claim:
// below that it has room, or what is read of it is parked. It is never the first one: that
// is counted apart.
func (c *Config) crowdMin() int { return max(min(windowMin, c.DoubtMax/4), 2) }

// crowd notes that a channel may have no room.
func (m *Machine) crowd(c *channel) {
	if !c.crowded {
		c.crowded = true
		m.crowded = append(m.crowded, c)
	}
}

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
	} else {
		c.coming += n
	}
}

// unheard stands for claims of a bucket that had no answer and may have been written.
type unheard struct {
	only *channel // of one channel; nil: of any
	n    int      // messages that they may have claimed and that nothing has returned since
}

// unheardOf is how many messages of one channel, or with nil of any, claims without an
// answer may have claimed.
func (b *owned) unheardOf(c *channel) (n int) {
	for _, u := range b.unheard {
		if u.only == c {
			n = u.n
		}
	}
	return n
}

// countUnheard counts what claims without an answer may have claimed in b, or with -1 counts
// it no more: to ask for the same again needs no room.
func (m *Machine) countUnheard(b *owned, sign int) {
	for _, u := range b.unheard {
		m.expectOf(u.only, sign*u.n)
	}
}

// forgetUnheard lowers, once more is known, what each of b's claims without an answer counts
// for: to what left says, and with 0 it is forgotten.
func (m *Machine) forgetUnheard(b *owned, left func(unheard) int) {
	before := b.unheard
	m.countUnheard(b, -1)
	b.unheard = nil
	for _, u := range before {
		if u.n = left(u); u.n > 0 {
			b.unheard = append(b.unheard, u)
		}
	}
	m.countUnheard(b, 1)
	for _, u := range before {
		if u.only != nil {
			m.forget(u.only)
		}
	}
}

// heard takes in what the answer to a claim says of those before it that had none. Each
// claim says anew how far a channel that is behind is claimed. How far the others are is
// known once the record has come as far as those claims; until then what is read counts no
// more.
func (m *Machine) heard(p *poll, r *store.ClaimResult) {
	b := p.bucket
	known := r.To == (bucket.Position{}) || !b.record.Claimed.Before(b.unsure)
	m.forgetUnheard(b, func(u unheard) int {
		switch {
		case known || u.only != nil:
			return 0
		case p.kind == scanOn:
			return u.n - len(r.Due)
		}
		return u.n
	})
}

// full lists the channels that have no room, and lets go of those that are not crowded any
// more.
func (m *Machine) full(now postdate.Now) (full []*channel) {
	m.crowded = slices.DeleteFunc(m.crowded, func(c *channel) bool {
		if m.roomOf(now, c) <= 0 {
			full = append(full, c)
			return false
		}
		c.crowded = c.hand >= m.c.crowdMin()
		m.forget(c)
		return !c.crowded
	})
	return full
}

// leaveBehind is what a claim of any channel leaves behind: what is behind already, and
// what has no room.
func (b *owned) leaveBehind(full []*channel) map[postdate.Channel]bucket.Position {
	if len(full) == 0 {
		return b.record.Behind
	}
	behind, bytes := maps.Clone(b.record.Behind), 0
	if behind == nil {
		behind = map[postdate.Channel]bucket.Position{}
	}
	for name := range behind {
		bytes += len(name)
	}
	for _, c := range full {
		if _, is := behind[c.name]; !is && len(behind) < behindMax && bytes+len(c.name) <= behindBytesMax {
			behind[c.name] = b.record.Claimed
			bytes += len(c.name)
		}
	}
	return behind
}

// beUnsure notes that a claim of which nothing is known may have been written. The
// channels that it left behind stay behind until the record, as it is known, has come as
// far: a claim that does not name them would claim of them as far as that one went.
func (m *Machine) beUnsure(p *poll) {
	b := p.bucket
	// All claims without an answer began at the same place, so the largest counts. One message
	// of each bucket is free, so that many that fail leave room for the others.
	n := max(b.unheardOf(p.only), p.claim.Scan.Limit-1)
	m.forgetUnheard(b, func(u unheard) int {
		if u.only == p.only {
			return 0
		}
		return u.n
	})
	b.unheard = append(b.unheard, unheard{p.only, n})
	m.expectOf(p.only, n)
	b.unsure = b.unsure.Latest(p.claim.To)
	for name := range p.claim.Behind {
		if _, is := b.record.Behind[name]; !is {
			b.stayBehind(name, b.record.Claimed)
		}
	}
	m.noteBehind(b)
}

// keepBehind keeps behind the channels that a claim left behind and that the record names no
// more: they have come up to what is known to be claimed, but an earlier claim without an
// answer may have moved claimed further.
func (b *owned) keepBehind(p *poll) {
	for name, to := range p.claim.Behind {
		if p.only != nil && p.only.name == name {
			to = to.Latest(p.claim.To)
		}
		if _, is := b.record.Behind[name]; !is {
			b.stayBehind(name, to)
		}
	}
}

// stayBehind keeps a channel behind, though it is claimed as far as is known.
func (b *owned) stayBehind(name postdate.Channel, to bucket.Position) {
	b.record.Behind = maps.Clone(b.record.Behind)
	if b.record.Behind == nil {
		b.record.Behind = map[postdate.Channel]bucket.Position{}
	}
	b.record.Behind[name] = to
}

// noteBehind notes which channels a bucket's record says to be behind.
func (m *Machine) noteBehind(b *owned) {
	if len(b.record.Behind) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(b.record.Behind)) {
		if _, noted := b.behind[name]; noted {
			continue
		}
		c := m.channelOf(name)
		if len(c.behindIn) == 0 {
			m.behind = append(m.behind, c)
		}
		c.behindIn = append(c.behindIn, b)
		b.behind[name] = struct{}{}
	}
}

// catchingUp takes up to most buckets of the common lane in which channels are behind that
// have room now, each channel's in turn.
func (m *Machine) catchingUp(now postdate.Now, most int) (all []*owned) {
	m.behind = slices.DeleteFunc(m.behind, func(c *channel) bool {
		if len(all) >= most || !m.hasRoom(now, c) {
			return false
		}
		for range min(len(c.behindIn), m.roomOf(now, c)) {
			b := c.behindIn[0]
			c.behindIn = c.behindIn[1:]
			if _, behind := b.record.Behind[c.name]; !behind {
				delete(b.behind, c.name)
				continue
			}
			if !b.polling && b.lane == m.common && len(all) < most {
				all = append(all, b)
			}
			c.behindIn = append(c.behindIn, b)
		}
		if len(c.behindIn) > 0 {
			return false
		}
		c.behindIn = nil
		m.forget(c)
		return true
	})
	return all
}

// forgetBehind takes a bucket that was lost out of those in which channels are behind.
func (m *Machine) forgetBehind(b *owned) {
	for name := range b.behind {
		c := m.channels[name]
		c.behindIn = slices.DeleteFunc(c.behindIn, func(o *owned) bool { return o == b })
		if len(c.behindIn) == 0 {
			m.behind = slices.DeleteFunc(m.behind, func(o *channel) bool { return o == c })
			m.forget(c)
		}
	}
}

// catchUp makes p a scan of a channel that is behind in b and has room, if there is one;
// of several each gets its turn. Where messages of it are parked as well, chance says which
// come first.
func (m *Machine) catchUp(now postdate.Now, b *owned, p *poll) bool {
	to := p.claim.To.Earliest(b.record.Claimed)
	names := slices.Sorted(maps.Keys(b.record.Behind))
	for i := range names {
		c := m.channels[names[(b.turn/scanTurns+i)%len(names)]]
		at := b.record.Behind[c.name]
		// After the wall clock was set back, to moves with it: wait for a whole Gather, and do
		// not claim each millisecond by itself.
		near := to != b.record.Claimed && to.Time-at.Time < postdate.Time(m.c.Gather.Milliseconds())
		switch {
		case !at.Before(to), near, !m.hasRoom(now, c):
		case len(c.parkedIn) > 0 && !c.paused() && m.random() < 0.5:
		default:
			p.kind, p.only, p.claim.Scan.After, p.claim.To = scanBehind, c, at, to
			return true
		}
	}
	return false
}

// parkSurplus parks what is ready beyond a channel's share: there it can be cancelled.
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
