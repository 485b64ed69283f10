package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/postdate/postdate/internal/testrun"
)

// event is a line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string // with its subtest; "": of the package
	Output  string
}

// test is a test that can be run alone: one of the top level, for its subtests may
// share what it has made.
type test struct{ pkg, name string }

// failure is a test that failed in good order, so that it may be tried again.
type failure struct {
	test
	output string // all that it printed, with its subtests
}

// outcome is what one run of go test came to.
type outcome struct {
	passed []test
	failed []failure
	fatal  []string // what fails the run without another try, a sentence each
}

// results are what was said so far in one run of go test.
type results struct {
	verbose  bool // show what passing tests print as well
	packages map[string]*packageResult
	outcome  outcome
}

// packageResult is what is known of a package that has not ended.
type packageResult struct {
	output map[string]*strings.Builder // by top-level test; "": the package's own
	order  []string                    // tests as they began
	ended  map[string]string           // how top-level tests ended: pass, fail or skip
}

func newResults(verbose bool) *results {
	return &results{verbose: verbose, packages: map[string]*packageResult{}}
}

// step takes what go test says next, and returns what to show a reader now: of a
// package that ended what go test itself would print.
func (r *results) step(e event) (show string) {
	if e.Package == "" {
		return e.Output // of the compiler; the package fails behind it
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &packageResult{output: map[string]*strings.Builder{}, ended: map[string]string{}}
		r.packages[e.Package] = p
	}
	top, _, sub := strings.Cut(e.Test, "/")
	switch e.Action {
	case "output":
		p.write(top, e.Output)
	case "run":
		p.write(top, "") // it has begun
	case "pass", "fail", "skip":
		if e.Test == "" {
			delete(r.packages, e.Package)
			return r.end(e, p)
		}
		if !sub {
			p.ended[top] = e.Action
		}
	}
	return ""
}

// framing are the lines by which go test says which test speaks.
var framing = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)

func (p *packageResult) write(top, text string) {
	if p.output[top] == nil {
		p.output[top] = &strings.Builder{}
		p.order = append(p.order, top)
	}
	if !framing.MatchString(text) {
		p.output[top].WriteString(text)
	}
}

func (p *packageResult) said(top string) string {
	if p.output[top] == nil {
		return ""
	}
	return p.output[top].String()
}

// closing are the lines by which go test says how a package that passed did.
var closing = regexp.MustCompile(`(?m)^(ok  \t|\?   \t|\t).*\n`)

// end judges a package that has ended, and shows it.
func (r *results) end(e event, p *packageResult) (show string) {
	var unfinished []string
	var failed []failure
	for _, top := range p.order {
		how := p.ended[top]
		switch {
		case top == "":
			continue
		case how == "":
			unfinished = append(unfinished, top)
		case how == "fail":
			failed = append(failed, failure{test{e.Package, top}, p.said(top)})
		case how == "pass":
			r.outcome.passed = append(r.outcome.passed, test{e.Package, top})
		}
		if how == "" || how == "fail" || r.verbose {
			show += p.said(top)
		}
	}
	if e.Action != "fail" {
		if r.verbose {
			return show + p.said("")
		}
		return strings.Join(closing.FindAllString(p.said(""), -1), "")
	}
	if why := p.fatal(unfinished, len(failed)); why != "" {
		r.outcome.fatal = append(r.outcome.fatal, e.Package+": "+why)
	} else {
		r.outcome.failed = append(r.outcome.failed, failed...)
	}
	return show + p.said("")
}

// marks are what is never tried again, wherever in a failed package's output it
// stands: go test may take one test's words for another's.
var marks = []struct {
	mark *regexp.Regexp
	what string
}{
	{regexp.MustCompile(regexp.QuoteMeta(testrun.Broken)), "a promise is broken"},
	{regexp.MustCompile(`WARNING: DATA RACE|race detected`), "a data race"},
	{regexp.MustCompile(`(?m)^\s*panic: test timed out|^\*\*\* Test killed`), "it took too long"},
	{regexp.MustCompile(`(?m)^\s*(panic|fatal error): |\bgoroutine \d+ \[|http: panic serving|a (handler|publisher) panicked`), "a panic"},
}

// fatal says why a failed package's tests are not tried again, or "".
func (p *packageResult) fatal(unfinished []string, failed int) string {
	for _, m := range marks {
		for _, top := range p.order {
			if !m.mark.MatchString(p.said(top)) {
				continue
			}
			return m.what + ", said by " + cmp.Or(top, "the package")
		}
	}
	switch {
	case len(unfinished) > 0:
		return "its tests ended before their time, in " + strings.Join(unfinished, ", ")
	case failed == 0:
		return "it failed without a failed test: it was not built, or its tests did not run to their end"
	case !slices.Contains(strings.Split(p.said(""), "\n"), "FAIL"):
		// A test program that comes to its end says so.
		return "its tests ended before their time"
	}
	return ""
}

// finish is what the run came to. exited is the error with which go test ended.
func (r *results) finish(exited error) outcome {
	for name := range r.packages {
		r.outcome.fatal = append(r.outcome.fatal, name+": go test ended before it")
	}
	slices.Sort(r.outcome.fatal)
	if o := &r.outcome; exited != nil && len(o.failed)+len(o.fatal) == 0 {
		o.fatal = append(o.fatal, fmt.Sprintf("go test: %v, and no package failed", exited))
	}
	return r.outcome
}

// seedLine is how a test says which seed it draws from.
var seedLine = regexp.MustCompile(`\bseed (\d+)\b`)

// flaky reports a test that failed and then passed every time. seed is the run's.
func (f failure) flaky(seed string) string {
	if m := seedLine.FindStringSubmatch(f.output); m != nil {
		seed = m[1]
	}
	output := strings.TrimRight(f.output, "\n")
	return fmt.Sprintf("FLAKY %s %s, seed %s. It printed:\n    %s\n",
		f.pkg, f.name, seed, strings.ReplaceAll(output, "\n", "\n    "))
}
