package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program is a benchmark that takes as long as it is told to say, so that no clock decides.
const program = `package p

import "testing"

func benchmark(b *testing.B, cost float64) {
	for range b.N {
	}
	b.ReportMetric(cost, "cpu-µs/msg")
}

func BenchmarkSlow(b *testing.B) { benchmark(b, %s) }
func BenchmarkSteady(b *testing.B) { benchmark(b, 5) }
`

var paths = []hotPath{{folder: "p", names: "Slow|Steady|Fresh", times: "1x"}, {folder: "q", names: "Other", times: "1x"}}

// repository is one with a commit in which the benchmark costs 1.
func repository(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	write(t, "go.mod", "module github.com/postdate/postdate\n\ngo 1.26\n")
	write(t, "p/p_test.go", fmt.Sprintf(program, "1"))
	write(t, "q/q_test.go", "package q\n\nimport \"testing\"\n\nfunc BenchmarkOther(b *testing.B) {}\n")
	command(t, "git", "init", "-q", "-b", "main")
	commit(t)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func commit(t *testing.T) {
	t.Helper()
	command(t, "git", "add", "-A")
	command(t, "git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "one")
}

// compare runs the command with the benchstat of the Makefile, and checks that it leaves nothing.
func compare(t *testing.T, makefile string, args ...string) (code int, said string) {
	t.Helper()
	pinned := regexp.MustCompile(`BENCHSTAT := (\S+)`).FindStringSubmatch(makefile)
	if pinned == nil {
		t.Fatal("the Makefile names no benchstat")
	}
	var out bytes.Buffer
	code = run(t.Context(), paths, append([]string{"-benchstat", pinned[1], "-rounds", "7"}, args...), &out, &out)
	if trees := command(t, "git", "worktree", "list"); strings.Count(trees, "\n") != 1 {
		t.Errorf("it leaves a worktree:\n%s", trees)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "benchcompare-*")); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	return code, out.String()
}

func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("benchstat comes from the network")
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	repository(t)
	for _, c := range []struct {
		name, cost string
		more       string // added to the program
		args       []string
		code       int
		has, lacks []string
	}{
		{name: "the same", cost: "1", code: 0, has: []string{"p is the same on both sides", "Nothing is worse"}},
		{name: "the same, measured", cost: "1", args: []string{"-same"}, has: []string{"Slow", "Nothing is worse"},
			lacks: []string{"same on both sides"}},
		{name: "a loss", cost: "1.25", code: 1, lacks: []string{"p Steady-"},
			has: []string{"once more", "measured twice:\n  p Slow-", "cpu-µs/msg 1 → 1.25 (+25.00%", "q is the same"}},
		{name: "a new one", cost: "1", more: "func BenchmarkFresh(b *testing.B) {}\n",
			has: []string{"not compared: p Fresh", "is new", "Nothing is worse"}},
		{name: "one that fails", cost: "1", more: "func BenchmarkFresh(b *testing.B) { b.Fatal(\"no\") }\n", code: 2,
			has: []string{"in the work", "no"}},
		{name: "does not build", cost: "x", code: 2, has: []string{"the tests of p in the work do not build", "undefined: x"}},
		{name: "no such base", cost: "1", args: []string{"-base", "nowhere"}, code: 2, has: []string{"nowhere"}},
		{name: "no such package", cost: "1", args: []string{"-only", "p,r"}, code: 2, has: []string{"-only r"}},
		{name: "too few rounds", cost: "1", args: []string{"-rounds", "6"}, code: 2, has: []string{"at least 7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, "p/p_test.go", fmt.Sprintf(program, c.cost)+c.more)
			code, said := compare(t, string(makefile), append([]string{"-base", "HEAD"}, c.args...)...)
			if code != c.code {
				t.Errorf("it ends with %d, not %d", code, c.code)
			}
			for _, has := range c.has {
				if !strings.Contains(said, has) {
					t.Errorf("it does not say %q", has)
				}
			}
			for _, lacks := range c.lacks {
				if strings.Contains(said, lacks) {
					t.Errorf("it says %q", lacks)
				}
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
}

func TestDefaultBase(t *testing.T) {
	repository(t)
	first := strings.TrimSpace(command(t, "git", "rev-parse", "HEAD"))
	base := func(changed bool, want string) {
		t.Helper()
		if got := defaultBase(t.Context(), changed); got != want {
			t.Errorf("the base is %s, not %s", got, want)
		}
	}
	base(true, "HEAD") // there is no origin/main
	base(false, "HEAD~1")
	command(t, "git", "update-ref", "refs/remotes/origin/main", first)
	base(true, "HEAD") // which is origin/main
	base(false, "HEAD~1")
	write(t, "p/more.go", "package p\n")
	commit(t)
	base(true, first)
	base(false, first)
}

// TestAMissingServer leaves out what a test says it needs, and no other failure.
func TestAMissingServer(t *testing.T) {
	t.Chdir(t.TempDir())
	for text, left := range map[string]bool{"this test needs a broker: run make deps": true, "it crashed": false} {
		write(t, "program", "#!/bin/sh\necho '"+text+"'\nexit 1\n")
		if err := os.Chmod("program", 0o700); err != nil {
			t.Fatal(err)
		}
		s := &side{label: labelBase, programs: map[string]string{"": "./program"}}
		var out bytes.Buffer
		c := comparison{rounds: roundsMin, stdout: &out, stderr: &out}
		err := c.rounded(t.Context(), []hotPath{{server: true}}, []*side{s, s}, []string{"a", "b"})
		if left != (err == nil) || left != strings.Contains(out.String(), "it needs a broker: run make deps") {
			t.Errorf("%s: %v, %s", text, err, out.String())
		}
	}
}
