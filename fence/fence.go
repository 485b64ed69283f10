// Package fence keeps the locks of buckets: it takes the buckets that this node should own,
// shows that the node is alive, notices when a bucket was taken away, and gives buckets back.
//
// It promises that a bucket is taken from another owner only after that owner's lease was seen
// to stand still for as long as the owner relies on it, measured on this node's own monotonic
// clock (wall clocks play no part), and that the token grows with every change of owner. It
// does not promise that only one node believes that it owns a bucket: the token in every claim
// settles that where it matters.
//
// A node whose wall clock is further from the store's than [Config.SkewMax] owns nothing: it
// gives up its buckets immediately, and takes none until the clocks agree.
//
// [Machine] is a pure step; node/machine combines it with the poller's. events.go has what it
// learns and wants, look.go what it reads, and watch.go how it judges other nodes.
package fence

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// LeaseMax is the longest lease time. A lease of unknown duration is watched for this long.
const LeaseMax = 5 * time.Minute

// Config holds the knobs of the locks.
type Config struct {
	Node  string // this node's name, for people
	Lease string // names this run of this node: no two runs share it

	LeaseTime  time.Duration // how long the own lease lasts; others may be set differently
	RenewEvery time.Duration // how often the own lease is renewed
	LookEvery  time.Duration // how often the leases are read, and the records that matter
	RetryAfter time.Duration // how long to wait after a store call failed
	SkewMax    time.Duration // how far the wall clock may be from the store's; 0: not compared

	// Exclusive means that no other process can have the store open. Every owner other than
	// this run is gone, and its lease need not be watched.
	Exclusive bool
}

// DefaultConfig returns the defaults for a run of a node.
func DefaultConfig(node, lease string) Config {
	return Config{
		Node: node, Lease: lease,
		LeaseTime: postdate.LeaseDefault, RenewEvery: 500 * time.Millisecond,
		LookEvery: 500 * time.Millisecond, RetryAfter: 100 * time.Millisecond,
		SkewMax: postdate.ClockSkewMaxDefault,
	}
}

// Validate returns an error if c is wrong. Looks may be further apart than other nodes' leases
// last: what those nodes leave behind is then taken later, never sooner.
func (c Config) Validate() error {
	switch {
	case c.Node == "" || c.Lease == "":
		return postdate.E(postdate.KindInvalid, "a node needs a name and a lease id")
	case c.RenewEvery <= 0 || c.LookEvery <= 0 || c.RetryAfter <= 0:
		return postdate.E(postdate.KindInvalid, "the intervals of the lease must be positive")
	case c.SkewMax < 0:
		return postdate.E(postdate.KindInvalid, "the bound of the clock's skew is negative")
	case c.LeaseTime > LeaseMax:
		return postdate.E(postdate.KindInvalid, "the lease time %s is too long: it must be at most %s",
			c.LeaseTime, LeaseMax)
	case c.LeaseTime < 3*c.LookEvery:
		return postdate.E(postdate.KindInvalid, "the lease time %s is too short: it must be at least three looks of %s",
			c.LeaseTime, c.LookEvery)
	case c.LeaseTime < 3*c.RenewEvery:
		return postdate.E(postdate.KindInvalid,
			"the lease time %s is too short: it must be at least three renewals of %s", c.LeaseTime, c.RenewEvery)
	}
	return nil
}

// held is a bucket that this node owns.
type held struct {
	token    uint64
	draining bool // Drain was asked for
	lost     bool // nobody here works on it any more: Lost was said
}

// Machine decides. Step must not be called concurrently.
type Machine struct {
	c       Config
	want    map[int]bool
	held    map[int]*held
	drained map[int]bool   // buckets that are held and may be given back
	gave    map[int]uint64 // the last token under which each bucket was given back
	// buckets that are not held and may hang on the own lease: by the token before that
	// acquisition
	loose     map[int]uint64
	named     map[int]bool // those that are held and that the next look reads: a hint named them, or a release failed
	watch     watch
	ahead     time.Duration // of the wall clock before the store's, where that is too much; 0: it is not
	renewals  uint64
	until     time.Duration // end of the own lease
	lapses    int           // how often it ran out before it was renewed
	setAt     time.Duration // when the wall clock was last set, until a renewal that began later; 0: it was not
	slept     time.Duration // how much time now may have missed since that renewal
	nextRenew time.Duration
	nextLook  time.Duration
	nextCheck time.Duration // when a look reads what is held, too
	nextGive  time.Duration

	renewing, looking, taking, giving bool // a store call is under way
	takeLapses                        int  // lapses when the present acquisition began
	hinted                            bool // look again when the present look ends
}

