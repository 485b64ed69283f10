// Package poller decides when messages go out and what becomes of them: it runs the cycle of
// claim, read, publish and settle for the buckets that a node owns.
//
// It promises, for a store and publishers that keep their contracts:
//
//   - No message is published before its execution time by the node's clock, before the claim
//     that covers it is durable, or after the node's lease has run out. If the lease is renewed
//     after that, the message is claimed anew. When the wall clock is set, the lease ends until
//     a renewal has checked the clock.
//   - Every message that is published and not settled lies between its bucket's checkpoint and
//     the position up to which its channel is claimed, so a crash leaves exactly that range in
//     doubt. [Config.DoubtMax] bounds how many messages of one channel are claimed and not
//     settled, however many are due.
//   - If a publish of a message may have arrived, the message is published again only with the
//     mark of a possible duplicate. A store that delivers and settles in one step
//     ([Config.Delivers]) takes each message once, so what is PENDING there is in no doubt.
//   - A channel that is slow or down delays only its own messages, and [Config] bounds what is
//     in memory, however much is stored.
//   - What is in memory only adds work: a sweep from the very first message finds whatever was
//     missed.
//   - Each occurrence of a series is begun, or skipped as its rule says, and the one that follows
//     depends on nothing but the one before. One that is tried again holds up no other.
//
// Here a channel is a tenant's part of a channel at one priority, as a route names it; an outlet is all of
// its priorities. What [Config] and the promises bound per channel is bounded per outlet.
//
// [Machine] is a pure step over events and clock readings; node/machine combines it with the
// fence's. Its files follow a message's way: agenda.go (which buckets are due), lane.go
// (claims, and which buckets share a call), scan.go (read), hand.go (wait for the time),
// channel.go (publish), settle.go. The others are side paths: room.go (how much of a channel is
// taken at a time), outlet.go (priorities of a channel), tenant.go (what tenants share by weight),
// late.go (what turns up behind what is read), behind.go (channels that are claimed less far than others),
// unheard.go (claims without an answer), limit.go (pauses and rates), wait.go (how long a message waits for
// its channel), find.go and park.go (parked messages and probes), series.go (recurring messages), leave.go
// (buckets that are handed over).
package poller

