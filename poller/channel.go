package poller

import (
	"container/heap"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// channel is what the machine knows of one channel. A channel that takes nothing
// is down: its messages are parked in the store, where they cost nothing and can be
// cancelled, and one of them after the other is tried, ever more rarely, until
// one goes through.
type channel struct {
	name    postdate.Channel
	ready   []*Item // due, in order
	listed  bool    // is in Machine.ready
	batches int     // publishes in flight
	hand    int     // items in memory

	down     bool
	reason   string
	backoff  time.Duration
	probeAt  time.Duration // the next probe, while down
	probing  bool          // a probe is with the broker
	parkedIn []int         // buckets that may have messages parked for it, ascending

	limit     *limit // what an operator set of it, or nil
	inFlight  int    // messages with the broker
	lastError string // the broker's last words that were no confirm
}

func (m *Machine) channelOf(name postdate.Channel) *channel {
	c := m.channels[name]
	if c == nil {
		c = &channel{name: name, limit: m.limits[name]}
		m.channels[name] = c
	}
	return c
}

// forget drops a channel of which nothing is known but its name.
func (m *Machine) forget(c *channel) {
	if c.hand == 0 && len(c.parkedIn) == 0 {
		delete(m.channels, c.name)
	}
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

// handPerChannel is how much of the hand one channel may fill before its further
// messages are passed over.
func (m *Machine) handPerChannel() int {
	return max(m.c.HandMax/2/max(len(m.channels), 1), 64)
}

// congested lists the channels whose messages the next scans pass over.
func (m *Machine) congested() map[postdate.Channel]struct{} {
	var skip map[postdate.Channel]struct{}
	full := m.handPerChannel()
	for name, c := range m.channels {
		if c.hand >= full {
			if skip == nil {
				skip = map[postdate.Channel]struct{}{}
			}
			skip[name] = struct{}{}
		}
	}
	return skip
}

// resumable is a channel of which b has messages passed over, and which has room
// for them; the one that waits longest.
func (m *Machine) resumable(b *owned) postdate.Channel {
	var first postdate.Channel
	for name, at := range b.held {
		if c := m.channels[name]; c != nil && c.hand > m.handPerChannel()/2 {
			continue
		}
		if first == "" || at.Before(b.held[first]) || !b.held[first].Before(at) && name < first {
			first = name
		}
	}
	return first
}

// publish hands over what is ready, channel by channel.
func (m *Machine) publish(now postdate.Now) {
	if len(m.ready) == 0 || !m.leased(now) {
		return
	}
	channels := m.ready
	m.ready = nil
	for _, c := range channels {
		m.sift(now, c)
		m.expireReady(now, c)
		if c.down || c.paused() {
			m.probeAndPark(now, c)
		}
		for len(c.ready) > 0 && c.batches < m.c.BatchesMax && !c.down {
			n := c.allowed(now, min(len(c.ready), m.c.BatchMax))
			if n == 0 {
				break
			}
			m.send(now, c, n)
		}
		c.listed = len(c.ready) > 0
		if c.listed {
			m.ready = append(m.ready, c)
		} else {
			c.ready = nil
		}
	}
}

// sift takes out what was dropped, and what is not due any more because the wall
// clock was set back.
func (m *Machine) sift(now postdate.Now, c *channel) {
	c.ready = slices.DeleteFunc(c.ready, func(it *Item) bool {
		if it.stage == stageReady && it.due > now.Wall {
			it.stage = stageWaiting
			heap.Push(&m.waiting, it)
		}
		return it.stage != stageReady
	})
}

// expireReady ends what may not be published any more.
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
		m.settleAs(it, store.Settlement{How: store.SettleFailed, At: now.Wall, Attempts: it.rec.Attempts, Reason: reason})
		return true
	})
}

// probeAndPark sends one message to a channel that is down, if it is time, and
// parks the others.
func (m *Machine) probeAndPark(now postdate.Now, c *channel) {
	if len(c.ready) > 0 && !c.paused() && !c.probing && now.Mono >= c.probeAt {
		c.probing = true
		c.ready[0].probe = true
		m.send(now, c, 1)
	}
	for _, it := range c.ready {
		m.park(now, it)
	}
	c.ready = nil
}

