package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// An unpark fails once. What is parked in its bucket does not wait for the backlogs of other
// channels, whose unparks take each place that becomes free.
func TestABucketIsTriedAgainBesideABacklog(t *testing.T) {
	const buckets = 40
	for _, channels := range []int{4, 200} {
		s := newSlowShop(t, buckets, nil)
		s.parkedNow(0, "x:quiet")
		for b := 1; b < buckets; b++ {
			for c := range channels {
				s.parkedNow(b, named("x:%d", c))
			}
		}
		failed := false
		l := answersLate(s, func(Unpark) time.Duration { return 20 * ms })
		s.step(fence.Tick{})
		l.work(2*time.Second, func(u Unpark) Event {
			if u.Unpark.Bucket == 0 && !failed {
				failed = true
				return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
			}
			return Unparked{Unpark: u.Unpark, Moved: s.unpark(u.Unpark)}
		})
		if s.parked("x:quiet") > 0 || !failed {
			t.Errorf("%d channels: after two seconds it is parked, though one unpark has failed (%v) and all others went through", channels, failed)
		}
	}
}

// So it is beside channels with a limit, whose backlogs last.
func TestABucketIsTriedAgainBesideLimits(t *testing.T) {
	s := newSlowShop(t, 16, nil)
	s.parkedNow(0, "x:quiet")
	var set []store.ChannelSettings
	for c := range 20 {
		set = append(set, store.ChannelSettings{Channel: named("x:%d", c), MaxPerSecond: 8})
		for i := range 8 * 30 {
			s.parkedNow(1+i%15, named("x:%d", c))
		}
	}
	failed := false
	l := answersLate(s, func(Unpark) time.Duration { return 60 * ms })
	s.limits(set...)
	l.work(2*time.Second, func(u Unpark) Event {
		if u.Unpark.Bucket == 0 && !failed {
			failed = true
			return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
		}
		return Unparked{Unpark: u.Unpark, Moved: s.unpark(u.Unpark)}
	})
	if s.parked("x:quiet") > 0 || !failed {
		t.Errorf("after two seconds it is parked, though one unpark has failed (%v) and all others went through", failed)
	}
}

// Where the unparks of one channel fail in a bucket for ever, those of the others come back,
// whatever their names.
func TestUnparksOfOneChannelFailInABucket(t *testing.T) {
	for _, bad := range []postdate.Channel{"x:a", "x:z"} {
		s := newSlowShop(t, 2, nil)
		s.parkedNow(0, bad)
		for i := range 20 {
			s.parkedNow(0, named("x:m-%d", i))
		}
		answer := func(u Unpark) Event {
			if u.Unpark.Channel == bad {
				return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
			}
			return Unparked{Unpark: u.Unpark, Moved: s.unpark(u.Unpark)}
		}
		l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
		s.step(fence.Tick{})
		l.work(10*time.Second, answer)
		s.parkedNow(0, "x:m-late") // while it is known to fail
		s.step(fence.Tick{})
		l.work(2*time.Second, answer)
		if n := s.parked(); n != 1 {
			t.Errorf("%s fails: %d messages are parked, want its own alone", bad, n)
		}
	}
}

// Where unparks of a channel that is down hang in some buckets, it is tried in others.
func TestAProbeBesideUnparksThatHang(t *testing.T) {
	for _, bad := range []int{1, 3} {
		s := newSlowShop(t, 64, nil)
		var all []store.ParkedChannel
		for b := range 64 {
			all = append(all, s.parkedBefore(b, "x:q"))
		}
		l := answersLate(s, func(u Unpark) time.Duration {
			if u.Unpark.Bucket < bad {
				return 30 * time.Second
			}
			return 5 * ms
		})
		s.step(ParkedFound{Found: all})
		l.work(2*time.Second, func(u Unpark) Event {
			if u.Unpark.Bucket < bad {
				return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
			}
			return Unparked{Unpark: u.Unpark, Moved: s.unpark(u.Unpark)}
		})
		if s.arrived["x:q"] == 0 {
			t.Errorf("%d of 64 buckets hang: nothing came for two seconds", bad)
		}
	}
}

