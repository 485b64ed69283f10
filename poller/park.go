package poller

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Parked messages come back through unparks. If a site is up, one unpark follows another as
// long as its channels have room; if it is down, one message is brought back as a probe, or more
// where those that came back are early. Both take the channels of the site in turn, and the
// buckets of each channel in turn. Buckets that may be out of reach are tried separately: those
// in which an unpark failed, and those that were set apart since their last successful unpark.

const (
	// probesPerSecond is the node's budget of probes, however many sites are down.
	probesPerSecond = 100
	// looksMax is how many channels and buckets are looked at for one unpark.
	looksMax = 64
	// lookOn is the pause before the next looksMax are looked at.
	lookOn = 20 * time.Millisecond
	// lookAgain is the pause before another look at a site whose parked messages cannot come
	// back yet, unless the broker, the store or an operator gives a reason to look earlier.
	lookAgain = time.Second
	// claimedAhead is how far ahead of this node's clock another node may have claimed: by
	// default each clock may be a second off. Unparked messages wait for no more than that.
	claimedAhead = 2 * time.Second
	// hangMax is how many unparks of a site that is down may hang: half of a node's.
	hangMax = 4
)

// parking is what is known about a site's messages that are parked in the store.
type parking struct {
	parked rotation[*channel] // channels that may have some
	queue  *siteHeap          // its tenant's returns or probes; nil: nothing is parked
	place  int                // in queue
	lookAt time.Duration      // when to see whether some can come back
	turn   uint64             // of two at the same time, whose turn is first

	onWayUntil time.Duration // while down: no other one is brought back until then
	brings     int           // how many the next probe brings back
}

// siteHeap orders sites with parked messages by when to look at them, so that the cost of a
// step depends on what is due and not on how many wait.
type siteHeap []*site

func (h siteHeap) Len() int { return len(h) }

func (h siteHeap) Less(i, j int) bool { return h[i].lookedAtBefore(h[j]) }

func (s *site) lookedAtBefore(o *site) bool {
	return cmp.Or(cmp.Compare(s.lookAt, o.lookAt), cmp.Compare(s.turn, o.turn)) < 0
}

func (h siteHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *siteHeap) Push(x any) {
	x.(*site).place = len(*h)
	*h = append(*h, x.(*site))
}

