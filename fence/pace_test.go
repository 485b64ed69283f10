package fence_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// If the machine is stepped whenever it asks to be woken, it makes each call as often as
// configured, whichever interval is shorter.
func TestEachCallComesInItsTime(t *testing.T) {
	for _, c := range []struct{ renew, look time.Duration }{
		{200 * time.Millisecond, 500 * time.Millisecond}, {500 * time.Millisecond, 200 * time.Millisecond},
	} {
		r := newRig(t, func(f *fence.Config) { f.RenewEvery, f.LookEvery = c.renew, c.look })
		r.lease(4)
		r.step(fence.Saw{Began: r.now})
		begin, renewals := r.now, uint64(1)
		lastRenew, lastLook := r.now, r.now
		for r.now < begin+10*time.Second {
			r.now = r.m.Wake()
			for _, e := range r.step(fence.Tick{}) {
				switch e := e.(type) {
				case fence.Renew:
					if gap := r.now - lastRenew; gap != c.renew {
						t.Errorf("renewed after %v, want %v", gap, c.renew)
					}
					if e.Lease.Renewals != renewals+1 {
						t.Errorf("renewal %d follows %d", e.Lease.Renewals, renewals)
					}
					renewals, lastRenew = e.Lease.Renewals, r.now
					r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
				case fence.Look:
					if gap := r.now - lastLook; gap != c.look {
						t.Errorf("looked after %v, want %v", gap, c.look)
					}
					lastLook = r.now
					r.step(fence.Saw{Began: r.now})
				}
			}
		}
		if r.now-lastRenew > c.renew || r.now-lastLook > c.look {
			t.Errorf("it stopped to renew %v ago, and to look %v ago", r.now-lastRenew, r.now-lastLook)
		}
	}
}

// A failed call is made again after the configured pause, not at its usual time.
func TestWhatFailedIsTriedSoon(t *testing.T) {
	down := errors.New("down")
	hold := store.Hold{Bucket: 1, Token: 1}
	r := newRig(t)
	r.own(1, 2)
	r.step(fence.Want{Buckets: []int{2}})
	r.step(fence.Saw{Began: r.now})
	r.step(fence.Drained{Holds: []store.Hold{hold}})
	again := func(what string, failed fence.Event, sent func([]fence.Effect) int) {
		t.Helper()
		r.step(failed)
		at := r.now + r.c.RetryAfter
		if r.m.Wake() != at {
			t.Fatalf("after a %s that failed it wakes in %v, want %v", what, r.m.Wake()-r.now, r.c.RetryAfter)
		}
		r.now = at - 1
		if n := sent(r.step(fence.Tick{})); n > 0 {
			t.Errorf("a %s that failed is repeated too soon", what)
		}
		r.now = at
		if n := sent(r.step(fence.Tick{})); n != 1 {
			t.Errorf("a %s that failed is repeated %d times, want once", what, n)
		}
	}
	again("release", fence.GaveBack{Holds: []store.Hold{hold}, Err: down}, func(effects []fence.Effect) int {
		if give, look := count[fence.GiveBack](effects), count[fence.Look](effects); give == look {
			return give // what became of it is looked at too
		}
		return -1
	})
	r.step(fence.Saw{Began: r.now})
	r.step(fence.GaveBack{Holds: []store.Hold{hold}, Err: down})
	r.step(fence.Hint{})
	r.step(fence.Saw{Began: r.now})
	if wake := r.m.Wake(); wake != r.now+r.c.RetryAfter {
		t.Errorf("after a look that came before, the release that failed waits for %v", wake-r.now)
	}

	r = newRig(t)
	r.own(1)
	r.now = r.m.Wake()
	effects := r.step(fence.Tick{})
	only[fence.Look](t, effects)
	again("look", fence.Saw{Began: r.now, Err: down}, count[fence.Look])

	r = newRig(t)
	r.own(1)
	r.now += r.c.RenewEvery
	only[fence.Renew](t, r.step(fence.Tick{}))
	r.step(fence.Saw{Began: r.now})
	again("renewal", fence.Renewed{Began: postdate.Now{Mono: r.now}, Err: down}, count[fence.Renew])
}

