package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
)

// process is one run of the product on a node: its machine, and the part that the loop in
// package node plays.
type process struct {
	n      *node
	w      *world
	lease  string
	lasts  time.Duration // how long its leases last
	alive  bool
	serves bool          // it accepts requests: it has had a lease and the right time or, alone, every bucket
	began  time.Duration // when it started, by its node's monotonic clock
	judged time.Duration // the offset of the wall clock at the last renewal that checked it

	renewedAt  time.Duration          // when it learned of its last renewal, by its node's monotonic clock
	leaseUntil time.Duration          // when its lease ends, by the same clock; 0: it has had none
	lapsedAt   time.Duration          // when it got a lease again after one had ended; 0: never
	hadInDoubt map[postdate.Route]int // at lapsedAt

	m          *machine.Machine
	tick       timer
	heard      map[int]heard    // by node
	believes   string           // the members that it was last told of
	members    []machine.Member // the same; nil: it was told nothing yet
	stopping   bool
	publishing time.Duration // when its last publish ends
	spin       spin
	confirmed  map[postdate.Route]confirms
	unheard    map[int]bool                       // buckets whose last claim had no answer
	paused     map[postdate.Channel]bool          // as far as it was told
	resumed    map[postdate.Channel]time.Duration // when it was told of the end of the last pause
}

// heard is what gossip last said about a node.
type heard struct {
	at    time.Duration
	lease string
}

// timer is the next time at which a machine must step.
type timer struct {
	want time.Duration // true time
	set  time.Duration // when the event for it comes; 0: none is planned
}

// run does something in the process as soon as it is not paused, and nothing if it is dead.
func (p *process) run(do func()) {
	switch {
	case !p.alive:
	case p.n.paused:
		p.n.backlog = append(p.n.backlog, do)
	default:
		do()
	}
}

func (p *process) after(d time.Duration, do func()) { p.w.after(d, func() { p.run(do) }) }

// wake makes the machine step at that time.
func (p *process) wake(want time.Duration) {
	t := &p.tick
	t.want = want
	if t.set != 0 && t.set <= want {
		return // the earlier event will set it again
	}
	t.set = want
	p.w.at(want, func() {
		if t.set != want {
			return // another one has been set since
		}
		p.run(func() {
			t.set = 0
			if p.w.now < t.want {
				p.wake(t.want)
				return
			}
			p.step(fence.Tick{})
		})
	})
}

// spin counts the wake-ups that a machine asked for.
type spin struct {
	since time.Duration
	ticks int
	idle  int // steps that it asked for, in a row, that did nothing and asked for another one at once
}

// ticksMax is how many wake-ups a machine may ask for within a second. With more, it spins.
const ticksMax = 1_200

func (x *spin) tick(p *process) {
	if x.ticks++; p.w.now-x.since > time.Second {
		x.ticks, x.since = 0, p.w.now
	} else if x.ticks > ticksMax {
		p.w.violate(0, "%s spins: %d wake-ups within a second", p.n.name, x.ticks)
	}
}

// askAfterMax is how long after a step, at most, the loop calls Wake. Meanwhile it carries out the
// effects and shows its state.
const askAfterMax = 3 * time.Millisecond

// idleMax is how many steps in a row may do nothing and ask for another one at once: time passes
// meanwhile, in which something else may come due.
const idleMax = 200

func (x *spin) wake(p *process, asked, idle bool) {
	switch {
	case !idle:
		x.idle = 0
	case asked: // not by a nudge, of which a flood brings hundreds in a millisecond
		x.idle++
	}
	if x.idle > idleMax {
		p.w.violate(0, "%s spins: %d steps in a row did nothing, and asked for another one at once", p.n.name, x.idle)
	}
}

// step passes an event to the machine, and carries out the effects.
func (p *process) step(ev machine.Event) {
	if !p.alive {
		return
	}
	p.w.steps++
	if _, tick := ev.(fence.Tick); tick {
		p.spin.tick(p)
	}
	p.w.mark(4, uint64(p.n.number))
	p.n.clock.see()
	effects := p.m.Step(p.now(), p.event(ev))
	for _, e := range effects {
		p.do(p.effect(e))
	}
	if p.stopping && p.m.Status().Held == 0 {
		p.w.tell(p.n, "has stopped")
		p.alive = false
		return
	}
	passed := p.w.upTo(askAfterMax)
	wake := p.m.Wake(p.now().Later(passed))
	_, asked := ev.(fence.Tick)
	p.spin.wake(p, asked, len(effects) == 0 && wake == 0)
	p.wake(p.w.now + max(passed+p.n.clock.trueTime(wake), 50*time.Microsecond))
}

// do carries out one effect, as the product's loop does.
func (p *process) do(e machine.Effect) {
	switch e := e.(type) {
	case fence.Look, fence.Renew, fence.Take, fence.GiveBack:
		p.locks(e)
	case poller.Claim:
		p.claim(e)
	case poller.Publish:
		p.publish(e)
	case poller.Settle:
		p.settle(e)
	case poller.FindParked:
		p.findParked(e)
	case poller.Unpark:
		p.unpark(e)
	case machine.Expire:
		p.expire(e)
	case machine.Work: // no client of a world starts a job
		p.step(machine.Worked{})
	case machine.KeepOut:
		p.keepOut(e)
	case machine.GiveUp:
	case machine.Released:
		for _, o := range p.w.nodes {
			if slices.Contains(e.To, o.name) {
				p.send(o, func(q *process) { q.step(fence.Freed{}) })
			}
		}
	default:
		p.report(e)
	}
}

