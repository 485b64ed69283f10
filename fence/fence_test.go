package fence_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// rig steps a machine by hand and keeps what it asks for.
type rig struct {
	t   *testing.T
	c   fence.Config
	m   *fence.Machine
	now time.Duration

	asked *fence.Look // that was not answered yet
}

func newRig(t *testing.T, changes ...func(*fence.Config)) *rig {
	c := fence.DefaultConfig("me", "me/1")
	for _, change := range changes {
		change(&c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, c: c, m: fence.NewMachine(c), now: time.Second}
}

func (r *rig) step(ev fence.Event) []fence.Effect {
	if _, answer := ev.(fence.Saw); answer {
		r.asked = nil
	}
	effects := r.m.Step(r.now, ev)
	for _, e := range effects {
		if look, ok := e.(fence.Look); ok {
			r.asked = &look
		}
	}
	return effects
}

// only returns the one effect of a kind among those of a step, or fails the test.
func only[E fence.Effect](t *testing.T, effects []fence.Effect) (found E) {
	t.Helper()
	if n := count[E](effects); n != 1 {
		t.Fatalf("%d effects %T among %+v, want 1", n, found, effects)
	}
	for _, e := range effects {
		if e, ok := e.(E); ok {
			found = e
		}
	}
	return found
}

func count[E fence.Effect](effects []fence.Effect) (n int) {
	for _, e := range effects {
		if _, ok := e.(E); ok {
			n++
		}
	}
	return n
}

// lease makes the machine want buckets and gives it a lease of its own.
func (r *rig) lease(buckets ...int) {
	r.t.Helper()
	renew := only[fence.Renew](r.t, r.step(fence.Want{Buckets: buckets}))
	if renew.Lease.ID != r.c.Lease {
		r.t.Fatalf("it renews %+v", renew)
	}
	effects := r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
	if until := only[fence.LeaseUntil](r.t, effects); until.Mono != r.now+r.c.LeaseTime {
		r.t.Errorf("the lease lasts until %v, want %v from %v", until.Mono, r.c.LeaseTime, r.now)
	}
	only[fence.Look](r.t, effects)
}

// renewed keeps this node's lease alive, and answers a renewal if one is asked for.
func (r *rig) renewed(effects []fence.Effect) []fence.Effect {
	if count[fence.Renew](effects) > 0 {
		effects = append(effects, r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})...)
	}
	return effects
}

// look advances to the next look, and answers it with the part of saw that it names.
func (r *rig) look(saw fence.Saw) []fence.Effect {
	r.t.Helper()
	for range 10 {
		r.now = max(r.now, r.m.Wake())
		if effects := r.renewed(r.step(fence.Tick{})); count[fence.Look](effects) > 0 {
			return r.answer(only[fence.Look](r.t, effects), saw)
		}
	}
	r.t.Fatal("it does not look at the records any more")
	return nil
}

// answer answers a look that began now with the part of saw that it names.
func (r *rig) answer(look fence.Look, saw fence.Saw) []fence.Effect {
	saw.Began = r.now
	saw.Partitions = slices.DeleteFunc(slices.Clone(saw.Partitions), func(p bucket.Partition) bool { return !slices.Contains(look.Buckets, p.Bucket) })
	return r.step(saw)
}

// own gives the machine these buckets, under token 1.
func (r *rig) own(buckets ...int) {
	r.t.Helper()
	r.lease(buckets...)
	saw, took := fence.Saw{}, fence.Took{}
	for _, b := range buckets {
		free := bucket.Partition{Bucket: b}
		saw.Partitions = append(saw.Partitions, free)
		mine, _ := free.Acquire(0, r.c.Node, r.c.Lease)
		took.Results = append(took.Results, store.Acquired{Partition: mine, OK: true})
	}
	only[fence.Take](r.t, r.step(saw))
	if gained := only[fence.Gained](r.t, r.step(took)); len(gained.Partitions) != len(buckets) || r.m.Held() != len(buckets) {
		r.t.Fatalf("it gained %+v and holds %d", gained, r.m.Held())
	}
}

// theirs is a bucket of another run, and that run's lease.
func theirs(renewals uint64) fence.Saw {
	return fence.Saw{
		Partitions: []bucket.Partition{{Bucket: 4, Owner: "you", Token: 7, Lease: "you/1", Checkpoint: 10, Claimed: bucket.UpTo(20)}},
		Leases:     []bucket.Lease{{ID: "you/1", Renewals: renewals, Lasts: 2500 * time.Millisecond}},
	}
}

