package fence_test

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store/storetest"
)

// party is one of several machines that share a store, whose calls take no time.
type party struct {
	t     *testing.T
	c     fence.Config
	m     *fence.Machine
	store *storetest.Mem
	now   time.Duration
	until time.Duration // end of the own lease
	held  int           // buckets gained and not lost
}

func newParty(t *testing.T, s *storetest.Mem, name string, lease, look time.Duration) *party {
	c := fence.DefaultConfig(name, name+"/1")
	c.LeaseTime, c.RenewEvery, c.LookEvery = lease, lease/5, look
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return &party{t: t, c: c, m: fence.NewMachine(c), store: s}
}

// step takes in an event, and carries out what follows.
func (p *party) step(now time.Duration, ev fence.Event) {
	p.now = now
	for _, e := range p.m.Step(now, ev) {
		switch e := e.(type) {
		case fence.Renew:
			_, err := p.store.Renew(p.t.Context(), e.Lease)
			p.step(now, fence.Renewed{Began: postdate.Now{Mono: now}, Err: err})
		case fence.Look:
			saw := fence.Saw{Began: now}
			saw.Partitions, saw.Leases, saw.Err = p.store.Look(p.t.Context(), e.Buckets)
			p.step(now, saw)
		case fence.Take:
			results, err := p.store.Acquire(p.t.Context(), e.Wants)
			p.step(now, fence.Took{Results: results, Err: err})
		case fence.Gained:
			p.held += len(e.Partitions)
		case fence.Lost:
			p.held -= len(e.Holds)
		case fence.LeaseUntil:
			p.until = e.Mono
		}
	}
}

// Each lease is judged by how long its own holder relies on it, whatever the watcher's lease
// time: nothing is taken while the owner relies on its lease, and what a dead owner leaves
// behind is taken soon after.
func TestLeasesOfDifferentLength(t *testing.T) {
	const second = time.Second
	for _, c := range []struct{ owner, watcher, look time.Duration }{
		{30 * second, 2500 * time.Millisecond, second / 2},
		{2500 * time.Millisecond, 30 * second, second / 2},
		{500 * time.Millisecond, 5 * time.Minute, second / 2},
		{500 * time.Millisecond, 30 * second, 6 * second}, // looks that are further apart than the lease lasts
		{5 * time.Minute, 500 * time.Millisecond, second / 10},
		{10 * second, 10 * second, second / 2},
	} {
		t.Run(c.owner.String()+" watched by "+c.watcher.String(), func(t *testing.T) {
			s := storetest.NewMem(1)
			owner, watcher := newParty(t, s, "owner", c.owner, c.owner/5), newParty(t, s, "watcher", c.watcher, c.look)
			owner.step(second, fence.Want{Buckets: []int{0}})
			watcher.step(second, fence.Want{Buckets: []int{0}})
			if owner.held != 1 {
				t.Fatal("the owner does not own its bucket")
			}
			died := second + 3*c.owner
			for now := second; watcher.held == 0; now += 50 * time.Millisecond {
				if now < died {
					owner.step(now, fence.Tick{})
				}
				watcher.step(now, fence.Tick{})
				if watcher.held > 0 && now < owner.until {
					t.Errorf("taken %v before the owner's lease ends", owner.until-now)
				}
				if late := now - owner.until; late > 3*c.look {
					t.Fatalf("the owner's lease ended %v ago, and its bucket is not taken", late)
				}
			}
			if watcher.now < died {
				t.Errorf("taken from an owner that is alive, after %v", watcher.now)
			}
		})
	}
}

// A lease that is missing, or whose record does not say how long it lasts, is watched for the
// longest time that a lease can have.
func TestALeaseOfUnknownLength(t *testing.T) {
	for name, leases := range map[string][]bucket.Lease{
		"a record of an older version": {{ID: "you/1", Renewals: 5}},
		"no record":                    nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.lease(4)
			saw := theirs(5)
			saw.Leases = leases
			since, effects := r.now, r.step(saw)
			for count[fence.Take](effects) == 0 && r.now-since < 10*time.Minute {
				effects = r.look(saw)
			}
			if watched := r.now - since; watched < 5*time.Minute || watched > 5*time.Minute+2*r.c.LookEvery {
				t.Errorf("taken after %v: the longest lease lasts 5m", watched)
			}
		})
	}
}

// If a lease states different durations, the longest counts: its holder may still go by an
// earlier renewal.
func TestTheLongestLengthCounts(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	saw := theirs(5)
	saw.Leases[0].Lasts = 30 * time.Second
	r.step(saw)
	since := r.now
	for effects := []fence.Effect(nil); count[fence.Take](effects) == 0; effects = r.look(theirs(6)) {
		if r.now-since > time.Minute {
			t.Fatal("it is not taken at all")
		}
	}
	if r.now-since < 30*time.Second {
		t.Errorf("taken after %v: it was said to last 30s", r.now-since)
	}
}

// Each lease has its own measure of a look that comes too late: a gap longer than the lease
// lasts begins its watch anew, and a shorter one does not.
func TestSleepIsNoWatchingOfALongLease(t *testing.T) {
	for _, c := range []struct {
		gap   time.Duration
		taken bool
	}{{29 * time.Second, true}, {31 * time.Second, false}} {
		r := newRig(t)
		r.lease(4)
		saw := theirs(5)
		saw.Leases[0].Lasts = 30 * time.Second
		r.step(saw)
		since := r.now
		for r.now-since < 2*time.Second {
			r.look(saw)
		}
		r.now += c.gap
		r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
		saw.Began = r.now
		if taken := count[fence.Take](r.step(saw)) > 0; taken != c.taken {
			t.Errorf("after a gap of %v: taken %v, want %v", c.gap, taken, c.taken)
		}
	}
}

// An owner without a lease is watched too, from when it was first seen.
func TestAnOwnerWithoutALease(t *testing.T) {
	r := newRig(t)
	r.now = time.Hour // the process has run for long
	r.lease(4)
	if effects := r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 4, Owner: "you", Token: 7}}}); count[fence.Take](effects) > 0 {
		t.Error("taken at first sight")
	}
}

// A lease that was seen to stand still for exactly as long as it lasts has ended.
func TestTheEndOfAWatch(t *testing.T) {
	const lasts = 30 * time.Second
	for after, want := range map[time.Duration]bool{lasts - 1: false, lasts: true} {
		r := newRig(t)
		r.lease(4)
		saw := theirs(5)
		saw.Began, saw.Leases[0].Lasts = r.now, lasts
		r.step(saw)
		r.now += after
		r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
		saw.Began = r.now
		if taken := count[fence.Take](r.step(saw)) > 0; taken != want {
			t.Errorf("after %v: taken %v, want %v", after, taken, want)
		}
	}
}
