package fence_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// A look is judged by when it began: a late answer says nothing about the time that it took to
// come.
func TestALateAnswerIsNoWatching(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	first := theirs(5)
	first.Began = r.now
	r.now += r.c.LeaseTime / 2 // that long did the answer take
	if effects := r.renewed(r.step(first)); count[fence.Take](effects) > 0 {
		t.Fatal("taken at first sight")
	}
	late := theirs(5)
	late.Began = r.now + r.c.LeaseTime - 1
	r.now += 2 * r.c.LeaseTime
	if effects := r.renewed(r.step(late)); count[fence.Take](effects) > 0 {
		t.Error("taken, though the lease was seen to stand still for less than the lease time")
	}
}

// A node that slept saw nothing stand still meanwhile.
func TestSleepIsNoWatching(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	r.step(theirs(5))
	r.now += 10 * r.c.LeaseTime
	saw := theirs(5)
	saw.Began = r.now
	r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
	if effects := r.step(saw); count[fence.Take](effects) > 0 {
		t.Error("taken after a sleep, without a watch")
	}
}

// A hint brings the next look forward, even if it comes while a look is under way, and shortens
// no watch.
func TestHints(t *testing.T) {
	r := newRig(t)
	r.lease(4) // a look is under way
	if effects := r.step(fence.Hint{}); count[fence.Look](effects) > 0 {
		t.Fatal("two looks at a time")
	}
	saw := theirs(5)
	saw.Began = r.now
	effects := r.step(saw)
	only[fence.Look](t, effects)
	for range 50 {
		r.now += r.c.LeaseTime / 100
		saw.Began = r.now
		effects = append(r.renewed(r.step(saw)), r.step(fence.Hint{})...)
		if count[fence.Take](effects) > 0 {
			t.Fatal("hints have shortened the watch")
		}
	}
	r.step(saw)
	only[fence.Look](t, r.step(fence.Hint{}))
}

// Leases count as alive until they have been seen to stand still.
func TestAlive(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	alive := func(renewals uint64, want ...string) {
		t.Helper()
		saw := theirs(renewals)
		saw.Leases = append(saw.Leases, bucket.Lease{ID: "me/1", Renewals: uint64(r.now)})
		if got := only[fence.Alive](t, r.look(saw)); !reflect.DeepEqual(got.Leases, want) {
			t.Errorf("alive are %v, want %v", got.Leases, want)
		}
	}
	saw := theirs(1)
	saw.Began = r.now
	r.step(saw)
	alive(2, "me/1", "you/1")
	for since := r.now; r.now-since < r.c.LeaseTime-r.c.LookEvery; {
		alive(2, "me/1", "you/1")
	}
	r.look(theirs(2))
	r.look(theirs(2))
	alive(2, "me/1")
	alive(3, "me/1", "you/1")
}

// A node whose wall clock is off gives up everything immediately, takes nothing, and comes back
// when the clocks agree.
func TestSkewedClock(t *testing.T) {
	for name, c := range map[string]struct {
		store, began, ended postdate.Time
		off                 bool
	}{
		"agrees":                     {10_000, 9_990, 10_010, false},
		"a little ahead":             {10_000, 10_900, 10_950, false},
		"slow answer hides nothing":  {10_000, 8_000, 12_000, false},
		"ahead":                      {10_000, 11_001, 11_010, true},
		"behind":                     {10_000, 8_900, 8_999, true},
		"the store has no clock":     {0, 8_900, 8_999, false},
		"ahead with a slow answer":   {10_000, 11_500, 19_000, true},
		"just as far as is bearable": {10_000, 11_000, 11_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.own(1, 2)
			effects := r.step(fence.Renewed{Began: postdate.Now{Wall: c.began, Mono: r.now}, Store: c.store, WallEnded: c.ended})
			if got := count[fence.Skewed](effects) == 1; got != c.off {
				t.Fatalf("skewed %v, want %v: %+v", got, c.off, effects)
			}
			if !c.off {
				return
			}
			if len(only[fence.Lost](t, effects).Holds) != 2 || len(only[fence.GiveBack](t, effects).Holds) != 2 {
				t.Fatalf("it does not give everything up: %+v", effects)
			}
			only[fence.Look](t, r.step(fence.GaveBack{Holds: []store.Hold{{Bucket: 1, Token: 1}, {Bucket: 2, Token: 1}}}))
			free := fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1, Token: 1}, {Bucket: 2, Token: 1}}}
			r.step(free)
			if effects := r.look(free); count[fence.Take](effects) > 0 {
				t.Error("it takes buckets while its clock is off")
			}
			back := only[fence.Skewed](t, r.step(fence.Renewed{Began: postdate.Now{Wall: 20_000, Mono: r.now}, Store: 20_000, WallEnded: 20_000}))
			if back.Ahead != 0 {
				t.Errorf("it is told to be %v ahead", back.Ahead)
			}
			if effects := r.look(free); count[fence.Take](effects) != 1 {
				t.Error("it takes nothing though the clocks agree again")
			}
		})
	}
}

