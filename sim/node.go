package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/ring"
	"github.com/postdate/postdate/store"
)

// node is a machine with its clocks, on which one process after another runs.
type node struct {
	w       *world
	number  int
	name    string
	clock   clock
	runs    int
	proc    *process // the latest one; nil before the first
	paused  bool
	backlog []func()              // what comes in while it is paused
	cut     map[int]time.Duration // by sender: until when nothing comes through
	deaf    window                // gossip is lost
	ghost   time.Duration         // until when it believes in a member that is none
	blind   map[int]time.Duration // by member: until when it does not see it
	noStore time.Duration         // until when the store is out of reach
	unaware time.Duration         // until when it may believe in a lease that ended while it was frozen
}

// process is one run of the product on a node.
type process struct {
	n     *node
	w     *world
	lease string
	alive bool

	fence  *fence.Machine
	poller *poller.Machine
	held   map[int]uint64 // the tokens under which the poller works

	fenceTick, pollTick timer
	heard               map[int]time.Duration // by node: when it was heard of last
	living              []string              // leases that move
	share               string                // the members of which the share was told last
	stopping            bool
	fenceSpin, pollSpin spin
}

// timer is the next time at which a machine wants to step.
type timer struct {
	want time.Duration // true time
	set  time.Duration // when the event for it comes; 0: none is planned
}

func newNode(w *world, number int, c clockPlan) *node {
	return &node{
		w: w, number: number, name: fmt.Sprint("n", number), clock: newClock(w, c),
		cut: map[int]time.Duration{}, blind: map[int]time.Duration{},
	}
}

func (n *node) up() bool { return n.proc != nil && n.proc.alive }

// start runs a new process.
func (n *node) start() {
	if n.up() {
		return
	}
	n.runs++
	w := n.w
	p := &process{
		n: n, w: w, lease: fmt.Sprintf("%s/%d", n.name, n.runs), alive: true,
		held: map[int]uint64{}, heard: map[int]time.Duration{},
	}
	p.fence = fence.NewMachine(w.fenceConfig(n.name, p.lease))
	p.poller = poller.NewMachine(w.pollerConfig(), w.r.Float64)
	n.proc, n.paused, n.backlog = p, false, nil
	w.tell(n, "starts as %s", p.lease)
	p.stepFence(fence.Tick{})
	p.stepPoller(poller.Tick{})
	p.limits()
	p.gossip()
}

// crash ends the process at once.
func (n *node) crash() {
	if n.up() {
		n.w.tell(n, "is dead")
		n.proc.alive = false
		n.paused, n.backlog = false, nil
	}
}

// pause stops the process for a while, as SIGSTOP does: the clocks go on, and
// nothing happens.
func (n *node) pause(d time.Duration) {
	if !n.up() || n.paused {
		return
	}
	n.paused = true
	p := n.proc
	n.w.after(d, func() {
		if n.proc == p && n.paused {
			n.resume()
		}
	})
}

// freeze stops the process and its monotonic clock, as where a machine is suspended. If
// the wall clock stands still too, or is set back meanwhile, the process cannot know
// afterwards how much time has passed.
func (n *node) freeze(d time.Duration) {
	if !n.up() || n.paused {
		return
	}
	p, mono, offset, wallRuns := n.proc, n.clock.monoNow(), n.clock.offset, n.w.chance(0.5)
	n.w.after(d, func() {
		if n.proc != p || !n.paused {
			return
		}
		n.clock.hold(mono)
		if wallRuns {
			n.clock.jump(d)
		} else {
			n.w.after(n.w.upTo(3*time.Second), func() { // somebody sets it right
				if !n.w.healed {
					n.clock.jump(d)
				}
			})
		}
		if n.clock.offset-offset < d-poller.DefaultConfig().JumpMax {
			n.unaware = n.w.now + fence.DefaultConfig("", "").LeaseTime
		}
	})
	n.pause(d)
}

// resume lets everything happen that waits, in the order in which it came, but
// for the timers, which may come first.
func (n *node) resume() {
	n.paused = false
	p, backlog := n.proc, n.backlog
	n.backlog = nil
	n.w.tell(n, "wakes up")
	if n.w.r.IntN(2) == 0 {
		p.run(func() { p.stepPoller(poller.Tick{}) })
		p.run(func() { p.stepFence(fence.Tick{}) })
	}
	for _, do := range backlog {
		p.run(do)
	}
}

