package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// If a channel has messages parked in many buckets that are apart and whose unparks hang, and
// in one that is well, those in the well one come back soon.
func TestOneWellBucketAmongMany(t *testing.T) {
	for _, bad := range []int{100, 1_000} {
		for _, found := range []bool{false, true} { // by an earlier owner: nobody knows whether it is up
			s := newSlowShop(t, bad+1, func(c *Config) { c.SweepEvery = 2 * time.Second })
			s.broken, s.alone = func(b int) bool { return b < bad }, true
			l, answer := hangsWhere(s, s.broken)
			l.work(6*time.Second, answer) // sweeps fail
			if len(s.m.apart) < bad {
				t.Fatalf("%d lanes are apart: the test shows nothing", len(s.m.apart))
			}
			var all []store.ParkedRoute
			for b := range bad + 1 {
				if found {
					all = append(all, s.parkedBefore(b, "x:a"))
				} else {
					s.parkedNow(b, "x:a")
				}
			}
			s.step(ParkedFound{Found: all})
			l.work(time.Second, answer)
			if s.arrived["x:a"] == 0 {
				t.Errorf("%d bad buckets, found %v: it has not come after a second", bad, found)
			}
		}
	}
}

// hangsWhere answers unparks in some buckets late, and with a failure.
func hangsWhere(s *shop, bad func(int) bool) (*late[Unpark], func(Unpark) Event) {
	l := answersLate(s, func(u Unpark) time.Duration {
		if bad(u.Unpark.Bucket) {
			return 30 * time.Second
		}
		return 5 * ms
	})
	return l, func(u Unpark) Event {
		if bad(u.Unpark.Bucket) {
			return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
		}
		return s.unpark(u.Unpark)
	}
}

// Unparks that hang in buckets that are apart leave their channel room.
func TestUnparksThatHangApart(t *testing.T) {
	s := newSlowShop(t, 3, func(c *Config) { c.SweepEvery = 2 * time.Second })
	s.broken, s.alone = func(b int) bool { return b < 2 }, true
	l, answer := hangsWhere(s, s.broken)
	l.work(6*time.Second, answer)
	s.parkedNow(0, "x:a")
	s.parkedNow(1, "x:a")
	s.step(fence.Tick{})
	l.work(time.Second, answer)
	s.parkedNow(2, "x:a")
	s.step(fence.Tick{})
	l.work(time.Second, answer)
	if s.arrived["x:a"] == 0 || len(s.m.unparks) != 2 {
		t.Errorf("%d came while %d unparks hang, want one while two do", s.arrived["x:a"], len(s.m.unparks))
	}
}

// If a host is up again and most of its URLs lie in a bucket whose claims fail, one that lies
// elsewhere is tried soon.
func TestProbesWhereClaimsFail(t *testing.T) {
	s := newSlowShop(t, 2, func(c *Config) { c.SweepEvery = 2 * time.Second })
	var all []store.ParkedRoute
	for i := range 400 {
		all = append(all, s.parkedBefore(1, named("https://h/bad-%d", i)))
	}
	all = append(all, s.parkedBefore(0, "https://h/good"))
	s.broken, s.alone = func(b int) bool { return b == 1 }, true
	l, answer := hangsWhere(s, func(int) bool { return false })
	s.add(1, "y:z", 1, -ms)
	l.work(3*time.Second, answer)
	s.step(ParkedFound{Found: all})
	l.work(5*time.Second, answer)
	if s.arrived["https://h/good"] == 0 {
		t.Error("it is not tried in five seconds")
	}
}

// With few unparks at a time, those of a bucket that always fails take turns with the others.
func TestFewUnparksAtATime(t *testing.T) {
	for _, most := range []int{1, 2, 3} {
		s := newSlowShop(t, 2, func(c *Config) { c.UnparksMax = most })
		s.parkedNow(1, "x:bad")
		l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
		tries := 0
		answer := func(u Unpark) Event {
			if u.Unpark.Bucket == 1 {
				tries++
				return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
			}
			return s.unpark(u.Unpark)
		}
		s.step(fence.Tick{})
		l.work(3*time.Second, answer)
		for range 100 {
			s.parkedNow(0, "x:good")
		}
		before := tries
		s.step(fence.Tick{})
		l.work(2*time.Second, answer)
		if s.parked("x:good") > 0 || tries == before {
			t.Errorf("%d at a time: %d are parked in the well bucket, and the other one was tried %d times", most, s.parked("x:good"), tries-before)
		}
	}
}

// One URL of many comes back even if the others are paused.
func TestManyURLsThatArePaused(t *testing.T) {
	s := newSlowShop(t, 4, nil)
	var set []store.ChannelSettings
	for i := range 1_000 {
		s.parkedNow(i%4, named("https://h/%d", i))
		set = append(set, store.ChannelSettings{Route: named("https://h/%d", i), Paused: i != 500})
	}
	s.limits(set...)
	s.work(time.Second)
	if s.arrived["https://h/500"] == 0 {
		t.Error("it has not come after a second")
	}
}

