package sim

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// scenario is a small world without faults of its own.
func scenario(items ...item) *plan {
	p := &plan{
		profile: profileRaces, length: 11 * time.Second, buckets: 2, starting: 2,
		clocks: []clockPlan{{boot: time.Minute}, {boot: time.Hour}},
		leases: []time.Duration{postdate.LeaseDefault}, retention: longRetention, inboxRetention: longRetention,
		channels: []postdate.Channel{"inbox:good", "rabbitmq:slow", "rabbitmq:picky", "kafka:missing"},
		kinds:    []channelKind{channelGood, channelSlow, channelPicky, channelMissing},
		poller:   poller.DefaultConfig(),
		items:    items,
	}
	return p
}

// every is a rule with so many occurrences.
func every(d time.Duration, runs int) *postdate.Recurrence {
	return &postdate.Recurrence{Every: d, MaxRuns: runs, MisfireAfter: 2 * time.Second}
}

// scenarios are the worlds that TestExhaustive plays. Each is quick, and makes calls that the
// others do not.
var scenarios = map[string]*plan{
	"a series to each channel, one cancelled": scenario(
		item{at: 2 * time.Second, kind: opSeries, a: 0, b: 0, recurs: every(500*time.Millisecond, 5)},
		item{at: 2 * time.Second, kind: opSeries, a: 1, b: 1, recurs: every(700*time.Millisecond, 4)},
		item{at: 2 * time.Second, kind: opSeries, a: 2, b: 2, recurs: every(time.Second, 3)},
		item{at: 2 * time.Second, kind: opSeries, a: 3, b: 3, recurs: every(800*time.Millisecond, 6)},
		item{at: 4 * time.Second, kind: opCancel, a: 1},
		item{at: 5801 * time.Millisecond, kind: opCancel, a: 3},
	),
	"series that are changed, paused and triggered": scenario(
		item{at: 2 * time.Second, kind: opSeries, a: 0, b: 0, recurs: every(500*time.Millisecond, 8)},
		item{at: 2 * time.Second, kind: opSeries, a: 1, b: 1, recurs: every(700*time.Millisecond, 8)},
		item{at: 3005 * time.Millisecond, kind: opPause, a: 0},
		item{at: 3405 * time.Millisecond, kind: opPause, a: 1},
		item{at: 3600 * time.Millisecond, kind: opTrigger, a: 0},
		item{at: 4200 * time.Millisecond, kind: opResume, a: 0},
		item{at: 4300 * time.Millisecond, kind: opChange, a: 1, recurs: every(300*time.Millisecond, 9)},
		item{at: 4500 * time.Millisecond, kind: opResume, a: 1},
		item{at: 5 * time.Second, kind: opTrigger, a: 1},
		item{at: 5002 * time.Millisecond, kind: opCancel, a: 1},
	),
	"a message to each channel": scenario(
		item{at: 2 * time.Second, kind: opSchedule, a: 0, b: 0, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 1, b: 1, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 2, b: 2, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 3, b: 3, d: time.Second},
		item{at: 3 * time.Second, kind: opSchedule, a: 4, b: 0, d: -time.Second},
	),
	"cancel and reschedule around the due time": scenario(
		item{at: 2 * time.Second, kind: opSchedule, a: 0, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 1, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 2, d: time.Second},
		item{at: 2900 * time.Millisecond, kind: opMove, a: 2, d: time.Second},
		item{at: 2978 * time.Millisecond, kind: opCancel, a: 0},
		item{at: 2981 * time.Millisecond, kind: opMove, a: 1, d: 500 * time.Millisecond},
		item{at: 4 * time.Second, kind: opRepeat, a: 2},
	),
	"reschedule between two attempts": scenario(
		item{at: 2 * time.Second, kind: opSchedule, a: 1, b: 3, d: time.Second},
		item{at: 3100 * time.Millisecond, kind: opMove, a: 1, d: 400 * time.Millisecond},
		item{at: 3150 * time.Millisecond, kind: opMove, a: 1, d: 300 * time.Millisecond},
		item{at: 4500 * time.Millisecond, kind: opCancel, a: 1},
	),
	"an id that is given anew": scenario(
		item{at: 2 * time.Second, kind: opSchedule, a: 0, d: time.Second},
		item{at: 2900 * time.Millisecond, kind: opSchedule, a: 1, b: 3, d: time.Second},
		item{at: 4 * time.Second, kind: opExpire},
		item{at: 4010 * time.Millisecond, kind: opReuse, a: 2, d: 6 * time.Second},
		item{at: 5 * time.Second, kind: opRepeat, a: 2},
	),
	"what failed, redriven twice at once, and purged": scenario(
		item{at: 2 * time.Second, kind: opSchedule, a: 0, b: 0, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 5, b: 3, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 10, b: 3, d: time.Second},
		item{at: 2900 * time.Millisecond, kind: faultRefuse, b: 0, d: 700 * time.Millisecond, p: 1},
		item{at: 3700 * time.Millisecond, kind: opRedrive, a: 5, b: 1, d: 3 * time.Millisecond},
		item{at: 5 * time.Second, kind: opRedrive, a: 5, b: 1, d: 20 * time.Millisecond, p: 1},
		item{at: 7 * time.Second, kind: opPurge, a: 5, b: 1, d: 3 * time.Millisecond, p: 1},
		item{at: 8 * time.Second, kind: opReuse, a: 20, d: time.Second},
	),
	"a channel that is down": scenario(
		item{at: time.Second, kind: faultDown, b: 0, d: 4 * time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 0, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 1, d: 1100 * time.Millisecond},
		item{at: 2 * time.Second, kind: opSchedule, a: 2, d: 1200 * time.Millisecond},
		item{at: 4 * time.Second, kind: opCancel, a: 1},
	),
	"a takeover": scenario(
		item{at: 2 * time.Second, kind: opSchedule, a: 0, b: 1, d: 4 * time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 1, b: 1, d: 4 * time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 3, b: 1, d: 4 * time.Second},
		item{at: 5990 * time.Millisecond, kind: faultPause, a: 0, d: 8 * time.Second},
		item{at: 6100 * time.Millisecond, kind: faultCrash, a: 1, d: time.Second},
	),
	"an orderly hand-over": scenario(
		item{at: 2 * time.Second, kind: opSchedule, a: 0, b: 1, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 1, b: 1, d: time.Second},
		item{at: 2 * time.Second, kind: opSchedule, a: 3, b: 1, d: 1500 * time.Millisecond},
		item{at: 3005 * time.Millisecond, kind: faultStop, a: 0, d: 2 * time.Second},
		item{at: 9 * time.Second, kind: faultStop, a: 1, d: time.Second},
	),
}