// Nothing is taken from another run before its lease was seen to stand still for the whole
// lease time; then it is taken.
func TestTakesAfterTheLeaseStoodStill(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	effects := r.step(theirs(5))
	since := r.now
	for count[fence.Take](effects) == 0 {
		if r.now-since > 2*r.c.LeaseTime {
			t.Fatal("the owner is gone, and its bucket is not taken")
		}
		effects = r.look(theirs(5))
	}
	if r.now-since < r.c.LeaseTime {
		t.Errorf("taken after %v: the lease time is %v", r.now-since, r.c.LeaseTime)
	}
	want := []store.Acquisition{{Bucket: 4, SeenToken: 7, Owner: "me", Lease: "me/1"}}
	if take := only[fence.Take](t, effects); !reflect.DeepEqual(take.Wants, want) {
		t.Errorf("it wants %+v, want %+v", take.Wants, want)
	}
}

// A renewal begins the watch anew, however long the lease stood still before.
func TestRenewalResetsTheWatch(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	r.step(theirs(5))
	for renewals := uint64(5); renewals < 15; renewals++ {
		since := r.now
		for r.now-since < r.c.LeaseTime-2*r.c.LookEvery {
			if effects := r.look(theirs(renewals)); count[fence.Take](effects) > 0 {
				t.Fatalf("taken from an owner that is alive, after %v", r.now-since)
			}
		}
	}
}

// A lease that vanished from the store counts as standing still, not as gone.
func TestMissingLeaseIsWatchedToo(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	saw := theirs(5)
	saw.Leases = nil
	if effects := r.step(saw); count[fence.Take](effects) > 0 {
		t.Error("taken at first sight")
	}
}

// In a store that no other process can have open, every other owner is gone.
func TestExclusiveTakesAtOnce(t *testing.T) {
	r := newRig(t, func(c *fence.Config) { c.Exclusive = true })
	r.lease(4)
	only[fence.Take](t, r.step(theirs(5)))
}

// A free bucket is taken immediately, one that is not wanted never.
func TestTakesWhatIsFreeAndWanted(t *testing.T) {
	r := newRig(t)
	r.lease(1, 3)
	take := only[fence.Take](t, r.step(fence.Saw{Partitions: []bucket.Partition{{Bucket: 0}, {Bucket: 1, Token: 4}, {Bucket: 2}}}))
	if want := []store.Acquisition{{Bucket: 1, SeenToken: 4, Owner: "me", Lease: "me/1"}}; !reflect.DeepEqual(take.Wants, want) {
		t.Errorf("it wants %+v, want %+v", take.Wants, want)
	}
	if effects := r.step(fence.Took{Results: []store.Acquired{{Partition: bucket.Partition{Bucket: 1, Token: 5, Owner: "you"}}}}); count[fence.Gained](effects) > 0 || r.m.Held() > 0 {
		t.Error("it counts a bucket as its own for which somebody else was quicker")
	}
}

// A bucket is lost when its record shows a later token, or when a claim is refused; a stale
// refusal changes nothing.
func TestLosesByToken(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	if effects := r.step(fence.Fenced{Holds: []store.Hold{{Bucket: 1, Token: 99}}}); count[fence.Lost](effects) > 0 {
		t.Error("lost by a refusal of another token")
	}
	lost := only[fence.Lost](t, r.step(fence.Fenced{Holds: []store.Hold{{Bucket: 1, Token: 1}}}))
	if !slices.Equal(lost.Holds, []store.Hold{{Bucket: 1, Token: 1}}) {
		t.Errorf("lost %+v", lost)
	}
	saw := fence.Saw{Partitions: []bucket.Partition{{Bucket: 2, Owner: "you", Token: 2, Lease: "you/1"}}, Leases: []bucket.Lease{{ID: "you/1"}}}
	look := only[fence.Look](t, r.step(fence.Hint{Buckets: []int{2}}))
	lost = only[fence.Lost](t, r.answer(look, saw))
	if !slices.Equal(lost.Holds, []store.Hold{{Bucket: 2, Token: 1}}) || r.m.Held() != 0 {
		t.Errorf("lost %+v, %d still held", lost, r.m.Held())
	}
}

// A refusal that is stale for one bucket still counts for the next.
func TestLosesWhatItHas(t *testing.T) {
	r := newRig(t)
	r.own(1)
	both := []store.Hold{{Bucket: 3, Token: 1}, {Bucket: 1, Token: 1}}
	if lost := only[fence.Lost](t, r.step(fence.Fenced{Holds: both})); !slices.Equal(lost.Holds, both[1:]) {
		t.Errorf("lost %+v", lost)
	}
}

