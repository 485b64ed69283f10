// Command postdate is the delayed-message queue and its client in one binary: "postdate serve"
// runs a node, "postdate demo" shows it at work, and the other commands talk to a running node
// over HTTP. It contains no logic of the queue: flags, environment and file go in, and one node
// comes out.
//
// Exit codes of every command: 0 success; 1 failure (a sentence on standard error says why); 2
// wrong use (flags, arguments, environment or configuration file), and nothing was done.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// process is the part of its process that a command may use.
type process struct {
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	environ []string // NAME=value
}

func main() {
	os.Exit(run(os.Args[1:], process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
	}))
}

// run runs the command once and returns the exit code.
func run(args []string, p process) int {
	root := newRoot(p)
	root.SetArgs(args)
	called, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	var failed *failure
	var usage *usageError
	switch {
	case errors.As(err, &usage):
	case errors.As(err, &failed):
		fmt.Fprintf(p.stderr, "postdate: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(p.stderr, "postdate: %v\nRun '%s --help' for how to call it.\n", err, called.CommandPath())
	return exitUsage
}

// version is set by the release build (-ldflags "-X main.version=v1.2.3").
var version = ""

// buildVersion is what "postdate version" shows: the release, or else what the Go tool recorded
// in the binary.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
