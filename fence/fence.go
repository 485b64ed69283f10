// Package fence keeps the locks of buckets: it takes the buckets that this node
// should own, shows that the node is alive, notices when a bucket was taken
// away, and gives buckets back.
//
// It promises that a bucket is taken from another owner only after that owner's
// lease was seen to stand still for the whole lease time on this node's own
// monotonic clock (no wall clock is ever compared), and that the token grows with
// every change of owner. What it does not promise is that only one node believes
// that it owns a bucket: that is settled where it matters, by the token in every
// claim.
//
// What decides is [Machine], a pure step; what acts is [Keeper].
package fence

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Config are the knobs of the locks.
type Config struct {
	Node  string // this node's name, for people
	Lease string // names this run of this node: no two runs share it

	LeaseTime  time.Duration // how long a lease must be seen to stand still
	RenewEvery time.Duration // how often the own lease is renewed
	LookEvery  time.Duration // how often the records are read
	RetryAfter time.Duration // how long to wait after a store call failed

	// Exclusive: no other process can have the store open, so every owner
	// that is not this run is gone, and its lease need not be watched.
	Exclusive bool
}

// DefaultConfig is a Config for a node and a run of it.
func DefaultConfig(node, lease string) Config {
	return Config{
		Node: node, Lease: lease,
		LeaseTime: 3 * time.Second, RenewEvery: 750 * time.Millisecond,
		LookEvery: time.Second, RetryAfter: 200 * time.Millisecond,
	}
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	switch {
	case c.Node == "" || c.Lease == "":
		return postdate.E(postdate.KindInvalid, "a node needs a name and a lease id")
	case c.RenewEvery <= 0 || c.LookEvery <= 0 || c.RetryAfter <= 0:
		return postdate.E(postdate.KindInvalid, "the intervals of the lease must be positive")
	case c.LeaseTime < 3*c.RenewEvery:
		return postdate.E(postdate.KindInvalid, "the lease time %s is too short: it must be at least three renewals of %s", c.LeaseTime, c.RenewEvery)
	}
	return nil
}

// An Event is something that the machine learns.
type Event interface{ event() }

// The events.
type (
	// Tick says only that time has passed.
	Tick struct{}
	// Want names the buckets that this node should own, all of them.
	Want struct{ Buckets []int }
	// Saw is what was read from the store, or why it could not be.
	Saw struct {
		Partitions []bucket.Partition
		Leases     []bucket.Lease
		Err        error
	}
	// Renewed says how the renewal that began at Began ended.
	Renewed struct {
		Began time.Duration
		Err   error
	}
	// Took says how an acquisition ended.
	Took struct {
		Results []store.Acquired
		Err     error
	}
	// GaveBack says how a release ended.
	GaveBack struct {
		Holds []store.Hold
		Err   error
	}
	// Fenced says that a claim under this token was refused.
	Fenced struct{ Hold store.Hold }
	// Drained says that nothing of the bucket is in flight any more.
	Drained struct{ Hold store.Hold }
)

func (Tick) event()     {}
func (Want) event()     {}
func (Saw) event()      {}
func (Renewed) event()  {}
func (Took) event()     {}
func (GaveBack) event() {}
func (Fenced) event()   {}
func (Drained) event()  {}

// An Effect is something that the machine wants done.
type Effect interface{ effect() }

// The effects. Look, Renew, Take and GiveBack are answered by an event each.
type (
	// Look asks for the partition records and leases.
	Look struct{}
	// Renew asks for the own lease to be written.
	Renew struct{ Lease bucket.Lease }
	// Take asks for buckets.
	Take struct{ Wants []store.Acquisition }
	// GiveBack releases buckets.
	GiveBack struct{ Holds []store.Hold }
	// Gained says that these buckets are owned from now on.
	Gained struct{ Partitions []bucket.Partition }
	// Lost says that this bucket is not owned any more.
	Lost struct{ Hold store.Hold }
	// Drain asks for what is in flight to be finished, so that the bucket can
	// be given back.
	Drain struct{ Hold store.Hold }
	// LeaseUntil says up to when, on the monotonic clock, nobody else can
	// have taken a bucket of this node.
	LeaseUntil struct{ Mono time.Duration }
)