func (m *Machine) send(now postdate.Now, c *channel, n int) {
	batch := slices.Clone(c.ready[:n])
	c.ready = c.ready[n:]
	c.batches++
	c.inFlight += n
	for _, it := range batch {
		if it.due > now.Wall || it.rec.ExecutionTime >= now.Wall {
			panic("poller: about to publish early: " + it.rec.ScheduleID)
		}
		it.stage = stagePublishing
	}
	m.emit(Publish{c.name, batch})
}

// published takes in what became of a batch.
func (m *Machine) published(now postdate.Now, ev Published) {
	c := ev.Batch[0].channel
	c.batches--
	c.inFlight -= len(ev.Batch)
	probe := ev.Batch[0].probe
	if probe {
		c.probing = false
	}
	for i, it := range ev.Batch {
		r := ev.Results[i]
		if r.Outcome != publisher.Confirmed {
			c.lastError = r.Reason
		}
		switch r.Outcome {
		case publisher.Confirmed:
			m.up(c)
			m.settleAs(it, store.Settlement{How: store.SettleDelivered, At: now.Wall, Attempts: it.Delivery.Attempt})
		case publisher.Refused:
			m.up(c)
			m.retry(now, it, r)
		case publisher.Down:
			m.goDown(now, c, r.Reason, probe)
			m.park(now, it)
		default: // whatever is not known is unknown
			if probe {
				m.goDown(now, c, r.Reason, true)
			}
			it.doubt = true
			m.retry(now, it, r)
		}
	}
}

// up notes that the channel's broker answers.
func (m *Machine) up(c *channel) {
	c.down, c.backoff, c.reason = false, 0, ""
}

// goDown notes that the channel takes nothing. The back-off grows with each probe
// that failed, not with each message.
func (m *Machine) goDown(now postdate.Now, c *channel, reason string, probe bool) {
	if c.down && !probe {
		return
	}
	c.down, c.reason = true, reason
	c.backoff = min(max(2*c.backoff, m.c.ProbeMin), m.c.ProbeMax)
	c.probeAt = now.Mono + c.backoff - time.Duration(m.random()*float64(c.backoff)/4)
}

// park lets a message wait in the store until its channel is back. That is no
// attempt. One that can expire waits for a time instead, to be looked at again.
func (m *Machine) park(now postdate.Now, it *Item) {
	s := store.Settlement{How: store.SettlePark, Attempts: it.rec.Attempts, Reason: it.channel.why()}
	if it.rec.ExpiresAt != 0 {
		s.How = store.SettleRetry
		s.AttemptTime = min(it.rec.ExpiresAt, now.Wall.Add(max(it.channel.backoff, m.c.Retry.MinBackoff)))
	}
	m.settleAs(it, s)
}

// parkedAt notes that a bucket has messages parked for c.
func (m *Machine) parkedAt(c *channel, bucket int) {
	if i, found := slices.BinarySearch(c.parkedIn, bucket); !found {
		c.parkedIn = slices.Insert(c.parkedIn, i, bucket)
	}
	if !slices.Contains(m.parked, c) {
		m.parked = append(m.parked, c)
	}
	for _, u := range m.unparks {
		u.more = u.more || u.of.Channel == c.name && u.of.Bucket == bucket
	}
}

// wakeAt is when the channel's parked messages are to be looked at again.
func (c *channel) wakeAt() time.Duration {
	if c.down {
		return c.probeAt
	}
	return 0
}

// unparking is an unpark that is under way.
type unparking struct {
	of   store.Unpark
	more bool // more was parked there since it began
}

// startUnpark makes parked messages due: all of them, by and by, where the
// channel is up, and one as a probe where it is down.
func (m *Machine) startUnpark(now postdate.Now) {
	for len(m.unparks) < m.c.UnparksMax && now.Mono >= m.nextUnpark && m.unparkNext(now) {
	}
}