// NewMachine makes a machine that owns nothing and wants nothing.
func NewMachine(c Config) *Machine {
	return &Machine{
		c: c, want: map[int]bool{}, held: map[int]*held{}, drained: map[int]bool{}, gave: map[int]uint64{},
		loose: map[int]uint64{}, named: map[int]bool{},
		watch: watch{own: c.LeaseTime},
	}
}

// Step takes in one event at a time on the monotonic clock, and returns what to do.
func (m *Machine) Step(now time.Duration, ev Event) []Effect {
	var out []Effect
	switch ev := ev.(type) {
	case Tick:
	case Want:
		out = m.wanted(now, ev.Buckets)
	case Hint:
		for _, b := range ev.Buckets {
			m.named[b] = m.held[b] != nil
		}
		m.lookNow(now)
	case Freed:
		if m.misses() {
			m.lookNow(now)
		}
	case Saw:
		out = m.saw(now, ev)
	case Renewed:
		out = m.renewed(now, ev)
	case Took:
		out = m.took(now, ev)
	case GaveBack:
		m.gaveBack(now, ev)
	case Fenced:
		out = m.lose(ev.Holds)
	case Drained:
		for _, hold := range ev.Holds {
			if h := m.held[hold.Bucket]; h != nil && h.token == hold.Token {
				m.drained[hold.Bucket] = true
			}
		}
	case ClockSet:
		m.setAt, m.nextRenew = now, now
		m.slept += max(ev.By, 0)
	}
	return append(out, m.due(now)...)
}

// Wake is the next time at which Step must be called with a Tick. What waits for an
// answer asks for no wake-up.
func (m *Machine) Wake() time.Duration {
	wake := m.nextLook
	if !m.renewing {
		wake = min(wake, m.nextRenew)
	}
	if !m.giving && len(m.drained) > 0 {
		wake = min(wake, m.nextGive)
	}
	return wake
}

// Overdue reports whether a renewal or a look is due that no step has started. Its cost does
// not depend on how many buckets are held.
func (m *Machine) Overdue(now time.Duration) bool {
	return !m.renewing && now >= m.nextRenew || now >= m.nextLook
}

// Held says how many buckets are owned at present.
func (m *Machine) Held() int { return len(m.held) }

// Buckets lists the buckets that are owned and worked on, by number.
func (m *Machine) Buckets() (buckets []int) {
	for _, hold := range m.holds(func(h *held) bool { return !h.lost }) {
		buckets = append(buckets, hold.Bucket)
	}
	return buckets
}

// Ahead is how far the wall clock is ahead of the store's (negative: behind) if that is too
// much, else 0.
func (m *Machine) Ahead() time.Duration { return m.ahead }

// Until is the end of this node's lease, on the monotonic clock.
func (m *Machine) Until() time.Duration { return m.until }

// due starts the store calls whose time has come, one of each kind at a time.
func (m *Machine) due(now time.Duration) (out []Effect) {
	if !m.renewing && now >= m.nextRenew {
		m.renewing, m.nextRenew = true, now+m.c.RenewEvery
		m.renewals++
		out = append(out, Renew{bucket.Lease{ID: m.c.Lease, Renewals: m.renewals, Lasts: m.c.LeaseTime}})
	}
	if !m.looking && now >= m.nextLook && now < m.until {
		m.looking = true
		out = append(out, Look{m.records(now)})
	}
	if now >= m.nextLook {
		m.nextLook = now + m.c.LookEvery
	}
	if !m.giving && now >= m.nextGive && len(m.drained) > 0 {
		m.giving = true
		var holds []store.Hold
		for b := range m.drained {
			holds = append(holds, store.Hold{Bucket: b, Token: m.held[b].token})
		}
		out = append(out, GiveBack{byNumber(holds)})
	}
	return out
}

