package poller

import (
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// onlySettlement is the one settlement among effects.
func (b *bench) onlySettlement(effects []Effect) store.Settlement {
	b.t.Helper()
	s := of[Settle](effects)
	if len(s) != 1 || len(s[0].Settlements) != 1 {
		b.t.Fatalf("settled as %+v, want one settlement", s)
	}
	return s[0].Settlements[0]
}

// A message that was refused or has an unknown outcome is tried again: after the back-off or
// when its receiver says, but not much later than the longest back-off, and not after it
// expires. It fails if another try is no use, or enough tries were made.
func TestRetry(t *testing.T) {
	policy := postdate.RetryPolicy{MaxAttempts: 4, MinBackoff: 2 * time.Second, MaxBackoff: 10 * time.Second, MaxParked: time.Hour}
	refused := publisher.Result{Outcome: publisher.Refused, Reason: "no"}
	hint := func(after time.Duration) publisher.Result {
		return publisher.Result{Outcome: publisher.Refused, Reason: "no", RetryAfter: after}
	}
	for name, test := range map[string]struct {
		attempts int           // before
		expires  time.Duration // 0: never; it is answered after a second
		result   publisher.Result
		after    time.Duration // 0: it fails
	}{
		"the first time":                      {0, 0, refused, 2 * time.Second},
		"the second time":                     {1, 0, refused, 4 * time.Second},
		"the last time but one":               {2, 0, refused, 8 * time.Second},
		"the last time":                       {3, 0, refused, 0},
		"after the last time":                 {4, 0, refused, 0},
		"for good":                            {0, 0, publisher.Result{Outcome: publisher.Refused, Reason: "no", Permanent: true}, 0},
		"not known":                           {0, 0, publisher.Result{Outcome: publisher.Unknown, Reason: "no"}, 2 * time.Second},
		"not known, the last time":            {3, 0, publisher.Result{Outcome: publisher.Unknown, Reason: "no"}, 0},
		"a hint, earlier than the back-off":   {0, 0, hint(time.Second), 2 * time.Second},
		"a hint, later than the back-off":     {0, 0, hint(5 * time.Second), 5 * time.Second},
		"a hint, later than any back-off":     {0, 0, hint(time.Hour), 10 * time.Second},
		"it expires later":                    {0, 4 * time.Second, refused, 2 * time.Second},
		"it expires before":                   {0, 2500 * ms, refused, 1500 * ms},
		"it expires as the answer comes":      {0, time.Second, refused, ms},
		"it expired before the answer came":   {0, 100 * ms, refused, ms},
		"it expires in the next millisecond":  {0, 1001 * ms, refused, ms},
		"it expires in the one that follows.": {0, 1002 * ms, refused, 2 * ms},
	} {
		b := newSleeper(t, func(c *Config) { c.Retry, c.Node = policy, "node-a" })
		rec := b.due(-10 * ms)
		rec.Attempts = test.attempts
		if test.expires != 0 {
			rec.ExpiresAt = b.now.Wall.Add(test.expires)
		}
		published := b.read(rec)
		b.after(time.Second)
		s := b.onlySettlement(b.outcome(published, test.result))
		want := store.Settlement{
			Key: rec.Key, ExecutionTime: rec.ExecutionTime, Version: rec.Version, Token: 1, How: store.SettleFailed, At: b.now.Wall, Attempts: test.attempts + 1,
			Reason: "no", PossibleDuplicate: test.result.Outcome == publisher.Unknown,
			Outcome: postdate.AttemptRefused, Node: "node-a",
		}
		if test.result.Outcome == publisher.Unknown {
			want.Outcome = postdate.AttemptUnknown
		}
		if test.after != 0 {
			want.How, want.AttemptTime = store.SettleRetry, b.now.Wall.Add(test.after)
		}
		if s != want {
			t.Errorf("%s:\nsettled as %+v\nwant       %+v", name, s, want)
		}
	}
}

// A back-off of less than a millisecond is one millisecond: a retry is never due at the time
// of the attempt before.
func TestTheLeastBackoff(t *testing.T) {
	b := newSleeper(t, func(c *Config) { c.Retry.MinBackoff, c.Retry.MaxBackoff = 1, 1 })
	b.m.random = func() float64 { return 0.99 }
	s := b.onlySettlement(b.outcome(b.read(b.due(-10*ms)), publisher.Result{Outcome: publisher.Refused}))
	if s.AttemptTime != b.now.Wall+1 {
		t.Errorf("tried again after %s", s.AttemptTime.Sub(b.now.Wall))
	}
}

// A broker's words are cut if they are too long, but not within a character. Bytes that are no
// character are left out.
func TestAReasonIsCut(t *testing.T) {
	most := strings.Repeat("x", postdate.LastErrorBytesMax)
	for said, want := range map[string]string{
		"": "", "no route": "no route", most: most, most + "y": most, most[1:] + "ü": most[1:], most[2:] + "ü": most[2:] + "ü", "no\xff route": "no route",
	} {
		b := newSleeper(t, nil)
		s := b.onlySettlement(b.outcome(b.read(b.due(-10*ms)), publisher.Result{Outcome: publisher.Refused, Reason: said}))
		if s.Reason != want {
			t.Errorf("of %d bytes %d are kept: %q", len(said), len(s.Reason), s.Reason[max(len(s.Reason)-8, 0):])
		}
	}
}

// The first settlement is written immediately. Those that follow soon gather, for SettleGather
// or until there are a quarter of what one call may bring.
func TestSettlementsGather(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 5 * ms, 2: 5 * ms, 3: 0, 5: 0} {
		b := newSleeper(t, func(c *Config) { c.SettleMax = 12 })
		b.written(b.outcome(b.read(b.due(-10*ms)), confirmed))
		effects := b.outcome(b.read(records("inbox:b", n, b.now.Wall-10)...), confirmed)
		for d := time.Duration(0); d <= 5*ms; d += ms {
			if s := of[Settle](effects); len(s) > 0 {
				if d != want || len(s[0].Settlements) != n {
					t.Errorf("%d of %d settlements are written after %s, want it after %s", len(s[0].Settlements), n, d, want)
				}
				break
			}
			if d == 5*ms {
				t.Errorf("%d settlements are not written after %s", n, d)
			}
			b.after(ms)
			effects = b.step(fence.Tick{})
		}
	}
}

