package poller

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// probesPerSecond is the node's budget of probes: dead sites, however many, cost no
// more than that.
const probesPerSecond = 100

// lookAgain is when a channel whose parked messages cannot come back now is looked at
// again, where nothing tells before: an answer of the broker or the store, or an operator.
const lookAgain = time.Second

// parking is what is known of a channel's messages that wait in the store.
type parking struct {
	parkedIn map[int]*owned // buckets that may have some, by number
	lookAt   time.Duration  // when to see whether some can come back
	turn     uint64         // of two at the same time, whose turn is first
	inParked int            // 1 + its place in Machine.parked; 0: it is not there
}

// parkingHeap orders the channels with parked messages by when to look at them, so that
// a step costs what is due and not how many wait.
type parkingHeap []*channel

func (h parkingHeap) Len() int { return len(h) }

func (h parkingHeap) Less(i, j int) bool { return h[i].lookedAtBefore(h[j]) }

func (c *channel) lookedAtBefore(o *channel) bool {
	return cmp.Or(cmp.Compare(c.lookAt, o.lookAt), cmp.Compare(c.turn, o.turn)) < 0
}

func (h parkingHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].inParked, h[j].inParked = i+1, j+1
}

// Push implements heap.Interface.
func (h *parkingHeap) Push(x any) {
	*h = append(*h, x.(*channel))
	x.(*channel).inParked = len(*h)
}

// Pop implements heap.Interface.
func (h *parkingHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	last.inParked = 0
	return last
}

// lookAt has the messages of a channel that has some parked looked at, at a time.
func (m *Machine) lookAt(c *channel, at time.Duration) {
	m.turns++
	c.lookAt, c.turn = at, m.turns
	if c.inParked > 0 {
		heap.Fix(&m.parked, c.inParked-1)
	} else {
		heap.Push(&m.parked, c)
	}
}

// lookSoon has a channel's parked messages looked at as soon as it makes sense.
func (m *Machine) lookSoon(c *channel) {
	if len(c.parkedIn) > 0 {
		m.lookAt(c, c.wakeAt())
	}
}

// wakeAt is when the channel's parked messages are to be looked at again.
func (c *channel) wakeAt() time.Duration {
	if c.site.down {
		return c.site.probeAt
	}
	return 0
}

// noteParked notes that a bucket has messages parked for c.
func (m *Machine) noteParked(c *channel, b *owned) {
	if c.parkedIn == nil {
		c.parkedIn = map[int]*owned{}
	}
	c.parkedIn[b.hold.Bucket] = b
	b.parkedFor[c] = struct{}{}
	if c.inParked == 0 {
		m.lookSoon(c)
	}
	for _, u := range m.unparks {
		u.more = u.more || u.of.Channel == c.name && u.of.Bucket == b.hold.Bucket
	}
}

// unparkedAll notes that a bucket has nothing parked for c any more.
func (m *Machine) unparkedAll(c *channel, b *owned) {
	delete(b.parkedFor, c)
	if c.parkedIn[b.hold.Bucket] == b {
		delete(c.parkedIn, b.hold.Bucket)
	}
	if len(c.parkedIn) > 0 {
		return
	}
	if c.inParked > 0 {
		heap.Remove(&m.parked, c.inParked-1)
	}
	if c.site.prober == c {
		c.site.prober = nil
	}
	m.forget(c)
}

// unparking is an unpark that is under way.
type unparking struct {
	of    store.Unpark
	more  bool // more was parked there since it began
	retry bool // it is to show whether unparks go through again in its bucket
}

// startUnpark makes parked messages due: all of them, by and by, where the
// channel is up, and one as a probe where its site is down.
func (m *Machine) startUnpark(now postdate.Now) {
	if now.Mono < m.unparksFrom() {
		return
	}
	for len(m.unparks) < m.c.UnparksMax && len(m.parked) > 0 && m.parked[0].lookAt <= now.Mono {
		c := m.parked[0]
		m.lookAt(c, m.unpark(now, c))
	}
	m.retryUnparks(now) // last: what is in reach does not wait for it
}

// unparksFrom is from when on unparks may begin: after many that failed, and none that went
// through, there is a pause.
func (m *Machine) unparksFrom() time.Duration {
	if m.unparksFailed < m.c.UnparksMax {
		return 0
	}
	return m.unparkFailedAt + m.c.RetryAfter
}