// One release is under way at a time; what is drained meanwhile follows it.
func TestOneReleaseAtATime(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	r.step(fence.Want{})
	one, two := store.Hold{Bucket: 1, Token: 1}, store.Hold{Bucket: 2, Token: 1}
	if give := only[fence.GiveBack](t, r.step(fence.Drained{Holds: []store.Hold{one}})); !slices.Equal(give.Holds, []store.Hold{one}) {
		t.Fatalf("it gives back %+v", give.Holds)
	}
	if effects := r.step(fence.Drained{Holds: []store.Hold{two}}); count[fence.GiveBack](effects) > 0 {
		t.Fatal("two releases at a time")
	}
	if wake := r.m.Wake(); wake <= r.now && count[fence.Look](r.step(fence.Tick{})) == 0 {
		t.Error("it wants to be woken for what waits for an answer")
	}
	if give := only[fence.GiveBack](t, r.step(fence.GaveBack{Holds: []store.Hold{one}})); !slices.Equal(give.Holds, []store.Hold{two}) {
		t.Errorf("then it gives back %+v", give.Holds)
	}
}

// A bucket is asked to drain once, however often the share changes, and stays among the working
// ones until it is given back.
func TestDrainIsAskedOnce(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	only[fence.Drain](t, r.step(fence.Want{Buckets: []int{2}}))
	if effects := r.step(fence.Want{Buckets: []int{2, 3}}); count[fence.Drain](effects) > 0 {
		t.Error("a bucket is asked for twice to be drained")
	}
	if got := r.m.Buckets(); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("worked on are %v, want [1 2]", got)
	}
	r.step(fence.Renewed{Began: postdate.Now{Wall: 20_000, Mono: r.now}, Store: 10_000, WallEnded: 20_000})
	if got := r.m.Buckets(); len(got) > 0 || r.m.Held() != 2 {
		t.Errorf("after it turned out that the clock is wrong, %v are worked on and %d held", got, r.m.Held())
	}
	if effects := r.step(fence.Want{}); count[fence.Drain](effects) > 0 {
		t.Error("a bucket that nobody works on is to be drained")
	}
}

// A new share causes a look immediately, and so does a lapse of the lease.
func TestLooksAtOnce(t *testing.T) {
	r := newRig(t)
	r.own(1)
	r.now += time.Millisecond
	only[fence.Look](t, r.step(fence.Want{Buckets: []int{1, 2}}))

	r = newRig(t)
	r.own(1)
	r.now += r.c.RenewEvery
	effects := r.step(fence.Tick{})
	only[fence.Renew](t, effects)
	only[fence.Look](t, effects)
	r.step(fence.Saw{Began: r.now})
	effects = r.step(fence.ClockSet{By: r.c.LeaseTime})
	if count[fence.Look](effects) > 0 {
		t.Fatalf("no look is due, and it looks: %+v", effects)
	}
	effects = r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
	if count[fence.Lost](effects) != 1 || count[fence.Look](effects) != 1 {
		t.Errorf("after its lease lapsed it does not look at once: %+v", effects)
	}
}

// At the very end of the lease no look is made: the node could not take what it saw.
func TestNoLookAtTheEndOfTheLease(t *testing.T) {
	r := newRig(t)
	r.lease(1)
	r.step(fence.Saw{Began: r.now})
	r.now += r.c.LeaseTime
	if effects := r.step(fence.Tick{}); count[fence.Look](effects) > 0 {
		t.Error("it looks at the moment at which its lease has ended")
	}
}