// While settlements are under way, others follow only after some time, in which they gather.
func TestSettlementsGatherBehindACall(t *testing.T) {
	b := newSleeper(t, nil)
	b.outcome(b.read(b.due(-10*ms)), confirmed)
	b.after(50 * ms)
	effects := b.outcome(b.read(records("inbox:b", 1, b.now.Wall-10)...), confirmed)
	if len(of[Settle](effects)) > 0 {
		t.Error("settled beside a call that may be answered yet")
	}
	b.after(50 * ms)
	if s := b.onlySettlement(b.step(fence.Tick{})); s.How != store.SettleDelivered {
		t.Errorf("settled as %+v", s)
	}
}

// A settled message is dropped, and causes nothing more: no scan, no unpark, and no memory.
func TestWhatIsDeliveredIsOver(t *testing.T) {
	b := newSleeper(t, nil)
	effects := b.written(b.outcome(b.read(b.due(-10*ms)), confirmed))
	for range 10 {
		b.after(100 * ms)
		effects = append(effects, b.step(fence.Tick{})...)
	}
	if len(effects) > 0 {
		t.Errorf("after it is settled: %+v", effects)
	}
	if v := b.m.View(b.now); v.Hand != 0 || len(b.m.settlings) != 0 {
		t.Errorf("%d messages are in hand, and %d calls are remembered", v.Hand, len(b.m.settlings))
	}
}

// What is refused or parked is read again when its time comes, if its bucket is still here.
func TestWhatIsSettledForLaterIsReadThen(t *testing.T) {
	for _, outcome := range []publisher.Outcome{publisher.Refused, publisher.Down} {
		for _, lost := range []bool{false, true} {
			b := newSleeper(t, func(c *Config) { c.Retry.MinBackoff, c.Retry.MaxParked = 500*ms, 500*ms })
			effects := b.outcome(b.read(b.due(-10*ms)), publisher.Result{Outcome: outcome})
			if lost { // and has come back
				b.step(fence.Lost{Holds: holds(0)})
				b.gain(0, func(p *bucket.Partition) { p.Token = 2 })
			}
			b.written(effects)
			var claims []Claim
			for range 48 {
				b.after(10 * ms)
				effects = b.step(fence.Tick{})
				claims = append(claims, of[Claim](effects)...)
				if lost && len(of[Unpark](effects)) > 0 {
					t.Errorf("outcome %d: what another owner has parked is unparked", outcome)
				}
			}
			if want := 1; lost && len(claims) != 0 || !lost && len(claims) != want {
				t.Errorf("outcome %d, lost %t: claimed as %+v", outcome, lost, claims)
			}
		}
	}
}

