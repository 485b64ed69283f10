package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a peer's server: installed, or built from source.
type program struct {
	name        string
	apt         string   // the package that has it on Debian and Ubuntu; "": it is built
	variable    string   // of the environment, may name a binary that is built already
	folder      string   // where it is built
	source      string   // the Go package
	versionArgs []string // make it print its version
}

// missingError says that a server is not installed, and what to do.
type missingError struct{ program }

func (e missingError) Error() string {
	return fmt.Sprintf("%s is not installed: run apt install %s, or leave out what is missing with -skip-missing",
		e.name, e.apt)
}

// prepare finds or builds the program, once for all peers that use it. A binary that it builds is in dir.
func (p program) prepare(ctx context.Context, dir string) (binary, version string, err error) {
	switch {
	case p.apt != "":
		if binary, err = exec.LookPath(p.name); err != nil {
			return "", "", missingError{p}
		}
	case p.variable != "" && given[p.variable] != "":
		binary = given[p.variable]
	default:
		binary = filepath.Join(dir, p.name)
		if _, err := os.Stat(binary); err != nil {
			build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, p.source)
			build.Dir = p.folder
			if out, err := build.CombinedOutput(); err != nil {
				return "", "", fmt.Errorf("cannot build %s (run this in the folder bench of a clone): %w\n%s",
					p.name, err, out)
			}
		}
	}
	out, err := exec.CommandContext(ctx, binary, p.versionArgs...).Output()
	if err != nil {
		return "", "", fmt.Errorf("cannot ask %s for its version: %w", binary, err)
	}
	return binary, shortVersion(string(out)), nil
}

// shortVersion returns the program's name and version from what it prints: at most three words,
// and none in brackets.
func shortVersion(printed string) string {
	printed, _, _ = strings.Cut(printed, "(")
	words := strings.Fields(printed)
	return strings.Join(words[:min(3, len(words))], " ")
}

// given are the variables of the environment that name a binary.
var given = map[string]string{}

// clearEnvironment takes away what the environment has for a node or a client of Postdate: what is
// measured is what README.md says. It keeps the names of binaries.
func clearEnvironment() {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "POSTDATE_") {
			given[name] = value
			os.Unsetenv(name)
		}
	}
}
