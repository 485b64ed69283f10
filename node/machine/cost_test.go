package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// large is the rig of a node that has many buckets, and many other nodes.
func large(buckets, others int) *rig {
	r := newRig(nil, func(c *Config) { c.Buckets = buckets })
	var members []Member
	for i := range others {
		name := fmt.Sprint("you", i)
		members = append(members, Member{name, LeaseID(name, "7")})
		r.leases = append(r.leases, bucket.Lease{ID: LeaseID(name, "7"), Renewals: 1, Lasts: time.Hour})
	}
	r.step(fence.Tick{})
	r.step(Members{members})
	r.run(200 * time.Millisecond)
	return r
}

// BenchmarkEvent measures an event that changes nothing, and the question when to wake up that
// follows it: it must be flat.
func BenchmarkEvent(b *testing.B) {
	for _, size := range []struct{ buckets, others int }{{64, 0}, {postdate.BucketsMax, 0}, {64, 3}, {64, 49}} {
		b.Run(fmt.Sprintf("buckets=%d/others=%d", size.buckets, size.others), func(b *testing.B) {
			r := large(size.buckets, size.others)
			for b.Loop() {
				r.m.Step(r.now, poller.Nudged{})
				r.m.Wake(r.now)
			}
		})
	}
}

// The cost of an event does not grow with the cluster.
func TestAnEventIsNoReasonToDivide(t *testing.T) {
	allocations := func(others int) float64 {
		r := large(64, others)
		return testing.AllocsPerRun(100, func() { r.m.Step(r.now, poller.Nudged{}) })
	}
	if alone, beside := allocations(0), allocations(49); alone > 0 || beside > 0 {
		t.Errorf("an event that changes nothing allocates %v times, and %v times beside 49 nodes", alone, beside)
	}
}

// Each node that is to own any of the buckets is named once.
func TestOthers(t *testing.T) {
	s := share{c: Config{Fence: fence.Config{Node: "me"}}, owners: []string{"you", "she", "you", "me", "she"}}
	var holds []store.Hold
	for b := range 6 {
		holds = append(holds, store.Hold{Bucket: b})
	}
	if got := s.others(holds); !slices.Equal(got, []string{"she", "you"}) {
		t.Errorf("named are %v", got)
	}
}

// Nudges come in the order of their buckets, so that the same nudges always give the same
// effects.
func TestNudgesComeInOrder(t *testing.T) {
	b := newBoard(Config{Buckets: 40})
	var want []poller.Nudge
	for n := range 40 {
		b.setHorizon(poller.Horizon{Bucket: n, Before: 2})
		b.Nudge(poller.Nudge{Bucket: n, At: 1})
		want = append(want, poller.Nudge{Bucket: n, At: 1})
	}
	if got := b.Take(); !slices.Equal(got, want) {
		t.Errorf("taken are %v", got)
	}
}
