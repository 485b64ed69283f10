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

const ms = time.Millisecond

// A call that hangs keeps the next ones back for a tenth of a second, in which what comes
// gathers, and no more than four hang at a time; then nothing is tried, or waited for.
func TestCallsThatHang(t *testing.T) {
	for _, claim := range []bool{true, false} {
		d := newCounter(t, 40, nil)
		hang := func(b int) { // one more message, whose claim or settlement hangs
			d.add(b, "x:a", -ms)
			if !claim {
				d.answer(claims)
			}
			d.wait(30 * ms)
		}
		for b := range 30 {
			hang(b)
			if w := d.m.Wake(d.now); b > 10 && w != wakeMax {
				t.Errorf("claims %t: four calls hang, and it wants to be woken after %s", claim, w)
			}
		}
		at, sizes := d.begun(claim, -1)
		want := []time.Duration{at[0], at[0] + 100*ms, at[0] + 200*ms, at[0] + 300*ms}
		if at[0] > 0 || !slices.Equal(at, want) {
			t.Errorf("claims %t: they began at %v, want %v", claim, at, want)
		}
		if sizes[1] < 3 || sizes[2] < 3 {
			t.Errorf("claims %t: they carry %v buckets: nothing gathered behind the first one", claim, sizes)
		}
		d.wait(time.Second)
		d.answer(func(c call) bool { return (c.claim != nil) == claim })
		if again, sizes := d.begun(claim, -1); len(again) != 5 || sizes[4] < 10 {
			t.Errorf("claims %t: after an answer %d calls have begun, the last with %v buckets", claim, len(again), sizes)
		}
	}
}

// The machine wants to be woken for a call only while there is one to be made.
func TestNothingWakesAnIdleMachine(t *testing.T) {
	d := newCounter(t, 4, func(c *Config) { c.RetryAfter = 300 * ms })
	woken := func(what string, want time.Duration) {
		t.Helper()
		if w := d.m.Wake(d.now); w != want {
			t.Errorf("%s: it wants to be woken after %s, want %s", what, w, want)
		}
	}
	d.add(0, "x:a", -ms)
	woken("a claim is under way", callSlow)
	d.answer(claims)
	woken("a settlement is under way", wakeMax)
	d.answer(settles)
	d.add(0, "x:a", -ms)
	d.answer(claims)
	woken("another one waits for company", d.m.c.SettleGather)
	d.wait(10 * ms)
	woken("it is under way", wakeMax)
	if len(d.calls) != 1 {
		t.Fatalf("%d calls are under way", len(d.calls))
	}
	d.broken = func(int) bool { return true }
	d.answer(settles)
	woken("a settlement failed", 300*ms)
	d.wait(300 * ms)
	d.answer(settles)
	woken("it failed again", 600*ms)
	d.broken = func(int) bool { return false }
	d.work(time.Second)
	woken("all is done", wakeMax)
	if len(d.rows[0]) > 0 || len(d.m.claimings)+len(d.m.settlings) > 0 {
		t.Errorf("%d messages and %d calls are left", len(d.rows[0]), len(d.m.claimings)+len(d.m.settlings))
	}
}

// What fails is tried ever more rarely, by itself, while the others go on; once it goes
// through, it travels with them again.
func TestABucketThatFails(t *testing.T) {
	for _, claim := range []bool{true, false} {
		t.Run(fmt.Sprintf("claims %t", claim), func(t *testing.T) {
			d := newCounter(t, 8, nil)
			if !claim { // its message is with the broker when the store fails
				d.add(3, "x:a", -ms)
				d.answer(claims)
				d.answer(settles)
				d.add(3, "x:a", -ms)
				d.answer(claims)
			}
			d.broken, d.log = func(b int) bool { return b == 3 }, nil
			for b := range 8 {
				if claim || b != 3 {
					d.add(b, "x:a", -ms)
				}
			}
			d.work(10 * time.Second)
			at, sizes := d.begun(claim, 3)
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
			for _, c := range d.log {
				if c.claim != nil && len(c.buckets) == 1 && c.buckets[0] == 3 && c.at > 0 && c.claim.Claims[0].Scan.Limit != 1 {
					t.Errorf("a claim that may hang again keeps room for %d messages", c.claim.Claims[0].Scan.Limit)
				}
			}
			if len(d.rows[3]) == 0 || len(slices.Concat(d.rows[0], d.rows[2], d.rows[4], d.rows[7])) > 0 {
				t.Errorf("left are %v", d.rows)
			}
			together(t, d)
		})
	}
}

