package poller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Failing settlements are tried less and less often and separately, even if the claims of their
// bucket go through.
func TestSettlementsThatFailBesideClaims(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.log = nil
	for end := s.now.Mono + 5*time.Second; s.now.Mono < end; s.sleep(5 * ms) {
		for b := range 5 {
			s.add(b, "x:a", 1, -ms)
		}
		for len(s.calls) > 0 {
			c := s.calls[0]
			s.broken = func(b int) bool { return c.settle != nil && b == 3 }
			s.answerWith(c)
		}
	}
	at, sizes := s.begun(false, 3)
	if len(at) > 10 || slices.Max(sizes[1:]) > 1 {
		t.Errorf("settlements of the bucket are tried %d times in 5 s, beside those of up to %d buckets", len(at), slices.Max(sizes[1:]))
	}
	for b, rows := range s.store.Waiting {
		if b != 3 && len(rows) > 8 {
			t.Errorf("%d messages of bucket %d wait to be settled", len(rows), b)
		}
	}
}

// Buckets that were apart rejoin the others soon after all is well, even if so much is due that
// each of their calls finds another one under way.
func TestLanesJoinUnderLoad(t *testing.T) {
	const buckets = 8
	for _, takes := range []struct{ claim, settle time.Duration }{{5 * ms, 10 * ms}, {2 * ms, 40 * ms}, {5 * ms, 150 * ms}, {20 * ms, 40 * ms}} {
		s := newSlowShop(t, buckets, nil)
		s.mute = every
		for s.now.Mono < s.begin.Mono+4*time.Second {
			s.sleep(ms)
			at := s.now.Mono - s.begin.Mono
			if at%(4*ms) == 0 {
				for b := range buckets {
					s.add(b, "x:a", 1, -ms)
				}
			}
			for _, c := range slices.Clone(s.calls) {
				if c.claim != nil && at >= c.at+takes.claim || c.settle != nil && at >= c.at+takes.settle {
					s.broken = func(int) bool { return c.settle != nil && at >= time.Second && at < 1200*ms }
					s.answerWith(c)
				}
			}
			s.confirm(buckets * buckets)
		}
		left := 0
		for _, rows := range s.store.Waiting {
			left += len(rows)
		}
		if len(s.m.apart) > 0 || left > 500 {
			t.Errorf("where a claim takes %s and a settlement %s, %d lanes are apart, and %d messages wait", takes.claim, takes.settle, len(s.m.apart), left)
		}
	}
}

// Buckets whose settlements fail do not fill their channel's room: it goes on in the others.
func TestSettlementsThatFailLeaveRoom(t *testing.T) {
	const buckets = 24
	s := newSlowShop(t, buckets, nil)
	fails := func(b int) bool { return b%3 == 0 }
	for end := s.now.Mono + 6*time.Second; s.now.Mono < end; s.sleep(5 * ms) {
		for range 5 {
			s.add(s.added%buckets, "x:a", 1, -ms)
		}
		for len(s.calls) > 0 {
			c := s.calls[0]
			s.broken = func(b int) bool { return c.settle != nil && fails(b) }
			s.answerWith(c)
		}
	}
	s.broken = nil
	for b, rows := range s.store.Waiting {
		if !fails(b) && len(rows) > 8 {
			t.Errorf("%d messages of bucket %d, where all is well, are left", len(rows), b)
		}
	}
	s.work(10 * time.Second)
	for b, rows := range s.store.Waiting {
		if len(rows) > 0 {
			t.Errorf("%d messages of bucket %d are left when all is well", len(rows), b)
		}
	}
	s.wantTogether()
}