// wanted takes the new share. Buckets that are no longer wanted are drained first.
func (m *Machine) wanted(now time.Duration, buckets []int) (out []Effect) {
	m.want = make(map[int]bool, len(buckets))
	for _, b := range buckets {
		m.want[b] = true
	}
	var drain []store.Hold
	for _, hold := range m.holds(func(h *held) bool { return !h.draining && !h.lost }) {
		if !m.want[hold.Bucket] {
			m.held[hold.Bucket].draining = true
			drain = append(drain, hold)
		}
	}
	m.lookNow(now)
	if len(drain) > 0 {
		out = append(out, Drain{drain})
	}
	return out
}

// renewed extends this node's lease, counting from when the renewal began: no watcher can have
// seen it earlier.
func (m *Machine) renewed(now time.Duration, ev Renewed) []Effect {
	m.renewing = false
	if ev.Err != nil {
		m.nextRenew = min(m.nextRenew, now+m.c.RetryAfter)
		return nil
	}
	out := m.compareClocks(ev)
	if m.until == 0 {
		m.nextLook = now
	} else if now+m.slept >= m.until-m.c.LeaseTime/5 && !m.c.Exclusive {
		out = append(out, m.lapse(now)...)
	}
	if ev.Began.Mono >= m.setAt {
		m.setAt, m.slept = 0, 0
	} else {
		m.nextRenew = now // it began before the clock was set, and says nothing of it
	}
	m.until = max(m.until, ev.Began.Mono+m.c.LeaseTime)
	return append(out, LeaseUntil{m.until, ev.Began})
}

// lapse gives up everything because the lease ran out, or nearly did, before it was renewed, or
// may have done so while the machine slept. Somebody may have seen it stand still for long
// enough, and a request for the buckets may be on its way. That request names the present
// tokens, so buckets that are taken anew, under new tokens, are safe from it.
func (m *Machine) lapse(now time.Duration) []Effect {
	m.lapses++
	m.slept = 0
	m.lookNow(now)
	return m.lose(m.holds(func(h *held) bool { return !h.lost }))
}

// compareClocks gives up everything if the wall clock is too far off, because by it the node
// may publish too early. What it leaves behind is in doubt for the next owners.
func (m *Machine) compareClocks(ev Renewed) (out []Effect) {
	if ev.Store == 0 {
		return nil // the store has no clock but the node's
	}
	ahead := skew(ev)
	if m.c.SkewMax == 0 || max(ahead, -ahead) <= m.c.SkewMax {
		ahead = 0
	}
	switch {
	case ahead != 0 && m.ahead == 0:
		out = append(out, Skewed{ahead})
		lost := m.holds(func(h *held) bool { return !h.lost })
		for _, hold := range lost {
			m.drained[hold.Bucket], m.held[hold.Bucket].lost = true, true
		}
		if len(lost) > 0 {
			out = append(out, Lost{lost})
		}
	case ahead == 0 && m.ahead != 0:
		out = append(out, Skewed{0})
	}
	m.ahead = ahead
	return out
}

// skew is the least that the wall clock can be ahead of the store's (negative: behind).
func skew(ev Renewed) time.Duration {
	switch {
	case ev.Began.Wall > ev.Store:
		return ev.Began.Wall.Sub(ev.Store)
	case ev.WallEnded < ev.Store:
		return ev.WallEnded.Sub(ev.Store)
	}
	return 0
}

