package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// memoryKiB is what a program may take: a mutant may ask for ever more.
	memoryKiB = 8 << 20
	// timeMin is how long a program may run in any case, and timeFactor how much
	// longer than without a mutant.
	timeMin    = 10 * time.Second
	timeFactor = 10
	// quickTime is how long a test takes at most that is run together with others.
	quickTime = 100 * time.Millisecond
)

// errOver says that the time that was given to all mutants is over.
var errOver = errors.New("the time is over")

// check is what a mutant is run against: the simulator, or tests of a package.
type check struct {
	dir     string        // the package's; "": the simulator
	tests   string        // a pattern of their names, as for go test -run
	limit   time.Duration // how long it may take
	reached map[int]bool  // the mutants that it reaches
}

func (c check) String() string {
	if c.dir == "" {
		return "the simulator"
	}
	if n := strings.Count(c.tests, "|"); n > 0 {
		return fmt.Sprintf("%d tests of ./%s", n+1, c.dir)
	}
	return fmt.Sprintf("go test ./%s -run '%s'", c.dir, c.tests)
}

// outcome is how a program ended.
type outcome struct {
	passed  bool
	expired bool
	output  string
}

// play runs a check. An error says that it was cut short because the time of all is over.
func (b *bench) play(ctx context.Context, c check, env ...string) (outcome, error) {
	arguments := []string{"-seed", fmt.Sprint(b.f.simSeed), "-hours", fmt.Sprint(b.f.hours), "-shrink", "1ns"}
	if c.dir != "" {
		arguments = []string{"-test.failfast", "-test.v", "-test.run", c.tests, "-test.timeout", c.limit.String()}
	}
	own, stop := context.WithTimeout(ctx, c.limit+time.Second)
	defer stop()
	script := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memoryKiB)
	cmd := exec.CommandContext(own, "sh", append([]string{"-c", script, b.program(c.dir)}, arguments...)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, &out, &out
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	if ctx.Err() != nil {
		return outcome{}, ctx.Err()
	}
	return outcome{err == nil, own.Err() != nil, out.String()}, nil
}

var (
	traceLine   = regexp.MustCompile(`(?m)^trace ([0-9a-f]{16})$`)
	brokenLine  = regexp.MustCompile(`(?m)^BROKEN: .* (promise \d), `)
	passLine    = regexp.MustCompile(`(?m)^--- PASS: (\S+) \(([0-9.]+)s\)$`)
	failureLine = regexp.MustCompile(`(?m)^ *(?:--- FAIL: (\S+)|(panic: test timed out)|(panic: .*)|(fatal error: .*))`)
)

// measure runs a check with all switches off, and notes which mutants it reaches and how
// long it may take. It has to pass.
func (b *bench) measure(ctx context.Context, c *check) (output string, err error) {
	place, err := os.MkdirTemp(b.dir, "reached") // others are measured beside it
	if err != nil {
		return "", err
	}
	list := filepath.Join(place, "list")
	c.limit = 10 * time.Minute
	began := time.Now()
	o, err := b.play(ctx, *c, "POSTDATE_MUTANT=-1", "POSTDATE_MUTANTS_REACHED="+list)
	if err != nil {
		return "", err
	}
	if !o.passed {
		return "", fmt.Errorf("%v fails without a mutant:\n%s", c, o.output[:min(len(o.output), 4_000)])
	}
	c.limit = max(timeMin, timeFactor*time.Since(began))
	fmt.Printf("without a mutant, %v takes %s\n", c, time.Since(began).Round(10*time.Millisecond))
	text, err := os.ReadFile(list)
	if err != nil && !os.IsNotExist(err) {
		return "", err
	}
	c.reached = map[int]bool{}
	for _, field := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(field)
		if err != nil {
			return "", err
		}
		c.reached[id] = true
	}
	return o.output, nil
}

// measureAll measures the simulator and each test by itself, as many at a time as mutants are tried.
// A package's quick tests are then run together, since most mutants fail one of them, and each of
// the others by itself, the quickest first.
func (b *bench) measureAll(ctx context.Context) error {
	var all []*check
	if b.f.hours > 0 {
		all = append(all, &b.worlds)
	}
	for _, dir := range slices.Backward(b.dirs) { // the one that takes longest is first
		names, err := b.namesOf(ctx, dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			all = append(all, &check{dir: dir, tests: "^(" + name + ")$"})
		}
	}
	outputs, err := b.measureEach(ctx, all)
	if err != nil {
		return err
	}
	ofDir := map[string][]measured{}
	for i, c := range all {
		if c.dir == "" {
			b.trace = match(traceLine, outputs[i])
		}
		if found := passLine.FindStringSubmatch(outputs[i]); c.dir != "" && found != nil {
			seconds, _ := strconv.ParseFloat(found[2], 64)
			ofDir[c.dir] = append(ofDir[c.dir], measured{*c, found[1], seconds})
		}
	}
	for dir, tests := range ofDir {
		b.tests[dir] = byTime(dir, tests)
	}
	return nil
}

