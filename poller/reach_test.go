package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate/store"
)

// Parts of the store that are out of reach, for some sorts of calls or for a moment, and what
// lies elsewhere meanwhile.

// pending is a call that is answered at a time.
type pending[E Effect] struct {
	at   time.Duration
	call E
}

// late is a store whose answers to one sort of calls take a while.
type late[E Effect] struct {
	s     *shop
	takes func(E) time.Duration
	under []pending[E]
}

// answersLate has the store of a shop answer such calls after a while.
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

// work lets time pass, with these answers; every other call of the store is answered at once.
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

// Every bucket that answers is asked what is parked there, however many others fail and
// however long that takes.
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

// What a question finds before it fails comes back.
func TestFoundBeforeAFailure(t *testing.T) {
	b := withParked(t, 2, nil, "inbox:a")
	find := FindParked{Buckets: []int{0, 1}}
	effects := b.step(ParkedFound{Buckets: find.Buckets, Err: errNoPrimary, Found: []store.ParkedChannel{{Bucket: 0, Channel: "inbox:a"}}})
	if unparks := of[Unpark](effects); len(unparks) != 1 || unparks[0].Unpark.Bucket != 0 {
		t.Errorf("unparked %+v, want bucket 0", unparks)
	}
}

// A bucket in which one unpark failed, and that is well again, has its turn beside channels
// that try for ever in a bucket that is out of reach.
func TestWellAgainBesideUnparksThatFail(t *testing.T) {
	for _, test := range []struct {
		channels int           // have messages parked in bucket 0, which is out of reach
		takes    time.Duration // until an unpark there fails
		within   time.Duration
	}{{4, 5 * ms, 5 * time.Second}, {4, 30 * time.Second, 35 * time.Second}, {200, 5 * ms, 5 * time.Second}, {200, 30 * time.Second, 2 * time.Minute}} {
		t.Run(fmt.Sprint(test.channels, " channels, ", test.takes), func(t *testing.T) {
			s := newSlowShop(t, 2, nil)
			for i := range test.channels {
				s.add(1, named("x:%d", i), 1, -ms)
			}
			s.add(1, "x:b", 1, -ms)
			s.work(2 * time.Second) // every channel has answered
			all := []store.ParkedChannel{s.parkedBefore(1, "x:b")}
			for i := range test.channels {
				all = append(all, s.parkedBefore(0, named("x:%d", i)))
			}
			failed := false
			l := answersLate(s, func(u Unpark) time.Duration {
				if u.Unpark.Bucket == 0 {
					return test.takes
				}
				return 5 * ms
			})
			s.step(ParkedFound{Found: all})
			l.work(test.within, func(u Unpark) Event {
				if u.Unpark.Bucket == 0 || !failed { // the first one in bucket 1 fails as well
					failed = failed || u.Unpark.Bucket == 1
					return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
				}
				return Unparked{Unpark: u.Unpark, Moved: s.unpark(u.Unpark)}
			})
			if !failed || s.parked("x:b") > 0 {
				t.Errorf("what was parked in a bucket that is well did not come within %s", test.within)
			}
		})
	}
}

// The URLs of a host whose messages are parked where unparks fail keep those from coming back
// that are parked elsewhere no longer than one probe: not once for each of them.
func TestProbesBesideUnparksThatFail(t *testing.T) {
	const many = 500
	s := newSlowShop(t, 2, nil)
	var all []store.ParkedChannel
	for i := range 16 {
		all = append(all, s.parkedBefore(0, named("https://h/broken-%d", i)))
	}
	for i := range many {
		all = append(all, s.parkedBefore(1, named("https://h/%d", i)))
	}
	l := answersLate(s, func(Unpark) time.Duration { return 5 * ms })
	s.step(ParkedFound{Found: all})
	l.work(2*s.m.c.ProbeMax, func(u Unpark) Event {
		if u.Unpark.Bucket == 0 {
			return Unparked{Unpark: u.Unpark, Err: errNoPrimary}
		}
		return Unparked{Unpark: u.Unpark, Moved: s.unpark(u.Unpark)}
	})
	if n := s.parked(); n != 16 {
		t.Errorf("%d messages are parked, want the 16 that are out of reach", n)
	}
}