// report records the effects that are only for the log.
func (p *process) report(e machine.Effect) {
	switch e := e.(type) {
	case fence.Gained:
		for _, g := range e.Partitions {
			p.w.mark(2, uint64(g.Bucket), g.Token)
			p.w.tell(p.n, "has bucket %d, token %d, in doubt (%d, %s], behind %v",
				g.Bucket, g.Token, g.Checkpoint-epoch, at(g.Claimed), g.Behind)
			p.w.history.gained(p, g)
		}
		p.serves = p.serves || p.w.plan.alone() && p.m.Status().Held == p.w.plan.buckets
	case fence.Lost:
		for _, hold := range e.Holds {
			p.w.mark(3, uint64(hold.Bucket), hold.Token)
			p.w.tell(p.n, "lost bucket %d, token %d", hold.Bucket, hold.Token)
		}
	case fence.Fenced:
		for _, hold := range e.Holds {
			p.w.mark(5, uint64(hold.Bucket), hold.Token)
			p.w.tell(p.n, "is fenced off bucket %d, token %d", hold.Bucket, hold.Token)
		}
	case fence.ClockSet:
		p.w.mark(17, uint64(p.n.number))
		p.w.tell(p.n, "its clock was set by %s", e.By)
	case fence.Skewed:
		p.w.tell(p.n, "clock is %s ahead of the store's", e.Ahead)
	default:
		panic(fmt.Sprintf("an effect of an unknown sort: %T", e))
	}
}

// keepOut keeps former owners out at a broker, after a while, or fails to.
func (p *process) keepOut(e machine.KeepOut) {
	w := p.w
	took := w.upTo(20 * time.Millisecond)
	var err error
	if p := w.plan.profile; p != profileChannels && p != profileBacklog && !w.healed && w.r.IntN(2) == 0 {
		took = w.upTo(4 * time.Second)
		if w.r.IntN(2) == 0 {
			err = errDown
		}
	}
	w.tell(p.n, "keeps former owners of %d buckets out at the broker: %s, %v", len(e.Holds), took, err)
	p.after(took, func() { p.step(machine.KeptOut{Holds: e.Holds, Err: err}) })
}

// gossipEvery and deadAfter stand for memberlist: a member counts as dead if it was not heard
// of for deadAfter.
const (
	gossipEvery = time.Second
	deadAfter   = 4 * time.Second
)

// gossip listens to the other members, regularly.
func (p *process) gossip() {
	if !p.alive {
		return
	}
	p.listen()
	p.w.after(gossipEvery, func() { p.run(p.gossip) })
}

// listen updates the members that the node believes in, and tells the machine if they changed.
func (p *process) listen() {
	n, now := p.n, p.w.now
	members := []machine.Member{}
	for _, o := range p.w.nodes {
		q := o.proc
		switch {
		case o == n:
			continue
		case q == nil || q.stopping:
			delete(p.heard, o.number) // it has said goodbye
		case q.alive && !o.paused && now >= n.cut[o.number] && !p.w.chance(n.deaf.now(now)):
			p.heard[o.number] = heard{now, q.lease}
		}
		if h, known := p.heard[o.number]; known && now-h.at < deadAfter && now >= n.blind[o.number] {
			members = append(members, machine.Member{Name: o.name, Lease: h.lease})
		}
	}
	if now < n.ghost {
		members = append(members, machine.Member{Name: "ghost", Lease: p.w.someLease()})
	}
	if p.members != nil && slices.Equal(members, p.members) || p.stopping {
		return
	}
	p.members, p.believes = members, fmt.Sprint(members)
	p.w.markText(p.believes)
	p.w.tell(n, "believes in %s", p.believes)
	p.step(machine.Members{Members: members})
	p.step(fence.Hint{})
}

// someLease returns the lease of a live node: a member that does not exist may name it.
func (w *world) someLease() string {
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.up() })
	if i < 0 {
		return "ghost/1"
	}
	return w.nodes[i].proc.lease
}

// send sends something to another process over gossip, which may lose it.
func (p *process) send(to *node, do func(q *process)) {
	w := p.w
	for range 1 + w.r.IntN(8)/7 { // one in eight comes twice
		if w.now < to.cut[p.n.number] || w.chance(max(to.deaf.now(w.now), 0.02)) && !w.plan.calm() {
			continue
		}
		w.after(200*time.Microsecond+w.upTo(4*time.Millisecond), func() {
			if q := to.proc; q != nil {
				q.run(func() { do(q) })
			}
		})
	}
}

// scheduled is called for each message that was made durable, and tells its bucket's owner when
// it is due.
func (p *process) scheduled(bucket int, at postdate.Time) {
	if p.w.bug == bugNoNudges {
		return
	}
	n := poller.Nudge{Bucket: bucket, At: at}
	p.nudge(n)
	owner := p.m.Board().Owner(n, p.n.clock.now().Wall, p.n.name)
	for _, o := range p.w.nodes {
		if o.name == owner {
			p.send(o, func(q *process) { q.nudge(n) })
		}
	}
}

// nudge puts a nudge on the board, and wakes the machine if it matters.
func (p *process) nudge(n poller.Nudge) {
	if p.w.store.Records[n.Bucket].Lease == p.lease {
		p.w.history.told[n] = p.w.wall()
	}
	if p.m.Board().Nudge(n) {
		p.after(p.w.upTo(20*time.Microsecond), func() { p.step(poller.Nudged{Nudges: p.m.Board().Take()}) })
	}
}
