// Command retest runs go test, and tries again what failed, so that one unlucky
// schedule undoes no run and hides no bug:
//
//	go run ./cmd/retest [-report file] packages -- flags of go test
//
// Each test that failed runs again, alone, three times, with the flags, the
// environment and the seed of the first time. Where it passes all three times the run
// goes on, and the report says FLAKY, its name, its seed and all that it printed when
// it failed. Such a line is a bug with a name: it goes into docs/bugs.md. Without
// -report the report is the last that is printed.
//
// It ends with 1 where a test fails again, and, without another try of anything, where
// a package was not built, a test raced, panicked, took too long or was killed, or
// said that a promise is broken (testrun.Broken). It ends with 2 where it was called
// wrongly.
//
// The obvious alternative, gotestsum, passes a test that passes once, cannot run it
// three times, and reports neither what it said at first nor its seed; it stops at
// races and at most panics, but knows no mark of one's own. What is left of it then is
// a reader of test2json's events, which encoding/json is as well.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/postdate/postdate/internal/testrun"
)

// tries is how often a test that failed must pass.
const tries = 3

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// runner is one call of the command.
type runner struct {
	packages, flags []string
	report          string
	stdout, stderr  io.Writer
}

func run(args []string, stdout, stderr io.Writer) int {
	r := &runner{stdout: stdout, stderr: stderr}
	set := flag.NewFlagSet("retest", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&r.report, "report", "", "write what is flaky into this file")
	if set.Parse(args) != nil {
		return 2
	}
	split := slices.Index(set.Args(), "--")
	if split < 1 {
		fmt.Fprintln(stderr, "retest: call it as: retest [-report file] packages -- flags of go test")
		return 2
	}
	r.packages, r.flags = set.Args()[:split], set.Args()[split+1:]
	if os.Getenv(testrun.SeedName) == "" {
		os.Setenv(testrun.SeedName, fmt.Sprint(rand.Uint64()>>24)) // one for all, and for the tries
	}
	flaky, err := r.all()
	if err := errors.Join(err, r.write(flaky)); err != nil {
		fmt.Fprintln(stdout, "retest:", err)
		return 1
	}
	return 0
}

// all runs every test, and again what failed. It returns reports of those that passed
// then, and an error where the run fails.
func (r *runner) all() (flaky []string, err error) {
	first, err := r.goTest(nil, r.packages)
	if err != nil {
		return nil, err
	}
	if len(first.fatal) > 0 {
		return nil, fmt.Errorf("nothing is tried again: %s", strings.Join(first.fatal, "; "))
	}
	for _, f := range first.failed {
		for n := range tries {
			fmt.Fprintf(r.stdout, "retest: %s %s failed: it runs again, alone, %d of %d\n", f.pkg, f.name, n+1, tries)
			if err := r.again(f.test); err != nil {
				return flaky, fmt.Errorf("%s %s %w", f.pkg, f.name, err)
			}
		}
		flaky = append(flaky, f.flaky(os.Getenv(testrun.SeedName)))
	}
	return flaky, nil
}

// again runs a test alone. An error says that it did not pass.
func (r *runner) again(t test) error {
	result, err := r.goTest([]string{"-count=1", "-run", "^" + regexp.QuoteMeta(t.name) + "$"}, []string{t.pkg})
	switch {
	case err != nil:
		return err
	case len(result.fatal) > 0:
		return fmt.Errorf("failed, and then: %s", strings.Join(result.fatal, "; "))
	case len(result.failed) > 0:
		return errors.New("failed again")
	case !slices.Contains(result.passed, t):
		return errors.New("failed, and then was not run or skipped itself")
	}
	return nil
}

// goTest runs go test once, and shows what it says. An error says that it could not
// be run.
func (r *runner) goTest(more, packages []string) (outcome, error) {
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), slices.Concat([]string{"test", "-json"}, r.flags, more,
		packages)...)
	cmd.Stderr = r.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	results := newResults(slices.Contains(r.flags, "-v"))
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			fmt.Fprint(r.stdout, results.step(e))
		} else {
			fmt.Fprintf(r.stdout, "%s", line)
		}
		if err == io.EOF {
			return results.finish(cmd.Wait()), nil
		}
		if err != nil {
			return outcome{}, err
		}
	}
}

// write puts the reports where they were asked for.
func (r *runner) write(flaky []string) error {
	text := strings.Join(flaky, "")
	if r.report == "" {
		_, err := fmt.Fprint(r.stdout, text)
		return err
	}
	return os.WriteFile(r.report, []byte(text), 0o644)
}
