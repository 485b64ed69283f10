// Package storetest is the specification of a store: a suite of checks that every
// implementation of [store.Store] passes, each named for the promise that it checks. [Mem] is
// the simplest store that passes.
//
// A store's own test is a few lines:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t, t.TempDir()) })
//	}
package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

// Run checks every promise that shows while a store is open, each on a store of its own. open
// returns a fresh, empty one with at least four buckets, ideally eight; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, area := range areas() {
		t.Run(area.name, func(t *testing.T) {
			for _, c := range area.checks {
				t.Run(c.promise, func(t *testing.T) {
					s := open(t)
					c.run(newTrial(t, s, nil))
					closeStore(t, s)
				})
			}
		})
	}
}

// RunDurable checks that what was answered survives the end of the process. crash ends s as
// harshly as the test can (what was not made durable should be lost, and Close is best not
// called), and opens what is left.
func RunDurable(t *testing.T, open func(t *testing.T) store.Store,
	crash func(t *testing.T, s store.Store) store.Store) {
	for _, c := range durable() {
		t.Run(c.promise, func(t *testing.T) {
			x := newTrial(t, open(t), func(s store.Store) store.Store { return crash(t, s) })
			c.run(x)
			closeStore(t, x.store)
		})
	}
}

func closeStore(t *testing.T, s store.Store) {
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// reporter is what a check reports to: a *testing.T, or a recorder in the test
// that shows that the suite can fail.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// check holds a store to one promise.
type check struct {
	promise string
	run     func(x *trial)
}

type area struct {
	name   string
	checks []check
}

func areas() []area {
	return []area{
		{"insert", insertion()},
		{"replace", replacing()},
		{"cancel", cancelling()},
		{"list", listing()},
		{"labels", labelling()},
		{"upcoming", forecasting()},
		{"claim", claiming()},
		{"behind", append(lagging(), laggingTenants()...)},
		{"scan", scanning()},
		{"settle", settling()},
		{"attempts", attempts()},
		{"park", parking()},
		{"partitions", partitions()},
		{"channels", channels()},
		{"keys", keys()},
		{"tenants", tenants()},
		{"usage", usages()},
		{"requests", requests()},
		{"inbox", inboxes()},
		{"large pages", largePages()},
		{"consumers", consumers()},
		{"jobs", jobs()},
		{"series", series()},
		{"retried occurrences", retriedOccurrences()},
		{"ends of series", seriesEnds()},
		{"changing series", slices.Concat(changingSeries(), pausingSeries(), triggeringSeries())},
		{"failure channels", failures()},
		{"expire", expiring()},
		{"forget", forgetting()},
		{"redrive", redriving()},
		{"purge", purging()},
		{"reuse", reusing()},
		{"round trip", roundTrips()},
		{"all at once", concurrency()},
	}
}

// trial is one run of a check: the store under test, and the words in which
// checks are written.
type trial struct {
	reporter
	store  store.Store
	ctx    context.Context
	reopen func(s store.Store) store.Store // ends a store's process and opens it again
	made   int                             // messages made so far, for their ids
	claims uint64                          // claims so far, for their numbers
	first  map[postdate.Key]uint64         // the version at which each message was created last
}

func newTrial(r reporter, s store.Store, reopen func(store.Store) store.Store) *trial {
	x := &trial{reporter: r, store: s, ctx: context.Background(), reopen: reopen, first: map[postdate.Key]uint64{}}
	if n := s.Buckets(); n < 4 {
		r.Fatalf("the store under test has %d buckets: open it with at least 4", n)
	}
	return x
}

// broken reports that the store broke its word; Errorf may also report a call that could not be
// made.
func (x *trial) broken(format string, args ...any) {
	x.Helper()
	x.Errorf(testrun.Broken+": "+format, args...)
}
