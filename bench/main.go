// Command bench compares Postdate with other queues that delay messages, on one machine and under
// the same load, and measures how the cost of Postdate grows. README.md says what is compared, and how
// to read the figures.
//
// It is a module of its own, so that nobody who uses Postdate gets the other queues' clients.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	peers, workloads string // names, separated by commas
	n                int
	duration         time.Duration
	rate             int
	runs             int
	table            bool
	skipMissing      bool
	dir              string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		fail(commands[os.Args[1]](ctx, os.Args[2:]))
		return
	}
	var o options
	flag.StringVar(&o.peers, "peer", "", "peers, separated by commas")
	flag.StringVar(&o.workloads, "w", "", "workloads, separated by commas")
	flag.IntVar(&o.n, "n", 100_000, "messages of each workload but steady and crash")
	flag.DurationVar(&o.duration, "duration", 45*time.Second, "how long steady and crash schedule messages")
	flag.IntVar(&o.rate, "rate", 2000, "messages per second of steady and crash")
	flag.IntVar(&o.runs, "runs", 3, "runs of each peer and workload; the result is their median")
	flag.BoolVar(&o.table, "table", false, "print a table in Markdown in place of JSON lines")
	flag.BoolVar(&o.skipMissing, "skip-missing", false, "leave out peers whose server is not installed")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "the servers keep their data in a temporary folder in this one")
	list := flag.Bool("list", false, "list peers and workloads")
	flag.Parse()
	if *list || o.peers == "" || o.workloads == "" {
		printList(os.Stdout)
		return
	}
	fail(compare(ctx, o, os.Stdout, os.Stderr))
}

// commands are what else this program does, by the first argument.
var commands = map[string]func(ctx context.Context, args []string) error{
	"growth": growthCommand, "plot": plotCommand, "sizes": sizesCommand,
}

// fail ends the program with 1 if there is an error.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func printList(w io.Writer) {
	fmt.Fprintln(w, "go run . -peer NAME,... -w NAME,... measures; -help lists all flags.\n"+
		"go run . growth, plot or sizes measures Postdate alone: see README.md.\n\npeers:")
	for _, e := range entries {
		fmt.Fprintf(w, "  %-16s synced %s; %s\n", e.name, e.synced, e.settings)
	}
	fmt.Fprintln(w, "\nworkloads:")
	for _, l := range workloads {
		fmt.Fprintf(w, "  %-16s %s\n", l.name, l.about)
	}
}

// choose returns what the names, separated by commas, stand for.
func choose[T any](kind, names string, all []T, name func(T) string) (chosen []T, err error) {
	for one := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(t T) bool { return name(t) == one })
		if i < 0 {
			return nil, fmt.Errorf("there is no %s %q: -list shows what there is", kind, one)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// compare runs all that was asked for. It returns an error if a run failed.
func compare(ctx context.Context, o options, stdout, stderr io.Writer) error {
	peers, err := choose("peer", o.peers, entries, func(e entry) string { return e.name })
	if err != nil {
		return err
	}
	loads, err := choose("workload", o.workloads, workloads, func(w workload) string { return w.name })
	if err != nil {
		return err
	}
	if o.n < 1 || o.rate < 1 || o.runs < 1 || o.duration < 2*time.Second {
		return errors.New("-n, -rate and -runs are at least 1, and -duration at least 2s")
	}
	root, err := os.MkdirTemp(o.dir, "postdate-bench-")
	if err != nil {
		return fmt.Errorf("cannot make a temporary folder (-dir names another place): %w", err)
	}
	defer os.RemoveAll(root)
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	b := &bench{options: o, root: root, progress: stderr}
	b.report = report{machine: describeMachine(root)}
	if b.peers, err = b.prepare(ctx, peers); err != nil {
		return err
	}
	emit := jsonLines(stdout)
	if o.table {
		emit = func(result) error { return nil }
	}
	err = b.run(ctx, loads, emit)
	if o.table {
		err = errors.Join(err, b.report.writeTable(stdout)) // as far as it got
	}
	return errors.Join(err, b.report.failures())
}

// bench is one comparison.
type bench struct {
	options
	root     string // a temporary folder for all that is written
	peers    []prepared
	progress io.Writer
	report   report
}

// prepared is a peer whose server is installed or built.
type prepared struct {
	entry
	binary, version string
}

// prepare finds or builds the servers.
func (b *bench) prepare(ctx context.Context, peers []entry) (ready []prepared, err error) {
	clearEnvironment()
	for _, e := range peers {
		fmt.Fprintln(b.progress, "preparing", e.name)
		binary, version, err := e.program.prepare(ctx, b.root)
		if missing := (missingError{}); errors.As(err, &missing) && b.skipMissing {
			fmt.Fprintf(b.progress, "leaving out %s: %v\n", e.name, err)
			b.report.leftOut = append(b.report.leftOut, fmt.Sprintf("%s: %v", e.name, err))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		ready = append(ready, prepared{e, binary, version})
	}
	if len(ready) == 0 {
		return nil, errors.New("no peer is left")
	}
	return ready, nil
}

// run runs each workload with all peers in turn, and then again: what slows the machine down for
// a while slows down all of them.
func (b *bench) run(ctx context.Context, loads []workload, emit func(result) error) error {
	for _, w := range loads {
		for n := range b.runs {
			for _, p := range b.peers {
				fmt.Fprintf(b.progress, "%s: %s, run %d of %d\n", w.name, p.name, n+1, b.runs)
				r := b.runOnce(ctx, p, w)
				if ctx.Err() != nil {
					return errors.New("interrupted")
				}
				if r.Err != "" {
					fmt.Fprintln(b.progress, " ", r.Err)
				}
				r.Run = n + 1
				b.report.results = append(b.report.results, r)
				if err := emit(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