// stop gives everything back in order, and ends then.
func (n *node) stop() {
	if !n.up() || n.proc.stopping {
		return
	}
	p := n.proc
	p.run(func() {
		n.w.tell(n, "stops")
		p.stopping = true
		p.stepFence(fence.Want{})
	})
	n.w.after(30*time.Second, func() { // the product's bound
		if n.proc == p {
			n.crash()
		}
	})
}

// run does something in the process as soon as it runs, and nothing once it is dead.
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

// wake sees to it that step is called when t has come.
func (p *process) wake(t *timer, want time.Duration, step func()) {
	t.want = want
	if t.set != 0 && t.set <= want {
		return // that one will see
	}
	t.set = want
	p.w.at(want, func() {
		if t.set != want {
			return // another one was set since
		}
		p.run(func() {
			t.set = 0
			if p.w.now < t.want {
				p.wake(t, t.want, step)
				return
			}
			step()
		})
	})
}

func (p *process) stepFence(ev fence.Event) {
	if !p.alive {
		return
	}
	p.w.steps++
	if _, tick := ev.(fence.Tick); tick {
		p.fenceSpin.tick(p, "fence")
	}
	p.w.mark(1, uint64(p.n.number))
	for _, e := range p.fence.Step(p.fenceNow(), p.fenceEvent(ev)) {
		p.doFence(e)
	}
	if p.stopping && p.fence.Held() == 0 {
		p.w.tell(p.n, "has stopped")
		p.alive = false
		return
	}
	wait := p.n.clock.trueTime(p.fence.Wake() - p.fenceNow())
	p.wake(&p.fenceTick, p.w.now+max(wait, 50*time.Microsecond), func() { p.stepFence(fence.Tick{}) })
}

// doFence carries out one effect, as the keeper and its listener do.
func (p *process) doFence(e fence.Effect) {
	switch e := e.(type) {
	case fence.Look, fence.Renew, fence.Take, fence.GiveBack:
		p.locks(e)
	case fence.Gained:
		for _, g := range e.Partitions {
			p.w.mark(2, uint64(g.Bucket), g.Token)
			p.w.tell(p.n, "has bucket %d, token %d, in doubt (%d, %d]", g.Bucket, g.Token, g.Checkpoint-epoch, g.Claimed-epoch)
		}
		p.after(0, func() {
			for _, g := range e.Partitions {
				p.held[g.Bucket] = g.Token
				p.w.history.gained(p, g)
			}
			p.stepPoller(poller.Gained{Partitions: e.Partitions})
		})
	case fence.Lost:
		p.w.mark(3, uint64(e.Hold.Bucket), e.Hold.Token)
		p.w.tell(p.n, "lost bucket %d, token %d", e.Hold.Bucket, e.Hold.Token)
		p.after(0, func() {
			p.drop(e.Hold)
			p.stepPoller(poller.Lost{Hold: e.Hold})
		})
	case fence.Drain:
		p.after(0, func() { p.drain(e.Hold) })
	case fence.LeaseUntil:
		p.after(0, func() { p.stepPoller(poller.LeaseUntil{Mono: p.leaseEnd(e.Mono), Read: e.Read}) })
	case fence.Alive:
		if !slices.Equal(p.living, e.Leases) {
			p.living = e.Leases
			p.after(0, p.divide)
		}
	case fence.Skewed:
		p.w.tell(p.n, "clock is %s ahead of the store's", e.Ahead)
	}
}

func (p *process) drain(hold store.Hold) {
	if p.w.bug == bugNoDrain {
		p.stepPoller(poller.Lost{Hold: hold})
		p.stepFence(fence.Drained{Hold: hold})
		return
	}
	p.stepPoller(poller.Drain{Hold: hold})
}

// drop notes that the poller does not work under a token any more.
func (p *process) drop(hold store.Hold) {
	if p.held[hold.Bucket] == hold.Token {
		delete(p.held, hold.Bucket)
	}
}

// spin counts the wake-ups that a machine asked for.
type spin struct {
	since time.Duration
	ticks int
}

// ticksMax is how many wake-ups a machine may ask for within a second: with more
// it turns without a pause.
const ticksMax = 1_200

