package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// memoryKiB is what a program may take: a mutant may ask for ever more.
	memoryKiB = 8 << 20
	// timeMin is how long a program may run in any case, and timeFactor how much
	// longer than without a mutant.
	timeMin    = 10 * time.Second
	timeFactor = 10
)

// errOver says that the time that was given to all mutants is over.
var errOver = errors.New("the time is over")

// limit is how long a program may run.
type limit = time.Duration

// outcome is how a program ended.
type outcome struct {
	passed  bool
	expired bool
	output  string
}

// play runs the tests of a package, or with "" the simulator, with one mutant. An
// error says that it was cut short because the time of all is over.
func (b *bench) play(ctx context.Context, dir string, env ...string) (outcome, error) {
	arguments := []string{"-seed", fmt.Sprint(b.f.simSeed), "-hours", fmt.Sprint(b.f.hours), "-shrink", "1ns"}
	within := b.limits[dir]
	if within == 0 {
		within = 10 * time.Minute
	}
	if dir != "" {
		arguments = []string{"-test.failfast", "-test.timeout", within.String()}
	}
	own, stop := context.WithTimeout(ctx, within+time.Second)
	defer stop()
	script := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memoryKiB)
	cmd := exec.CommandContext(own, "sh", append([]string{"-c", script, b.program(dir)}, arguments...)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
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
	failureLine = regexp.MustCompile(`(?m)^ *(?:--- FAIL: (\S+)|(panic: test timed out)|(panic: .*)|(fatal error: .*))`)
)

// reached runs a program with all switches off. It has to pass.
func (b *bench) reached(ctx context.Context, dir string) (map[int]bool, error) {
	list := filepath.Join(b.dir, "reached")
	defer os.Remove(list)
	began := time.Now()
	o, err := b.play(ctx, dir, "POSTDATE_MUTANT=-1", "POSTDATE_MUTANTS_REACHED="+list)
	if err != nil {
		return nil, err
	}
	if !o.passed {
		return nil, fmt.Errorf("%s fails without a mutant:\n%s", title(dir), o.output[:min(len(o.output), 4_000)])
	}
	b.limits[dir] = max(timeMin, timeFactor*time.Since(began))
	if dir == "" {
		b.trace = match(traceLine, o.output)
	}
	fmt.Printf("without a mutant, %s takes %s\n", title(dir), time.Since(began).Round(10*time.Millisecond))
	text, err := os.ReadFile(list)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	ids := map[int]bool{}
	for _, field := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, nil
}

func title(dir string) string {
	if dir == "" {
		return "the simulator"
	}
	return "the test of " + dir
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
	r = result{mutant: m, InTests: b.inTests[m.id], InWorlds: b.inWorlds[m.id], Result: lived, SameTrace: !b.inWorlds[m.id]}
	for _, with := range []struct {
		dir, result string
		reached     bool
		pattern     *regexp.Regexp
	}{{m.Package, killedByTests, r.InTests, failureLine}, {"", killedByWorlds, r.InWorlds, brokenLine}} {
		if !with.reached {
			continue
		}
		o, err := b.play(ctx, with.dir, fmt.Sprintf("POSTDATE_MUTANT=%d", m.id))
		if err != nil {
			return r, err
		}
		if with.dir == "" {
			r.SameTrace = o.passed && match(traceLine, o.output) == b.trace
		}
		if !o.passed {
			r.Result, r.By = with.result, match(with.pattern, o.output)
			if o.expired || r.By == "" {
				r.By = "it did not end"
				if !o.expired {
					r.By = lastLine(o.output)
				}
			}
			break
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
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