// saw compares the records with what is held, and takes what is wanted and free.
func (m *Machine) saw(now time.Duration, ev Saw) (out []Effect) {
	m.looking = false
	if m.hinted {
		m.hinted, m.nextLook = false, now
	} else if ev.Err == nil {
		clear(m.named)
	}
	if ev.Err != nil {
		m.nextLook = min(m.nextLook, now+m.c.RetryAfter)
		return nil
	}
	m.watch.look(now, ev)
	out = append(out, Alive{m.watch.alive(ev)})
	var lost []store.Hold
	var wants []store.Acquisition
	for _, p := range ev.Partitions {
		m.resolve(p)
		h := m.held[p.Bucket]
		switch {
		case h != nil && h.token < p.Token:
			lost = append(lost, store.Hold{Bucket: p.Bucket, Token: h.token})
		case h != nil || m.taking:
		case p.Lease == m.c.Lease && p.Owner != "" && p.Token > m.gave[p.Bucket]:
			// An acquisition with an unknown outcome went through, or the lease lapsed. The
			// bucket is taken anew, under a new token, or goes back.
			if m.want[p.Bucket] && m.ahead == 0 {
				wants = append(wants, m.acquisition(p))
			} else {
				m.handBack(p)
			}
		case !m.want[p.Bucket] || m.ahead != 0:
		case p.Owner == "" || m.c.Exclusive || m.watch.stoodStill(ev.Began, p.Lease):
			wants = append(wants, m.acquisition(p))
		}
	}
	out = append(out, m.lose(lost)...)
	if len(wants) > 0 && now < m.until {
		m.taking, m.takeLapses = true, m.lapses
		for _, w := range wants {
			m.loose[w.Bucket] = w.SeenToken
		}
		out = append(out, Take{wants})
	}
	return out
}

func (m *Machine) acquisition(p bucket.Partition) store.Acquisition {
	return store.Acquisition{Bucket: p.Bucket, SeenToken: p.Token, Owner: m.c.Node, Lease: m.c.Lease}
}

func (m *Machine) took(now time.Duration, ev Took) (out []Effect) {
	m.taking = false
	m.nextLook = min(m.nextLook, now+m.c.RetryAfter) // somebody may have been quicker, or the outcome is unknown
	if m.takeLapses != m.lapses {
		m.lookNow(now) // what was taken is to be taken anew
		return nil
	}
	var gained []bucket.Partition
	for _, r := range ev.Results {
		switch {
		case !r.OK:
		case m.ahead != 0: // it turned out meanwhile: it goes back as it is
			m.handBack(r.Partition)
		default:
			m.hold(r.Partition.Bucket, &held{token: r.Partition.Token})
			gained = append(gained, r.Partition)
		}
	}
	if len(gained) == 0 {
		return nil
	}
	out = append(out, Gained{gained})
	var drain []store.Hold
	for _, p := range gained { // the share may have changed meanwhile
		if h := m.held[p.Bucket]; !m.want[p.Bucket] {
			h.draining = true
			drain = append(drain, store.Hold{Bucket: p.Bucket, Token: h.token})
		}
	}
	if len(drain) > 0 {
		out = append(out, Drain{drain})
	}
	return out
}

func (m *Machine) gaveBack(now time.Duration, ev GaveBack) {
	m.giving = false
	if ev.Err != nil {
		m.nextGive = now + m.c.RetryAfter
		m.nextLook = min(m.nextLook, m.nextGive)
		for _, hold := range ev.Holds {
			m.named[hold.Bucket] = true
		}
		return
	}
	for _, hold := range ev.Holds {
		m.gave[hold.Bucket] = max(m.gave[hold.Bucket], hold.Token)
		if h := m.held[hold.Bucket]; h != nil && h.token == hold.Token {
			m.drop(hold.Bucket)
		}
		if m.want[hold.Bucket] {
			m.lookNow(now) // it was wanted again while it was on its way out
		}
	}
}

// lose forgets buckets that another node has, or that may still hang on this node's lease.
func (m *Machine) lose(holds []store.Hold) []Effect {
	var lost []store.Hold
	for _, hold := range holds {
		h := m.held[hold.Bucket]
		if h == nil || h.token != hold.Token {
			continue
		}
		m.drop(hold.Bucket)
		m.loose[hold.Bucket] = max(m.loose[hold.Bucket], hold.Token-1)
		if !h.lost {
			lost = append(lost, hold)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return []Effect{Lost{lost}}
}

// holds lists the held buckets for which yes is true, by number.
func (m *Machine) holds(yes func(h *held) bool) (holds []store.Hold) {
	for b, h := range m.held {
		if yes(h) {
			holds = append(holds, store.Hold{Bucket: b, Token: h.token})
		}
	}
	return byNumber(holds)
}

func byNumber(holds []store.Hold) []store.Hold {
	slices.SortFunc(holds, func(a, b store.Hold) int { return a.Bucket - b.Bucket })
	return holds
}
