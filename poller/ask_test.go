package poller

import (
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
)

// asked sums up what the claims under way ask for.
type asked struct {
	claims, any int                    // messages of any channel
	only        map[postdate.Route]int // messages of one channel
	bytes       int
	most        int // messages of one claim
	leastBytes  int
}

func (s *shop) asked() asked {
	a := asked{only: map[postdate.Route]int{}, leastBytes: 1 << 60}
	for _, c := range s.calls {
		if c.claim == nil {
			continue
		}
		for _, one := range c.claim.Claims {
			a.claims++
			a.bytes += one.Scan.BytesMax
			a.most, a.leastBytes = max(a.most, one.Scan.Limit), min(a.leastBytes, one.Scan.BytesMax)
			if one.Only == "" {
				a.any += one.Scan.Limit
			} else {
				a.only[one.Only] += one.Scan.Limit
			}
		}
	}
	return a
}

// old gives the machine buckets from first on; in each, x:old is behind with `messages`
// messages.
func (s *shop) old(first, buckets, messages int) {
	var ps []bucket.Partition
	for b := first; b < first+buckets; b++ {
		p := bucket.Partition{
			Bucket: b, Checkpoint: s.now.Wall - 70_000, Claimed: bucket.UpTo(s.now.Wall - 1000),
			Behind: map[postdate.Route]bucket.Position{"x:old": bucket.UpTo(s.now.Wall - 60_000)},
		}
		ps = append(ps, p)
		s.put(b, "x:old", messages, -50*time.Second)
	}
	s.gain(ps...)
}

// What hanging claims may bring never exceeds the room, and each may bring one payload of any
// size. What has no room in the first call comes with one of the next.
func TestClaimsAskForWhatThereIsRoomFor(t *testing.T) {
	const buckets = 40
	for name, change := range map[string]func(*Config){
		"payloads": func(c *Config) { c.PayloadBytesMax, c.HandBytesMax = 1000, 20_500 },
		"messages": func(c *Config) { c.PayloadBytesMax, c.DoubtMax, c.HandMax, c.PageMax = 1000, 1<<20, 300, 70 },
		"few":      func(c *Config) { c.PayloadBytesMax, c.DoubtMax, c.HandMax, c.PageMax = 1000, 1<<20, 60, 70 },
		"pages":    func(c *Config) { c.PayloadBytesMax, c.DoubtMax, c.PageMax = 1000, 1<<20, 3 },
		"doubt":    func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1000, 64 },
		"no doubt": func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1000, 16 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlowShop(t, buckets, change)
			c, most := s.m.c, asked{}
			for range 3 { // the first is nudged alone, and the others gather
				for b := range buckets {
					s.add(b, "x:a", 1, 50*ms)
				}
			}
			begin := s.now.Mono
			s.sleep(500 * ms)
			for s.now.Mono < begin+time.Second {
				a := s.asked()
				most.claims, most.any = max(most.claims, a.claims), max(most.any, a.any)
				if a.any > max(c.DoubtMax/2, 4) || a.any > c.HandMax || a.bytes > c.HandBytesMax ||
					a.most > c.PageMax || a.leastBytes < c.PayloadBytesMax {
					t.Fatalf("claims under way ask for %+v", a)
				}
				s.answer(every)
				s.sleep(5 * ms)
			}
			s.work(time.Second)
			if most.claims < 4 || most.any < min(c.DoubtMax, c.HandMax)/8 && most.any < 4*c.PageMax {
				t.Errorf("they ask for %+v at most: too little", most)
			}
			for b, rows := range s.store.Waiting {
				if len(rows) > 0 {
					t.Errorf("%d messages are left in bucket %d", len(rows), b)
				}
			}
		})
	}
}

