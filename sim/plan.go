package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// plan is what happens in a world. It is drawn from the seed before the world begins, so that
// leaving out one item does not change the others.
type plan struct {
	profile  profile
	length   time.Duration // of the part with faults
	buckets  int
	starting int // nodes that run from the start
	clocks   []clockPlan
	leases   []time.Duration // possible lengths of leases; each process has one of these

	retention, inboxRetention time.Duration // how long final and delivered messages are kept

	poller   poller.Config
	broker   bool // a broker keeps former owners of buckets out
	channels []postdate.Channel
	kinds    []channelKind // of channels

	floodsMany bool // the first tenant floods so many channels that its messages to others are late
	floodsLow  bool // it floods at low priority, and sends some of high priority after that

	items []item
}

// clockPlan is the initial state of a node's clocks.
type clockPlan struct {
	skew time.Duration
	ppm  int64
	boot time.Duration // the monotonic clock's reading
}

// item is one thing that happens.
type item struct {
	at   time.Duration
	kind kind
	a, b int           // which node, message or channel
	d    time.Duration // how long, or how far
	e    time.Duration
	p    float64 // how likely

	priority postdate.Priority    // of the message
	recurs   *postdate.Recurrence // of a series
}

// kind is what an item does.
type kind uint8

// First what clients do, then what goes wrong.
const (
	opSchedule kind = iota // message a to channel b, due in d, expiring e after that if e > 0
	opRepeat               // the request that scheduled a, a second time
	opCancel               // a
	opMove                 // reschedule a to d from now
	opList
	opExpire         // delete what was settled more than d ago
	opReuse          // like opSchedule, with the id of an expired message
	opSeries         // schedule series a to channel b; if p > 0, with the id of an expired message
	opPause          // series a
	opResume         // series a
	opChange         // the rule of series a
	opTrigger        // an occurrence of series a out of turn
	opRedrive        // up to a messages that failed, b times more within d; if p > 0, by their versions
	opPurge          // likewise
	faultCrash       // node a, back after d
	faultPause       // node a sleeps for d
	faultFreeze      // node a and both of its clocks stand still for d, and it does not notice
	faultStop        // node a stops in an orderly way, and is back after d
	faultJump        // the wall clock of node a jumps by d
	faultDrift       // the clocks of node a run b millionths too fast
	faultCut         // nothing from node b reaches node a for d
	faultGossip      // gossip is lost with p for d
	faultGhost       // node a believes for d in a member that does not exist
	faultBlind       // node a does not see node b for d
	faultLoseRequest // calls are lost before they take effect, with p for d
	faultLoseAnswer  // calls are lost after they take effect
	faultHang        // calls are not answered before their deadline
	faultStray       // calls take effect after they were given up
	faultSlow        // for d, calls take up to e longer, and settlements up to b milliseconds more, at least p of that
	faultOutage      // the store accepts nothing for d
	faultFailover    // the same, and calls under way have an unknown outcome
	faultNoStore     // node a cannot reach the store for d
	faultForgotten   // the checkpoint of bucket b is lost
	faultShard       // for d, calls that touch any of every third bucket, from b on, do not return
	faultPart        // for d, calls of the sorts a in each third bucket from b on fail after e, with p as unknown
	faultDown        // channel b accepts nothing for d
	faultBlocked     // channel b answers nothing for d
	faultRefuse      // channel b refuses with p for d
	faultLoseConfirm // channel b loses confirms with p for d
	faultLateConfirm // channel b confirms up to e late for d
	faultLimit       // an operator pauses channel b for d, or limits it to e.Seconds() messages a second
	faultSilent      // the queue of channel b is missing for d: the broker returns messages as unroutable
	kinds            = iota
)

var kindNames = [kinds]string{
	"schedule", "repeat", "cancel", "reschedule", "list", "expire", "reuse", "schedule series", "pause series",
	"resume series", "change series", "trigger series", "redrive", "purge",
	"crash", "pause", "freeze", "orderly stop", "clock jump", "clock drift",
	"one-way cut", "gossip lost", "ghost member", "unseen member", "request lost", "answer lost", "call hangs",
	"stray call", "slow store",
	"store outage", "store failover", "store out of reach", "checkpoint lost", "shard out of reach",
	"part of the store fails", "channel down", "channel blocked", "refusals",
	"confirms lost", "confirms late", "operator's limit", "queue deleted",
}

