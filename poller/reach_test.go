package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// These tests put parts of the store out of reach, for some kinds of calls or for a moment, and
// check what lies elsewhere meanwhile.

// pending is a call and the time of its answer.
type pending[E Effect] struct {
	at   time.Duration
	call E
}

// late is a store that answers one kind of call after a delay.
type late[E Effect] struct {
	s     *shop
	takes func(E) time.Duration
	under []pending[E]
}

// answersLate makes the store of a shop answer such calls after a delay.
func answersLate[E Effect](s *shop, takes func(E) time.Duration) *late[E] {
	l := &late[E]{s: s, takes: takes}
	s.waits = func(e Effect) bool { return storeCalls(e) || has[E](e) }
	s.watch = func(e Effect) {
		if call, is := e.(E); is {
			l.under = append(l.under, pending[E]{s.now.Mono + takes(call), call})
		}
	}
	return l
}

// work lets time pass, with these answers; the store answers all other calls immediately.
func (l *late[E]) work(d time.Duration, answer func(E) Event) {
	for end := l.s.now.Mono + d; l.s.now.Mono < end; {
		l.s.work(5 * ms)
		due := slices.Clone(l.under)
		l.under = slices.DeleteFunc(l.under, func(p pending[E]) bool { return p.at <= l.s.now.Mono })
		for _, p := range due {
			if p.at <= l.s.now.Mono {
				l.s.step(answer(p.call))
			}
		}
	}
}

// Every bucket that answers is asked what is parked there, however many others fail and however
// long that takes.
func TestParkedIsFoundThoughSomeFailForEver(t *testing.T) {
	first := func(b int) bool { return b == 0 }
	for _, test := range []struct {
		buckets int
		fails   func(int) bool
		takes   time.Duration // until a call fails
		within  time.Duration
	}{
		{64, first, 30 * time.Second, 150 * time.Second},
		{64, first, 4 * time.Second, 30 * time.Second},
		{64, third, 5 * ms, 20 * time.Second},
		{64, third, time.Second, 2 * time.Minute},
		{1_024, third, 5 * ms, 2 * time.Minute},
	} {
		t.Run(fmt.Sprint(test.buckets, " buckets, ", test.takes), func(t *testing.T) {
			s := newSlowShop(t, 0, func(c *Config) { c.FindEvery = 10 * time.Second })
			found, failed := map[int]int{}, 0
			l := answersLate(s, func(f FindParked) time.Duration {
				if slices.ContainsFunc(f.Buckets, test.fails) {
					return test.takes
				}
				return 5 * ms
			})
			answer := func(f FindParked) Event {
				if slices.ContainsFunc(f.Buckets, test.fails) {
					failed++
					return ParkedFound{Buckets: f.Buckets, Err: errNoPrimary}
				}
				for _, b := range f.Buckets {
					found[b]++
				}
				return ParkedFound{Buckets: f.Buckets}
			}
			s.gain(s.partitions(test.buckets)...)
			for round := range 2 { // the second one knows which fail
				clear(found)
				failed = 0
				l.work(test.within, answer)
				for b := range test.buckets {
					if !test.fails(b) && found[b] == 0 {
						t.Fatalf("round %d: bucket %d is not asked within %s, beside %d failures", round, b, test.within, failed)
					}
				}
			}
		})
	}
}

// What a search finds before it fails comes back.
func TestFoundBeforeAFailure(t *testing.T) {
	b := withParked(t, 2, nil, "inbox:a")
	find := FindParked{Buckets: []int{0, 1}}
	effects := b.step(ParkedFound{Buckets: find.Buckets, Err: errNoPrimary, Found: []store.ParkedRoute{{Bucket: 0, Route: "inbox:a"}}})
	if unparks := of[Unpark](effects); len(unparks) != 1 || unparks[0].Unpark.Bucket != 0 {
		t.Errorf("unparked %+v, want bucket 0", unparks)
	}
}

// parkedNow is like parkedBefore, for a channel that is not assumed to be down.
func (s *shop) parkedNow(b int, c postdate.Route) {
	s.parkedBefore(b, c)
	s.m.noteParked(s.m.channelOf(c), s.m.buckets[b])
}

// A bucket in which one unpark failed, and that is well again, gets its turn next to channels
// that keep trying in unreachable buckets.
func TestWellAgainBesideUnparksThatFail(t *testing.T) {
	for _, test := range []struct {
		channels, bad int           // so many channels have messages parked in so many bad buckets
		takes         time.Duration // until an unpark there fails
		within        time.Duration
	}{
		{4, 1, 5 * ms, time.Second}, {4, 1, 30 * time.Second, 35 * time.Second}, {200, 1, 5 * ms, time.Second},
		{4, 2, 30 * time.Second, 65 * time.Second}, {16, 8, time.Second, 10 * time.Second}, {4, 200, 5 * ms, 20 * time.Second},
	} {
		t.Run(fmt.Sprint(test.channels, " channels, ", test.bad, " buckets, ", test.takes), func(t *testing.T) {
			s := newSlowShop(t, test.bad+1, nil)
			s.parkedNow(test.bad, "x:b")
			for i := range test.channels {
				for b := range test.bad {
					s.parkedNow(b, named("x:%d", i))
				}
			}
			failed := false
			l := answersLate(s, func(u Unpark) time.Duration {
				if u.Unpark.Bucket < test.bad {
					return test.takes
				}
				return 5 * ms
			})
			s.step(fence.Tick{})
			l.work(test.within, func(u Unpark) Event {
				if u.Unpark.Bucket < test.bad || !failed { // the first one in the well bucket fails as well
					failed = failed || u.Unpark.Bucket == test.bad
					return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
				}
				return s.unpark(u.Unpark)
			})
			if !failed || s.parked("x:b") > 0 {
				t.Errorf("what was parked in a bucket that is well did not come within %s", test.within)
			}
		})
	}
}

