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

// node is a machine with its clocks, on which processes run one after another.
type node struct {
	w       *world
	number  int
	name    string
	clock   clock
	runs    int
	proc    *process // the latest; nil before the first
	paused  bool
	backlog []func()              // what arrives while it is paused
	cut     map[int]time.Duration // by sender: until when nothing comes through
	deaf    window                // gossip is lost
	ghost   time.Duration         // until when it believes in a member that does not exist
	blind   map[int]time.Duration // by member: until when it does not see that member
	noStore time.Duration         // until when it cannot reach the store
	unaware time.Duration         // until when it may believe in a lease that ended while it was frozen
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
	if !slices.ContainsFunc(w.nodes, (*node).up) {
		w.upSince = w.now
	}
	p := &process{
		n: n, w: w, lease: machine.LeaseID(n.name, fmt.Sprint(n.runs)), alive: true,
		lasts: w.plan.leases[w.r.IntN(len(w.plan.leases))], began: n.clock.monoNow(), judged: n.clock.offset,
		heard: map[int]heard{}, unheard: map[int]bool{}, confirmed: map[postdate.Route]confirms{},
		paused: map[postdate.Channel]bool{}, resumed: map[postdate.Channel]time.Duration{},
	}
	p.m = machine.New(w.machineConfig(p), w.r.Float64)
	n.proc, n.paused, n.backlog = p, false, nil
	w.tell(n, "starts as %s, with a lease of %s", p.lease, p.lasts)
	p.step(fence.Tick{})
	p.limits()
	if !w.plan.alone() {
		p.gossip()
	}
}

// crash kills the process.
func (n *node) crash() {
	if n.up() {
		n.w.tell(n, "is dead")
		n.proc.alive = false
		n.paused, n.backlog = false, nil
		if n.w.plan.alone() {
			n.w.store.failOver()
		}
	}
}

// pause stops the process for a while, like SIGSTOP: its clocks go on, and nothing else
// happens.
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

// freeze stops the process and its monotonic clock, as if its machine were suspended. If the
// wall clock stands still too, or is set back meanwhile, the process cannot know how much time
// has passed.
func (n *node) freeze(d time.Duration) {
	if !n.up() || n.paused {
		return
	}
	n.w.frozenMax = max(n.w.frozenMax, d)
	p, mono, offset, wallRuns := n.proc, n.clock.monoNow(), n.clock.offset, n.w.chance(0.5)
	n.w.after(d, func() {
		if n.proc != p || !n.paused {
			return
		}
		n.clock.hold(mono)
		if wallRuns {
			n.clock.jump(d)
		} else {
			n.w.after(n.w.upTo(3*time.Second), func() { // an operator sets it right
				if !n.w.healed {
					n.clock.jump(d)
				}
			})
		}
		// If it is alone, no other node takes its buckets.
		if n.clock.offset-offset < d-poller.DefaultConfig().JumpMax && !n.w.plan.alone() {
			n.unaware = n.w.now + p.lasts
		}
	})
	n.pause(d)
}

// resume processes the backlog in the order in which it arrived. A timer may come first.
func (n *node) resume() {
	n.paused = false
	p, backlog := n.proc, n.backlog
	n.backlog = nil
	n.w.tell(n, "wakes up")
	if n.w.r.IntN(2) == 0 {
		p.run(func() { p.step(fence.Tick{}) })
	}
	for _, do := range backlog {
		p.run(do)
	}
}

// stopMax is the product's limit for an orderly stop.
const stopMax = 30 * time.Second

// upWithin is how long after everything heals each node is up, even if it was stopping.
const upWithin = stopMax + time.Second

// stop gives everything back in an orderly way, and then ends the process.
func (n *node) stop() {
	if !n.up() || n.proc.stopping {
		return
	}
	p := n.proc
	p.run(func() {
		n.w.tell(n, "stops")
		p.stopping = true
		p.step(machine.Leave{})
	})
	n.w.after(stopMax, func() {
		if n.proc == p && p.alive {
			n.w.history.note(factOverran{p})
			n.crash()
		}
	})
}