// modes are the ways in which a call can fail.
var modes = map[string]how{
	"before its effect": failsBefore, "after its effect": failsAfter,
	"without an answer": hangs, "without an answer, and with its effect": hangsWithEffect,
}

// TestExhaustive makes each call of a store or a broker fail, one per run, in each mode: no
// single failure breaks a promise.
func TestExhaustive(t *testing.T) {
	for name, p := range scenarios {
		t.Run(name, func(t *testing.T) {
			runs := 0
			for mode, h := range modes {
				for k := 1; ; k++ {
					r := Run(Options{Seed: 1, plan: p, inject: &injection{k, h}})
					runs++
					if r.Violation != nil {
						t.Errorf("call %d fails %s: %s", k, mode, r.Violation)
					}
					if k >= r.callsBefore { // from here on everything works
						break
					}
				}
			}
			t.Logf("%d runs", runs)
		})
	}
}

// TestExhaustiveBites shows that this method finds bugs that a single failure reveals and that
// no quiet run does.
func TestExhaustiveBites(t *testing.T) {
	for _, test := range []struct {
		bug  bug
		in   string
		mode how
	}{
		{bugUnknownIsRefused, "a message to each channel", failsAfter},
		{bugUnknownIsDone, "a message to each channel", failsBefore},
		{bugSettleVersion, "reschedule between two attempts", failsAfter},
		{bugSettleFinal, "a message to each channel", failsAfter},
		{bugVersionAgain, "an id that is given anew", hangsWithEffect},
	} {
		t.Run(string(test.bug), func(t *testing.T) {
			p := scenarios[test.in]
			quiet := Run(Options{Seed: 1, plan: p, bug: test.bug})
			if quiet.Violation != nil {
				t.Errorf("it shows without a failure: %s", quiet.Violation)
			}
			for k := 1; k <= quiet.Calls+20; k++ {
				if r := Run(Options{Seed: 1, plan: p, bug: test.bug, inject: &injection{k, test.mode}}); r.Violation != nil {
					t.Logf("found with call %d: promise %d: %s", k, r.Violation.Promise, r.Violation.What)
					return
				}
			}
			t.Error("not found")
		})
	}
}