func (Look) effect()       {}
func (Renew) effect()      {}
func (Take) effect()       {}
func (GiveBack) effect()   {}
func (Gained) effect()     {}
func (Lost) effect()       {}
func (Drain) effect()      {}
func (LeaseUntil) effect() {}

// held is a bucket that this node owns.
type held struct {
	token    uint64
	draining bool // Drain was asked for
	drained  bool // may be given back
}

// sighting is another run's lease as it was first seen in its present state.
type sighting struct {
	renewals uint64
	since    time.Duration
}

// Machine decides. Step must not be called concurrently.
type Machine struct {
	c         Config
	want      map[int]bool
	held      map[int]*held
	seen      map[string]sighting
	renewals  uint64
	until     time.Duration // end of the own lease
	nextRenew time.Duration
	nextLook  time.Duration
	nextGive  time.Duration

	renewing, looking, taking, giving bool // a store call is under way
}

// NewMachine makes a machine that owns nothing and wants nothing.
func NewMachine(c Config) *Machine {
	return &Machine{c: c, want: map[int]bool{}, held: map[int]*held{}, seen: map[string]sighting{}}
}

// Step takes in one event at a time on the monotonic clock, and says what to do.
func (m *Machine) Step(now time.Duration, ev Event) []Effect {
	var out []Effect
	switch ev := ev.(type) {
	case Tick:
	case Want:
		out = m.wanted(now, ev.Buckets)
	case Saw:
		out = m.saw(now, ev)
	case Renewed:
		out = m.renewed(now, ev)
	case Took:
		out = m.took(now, ev)
	case GaveBack:
		m.gaveBack(now, ev)
	case Fenced:
		out = m.lose(ev.Hold)
	case Drained:
		if h := m.held[ev.Hold.Bucket]; h != nil && h.token == ev.Hold.Token {
			h.drained = true
		}
	}
	return append(out, m.due(now)...)
}

// Wake is the next time at which Step must be called with a Tick.
func (m *Machine) Wake() time.Duration { return min(m.nextRenew, m.nextLook) }

// Held says how many buckets are owned at present.
func (m *Machine) Held() int { return len(m.held) }

// due starts the store calls whose time has come, one of each sort at a time.
func (m *Machine) due(now time.Duration) (out []Effect) {
	if !m.renewing && now >= m.nextRenew {
		m.renewing, m.nextRenew = true, now+m.c.RenewEvery
		m.renewals++
		out = append(out, Renew{bucket.Lease{ID: m.c.Lease, Renewals: m.renewals}})
	}
	if !m.looking && now >= m.nextLook && now < m.until {
		m.looking = true
		out = append(out, Look{})
	}
	if now >= m.nextLook {
		m.nextLook = now + m.c.LookEvery
	}
	if holds := m.drained(); !m.giving && now >= m.nextGive && len(holds) > 0 {
		m.giving = true
		out = append(out, GiveBack{holds})
	}
	return out
}

func (m *Machine) drained() (holds []store.Hold) {
	for b, h := range m.held {
		if h.drained {
			holds = append(holds, store.Hold{Bucket: b, Token: h.token})
		}
	}
	slices.SortFunc(holds, func(a, b store.Hold) int { return a.Bucket - b.Bucket })
	return holds
}

// wanted takes the new share. What is not wanted any more is drained first.
func (m *Machine) wanted(now time.Duration, buckets []int) (out []Effect) {
	m.want = make(map[int]bool, len(buckets))
	for _, b := range buckets {
		m.want[b] = true
	}
	for b, h := range m.held {
		if !m.want[b] && !h.draining {
			h.draining = true
			out = append(out, Drain{store.Hold{Bucket: b, Token: h.token}})
		}
	}
	slices.SortFunc(out, func(a, b Effect) int { return a.(Drain).Hold.Bucket - b.(Drain).Hold.Bucket })
	m.nextLook = now
	return out
}