// If all are paused and the host is down, a look ends.
func TestAllURLsArePaused(t *testing.T) {
	b := withParked(t, 4, nil)
	var set []store.ChannelSettings
	var all []store.ParkedRoute
	for i := range 3 * looksMax {
		set = append(set, store.ChannelSettings{Route: named("https://h/%d", i), Paused: true})
		all = append(all, store.ParkedRoute{Bucket: i % 4, Route: named("https://h/%d", i)})
	}
	b.step(Limits{Settings: set})
	if n := len(of[Unpark](b.step(ParkedFound{Found: all}))); n > 0 || b.m.Wake(b.now) != lookOn {
		t.Errorf("%d unparks, and woken after %s, want none and %s", n, b.m.Wake(b.now), lookOn)
	}
}

// A channel that is down is tried even in a bucket that is apart, if there is no other.
func TestAProbeInABucketThatIsApart(t *testing.T) {
	b := withParked(t, 4, nil)
	b.m.failed(b.now, b.m.common, []*owned{b.m.buckets[1]}, func(l *lane) *time.Duration { return &l.nextSettle })
	try := b.parked("inbox:p", 1)
	if len(try) != 1 {
		t.Fatalf("unparked %+v, want one message to see whether it goes through", try)
	}
	unparks := b.moved(try[0], 1)
	b.after(b.m.c.ProbeMin)
	if unparks = append(unparks, of[Unpark](b.step(fence.Tick{}))...); len(unparks) != 1 || unparks[0].Unpark.Limit != 1 {
		t.Errorf("unparked %+v, want another message as a probe", unparks)
	}
}

// As long as a bucket is read with the others, probes come from it and not from one that is apart.
func TestProbesPreferBucketsThatAreRead(t *testing.T) {
	b := withParked(t, 4, nil)
	b.m.failed(b.now, b.m.common, []*owned{b.m.buckets[1]}, func(l *lane) *time.Duration { return &l.nextSettle })
	b.moved(b.parked("inbox:p", 1)[0], 1)
	unparks := b.parked("inbox:p", 2)
	for range 3 {
		b.after(b.m.c.ProbeMin)
		unparks = append(unparks, of[Unpark](b.step(fence.Tick{}))...)
		if len(unparks) != 1 || unparks[0].Unpark.Bucket != 2 {
			t.Fatalf("unparked %+v, want one in bucket 2", unparks)
		}
		unparks = b.moved(unparks[0], 1)
	}
}

// A probe that is refused because of its own content shows that its channel is up: the others
// follow immediately.
func TestAProbeThatIsRefused(t *testing.T) {
	b := withParked(t, 6, nil)
	probe := b.parked("inbox:p", 1, 2, 3, 4, 5)
	if len(probe) != 1 {
		t.Fatalf("%d probes, want 1", len(probe))
	}
	b.moved(probe[0], 1)
	rec := records("inbox:p", 1, b.now.Wall-10)[0]
	unparks := of[Unpark](b.outcome(b.read(rec), refused))
	if len(unparks) < 2 || unparks[0].Unpark.Limit == 1 {
		t.Errorf("unparked %+v, want more than a probe", unparks)
	}
}

// A rate that lets nothing out for years does not cause constant looks.
func TestATinyRate(t *testing.T) {
	s := newSlowShop(t, 2, nil)
	s.limits(store.ChannelSettings{Route: "x:a", MaxPerSecond: 1e-300})
	s.add(0, "x:a", 3, -ms)
	s.work(time.Second)
	s.parkedNow(0, "x:a")
	s.parkedNow(0, "x:b")
	s.step(fence.Tick{})
	s.work(time.Second)
	if s.arrived["x:a"] != 0 || s.arrived["x:b"] != 1 {
		t.Errorf("%v arrived, want one of x:b", s.arrived)
	}
}

// While nothing may be published, nothing is brought back.
func TestNoUnparkWithoutALease(t *testing.T) {
	b := withParked(t, 2, nil, "inbox:a")
	b.m.leaseUntil = b.now.Mono
	if n := len(b.parked("inbox:a", 1)); n > 0 {
		t.Errorf("%d unparks begin", n)
	}
	effects := b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Minute, Read: b.now})
	if n := len(of[Unpark](effects)); n != 1 {
		t.Errorf("%d unparks begin when there is a lease again, want one", n)
	}
}

// The budget of probes is kept when unparks fail, and what failed is tried again.
func TestProbesBesideFailuresKeepTheirBudget(t *testing.T) {
	const hosts, lasts = 2_000, 10
	s := newSlowShop(t, hosts, nil)
	s.down = every
	var all []store.ParkedRoute
	for i := range hosts {
		all = append(all, s.parkedBefore(i, named("https://host-%d.example/", i)))
	}
	l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
	probes, calls, unparked := 0, 0, s.watch
	s.watch = func(e Effect) {
		unparked(e)
		if has[Publish](e) {
			probes++
		}
	}
	s.step(ParkedFound{Found: all})
	l.work(lasts*time.Second, func(u Unpark) Event {
		if calls++; calls%5 == 0 {
			return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
		}
		return s.unpark(u.Unpark)
	})
	if most := lasts * probesPerSecond; probes < most*8/10 || probes > most+1 {
		t.Errorf("%d probes in %d s, want about %d", probes, lasts, most)
	}
}

// Messages being settled, looked at or already with the broker do not count as unsent.
func TestUnsent(t *testing.T) {
	if c := (&channel{hand: 10, settling: 1, looks: 2, inFlight: 3}); c.unsent() != 4 {
		t.Errorf("%d wait, want 4", c.unsent())
	}
}