// A node without buckets loses nothing when its clock is off.
func TestASkewedClockWithoutBuckets(t *testing.T) {
	r := newRig(t)
	r.lease(1)
	effects := r.step(fence.Renewed{Began: postdate.Now{Wall: 20_000, Mono: r.now}, Store: 10_000, WallEnded: 20_000})
	if count[fence.Skewed](effects) != 1 || count[fence.Lost](effects) > 0 {
		t.Errorf("it says %+v", effects)
	}
}

// A look older than a release does not mistake the released bucket for an acquisition of this
// node; and a bucket that is wanted again is taken again.
func TestAStaleLookAdoptsNothing(t *testing.T) {
	r := newRig(t)
	r.own(1)
	hold := store.Hold{Bucket: 1, Token: 1}
	r.step(fence.Want{})
	r.step(fence.Drained{Holds: []store.Hold{hold}})
	r.step(fence.GaveBack{Holds: []store.Hold{hold}})
	r.step(fence.Want{Buckets: []int{1}})
	mine := bucket.Partition{Bucket: 1, Owner: "me", Token: 1, Lease: "me/1"}
	effects := r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{mine}})
	if count[fence.Gained](effects)+count[fence.Take](effects) > 0 {
		t.Error("it adopts what it gave back")
	}
	only[fence.Look](t, effects) // what was read may be older than the wish
	take := only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1, Token: 1}}}))
	if len(take.Wants) != 1 {
		t.Errorf("it wants %+v", take.Wants)
	}
}

// A bucket that is acquired after the share has changed is handed on, not kept.
func TestATakeThatCameTooLateIsHandedOn(t *testing.T) {
	r := newRig(t)
	r.lease(1)
	only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1}}}))
	r.step(fence.Want{})
	effects := r.step(fence.Took{Results: []store.Acquired{{Partition: bucket.Partition{Bucket: 1, Token: 1, Owner: "me", Lease: "me/1"}, OK: true}}})
	only[fence.Gained](t, effects)
	only[fence.Drain](t, effects)
}

// A bucket that is acquired after the clock turned out to be off is not worked on: by that
// clock, messages would go out before they are due.
func TestATakeThatCameToASkewedNodeIsGivenBack(t *testing.T) {
	r := newRig(t)
	r.lease(1)
	only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1}}}))
	r.step(fence.Renewed{Began: postdate.Now{Wall: 20_000, Mono: r.now}, Store: 10_000, WallEnded: 20_000})
	effects := r.step(fence.Took{Results: []store.Acquired{{Partition: bucket.Partition{Bucket: 1, Token: 1, Owner: "me", Lease: "me/1"}, OK: true}}})
	if count[fence.Gained](effects) > 0 {
		t.Error("it works on a bucket though its clock is off")
	}
	if back := only[fence.GiveBack](t, effects); !slices.Equal(back.Holds, []store.Hold{{Bucket: 1, Token: 1}}) {
		t.Errorf("it gives back %+v", back.Holds)
	}
}

// A refused claim right after buckets were given up says nothing new.
func TestLostIsSaidOnce(t *testing.T) {
	r := newRig(t)
	r.own(1)
	r.step(fence.Renewed{Began: postdate.Now{Wall: 20_000, Mono: r.now}, Store: 10_000, WallEnded: 20_000})
	if effects := r.step(fence.Fenced{Holds: []store.Hold{{Bucket: 1, Token: 1}}}); count[fence.Lost](effects) > 0 {
		t.Error("lost twice")
	}
	r.now += time.Second
	if r.m.Held() != 0 {
		t.Error("a bucket that somebody else has is still held")
	}
}

// While a renewal hangs there is nothing to do, and no wake-up is asked for repeatedly.
func TestAHangingRenewalAsksForNoWakeUp(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	r.now += r.c.RenewEvery
	only[fence.Renew](t, r.step(fence.Tick{}))
	for range 5 {
		r.now += r.c.RenewEvery / 2
		r.step(fence.Tick{})
		if wake := r.m.Wake(); wake <= r.now {
			t.Fatalf("it is %v, and the next wake-up is at %v", r.now, wake)
		}
	}
}

// An acquisition with an unknown outcome that went through is given back if the bucket is no
// longer wanted: it would hang on this node's lease for ever.
func TestTakenAndNotWantedAnyMore(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	saw := fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 4, Token: 7}}}
	only[fence.Take](t, r.step(saw))
	r.step(fence.Want{})
	r.step(fence.Took{Err: postdate.E(postdate.KindUnknown, "lost")})
	r.now += r.c.LookEvery
	saw.Began, saw.Partitions[0] = r.now, bucket.Partition{Bucket: 4, Token: 8, Owner: r.c.Node, Lease: r.c.Lease}
	effects := r.step(saw)
	if count[fence.Gained](effects) > 0 {
		t.Error("what is not wanted is gained")
	}
	if give := only[fence.GiveBack](t, effects); !reflect.DeepEqual(give.Holds, []store.Hold{{Bucket: 4, Token: 8}}) {
		t.Errorf("it gives back %+v", give.Holds)
	}
}