// renewed extends the own lease from the moment at which the renewal began: a
// watcher can have seen it no earlier.
func (m *Machine) renewed(now time.Duration, ev Renewed) []Effect {
	m.renewing = false
	if ev.Err != nil {
		m.nextRenew = min(m.nextRenew, now+m.c.RetryAfter)
		return nil
	}
	first := m.until == 0
	m.until = max(m.until, ev.Began+m.c.LeaseTime)
	if first {
		m.nextLook = now
	}
	return []Effect{LeaseUntil{m.until}}
}

// saw compares the records with what is held, and takes what is wanted and free.
func (m *Machine) saw(now time.Duration, ev Saw) (out []Effect) {
	m.looking = false
	if ev.Err != nil {
		m.nextLook = min(m.nextLook, now+m.c.RetryAfter)
		return nil
	}
	m.watch(now, ev)
	var wants []store.Acquisition
	var gained []bucket.Partition
	for _, p := range ev.Partitions {
		h := m.held[p.Bucket]
		switch {
		case h != nil && h.token < p.Token:
			out = append(out, m.lose(store.Hold{Bucket: p.Bucket, Token: h.token})...)
		case h != nil || !m.want[p.Bucket] || m.taking:
		case p.Lease == m.c.Lease && p.Owner != "":
			// An acquisition whose outcome was unknown went through.
			m.held[p.Bucket] = &held{token: p.Token}
			gained = append(gained, p)
		case m.free(now, p):
			wants = append(wants, store.Acquisition{Bucket: p.Bucket, SeenToken: p.Token, Owner: m.c.Node, Lease: m.c.Lease})
		}
	}
	if len(gained) > 0 {
		out = append(out, Gained{gained})
	}
	if len(wants) > 0 && now < m.until {
		m.taking = true
		out = append(out, Take{wants})
	}
	return out
}

// watch notes since when each lease has stood still.
func (m *Machine) watch(now time.Duration, ev Saw) {
	renewals := make(map[string]uint64, len(ev.Leases))
	for _, l := range ev.Leases {
		renewals[l.ID] = l.Renewals
	}
	seen := make(map[string]sighting, len(m.seen))
	for _, p := range ev.Partitions {
		if p.Lease == "" {
			continue
		}
		s, known := m.seen[p.Lease]
		if !known || s.renewals != renewals[p.Lease] {
			s = sighting{renewals: renewals[p.Lease], since: now}
		}
		seen[p.Lease] = s
	}
	m.seen = seen
}

// free says whether the bucket may be taken.
func (m *Machine) free(now time.Duration, p bucket.Partition) bool {
	if p.Owner == "" || m.c.Exclusive {
		return true
	}
	return now-m.seen[p.Lease].since >= m.c.LeaseTime
}

func (m *Machine) took(now time.Duration, ev Took) []Effect {
	m.taking = false
	if ev.Err != nil {
		m.nextLook = min(m.nextLook, now+m.c.RetryAfter) // looking tells what went through
		return nil
	}
	var gained []bucket.Partition
	for _, r := range ev.Results {
		if r.OK {
			m.held[r.Partition.Bucket] = &held{token: r.Partition.Token}
			gained = append(gained, r.Partition)
		}
	}
	if len(gained) == 0 {
		return nil
	}
	return []Effect{Gained{gained}}
}

func (m *Machine) gaveBack(now time.Duration, ev GaveBack) {
	m.giving = false
	if ev.Err != nil {
		m.nextGive = now + m.c.RetryAfter
		m.nextLook = min(m.nextLook, m.nextGive)
		return
	}
	for _, hold := range ev.Holds {
		if h := m.held[hold.Bucket]; h != nil && h.token == hold.Token {
			delete(m.held, hold.Bucket)
		}
	}
}

// lose forgets a bucket that somebody else has.
func (m *Machine) lose(hold store.Hold) []Effect {
	h := m.held[hold.Bucket]
	if h == nil || h.token != hold.Token {
		return nil
	}
	delete(m.held, hold.Bucket)
	return []Effect{Lost{hold}}
}