// A renewal and a look are overdue from the moment they are due until a step begins them; while
// one is under way, the other counts.
func TestOverdue(t *testing.T) {
	const sooner, later = 200 * time.Millisecond, 500 * time.Millisecond
	for _, c := range []struct{ renew, look time.Duration }{{sooner, later}, {later, sooner}} {
		r := newRig(t, func(f *fence.Config) { f.RenewEvery, f.LookEvery = c.renew, c.look })
		r.lease(1) // renews, and looks
		r.step(fence.Saw{Began: r.now})
		want := func(after time.Duration, overdue bool) {
			t.Helper()
			if got := r.m.Overdue(r.now + after); got != overdue {
				t.Errorf("with renewals each %v and looks each %v, %v later overdue is %t", c.renew, c.look, after, got)
			}
		}
		want(sooner-1, false)
		want(sooner, true)
		r.now += sooner
		r.step(fence.Tick{}) // begins the one that comes sooner
		want(later-sooner-1, c.look == sooner && later-sooner-1 >= sooner)
		want(later-sooner, true)
	}
}

// A renewal that ends in the last fifth of the lease comes too late, and an earlier one does
// not. If no other process can have the store open, none does.
func TestWhenALeaseHasLapsed(t *testing.T) {
	for _, c := range []struct {
		before    time.Duration // the end of the lease
		exclusive bool
		lost      int
	}{{501 * time.Millisecond, false, 0}, {500 * time.Millisecond, false, 1}, {0, true, 0}} {
		r := newRig(t, func(f *fence.Config) { f.Exclusive = c.exclusive })
		r.own(1)
		began := r.now
		r.now += r.c.LeaseTime - c.before
		if lost := count[fence.Lost](r.step(fence.Renewed{Began: postdate.Now{Mono: began + 1}})); lost != c.lost {
			t.Errorf("renewed %v before its end, exclusive %v: %d buckets are lost, want %d", c.before, c.exclusive, lost, c.lost)
		}
	}
}

// Time that the clock may have missed counts until a renewal that began later, and never twice.
func TestWhatAClockMissedCountsOnce(t *testing.T) {
	r := newRig(t)
	r.own(1)
	by := r.c.LeaseTime / 2
	for range 3 {
		r.now += r.c.RenewEvery
		only[fence.Renew](t, r.step(fence.ClockSet{By: by}))
		if effects := r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}}); count[fence.Lost](effects) > 0 {
			t.Fatal("what was missed before the last renewal still counts")
		}
	}
	r.now += r.c.RenewEvery
	only[fence.Renew](t, r.step(fence.ClockSet{By: by}))
	if effects := append(r.step(fence.ClockSet{By: by}), r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})...); count[fence.Lost](effects) != 1 {
		t.Error("what was missed in two parts does not count together")
	}

	r = newRig(t)
	r.own(1)
	r.now += r.c.RenewEvery
	only[fence.Renew](t, r.step(fence.Tick{}))
	began := r.now
	r.now += time.Millisecond
	r.step(fence.ClockSet{By: r.c.LeaseTime})
	effects := r.step(fence.Renewed{Began: postdate.Now{Mono: began}})
	if count[fence.Lost](effects) != 1 {
		t.Fatal("the lease may have lapsed, and nothing is taken anew")
	}
	saw := fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1, Owner: "me", Token: 1, Lease: "me/1"}}}
	only[fence.Take](t, r.step(saw))
	r.step(fence.Took{Results: []store.Acquired{{Partition: bucket.Partition{Bucket: 1, Owner: "me", Token: 2, Lease: "me/1"}, OK: true}}})
	if effects := r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}}); count[fence.Lost](effects) > 0 {
		t.Error("what was taken anew is lost again for the same time")
	}
}

// How far the clock is off is shown only while it is too much. Without a bound, nothing is
// compared.
func TestAhead(t *testing.T) {
	r := newRig(t)
	r.own(1)
	for _, c := range []struct {
		wall postdate.Time
		want time.Duration
	}{{10_500, 0}, {15_000, 5 * time.Second}, {16_000, 6 * time.Second}, {4_000, -6 * time.Second}, {10_000, 0}} {
		r.step(fence.Renewed{Began: postdate.Now{Wall: c.wall, Mono: r.now}, Store: 10_000, WallEnded: c.wall})
		if got := r.m.Ahead(); got != c.want {
			t.Errorf("at %d by its own clock it shows %v, want %v", c.wall, got, c.want)
		}
	}
	r = newRig(t, func(c *fence.Config) { c.SkewMax = 0 })
	r.own(1)
	effects := r.step(fence.Renewed{Began: postdate.Now{Wall: 90_000, Mono: r.now}, Store: 10_000, WallEnded: 90_000})
	if count[fence.Skewed](effects)+count[fence.Lost](effects) > 0 {
		t.Errorf("without a bound it is skewed: %+v", effects)
	}
}

