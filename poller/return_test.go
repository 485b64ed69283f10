package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// After an unpark failed once, what is parked in its bucket does not wait for the backlogs of
// other channels, whose unparks take each place that becomes free.
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
			return s.unpark(u.Unpark)
		})
		if s.parked("x:quiet") > 0 || !failed {
			t.Errorf("%d channels: after two seconds it is parked, though one unpark has failed (%v) and all others went through", channels, failed)
		}
	}
}

// The same holds next to channels with a limit, whose backlogs last.
func TestABucketIsTriedAgainBesideLimits(t *testing.T) {
	s := newSlowShop(t, 16, nil)
	s.parkedNow(0, "x:quiet")
	var set []store.ChannelSettings
	for c := range 20 {
		set = append(set, store.ChannelSettings{Route: named("x:%d", c), MaxPerSecond: 8})
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
		return s.unpark(u.Unpark)
	})
	if s.parked("x:quiet") > 0 || !failed {
		t.Errorf("after two seconds it is parked, though one unpark has failed (%v) and all others went through", failed)
	}
}

// If the unparks of one channel always fail in a bucket, those of the others come back,
// whatever their names.
func TestUnparksOfOneChannelFailInABucket(t *testing.T) {
	for _, bad := range []postdate.Route{"x:a", "x:z"} {
		s := newSlowShop(t, 2, nil)
		s.parkedNow(0, bad)
		for i := range 20 {
			s.parkedNow(0, named("x:m-%d", i))
		}
		answer := func(u Unpark) Event {
			if u.Unpark.Route == bad {
				return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
			}
			return s.unpark(u.Unpark)
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

// If unparks of a channel that is down hang in some buckets, it is tried in others.
func TestAProbeBesideUnparksThatHang(t *testing.T) {
	for _, bad := range []int{1, 3} {
		s := newSlowShop(t, 64, nil)
		var all []store.ParkedRoute
		for b := range 64 {
			all = append(all, s.parkedBefore(b, "x:q"))
		}
		l, answer := hangsWhere(s, func(b int) bool { return b < bad })
		s.step(ParkedFound{Found: all})
		l.work(2*time.Second, answer)
		if s.arrived["x:q"] == 0 {
			t.Errorf("%d of 64 buckets hang: nothing came for two seconds", bad)
		}
	}
}

// URLs of a host are parked, and nearly all of their messages are cancelled while it is down.
// When the host is up again, the remaining message is found soon.
func TestProbesThatFindNothing(t *testing.T) {
	const cancelled, live = 400, postdate.Route("https://h/live")
	s := newSlowShop(t, 4, nil)
	dead := true
	s.down = func(postdate.Route) bool { return dead }
	for i := range cancelled {
		s.add(i%4, named("https://h/%d", i), 1, -ms)
	}
	s.add(0, live, 1, -ms)
	s.work(5 * time.Second)
	if n := s.parked(); n != cancelled+1 {
		t.Fatalf("%d messages are parked", n)
	}
	for _, rows := range s.store.Waiting {
		for _, r := range slices.Clone(rows) {
			if r.Route() == live {
				continue
			}
			if c := s.store.Cancel(t.Context(), []postdate.Key{r.Key}, s.now.Wall)[0]; c.Err != nil {
				t.Fatal(c.Err)
			}
		}
	}
	dead = false
	s.work(s.m.c.ProbeMax + time.Second)
	if s.arrived[live] == 0 {
		t.Errorf("after %s it has not come", s.m.c.ProbeMax+time.Second)
	}
}

// Channels whose parked messages are gone are forgotten, even if their host stays dead.
func TestChannelsWithNothingParkedAreForgotten(t *testing.T) {
	const most = 20
	s := newSlowShop(t, 4, nil)
	s.down = every
	for i := range 1_000 {
		all := s.put(i%4, named("https://h/%d", i), 1, -ms)
		s.change(all[0].Key, func(r *postdate.Record) { r.ExpiresAt = s.now.Wall.Add(3 * time.Second) })
		s.nudge(i%4, -ms)
		s.work(5 * ms)
	}
	s.work(20 * time.Second)
	stored := 0
	for _, rows := range s.store.Waiting {
		stored += len(rows)
	}
	if stored > 0 || len(s.m.channels) > most || s.looked() > 0 {
		t.Errorf("%d messages are stored, %d channels in memory and %d sites looked at, want 0, at most %d and 0",
			stored, len(s.m.channels), s.looked(), most)
	}
}

// Hosts that come up before they are probed take none of the budget from others.
func TestHostsThatFlapLeaveTheBudget(t *testing.T) {
	s := newSlowShop(t, 4, nil)
	up := map[postdate.Route]bool{}
	s.down = func(c postdate.Route) bool { return !up[c] }
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

// One unpark per channel and bucket is under way at a time: if two chose the same messages, one
// would report that none are left.
func TestOneUnparkOfAChannelAndBucket(t *testing.T) {
	s := newSlowShop(t, 1, nil)
	s.waits = func(e Effect) bool { return storeCalls(e) || has[Unpark](e) }
	under := map[postdate.Route]Unpark{}
	s.watch = func(e Effect) {
		if u, is := e.(Unpark); is {
			if _, is := under[u.Unpark.Route]; is {
				t.Errorf("two unparks of %s are under way", u.Unpark.Route)
			}
			under[u.Unpark.Route] = u
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

// An answer to an unpark under an earlier token says nothing about the bucket as it is now.
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

// If a claim call fails, and then the settlement of one of its buckets, all of them rejoin the
// others once the store is well, including those that have nothing to settle.
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

// While one URL of a host that is down is tried, no other is, and nothing more is brought back.
func TestOneProbeOfAHost(t *testing.T) {
	s := newSlowShop(t, 4, nil)
	s.mute = every
	var all []store.ParkedRoute
	for i := range 4 {
		all = append(all, s.parkedBefore(i, named("https://h/%d", i)))
	}
	unparks := 0
	s.watch = func(e Effect) {
		if has[Unpark](e) {
			unparks++
		}
	}
	s.step(ParkedFound{Found: all})
	s.work(4 * time.Second) // before that is taken for no answer
	if s.flying() != 1 || unparks != 1 {
		t.Errorf("%d messages are brought back and %d sent, want one each", unparks, s.flying())
	}
}

// A message brought back as a probe gets some time to arrive. If the unpark itself hangs, some
// others are tried, but not all.
func TestProbesOnTheirWay(t *testing.T) {
	b := withParked(t, 10, nil)
	unparks := b.parked("inbox:p", 1, 2, 3, 4, 5, 6, 7, 8, 9)
	if len(unparks) != 1 {
		t.Fatalf("%d unparks, want 1", len(unparks))
	}
	begin := b.now.Mono
	var at []time.Duration
	for b.now.Mono < begin+2*time.Second { // none is answered
		b.after(10 * ms)
		for _, u := range of[Unpark](b.step(fence.Tick{})) {
			unparks = append(unparks, u)
			at = append(at, b.now.Mono-begin)
		}
	}
	if want := "[100ms 200ms 300ms]"; fmt.Sprint(at) != want {
		t.Errorf("others begin after %s, want %s", at, want)
	}
	b.moved(unparks[0], 1)
	begin, at = b.now.Mono, nil
	for b.now.Mono < begin+b.m.c.ProbeMin {
		b.after(10 * ms)
		for range of[Unpark](b.step(fence.Tick{})) {
			at = append(at, b.now.Mono-begin)
		}
	}
	if len(at) != 1 || at[0] != b.m.c.ProbeMin {
		t.Errorf("one is brought back; the next ones begin after %s, want %s", at, b.m.c.ProbeMin)
	}
}

// A probe gets its turn among the unparks of a long backlog, and they get theirs.
func TestAProbeBesideABacklog(t *testing.T) {
	b := withParked(t, 10, func(c *Config) { c.UnparksMax = 1 }, "inbox:up")
	unparks := b.parked("inbox:up", 1, 2, 3, 4, 5)
	b.parked("inbox:down", 6)
	var got []postdate.Route
	for range 4 {
		got = append(got, unparks[0].Unpark.Route)
		unparks = b.moved(unparks[0], unparks[0].Unpark.Limit)
	}
	if want := "[inbox:up inbox:up inbox:down inbox:up]"; fmt.Sprint(got) != want {
		t.Errorf("unparked of %v, want %s", got, want)
	}
}

// A site keeps its turn, whatever happens to it meanwhile.
func TestASiteKeepsItsTurn(t *testing.T) {
	b := withParked(t, 10, func(c *Config) { c.UnparksMax = 1 }, "inbox:a", "inbox:b")
	unparks := b.parked("inbox:a", 1, 2, 3)
	b.parked("inbox:b", 4, 5, 6)
	var got []postdate.Route
	for i := range 6 {
		got = append(got, unparks[0].Unpark.Route)
		b.after(ms)
		b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:b", MaxInFlight: 10 + i}}})
		b.after(ms)
		unparks = b.moved(unparks[0], unparks[0].Unpark.Limit)
	}
	if want := "[inbox:a inbox:a inbox:b inbox:a inbox:b inbox:a]"; fmt.Sprint(got) != want {
		t.Errorf("unparked of %v, want %s", got, want)
	}
}

// URLs of a host that has nothing parked any more do not keep a probe from others either.
func TestProbesThatFindNothingBesideOthers(t *testing.T) {
	s := newSlowShop(t, 4, nil)
	s.down = every
	var all []store.ParkedRoute
	for i := range 5_000 {
		all = append(all, store.ParkedRoute{Bucket: i % 4, Route: named("https://void/%d", i)})
	}
	l := answersLate(s, func(Unpark) time.Duration { return 4 * ms })
	s.step(ParkedFound{Found: append(all, s.parkedBefore(0, "x:other"))})
	tried := false
	l.work(2*time.Second, func(u Unpark) Event {
		tried = tried || u.Unpark.Route == "x:other"
		return s.unpark(u.Unpark)
	})
	if !tried {
		t.Error("the other channel is not tried in two seconds")
	}
}

// A bucket whose unparks fail is tried again every RetryAfter, with one message of one channel,
// while others go through; failures elsewhere meanwhile do not delay it.
func TestHowOftenABucketIsTriedAgain(t *testing.T) {
	const lasts = 5 * time.Second
	s := newSlowShop(t, 64, nil)
	for i := range 3 {
		s.parkedNow(0, named("x:bad-%d", i))
	}
	tries := 0
	failed := map[int]bool{0: true}
	l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
	for end := s.now.Mono + lasts; s.now.Mono < end; {
		b := 1 + int(s.now.Mono/(50*ms))%63
		failed[b] = false // one after the other fails once
		s.parkedNow(b, "x:well")
		s.step(fence.Tick{})
		l.work(50*ms, func(u Unpark) Event {
			if u.Unpark.Bucket == 0 {
				tries++
			}
			if is, known := failed[u.Unpark.Bucket]; known && (u.Unpark.Bucket == 0 || !is) {
				failed[u.Unpark.Bucket] = true
				return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
			}
			return s.unpark(u.Unpark)
		})
	}
	if most := int(lasts / s.m.c.RetryAfter); tries < most/2 || tries > most+3 {
		t.Errorf("tried %d times in %s, want about %d", tries, lasts, most)
	}
}

// In a bucket that was set apart, an unpark of one message is tried first. When it has gone
// through, the others follow.
func TestUnparksInBucketsThatAreApart(t *testing.T) {
	b := withParked(t, 4, nil, "inbox:a")
	b.m.failed(b.now, b.m.common, []*owned{b.m.buckets[1], b.m.buckets[2]}, func(l *lane) *time.Duration { return &l.nextSettle })
	unparks := b.parked("inbox:a", 1, 2, 3)
	if len(unparks) != 3 || unparks[0].Unpark.Bucket != 3 || unparks[0].Unpark.Limit == 1 {
		t.Fatalf("unparked %+v, want what is in bucket 3", unparks)
	}
	tries := unparks[1:]
	if tries[0].Unpark.Limit != 1 || tries[1].Unpark.Limit != 1 {
		t.Fatalf("unparked %+v, want one message each in two buckets", tries)
	}
	more := b.moved(tries[0], 1)
	if len(more) != 1 || more[0].Unpark.Bucket != tries[0].Unpark.Bucket || more[0].Unpark.Limit == 1 {
		t.Errorf("unparked %+v, want more in bucket %d", more, tries[0].Unpark.Bucket)
	}
}

// If a site has more channels than one look covers, the others are looked at soon.
func TestManyChannelsThatCannotComeBack(t *testing.T) {
	for _, up := range []bool{true, false} {
		s := newSlowShop(t, 4, nil)
		dead := !up
		s.down = func(postdate.Route) bool { return dead }
		if !up {
			s.add(0, "https://h/any", 1, -ms)
			s.work(20 * ms)
		}
		set := []store.ChannelSettings{}
		for i := range 3*looksMax - 1 {
			set = append(set, store.ChannelSettings{Route: named("https://h/%d", i), Paused: true})
		}
		s.limits(set...)
		for i := range 3 * looksMax {
			s.parkedNow(i%4, named("https://h/%d", i))
		}
		dead = false
		s.step(fence.Tick{})
		s.work(700 * ms) // of the back-off too
		if last := named("https://h/%d", 3*looksMax-1); s.arrived[last] == 0 {
			t.Errorf("up %v: the only one that is not paused has not come", up)
		}
	}
}