func (k kind) String() string { return kindNames[k] }

func (k kind) isFault() bool { return k >= faultCrash }

func (it item) String() string {
	return fmt.Sprintf("%s a=%d b=%d d=%s e=%s p=%.2f", it.kind, it.a, it.b, it.d, it.e, it.p)
}

// profile is a sort of world.
type profile uint8

const (
	profileStorm      profile = iota // everything goes wrong
	profileRaces                     // cancels and reschedules around the due time
	profileQuiet                     // orderly restarts only: no mark, no duplicate
	profileChannels                  // all channels but one have faults
	profileBacklog                   // much is stored, little is due
	profileDrains                    // orderly restarts while a channel has a long backlog: one in three quiet worlds
	profileAlone                     // one node with a store of its own
	profileParts                     // calls of some sorts fail in a part of the store, under load
	profileAloneQuiet                // one node alone, with orderly restarts only: one in five worlds of profileAlone
)

func (p profile) String() string {
	return [...]string{"storm", "races", "quiet", "channels", "backlog", "drains", "alone", "parts",
		"alone and quiet"}[p]
}

// profileOf is the sort of world that a seed gives.
func profileOf(seed uint64) profile {
	return [...]profile{
		profileStorm, profileRaces, profileStorm, profileQuiet, profileStorm, profileChannels, profileRaces,
		profileBacklog,
		profileParts, profileAlone,
	}[seed%10]
}

// channelKind is a channel's nature.
type channelKind int

const (
	channelGood     channelKind = iota
	channelSlow                 // takes up to 400 ms
	channelPicky                // refuses two of three messages
	channelMissing              // refuses every message
	channelMute                 // does not answer
	channelDead                 // accepts nothing until everything heals
	channelTight                // an operator limits it to one message a second
	channelGone                 // accepts nothing, ever
	channelTrickles             // takes up to 9 s
)

// draw makes plans.
type draw struct {
	r *rand.Rand
	p *plan
	n int // messages so far
}

func (d *draw) upTo(t time.Duration) time.Duration { return time.Duration(d.r.Int64N(int64(t) + 1)) }

func (d *draw) between(from, to time.Duration) time.Duration { return from + d.upTo(to-from) }

func (d *draw) around(t time.Duration) time.Duration { return d.between(-t, t) }

func (d *draw) add(it item) {
	if scheduled := it.kind == opSchedule || it.kind == opSeries; scheduled &&
		d.p.profile != profileBacklog { // there, floods give priorities
		it.priority = postdate.Priorities()[it.a/2%3]
	}
	d.p.items = append(d.p.items, it)
}

