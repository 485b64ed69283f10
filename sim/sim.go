// Package sim is a whole cluster in one thread: nodes that run the product's own steps
// (node/machine) on simulated clocks, over a simulated network, store and brokers, with clients
// that schedule messages and series, cancel and reschedule, and with faults in all of these. In one
// world in ten, a single node is alone with a store of its own; in another one in ten, calls of some
// sorts fail in a part of the store, under a steady load, while channels go down and come back.
//
// It promises:
//
//   - The same seed gives the same run, event for event: [Result.Trace] is a hash
//     of all that happened.
//   - A function of its own watches each promise of docs/guarantees.md, in
//     promise_1.go to promise_9.go, and another the conservation of messages.
//   - Every run has a part with faults, and then a part in which everything heals
//     and all that is due must reach exactly one final state.
//
// A run is called a world. It plays a plan: a numbered list of what clients do and of what goes
// wrong, drawn from the seed. [Shrink] shortens a failure by leaving out items of the plan.
// Planted bugs (bugs.go) show that the watchers can fail. Nothing of this package is compiled
// into the product.
//
// Read it in this order: plan.go (what happens), world.go (time), node.go, process.go, calls.go,
// broker.go, client.go, faults.go (who acts), store.go (the store, a [storetest.Mem]), history.go
// and promise_*.go (who watches), expiry.go (all of that for retention), plan_series.go, series.go
// and tale.go (all of it for messages that recur), redrive.go (what failed), alone.go (the
// differences for a node that is alone), parts.go and plan_parts.go (parts of the store that fail).
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
	Length time.Duration     // of the part with faults; 0: drawn from the seed
	Keep   []int             // play only these items of the plan; nil: all
	Say    func(line string) // is called for every event; may be nil

	bug    bug        // a planted bug; "": none
	plan   *plan      // instead of the one that the seed draws
	inject *injection // makes one call fail
}

// Violation is a promise that was broken.
type Violation struct {
	Promise int // its number; 0: conservation of messages, or a step that panicked or spun
	What    string
	At      time.Duration // since the start of the world
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s: promise %d, after %s: %s", testrun.Broken, v.Promise, v.At, v.What)
}

// Result is the result of a run.
type Result struct {
	Trace      uint64
	Violation  *Violation // nil: every promise was kept
	Profile    string     // the sort of world
	Simulated  time.Duration
	Steps      int // of machines
	Calls      int // of stores and brokers
	Operations int // of clients
	Faults     map[string]int
	Messages   map[string]int // by what happened to them
	Items      []int          // the numbers of the items played

	callsBefore int // calls of stores and brokers before everything heals
}

// ProfileOf names the sort of world that a seed draws.
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

// shortStack returns the stack of a panic without the runtime's lines.
func shortStack() string {
	lines := strings.Split(string(debug.Stack()), "\n")
	lines = slices.DeleteFunc(lines, func(s string) bool {
		return !strings.Contains(s, "/postdate/") && !strings.HasPrefix(s, "\t")
	})
	return strings.Join(lines[:min(len(lines), 24)], "\n")
}