// Pop implements heap.Interface.
func (h *siteHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// queueFor schedules the next look at a site that has messages parked.
func (m *Machine) queueFor(s *site, at time.Duration) {
	m.turns++
	s.lookAt, s.turn = at, m.turns
	queue := &s.tenant.returns
	if s.down {
		queue = &s.tenant.probes
	}
	if s.queue == queue {
		heap.Fix(queue, s.place)
		return
	}
	m.unqueue(s)
	heap.Push(queue, s)
	s.queue = queue
}

func (m *Machine) unqueue(s *site) {
	if s.queue != nil {
		heap.Remove(s.queue, s.place)
		s.queue = nil
	}
}

// lookSoon schedules a look at a site's parked messages as soon as it makes sense.
func (m *Machine) lookSoon(s *site) {
	switch {
	case s.parked.len() == 0:
	case s.down:
		m.queueFor(s, max(s.probeAt, s.onWayUntil))
	case s.queue != &s.tenant.returns || s.lookAt > m.stepped.Mono: // else it keeps its turn
		m.queueFor(s, m.stepped.Mono)
	}
}

// noteParked notes that a bucket has messages parked for c.
func (m *Machine) noteParked(c *channel, b *owned) {
	c.parkedIn.add(b)
	b.parkedFor.add(c)
	c.site.parked.add(c)
	m.lookSoon(c.site)
	for _, u := range m.unparks {
		u.more = u.more || u.bucket == b && u.of.Route == c.route
	}
}

// unparkedAll notes that a bucket has no more messages parked for c.
func (m *Machine) unparkedAll(c *channel, b *owned) {
	c.parkedIn.remove(b)
	b.parkedFor.remove(c)
	if c.parkedIn.len() > 0 {
		return
	}
	if c.site.parked.remove(c); c.site.parked.len() == 0 {
		m.unqueue(c.site)
	}
	m.forget(c)
}

// unparking is an unpark that is under way.
type unparking struct {
	of     store.Unpark
	bucket *owned
	more   bool // more was parked there since it began
	probe  bool // it took a place in the budget of probes
	tells  bool // what is early for it is not due yet
	retry  bool // it is to show whether unparks go through again in its bucket
}

// startUnparks makes parked messages due.
func (m *Machine) startUnparks(now postdate.Now) {
	if now.Mono < m.unparksFrom() || !m.leased(now) {
		return
	}
	if !m.retried { // one after the other, where places are few
		m.retryUnparks(now)
	}
	for len(m.unparks) < m.c.UnparksMax {
		switch s := m.nextLook(now); {
		case s == nil:
			m.retryUnparks(now)
			return
		case s.down:
			m.queueFor(s, m.probe(now, s))
		default:
			m.queueFor(s, m.unpark(now, s))
		}
	}
}

// unparksFrom is the time from which on unparks may begin: there is a pause after many failures
// in a row.
func (m *Machine) unparksFrom() time.Duration {
	if m.unparksFailed < m.c.UnparksMax {
		return 0
	}
	return m.unparkFailedAt + m.c.RetryAfter
}

// retryUnparks tries the buckets that may be out of reach, in turn. It unparks one message
// each, so a call that hangs takes little room, and uses half of the places at most.
func (m *Machine) retryUnparks(now postdate.Now) {
	if now.Mono < m.nextRetry || m.retries.len() == 0 {
		return
	}
	looks := looksMax
	for m.mayRetry() {
		var c *channel
		b, found := m.retries.next(&looks, func(b *owned) (can bool) {
			c, can = m.retryIn(b, &looks)
			return can
		})
		if !found {
			m.nextRetry = now.Mono + m.c.RetryAfter // not with each step
			return
		}
		m.startOne(now, &unparking{retry: true}, c, b, 1)
	}
}

func (m *Machine) mayRetry() bool {
	under := 0
	for _, u := range m.unparks {
		if u.retry {
			under++
		}
	}
	return len(m.unparks) < m.c.UnparksMax && under < max(m.c.UnparksMax/2, 1)
}

// retryIn is the channel whose unpark is to show whether unparks in a bucket go through.
func (m *Machine) retryIn(b *owned, looks *int) (*channel, bool) {
	if slices.ContainsFunc(m.unparks, func(u *unparking) bool { return u.retry && u.bucket == b }) {
		return nil, false
	}
	return b.parkedFor.next(looks, func(c *channel) bool { return !c.paused() && m.mayUnpark(c, b) })
}

// mayUnpark reports whether messages of a channel may be brought back in a bucket. Only one
// call does so at a time, because two may choose the same messages.
func (m *Machine) mayUnpark(c *channel, b *owned) bool {
	return b.worksFor(c) && !slices.ContainsFunc(m.unparks,
		func(u *unparking) bool { return u.bucket == b && u.of.Route == c.route })
}

// unparkIn is the next bucket in which messages of a channel can be brought back. Buckets that
// may be out of reach are left to retryUnparks.
func (m *Machine) unparkIn(c *channel, looks *int) (*owned, bool) {
	return c.parkedIn.next(looks, func(b *owned) bool {
		if b.lane != m.common && !b.unparks {
			m.retries.add(b)
		}
		return !m.retries.has(b) && m.mayUnpark(c, b)
	})
}

// unpark starts one unpark for a site that is up, if some of its messages can come back now,
// and returns when to look again.
func (m *Machine) unpark(now postdate.Now, s *site) (again time.Duration) {
	looks := looksMax
	again = now.Mono + lookAgain
	var b *owned
	c, found := s.parked.next(&looks, func(c *channel) (can bool) {
		if at := c.roomAt(now.Mono); at != 0 {
			again = min(again, at)
		}
		if c.paused() || !m.hasRoom(now, c) {
			return false
		}
		if !m.mayReturn(c) {
			again = min(again, now.Mono+lookOn)
			return false
		}
		b, can = m.unparkIn(c, &looks)
		return can
	})
	switch {
	case found:
		// several at a time, each in a bucket of its own
		m.startOne(now, &unparking{}, c, b, min(m.c.UnparkMax, max(m.roomOf(now, c)/2, 1)))
		return now.Mono // after the others
	case looks <= 0:
		return now.Mono + lookOn
	}
	return again
}

// probe brings back one message of a site that is down, and returns when to look again. If that
// hangs, another channel or bucket is tried. If all that came back is early, because it was parked
// while a clock ran ahead, twice as many follow at once: thousands may lie before one that is due.
func (m *Machine) probe(now postdate.Now, s *site) (again time.Duration) {
	under := 0
	for _, u := range m.unparks {
		if !u.retry && m.channels[u.of.Route].site == s {
			under++
		}
	}
	if s.probing || under >= hangMax {
		return now.Mono + lookAgain
	}
	c, b, more := m.probeIn(s, func(b *owned) bool { return b.lane == m.common })
	if c == nil { // better one that is not read at once than none
		c, b, more = m.probeIn(s, func(*owned) bool { return true })
	}
	switch {
	case c != nil:
		m.startOne(now, &unparking{}, c, b, min(s.brings, m.c.UnparkMax, max(m.roomOf(now, c)/2, 1)))
		s.onWayUntil = now.Mono + callSlow
		return s.onWayUntil
	case more:
		return now.Mono + lookOn
	}
	return now.Mono + lookAgain
}

// probeIn is the next channel of a site, and one of its buckets, in which a message can be
// brought back as a probe. c is nil if none was found; more says that not all were looked at.
func (m *Machine) probeIn(s *site, fits func(*owned) bool) (c *channel, b *owned, more bool) {
	looks := looksMax
	c, _ = s.parked.next(&looks, func(c *channel) (can bool) {
		if !c.paused() && c.hand == c.settling+c.looks { // else one is on its way
			b, can = m.unparkIn(c, &looks)
		}
		return can && fits(b)
	})
	return c, b, looks <= 0
}

// startOne starts an unpark of a channel in a bucket.
func (m *Machine) startOne(now postdate.Now, u *unparking, c *channel, b *owned, limit int) {
	b.unparkAt = m.unparkTime(now, c, b)
	u.tells = b.unparkAt > b.inherited.Checkpoint // else what became due since then is early, too
	u.of = store.Unpark{Bucket: b.hold.Bucket, Token: b.hold.Token, Route: c.route, At: b.unparkAt, Limit: limit}
	u.bucket, m.retried = b, u.retry
	if u.probe = c.site.down; u.probe {
		m.budgetAt = max(m.budgetAt, now.Mono) + time.Second/probesPerSecond
	}
	m.expectOf(c, limit)
	m.unparks = append(m.unparks, u)
	m.turns++
	c.site.tenant.unparks++
	c.site.tenant.turn = m.turns
	m.emit(Unpark{u.of})
}

// unparkTime is the attempt time for unparked messages. Each unpark has its own, beyond what is
// claimed, so that a message read under it cannot be mistaken for one that was read earlier and
// parked again. If the wall clock was set back, that time may lie far ahead. Then messages are
// due immediately and count as claimed, but not as left in doubt by earlier owners.
func (m *Machine) unparkTime(now postdate.Now, c *channel, b *owned) postdate.Time {
	at, ahead := max(b.read.Time, b.record.Claimed.Time, b.unparkAt)+1, now.Wall.Add(m.c.Ahead)
	switch {
	case at <= ahead.Add(claimedAhead):
		return at
	// 0: nothing lies before it
	case b.inherited.Checkpoint > 0 && b.inherited.InDoubt(c.route, bucket.Position{Time: ahead}):
		return b.inherited.Checkpoint
	}
	return ahead
}

func (m *Machine) unparked(now postdate.Now, ev Unparked) {
	i := slices.IndexFunc(m.unparks, func(u *unparking) bool { return u.of == ev.Unpark })
	u := m.unparks[i]
	m.unparks = slices.Delete(m.unparks, i, i+1)
	c, b := m.channels[ev.Unpark.Route], u.bucket
	c.site.tenant.unparks--
	m.expectOf(c, -ev.Unpark.Limit)
	if u.probe && ev.Moved == 0 { // nothing is tried
		m.budgetAt -= time.Second / probesPerSecond
	}
	c.site.onWayUntil = now.Mono // after the others
	switch {
	case b.lost: // whatever it says is not of its next owner
	case ev.Err != nil:
		m.unparksFailed++
		m.unparkFailedAt = now.Mono
		if u.retry || m.retries.len() == 0 {
			m.nextRetry = now.Mono + m.c.RetryAfter
		}
		m.retries.add(b)
	default:
		m.unparksFailed = 0
		m.retries.remove(b)
		b.unparks = true
		if ev.Moved > 0 {
			m.nudge(ev.Unpark.Bucket, spanSince(ev.Unpark.At))
			if u.tells && ev.Early == ev.Moved {
				c.site.brings = min(2*c.site.brings, m.c.UnparkMax)
			} else {
				c.site.brings = 1
				c.site.onWayUntil += m.c.ProbeMin
			}
		}
		if ev.Moved < ev.Unpark.Limit && !u.more {
			m.unparkedAll(c, b)
		}
	}
	m.lookSoon(c.site)
	m.forget(c)
}