// A delivery that is confirmed after it was given up is written with the mark, and holds up
// nothing else in the same write.
func TestADeliveryThatWasGivenUp(t *testing.T) {
	b := newSleeper(t, func(c *Config) { c.DrainMax = 700 * ms })
	b.gain(1, nil)
	late := b.read(b.due(-10 * ms))
	b.step(fence.Drain{Holds: holds(0)})
	b.after(500 * ms)
	b.step(fence.Tick{})
	rec := records("inbox:b", 1, b.now.Wall-10)[0]
	rec.Bucket = 1
	other := b.read(rec)
	b.after(200 * ms)
	gaveUp := b.step(fence.Tick{})
	if s := b.onlySettlement(gaveUp); s.How != store.SettleRetry || !s.PossibleDuplicate {
		t.Fatalf("given up as %+v", s)
	}
	confirmed := confirmed
	b.outcome(late, confirmed)
	b.outcome(other, confirmed)
	b.after(10 * ms)
	settles := of[Settle](b.written(gaveUp))
	if len(settles) != 1 || len(settles[0].Settlements) != 2 {
		t.Fatalf("settled as %+v", settles)
	}
	if s := settles[0].Settlements[0]; s.How != store.SettleDelivered || !s.PossibleDuplicate || s.Key.Bucket != 0 || s.Attempts != 1 {
		t.Errorf("the late delivery is settled as %+v", s)
	}
	b.step(Settled{Call: settles[0].Call})
	if v := b.m.View(b.now); v.Hand != 0 {
		t.Errorf("%d messages stay in hand", v.Hand)
	}
}

// failing is a sleeper with three buckets. It returns a settle of two of them that is to fail,
// and the publishes of each channel.
func failing(t *testing.T) (b *bench, fails Settle, other map[postdate.Route][]Effect) {
	b, other = newSleeper(t, nil), map[postdate.Route][]Effect{}
	b.gain(1, nil)
	b.gain(2, nil)
	for channel, number := range map[postdate.Route]int{"inbox:a": 0, "inbox:b": 0, "inbox:c": 1, "inbox:d": 0, "inbox:e": 2} {
		rec := records(channel, 1, b.now.Wall-10)[0]
		rec.Bucket = number
		other[channel] = b.read(rec)
	}
	first := b.outcome(other["inbox:a"], delivered)
	b.outcome(other["inbox:b"], delivered)
	b.outcome(other["inbox:c"], delivered)
	b.after(10 * ms)
	settles := of[Settle](b.written(first))
	if len(settles) != 1 || len(settles[0].Settlements) != 2 {
		t.Fatalf("settled as %+v", settles)
	}
	return b, settles[0], other
}

var delivered = confirmed

// If a settle fails, its buckets try again separately, each with what came meanwhile, and hold
// back nothing of the others. Once they succeed, all share calls again.
func TestASettleThatFails(t *testing.T) {
	b, fails, other := failing(t)
	if effects := b.step(Settled{fails.Call, errStore}); len(of[Settle](effects)) > 0 {
		t.Errorf("tried again at once: %+v", effects)
	}
	b.after(50 * ms)
	b.outcome(other["inbox:d"], delivered)
	b.after(50 * ms)
	again := of[Settle](b.step(fence.Tick{}))
	if len(again) != 2 || len(again[0].Settlements) != 2 || len(again[1].Settlements) != 1 || again[1].Settlements[0].Key.Bucket != 1 {
		t.Fatalf("tried again as %+v", again)
	}
	b.step(Settled{again[0].Call, errStore})
	b.step(Settled{Call: again[1].Call})
	if s := b.onlySettlement(b.outcome(other["inbox:e"], delivered)); s.Key.Bucket != 2 {
		t.Errorf("beside one that fails is settled %+v", s)
	}
	b.after(200 * ms)
	again = of[Settle](b.step(fence.Tick{}))
	if len(again) != 1 || len(again[0].Settlements) != 2 {
		t.Fatalf("tried again as %+v", again)
	}
	b.step(Settled{Call: again[0].Call})
	claims := of[Claim](b.step(Nudged{[]Nudge{{0, b.now.Wall - 1}, {1, b.now.Wall - 1}, {2, b.now.Wall - 1}}}))
	if len(claims) != 1 || len(claims[0].Claims) != 3 {
		t.Errorf("when all is well again it is claimed as %+v", claims)
	}
	if v := b.m.View(b.now); v.Hand != 1 { // that of bucket 2 is under way
		t.Errorf("%d messages are in hand", v.Hand)
	}
}

