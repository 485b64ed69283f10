// Command mutants changes what decides in small ways, one at a time, and looks whether
// anybody notices: first the tests of the changed package, then, where they pass, the
// simulator (cmd/sim) with its checkers of the promises.
//
//	go run ./cmd/mutants                       all mutants of all pure packages
//	go run ./cmd/mutants -only fence,ring      those of these packages
//	go run ./cmd/mutants -for 2m -seed 7       as many as two minutes allow, drawn by a seed
//	go run ./cmd/mutants -match 'Machine.due'  those whose names contain this
//	go run ./cmd/mutants -among FILE           those whose names are lines of a file
//	go run ./cmd/mutants -list                 their names alone
//
// A mutant is an operator that became another one (< and <=, == and !=, + and -, &&
// and ||, min and max, true and false), a ! that is gone or too much, a continue that
// became a break, or a statement that is left out. Constants stay as they are. One that
// lives shows a test that is missing, or changes nothing; docs/mutants.md names those
// that are known. The command ends with 1 where one lives that is not named there.
//
// All mutants are built into one program for the tests of each package and one
// simulator (go build -overlay), with a switch for each, so that a mutant costs no build.
// A run with all switches off says which mutants are reached at all; the others are not
// tried. Results are kept for each package and state of the sources, so a run
// that was stopped goes on where it was.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// packages are the pure ones: their folders, and the files in them that do not decide.
// recurrence counts as soon as it is there.
var packages = []struct {
	dir  string
	skip []string
}{
	{"bucket", nil}, {"ring", nil}, {"fence", nil}, {"node/machine", nil}, {"recurrence", nil},
	{"poller", []string{"metrics.go"}},
}

// document names the mutants that live.
const document = "docs/mutants.md"

type flags struct {
	only, match, among string
	cache              string
	limit              time.Duration
	seed, simSeed      uint64
	hours              float64
	parallel           int
	list               bool
}

func main() {
	f := parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	unknown, err := run(ctx, f)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if unknown > 0 {
		os.Exit(1)
	}
}

func parse() (f flags) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	flag.StringVar(&f.only, "only", "", "packages, by their folders, with commas between; all if not given")
	flag.StringVar(&f.match, "match", "", "only mutants whose names contain this")
	flag.StringVar(&f.among, "among", "", "only mutants whose names are lines of this file, as -list prints them")
	flag.StringVar(&f.cache, "cache", filepath.Join(cache, "postdate", "mutants"), "the folder where results are kept")
	flag.DurationVar(&f.limit, "for", 0, "how long to try mutants, once all is built; 0: until all are done")
	flag.Uint64Var(&f.seed, "seed", 0, "draws the order; 0: as in the files")
	flag.Uint64Var(&f.simSeed, "simseed", 0, "the seed of the first world that is simulated")
	flag.Float64Var(&f.hours, "hours", 2, "how many hours to simulate with each mutant; 0: the tests alone")
	flag.IntVar(&f.parallel, "parallel", 1, "how many mutants are run at a time")
	flag.BoolVar(&f.list, "list", false, "print the names of all mutants, and run none")
	flag.Parse()
	return f
}

// run tries mutants, and says how many live that are not known.
func run(ctx context.Context, f flags) (unknown int, err error) {
	b, err := newBench(f)
	if err != nil {
		return 0, err
	}
	defer func() { os.RemoveAll(b.dir) }()
	if f.list {
		for _, m := range b.mutants {
			fmt.Println(m.Name())
		}
		return 0, nil
	}
	text, err := os.ReadFile(document)
	if err != nil {
		return 0, err
	}
	results, err := b.load()
	if err != nil {
		return 0, err
	}
	todo := slices.DeleteFunc(slices.Clone(b.mutants), func(m mutant) bool { return results[m.Name()].Result != "" })
	if f.seed != 0 {
		rand.New(rand.NewPCG(f.seed, 0)).Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	}
	for _, dir := range b.dirs {
		fmt.Println("results are kept in", b.file(dir))
	}
	fmt.Printf("%d mutants, of which %d are done; seed %d\n", len(b.mutants), len(b.mutants)-len(todo), f.seed)
	if len(todo) > 0 {
		if err := b.build(ctx); err != nil {
			return 0, err
		}
		if err := b.tryAll(ctx, todo, results); err != nil {
			return 0, err
		}
	}
	known := itemsIn(string(text))
	unknown = report(b.mutants, results, known)
	for _, item := range known.gone(b) {
		fmt.Printf("%s names one that is not there any more: %s\n", document, item)
	}
	return unknown, nil
}

// items are those of the document's lists that name a mutant.
type items []string

// itemsIn takes them out of the document's text.
func itemsIn(text string) (all items) {
	for line := range strings.Lines(text) {
		if item, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			all = append(all, item)
		}
	}
	return all
}

// names says whether an item names a mutant: behind the name is nothing, or a colon and
// the reason.
func names(item string, m mutant) bool {
	rest, ok := strings.CutPrefix(item, m.Name())
	return ok && (rest == "" || strings.HasPrefix(rest, ": "))
}

// name says whether one of them names a mutant.
func (all items) name(m mutant) bool {
	return slices.ContainsFunc(all, func(item string) bool { return names(item, m) })
}

// gone are those of the packages at hand that name no mutant.
func (all items) gone(b *bench) (gone items) {
	for _, item := range all {
		file, _, _ := strings.Cut(strings.TrimPrefix(item, "`"), "`")
		known := b.f.match != "" || b.f.among != "" || slices.ContainsFunc(b.mutants,
			func(m mutant) bool { return names(item, m) })
		if !known && slices.Contains(b.dirs, path.Dir(file)) {
			gone = append(gone, item)
		}
	}
	return gone
}