// URLs of a host are parked, and nearly all of their messages are cancelled while it is down.
// When it is up again, the one that is left is found soon.
func TestProbesThatFindNothing(t *testing.T) {
	const cancelled, live = 400, postdate.Channel("https://h/live")
	s := newSlowShop(t, 4, nil)
	dead := true
	s.down = func(postdate.Channel) bool { return dead }
	for i := range cancelled {
		s.add(i%4, named("https://h/%d", i), 1, -ms)
	}
	s.add(0, live, 1, -ms)
	s.work(5 * time.Second)
	if n := s.parked(); n != cancelled+1 {
		t.Fatalf("%d messages are parked", n)
	}
	for b, rows := range s.rows {
		s.rows[b] = nil
		for _, r := range rows {
			if r.Channel == live {
				s.rows[b] = append(s.rows[b], r)
			}
		}
	}
	dead = false
	s.work(s.m.c.ProbeMax + time.Second)
	if s.arrived[live] == 0 {
		t.Errorf("after %s it has not come", s.m.c.ProbeMax+time.Second)
	}
}

// Of channels whose parked messages are gone nothing is remembered, though their host stays
// dead.
func TestChannelsWithNothingParkedAreForgotten(t *testing.T) {
	const most = 20
	s := newSlowShop(t, 4, nil)
	s.down = every
	for i := range 1_000 {
		all := s.put(i%4, named("https://h/%d", i), 1, -ms)
		s.row(all[0].Key).ExpiresAt = s.now.Wall.Add(3 * time.Second)
		s.nudge(i%4, -ms)
		s.work(5 * ms)
	}
	s.work(20 * time.Second)
	stored := 0
	for _, rows := range s.rows {
		stored += len(rows)
	}
	if stored > 0 || len(s.m.channels) > most {
		t.Errorf("%d messages are stored and %d channels in memory, want 0 and at most %d", stored, len(s.m.channels), most)
	}
}

// Hosts that come up before they are probed take nothing of the budget from others.
func TestHostsThatFlapLeaveTheBudget(t *testing.T) {
	s := newSlowShop(t, 4, nil)
	up := map[postdate.Channel]bool{}
	s.down = func(c postdate.Channel) bool { return !up[c] }
	for range 20 {
		for _, is := range []bool{false, true} { // each gets a message that fails, and then one that arrives
			for i := range 200 {
				c := named("https://flaps-%d/", i)
				up[c] = is
				s.put(i%4, c, 1, -ms)
			}
			for b := range 4 {
				s.nudge(b, -ms)
			}
			s.work(500 * ms)
		}
	}
	const quiet = "https://quiet/"
	s.add(0, quiet, 1, -ms)
	s.work(time.Second)
	if s.parked(quiet) != 1 {
		t.Fatal("it is not parked")
	}
	up[quiet] = true
	s.work(s.m.c.ProbeMax)
	if s.arrived[quiet] == 0 {
		t.Errorf("it is up for %s and has not got its message", s.m.c.ProbeMax)
	}
}

// One unpark of a channel and bucket is under way at a time: of two that choose the same
// messages one would say that there are none left.
func TestOneUnparkOfAChannelAndBucket(t *testing.T) {
	s := newSlowShop(t, 1, nil)
	s.waits = func(e Effect) bool { return storeCalls(e) || has[Unpark](e) }
	under := map[postdate.Channel]Unpark{}
	s.watch = func(e Effect) {
		if u, is := e.(Unpark); is {
			if _, is := under[u.Unpark.Channel]; is {
				t.Errorf("two unparks of %s are under way", u.Unpark.Channel)
			}
			under[u.Unpark.Channel] = u
		}
	}
	s.parkedNow(0, "x:b")
	for range 5 {
		s.parkedNow(0, "x:a")
	}
	s.step(fence.Tick{})
	bad, is := under["x:b"]
	if len(under) != 2 || !is {
		t.Fatalf("%v are under way: the test shows nothing", under)
	}
	delete(under, "x:b")
	s.step(Unparked{Unpark: bad.Unpark, Err: errNoPrimary})
	s.work(time.Second)
	if _, again := under["x:b"]; !again {
		t.Error("what failed is not tried again")
	}
}