// One call brings at most half of what there is room for.
func TestACallLeavesRoomForOthers(t *testing.T) {
	s := newSlowShop(t, 40, func(c *Config) { c.PayloadBytesMax, c.DoubtMax, c.HandMax, c.HandBytesMax = 1000, 1<<20, 300, 50_000 })
	for b := range 40 {
		s.add(b, "x:a", 1, 50*ms)
	}
	s.sleep(40 * ms)
	if a := s.asked(); a.any > s.m.c.HandMax/2 || a.any < s.m.c.HandMax/3 || a.claims != 25 || a.bytes > s.m.c.HandBytesMax/2 {
		t.Errorf("the first call asks for %+v", a)
	}
}

// Claims of a channel that is behind bring no more of it than there is room for, in however
// many buckets it is behind, and even if other messages are due there.
func TestClaimsOfAChannelThatIsBehind(t *testing.T) {
	const buckets = 60
	s := newSlowShop(t, 1, func(c *Config) { c.DoubtMax, c.PayloadBytesMax = 16, 1000 })
	s.mute = func(c postdate.Route) bool { return c == "x:old" }
	s.old(1, buckets, 3)
	pass := func(long time.Duration, answered func(call) bool) {
		t.Helper()
		for end := s.now.Mono + long; s.now.Mono < end; s.sleep(5 * ms) {
			a, hand := s.asked(), s.m.channels["x:old"].hand
			if a.only["x:old"]+hand > 8 {
				t.Fatalf("claims under way ask for %+v, and %d messages are in hand", a, hand)
			}
			s.answer(answered)
		}
	}
	for range 5 {
		pass(3*time.Second, every)
		for b := range buckets {
			s.add(1+b, "x:new", 1, 100*ms)
		}
		s.add(0, "x:new", 1, -ms) // its claim hangs, so that all others come in one call
		s.confirmAll()
		pass(200*ms, settles)
	}
	s.mute = nil
	s.confirmAll()
	s.work(3 * time.Second)
	for b, rows := range s.store.Waiting {
		if len(rows) > 0 {
			t.Errorf("%d messages are left in bucket %d", len(rows), b)
		}
	}
}

// If there is room for few buckets, both what is due and what is behind come, even if a
// settlement follows each claim.
func TestDueAndBehindTakeTurns(t *testing.T) {
	const due = 10
	for _, offset := range []bool{false, true} {
		s := newSlowShop(t, due, func(c *Config) { c.HandBytesMax, c.PageMax = 4*c.PayloadBytesMax, 3 })
		if offset { // one more call of the store
			s.nudge(0, 0)
			s.answer(claims)
		}
		s.old(due, due, 50)
		for i := range 60 {
			if i == 20 { // the first sweeps are over
				s.log = nil
			}
			for b := range due {
				s.add(b, "x:a", 1, -ms)
			}
			s.answer(claims)
			s.sleep(10 * ms)
			s.answer(settles)
		}
		dues, olds, onlyOld := 0, 0, 0
		for _, c := range s.log {
			if c.claim == nil {
				continue
			}
			n := 0
			for _, b := range c.buckets {
				if b < due {
					n++
				}
			}
			dues, olds = dues+n, olds+len(c.buckets)-n
			if n == 0 {
				onlyOld++
			}
		}
		if dues < 20 || olds < 10 || onlyOld > 0 {
			t.Errorf("offset %t: claimed were %d buckets in which something is due, and %d in which a channel is behind, "+
				"which %d calls were for alone", offset, dues, olds, onlyOld)
		}
	}
}

// Once failed claims go through again, they may bring as much as before.
func TestRoomAfterClaimsThatFailed(t *testing.T) {
	s := newSlowShop(t, 4, nil)
	limit := func() int {
		t.Helper()
		s.sleep(time.Second)
		s.log = nil
		s.add(2, "x:a", 1, -ms)
		if len(s.calls) != 1 {
			t.Fatalf("%d calls are under way", len(s.calls))
		}
		most := s.calls[0].claim.Claims[0].Scan.Limit
		s.answerAll()
		return most
	}
	before := limit()
	s.broken = every
	for b := range 4 {
		s.add(b, "x:a", 1, -ms)
	}
	s.work(20 * time.Second)
	s.broken = nil
	s.work(3 * time.Second)
	if after := limit(); after != before {
		t.Errorf("a claim asks for %d messages, and asked for %d before others failed", after, before)
	}
}