// retryUnparks tries again where an unpark failed, in one bucket after the other and with one
// message, which takes little room of its channel while it hangs.
func (m *Machine) retryUnparks(now postdate.Now) {
	if now.Mono < m.nextRetry || len(m.retries) == 0 {
		return
	}
	for range len(m.retries) {
		if !m.mayUnparkLast() {
			return
		}
		b := m.retries[0]
		m.retries = m.retries[1:]
		switch c := b.retryFor(); {
		case b.lost || !b.unparkFailed: // or one has gone through meanwhile
		case c == nil:
			m.retries = append(m.retries, b)
		default:
			m.startOne(&unparking{retry: true}, c, b, 1)
		}
	}
	m.nextRetry = now.Mono + m.c.RetryAfter // not with each step
}

// mayUnparkLast says whether an unpark may begin in a bucket that may be out of reach: one
// that is apart, or where one failed. Such buckets have half of the places at most.
func (m *Machine) mayUnparkLast() bool {
	under := 0
	for _, u := range m.unparks {
		if b := m.buckets[u.of.Bucket]; u.retry || b != nil && b.lane != m.common {
			under++
		}
	}
	return len(m.unparks) < m.c.UnparksMax && under < max(m.c.UnparksMax/2, 1)
}

// retryFor is the channel of which a message is unparked to see whether that goes through in
// the bucket; nil: there is none now.
func (b *owned) retryFor() (first *channel) {
	for c := range b.parkedFor {
		if !c.paused() && b.worksFor(c) && (first == nil || c.name < first.name) {
			first = c
		}
	}
	return first
}

// unpark starts one unpark of a channel, if some of its messages can come back now, and
// says when to look again.
func (m *Machine) unpark(now postdate.Now, c *channel) time.Duration {
	number, under := m.unparkIn(c)
	limit := min(m.c.UnparkMax, max(m.roomOf(now, c)/2, 1)) // several at a time, each in a bucket of its own
	switch {
	case number < 0 || c.paused():
		if c.site.prober == c {
			c.site.prober = nil
			m.passOn(now, c.site)
		}
		return now.Mono + lookAgain
	case now.Mono < c.wakeAt():
		return c.wakeAt()
	case c.site.down && c.site.prober != nil && c.site.prober != c:
		return now.Mono + m.c.ProbeMax // that one tries for all of the site, if it still can
	case c.site.prober == c && now.Mono < c.site.placeAt:
		return c.site.placeAt
	case c.site.down && (c.site.probing || c.unsent()+c.inFlight+under > 0):
		return now.Mono + lookAgain // one on its way is the probe
	case c.site.down && c.site.prober == nil && m.probeAt > now.Mono: // it gets the next free place
		c.site.prober, c.site.placeAt = c, m.probeAt
		m.probeAt += time.Second / probesPerSecond
		return c.site.placeAt
	case c.site.down:
		m.probeAt = max(m.probeAt, now.Mono+time.Second/probesPerSecond)
		c.site.prober = nil
		limit = 1
	case !m.hasRoom(now, c):
		if at := c.roomAt(now.Mono); at != 0 {
			return at
		}
		return now.Mono + lookAgain
	}
	m.startOne(&unparking{}, c, m.buckets[number], limit)
	return now.Mono // after the others
}

// passOn has another channel of a site looked at now, for one that was to try for it cannot: of
// those that can the one that would be looked at first.
func (m *Machine) passOn(now postdate.Now, s *site) {
	var next *channel
	for c := range s.channels {
		if number, _ := m.unparkIn(c); number >= 0 && !c.paused() && (next == nil || c.lookedAtBefore(next)) {
			next = c
		}
	}
	if next != nil {
		m.lookAt(next, now.Mono)
	}
}

// startOne starts an unpark of a channel in a bucket.
func (m *Machine) startOne(u *unparking, c *channel, b *owned, limit int) {
	// A time of its own for each: what is read under it cannot be taken for what was read
	// before and parked again.
	b.unparkAt = max(b.read.Time, b.record.Claimed.Time, b.unparkAt) + 1
	u.of = store.Unpark{Bucket: b.hold.Bucket, Token: b.hold.Token, Channel: c.name, At: b.unparkAt, Limit: limit}
	c.coming += limit
	m.unparks = append(m.unparks, u)
	m.emit(Unpark{u.of})
}