// An answer to an unpark under an earlier token says nothing of the bucket as it is now.
func TestALateAnswerOfAnUnpark(t *testing.T) {
	s := newSlowShop(t, 1, nil)
	s.waits = func(e Effect) bool { return storeCalls(e) || has[Unpark](e) }
	var under []Unpark
	s.watch = func(e Effect) {
		if u, is := e.(Unpark); is {
			under = append(under, u)
		}
	}
	s.parkedNow(0, "x:a")
	s.step(fence.Tick{})
	s.lose(0)
	s.gain(bucket.Partition{Token: 2})
	s.step(Unparked{Unpark: under[0].Unpark, Err: postdate.E(postdate.KindFenced, "fenced")})
	if s.m.retries.len() > 0 || s.m.unparksFailed > 0 {
		t.Error("it counts as a failure there")
	}
}

// Where a call of claims fails, and then the settlement of one of its buckets, all of them join
// the others once the store is well: also those that have nothing to settle.
func TestALaneWithNothingToSettleJoins(t *testing.T) {
	const buckets = 128
	s := newSlowShop(t, buckets, func(c *Config) { c.SweepEvery, c.FindEvery = 2*time.Second, 10*time.Second })
	s.mute = every
	for b := range buckets / 2 {
		s.add(b, named("x:%d", b), 1, -ms)
	}
	s.work(100 * ms)
	failing := true
	s.broken = func(int) bool { return failing }
	for len(s.m.apart) == 0 { // sweeps fail: lanes of two buckets
		s.work(5 * ms)
	}
	before := len(s.m.apart)
	s.confirmAll()
	s.work(20 * ms) // settlements fail
	if s.flying() > 0 || len(s.m.apart) <= before {
		t.Fatalf("%d lanes, then %d: the test shows nothing", before, len(s.m.apart))
	}
	failing = false
	s.work(10 * time.Second)
	if n := len(s.m.apart); n > 0 {
		t.Errorf("%d lanes are apart, ten seconds after the store is well", n)
	}
}

// Everybody in a rotation has a turn, whoever comes, goes or does not fit.
func TestRotation(t *testing.T) {
	var r rotation[int]
	fits := func(int) bool { return true }
	if _, found := r.next(fits); found || r.has(1) || r.len() != 0 {
		t.Fatal("an empty one has members")
	}
	for i := range 5 {
		r.add(i)
	}
	if r.add(3) || r.len() != 5 {
		t.Error("a member is added twice")
	}
	r.remove(1)
	r.remove(1)
	var got []int
	for i := range 6 {
		if i == 2 {
			r.add(9)
		}
		x, _ := r.next(func(x int) bool { return x != 4 })
		got = append(got, x)
	}
	if want := "[0 2 3 0 2 9]"; fmt.Sprint(got) != want || fmt.Sprint(r.members()) != "[3 4 0 2 9]" {
		t.Errorf("their turns are %v, want %s; then in turn %v", got, want, r.members())
	}
	r = rotation[int]{}
	for i := range 3 * looksMax {
		r.add(i)
	}
	looks := 0
	for n := range 3 { // the last one fits alone
		_, found := r.next(func(x int) bool { looks++; return x == 3*looksMax-1 })
		if found != (n == 2) || looks != (n+1)*looksMax {
			t.Errorf("after %d looks: found %v", looks, found)
		}
	}
}