// makePlan draws a plan. length is the length of the part with faults; 0: drawn.
func makePlan(seed uint64, length time.Duration) *plan {
	d := &draw{r: rand.New(rand.NewPCG(seed, 2)), p: &plan{}}
	p := d.p
	p.profile = profileOf(seed)
	p.length = d.between(4*time.Minute, 12*time.Minute)
	if p.profile == profileAlone {
		d.sortOfAlone()
	}
	if length > 0 {
		p.length = length
	}
	p.buckets = []int{4, 6, 8}[d.r.IntN(3)]
	p.broker = d.r.IntN(3) == 0
	d.nodes()
	p.channels = []postdate.Channel{"inbox:good", "rabbitmq:slow", "rabbitmq:picky", "kafka:missing"}
	p.kinds = []channelKind{channelGood, channelSlow, channelPicky, channelMissing}
	p.poller = poller.DefaultConfig()
	p.poller.HandMax, p.poller.PageMax, p.poller.BatchMax, p.poller.BatchesMax = 256, 16, 8, 4
	p.poller.DoubtMax = 64
	p.poller.SettleMax, p.poller.UnparkMax, p.poller.UnparksMax = 32, 8, 3
	d.operations()
	switch p.profile {
	case profileStorm:
		d.storm(1)
		d.expiries()
		d.lateClaims()
	case profileRaces:
		d.storm(0.6)
		d.lostAnswers()
		d.expiries()
		d.flaps()
	case profileQuiet:
		d.orderly()
	case profileChannels:
		d.badChannels()
		d.crowd()
		d.firstMessages()
	case profileBacklog:
		d.ghosts()
		if seed/10%3 == 2 {
			d.floods()
		} else { // beside a flood, catching up takes longer than these worlds allow
			d.shards()
		}
	case profileParts:
		d.parts()
	case profileAlone:
		d.aloneRetention()
		d.alone()
	case profileAloneQuiet:
		d.aloneRetention()
		d.orderly()
	}
	d.leases()
	d.retention()
	if p.profile == profileQuiet && d.r.IntN(3) == 0 {
		p.profile = profileDrains
		d.backlogs()
	}
	if p.profile == profileStorm && p.broker {
		d.drainsWhileToldOf()
	}
	d.waits()
	d.series(seed)
	d.changes(seed)
	d.redrives(seed)
	p.items = slices.DeleteFunc(p.items, func(it item) bool { return it.kind.isFault() && it.at >= p.length })
	slices.SortStableFunc(p.items, func(a, b item) int { return int(a.at - b.at) })
	return p
}

// nodes draws the cluster. Even in a world without faults the clocks are slightly off.
func (d *draw) nodes() {
	n := 2 + d.r.IntN(3)
	if d.p.alone() {
		n = 1
	}
	d.p.starting = n
	if d.p.profile == profileStorm || d.p.profile == profileQuiet {
		d.p.starting = 1 + d.r.IntN(n)
	}
	for range n {
		c := clockPlan{skew: d.around(60 * time.Millisecond), ppm: d.r.Int64N(401) - 200, boot: d.upTo(time.Hour)}
		if d.p.profile == profileStorm {
			c.skew, c.ppm = d.around(300*time.Millisecond), d.r.Int64N(2_001)-1_000
		}
		d.p.clocks = append(d.p.clocks, c)
	}
}

// leases draws how long leases last. In some worlds the nodes have different settings, and each
// start of a process may change them, like an operator who changes one node after another.
func (d *draw) leases() {
	d.p.leases = []time.Duration{postdate.LeaseDefault}
	if d.r.IntN(4) == 0 {
		d.p.leases = []time.Duration{500 * time.Millisecond, postdate.LeaseDefault, 10 * time.Second, 30 * time.Second}
	}
}

// operations draws what clients do.
func (d *draw) operations() {
	if d.p.profile == profileBacklog {
		for range 4_000 { // due long after the end
			d.add(item{at: d.upTo(time.Second), kind: opSchedule, a: d.n, d: d.p.length + healMax +
				d.upTo(240*time.Hour)})
			d.n++
		}
	}
	pause := 550 * time.Millisecond
	if d.p.profile == profileChannels {
		pause = 200 * time.Millisecond
	}
	for at := time.Second; at < d.p.length; at += d.upTo(2 * pause) {
		d.message(at)
		if d.r.IntN(100) == 0 {
			d.burst(at)
		}
	}
}

// burst draws many messages with one due time, and often a fault while they are in hand.
func (d *draw) burst(at time.Duration) {
	due := at + time.Second + d.upTo(4*time.Second)
	for range 160 {
		then := at + d.upTo(time.Second)
		d.add(item{at: then, kind: opSchedule, a: d.n, b: min(d.r.IntN(4), 1), d: due - then})
		d.n++
	}
	if d.p.calm() || d.r.IntN(3) == 0 {
		return
	}
	for node := range d.p.clocks {
		it := item{at: due + d.between(-40*time.Millisecond, 5*time.Millisecond), a: node,
			d: d.between(time.Second, 10*time.Second)}
		if d.r.IntN(2) == 0 {
			it.at = due + d.upTo(1500*time.Millisecond)
		}
		it.kind = []kind{faultPause, faultPause, faultNoStore, faultCrash, faultStop, faultBlind}[d.r.IntN(6)]
		if it.kind == faultBlind {
			it.at, it.b = it.at-d.upTo(time.Second), d.r.IntN(len(d.p.clocks))
		}
		if d.r.IntN(2) == 0 {
			continue
		}
		if d.r.IntN(3) > 0 {
			d.add(it)
			continue
		}
		// A virtual machine is suspended: its wall clock continues where it stopped, and is set
		// right some time later.
		it.kind, it.d = faultPause, d.between(4*time.Second, 9*time.Second)
		jump := d.upTo(time.Second) - it.d
		d.add(it)
		d.add(item{at: it.at + time.Millisecond, kind: faultJump, a: node, d: jump})
		d.add(item{at: it.at + it.d + d.upTo(3*time.Second), kind: faultJump, a: node, d: -jump})
	}
}

