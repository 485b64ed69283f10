package machine

import (
	"reflect"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
)

// What ends while a node's clock is far behind the store's is dated by the store's clock:
// otherwise every other node would delete it immediately, even an unread inbox message.
func TestDatesByTheStoresClock(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(time.Second)
	wall := func(behind time.Duration) time.Duration {
		t.Helper()
		now := r.now
		now.Wall = now.Wall.Add(-behind)
		return r.m.Board().Wall(now).Sub(r.now.Wall)
	}
	if d := wall(0); d != 0 {
		t.Errorf("a right clock is corrected by %s", d)
	}
	if d := wall(900 * time.Millisecond); d != -900*time.Millisecond {
		t.Errorf("a clock that is 0.9 s behind, which is allowed, counts as %s off", d)
	}
	if d := wall(time.Second); d != -time.Second {
		t.Errorf("a clock that is 1 s behind, which is just allowed, counts as %s off", d)
	}
	if d := wall(48 * time.Hour); d != 0 {
		t.Errorf("a clock that is 48 h behind counts as %s off", d)
	}
	if d := wall(-48 * time.Hour); d != 48*time.Hour {
		t.Errorf("a clock that is 48 h ahead counts as %s off", d)
	}
}

// Nothing is corrected without a bound, nor by a store without a clock.
func TestDatesThatAreNotCorrected(t *testing.T) {
	for name, r := range map[string]*rig{
		"no bound": newRig(t, func(c *Config) { c.Fence.SkewMax = 0 }),
		"no clock": newRig(t, func(c *Config) { c.Fence.Exclusive = true }),
	} {
		r.noClock = name == "no clock"
		r.step(fence.Tick{})
		r.run(time.Second)
		now := r.now
		now.Wall -= 100_000
		if got := r.m.Board().Wall(now); got != now.Wall {
			t.Errorf("%s: it is %d, want %d", name, got, now.Wall)
		}
	}
}

// What follows from how long leases last.
func TestWithLease(t *testing.T) {
	c := Config{Fence: fence.DefaultConfig("n", "n/1"), Poller: poller.DefaultConfig()}
	if got := c.WithLease(c.Fence.LeaseTime); !reflect.DeepEqual(got, c) {
		t.Errorf("the default lease changes the defaults to %+v", got)
	}
	for _, lease := range []time.Duration{500 * time.Millisecond, 30 * time.Second, fence.LeaseMax} {
		got := c.WithLease(lease)
		if err := got.Fence.Validate(); err != nil {
			t.Errorf("%s: %v", lease, err)
		}
		if got.Fence.LeaseTime != lease || got.Fence.RenewEvery != lease/5 {
			t.Errorf("%s: leases last %s and are renewed each %s", lease, got.Fence.LeaseTime, got.Fence.RenewEvery)
		}
		if got.Fence.LookEvery > c.Fence.LookEvery || got.Poller.LeaseMargin > lease/5 || got.Poller.LeaseMargin > c.Poller.LeaseMargin {
			t.Errorf("%s: looks every %s, stops %s before the end", lease, got.Fence.LookEvery, got.Poller.LeaseMargin)
		}
	}
}

// What may be left out because it is over is judged by no clock that is far off.
func TestPassed(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(time.Second)
	for off, want := range map[time.Duration]time.Duration{
		0: 0, 900 * time.Millisecond: 900 * time.Millisecond, 48 * time.Hour: time.Second,
		-900 * time.Millisecond: -900 * time.Millisecond, -48 * time.Hour: 0,
	} {
		now := r.now
		now.Wall = now.Wall.Add(off)
		if got := r.m.Board().Passed(now).Sub(r.now.Wall); got != want {
			t.Errorf("by a clock that is %s off, %s off has passed, want %s", off, got, want)
		}
	}
	alone := newRig(t, func(c *Config) { c.Fence.Exclusive = true })
	alone.noClock = true
	alone.step(fence.Tick{})
	alone.run(time.Second)
	now := alone.now
	now.Wall += 100_000
	if got := alone.m.Board().Passed(now); got != now.Wall {
		t.Errorf("without another clock it is %d, want %d", got, now.Wall)
	}
}

// An answer that waited, as while the process stood still, says less of the store's clock than the one before,
// but clocks drift, and a store's clock may be set.
func TestTheBestReadingOfTheStoresClock(t *testing.T) {
	var c storeClock
	at := func(mono time.Duration) postdate.Time {
		t, _ := c.at(postdate.Now{Mono: mono})
		return t
	}
	const began = 100 * time.Second
	c.read(100_000, began)
	c.read(101_000, began+9*time.Second) // it was 8 s on its way
	if got := at(began + 10*time.Second); got != 110_000 {
		t.Errorf("after a late answer the store's clock is %d, want 110000", got)
	}
	c.read(110_500, began+10*time.Second)
	if got := at(began + 10*time.Second); got != 110_500 {
		t.Errorf("after a better answer the store's clock is %d, want 110500", got)
	}
	c.read(140_000, began+10*time.Second+readingLasts)
	if got := at(began + 10*time.Second + readingLasts); got != 140_000 {
		t.Errorf("a minute later the store's clock is %d, want what it says now, 140000", got)
	}
}

// Where the two clocks are not compared, a node goes by its own.
func TestClocksThatAreNotCompared(t *testing.T) {
	var c storeClock // of no skewMax
	c.read(100_000, time.Minute)
	for _, wall := range []postdate.Time{50_000, 150_000} {
		now := postdate.Now{Wall: wall, Mono: time.Minute}
		if c.wall(now) != wall || c.passed(now) != wall {
			t.Errorf("at %d it says %d, and %d has passed", wall, c.wall(now), c.passed(now))
		}
	}
}