// A claim that says nothing new is written only if something is due.
func TestClaimsThatSayNothingNew(t *testing.T) {
	s := newSlowShop(t, 1, func(c *Config) { c.SweepEvery = 2 * time.Second })
	s.work(10 * time.Second)
	for _, c := range s.log {
		if !c.claim.Claims[0].IfDue {
			t.Errorf("after %s it is written, and nothing has changed", c.at)
		}
	}
	if len(s.log) != 5 {
		t.Errorf("%d sweeps in ten seconds", len(s.log))
	}
	s.add(0, "x:a", 1, -ms)
	s.work(10 * ms)
	s.log = nil
	s.work(10 * time.Second)
	for i, c := range s.log { // the checkpoint follows a delivery, once
		if claim := c.claim.Claims[0]; claim.IfDue != (i > 0) {
			t.Errorf("claim %d after a delivery is for what is due alone: %t", i, claim.IfDue)
		}
	}
}

// What is due soon waits for other buckets to share its call. Sweeps that fall due soon after
// each other share a call as well, and none comes late.
func TestClaimsWaitForCompany(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.add(1, "x:a", 1, 100*ms)
	s.add(2, "x:a", 1, 119*ms)
	s.add(3, "x:a", 1, 121*ms)
	for range 100 { // what else happens changes nothing
		s.work(5 * ms)
		s.step(fence.Tick{})
	}
	if at, sizes := s.begun(true, -1); at[0] != 80*ms || sizes[0] != 2 || sizes[1] != 1 {
		t.Errorf("claims of %v buckets begin at %v", sizes, at)
	}
	s = newSlowShop(t, 0, func(c *Config) { c.SweepEvery = 2 * time.Second })
	for b := range 3 {
		s.gain(s.partitions(3)[b])
		s.work(400 * ms)
	}
	s.log = nil
	s.work(10 * time.Second)
	if at, sizes := s.begun(true, -1); len(at) < 9 || len(at) > 12 || !slices.Contains(sizes, 2) {
		t.Errorf("claims of %v buckets begin at %v", sizes, at)
	}
	for b := range 3 {
		at, _ := s.begun(true, b)
		for i := range at[1:] {
			if pause := at[i+1] - at[i]; pause < 1500*ms || pause > 2*time.Second {
				t.Errorf("a sweep of bucket %d comes %s after the last one", b, pause)
			}
		}
	}
}

// A claim made under a lease that has ended may have been written. A channel that it left
// behind is not claimed by a claim that does not know of it, even once it has room.
func TestBehindAfterALapsedLease(t *testing.T) {
	s := newSlowShop(t, 1, func(c *Config) { c.DoubtMax = 16 })
	s.mute = func(c postdate.Route) bool { return c == "x:slow" }
	for range 40 {
		s.add(0, "x:slow", 1, 100*ms)
	}
	behind := func(c call) bool { return c.claim != nil && len(c.claim.Claims[0].Behind) > 0 }
	for !slices.ContainsFunc(s.calls, behind) {
		if !s.answer(every) {
			s.sleep(5 * ms)
			s.add(0, "x:a", 1, -ms)
		}
	}
	s.m.leaseUntil = s.now.Mono + 10*ms
	s.sleep(20 * ms)
	s.renew()
	s.mute = nil
	s.confirmAll()
	for s.answer(settles) { // now there is room
		s.sleep(10 * ms)
	}
	lapsed := s.calls[slices.IndexFunc(s.calls, behind)]
	s.log = nil
	s.answerWith(lapsed)
	if len(s.log) == 0 || s.log[0].claim == nil {
		t.Fatalf("then begin %+v", s.log)
	}
	if _, is := s.log[0].claim.Claims[0].Behind["x:slow"]; !is {
		t.Errorf("the next claim is %+v: it claims all of the channel", s.log[0].claim.Claims[0])
	}
	s.work(3 * time.Second)
	if len(s.store.Waiting[0]) > 0 {
		t.Errorf("%d messages are left", len(s.store.Waiting[0]))
	}
}
