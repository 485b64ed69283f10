package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// side is one of the two states of the code.
type side struct {
	label    string
	dir      string // of its checkout
	worktree bool   // which is removed at the end
	programs map[string]string
}

// goCommand is the go command that make uses.
func goCommand() string { return cmp.Or(os.Getenv("GO"), "go") }

// git runs git in the work tree and returns its first line.
func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return first, nil
}

// sides checks the base out, and says what is compared. The base is to be removed also if there is
// an error.
func (c *comparison) sides(ctx context.Context) (base, work *side, err error) {
	base = &side{label: labelBase, dir: filepath.Join(c.dir, "base"), programs: map[string]string{}}
	top, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return base, nil, err
	}
	work = &side{label: labelWork, dir: top, programs: map[string]string{}}
	changes, err := git(ctx, "status", "--porcelain")
	if err != nil {
		return base, nil, err
	}
	commit := cmp.Or(c.base, defaultBase(ctx, changes != ""))
	if _, err := git(ctx, "worktree", "add", "--detach", base.dir, commit); err != nil {
		return base, nil, err
	}
	base.worktree = true
	shown, err := git(ctx, "log", "-1", "--format=%h %s", commit)
	if err != nil {
		return base, nil, err
	}
	head, err := git(ctx, "log", "-1", "--format=%h %s")
	if changes != "" {
		head = "the work tree, changed since " + head
	}
	fmt.Fprintf(c.stdout, "base: %s\nwork: %s\n", shown, head)
	return base, work, err
}

// defaultBase is the base if none was given.
func defaultBase(ctx context.Context, changed bool) string {
	base, err := git(ctx, "merge-base", "HEAD", "origin/main")
	head, headErr := git(ctx, "rev-parse", "HEAD")
	switch {
	case err == nil && headErr == nil && base != head:
		return base
	case changed:
		return "HEAD"
	}
	return "HEAD~1"
}

// remove removes the checkout, also when the command was interrupted.
func (s *side) remove() {
	if s.worktree {
		if _, err := git(context.Background(), "worktree", "remove", "--force", s.dir); err != nil {
			fmt.Fprintln(os.Stderr, "benchcompare:", err)
		}
	}
}

// build builds the test programs of both sides, and returns the paths that are worth
// measuring: those that both have and that are not built the same.
func (c *comparison) build(ctx context.Context, base, work *side) (todo []hotPath, err error) {
	same := map[string]bool{}
	for _, h := range c.paths {
		if _, done := same[h.folder]; !done {
			for _, s := range []*side{base, work} {
				if err := s.build(ctx, filepath.Join(c.dir, s.label+"-programs"), h.folder); err != nil {
					return nil, err
				}
			}
			if same[h.folder], err = c.alike(base, work, h.folder); err != nil {
				return nil, err
			}
		}
		if base.programs[h.folder] != "" && work.programs[h.folder] != "" && (c.same || !same[h.folder]) {
			todo = append(todo, h)
		}
	}
	return todo, nil
}

// build builds the test program of a package, if the package is there and has one.
func (s *side) build(ctx context.Context, to, folder string) error {
	if _, err := os.Stat(filepath.Join(s.dir, folder)); err != nil {
		return nil
	}
	program := filepath.Join(to, strings.ReplaceAll(folder, "/", "-"))
	// Without the paths of the checkout, the same code becomes the same program.
	cmd := exec.CommandContext(ctx, goCommand(), "test", "-c", "-trimpath", "-buildvcs=false", "-o", program,
		"./"+folder)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the tests of %s in the %s do not build: %w\n%s", folder, s.label, err, out)
	}
	if _, err := os.Stat(program); err == nil {
		s.programs[folder] = program
	}
	return nil
}

// alike says whether both programs are the same, byte for byte. It tells of what is not measured.
func (c *comparison) alike(base, work *side, folder string) (bool, error) {
	var programs [2][]byte
	for i, s := range []*side{base, work} {
		if s.programs[folder] == "" {
			fmt.Fprintf(c.stdout, "not compared: %s has no tests in the %s\n", folder, s.label)
			return false, nil
		}
		var err error
		if programs[i], err = os.ReadFile(s.programs[folder]); err != nil {
			return false, err
		}
	}
	same := bytes.Equal(programs[0], programs[1])
	if same && !c.same {
		fmt.Fprintf(c.stdout, "not measured: %s is the same on both sides\n", folder)
	}
	return same, nil
}
