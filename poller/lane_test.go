package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
)

// A hanging call holds back the next ones for a tenth of a second, in which work gathers, and
// no more than four hang at a time. With four, nothing is tried or waited for.
func TestCallsThatHang(t *testing.T) {
	for _, claim := range []bool{true, false} {
		s := newSlowShop(t, 40, nil)
		hang := func(b int) { // one more message, whose claim or settlement hangs
			s.add(b, "x:a", 1, -ms)
			if !claim {
				s.answer(claims)
			}
			s.sleep(30 * ms)
		}
		for b := range 30 {
			hang(b)
			if w := s.m.Wake(s.now); b > 10 && w != wakeMax {
				t.Errorf("claims %t: four calls hang, and it wants to be woken after %s", claim, w)
			}
		}
		at, sizes := s.begun(claim, -1)
		want := []time.Duration{at[0], at[0] + 100*ms, at[0] + 200*ms, at[0] + 300*ms}
		if at[0] > 0 || !slices.Equal(at, want) {
			t.Errorf("claims %t: they began at %v, want %v", claim, at, want)
		}
		if sizes[1] < 3 || sizes[2] < 3 {
			t.Errorf("claims %t: they carry %v buckets: nothing gathered behind the first one", claim, sizes)
		}
		s.sleep(time.Second)
		s.answer(func(c call) bool { return (c.claim != nil) == claim })
		if again, sizes := s.begun(claim, -1); len(again) != 5 || sizes[4] < 10 {
			t.Errorf("claims %t: after an answer %d calls have begun, the last with %v buckets", claim, len(again), sizes)
		}
	}
}

// The machine asks to be woken for a call only while there is one to make.
func TestNothingWakesAnIdleMachine(t *testing.T) {
	s := newSlowShop(t, 4, func(c *Config) { c.RetryAfter = 300 * ms })
	woken := func(what string, want time.Duration) {
		t.Helper()
		if w := s.m.Wake(s.now); w != want {
			t.Errorf("%s: it wants to be woken after %s, want %s", what, w, want)
		}
	}
	s.add(0, "x:a", 1, -ms)
	woken("a claim is under way", callSlow)
	s.answer(claims)
	woken("a settlement is under way", wakeMax)
	s.answer(settles)
	s.add(0, "x:a", 1, -ms)
	s.answer(claims)
	woken("another one waits for company", s.m.c.SettleGather)
	s.sleep(10 * ms)
	woken("it is under way", wakeMax)
	if len(s.calls) != 1 {
		t.Fatalf("%d calls are under way", len(s.calls))
	}
	s.broken = every
	s.answer(settles)
	woken("a settlement failed", 300*ms)
	s.sleep(300 * ms)
	s.answer(settles)
	woken("it failed again", 600*ms)
	s.broken = nil
	s.work(time.Second)
	woken("all is done", wakeMax)
	if len(s.store.Waiting[0]) > 0 || len(s.m.claimings)+len(s.m.settlings) > 0 {
		t.Errorf("%d messages and %d calls are left", len(s.store.Waiting[0]), len(s.m.claimings)+len(s.m.settlings))
	}
}

// What fails is tried less and less often, separately, while the others go on. Once it goes
// through, it shares their calls again.
func TestABucketThatFails(t *testing.T) {
	for _, claim := range []bool{true, false} {
		t.Run(fmt.Sprintf("claims %t", claim), func(t *testing.T) {
			s := newSlowShop(t, 8, nil)
			if !claim { // its message is with the broker when the store fails
				s.add(3, "x:a", 1, -ms)
				s.answer(claims)
				s.answer(settles)
				s.add(3, "x:a", 1, -ms)
				s.answer(claims)
			}
			s.broken, s.log = func(b int) bool { return b == 3 }, nil
			for b := range 8 {
				if claim || b != 3 {
					s.add(b, "x:a", 1, -ms)
				}
			}
			s.work(10 * time.Second)
			at, sizes := s.begun(claim, 3)
			var pauses []time.Duration
			for i := range at[1:] {
				pauses = append(pauses, at[i+1]-at[i])
			}
			if want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 2 * time.Second}; !slices.Equal(pauses[:6], want) {
				t.Errorf("the pauses were %v, want %v", pauses, want)
			}
			for i, size := range sizes[1:] {
				if size > 1 {
					t.Errorf("try %d carries %d buckets", i+1, size)
				}
			}
			for _, c := range s.log {
				if c.claim != nil && len(c.buckets) == 1 && c.buckets[0] == 3 && c.at > 0 && c.claim.Claims[0].Scan.Limit != 1 {
					t.Errorf("a claim that may hang again keeps room for %d messages", c.claim.Claims[0].Scan.Limit)
				}
			}
			in := s.store.Waiting
			if others := slices.Concat(in[0], in[2], in[4], in[7]); len(in[3]) == 0 || len(others) > 0 {
				t.Errorf("%d messages are left where it fails, and %d elsewhere", len(in[3]), len(others))
			}
			s.wantTogether()
		})
	}
}