// together expects that all is well soon after the store is, and that all buckets travel together.
func together(t *testing.T, d *counter) {
	t.Helper()
	d.broken = func(int) bool { return false }
	d.work(retryMax + 200*ms)
	for b, rows := range d.rows {
		if len(rows) > 0 {
			t.Errorf("%d messages are left in bucket %d", len(rows), b)
		}
	}
	if len(d.calls)+len(d.m.claimings)+len(d.m.settlings)+len(d.m.apart) > 0 {
		t.Errorf("%d calls and %d lanes are left", len(d.m.claimings)+len(d.m.settlings), len(d.m.apart))
	}
	d.log = nil
	d.wait(time.Second)
	for b := range d.record {
		d.add(b, "x:b", 50*ms)
	}
	d.work(time.Second)
	if _, sizes := d.begun(true, -1); len(sizes) == 0 || sizes[0] != len(d.record) {
		t.Errorf("claims carry %v buckets, want all in one", sizes)
	}
}

// Buckets that fail together are divided until only that one fails that is out of reach,
// whether all of a call fails or only what concerns it.
func TestAGroupThatFailsIsDivided(t *testing.T) {
	const buckets, out = 200, 17
	for _, alone := range []bool{false, true} {
		d := newCounter(t, buckets, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
		for b := range buckets {
			d.add(b, "x:a", 50*ms)
		}
		d.broken = func(b int) bool { return b == out }
		d.wait(40 * ms)
		d.answer(claims)
		d.alone = alone
		d.work(700 * ms)
		if at, sizes := d.begun(true, out); !slices.Equal(sizes[:3], []int{200, 3, 1}) || at[2]-at[1] > 200*ms {
			t.Errorf("the claims with the bucket that is out of reach carry %v buckets, and began at %v", sizes, at)
		}
		for b, rows := range d.rows {
			if (len(rows) > 0) != (b == out) {
				t.Errorf("bucket %d: %d messages are left", b, len(rows))
			}
		}
		if n := len(d.m.apart); n != 1 {
			t.Errorf("%d lanes are apart", n)
		}
		together(t, d)
	}
}

// The same failures lead to the same calls, in the same order.
func TestTheSameDivision(t *testing.T) {
	var first []string
	for range 3 {
		d := newCounter(t, 9*splitMax, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
		d.broken = func(int) bool { return true }
		d.nudgeAll()
		d.answer(claims)
		d.wait(110 * ms)
		for d.answer(claims) { // lanes of nine buckets each
		}
		d.wait(110 * ms)
		var calls []string
		for _, c := range d.log {
			calls = append(calls, fmt.Sprint(c.at, c.buckets))
		}
		if first == nil {
			first = calls
		} else if !slices.Equal(first, calls) {
			t.Errorf("first %v, and then %v", first, calls)
		}
	}
}

// Where more fails than lanes are kept, the rest is tried together, and not more often.
func TestLanesAreBounded(t *testing.T) {
	d := newCounter(t, lanesMax+100, func(c *Config) {
		c.PayloadBytesMax, c.HandBytesMax, c.DoubtMax = 1<<10, 2*splitMax<<10, 1<<20
	})
	d.broken = func(int) bool { return true }
	d.nudgeAll()
	for range 100 {
		d.answer(claims)
	}
	if at, sizes := d.begun(true, -1); len(at) != lanesMax/splitMax+1 || slices.Min(sizes) != splitMax || len(d.m.apart) != lanesMax {
		t.Errorf("%d claims of %v buckets were made, and %d lanes", len(at), sizes, len(d.m.apart))
	}
	d.wait(150 * ms)
	_, sizes := d.begun(true, -1)
	if more := sizes[lanesMax/splitMax+1:]; len(more) < 2 || slices.Max(more) < 2 {
		t.Errorf("then there were claims of %v buckets: the rest is not tried again", more)
	}
}

// A bucket whose settlement fails is claimed by itself from then on. Once that went through,
// what is due in it is claimed with the others, though no call of its claims was made.
func TestABucketWhoseSettlementFails(t *testing.T) {
	for _, heals := range []bool{false, true} {
		d := newCounter(t, 8, nil)
		d.add(3, "x:a", -ms)
		d.add(3, "x:a", 500*ms)
		d.add(5, "x:a", 500*ms)
		d.answer(claims)
		d.broken = func(b int) bool { return b == 3 }
		d.answer(settles)
		if heals {
			d.broken = func(int) bool { return false }
		}
		d.log = nil
		d.work(2 * time.Second)
		want := 1
		if heals {
			want = 2
		}
		if at, sizes := d.begun(true, 3); len(at) == 0 || at[0] != 480*ms || sizes[0] != want {
			t.Errorf("it heals %t: claimed at %v with %v buckets", heals, at, sizes)
		}
		together(t, d)
	}
}

// A bucket in which nothing is due joins the others once a claim that finds nothing goes through.
func TestABucketInWhichNothingIsDue(t *testing.T) {
	d := newCounter(t, 8, nil)
	d.broken = func(b int) bool { return b == 3 }
	d.step(Nudged{[]Nudge{{3, d.now.Wall}}})
	d.work(time.Second)
	if at, _ := d.begun(true, 3); len(at) != 4 {
		t.Errorf("it was tried at %v", at)
	}
	together(t, d)
}

// A bucket that is due at the moment at which its settlement fails is claimed by itself as well.
func TestABucketThatIsDueWhenItFails(t *testing.T) {
	d := newCounter(t, 8, nil)
	d.add(3, "x:a", -ms)
	d.add(3, "x:a", 500*ms)
	d.add(5, "x:a", 500*ms)
	d.answer(claims)
	d.wait(479 * ms)
	d.now, d.log = d.now.Later(ms), nil
	d.broken = func(b int) bool { return b == 3 }
	d.answer(settles)
	if _, sizes := d.begun(true, -1); !slices.Equal(sizes, []int{1, 1}) {
		t.Errorf("claims of %v buckets begin", sizes)
	}
	together(t, d)
}

// What was confirmed of a bucket that was lost is written by itself, and ever more rarely, as
// long as that fails: it makes no others fail with it.
func TestALostBucketWhoseSettlementFails(t *testing.T) {
	d := newCounter(t, 8, nil)
	d.mute = func(c postdate.Channel) bool { return c == "x:late" }
	d.add(3, "x:late", -ms)
	d.answer(claims)
	d.step(fence.Lost{Holds: []store.Hold{{Bucket: 3, Token: 1}}})
	delete(d.record, 3)
	d.broken = func(b int) bool { return b == 3 }
	d.log = nil
	d.confirm(1)
	d.answer(settles)
	for range 100 {
		d.work(100 * ms)
		d.add(5, "x:a", -ms)
		if n := d.calls[0].claim.Claims[0].Scan.Limit; n < 50 {
			t.Fatalf("a claim of another bucket asks for %d messages", n)
		}
	}
	at, sizes := d.begun(false, 3)
	if len(at) > 10 || slices.Max(sizes) > 1 {
		t.Errorf("it was tried at %v, with %v buckets", at, sizes)
	}
	together(t, d)
}

// Two settlements of a bucket that fail after each other go apart together.
func TestTwoSettlementsThatFail(t *testing.T) {
	d := newCounter(t, 8, nil)
	for range 2 {
		d.add(3, "x:a", -ms)
		d.answer(claims)
		d.wait(150 * ms)
	}
	if len(d.calls) != 2 {
		t.Fatalf("under way are %+v", d.calls)
	}
	d.broken = func(b int) bool { return b == 3 }
	d.answer(settles)
	d.answer(settles)
	d.log = nil
	d.work(10 * time.Second)
	if at, _ := d.begun(false, 3); len(at) > 10 {
		t.Errorf("it was tried at %v", at)
	}
	together(t, d)
}

// A lane of several buckets is divided once nothing of it is under way any more; until then a
// claim that hangs in one of them keeps the others back no longer than any call.
func TestALaneOfSeveralBuckets(t *testing.T) {
	d := newCounter(t, 130, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
	for b := range 130 {
		d.add(b, postdate.Channel(fmt.Sprint("x:", b)), 50*ms)
	}
	d.wait(60 * ms)
	d.answer(claims)
	d.answer(settles) // what came first goes alone
	d.wait(50 * ms)
	d.broken = func(int) bool { return true }
	d.answer(settles) // of buckets 1 to 129: so 1, 65 and 129 are in one lane
	d.add(1, "x:a", -ms)
	d.wait(110 * ms)
	d.log = nil
	d.add(65, "x:a", -ms)
	if _, sizes := d.begun(true, 65); !slices.Equal(sizes, []int{1}) {
		t.Errorf("claims of %v buckets begin beside one that hangs", sizes)
	}
	d.answer(func(c call) bool { return c.settle != nil && slices.Contains(c.buckets, 65) })
	for d.answer(claims) {
	}
	d.log = nil
	d.work(2 * time.Second)
	if _, sizes := d.begun(false, 65); len(sizes) == 0 || slices.Max(sizes) > 1 {
		t.Errorf("settlements of %v buckets are tried", sizes)
	}
	together(t, d)
}

// A lane stays apart as long as one of its calls hangs, for the next ones may hang as well.
func TestALaneWithACallThatHangs(t *testing.T) {
	d := newCounter(t, 8, nil)
	d.mute = func(c postdate.Channel) bool { return c == "x:late" }
	d.add(3, "x:late", -ms)
	d.add(3, "x:a", -ms)
	d.add(5, "x:late", -ms)
	for d.answer(claims) {
	}
	d.broken = func(b int) bool { return b == 3 }
	d.answer(settles) // bucket 3 is apart from now on
	d.broken = func(int) bool { return false }
	d.add(3, "x:b", -ms)
	d.wait(150 * ms)
	hangs := d.calls[0]
	if d.answer(settles); len(d.calls) != 1 || !slices.Equal(hangs.buckets, []int{3}) || hangs.claim == nil {
		t.Fatalf("under way are %+v, want a claim of bucket 3", d.calls)
	}
	d.log = nil
	d.confirm(9)
	d.wait(10 * ms)
	if _, sizes := d.begun(false, -1); !slices.Equal(sizes, []int{1, 1}) {
		t.Errorf("settlements of %v buckets travel together, though a claim of one of them hangs", sizes)
	}
	d.answerAll()
	together(t, d)
}

// Once a call of a lane goes through, the others are tried soon, though one still hangs.
func TestACallThatGoesThrough(t *testing.T) {
	d := newCounter(t, 8, nil)
	d.mute = func(c postdate.Channel) bool { return c == "x:late" }
	d.add(3, "x:late", -ms)
	d.answer(claims)
	d.add(3, "x:late", -ms)
	d.answer(claims)
	d.broken = func(b int) bool { return b == 3 }
	d.add(3, "x:b", -ms)
	d.work(3500 * ms)
	d.confirm(1)
	d.wait(150 * ms)
	d.confirm(1)
	d.wait(10 * ms)
	if len(d.calls) != 2 || d.calls[0].settle == nil || d.calls[1].settle == nil {
		t.Fatalf("under way are %+v, want two settlements", d.calls)
	}
	d.broken = func(int) bool { return false }
	at := d.calls[1].settle
	d.answer(func(c call) bool { return c.settle == at })
	d.wait(joinMax)
	if len(d.calls) != 2 || d.calls[1].claim == nil || d.calls[1].claim.Claims[0].Scan.Limit != 1 {
		t.Errorf("under way are %+v, want a claim of one message", d.calls)
	}
	d.answerAll()
	together(t, d)
}

// A claim that fails in a bucket that is apart already keeps no other bucket back.
func TestAClaimThatFailsLast(t *testing.T) {
	d := newCounter(t, 8, nil)
	d.add(3, "x:a", -ms)
	d.answer(claims)
	d.broken = func(b int) bool { return b == 3 }
	d.add(3, "x:a", -ms) // its claim is under way when the settlement of the first one fails
	d.answer(settles)
	d.answer(claims)
	d.log = nil
	d.add(5, "x:b", -ms)
	if at, _ := d.begun(true, 5); len(at) != 1 {
		t.Error("another bucket waits")
	}
	d.log = nil
	d.work(10 * time.Second)
	if at, _ := d.begun(true, 3); len(at) > 8 {
		t.Errorf("it is tried at %v", at)
	}
	together(t, d)
}

// What is lost while its claim is under way, or turns out to be lost, keeps nothing else of
// the same call back, and is not claimed any more.
func TestLostInACall(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		d := newCounter(t, 4, nil)
		for b := range 4 {
			d.add(b, "x:a", 50*ms)
		}
		d.wait(40 * ms)
		all := slices.Clone(d.calls[0].buckets)
		lost := all[0] // its result comes first
		hold := store.Hold{Bucket: lost, Token: 1}
		if fenced {
			p := d.record[lost]
			p.Token++
			d.record[lost] = p
		} else {
			d.step(fence.Lost{Holds: []store.Hold{hold}})
		}
		effects := d.answerWith(d.calls[0])
		if said := of[fence.Fenced](effects); fenced != (len(said) == 1 && slices.Equal(said[0].Holds, []store.Hold{hold})) {
			t.Errorf("refused %t: said %+v", fenced, said)
		}
		d.log = nil
		d.work(time.Second)
		d.add(lost, "x:a", -ms)
		if at, _ := d.begun(true, lost); len(at) > 0 || d.m.Token(lost) != 0 || d.horizon[lost] != 0 {
			t.Errorf("it is claimed at %v, its token is %d and its horizon %d", at, d.m.Token(lost), d.horizon[lost])
		}
		for _, b := range all[1:] {
			if d.add(b, "x:a", -ms); len(d.rows[b]) != 1 {
				t.Errorf("bucket %d: %d messages are left", b, len(d.rows[b]))
			}
		}
	}
}
