package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// errNoServer says that a server cannot be had on this machine.
var errNoServer = errors.New("no server")

// noServer is in what a test says that lacks its server.
const noServer = "this test needs "

// rounded runs the paths' benchmarks on both sides in turn, and keeps what each side says in the
// file of its own.
func (c *comparison) rounded(ctx context.Context, todo []hotPath, sides []*side, files []string) error {
	left := map[string]bool{} // folders whose server is missing
	begun := time.Now()
	said := [2]bytes.Buffer{}
	for round := range c.rounds {
		for _, h := range todo {
			every := 1
			if h.server {
				every = 2
			}
			if round%every != 0 || left[h.folder] {
				continue
			}
			for turn := range sides {
				n := (turn + round/every) % len(sides) // who begins has other neighbours each time
				out, err := sides[n].bench(ctx, h)
				if errors.Is(err, errNoServer) && h.server {
					fmt.Fprintf(c.stdout, "not measured: %s: %v\n", h.folder, err)
					left[h.folder] = true
					break
				}
				if err != nil {
					return err
				}
				said[n].Write(out)
			}
		}
		fmt.Fprintf(c.stderr, "round %d of %d, after %s\n", round+1, c.rounds, time.Since(begun).Round(time.Second))
	}
	for n, file := range files {
		if err := os.WriteFile(file, said[n].Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// bench runs some benchmarks of one side and returns their lines.
func (s *side) bench(ctx context.Context, h hotPath) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.programs[h.folder], "-test.run", "^$", "-test.bench", h.pattern(),
		"-test.benchtime", h.times, "-test.benchmem")
	cmd.Dir = filepath.Join(s.dir, h.folder)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		if text := out.String(); strings.Contains(text, noServer) {
			_, why, _ := strings.Cut(text, noServer)
			why, _, _ = strings.Cut(why, "\n")
			return nil, fmt.Errorf("%w: it needs %s", errNoServer, why)
		}
		return nil, fmt.Errorf("%s %s in the %s: %w\n%s%s", h.folder, h.names, s.label, err,
			out.String(), errs.String())
	}
	return out.Bytes(), nil
}