// wantTogether expects all to be well soon after the store is, and all buckets to share calls.
func (s *shop) wantTogether() {
	s.t.Helper()
	s.broken = nil
	s.work(retryMax + 200*ms)
	for b, rows := range s.store.Waiting {
		if len(rows) > 0 {
			s.t.Errorf("%d messages are left in bucket %d", len(rows), b)
		}
	}
	if len(s.calls)+len(s.m.claimings)+len(s.m.settlings)+len(s.m.apart) > 0 {
		s.t.Errorf("%d calls and %d lanes are left", len(s.m.claimings)+len(s.m.settlings), len(s.m.apart))
	}
	s.log = nil
	s.sleep(time.Second)
	all := s.owned()
	for _, b := range all {
		s.add(b, "x:b", 1, 50*ms)
	}
	s.work(time.Second)
	if _, sizes := s.begun(true, -1); len(sizes) == 0 || sizes[0] != len(all) {
		s.t.Errorf("claims carry %v buckets, want all in one", sizes)
	}
}

// Buckets that fail together are divided until only the one out of reach fails, whether a call
// fails as a whole or only in part.
func TestAGroupThatFailsIsDivided(t *testing.T) {
	const buckets, out = 200, 17
	for _, alone := range []bool{false, true} {
		s := newSlowShop(t, buckets, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
		for b := range buckets {
			s.add(b, "x:a", 1, 50*ms)
		}
		s.broken = func(b int) bool { return b == out }
		s.sleep(40 * ms)
		s.answer(claims)
		s.alone = alone
		s.work(700 * ms)
		if at, sizes := s.begun(true, out); !slices.Equal(sizes[:3], []int{200, 3, 1}) || at[2]-at[1] > 200*ms {
			t.Errorf("the claims with the bucket that is out of reach carry %v buckets, and began at %v", sizes, at)
		}
		for b, rows := range s.store.Waiting {
			if (len(rows) > 0) != (b == out) {
				t.Errorf("bucket %d: %d messages are left", b, len(rows))
			}
		}
		if n := len(s.m.apart); n != 1 {
			t.Errorf("%d lanes are apart", n)
		}
		s.wantTogether()
	}
}

// nudgeAll nudges all buckets.
func (s *shop) nudgeAll() {
	var nudges []Nudge
	for _, b := range s.owned() {
		nudges = append(nudges, Nudge{b, s.now.Wall})
	}
	s.step(Nudged{nudges})
}

// The same failures lead to the same calls, in the same order.
func TestTheSameDivision(t *testing.T) {
	var first []string
	for range 3 {
		s := newSlowShop(t, 9*splitMax, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
		s.broken = every
		s.nudgeAll()
		s.answer(claims)
		s.sleep(110 * ms)
		for s.answer(claims) { // lanes of nine buckets each
		}
		s.sleep(110 * ms)
		var calls []string
		for _, c := range s.log {
			calls = append(calls, fmt.Sprint(c.at, c.buckets))
		}
		if first == nil {
			first = calls
		} else if !slices.Equal(first, calls) {
			t.Errorf("first %v, and then %v", first, calls)
		}
	}
}

// If more buckets fail than there may be lanes, the rest stay together, tried no more often.
func TestLanesAreBounded(t *testing.T) {
	s := newSlowShop(t, lanesMax+100, func(c *Config) {
		c.PayloadBytesMax, c.HandBytesMax, c.DoubtMax = 1<<10, 2*splitMax<<10, 1<<20
	})
	s.broken = every
	s.nudgeAll()
	for range 100 {
		s.answer(claims)
	}
	if at, sizes := s.begun(true, -1); len(at) != lanesMax/splitMax+1 || slices.Min(sizes) != splitMax || len(s.m.apart) != lanesMax {
		t.Errorf("%d claims of %v buckets were made, and %d lanes", len(at), sizes, len(s.m.apart))
	}
	s.sleep(150 * ms)
	_, sizes := s.begun(true, -1)
	if more := sizes[lanesMax/splitMax+1:]; len(more) < 2 || slices.Max(more) < 2 {
		t.Errorf("then there were claims of %v buckets: the rest is not tried again", more)
	}
}

// A bucket whose settlement failed is claimed separately. Once the settlement goes through, its
// messages are claimed with the others', even if it made no claim meanwhile.
func TestABucketWhoseSettlementFails(t *testing.T) {
	for _, heals := range []bool{false, true} {
		s := newSlowShop(t, 8, nil)
		s.add(3, "x:a", 1, -ms)
		s.add(3, "x:a", 1, 500*ms)
		s.add(5, "x:a", 1, 500*ms)
		s.answer(claims)
		s.broken = func(b int) bool { return b == 3 }
		s.answer(settles)
		if heals {
			s.broken = nil
		}
		s.log = nil
		s.work(2 * time.Second)
		want := 1
		if heals {
			want = 2
		}
		if at, sizes := s.begun(true, 3); len(at) == 0 || at[0] != 480*ms || sizes[0] != want {
			t.Errorf("it heals %t: claimed at %v with %v buckets", heals, at, sizes)
		}
		s.wantTogether()
	}
}

// A bucket in which nothing is due rejoins the others once an empty claim goes through.
func TestABucketInWhichNothingIsDue(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.broken = func(b int) bool { return b == 3 }
	s.nudge(3, 0)
	s.work(time.Second)
	if at, _ := s.begun(true, 3); len(at) != 4 {
		t.Errorf("it was tried at %v", at)
	}
	s.wantTogether()
}

// A bucket that is due at the moment its settlement fails is claimed separately as well.
func TestABucketThatIsDueWhenItFails(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.add(3, "x:a", 1, -ms)
	s.add(3, "x:a", 1, 500*ms)
	s.add(5, "x:a", 1, 500*ms)
	s.answer(claims)
	s.sleep(479 * ms)
	s.now, s.log = s.now.Later(ms), nil
	s.broken = func(b int) bool { return b == 3 }
	s.answer(settles)
	if _, sizes := s.begun(true, -1); !slices.Equal(sizes, []int{1, 1}) {
		t.Errorf("claims of %v buckets begin", sizes)
	}
	s.wantTogether()
}

// Deliveries confirmed in a bucket that was lost are written separately, and less and less
// often while that fails: they make no others fail.
func TestALostBucketWhoseSettlementFails(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.mute = func(c postdate.Route) bool { return c == "x:late" }
	s.add(3, "x:late", 1, -ms)
	s.answer(claims)
	s.lose(3)
	if err := s.store.Release(t.Context(), holds(3)); err != nil {
		t.Fatal(err)
	}
	s.broken = func(b int) bool { return b == 3 }
	s.log = nil
	s.confirm(1)
	s.answer(settles)
	for range 100 {
		s.work(100 * ms)
		s.add(5, "x:a", 1, -ms)
		if n := s.calls[0].claim.Claims[0].Scan.Limit; n < 50 {
			t.Fatalf("a claim of another bucket asks for %d messages", n)
		}
	}
	at, sizes := s.begun(false, 3)
	if len(at) > 10 || slices.Max(sizes) > 1 {
		t.Errorf("it was tried at %v, with %v buckets", at, sizes)
	}
	s.wantTogether()
}

// Two settlements of a bucket that fail one after the other are set apart together.
func TestTwoSettlementsThatFail(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	for range 2 {
		s.add(3, "x:a", 1, -ms)
		s.answer(claims)
		s.sleep(150 * ms)
	}
	if len(s.calls) != 2 {
		t.Fatalf("under way are %+v", s.calls)
	}
	s.broken = func(b int) bool { return b == 3 }
	s.answer(settles)
	s.answer(settles)
	s.log = nil
	s.work(10 * time.Second)
	if at, _ := s.begun(false, 3); len(at) > 10 {
		t.Errorf("it was tried at %v", at)
	}
	s.wantTogether()
}

// A lane of several buckets is divided once none of its calls is under way. Until then a claim
// that hangs in one of them holds the others back no longer than any call.
func TestALaneOfSeveralBuckets(t *testing.T) {
	s := newSlowShop(t, 130, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
	for b := range 130 {
		s.add(b, named("x:%d", b), 1, 50*ms)
	}
	s.sleep(60 * ms)
	s.answer(claims)
	s.answer(settles) // what came first goes alone
	s.sleep(50 * ms)
	s.broken = every
	s.answer(settles) // of buckets 1 to 129: so 1, 65 and 129 are in one lane
	s.add(1, "x:a", 1, -ms)
	s.sleep(110 * ms)
	s.log = nil
	s.add(65, "x:a", 1, -ms)
	if _, sizes := s.begun(true, 65); !slices.Equal(sizes, []int{1}) {
		t.Errorf("claims of %v buckets begin beside one that hangs", sizes)
	}
	s.answer(func(c call) bool { return c.settle != nil && slices.Contains(c.buckets, 65) })
	for s.answer(claims) {
	}
	s.log = nil
	s.work(2 * time.Second)
	if _, sizes := s.begun(false, 65); len(sizes) == 0 || slices.Max(sizes) > 1 {
		t.Errorf("settlements of %v buckets are tried", sizes)
	}
	s.wantTogether()
}

// A lane stays apart as long as one of its calls hangs, because the next ones may hang as well.
func TestALaneWithACallThatHangs(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.mute = func(c postdate.Route) bool { return c == "x:late" }
	s.add(3, "x:late", 1, -ms)
	s.add(3, "x:a", 1, -ms)
	s.add(5, "x:late", 1, -ms)
	for s.answer(claims) {
	}
	s.broken = func(b int) bool { return b == 3 }
	s.answer(settles) // bucket 3 is apart from now on
	s.broken = nil
	s.add(3, "x:b", 1, -ms)
	s.sleep(150 * ms)
	hangs := s.calls[0]
	if s.answer(settles); len(s.calls) != 1 || !slices.Equal(hangs.buckets, []int{3}) || hangs.claim == nil {
		t.Fatalf("under way are %+v, want a claim of bucket 3", s.calls)
	}
	s.log = nil
	s.confirm(9)
	s.sleep(time.Second)
	if _, sizes := s.begun(false, -1); !slices.Equal(sizes, []int{1, 1}) {
		t.Errorf("settlements of %v buckets travel together, though a claim of one of them hangs", sizes)
	}
	s.answerAll()
	s.wantTogether()
}

// Once a call of a lane goes through, the others are tried soon, even if one still hangs.
func TestACallThatGoesThrough(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.mute = func(c postdate.Route) bool { return c == "x:late" }
	s.add(3, "x:late", 1, -ms)
	s.answer(claims)
	s.add(3, "x:late", 1, -ms)
	s.answer(claims)
	s.broken = func(b int) bool { return b == 3 }
	s.add(3, "x:b", 3, -ms)
	s.work(3500 * ms)
	s.confirm(1)
	s.sleep(150 * ms)
	s.confirm(1)
	s.sleep(time.Second)
	if len(s.calls) != 2 || s.calls[0].settle == nil || s.calls[1].settle == nil {
		t.Fatalf("under way are %+v, want two settlements", s.calls)
	}
	s.broken = nil
	at := s.calls[1].settle
	s.answer(func(c call) bool { return c.settle == at })
	s.sleep(time.Second)
	for range 3 { // one after the other
		if !slices.ContainsFunc(s.calls, func(c call) bool { return c.claim != nil && c.claim.Claims[0].Scan.Limit == 1 }) {
			t.Errorf("under way are %+v, want a claim of one message", s.calls)
		}
		s.answer(claims)
	}
	s.answerAll()
	s.wantTogether()
}

// A claim that fails in a bucket that is already apart holds back no other bucket.
func TestAClaimThatFailsLast(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.add(3, "x:a", 1, -ms)
	s.answer(claims)
	s.broken = func(b int) bool { return b == 3 }
	s.add(3, "x:a", 1, -ms) // its claim is under way when the settlement of the first one fails
	s.answer(settles)
	s.answer(claims)
	s.log = nil
	s.add(5, "x:b", 1, -ms)
	if at, _ := s.begun(true, 5); len(at) != 1 {
		t.Error("another bucket waits")
	}
	s.log = nil
	s.work(10 * time.Second)
	if at, _ := s.begun(true, 3); len(at) > 8 {
		t.Errorf("it is tried at %v", at)
	}
	s.wantTogether()
}

// A bucket that is lost while its claim is under way, or turns out to be lost, holds up nothing
// else in the same call, and is not claimed any more.
func TestLostInACall(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		s := newSlowShop(t, 4, nil)
		for b := range 4 {
			s.add(b, "x:a", 1, 50*ms)
		}
		s.sleep(40 * ms)
		all := slices.Clone(s.calls[0].buckets)
		lost := all[0] // its result comes first
		if fenced {
			s.store.Records[lost].Token++
		} else {
			s.lose(lost)
		}
		effects := s.answerWith(s.calls[0])
		if said := of[fence.Fenced](effects); fenced != (len(said) == 1 && slices.Equal(said[0].Holds, holds(lost))) {
			t.Errorf("refused %t: said %+v", fenced, said)
		}
		s.log = nil
		s.work(time.Second)
		s.add(lost, "x:a", 1, -ms)
		if at, _ := s.begun(true, lost); len(at) > 0 || s.m.Token(lost) != 0 || s.horizon[lost] != 0 {
			t.Errorf("it is claimed at %v, its token is %d and its horizon %d", at, s.m.Token(lost), s.horizon[lost])
		}
		for _, b := range all[1:] {
			if s.add(b, "x:a", 1, -ms); len(s.store.Waiting[b]) != 1 {
				t.Errorf("bucket %d: %d messages are left", b, len(s.store.Waiting[b]))
			}
		}
	}
}
