//go:build linux

// Command chaos runs a Postdate cluster of real processes under load, injects faults, heals
// them, and accounts for every message that was ever acknowledged.
//
//	go run ./cmd/chaos -scenario kill9 -duration 1m -seed 7 -v
//
// Exit codes: 0 if no message was lost, early, delivered after a cancel that was answered with
// 200, or delivered twice without its mark; 1 if a promise was broken; 2 if the campaign itself
// could not run; 3 if all promises were kept but something took longer than the scenario
// allows. The sequence of faults depends only on the seed.
//
// It needs Linux, and root for scenarios that cut networks or fill disks.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit codes.
const (
	exitKept   = 0
	exitBroken = 1
	exitFailed = 2
	exitSlow   = 3
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	s, o, err := parse(args, stderr)
	if err != nil {
		if err != flag.ErrHelp {
			fmt.Fprintln(stderr, "chaos:", err)
		}
		return exitFailed
	}
	o.out = stdout
	if o.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := runCampaign(ctx, s, o)
	code := conclude(stdout, s, o, result)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		code = max(code, exitFailed)
		if len(result.Violations) > 0 {
			code = exitBroken
		}
	}
	if code == exitKept {
		_ = os.RemoveAll(o.dir)
	} else {
		fmt.Fprintln(stdout, "the nodes' logs are in", o.dir)
	}
	return code
}

// parse parses the command line.
func parse(args []string, stderr io.Writer) (scenario, options, error) {
	var o options
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("scenario", "mixed", "what is to go wrong:\n"+list())
	flags.DurationVar(&o.duration, "duration", 2*time.Minute,
		"how long the load lasts; a fault that has begun is finished")
	flags.IntVar(&o.rate, "rate", 1000, "schedules per second")
	flags.Float64Var(&o.races, "races", 0.2,
		"the share of messages that are cancelled or moved, half of them close to their time")
	flags.Uint64Var(&o.seed, "seed", 1, "the sequence of faults")
	flags.BoolVar(&o.race, "race", false, "build the nodes with the race detector")
	flags.StringVar(&o.binary, "binary", "", "the postdate command to run (default: the one in this module is built)")
	flags.BoolVar(&o.verbose, "v", false, "tell what goes on")
	if err := flags.Parse(args); err != nil {
		return scenario{}, o, flag.ErrHelp // flag has printed it
	}
	s, ok := scenarioNamed(*name)
	switch {
	case flags.NArg() > 0:
		return s, o, fmt.Errorf("it takes flags only, not %q", flags.Arg(0))
	case !ok:
		return s, o, fmt.Errorf("there is no scenario %q; there are\n%s", *name, list())
	case o.races < 0 || o.races > 1:
		return s, o, fmt.Errorf("-races %v is no share: it must be between 0 and 1", o.races)
	case o.rate < 1 || o.rate > 100_000:
		return s, o, fmt.Errorf("-rate is %d: it must be between 1 and 100000", o.rate)
	case o.duration < warmUp:
		return s, o, fmt.Errorf("-duration is %s: it must be at least %s, for faults begin only then",
			o.duration, warmUp)
	}
	if err := s.config.Possible(); err != nil {
		return s, o, fmt.Errorf("the scenario %s cannot be run here: %w", s.name, err)
	}
	return s, o, nil
}

// conclude prints the result of a campaign and returns the exit code.
func conclude(w io.Writer, s scenario, o options, r outcome) int {
	if r.Sent == 0 {
		return exitFailed
	}
	fmt.Fprintf(w, "\nscenario %s, seed %d, %d schedules/s\n%s", s.name, o.seed, o.rate, r.Report)
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
	for _, m := range r.Missed {
		fmt.Fprintln(w, "TOO SLOW", m)
	}
	switch {
	case len(r.Violations) > 0:
		fmt.Fprintf(w, "BROKEN: %d violations\n", len(r.Violations))
		return exitBroken
	case len(r.Missed) > 0:
		fmt.Fprintln(w, "every promise was kept, but not in time")
		return exitSlow
	case r.Accepted == 0:
		fmt.Fprintln(w, "nothing was accepted: this shows nothing")
		return exitFailed
	}
	fmt.Fprintln(w, "every promise was kept")
	return exitKept
}