// Decisions list buckets by number, so that the same events always give the same effects.
func TestBucketsComeInOrder(t *testing.T) {
	var all []int
	for b := range 40 {
		all = append(all, b)
	}
	r := newRig(t)
	r.own(all...)
	if got := r.m.Buckets(); !slices.Equal(got, all) {
		t.Errorf("worked on are %v", got)
	}
	var drained []int
	for _, e := range r.step(fence.Want{}) {
		if drain, ok := e.(fence.Drain); ok {
			for _, hold := range drain.Holds {
				drained = append(drained, hold.Bucket)
			}
		}
	}
	if !slices.Equal(drained, all) {
		t.Errorf("drained are %v", drained)
	}
}

// After an acquisition the records are read again soon: somebody may have been quicker, or the
// outcome is unknown. What came too late for the lease is taken anew immediately.
func TestLooksAfterAnAcquisition(t *testing.T) {
	take := func() (*rig, fence.Took) {
		r := newRig(t)
		r.lease(1)
		only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1}}}))
		return r, fence.Took{Results: []store.Acquired{{Partition: bucket.Partition{Bucket: 1, Token: 1, Owner: "me", Lease: "me/1"}, OK: true}}}
	}
	r, took := take()
	if effects := r.step(took); count[fence.Drain](effects) > 0 {
		t.Errorf("what is wanted is drained: %+v", effects)
	}
	if wake := r.m.Wake(); wake != r.now+r.c.RetryAfter {
		t.Errorf("it wakes in %v, want %v", wake-r.now, r.c.RetryAfter)
	}
	r.now += r.c.RetryAfter
	only[fence.Look](t, r.step(fence.Tick{}))

	r, took = take()
	r.now += r.c.LeaseTime
	r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
	r.step(fence.Saw{Began: r.now})
	if effects := r.step(took); count[fence.Gained](effects) > 0 || count[fence.Look](effects) != 1 {
		t.Errorf("what was taken under a lease that lapsed: %+v", effects)
	}
}

// A bucket that came too late for the share is handed on once. One that came too late for the
// clock, or is not wanted, goes back without a Gained or Lost.
func TestWhatCameTooLateIsHandedOnOnce(t *testing.T) {
	r := newRig(t)
	r.lease(1)
	only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1}}}))
	r.step(fence.Want{})
	mine := bucket.Partition{Bucket: 1, Token: 1, Owner: "me", Lease: "me/1"}
	only[fence.Drain](t, r.step(fence.Took{Results: []store.Acquired{{Partition: mine, OK: true}}}))
	if effects := r.step(fence.Want{}); count[fence.Drain](effects) > 0 {
		t.Error("drained twice")
	}

	quiet := func(how string, r *rig) {
		t.Helper()
		if got := r.m.Buckets(); len(got) > 0 || r.m.Held() != 1 {
			t.Errorf("%s: %v are worked on and %d held, want none and 1", how, got, r.m.Held())
		}
		effects := append(r.step(fence.Want{}), r.step(fence.Fenced{Holds: []store.Hold{{Bucket: 1, Token: 1}}})...)
		if count[fence.Drain](effects)+count[fence.Lost](effects) > 0 {
			t.Errorf("%s: somebody is told of a bucket that nobody had: %+v", how, effects)
		}
	}
	r = newRig(t)
	r.lease()
	only[fence.GiveBack](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{mine}}))
	quiet("not wanted", r)

	r = newRig(t)
	r.lease(1)
	only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1}}}))
	r.step(fence.Renewed{Began: postdate.Now{Wall: 20_000, Mono: r.now}, Store: 10_000, WallEnded: 20_000})
	only[fence.GiveBack](t, r.step(fence.Took{Results: []store.Acquired{{Partition: mine, OK: true}}}))
	quiet("skewed", r)
}