// namesOf lists the tests of a package, without its benchmarks.
func (b *bench) namesOf(ctx context.Context, dir string) ([]string, error) {
	cmd := exec.CommandContext(ctx, b.program(dir), "-test.list", "^(Test|Fuzz|Example)")
	cmd.Dir = dir
	out, err := cmd.Output()
	return strings.Fields(string(out)), err
}

// measureEach measures checks, and returns what each printed.
func (b *bench) measureEach(ctx context.Context, checks []*check) ([]string, error) {
	outputs := make([]string, len(checks))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, b.f.parallel))
	for i, c := range checks {
		group.Go(func() (err error) {
			outputs[i], err = b.measure(ctx, c)
			return err
		})
	}
	return outputs, group.Wait()
}

// measured is a test that passed by itself.
type measured struct {
	check
	name    string
	seconds float64
}

// byTime makes the checks of a package: its quick tests together, and each of the others by
// itself, the quickest first.
func byTime(dir string, tests []measured) (checks []check) {
	slices.SortStableFunc(tests, func(a, b measured) int { return cmp.Compare(a.seconds, b.seconds) })
	var names []string
	seconds, quick := 0.0, check{dir: dir, reached: map[int]bool{}}
	for _, m := range tests {
		if m.seconds >= quickTime.Seconds() {
			checks = append(checks, m.check)
			continue
		}
		names, seconds = append(names, m.name), seconds+m.seconds
		maps.Copy(quick.reached, m.reached)
	}
	if len(names) == 0 {
		return checks
	}
	quick.tests = "^(" + strings.Join(names, "|") + ")$"
	quick.limit = max(timeMin, timeFactor*time.Duration(seconds*float64(time.Second)))
	return append([]check{quick}, checks...)
}

// match is the first group of a pattern that matched, or "".
func match(pattern *regexp.Regexp, text string) string {
	for i, group := range pattern.FindStringSubmatch(text) {
		if i > 0 && group != "" {
			return group
		}
	}
	return ""
}

// try runs a mutant against the tests, and then against simulated worlds.
func (b *bench) try(ctx context.Context, m mutant) (r result, err error) {
	began := time.Now()
	r = result{mutant: m, InWorlds: b.worlds.reached[m.id], Result: lived, SameTrace: !b.worlds.reached[m.id]}
	for _, c := range append(slices.Clone(b.tests[m.Package]), b.worlds) {
		if !c.reached[m.id] {
			continue
		}
		r.InTests = r.InTests || c.dir != ""
		o, err := b.play(ctx, c, fmt.Sprintf("POSTDATE_MUTANT=%d", m.id))
		if err != nil {
			return r, err
		}
		if c.dir == "" {
			r.SameTrace = o.passed && match(traceLine, o.output) == b.trace
		}
		if !o.passed {
			r.Result, r.By = killedBy(c, o)
			break
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// killedBy says what killed a mutant: the tests or the simulator, and what of them.
func killedBy(c check, o outcome) (word, by string) {
	word, by = killedByTests, match(failureLine, o.output)
	if c.dir == "" {
		word, by = killedByWorlds, match(brokenLine, o.output)
	}
	if o.expired {
		return word, "it did not end"
	}
	return word, cmp.Or(by, lastLine(o.output))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// tryAll tries mutants until all are done or the time is over, and keeps each result as
// it comes.
func (b *bench) tryAll(ctx context.Context, todo []mutant, results map[string]result) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if b.f.limit > 0 {
		// What is under way then is cut short: a mutant has a result or none.
		defer time.AfterFunc(b.f.limit, func() { stop(errOver) }).Stop()
	}
	var mu sync.Mutex
	one := func(m mutant) error {
		r, err := b.try(ctx, m)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(r)
		results[m.Name()] = r
		return b.keep(r)
	}
	var workers sync.WaitGroup
	queue := make(chan mutant, len(todo))
	for _, m := range todo {
		queue <- m
	}
	close(queue)
	for range b.f.parallel {
		workers.Go(func() {
			for m := range queue {
				if err := one(m); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != errOver {
		return err
	}
	return nil
}