// unparkIn is a bucket where the channel has parked messages and none are being unparked, or
// -1, and how many of its unparks are under way, but for retries. Buckets that are apart come
// last; those where an unpark failed have their turn in retryUnparks.
func (m *Machine) unparkIn(c *channel) (bucket, under int) {
	var busy []int
	for _, u := range m.unparks {
		if u.of.Channel == c.name {
			busy = append(busy, u.of.Bucket)
			if !u.retry {
				under++
			}
		}
	}
	bucket, last := -1, -1
	for number, b := range c.parkedIn {
		switch {
		case b.unparkFailed || !b.worksFor(c) || slices.Contains(busy, number):
		case b.lane == m.common && (bucket < 0 || number < bucket):
			bucket = number
		case b.lane != m.common && (last < 0 || number < last):
			last = number
		}
	}
	if bucket < 0 && m.mayUnparkLast() {
		bucket = last
	}
	return bucket, under
}

func (m *Machine) unparked(now postdate.Now, ev Unparked) {
	i := slices.IndexFunc(m.unparks, func(u *unparking) bool { return u.of == ev.Unpark })
	u := m.unparks[i]
	m.unparks = slices.Delete(m.unparks, i, i+1)
	c, b := m.channels[ev.Unpark.Channel], m.buckets[ev.Unpark.Bucket]
	c.coming -= ev.Unpark.Limit
	switch {
	case b == nil: // it was lost meanwhile
	case ev.Err != nil:
		m.unparkFailedAt, m.nextRetry = now.Mono, now.Mono+m.c.RetryAfter
		m.unparksFailed++
		b.unparkFailed = true
		if !slices.Contains(m.retries, b) {
			m.retries = append(m.retries, b)
		}
		if !u.retry {
			m.passOn(now, c.site)
		}
	default:
		m.unparksFailed = 0
		b.unparkFailed = false
		if ev.Moved > 0 {
			m.nudge(ev.Unpark.Bucket, ev.Unpark.At)
		}
		if ev.Moved < ev.Unpark.Limit && !u.more {
			m.unparkedAll(c, b)
		}
	}
	m.lookSoon(c)
	m.forget(c)
}

// startFind asks which channels have parked messages: in buckets that are new here, and now
// and then in all, for memory must not hide what is stored. A bucket that is out of reach
// fails the call for all that are asked about with it. So buckets that are apart wait until
// they have joined the others; and those of a call that failed are asked about after the
// others: those first that failed first, about an eighth as many at a time as failed last.
func (m *Machine) startFind(now postdate.Now) {
	if m.finding || now.Mono < m.nextFind {
		return
	}
	if now.Mono >= m.findAllAt {
		m.findAllAt = now.Mono + m.c.FindEvery
		m.find = slices.Sorted(maps.Keys(m.buckets))
	}
	if len(m.find) == 0 {
		return
	}
	var find, failed, later []int
	for _, number := range m.find {
		switch b := m.buckets[number]; {
		case b == nil: // it was lost meanwhile
		case b.lane != m.common:
			later = append(later, number)
		case b.findFailedAt != 0:
			failed = append(failed, number)
		default:
			find = append(find, number)
		}
	}
	if len(find) == 0 {
		slices.SortFunc(failed, func(a, b int) int {
			return cmp.Or(cmp.Compare(m.buckets[a].findFailedAt, m.buckets[b].findFailedAt), cmp.Compare(a, b))
		})
		some := min(len(failed), m.findMax)
		find, failed = failed[:some], failed[some:]
	}
	m.find = append(later, failed...)
	if len(find) == 0 {
		m.nextFind = now.Mono + m.c.RetryAfter // not with each step
		return
	}
	m.finding = true
	m.emit(FindParked{find})
}

// parkedFound takes what earlier owners parked as down until a probe says more. A call that
// failed may have found something before.
func (m *Machine) parkedFound(now postdate.Now, ev ParkedFound) {
	m.finding = false
	failedAt := time.Duration(0)
	if ev.Err != nil {
		failedAt = now.Mono
		m.find = append(m.find, ev.Buckets...)
		m.findMax, m.nextFind = max(len(ev.Buckets)/8, 1), now.Mono+m.c.RetryAfter
	}
	for _, number := range ev.Buckets {
		if b := m.buckets[number]; b != nil {
			b.findFailedAt = failedAt
		}
	}
	for _, f := range ev.Found {
		b := m.buckets[f.Bucket]
		if b == nil {
			continue
		}
		c := m.channelOf(f.Channel)
		if len(c.site.channels) == 1 && c.hand == c.looks && len(c.parkedIn) == 0 && !c.site.down {
			m.goDown(now, c.site, "not tried since this node took the bucket", true)
			c.site.probeAt, c.site.tried = now.Mono, false
		}
		m.noteParked(c, b)
	}
}