// An acquisition with an unknown outcome is not repeated blindly: the records tell whether it
// went through. The bucket is then taken anew, because under the old token somebody else may be
// about to take it.
func TestUnknownAcquisitionIsTakenAnew(t *testing.T) {
	r := newRig(t)
	r.lease(1)
	only[fence.Take](t, r.step(fence.Saw{Partitions: []bucket.Partition{{Bucket: 1}}}))
	r.step(fence.Took{Err: postdate.E(postdate.KindUnknown, "no answer")})
	if r.m.Held() != 0 {
		t.Error("it counts as its own what it does not know of")
	}
	mine := bucket.Partition{Bucket: 1, Owner: "me", Token: 1, Lease: "me/1", Checkpoint: 5, Claimed: bucket.UpTo(9)}
	effects := r.look(fence.Saw{Partitions: []bucket.Partition{mine}, Leases: []bucket.Lease{{ID: "me/1", Renewals: 1}}})
	take := only[fence.Take](t, effects)
	if want := []store.Acquisition{{Bucket: 1, SeenToken: 1, Owner: "me", Lease: "me/1"}}; !reflect.DeepEqual(take.Wants, want) {
		t.Errorf("it takes %+v, want %+v", take.Wants, want)
	}
	if count[fence.Gained](effects) > 0 {
		t.Error("it counts as its own what it takes anew")
	}
}

// If the lease ran out before it was renewed, every bucket is given up and taken anew under a
// new token, including what was taken meanwhile: a request of somebody who saw the lease stand
// still may still be on its way.
func TestALapsedLeaseTakesAnew(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	r.now += r.c.LeaseTime
	effects := r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
	if lost := len(only[fence.Lost](t, effects).Holds); lost != 2 || r.m.Held() != 0 {
		t.Fatalf("%d buckets are lost and %d held, want 2 and 0", lost, r.m.Held())
	}
	saw := fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 1, Owner: "me", Token: 1, Lease: "me/1"}, {Bucket: 2, Owner: "me", Token: 1, Lease: "me/1"}}}
	if take := only[fence.Take](t, r.step(saw)); len(take.Wants) != 2 || take.Wants[0].SeenToken != 1 {
		t.Errorf("it takes %+v", take.Wants)
	}
	r.now += r.c.LeaseTime
	r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
	for i := range saw.Partitions {
		saw.Partitions[i].Token = 2
	}
	effects = r.step(fence.Took{Results: []store.Acquired{{Partition: saw.Partitions[0], OK: true}, {Partition: saw.Partitions[1], OK: true}}})
	if count[fence.Gained](effects) > 0 {
		t.Error("what was taken before the lease ran out is gained after it")
	}
}

// If the wall clock was set, or ran on while the machine slept, the lease is renewed
// immediately; if it may have run out meanwhile, everything is taken anew.
func TestAClockThatIsSetTakesAnew(t *testing.T) {
	r := newRig(t)
	r.own(1)
	r.now += r.c.RenewEvery
	only[fence.Renew](t, r.step(fence.Tick{}))
	began := r.now
	r.now += time.Millisecond
	if effects := r.step(fence.ClockSet{By: r.c.LeaseTime}); count[fence.Renew](effects) > 0 {
		t.Fatal("two renewals at a time")
	}
	effects := r.step(fence.Renewed{Began: postdate.Now{Mono: began}})
	if only[fence.Renew](t, effects); count[fence.Lost](effects) != 1 {
		t.Fatalf("it is not taken anew: %+v", effects)
	}
	if effects := r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}}); count[fence.Renew](effects) > 0 {
		t.Error("renewed for ever")
	}
	r = newRig(t)
	r.own(1)
	r.now += r.c.RenewEvery
	for _, by := range []time.Duration{-time.Hour, r.c.LeaseTime / 20} {
		only[fence.Renew](t, r.step(fence.ClockSet{By: by}))
		if effects := r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}}); count[fence.Lost](effects) > 0 {
			t.Errorf("a clock that was set by %s makes it take everything anew", by)
		}
		r.now += r.c.RenewEvery / 2
	}
}

