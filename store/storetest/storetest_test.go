package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

func TestMem(t *testing.T) {
	open := func(*testing.T) store.Store { return NewMem(8) }
	Run(t, open)
	// Memory is as durable as the process: this shows that the checks hold if nothing is lost.
	crash := func(_ *testing.T, s store.Store) store.Store { return s }
	RunDurable(t, open, crash)
	RunDeliverer(t, open, crash)
}

// recorder observes a check's failure without failing the test.
type recorder struct {
	mu    sync.Mutex
	first string // what was reported first; "": nothing
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == "" {
		r.first = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// observe runs a check to its end, or to its Fatalf.
func observe(c check, s store.Store, reopen func(store.Store) store.Store) (failure string) {
	r := &recorder{}
	var group sync.WaitGroup
	group.Go(func() { c.run(newTrial(r, s, reopen)) })
	group.Wait()
	return r.first
}

// plantedBug is a store with one bug, and the area in which it is caught; many are caught in
// others too.
type plantedBug struct {
	area  string
	plant func(m *Mem) store.Store
}

var plantedBugs = []plantedBug{
	{"claim", func(m *Mem) store.Store { return claimsUnfenced{m} }},
	{"claim", func(m *Mem) store.Store { return idleClaimsWrite{m} }},
	{"claim", func(m *Mem) store.Store { return neverWrites{m} }},
	{"claim", func(m *Mem) store.Store { return readsWhenFenced{m} }},
	{"claim", func(m *Mem) store.Store { return claimedMovesBack{m} }},
	{"claim", func(m *Mem) store.Store { return scansBeyondClaimed{m} }},
	{"claim", func(m *Mem) store.Store { return readsWhenLate{m} }},
	{"claim", func(m *Mem) store.Store { return lateClaimsWrite{m} }},
	{"claim", func(m *Mem) store.Store { return equalClaimsWrite{m} }},
	{"claim", func(m *Mem) store.Store { return repeatsReadOn{m} }},
	{"claim", func(m *Mem) store.Store { return claimsAll{m} }},
	{"claim", func(m *Mem) store.Store { return claimsMilliseconds{m} }},
	{"claim", func(m *Mem) store.Store { return claimsOneMore{m} }},
	{"behind", func(m *Mem) store.Store { return claimsTooLittle{m} }},
	{"cancel", func(m *Mem) store.Store { return answersWhatItRead{m} }},
	{"behind", func(m *Mem) store.Store { return readsBehind{m} }},
	{"behind", func(m *Mem) store.Store { return passesOverBehind{m} }},
	{"behind", func(m *Mem) store.Store { return onlyReadsAll{m} }},
	{"behind", func(m *Mem) store.Store { return onlyClaimsAll{m} }},
	{"behind", func(m *Mem) store.Store { return onlyMovesAll{m} }},
	{"behind", func(m *Mem) store.Store { return onlyMovesBack{m} }},
	{"behind", func(m *Mem) store.Store { return keepsBehind{m} }},
	{"behind", func(m *Mem) store.Store { return keepsCaughtUp{m} }},
	{"behind", func(m *Mem) store.Store { return allIsNobody{m} }},
	{"behind", func(m *Mem) store.Store { return onlyAllReadsMore{m} }},
	{"behind", func(m *Mem) store.Store { return onlyOneGoesOn{m} }},
	{"behind", func(m *Mem) store.Store { return neverWithAll{m} }},
	{"behind", func(m *Mem) store.Store { return neverFalls{m} }},
	{"behind", func(m *Mem) store.Store { return behindByTime{m} }},
	{"behind", func(m *Mem) store.Store { return behindCutsNames{m} }},
	{"behind", func(m *Mem) store.Store { return acquireDropsBehind{m} }},
	{"behind", func(m *Mem) store.Store { return releaseDropsBehind{m} }},
	{"behind", func(m *Mem) store.Store { return endsTooSoon{m} }},
	{"behind", func(m *Mem) store.Store { return makesNoProgress{m} }},
	{"behind", func(m *Mem) store.Store { return cancelIgnoresBehind{m} }},
	{"behind", func(m *Mem) store.Store { return cancelIgnoresPlaces{m} }},
	{"scan", func(m *Mem) store.Store { return checkpointHides{m} }},
	{"scan", func(m *Mem) store.Store { return missesTies{m} }},
	{"scan", func(m *Mem) store.Store { return ignoresLimit{m} }},
	{"scan", func(m *Mem) store.Store { return ignoresBytesMax{m} }},
	{"scan", func(m *Mem) store.Store { return completeTooSoon{m} }},
	{"cancel", func(m *Mem) store.Store { return cancelIgnoresClaimed{m} }},
	{"cancel", func(m *Mem) store.Store { return cancelIgnoresDoubt{m} }},
	{"cancel", func(m *Mem) store.Store { return cancelIgnoresVersion{m} }},
	{"cancel", func(m *Mem) store.Store { return cancelEndsAnyVersion{m} }},
	{"replace", func(m *Mem) store.Store { return replaceIgnoresState{m} }},
	{"replace", func(m *Mem) store.Store { return replaceIgnoresOthers{m} }},
	{"replace", func(m *Mem) store.Store { return replaceKeepsAttempts{m} }},
	{"replace", func(m *Mem) store.Store { return replaceDropsMove{m} }},
	{"replace", func(m *Mem) store.Store { return settleDropsMove{m} }},
	{"insert", func(m *Mem) store.Store { return insertOverwrites{m} }},
	{"insert", func(m *Mem) store.Store { return insertAnswersAnew{m} }},
	{"insert", func(m *Mem) store.Store { return insertKnowsLast{m} }},
	{"insert", func(m *Mem) store.Store { return replaceDropsOriginal{m} }},
	{"round trip", func(m *Mem) store.Store { return insertDropsHeaders{m} }},
	{"list", func(m *Mem) store.Store { return listMissesTies{m} }},
	{"requests", func(m *Mem) store.Store { return requestsOverwrite{m} }},
	{"requests", func(m *Mem) store.Store { return requestsIgnoreTenants{m} }},
	{"requests", func(m *Mem) store.Store { return requestsRace{m} }},
	{"requests", func(m *Mem) store.Store { return requestsStay{m} }},
	{"requests", func(m *Mem) store.Store { return requestsGoEverywhere{m} }},
	{"requests", func(m *Mem) store.Store { return requestsGoEarly{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersOverwrite{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersRace{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersMixNames{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersMixInboxes{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersStay{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersGoEverywhere{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersGoEarly{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersGoFirst{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersForgetReached{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersKeepOneOpen{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersStartAnywhere{m} }},
	{"consumers", func(m *Mem) store.Store { return consumersKeepFirstUse{m} }},
	{"consumers", func(m *Mem) store.Store { return placesShift{m} }},
	{"consumers", func(m *Mem) store.Store { return placesIgnoreInboxes{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsBeginAnew{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsMixTenants{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsOverwrite{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsRace{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsReopen{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsAreUnbounded{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsCountEnded{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsCountOthers{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsCountAgain{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsOpenElsewhere{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsStayOpen{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsForgetAfter{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsForgetTo{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsForgetError{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsStay{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsGoEarly{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsGoEverywhere{m} }},
	{"jobs", func(m *Mem) store.Store { return jobsGoOpen{m} }},
	{"settle", func(m *Mem) store.Store { return settleIgnoresVersion{m} }},
	{"settle", func(m *Mem) store.Store { return settleIgnoresToken{m} }},
	{"settle", func(m *Mem) store.Store { return settleRefusesFacts{m} }},
	{"settle", func(m *Mem) store.Store { return settleHidesLater{m} }},
	{"park", func(m *Mem) store.Store { return parkRetries{m} }},
	{"park", func(m *Mem) store.Store { return parkHides{m} }},
	{"park", func(m *Mem) store.Store { return unparkForgetsSince{m} }},
	{"settle", func(m *Mem) store.Store { return unparkEarly{m} }},
	{"park", func(m *Mem) store.Store { return cancelJudgesParked{m} }},
	{"park", func(m *Mem) store.Store { return unparkIgnoresChannel{m} }},
	{"park", func(m *Mem) store.Store { return unparkIgnoresTenant{m} }},
	{"park", func(m *Mem) store.Store { return unparkIgnoresLow{m} }},
	{"park", func(m *Mem) store.Store { return unparkTellsNoEarly{m} }},
	{"partitions", func(m *Mem) store.Store { return acquireIgnoresSeen{m} }},
	{"partitions", func(m *Mem) store.Store { return releaseResetsToken{m} }},
	{"partitions", func(m *Mem) store.Store { return releaseIgnoresToken{m} }},
	{"partitions", func(m *Mem) store.Store { return looksAtAll{m} }},
	{"partitions", func(m *Mem) store.Store { return looksAtOne{m} }},
	{"partitions", func(m *Mem) store.Store { return looksPastReleases{m} }},
	{"partitions", func(m *Mem) store.Store { return renewsOnce{m} }},
	{"partitions", func(m *Mem) store.Store { return renewForgetsLasts{m} }},
	{"expire", func(m *Mem) store.Store { return expireTakesPending{m} }},
	{"expire", func(m *Mem) store.Store { return expireIgnoresBuckets{m} }},
	{"expire", func(m *Mem) store.Store { return expireCountsOthers{m} }},
	{"expire", func(m *Mem) store.Store { return inboxesIgnoreBuckets{m} }},
	{"reuse", func(m *Mem) store.Store { return versionsBeginAnew{m} }},
	{"reuse", func(m *Mem) store.Store { return settleIgnoresVersion{m} }},
	{"inbox", func(m *Mem) store.Store { return inboxSkips{m} }},
	{"keys", func(m *Mem) store.Store { return keysOverwrite{m} }},
	{"keys", func(m *Mem) store.Store { return keysLoseChannels{m} }},
	{"keys", func(m *Mem) store.Store { return revokeIsLate{m} }},
	{"keys", func(m *Mem) store.Store { return revokeTellsNobody{m} }},
	{"keys", func(m *Mem) store.Store { return usesTellEverybody{m} }},
	{"keys", func(m *Mem) store.Store { return usesGoBack{m} }},
	{"keys", func(m *Mem) store.Store { return usesMakeKeys{m} }},
	{"tenants", func(m *Mem) store.Store { return zeroIsDefault{m} }},
	{"tenants", func(m *Mem) store.Store { return weightIsLost{m} }},
	{"tenants", func(m *Mem) store.Store { return settingsAddUp{m} }},
	{"tenants", func(m *Mem) store.Store { return noneIsListed{m} }},
	{"usage", func(m *Mem) store.Store { return settleCountsAgain{m} }},
	{"usage", func(m *Mem) store.Store { return settleCountsRetries{m} }},
	{"usage", func(m *Mem) store.Store { return fencedCounts{m} }},
	{"usage", func(m *Mem) store.Store { return replaceKeepsBytes{m} }},
	{"usage", func(m *Mem) store.Store { return replaceKeepsChannel{m} }},
	{"usage", func(m *Mem) store.Store { return cancelCountsAgain{m} }},
	{"usage", func(m *Mem) store.Store { return insertCountsAgain{m} }},
	{"usage", func(m *Mem) store.Store { return unparkCounts{m} }},
	{"usage", func(m *Mem) store.Store { return expireCounts{m} }},
	{"usage", func(m *Mem) store.Store { return tenantsShareCounts{m} }},
	{"usage", func(m *Mem) store.Store { return channelsNeverGo{m} }},
	{"usage", func(m *Mem) store.Store { return listsNothingPending{m} }},
	// Bugs that also show, or show only, when all work at the same time.
	{"all at once", func(m *Mem) store.Store { return cancelRaces{m} }},
	{"all at once", func(m *Mem) store.Store { return cancelIgnoresClaimed{m} }},
	{"all at once", func(m *Mem) store.Store { return claimsUnfenced{m} }},
	{"all at once", func(m *Mem) store.Store { return replaceIgnoresState{m} }},
	{"all at once", func(m *Mem) store.Store { return readsBehind{m} }},
	{"all at once", func(m *Mem) store.Store { return onlyReadsAll{m} }},
	{"all at once", func(m *Mem) store.Store { return scansBeyondClaimed{m} }},
	{"all at once", func(m *Mem) store.Store { return cancelIgnoresPlaces{m} }},
}

// TestEveryPlantedBugIsCaught shows that the suite can fail.
func TestEveryPlantedBugIsCaught(t *testing.T) {
	checks := map[string][]check{}
	for _, a := range append(areas(), area{"deliver", delivering()}) {
		checks[a.name] = a.checks
	}
	for _, bug := range slices.Concat(plantedBugs, areaBugs()) {
		t.Run(fmt.Sprintf("%T in %s", bug.plant(nil), bug.area), func(t *testing.T) {
			// What is a matter of luck in one run is certain in many.
			for range 300 {
				for _, c := range checks[bug.area] {
					if failure := observe(c, bug.plant(NewMem(8)), func(s store.Store) store.Store { return s }); failure != "" {
						what, broken := strings.CutPrefix(failure, testrun.Broken)
						t.Logf("caught by %q: %s", c.promise, what)
						if bug.area == "all at once" && !broken {
							t.Error("it does not say that a promise is broken")
						}
						return
					}
				}
			}
			t.Error("no check caught it")
		})
	}
}

// TestEveryLossIsCaught shows that the checks of durability can fail.
func TestEveryLossIsCaught(t *testing.T) {
	for loss, forget := range map[string]func(m *Mem){
		"the messages":    dropAll,
		"one message":     dropOne,
		"the cancels":     forgetStates(func(s *postdate.State) bool { return s.Status == postdate.Cancelled }),
		"the settlements": forgetStates(func(s *postdate.State) bool { return s.Status == postdate.Delivered }),
		"the retries":     forgetStates(func(s *postdate.State) bool { return s.Attempts > 0 && s.Status == postdate.Pending }),
		"the logs": func(m *Mem) {
			for key := range m.Rows {
				m.amend(key, func(r *postdate.Record) { r.Log = nil })
			}
		},
		"what is parked": forgetStates(func(s *postdate.State) bool { return s.Parked }),
		"what is ending": forgetStates(func(s *postdate.State) bool { return s.Ending }),
		"the runs":       forgetStates(func(s *postdate.State) bool { return s.Run > 1 }),
		"what became of series": func(m *Mem) {
			for key := range m.Rows {
				m.amend(key, func(r *postdate.Record) { r.Series = postdate.Series{} })
			}
		},
		"what series left": func(m *Mem) {
			for key, r := range m.Rows {
				if _, is := key.OfSeries(); is {
					m.Drop(r)
				}
			}
		},
		"the labels": func(m *Mem) {
			for key := range m.Rows {
				m.amend(key, func(r *postdate.Record) { r.Labels = nil })
			}
		},
		"the tokens":        func(m *Mem) { m.Records[home].Token = 0 },
		"the claims":        func(m *Mem) { m.Records[home].Claimed = bucket.Position{} },
		"what is behind":    func(m *Mem) { m.Records[home].Behind = nil },
		"the inboxes":       func(m *Mem) { clear(m.inboxes) },
		"the tenants":       func(m *Mem) { clear(m.tenants) },
		"the counts":        func(m *Mem) { clear(m.pending) },
		"the bytes":         func(m *Mem) { forgetBytes(m) },
		"the API keys":      func(m *Mem) { clear(m.keys) },
		"the inboxes' past": func(m *Mem) { forgetPast(m) },
	} {
		t.Run(loss, func(t *testing.T) {
			reopen := func(s store.Store) store.Store { forget(s.(*Mem)); return s }
			for _, c := range durable() {
				if failure := observe(c, NewMem(8), reopen); failure != "" {
					t.Logf("caught by %q: %s", c.promise, strings.TrimPrefix(failure, testrun.Broken))
					return
				}
			}
			t.Error("no check caught it")
		})
	}
}

func dropAll(m *Mem) {
	for len(m.Rows) > 0 {
		dropOne(m)
	}
}

func dropOne(m *Mem) {
	for _, r := range m.Rows {
		m.Drop(r)
		return
	}
}

// forgetStates returns messages to the states that they had at first.
func forgetStates(which func(*postdate.State) bool) func(m *Mem) {
	return func(m *Mem) {
		for _, r := range m.Rows {
			if which(&r.State) {
				m.Put("", r, postdate.Record{Message: r.Message, State: postdate.NewState(&r.Message, r.Version)}, nil)
			}
		}
	}
}

func forgetBytes(m *Mem) {
	for _, u := range m.pending {
		u.bytes = 0
	}
}

func forgetPast(m *Mem) {
	for _, box := range m.inboxes {
		box.expired = 0
	}
}