// message draws one message, and what else clients do with it.
func (d *draw) message(at time.Duration) {
	it := item{at: at, kind: opSchedule, a: d.n, b: [...]int{0, 0, 0, 1, 1, 2, 2, 3}[d.r.IntN(8)]}
	d.n++
	switch d.r.IntN(8) {
	case 0: // long ago
		it.d = -d.upTo(2 * time.Second)
	case 1: // now
		it.d = d.around(60 * time.Millisecond)
	case 2: // later
		it.d = d.upTo(2 * time.Minute)
	default:
		it.d = d.upTo(8 * time.Second)
	}
	if d.r.IntN(20) == 0 {
		it.e = 1 + d.upTo(3*time.Second)
	}
	d.add(it)
	due := at + max(it.d, 0)
	withdrawals := d.r.IntN(2)
	if d.p.profile == profileRaces {
		withdrawals = 1 + d.r.IntN(3)
	}
	for range withdrawals {
		then := d.when(at, due)
		if it.b >= int(channelPicky) && d.r.IntN(2) == 0 { // between two attempts
			then = due + d.upTo(1500*time.Millisecond)
		}
		switch d.r.IntN(5) {
		case 0:
			d.add(item{at: max(then, at), kind: opRepeat, a: it.a})
		case 1, 2:
			d.add(item{at: max(then, at), kind: opMove, a: it.a, d: d.around(100*time.Millisecond) +
				d.upTo(3*time.Second)})
		case 3:
			d.add(item{at: max(then, at), kind: opCancel, a: it.a})
		default:
			for range 2 { // two together
				d.add(item{at: max(then, at) + d.upTo(5*time.Millisecond), kind: opCancel, a: it.a})
			}
		}
	}
	if d.r.IntN(100) == 0 {
		d.add(item{at: at, kind: opList})
	}
}

// expiries makes messages expire soon after their end, and gives their ids to new ones right
// after: an owner that does not know yet how the old ones ended must not touch the new ones.
func (d *draw) expiries() {
	for at := 5 * time.Second; at < d.p.length; at += d.upTo(4 * time.Second) {
		d.add(item{at: at, kind: opExpire,
			d: d.upTo([]time.Duration{200 * time.Millisecond, 2 * time.Second}[d.r.IntN(2)])})
		for range d.r.IntN(6) {
			it := item{at: at + 2*time.Millisecond + d.upTo(10*time.Millisecond), kind: opReuse, a: d.n,
				b: d.r.IntN(len(d.p.channels)), d: d.upTo(3 * time.Second)}
			d.n++
			d.add(it)
			if d.r.IntN(2) == 0 {
				k := []kind{opCancel, opMove, opRepeat}[d.r.IntN(3)]
				d.add(item{at: it.at + d.upTo(it.d+time.Second), kind: k, a: it.a, d: d.upTo(2 * time.Second)})
			}
		}
	}
}

// when draws the time of a withdrawal: usually close to the due time.
func (d *draw) when(at, due time.Duration) time.Duration {
	switch d.r.IntN(9) {
	case 0:
		return at + d.upTo(due-at)
	case 1:
		return due + d.upTo(10*time.Second)
	case 2, 3:
		return due + d.around(500*time.Millisecond)
	}
	return due - 20*time.Millisecond +
		d.around([]time.Duration{25 * time.Millisecond, 4 * time.Millisecond}[d.r.IntN(2)])
}