// unparkNext starts one unpark of the channel whose turn it is, if there is need of one.
func (m *Machine) unparkNext(now postdate.Now) bool {
	for i, c := range m.parked {
		number, under := m.unparkIn(c)
		if number < 0 || c.paused() || now.Mono < c.wakeAt() || c.probing {
			continue
		}
		limit := m.c.UnparkMax
		if c.down {
			limit = 1
		}
		if c.down && c.hand+under > 0 {
			continue // one on its way will be the probe
		}
		if half := m.handPerChannel() / 2; c.hand > half || under > 0 && c.hand+under*limit > half {
			continue
		}
		b := m.buckets[number]
		m.parked = append(slices.Delete(m.parked, i, i+1), c) // the others' turn is next
		u := &unparking{of: store.Unpark{
			// A time of its own for each: what is read under it cannot be taken for
			// what was read before and parked again.
			Bucket: number, Token: b.hold.Token, Channel: c.name, At: max(b.claimed, b.unpark) + 1, Limit: limit,
		}}
		b.unpark = u.of.At
		m.unparks = append(m.unparks, u)
		m.emit(Unpark{u.of})
		return true
	}
	return false
}

// unparkIn is a bucket where the channel has parked messages and none are being
// unparked, or -1, and how many of its unparks are under way.
func (m *Machine) unparkIn(c *channel) (bucket, under int) {
	var busy []int
	for _, u := range m.unparks {
		if u.of.Channel == c.name {
			busy = append(busy, u.of.Bucket)
		}
	}
	for _, b := range c.parkedIn {
		if !slices.Contains(busy, b) {
			return b, len(busy)
		}
	}
	return -1, len(busy)
}

func (m *Machine) unparked(now postdate.Now, ev Unparked) {
	i := slices.IndexFunc(m.unparks, func(u *unparking) bool { return u.of == ev.Unpark })
	u := m.unparks[i]
	m.unparks = slices.Delete(m.unparks, i, i+1)
	c := m.channels[ev.Unpark.Channel]
	if ev.Err != nil {
		m.nextUnpark = now.Mono + m.c.RetryAfter
		return
	}
	if ev.Moved > 0 {
		m.nudge(ev.Unpark.Bucket, ev.Unpark.At)
	}
	if c != nil && ev.Moved < ev.Unpark.Limit && !u.more {
		m.unparkedAll(c, ev.Unpark.Bucket)
	}
}

// unparkedAll notes that a bucket has nothing parked for c any more.
func (m *Machine) unparkedAll(c *channel, bucket int) {
	if i, found := slices.BinarySearch(c.parkedIn, bucket); found {
		c.parkedIn = slices.Delete(c.parkedIn, i, i+1)
	}
	if len(c.parkedIn) == 0 {
		m.parked = slices.DeleteFunc(m.parked, func(o *channel) bool { return o == c })
		m.forget(c)
	}
}

// startFind asks which channels have parked messages: in buckets that are new
// here, and now and then in all of them, for memory must not hide what is stored.
func (m *Machine) startFind(now postdate.Now) {
	if m.finding || now.Mono < m.nextFind {
		return
	}
	if now.Mono >= m.findAllAt {
		m.findAllAt = now.Mono + m.c.FindEvery
		m.find = m.find[:0:0]
		for _, b := range m.order {
			m.find = append(m.find, b.hold.Bucket)
		}
	}
	if len(m.find) == 0 {
		return
	}
	m.finding = true
	m.emit(FindParked{m.find})
	m.find = nil
}

// parkedFound takes what earlier owners parked as down until a probe says more.
func (m *Machine) parkedFound(now postdate.Now, ev ParkedFound) {
	m.finding = false
	if ev.Err != nil {
		m.find = append(m.find, ev.Buckets...)
		m.nextFind = now.Mono + m.c.RetryAfter
		return
	}
	for _, f := range ev.Found {
		if m.buckets[f.Bucket] == nil {
			continue
		}
		c := m.channelOf(f.Channel)
		if c.hand == 0 && len(c.parkedIn) == 0 {
			m.goDown(now, c, "not tried since this node took the bucket", true)
			c.probeAt = now.Mono
		}
		m.parkedAt(c, f.Bucket)
	}
}
