// Command benchcompare runs the benchmarks of the hot paths (hotpaths.go) in two commits and
// fails if one of them has become slower:
//
//	go run ./cmd/benchcompare -benchstat package@version [-base commit] [-rounds 9] [-only api,poller]
//
// One side is a commit, in a git worktree in a temporary folder. The other is the work tree as it
// is. Without -base it is the merge base with origin/main. Where that is HEAD, and where there is
// no origin/main, it is HEAD if the work tree has changes, else HEAD~1.
//
// Both sides' test programs are built first. What is built the same cannot differ, and is
// left out. The others run in turn, one side after the other, so that both see the same machine.
// benchstat compares them. A benchmark is suspect if benchstat calls the difference
// significant and the median is worse by more than -limit percent. Whatever is suspect is measured
// once more, afresh: on a busy machine one of many is unlucky in one sample, but not in two.
// Only what is worse in both is a loss.
//
// What counts is the processor time per message, which other programs disturb least, or else
// the time per operation. The rest is only shown.
//
// It ends with 1 where there is a loss, and with 2 where something could not be measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, hotPaths, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// roundsMin leaves those that run every other round four samples. With fewer, benchstat calls nothing
// significant.
const roundsMin = 7

// comparison is one call of the command.
type comparison struct {
	base, benchstat string
	only            string // packages, with commas between; "": all
	rounds          int
	limit           float64 // percent
	same            bool    // measure also what is built the same
	paths           []hotPath
	dir             string // everything temporary
	stdout, stderr  io.Writer
}

func run(ctx context.Context, paths []hotPath, args []string, stdout, stderr io.Writer) int {
	c := &comparison{stdout: stdout, stderr: stderr, paths: paths}
	set := flag.NewFlagSet("benchcompare", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&c.base, "base", "", "the commit to compare with (default: see above)")
	set.StringVar(&c.only, "only", "", "packages, by their folders, with commas between; all if not given")
	set.IntVar(&c.rounds, "rounds", 9, "how often to run each benchmark on each side")
	set.Float64Var(&c.limit, "limit", 10, "how many percent worse is a loss")
	set.BoolVar(&c.same, "same", false, "measure also what is built the same on both sides")
	set.StringVar(&c.benchstat, "benchstat", "", "the package of benchstat with its version, for go run")
	if set.Parse(args) != nil {
		return 2
	}
	losses, err := c.compare(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "benchcompare:", err)
		return 2
	}
	if len(losses) > 0 {
		fmt.Fprintf(stdout, "\nWorse by more than %v %%, measured twice:\n", c.limit)
		for _, f := range losses {
			fmt.Fprintln(stdout, " ", f)
		}
		return 1
	}
	fmt.Fprintf(stdout, "\nNothing is worse by more than %v %%.\n", c.limit)
	return 0
}

// compare returns the losses.
func (c *comparison) compare(ctx context.Context) (losses []figure, err error) {
	if c.rounds < roundsMin {
		return nil, fmt.Errorf("-rounds %d are too few for a difference to be significant: give at least %d",
			c.rounds, roundsMin)
	}
	if c.benchstat == "" {
		return nil, errors.New("no -benchstat is given: run it with make bench-compare, which knows the version")
	}
	if err := c.choose(); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "benchcompare-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(c.dir)
	if _, err := c.stat(ctx, "-h"); err != nil { // before minutes are spent
		return nil, err
	}
	base, work, err := c.sides(ctx)
	defer base.remove()
	if err != nil {
		return nil, err
	}
	todo, err := c.build(ctx, base, work)
	if err != nil || len(todo) == 0 {
		return nil, err
	}
	figures, err := c.measure(ctx, "first", todo, base, work)
	if err != nil {
		return nil, err
	}
	for _, f := range alone(figures) {
		fmt.Fprintln(c.stdout, "not compared:", f)
	}
	suspects := worse(figures, c.limit)
	if len(suspects) == 0 {
		return nil, nil
	}
	fmt.Fprintf(c.stdout, "\nMeasured once more, because they look worse:\n")
	for _, f := range suspects {
		fmt.Fprintln(c.stdout, " ", f)
	}
	todo = slices.DeleteFunc(todo, func(h hotPath) bool { return !slices.ContainsFunc(suspects, h.has) })
	if figures, err = c.measure(ctx, "again", todo, base, work); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(worse(figures, c.limit), func(f figure) bool {
		return !slices.ContainsFunc(suspects, f.sameBenchmark)
	}), nil
}

// choose keeps the paths of the packages that -only names.
func (c *comparison) choose() error {
	if c.only == "" {
		return nil
	}
	only := strings.Split(c.only, ",")
	for _, name := range only {
		if !slices.ContainsFunc(c.paths, func(h hotPath) bool { return h.folder == name }) {
			return fmt.Errorf("-only %s: no hot path is in this package; cmd/benchcompare/hotpaths.go lists them", name)
		}
	}
	c.paths = slices.DeleteFunc(slices.Clone(c.paths), func(h hotPath) bool { return !slices.Contains(only, h.folder) })
	return nil
}

// stat runs benchstat.
func (c *comparison) stat(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, goCommand(), slices.Concat([]string{"run", c.benchstat}, args)...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go run %s: %w\n%s", c.benchstat, err, said.String())
	}
	return string(out), nil
}

// measure runs the benchmarks, shows what benchstat says of them, and returns it.
func (c *comparison) measure(ctx context.Context, name string, todo []hotPath, base, work *side) ([]figure, error) {
	files := []string{filepath.Join(c.dir, name+"-base"), filepath.Join(c.dir, name+"-work")}
	if err := c.rounded(ctx, todo, []*side{base, work}, files); err != nil {
		return nil, err
	}
	inputs := []string{labelBase + "=" + files[0], labelWork + "=" + files[1]}
	shown, err := c.stat(ctx, inputs...)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c.stdout, "\n%s", shown)
	table, err := c.stat(ctx, slices.Concat([]string{"-format", "csv"}, inputs)...)
	if err != nil {
		return nil, err
	}
	return read(table)
}
