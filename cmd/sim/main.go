// Command sim plays whole clusters with faults in one thread, and holds them to
// the promises of docs/guarantees.md (package sim). It exits with 1 where one is
// broken, after it has made the failure as short as it can, and prints the
// command that replays it.
//
//	go run ./cmd/sim                        one world of a fresh seed
//	go run ./cmd/sim -seed 7 -v             one world, with every event
//	go run ./cmd/sim -seed 1 -hours 1000    worlds 1, 2, 3, … for 1,000 cluster-hours
//	go run ./cmd/sim -minutes 5             fresh worlds for five minutes of real time
//	go run ./cmd/sim -hours 9 -profile alone  only worlds of this sort
//	go run ./cmd/sim -seed 7 -keep 3,7-9    a world with these items of its plan alone
package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/postdate/postdate/sim"
)

// traceMax is how many lines of a failure are shown.
const traceMax = 250

type flags struct {
	seed    uint64
	hours   float64
	minutes float64
	shrink  time.Duration
	verbose bool
	profile string
	keep    []int
}

func main() {
	f, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(2)
	}
	debug.SetGCPercent(1500) // a world takes 3 MB and makes much garbage
	if !run(f) {
		os.Exit(1)
	}
}

func parse(args []string) (f flags, err error) {
	set := flag.NewFlagSet("sim", flag.ExitOnError)
	keep := set.String("keep", "", "play only these items of the plan, like 3,7-9")
	set.Uint64Var(&f.seed, "seed", 0, "the first world's seed; a fresh one if not given")
	set.Float64Var(&f.hours, "hours", 0, "how many hours to simulate; 0: one world")
	set.Float64Var(&f.minutes, "minutes", 0, "how many minutes of real time to simulate for")
	set.DurationVar(&f.shrink, "shrink", time.Minute, "how long to look for a shorter failure")
	set.StringVar(&f.profile, "profile", "", "play only worlds of this sort, like alone")
	set.BoolVar(&f.verbose, "v", false, "print every event")
	set.Parse(args)
	if set.NArg() > 0 {
		return f, fmt.Errorf("%q is no flag: see -help", set.Arg(0))
	}
	given := false
	set.Visit(func(x *flag.Flag) { given = given || x.Name == "seed" })
	if !given {
		f.seed = rand.Uint64() >> 24
	}
	if *keep != "" {
		f.keep, err = sim.ParseRanges(*keep)
	}
	return f, err
}

// total adds up what was played.
type total struct {
	worlds, operations, steps, calls int
	simulated                        time.Duration
	trace                            uint64
	faults, messages                 map[string]int
}

func (t *total) add(r sim.Result) {
	t.worlds++
	t.operations, t.steps, t.calls = t.operations+r.Operations, t.steps+r.Steps, t.calls+r.Calls
	t.simulated += r.Simulated
	t.trace = t.trace*1099511628211 ^ r.Trace
	for name, n := range r.Faults {
		t.faults[name] += n
	}
	for name, n := range r.Messages {
		t.messages[name] += n
	}
}

// run plays worlds, and says whether all promises were kept.
func run(f flags) bool {
	began := time.Now()
	fmt.Printf("seed %d\n", f.seed)
	t := total{faults: map[string]int{}, messages: map[string]int{}}
	progress := began
	for seed := f.seed; ; seed++ {
		if f.profile != "" && sim.ProfileOf(seed) != f.profile {
			continue
		}
		o := sim.Options{Seed: seed, Keep: f.keep}
		if f.verbose {
			o.Say = func(line string) { fmt.Println(line) }
		}
		r := sim.Run(o)
		t.add(r)
		if r.Violation != nil {
			t.print(time.Since(began))
			failed(f, o, r)
			return false
		}
		real := time.Since(began)
		if t.simulated.Hours() >= f.hours && real.Minutes() >= f.minutes {
			break
		}
		if time.Since(progress) > 30*time.Second {
			progress = time.Now()
			fmt.Printf("%8.1f h simulated, %.0f times real time, at seed %d\n",
				t.simulated.Hours(), t.simulated.Seconds()/real.Seconds(), seed)
		}
	}
	t.print(time.Since(began))
	fmt.Println("every promise was kept")
	return true
}

func (t *total) print(real time.Duration) {
	fmt.Printf("worlds %d, simulated %s in %s: %.0f times real time\n",
		t.worlds, t.simulated.Round(time.Second), real.Round(time.Millisecond), t.simulated.Seconds()/real.Seconds())
	fmt.Printf("operations %d, store and broker calls %d, steps %d\n", t.operations, t.calls, t.steps)
	fmt.Print("messages:")
	for _, name := range slices.Sorted(maps.Keys(t.messages)) {
		fmt.Printf(" %s %d", name, t.messages[name])
	}
	fmt.Print("\nfaults:")
	for _, name := range slices.Sorted(maps.Keys(t.faults)) {
		fmt.Printf(" %s %d,", name, t.faults[name])
	}
	fmt.Printf("\ntrace %016x\n", t.trace)
}

// failed makes a failure short, and prints it.
func failed(f flags, o sim.Options, r sim.Result) {
	fmt.Printf("seed %d (%s): %s\n", o.Seed, r.Profile, r.Violation)
	o.Say = nil
	short := sim.Shrink(o, r, time.Now().Add(f.shrink))
	var lines []string
	o.Keep, o.Say = short.Items, func(line string) { lines = append(lines, line) }
	short = sim.Run(o)
	fmt.Printf("the shortest failure found, with %d of %d items:\n", len(short.Items), len(r.Items))
	if len(lines) > traceMax {
		fmt.Printf("(%d lines before)\n", len(lines)-traceMax)
	}
	for _, line := range lines[max(0, len(lines)-traceMax):] {
		fmt.Println(line)
	}
	fmt.Printf("trace %016x\nreplay it with: go run ./cmd/sim -v -seed %d -keep %s\n",
		short.Trace, o.Seed, sim.Ranges(short.Items))
}
