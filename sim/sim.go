// Package sim is a whole cluster in one thread: nodes whose steps are the product's
// own (node/machine), on simulated clocks, over a simulated network, store and brokers,
// with clients that schedule, cancel and reschedule, and with faults in all of it. One
// world in ten is of a single node, alone on a store of its own; in another one calls of some
// sorts fail in a part of the store, under a steady load and beside channels that go down and
// come back.
//
// It promises:
//
//   - The same seed gives the same run, event for event: [Result.Trace] is a hash
//     of all that happened.
//   - Each promise of docs/guarantees.md is watched by a function of its own, in
//     promise_1.go to promise_8.go, and so is the conservation of messages.
//   - Every run has a part with faults, and then a part in which everything heals
//     and all that is due must come to exactly one final state.
//
// A run is called a world. It plays a plan: a numbered list of what clients do
// and of what goes wrong, drawn from the seed. A failure is made short by leaving
// items of the plan out ([Shrink]). That the watchers can fail is shown by planted
// bugs (bugs.go); nothing of this package is compiled into the product.
//
// Read it in this order: plan.go (what happens), world.go (time), node.go,
// process.go, calls.go, broker.go, client.go, faults.go (who acts), store.go (the store,
// a [storetest.Mem]), history.go and promise_*.go (who watches), expiry.go (all of that for
// retention), alone.go (what is different where a node is alone), parts.go and plan_parts.go
// (parts of the store that fail).
package sim

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/postdate/postdate/internal/testrun"
)

// Options say what to run.
type Options struct {
	Seed   uint64
	Length time.Duration     // of the part with faults; 0: as the seed says
	Keep   []int             // play only these items of the plan; nil: all
	Say    func(line string) // is told every event; nil: nobody is

	bug    bug        // a planted one, "" for none
	plan   *plan      // in the place of what the seed draws
	inject *injection // makes one call fail
}

// Violation is a promise that was broken.
type Violation struct {
	Promise int // its number; 0: conservation of messages, or a step that panicked or spun
	What    string
	At      time.Duration // since the world's beginning
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s: promise %d, after %s: %s", testrun.Broken, v.Promise, v.At, v.What)
}

// Result is what became of a run.
type Result struct {
	Trace      uint64
	Violation  *Violation // nil: every promise was kept
	Profile    string     // what sort of world it was
	Simulated  time.Duration
	Steps      int // of machines
	Calls      int // of stores and brokers
	Operations int // of clients
	Faults     map[string]int
	Messages   map[string]int // by what became of them
	Items      []int          // the numbers of what was played

	callsBefore int // calls of stores and brokers until everything heals
}

// ProfileOf names the sort of world that a seed gives.
func ProfileOf(seed uint64) string { return profileOf(seed).String() }

// Run plays one world.
func Run(o Options) (r Result) {
	p := o.plan
	if p == nil {
		p = makePlan(o.Seed, o.Length)
	}
	w := newWorld(o, p)
	func() {
		defer func() {
			if e := recover(); e != nil {
				w.violate(0, "a step panicked: %v\n%s", e, shortStack())
			}
		}()
		w.play()
	}()
	for i := range p.items {
		if w.plays(i) && p.items[i].at <= w.now {
			r.Items = append(r.Items, i)
		}
	}
	r.Trace, r.Violation, r.Profile, r.Simulated = w.trace, w.violation, p.profile.String(), w.now
	r.callsBefore = w.callsBefore
	r.Steps, r.Calls, r.Operations, r.Faults, r.Messages = w.steps, w.calls, w.operations, w.faults, w.history.counts
	return r
}

// shortStack is the stack of a panic, without the lines of the runtime.
func shortStack() string {
	lines := strings.Split(string(debug.Stack()), "\n")
	lines = slices.DeleteFunc(lines, func(s string) bool {
		return !strings.Contains(s, "/postdate/") && !strings.HasPrefix(s, "\t")
	})
	return strings.Join(lines[:min(len(lines), 24)], "\n")
}