// Unparks that all fail immediately are begun with pauses, even if some went through earlier.
func TestUnparksThatFailAtOnce(t *testing.T) {
	const buckets, channels = 512, 16
	s := newSlowShop(t, buckets, nil)
	n := 0
	s.waits = func(e Effect) bool { return storeCalls(e) || has[Unpark](e) }
	var under []Unpark
	s.watch = func(e Effect) {
		if u, is := e.(Unpark); is {
			under = append(under, u)
			n++
		}
	}
	for b := range buckets {
		for c := range channels {
			s.parkedNow(b, named("x:%d", c))
		}
	}
	s.step(fence.Tick{})
	for second := range 10 {
		n = 0
		for end := s.now.Mono + time.Second; s.now.Mono < end; s.work(5 * ms) {
			for len(under) > 0 {
				u := under[0]
				under = under[1:]
				s.step(Unparked{Unpark: u.Unpark, Err: errNoPrimary})
			}
		}
		if most := 15 * DefaultConfig().UnparksMax; n > most { // the places, and half of them once more, each RetryAfter
			t.Errorf("in second %d %d unparks began, want at most %d", second, n, most)
		}
	}
}

// Unparks that hang repeatedly take no room of their channel from messages parked in other
// buckets.
func TestUnparksThatHangTakeNoRoom(t *testing.T) {
	s := newSlowShop(t, 3, nil)
	l := answersLate(s, func(u Unpark) time.Duration {
		if u.Unpark.Bucket < 2 {
			return 30 * time.Second
		}
		return 5 * ms
	})
	answer := func(u Unpark) Event {
		if u.Unpark.Bucket < 2 {
			return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
		}
		return s.unpark(u.Unpark)
	}
	s.parkedNow(0, "x:a")
	s.parkedNow(1, "x:a")
	s.step(fence.Tick{})
	l.work(45*time.Second, answer) // both are known to fail, and are tried again
	for range 5 {
		s.parkedNow(2, "x:a")
		s.step(fence.Tick{})
		l.work(2*time.Second, answer)
		if n := s.parked("x:a"); n != 2 {
			t.Fatalf("%d messages are parked after two seconds, want the two that are out of reach", n)
		}
	}
}

// If a host's URLs are parked where unparks fail, each in a bucket of its own, those parked
// elsewhere still come back.
func TestProbesBesideUnparksThatFail(t *testing.T) {
	const many = 500
	for bad, within := range map[int]time.Duration{1: 3 * time.Second, 8: 4 * time.Second, 200: 40 * time.Second} {
		s := newSlowShop(t, bad+1, nil)
		var all []store.ParkedRoute
		for i := range max(bad, 16) {
			all = append(all, s.parkedBefore(1+i%bad, named("https://h/bad-%d", i)))
		}
		for i := range many {
			all = append(all, s.parkedBefore(0, named("https://h/%d", i)))
		}
		l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
		s.step(ParkedFound{Found: all})
		l.work(within, func(u Unpark) Event {
			if u.Unpark.Bucket > 0 {
				return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
			}
			return s.unpark(u.Unpark)
		})
		if n := s.parked(); n != max(bad, 16) {
			t.Errorf("%d bad buckets: %d messages are parked, want the %d that are out of reach", bad, n, max(bad, 16))
		}
	}
}

// The URL that probes its host after another one could not is never a paused one.
func TestNoneThatIsPausedTriesNext(t *testing.T) {
	const good, paused = "https://h/good", 50
	s := newSlowShop(t, 2, nil)
	all := []store.ParkedRoute{s.parkedBefore(1, "https://h/bad-1"), s.parkedBefore(1, "https://h/bad-2"), s.parkedBefore(0, good)}
	var set []store.ChannelSettings
	for i := range paused {
		all = append(all, s.parkedBefore(0, named("https://h/paused-%d", i)))
		set = append(set, store.ChannelSettings{Route: named("https://h/paused-%d", i), Paused: true})
	}
	s.limits(set...)
	l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
	s.step(ParkedFound{Found: all})
	l.work(time.Second/2, func(u Unpark) Event {
		if u.Unpark.Bucket > 0 {
			return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
		}
		return s.unpark(u.Unpark)
	})
	if n := s.parked(); s.parked(good) > 0 || n != 2+paused {
		t.Errorf("%d messages are parked, and %d of the URL that can try, want %d and 0", n, s.parked(good), 2+paused)
	}
}

// Failing unparks slow others down only if none goes through.
func TestUnparksBesideManyThatFail(t *testing.T) {
	const buckets = 600
	s := newSlowShop(t, buckets, nil)
	l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
	for b := range buckets {
		s.parkedNow(b, named("x:%d", b))
	}
	s.step(fence.Tick{})
	l.work(2*time.Second, func(u Unpark) Event {
		if third(u.Unpark.Bucket) {
			return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
		}
		return s.unpark(u.Unpark)
	})
	if n := s.parked(); n != buckets/3 {
		t.Errorf("%d messages are parked, want the %d that are out of reach", n, buckets/3)
	}
}