import (
	"cmp"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// Config holds the knobs of the cycle.
type Config struct {
	// Ahead is how far a claim runs ahead of now, so that messages are in hand when their time
	// comes. A message can be cancelled until it is claimed.
	Ahead time.Duration
	// Gather is how much of Ahead may be spent waiting for more buckets to join a claim call:
	// the call is made when something is due within Ahead less Gather.
	Gather time.Duration
	// SettleGather is how long settlements may wait to be written together: each write waits
	// for the disk.
	SettleGather time.Duration
	// SweepEvery is how often each bucket is read from its very first message.
	SweepEvery time.Duration
	// FindEvery is how often the store is asked for parked messages.
	FindEvery time.Duration
	// RetryAfter is how long to wait after a store call failed.
	RetryAfter time.Duration
	// DrainMax is how long a hand-over waits for publishers that have not answered, and
	// DrainStep is how long its bucket may rest meanwhile.
	DrainMax, DrainStep time.Duration
	// LeaseMargin: publishing stops this long before the end of the lease.
	LeaseMargin time.Duration
	// JumpMax is how far the wall clock may be set, against the monotonic one, between two
	// renewals of the lease. After a larger jump the lease counts as ended.
	JumpMax time.Duration

	HandMax int // messages in memory
	// DoubtMax is how many messages of one channel may be claimed and not settled, or as many
	// as it confirmed in its best two seconds of the last ten if that is more. A crash leaves
	// these in doubt. Half of it is reserved for claims of any channel, so it is at least 2.
	DoubtMax     int
	HandBytesMax int // of payloads and headers in memory
	// PayloadBytesMax is the largest payload. Each bucket read may bring one of that size.
	PayloadBytesMax int
	PageMax         int // messages per bucket and claim
	BatchMax        int // messages per publish
	BatchesMax      int // publishes in flight per channel and priority
	SettleMax       int // messages per settle
	UnparkMax       int // messages per unpark
	UnparksMax      int // unparks under way

	// ProbeMin and ProbeMax bound the back-off between probes of a channel that
	// is down.
	ProbeMin, ProbeMax time.Duration
	// ParkMin is the shortest time after which a parked message that waits for an operator, a
	// limit or room is looked at: each look needs a write.
	ParkMin time.Duration

	Node  string               // this one, for the log of attempts
	Retry postdate.RetryPolicy // for what a message's own policy leaves open

	// Delivers: the store is a [store.Deliverer], so messages to inboxes are settled where they are appended.
	Delivers bool

	// Fits says whether a tenant may have one more message pending, with so many bytes of payload: an
	// occurrence of a series that is to be retried becomes one. nil: always.
	Fits func(tenant string, payloadBytes int) bool
}

// DefaultConfig holds the defaults.
func DefaultConfig() Config {
	return Config{
		Ahead: 40 * time.Millisecond, Gather: 20 * time.Millisecond, SettleGather: 5 * time.Millisecond,
		SweepEvery: 2 * time.Second, FindEvery: 10 * time.Second, RetryAfter: 100 * time.Millisecond,
		DrainMax: 5 * time.Second, DrainStep: 500 * time.Millisecond,
		LeaseMargin: 500 * time.Millisecond, JumpMax: 100 * time.Millisecond,
		HandMax: 16_384, HandBytesMax: 64 << 20, PayloadBytesMax: postdate.PayloadBytesMax, DoubtMax: 1_000,
		PageMax: 512, BatchMax: 500, BatchesMax: 16, SettleMax: 2_048, UnparkMax: 256, UnparksMax: 8,
		ProbeMin: 250 * time.Millisecond, ProbeMax: 10 * time.Second, ParkMin: time.Minute,
		Retry: postdate.RetryDefault,
	}
}

// Validate returns an error for the first setting that is too small, if there is one.
func (c Config) Validate() error {
	return cmp.Or(
		atLeast("Gather", c.Gather, 0), atLeast("Ahead", c.Ahead, c.Gather+1),
		atLeast("SettleGather", c.SettleGather, 0),
		atLeast("SweepEvery", c.SweepEvery, 1), atLeast("FindEvery", c.FindEvery, 1),
		atLeast("RetryAfter", c.RetryAfter, 1),
		atLeast("DrainStep", c.DrainStep, 1), atLeast("DrainMax", c.DrainMax, c.DrainStep),
		atLeast("LeaseMargin", c.LeaseMargin, 1), atLeast("JumpMax", c.JumpMax, 1),
		atLeast("HandMax", c.HandMax, 8), atLeast("DoubtMax", c.DoubtMax, 2),
		atLeast("PayloadBytesMax", c.PayloadBytesMax, 1), atLeast("HandBytesMax", c.HandBytesMax, 4*c.PayloadBytesMax),
		atLeast("PageMax", c.PageMax, 1), atLeast("BatchMax", c.BatchMax, 1), atLeast("BatchesMax", c.BatchesMax, 1),
		atLeast("SettleMax", c.SettleMax, 1), atLeast("UnparkMax", c.UnparkMax, 1),
		atLeast("UnparksMax", c.UnparksMax, 1),
		atLeast("ProbeMin", c.ProbeMin, 1), atLeast("ProbeMax", c.ProbeMax, c.ProbeMin),
		atLeast("ParkMin", c.ParkMin, 1),
		atLeast("Retry.MaxAttempts", c.Retry.MaxAttempts, 1), atLeast("Retry.MinBackoff", c.Retry.MinBackoff, 1),
		atLeast("Retry.MaxBackoff", c.Retry.MaxBackoff, c.Retry.MinBackoff),
		atLeast("Retry.MaxParked", c.Retry.MaxParked, 1),
	)
}

func atLeast[T int | time.Duration](setting string, is, least T) error {
	if is < least {
		return postdate.E(postdate.KindInvalid, "the poller's %s is %v: it must be at least %v", setting, is, least)
	}
	return nil
}

// An Event is something that the machine learns.
type Event = fence.Event

// The events, in addition to [fence.Tick], [fence.Gained], [fence.Lost], [fence.Drain], which
// fence.Drained answers, and [fence.LeaseUntil].
type (
	// Limits carries all settings that operators made for channels, and the weights of tenants
	// other than 1.
	Limits struct {
		Settings []store.ChannelSettings
		Weights  map[string]int
	}
	// Nudged says that messages are due.
	Nudged struct{ Nudges []Nudge }
	// Claimed answers a Claim, with one result per claim in the same order.
	Claimed struct {
		Call    uint64
		Results []store.ClaimResult
	}
	// Published answers a Publish.
	Published struct {
		Batch   []*Item
		Results []publisher.Result
	}
	// Settled answers a Settle.
	Settled struct {
		Call uint64
		Err  error
	}
	// ParkedFound answers a FindParked.
	ParkedFound struct {
		Buckets []int
		Found   []store.ParkedRoute
		Err     error
	}
	// Unparked answers an Unpark.
	Unparked struct {
		Unpark store.Unpark
		Moved  int
		Early  int // of those: they are due only after the unpark's time
		Err    error
	}
)

// Nudge says that a durable message of a bucket is due at a given time.
type Nudge struct {
	Bucket int
	At     postdate.Time
}

func (Limits) Event()      {}
func (Nudged) Event()      {}
func (Claimed) Event()     {}
func (Published) Event()   {}
func (Settled) Event()     {}
func (ParkedFound) Event() {}
func (Unparked) Event()    {}

// An Effect is something that the machine wants done.
type Effect = fence.Effect

// The effects, in addition to [fence.Fenced], which says that a claim was refused,
// [fence.Drained], and [fence.ClockSet], which says that everything waits for a renewal of the
// lease. Each effect declared here except Horizon is answered by one event.
type (
	// Claim asks for claims and the scans that follow them. Several calls may be under way, for
	// different buckets.
	Claim struct {
		Call   uint64
		Claims []store.Claim
	}
	// Publish asks for a batch to be published to a channel, now. If it has Settlements, one per item, each
	// message is to be delivered and settled in one atomic step.
	Publish struct {
		Channel     postdate.Channel
		Batch       []*Item
		Settlements []store.Settlement
	}
	// Settle asks for settlements to be written. Several calls may be under way, for different
	// messages.
	Settle struct {
		Call        uint64
		Settlements []store.Settlement
	}
	// FindParked asks which channels have parked messages in these buckets.
	FindParked struct{ Buckets []int }
	// Unpark asks for parked messages to become due. Several calls may be under way, each for a
	// different channel or bucket.
	Unpark struct{ Unpark store.Unpark }
	// Horizon says that from now on a nudge for a bucket matters only if it is earlier than
	// Before. It precedes the Claim whose scan could miss the nudged message.
	Horizon struct {
		Bucket int
		Before postdate.Time // 0: the bucket is not owned here
	}
)

func (Claim) Effect()      {}
func (Publish) Effect()    {}
func (Settle) Effect()     {}
func (FindParked) Effect() {}
func (Unpark) Effect()     {}
func (Horizon) Effect()    {}

// Machine decides. Step must not be called concurrently. The same events at the
// same times give the same effects.
type Machine struct {
	c          Config
	random     func() float64                   // in [0, 1): jitter
	endsAt     func(postdate.Now) postdate.Time // when what ends now is said to have ended
	leaseUntil time.Duration
	judged     postdate.Now // the last reading of both clocks that was found good
	// when the wall clock was last seen to have been set since then, by the monotonic one; 0:
	// it was not
	setAt     time.Duration
	setBy     time.Duration // by how much it had been set since then, as seen at setAt
	lapses    int           // how often the lease ended before it was renewed
	droppedAt time.Duration // when messages were last dropped for that; 0: they no longer take room
	out       []Effect

	buckets map[int]*owned
	touched []*owned // those whose place on the agenda, or horizon, may be another
	leaving []*owned // those that are to be handed over
	agenda  agenda

	channels    map[postdate.Route]*channel
	outlets     map[postdate.Route]*outlet
	peers       map[postdate.Channel]*peers
	sites       map[postdate.Route]*site
	kept        []*site // those that are remembered though they have no channel, or were lately
	limits      map[postdate.Route]*limit
	resumed     map[postdate.Route]postdate.Time // when a pause ended, as far as this node knows
	ready       []*channel                       // those with something to publish, in turn
	prioritized int                              // channels of a priority other than medium
	crowded     []*channel                       // those that may have no room for more
	full        []*tenant                        // those with channels that have none, as lookForFull found them
	overfull    int                              // from this index on none of these has an overfull channel
	looked      bool                             // it did so in this step
	turns       uint64                           // how many turns were given among sites, and among tenants
	steps       uint64                           // how many were made
	stepped     postdate.Now                     // both clocks, as the present or the latest step read them
	budgetAt    time.Duration                    // from when on the budget of probes allows the next one

	tenants      map[string]*tenant
	byName       []*tenant      // the same, in the order in which they came
	weightOf     map[string]int // as operators set them
	weightInHand int            // of all tenants with messages in the hand
	behindTurn   int            // who of those with channels behind comes first

	waiting   itemHeap // in hand, not due yet
	hand      int      // items in memory
	handBytes int
	unproven  map[string]int // messages with sites that have not answered yet, by their brokers

	common    *lane
	apart     []*lane // the other ones
	sweepsMin int     // how many sweeps of buckets in which something is behind a call may begin in any case
	calls     uint64  // the number of the last call of the store
	claimings map[uint64]*claiming
	settlings map[uint64]*settlingCall
	// coming and comingBytes are what the claims under way may bring. comingOfAny is how many
	// messages these and unheard claims may have claimed of any channel.
	coming, comingBytes, comingOfAny int

	unparks        []*unparking     // those under way
	retries        rotation[*owned] // buckets that have something parked, and may be out of reach
	nextRetry      time.Duration    // when they may be tried
	retried        bool             // the last unpark that began was such a try
	unparksFailed  int              // since the last one that went through
	unparkFailedAt time.Duration    // when the last one failed
	finding        bool
	find           []int // buckets whose parked channels are not known yet
	findMax        int   // about how many of those at most that failed one call asks
	nextFind       time.Duration
	findAllAt      time.Duration
}

// NewMachine returns a machine that owns nothing. random returns numbers in [0, 1). endsAt
// returns the time to record for something that ends now, since the wall clock may be wrong.
func NewMachine(c Config, random func() float64, endsAt func(postdate.Now) postdate.Time) *Machine {
	return &Machine{
		c: c, random: random, endsAt: endsAt, buckets: map[int]*owned{},
		agenda: agenda{bySweep: bucketHeap{sweep: true}}, common: &lane{}, sweepsMin: sweepsMin,
		claimings: map[uint64]*claiming{}, settlings: map[uint64]*settlingCall{},
		channels: map[postdate.Route]*channel{}, outlets: map[postdate.Route]*outlet{},
		peers: map[postdate.Channel]*peers{},
		sites: map[postdate.Route]*site{}, tenants: map[string]*tenant{}, unproven: map[string]int{},
		limits: map[postdate.Route]*limit{}, resumed: map[postdate.Route]postdate.Time{},
	}
}

// Step takes in one event and returns what to do next. The event comes first, since it may free
// room, end a lease or settle something. Each phase then works on what the earlier ones left:
//
//   - release moves messages whose time has come to their channels, and publish sends what the
//     channels take. Both precede the claims, which read as much as there is room for after
//     that, and leave full channels behind.
//   - finishDrains parks what a bucket that is being handed over can no longer send.
//     startSettles follows it, so that one write carries the settlements of all phases.
//   - startClaims moves the checkpoint to what is settled so far. It asks the agenda, where
//     fileTouched files the buckets that the phases above have changed.
//   - startUnparks and startFind use the room that claims left: what is due comes before what
//     waits for its channel. Then the agenda is brought up to date again, for Wake.
func (m *Machine) Step(read postdate.Now, ev Event) []Effect {
	m.steps++
	m.stepped = read
	now := m.believe(read)
	switch ev := ev.(type) {
	case fence.Tick:
	case fence.Gained:
		m.gained(now, ev.Partitions)
	case fence.Lost:
		m.lose(ev.Holds)
	case fence.Drain:
		m.drain(now, ev.Holds)
	case fence.LeaseUntil:
		m.extendLease(now, ev)
		now = m.believe(read)
	case Limits:
		m.setWeights(ev.Weights)
		m.setLimits(now, ev.Settings)
	case Nudged:
		for _, n := range ev.Nudges {
			m.nudge(n.Bucket, spanSince(n.At)) // of several, it may be the earliest
		}
	case Claimed:
		m.claimed(now, ev)
	case Published:
		m.published(now, ev)
	case Settled:
		m.settled(now, ev)
	case ParkedFound:
		m.parkedFound(now, ev)
	case Unparked:
		m.unparked(now, ev)
	}
	m.release(now)
	m.publish(now)
	m.finishDrains(now)
	m.startSettles(now)
	m.fileTouched()
	m.startClaims(now)
	m.startUnparks(now)
	m.startFind(now)
	m.fileTouched()
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

// Wake returns how long after now Step must be called with a Tick if nothing else happens
// first: 0 if something has come due since the last step.
func (m *Machine) Wake(now postdate.Now) time.Duration {
	w := waker{tried: m.reading(m.stepped), now: m.reading(now), wait: wakeMax}
	if len(m.waiting) > 0 {
		w.wall(m.waiting[0].due)
	}
	m.common.wake(&w, m.c)
	for _, l := range m.apart {
		l.wake(&w, m.c)
		for b := range l.buckets {
			w.wall(b.due.Add(m.c.Gather - m.c.Ahead))
			w.mono(b.sweepAt)
		}
	}
	if a := &m.agenda; mayCall(w.tried.Mono, m.common.claims, m.common.claimAt, m.common.nextClaim) {
		if len(a.byDue.list) > 0 {
			w.wall(a.byDue.list[0].due.Add(m.c.Gather - m.c.Ahead))
		}
		if len(a.bySweep.list) > 0 {
			w.mono(a.bySweep.list[0].sweepAt)
		}
	}
	for _, b := range m.leaving {
		w.mono(b.restUntil)
		w.mono(b.leaveBy)
		w.mono(m.goneBy(b))
		w.wall(b.record.Claimed.Time.Add(-m.c.Ahead))
	}
	for _, c := range m.ready {
		if c.limit != nil {
			w.mono(c.limit.freeAt)
		}
	}
	m.wakeBehind(&w)
	m.wakeUnparks(&w)
	if !m.finding {
		w.mono(m.nextFind) // after a failure, or where all that are to be asked about are apart
		w.mono(m.findAllAt)
	}
	return w.wait
}

// wakeMax bounds every wait, because the wall clock may be set meanwhile.
const wakeMax = time.Second

// waker finds the earliest of many times on two clocks. It leaves out times up to tried, that of
// the last step: what was due then was tried, and waits for some other event.
type waker struct {
	tried, now postdate.Now
	wait       time.Duration
}

func (w *waker) mono(t time.Duration) {
	if t > w.tried.Mono {
		w.wait = min(w.wait, max(t-w.now.Mono, 0))
	}
}

func (w *waker) wall(t postdate.Time) {
	if t > w.tried.Wall {
		w.wait = min(w.wait, max(min(t, w.now.Wall.Add(wakeMax)).Sub(w.now.Wall), 0)) // t may be Far
	}
}