// A delivery in a lost bucket is still written. If that fails, it is written again after a
// pause, which grows, whether others failed with it or not.
func TestASettleOfALostBucketThatFails(t *testing.T) {
	for _, lost := range [][]store.Hold{holds(0), holds(0, 1)} {
		b, fails, _ := failing(t)
		b.step(fence.Lost{Holds: lost})
		for i := range 3 {
			effects, pause := b.step(Settled{fails.Call, errStore}), b.m.c.RetryAfter<<i
			for d := time.Duration(0); d < pause; d += 10 * ms {
				if len(of[Settle](effects)) > 0 {
					t.Fatalf("%d of 2 are lost: written again after %s, want %s", len(lost), d, pause)
				}
				b.after(10 * ms)
				effects = b.step(fence.Tick{})
			}
			settles := of[Settle](effects)
			if len(settles) == 0 || settles[0].Settlements[0].Key.Bucket != 0 || settles[0].Settlements[0].How != store.SettleDelivered {
				t.Fatalf("%d of 2 are lost: settled as %+v", len(lost), settles)
			}
			fails = settles[0]
			for _, s := range settles[1:] {
				b.step(Settled{Call: s.Call})
			}
		}
		b.step(Settled{Call: fails.Call})
		if v := b.m.View(b.now); v.Hand != 2 { // those that the broker has
			t.Errorf("%d of 2 are lost: %d messages are in hand", len(lost), v.Hand)
		}
	}
}

// A message that was looked at while parked does not count as on its way: a channel that is
// down is still tried with one message at a time.
func TestLooksAreNoProbes(t *testing.T) {
	b := newSleeper(t, nil)
	b.gain(1, nil)
	b.written(b.outcome(b.read(b.due(-10*ms)), down))
	for number := range 2 {
		rec := records("inbox:a", 3, b.now.Wall-10)[number+1]
		rec.Bucket, rec.Parked = number, true
		effects := b.read(rec)
		b.after(10 * ms)
		b.written(append(effects, b.step(fence.Tick{})...))
	}
	var unparks []time.Duration
	for range 60 {
		b.after(10 * ms)
		for range of[Unpark](b.step(fence.Tick{})) {
			unparks = append(unparks, b.now.Mono)
		}
	}
	if len(unparks) == 0 || len(unparks) > 1 && unparks[1] < unparks[0]+callSlow { // another one where it hangs
		t.Errorf("unparks begin at %s for a channel that is down, want one each %s", unparks, callSlow)
	}
}

// A message of a lost bucket that is settled together with others does not keep those in hand.
func TestSettledBesideALostBucket(t *testing.T) {
	s := newMuteShop(t, 2, func(c *Config) { c.BatchMax = 1 })
	s.waits = func(e Effect) bool { return has[Settle](e) }
	for _, b := range []int{1, 0, 1} { // the first is settled alone, the others together
		s.add(b, "x:a", 1, -ms)
		s.run(200 * ms)
	}
	s.replyAll("x:a", confirmed)
	s.run(2 * callSlow)
	if n := len(s.calls); n != 2 || len(s.calls[1].settle.Settlements) != 2 || s.calls[1].settle.Settlements[0].Key.Bucket != 0 {
		t.Fatalf("%d calls, %+v: this shows nothing", n, s.calls)
	}
	s.lose(0)
	s.answerAll()
	if v := s.m.View(s.now); v.Hand != 0 {
		t.Errorf("%d messages are in hand once all are settled", v.Hand)
	}
}