// Lanes end if their buckets are lost and they have nothing left to settle.
func TestLanesOfLostBucketsEnd(t *testing.T) {
	s := newSlowShop(t, 130, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
	s.mute = func(c postdate.Route) bool { return strings.HasPrefix(string(c), "x:late") }
	var all []int
	for b := range 130 {
		s.add(b, named("x:late%d", b), 1, 50*ms)
		all = append(all, b)
	}
	s.add(1, "x:latest", 1, 50*ms)
	for range 2 {
		s.sleep(60 * ms)
		s.answerAll()
	}
	s.lose(all...)
	slices.SortStableFunc(s.unanswered, func(p, q Publish) int {
		return strings.Compare(fmt.Sprint(p.Channel == "x:latest"), fmt.Sprint(q.Channel == "x:latest"))
	})
	s.confirm(130) // all but the latest
	s.sleep(10 * ms)
	s.broken = every
	s.answer(settles)
	s.answer(settles)
	s.sleep(110 * ms) // each lane tries, and hangs
	s.confirm(1)
	s.sleep(150 * ms)
	s.broken = nil
	s.answer(func(c call) bool { return slices.Contains(c.buckets, 65) })
	s.broken = every // the one that began later, of the same lane
	s.answer(func(c call) bool { return slices.Contains(c.buckets, 1) })
	s.broken = nil
	s.work(time.Hour)
	if n := len(s.m.apart); n > 0 {
		t.Errorf("%d lanes are left an hour after all is well", n)
	}
}

// A delivery that could not be written before its bucket was lost is still written.
func TestLostWhileItsSettlementFails(t *testing.T) {
	s := newSlowShop(t, 2, nil)
	s.add(0, "x:a", 1, -ms)
	for end := s.now.Mono + time.Second; s.now.Mono < end; s.sleep(5 * ms) {
		for len(s.calls) > 0 {
			c := s.calls[0]
			s.broken = func(int) bool { return c.settle != nil }
			s.answerWith(c)
		}
	}
	s.lose(0)
	s.broken = nil
	s.work(10 * time.Second)
	if n := len(s.store.Waiting[0]); n > 0 {
		t.Errorf("%d deliveries are not written", n)
	}
}

// wantOthersClear expects that nothing waits in the buckets that are not broken and, some time
// after all is well again, in none.
func (s *shop) wantOthersClear() {
	s.t.Helper()
	for b, rows := range s.store.Waiting {
		if !s.broken(b) && len(rows) > 0 {
			s.t.Errorf("%d messages wait in bucket %d, where all is well", len(rows), b)
		}
	}
	s.broken = nil
	s.work(20 * time.Second)
	for b, rows := range s.store.Waiting {
		if len(rows) > 0 {
			s.t.Errorf("%d messages wait in bucket %d when all is well", len(rows), b)
		}
	}
}

// parkedBefore schedules a message parked by an earlier owner, and returns where it is found.
func (s *shop) parkedBefore(b int, c postdate.Route) store.ParkedRoute {
	s.change(s.put(b, c, 1, time.Hour)[0].Key, func(r *postdate.Record) {
		r.Parked, r.ExecutionTime = true, s.now.Wall-1
	})
	return store.ParkedRoute{Bucket: b, Route: c}
}

func third(b int) bool { return b%3 == 0 }

// Messages parked in unreachable buckets do not keep those in other buckets parked.
func TestUnparksThatFailLeaveTheirPlaces(t *testing.T) {
	const buckets = 64
	s := newSlowShop(t, buckets, func(c *Config) { c.SweepEvery = 2 * time.Second })
	s.add(0, "x:a", 1, -ms)
	s.work(time.Second) // the channel answers
	var found []store.ParkedRoute
	for b := range buckets {
		found = append(found, s.parkedBefore(b, "x:a"))
	}
	s.broken = third
	s.step(ParkedFound{Found: found})
	s.work(20 * time.Second)
	s.wantOthersClear()
}

// If a channel has messages parked only in buckets that are apart, it is tried there, in half
// of the places.
func TestUnparksOfBucketsThatAreApart(t *testing.T) {
	const apart = 10
	s := newBareShop(t, func(c *Config) { c.UnparksMax = 4 })
	at := map[postdate.Route][]int{}
	s.watch = func(e Effect) {
		if u, is := e.(Unpark); is {
			at[u.Unpark.Route] = append(at[u.Unpark.Route], u.Unpark.Bucket)
		}
	}
	s.gainEmpty(apart + 1)
	s.nudge(apart, -ms)
	s.find(s.take(), append(s.put(apart, "x:gone", 1, -ms), s.put(apart, "x:well", 1, -ms)...)...)
	var found []store.ParkedRoute
	var due []Nudge
	for b := range apart {
		due = append(due, Nudge{b, s.now.Wall - 1})
		found = append(found, store.ParkedRoute{Bucket: b, Route: "x:gone"})
	}
	s.step(Nudged{due})
	s.loseAnswer(s.take())
	s.step(ParkedFound{Found: append(found, store.ParkedRoute{Bucket: apart, Route: "x:well"})})
	s.replyAll("x:gone", confirmed)
	s.replyAll("x:well", confirmed)
	if !slices.Equal(at["x:gone"], []int{0, 1}) || !slices.Equal(at["x:well"], []int{apart}) {
		t.Errorf("unparks begin: %v", at)
	}
}

// Messages that an earlier owner parked are found and come back even if a part of the store is
// out of reach when the buckets are taken.
func TestParkedIsFoundBesideWhatFails(t *testing.T) {
	const buckets = 16
	s := newSlowShop(t, 0, func(c *Config) { c.SweepEvery = 2 * time.Second })
	for b := range buckets {
		s.parkedBefore(b, "x:a")
	}
	s.broken = third
	failed := 0
	s.watch = func(e Effect) {
		if find, is := e.(FindParked); is && s.broken != nil && slices.ContainsFunc(find.Buckets, s.broken) {
			failed++
		}
	}
	s.gain(s.partitions(buckets)...)
	s.work(20 * time.Second)
	if failed > 2 { // claims have told by then what is out of reach
		t.Errorf("it asked %d times for buckets that are out of reach", failed)
	}
	s.wantOthersClear()
}

// They are also found if nothing but the search fails in some buckets, so that none is apart.
func TestParkedIsFoundWhereOnlyThatFails(t *testing.T) {
	const buckets = 64
	s := newSlowShop(t, 0, func(c *Config) { c.SweepEvery = 2 * time.Second })
	for b := range buckets {
		s.parkedBefore(b, "x:a")
	}
	var asked []FindParked
	s.waits = func(e Effect) bool { return storeCalls(e) || has[FindParked](e) }
	s.watch = func(e Effect) {
		if find, is := e.(FindParked); is {
			asked = append(asked, find)
		}
	}
	fails := third
	finds := func() {
		for end := s.now.Mono + 10*time.Second; s.now.Mono < end; s.work(20 * ms) {
			for n := 0; len(asked) > 0; n++ {
				if n > 4*buckets {
					t.Fatal("it asks again and again without a pause")
				}
				ev := ParkedFound{Buckets: asked[0].Buckets, Err: errNoPrimary}
				if asked = asked[1:]; !slices.ContainsFunc(ev.Buckets, fails) {
					ev = s.findParked(ev.Buckets)
				}
				s.step(ev)
			}
		}
	}
	s.gain(s.partitions(buckets)...)
	finds()
	for b, rows := range s.store.Waiting[:buckets] {
		if (len(rows) > 0) != fails(b) {
			t.Errorf("%d parked messages are left in bucket %d", len(rows), b)
		}
	}
	fails = func(int) bool { return false }
	finds()
	finds()
	if n := s.parked(); n > 0 {
		t.Errorf("%d parked messages are left when all is well", n)
	}
}

// A message whose parking was written twice, and which became due between the two writes, is
// published only after it is claimed anew: until then a cancel may succeed.
func TestParkedAgainBesideAScan(t *testing.T) {
	s := newSlowShop(t, 2, nil)
	s.mute = every
	s.add(0, "x:a", 1, -ms)
	s.add(1, "x:a", 1, -ms)
	s.answerAll()
	s.replyAll("x:a", down)
	of := func(b int) func(call) bool { return func(c call) bool { return slices.Equal(c.buckets, []int{b}) } }
	s.answer(of(1))
	s.sleep(20 * ms)
	s.settle(s.calls[0].settle.Settlements)
	s.broken = every // this answer is lost
	s.answer(of(0))
	s.broken = nil
	for range 400 { // until the other one has shown that the channel is back
		s.sleep(5 * ms)
		s.answer(of(1))
		s.confirmAll()
	}
	if s.arrived["x:a"] != 1 || !slices.ContainsFunc(s.calls, of(0)) {
		t.Fatalf("%d messages have arrived, and under way are %+v", s.arrived["x:a"], s.calls)
	}
	s.unpark(store.Unpark{Token: 1, Route: "x:a", At: s.now.Wall, Limit: 1})
	s.nudge(0, 0)
	s.sleep(time.Second)
	claim := s.calls[slices.IndexFunc(s.calls, claims)]
	read := s.store.Claim(t.Context(), claim.claim.Claims)
	if len(read[0].Due) != 1 || !s.answer(settles) {
		t.Fatalf("read %d messages, and under way are %+v", len(read[0].Due), s.calls)
	}
	s.calls = nil
	s.step(Claimed{claim.claim.Call, read})
	if n := s.flying(); n > 0 {
		t.Errorf("%d messages are published that are not claimed", n)
	}
	for range 20 {
		s.work(time.Second)
		s.confirmAll()
	}
	if s.work(time.Second); len(s.store.Waiting[0]) > 0 {
		t.Error("the message is left")
	}
}
