//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
)

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args string
		want string // part of the error; "": none
	}{
		{"-scenario kill9 -duration 20s -seed 7 -rate 200 -race -v", ""},
		{"-scenario floppy", `no scenario "floppy"`},
		{"-rate 0", "between 1 and 100000"},
		{"-duration 1s", "at least 5s"},
		{"-scenario kill9 more", `not "more"`},
		{"-floppy", "help requested"},
	} {
		s, o, err := parse(strings.Fields(test.args), io.Discard)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.args, err)
		case test.want == "" && (s.name != "kill9" || o.duration != 20*time.Second || o.seed != 7 || o.rate != 200 || !o.race || !o.verbose):
			t.Errorf("%s: %+v", test.args, o)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", test.args, err, test.want)
		}
	}
}

// A call's end says surely that nothing was done only if the node says so, or the call was not
// sent.
func TestOutcomes(t *testing.T) {
	ledger := account.NewLedger(margins)
	for _, test := range []struct {
		err  error
		want account.Outcome
		odd  bool
	}{
		{nil, account.Done, false},
		{errNoNode, account.NotDone, false},
		{&client.NoAnswer{MayBeDone: true, Err: io.ErrUnexpectedEOF}, account.Unknown, false},
		{&client.NoAnswer{MayBeDone: true, Err: client.ErrGarbled}, account.Unknown, true},
		{&client.Problem{Status: 503, Type: client.Unavailable}, account.NotDone, false},
		{&client.Problem{Status: 504, Type: client.UnknownOutcome}, account.Unknown, false},
		{&client.Problem{Status: 500, Type: client.Internal}, account.Unknown, false},
		{&client.Problem{Status: 409, Type: client.TooLate}, account.TooLate, false},
		{&client.Problem{Status: 409, Type: client.Exists}, account.Unknown, true},
		{&client.Problem{Status: 400}, account.Unknown, true},
	} {
		before := len(ledger.Check().Violations)
		if o := outcomeOf(ledger, "a call", test.err); o != test.want {
			t.Errorf("%v: outcome %d, want %d", test.err, o, test.want)
		}
		if odd := len(ledger.Check().Violations) > before; odd != test.odd {
			t.Errorf("%v: odd is %t", test.err, odd)
		}
	}
}

func TestExitCodes(t *testing.T) {
	var out bytes.Buffer
	kept := account.Report{Sent: 1, Accepted: 1}
	broken := account.Report{Sent: 1, Accepted: 1, Violations: []account.Violation{{Kind: account.Lost, ID: "m"}}}
	for want, r := range map[int]outcome{
		exitKept: {Report: kept}, exitBroken: {Report: broken, Missed: []string{"late"}},
		exitSlow: {Report: kept, Missed: []string{"late"}}, exitFailed: {},
	} {
		if code := conclude(&out, scenarios[0], options{}, r); code != want {
			t.Errorf("%+v: exit code %d, want %d", r, code, want)
		}
	}
}

// play runs a scenario and requires that every promise is kept. A time limit that was exceeded
// is logged, but does not fail the test: the machine may be busy.
func play(t *testing.T, s scenario, o options) {
	t.Helper()
	err := s.config.Possible()
	if err != nil {
		t.Skip(err)
	}
	if o.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
		t.Fatal(err)
	}
	o.out, o.verbose = t.Output(), true
	result, err := runCampaign(t.Context(), s, o)
	code := conclude(t.Output(), s, o, result)
	if err != nil {
		t.Error(err)
	}
	if code != exitKept && code != exitSlow {
		t.Errorf("the nodes' logs are in %s", o.dir)
	} else {
		os.RemoveAll(o.dir)
	}
}

// A short campaign, which tries the harness and the promises with every change.
func TestKillOneOfThree(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts MongoDB, RabbitMQ and three nodes")
	}
	s, _ := scenarioNamed("kill9")
	s.drive = killNode
	play(t, s, options{duration: 12 * time.Second, rate: 200, races: 0.2, seed: 1})
}

// Every scenario, with POSTDATE_CHAOS=1.
func TestScenarios(t *testing.T) {
	if os.Getenv("POSTDATE_CHAOS") == "" {
		t.Skip("set POSTDATE_CHAOS=1 to run every scenario, which takes about half an hour")
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { play(t, s, options{duration: time.Minute, rate: 1000, races: 0.2, seed: 1}) })
	}
}