func (x *spin) tick(p *process, who string) {
	if x.ticks++; p.w.now-x.since > time.Second {
		x.ticks, x.since = 0, p.w.now
	} else if x.ticks > ticksMax {
		p.w.violate(0, "the %s of %s spins: %d wake-ups within a second", who, p.n.name, x.ticks)
	}
}

func (p *process) stepPoller(ev poller.Event) {
	if !p.alive {
		return
	}
	p.w.steps++
	if _, tick := ev.(poller.Tick); tick {
		p.pollSpin.tick(p, "poller")
	}
	p.w.mark(4, uint64(p.n.number))
	for _, e := range p.poller.Step(p.pollerNow(), p.pollerEvent(ev)) {
		if e = p.pollerEffect(e); e != nil {
			p.doPoller(e)
		}
	}
	wait := p.n.clock.trueTime(p.poller.Wake(p.pollerNow()))
	p.wake(&p.pollTick, p.w.now+max(wait, 50*time.Microsecond), func() { p.stepPoller(poller.Tick{}) })
}

// doPoller carries out one effect, as the loop does.
func (p *process) doPoller(e poller.Effect) {
	switch e := e.(type) {
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
	case poller.Fenced:
		p.w.mark(5, uint64(e.Hold.Bucket), e.Hold.Token)
		p.w.tell(p.n, "is fenced off bucket %d, token %d", e.Hold.Bucket, e.Hold.Token)
		p.drop(e.Hold)
		p.after(0, func() { p.stepFence(fence.Fenced{Hold: e.Hold}) })
	case poller.Drained:
		p.w.mark(6, uint64(e.Hold.Bucket), e.Hold.Token)
		p.drop(e.Hold)
		p.after(0, func() { p.stepFence(fence.Drained{Hold: e.Hold}) })
	case poller.ClockSet:
		p.w.mark(17, uint64(p.n.number))
		p.w.tell(p.n, "its clock was set by %s", e.By)
		p.after(0, func() { p.stepFence(fence.ClockSet{By: e.By}) })
	}
}

// gossipEvery and deadAfter stand for memberlist: a member that was not heard of
// for so long is not believed in.
const (
	gossipEvery = time.Second
	deadAfter   = 4 * time.Second
)

// gossip is what the node believes of the others, again and again.
func (p *process) gossip() {
	if !p.alive {
		return
	}
	p.listen()
	p.w.after(gossipEvery, func() { p.run(p.gossip) })
}

// listen hears of the members, and tells the fence of the share that follows.
func (p *process) listen() {
	n, now := p.n, p.w.now
	for _, o := range p.w.nodes {
		q := o.proc
		switch {
		case o == n:
		case q == nil || q.stopping:
			delete(p.heard, o.number) // it has said good-bye
		case q.alive && !o.paused && now >= n.cut[o.number] && !p.w.chance(n.deaf.now(now)):
			p.heard[o.number] = now
		}
	}
	p.divide()
}

// divide tells the fence of the node's share, where the members have changed: those
// that gossip knows and whose leases move, as the product has it.
func (p *process) divide() {
	n, now := p.n, p.w.now
	var members []string
	for _, o := range p.w.nodes {
		at, known := p.heard[o.number]
		if o == n || known && now-at < deadAfter && now >= n.blind[o.number] && slices.Contains(p.living, o.proc.lease) {
			members = append(members, o.name)
		}
	}
	if now < n.ghost {
		members = append(members, "ghost")
	}
	if share := fmt.Sprint(members); share != p.share && !p.stopping {
		p.share = share
		p.w.markText(share)
		p.w.tell(n, "believes in %s", share)
		p.stepFence(fence.Want{Buckets: ring.Share(members, n.name, p.w.plan.buckets)})
	}
}

// send brings something to another process over gossip, perhaps.
func (p *process) send(to *node, do func(q *process)) {
	w := p.w
	for range 1 + w.r.IntN(8)/7 { // some come twice
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

// nudge tells the owner of a bucket that a message is due.
func (p *process) nudge(bucket int, at postdate.Time) {
	if p.w.bug == bugNoNudges {
		return
	}
	if p.held[bucket] != 0 {
		p.stepPoller(poller.Nudged{Bucket: bucket, At: at})
		return
	}
	for _, o := range p.w.nodes {
		if o != p.n {
			p.send(o, func(q *process) { q.stepPoller(poller.Nudged{Bucket: bucket, At: at}) })
		}
	}
}
