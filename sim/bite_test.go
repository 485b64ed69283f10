package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/testrun"
)

// planted lists the bugs, the sort of world in which to look for each, and the promises whose
// watchers may find it first.
var planted = []struct {
	bug      bug
	in       profile
	promises []int
}{
	{bugNoFence, profileStorm, []int{5}},
	{bugTokenReset, profileStorm, []int{5}},
	{bugNotDurable, profileStorm, []int{0, 1, 3}},
	{bugUnknownIsRefused, profileStorm, []int{1, 4}},
	{bugUnknownIsDone, profileStorm, []int{1}},
	{bugConfirmIgnored, profileStorm, []int{1}},
	{bugNotMandatory, profileStorm, []int{1}},
	{bugCheckpointFilters, profileStorm, []int{6}},
	{bugClaimAfterRead, profileRaces, []int{3, 6}},
	{bugNoSecondLook, profileRaces, []int{3}},
	{bugCancelForgotten, profileStorm, []int{3}},
	{bugLeaseByWall, profileStorm, []int{1, 5}},
	{bugSettleVersion, profileRaces, []int{3}},
	{bugSettleFinal, profileStorm, []int{1}},
	{bugSettleToken, profileStorm, []int{5}},
	{bugNoSweep, profileRaces, []int{1, 6}},
	{bugNoNudges, profileStorm, []int{1, 6}},
	{bugEarly, profileStorm, []int{2}},
	{bugSkewIgnored, profileStorm, []int{1, 2}},
	{bugNoMark, profileStorm, []int{4}},
	// Parked messages come back, and occurrences are misfired, by a clock that no renewal has checked yet.
	{bugNoLease, profileStorm, []int{1, 2, 5, 9}},
	{bugFirstSight, profileStorm, []int{5}},
	{bugGossipIsTruth, profileStorm, []int{5}},
	{bugRetryForgets, profileStorm, []int{1, 4}},
	{bugCheckpointRuns, profileStorm, []int{6}},
	{bugNoDoubt, profileStorm, []int{4, 6}},
	{bugOneByOne, profileChannels, []int{7}},
	{bugScanBeyond, profileBacklog, []int{3, 6, 8}},
	{bugClaimCostsAll, profileBacklog, []int{8}},
	{bugInsertTwice, profileStorm, []int{1}},
	{bugParkedForgotten, profileStorm, []int{1, 6}},
	{bugJumpBelieved, profileStorm, []int{1, 2, 5}},
	{bugSettledTwice, profileStorm, []int{1, 4}},
	{bugRowsVanish, profileStorm, []int{0}},
	{bugLateClaims, profileStorm, []int{4, 6}},
	{bugBehindIsRead, profileBacklog, []int{3, 6}},
	{bugVersionAgain, profileStorm, []int{1, 3}},
	{bugPriorityLost, profileBacklog, []int{8}},
	{bugArmedTwice, profileStorm, []int{9}},
	{bugOccurrenceIgnored, profileStorm, []int{1, 9}},
	{bugEndingNotKept, profileRaces, []int{9}},
	{bugEndingIgnored, profileRaces, []int{9}},
	{bugRetriedLost, profileStorm, []int{9}},
	{bugRetriedGoesOn, profileRaces, []int{3}},
	{bugPauseIgnored, profileRaces, []int{9}},
	{bugPauseForgotten, profileRaces, []int{9}},
	{bugPauseNotKept, profileRaces, []int{9}},
	{bugChangedInThePast, profileRaces, []int{9}},
	{bugChangeLosesCounts, profileRaces, []int{9}},
	{bugTriggerOutlives, profileRaces, []int{3, 9}},
	{bugTriggerMoves, profileRaces, []int{9}},
	{bugFailsWithout, profileStorm, []int{1}},
	{bugRetryLeaves, profileStorm, []int{1}},
	{bugLeftVanishes, profileStorm, []int{0, 1}},
	{bugRedriveUnmarks, profileStorm, []int{1, 3, 4}},
	{bugRedrivenTwice, profileStorm, []int{1, 4}},
	{bugPurgesRedriven, profileStorm, []int{1}},
	{bugEarly, profileAlone, []int{2}},
	{bugNotDurable, profileAlone, []int{0, 1, 3}},
	{bugNoDoubt, profileAlone, []int{4, 6}},
	{bugParkedForgotten, profileAlone, []int{1, 6}},
	{bugDeliversAgain, profileAlone, []int{4}},
	{bugDeliversApart, profileAlone, []int{4, 6}},
}

// begins are the seeds with which to begin for bugs that few worlds show: those known to find them.
var begins = map[bug]map[profile]uint64{
	bugNoLease:         {profileStorm: 34},
	bugRetriedGoesOn:   {profileRaces: 21},
	bugJumpBelieved:    {profileStorm: 20},
	bugLeaseByWall:     {profileStorm: 12},
	bugParkedForgotten: {profileAlone: 189},
}

// TestBite shows that every watcher can fail: each planted bug is found by the watcher of a
// promise that it breaks.
func TestBite(t *testing.T) {
	caught := map[int]int{}
	for _, b := range planted {
		t.Run(string(b.bug), func(t *testing.T) {
			r, seed, text := bite(b.bug, b.in, lengthOf(b.bug))
			if r.Violation == nil {
				t.Fatalf("not found: %s", text)
			}
			what, _, _ := strings.Cut(r.Violation.What, "\n")
			t.Logf("%s: seed %d, %s: promise %d: %s", b.bug, seed, text, r.Violation.Promise, what)
			if !slices.Contains(b.promises, r.Violation.Promise) {
				t.Errorf("found by the watcher of promise %d, want one of %v", r.Violation.Promise, b.promises)
			}
			if said := r.Violation.String(); !strings.HasPrefix(said, testrun.Broken) {
				t.Errorf("it does not say that a promise is broken: %s", said)
			}
			caught[r.Violation.Promise]++
		})
	}
	for promise := range watchers {
		if caught[promise] == 0 {
			t.Errorf("nothing was caught by the watcher of promise %d", promise)
		}
	}
}

// lengthOf returns the length of the worlds in which to look for a bug.
func lengthOf(b bug) time.Duration {
	if b == bugLateClaims { // it needs a late message together with a claim that strays
		return 8 * time.Minute
	}
	return 2 * time.Minute
}

// bite plays worlds of one sort until the bug is found.
func bite(b bug, in profile, length time.Duration) (r Result, seed uint64, text string) {
	began, simulated := time.Now(), time.Duration(0)
	for seed = begins[b][in]; seed < 600; seed++ {
		o := Options{Seed: seed, Length: length, bug: b}
		if profileOf(seed) != in {
			continue
		}
		r = Run(o)
		simulated += r.Simulated
		if r.Violation != nil {
			break
		}
	}
	return r, seed, fmt.Sprintf("%s simulated, %s real", simulated.Round(time.Second), time.Since(began).Round(time.Millisecond))
}