// A bucket that is no longer wanted is drained before it is given back, and stays held until
// the release went through.
func TestDrainsBeforeItGivesBack(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	effects := r.step(fence.Want{Buckets: []int{2}})
	hold := store.Hold{Bucket: 1, Token: 1}
	if drain := only[fence.Drain](t, effects); !slices.Equal(drain.Holds, []store.Hold{hold}) || count[fence.GiveBack](effects) > 0 {
		t.Fatalf("effects %+v", effects)
	}
	if effects := r.step(fence.Tick{}); count[fence.GiveBack](effects)+count[fence.Drain](effects) > 0 {
		t.Fatalf("before it is drained: %+v", effects)
	}
	if effects := r.step(fence.Drained{Holds: []store.Hold{{Bucket: 1, Token: 99}}}); count[fence.GiveBack](effects) > 0 {
		t.Fatal("given back by word about another token")
	}
	give := only[fence.GiveBack](t, r.step(fence.Drained{Holds: []store.Hold{hold}}))
	if !reflect.DeepEqual(give.Holds, []store.Hold{hold}) || r.m.Held() != 2 {
		t.Fatalf("it gives back %+v and holds %d", give.Holds, r.m.Held())
	}
	r.step(fence.GaveBack{Holds: give.Holds})
	if r.m.Held() != 1 {
		t.Errorf("%d held, want 1", r.m.Held())
	}
}

// A failing store is asked again after a pause, not in a spin: the pause bounds the calls, and
// the wake-up never lies in the past.
func TestFailingStoreDoesNotSpin(t *testing.T) {
	down := errors.New("the store is down")
	r := newRig(t)
	r.own(1, 2)
	r.step(fence.Want{Buckets: []int{2}})
	effects := r.step(fence.Drained{Holds: []store.Hold{{Bucket: 1, Token: 1}}})
	calls, begin := 0, r.now
	for steps := 0; r.now < begin+10*time.Second; steps++ {
		if steps > 1000 {
			t.Fatalf("1000 steps in %v", r.now-begin)
		}
		var more []fence.Effect
		for _, e := range effects {
			switch e := e.(type) {
			case fence.Renew:
				more = append(more, r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}, Err: down})...)
			case fence.Look:
				more = append(more, r.step(fence.Saw{Err: down})...)
			case fence.GiveBack:
				more = append(more, r.step(fence.GaveBack{Holds: e.Holds, Err: down})...)
			default:
				continue
			}
			calls++
		}
		if len(more) == 0 {
			if r.m.Wake() <= r.now {
				t.Fatalf("nothing to do, and it wants to be woken at once")
			}
			r.now = r.m.Wake()
			more = r.step(fence.Tick{})
		}
		effects = more
	}
	if limit := 3 * int(10*time.Second/r.c.RetryAfter+1); calls > limit || calls < 10 {
		t.Errorf("%d calls in 10 s, want 10 to %d", calls, limit)
	}
	if r.m.Held() != 2 {
		t.Errorf("%d held: what could not be given back is held", r.m.Held())
	}
}

// Nothing is taken once this node's lease has run out: its holder may not act on it.
func TestTakesNothingWithoutALease(t *testing.T) {
	r := newRig(t)
	r.lease(1)
	r.now += r.c.LeaseTime
	if effects := r.step(fence.Saw{Partitions: []bucket.Partition{{Bucket: 1}}}); count[fence.Take](effects) > 0 {
		t.Error("a bucket is taken under a lease that ran out")
	}
}

func TestConfigValidate(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		change func(*fence.Config)
		ok     bool
	}{
		"as it comes":             {func(c *fence.Config) {}, true},
		"no node":                 {func(c *fence.Config) { c.Node = "" }, false},
		"no lease":                {func(c *fence.Config) { c.Lease = "" }, false},
		"no renewals":             {func(c *fence.Config) { c.RenewEvery = 0 }, false},
		"no looks":                {func(c *fence.Config) { c.LookEvery = 0 }, false},
		"no pause":                {func(c *fence.Config) { c.RetryAfter = 0 }, false},
		"no bound of the skew":    {func(c *fence.Config) { c.SkewMax = 0 }, true},
		"a bound that is none":    {func(c *fence.Config) { c.SkewMax = -1 }, false},
		"three renewals":          {func(c *fence.Config) { c.LeaseTime, c.RenewEvery, c.LookEvery = 3*second, second, second/2 }, true},
		"not quite three":         {func(c *fence.Config) { c.LeaseTime, c.RenewEvery, c.LookEvery = 3*second-1, second, second/2 }, false},
		"three looks":             {func(c *fence.Config) { c.LeaseTime, c.RenewEvery, c.LookEvery = 3*second, second/2, second }, true},
		"not quite three looks":   {func(c *fence.Config) { c.LeaseTime, c.RenewEvery, c.LookEvery = 3*second-1, second/2, second }, false},
		"the longest lease":       {func(c *fence.Config) { c.LeaseTime = fence.LeaseMax }, true},
		"longer than the longest": {func(c *fence.Config) { c.LeaseTime = fence.LeaseMax + 1 }, false},
	} {
		c := fence.DefaultConfig("me", "me/1")
		test.change(&c)
		if err := c.Validate(); (err == nil) != test.ok || err != nil && postdate.KindOf(err) != postdate.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
