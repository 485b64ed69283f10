package poller

import (
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// leaver is a shop whose only bucket is being handed over, in a node that is woken only when
// its machine asked for it. It notes how long after the start of the hand-over things are sent.
type leaver struct {
	*shop
	sent map[postdate.Route][]time.Duration
}

// newLeaver has a bucket that its last owner claimed up to this long after now. What is sent to
// x:mute is not answered.
func newLeaver(t *testing.T, claimed time.Duration) *leaver {
	l := &leaver{shop: newShop(t, 0, nil), sent: map[postdate.Route][]time.Duration{}}
	l.mute = func(c postdate.Route) bool { return c == "x:mute" }
	l.gain(bucket.Partition{Checkpoint: l.now.Wall - 1000, Claimed: bucket.UpTo(l.now.Wall.Add(claimed))})
	return l
}

// newStuckLeaver is one that has a message of x:mute with its broker when the hand-over begins.
func newStuckLeaver(t *testing.T) *leaver {
	l := newLeaver(t, 0)
	l.add(0, "x:mute", 1, -ms)
	l.sleep(3 * time.Second)
	l.leave()
	return l
}

// leave begins the hand-over.
func (l *leaver) leave() {
	l.begin, l.log = l.now, nil
	l.watch = l.note
	l.drain(0)
}

func (l *leaver) note(e Effect) {
	switch e := e.(type) {
	case Publish:
		l.sent[routeOf(e)] = append(l.sent[routeOf(e)], l.now.Mono-l.begin.Mono)
	case Claim:
		if l.claims() > 200 {
			l.t.Fatal("it claims again and again")
		}
		if c := e.Claims[0]; l.m.buckets[0].resting() && l.store.Records[0].Claimed.Before(c.To) {
			l.t.Errorf("a bucket that rests claims up to %v, beyond %v", c.To, l.store.Records[0].Claimed)
		}
	case fence.Drained:
		if !slices.Equal(e.Holds, holds(0)) {
			l.t.Errorf("%v are handed over", e.Holds)
		}
	}
}

func (l *leaver) claims() int {
	at, _ := l.begun(true, -1)
	return len(at)
}

// wantOnce expects that something was done once, after a given time.
func (l *leaver) wantOnce(what string, at []time.Duration, want time.Duration) {
	l.t.Helper()
	if !slices.Equal(at, []time.Duration{want}) {
		l.t.Errorf("%s after %v, want it once after %s", what, at, want)
	}
}

// Buckets that are not owned here any more are handed over immediately, and no others.
func TestHandOverOfWhatIsNotHere(t *testing.T) {
	b := newBench(t)
	b.owned(records("inbox:a", 1, b.now.Wall-20)) // with its broker
	notHere := []store.Hold{{Bucket: 5, Token: 1}, {Bucket: 0, Token: 9}}
	drained := of[fence.Drained](b.step(fence.Drain{Holds: slices.Concat(notHere, holds(0))}))
	if len(drained) != 1 || !slices.Equal(drained[0].Holds, notHere) {
		t.Errorf("handed over: %+v", drained)
	}
	if drained = of[fence.Drained](b.step(fence.Drain{Holds: holds(0)})); len(drained) > 0 || b.m.Token(0) != 1 {
		t.Errorf("handed over: %+v, and a message is with its broker", drained)
	}
}

// A bucket with nothing in flight is handed over as soon as its checkpoint is written, and gets
// no more work after that.
func TestHandOverOfAnIdleBucket(t *testing.T) {
	b := newBench(t)
	due := records("inbox:a", 1, b.now.Wall-20)
	batch := of[Publish](b.owned(due))[0].Batch
	b.step(Published{batch, []publisher.Result{confirmed}})
	b.after(10 * ms)
	b.step(fence.Tick{})
	b.step(Settled{Call: b.m.settleCall()})
	effects := b.step(fence.Drain{Holds: holds(0)})
	claims := of[Claim](effects)
	if len(claims) != 1 || claims[0].Claims[0].Checkpoint < due[0].AttemptTime || len(of[fence.Drained](effects)) > 0 {
		t.Fatalf("it begins with %+v", effects)
	}
	effects = b.answer(claims[0], nil)
	drained := of[fence.Drained](effects)
	if len(drained) != 1 || !slices.Equal(drained[0].Holds, holds(0)) || b.m.Token(0) != 0 || !slices.Contains(effects, Effect(Horizon{})) {
		t.Fatalf("it ends with %+v", effects)
	}
	if wake := b.m.Wake(b.now); wake != wakeMax {
		t.Errorf("a machine that owns nothing is to be woken after %s", wake)
	}
	if effects = b.step(Nudged{[]Nudge{{0, b.now.Wall}}}); len(effects) > 0 {
		t.Errorf("for a bucket that is gone: %+v", effects)
	}
}

// While a publish is not answered, its bucket rests for DrainStep and begins nothing. Then it
// works on for other channels until the answer comes.
func TestHandOverRestsAndWorksOn(t *testing.T) {
	l := newStuckLeaver(t)
	l.add(0, "x:well", 1, 30*ms)
	l.sleep(time.Second)
	l.wantOnce("what came while it rested was sent", l.sent["x:well"], l.m.c.DrainStep)
	l.sleep(time.Second)
	l.confirmAll()
	l.sleep(time.Second)
	if len(l.gone[0]) != 1 || l.gone[0][0] > 2*time.Second+2*l.m.c.SettleGather {
		t.Errorf("handed over after %v, and the answer was there after 2s", l.gone[0])
	}
}

// It rests again when the channels that it waited for have answered, whatever it began since.
func TestHandOverRestsAgain(t *testing.T) {
	l := newStuckLeaver(t)
	l.mute = func(c postdate.Route) bool { return c != "x:well" }
	l.sleep(time.Second)
	l.add(0, "x:also mute", 1, -ms)
	l.sleep(time.Second)
	if len(l.sent["x:also mute"]) != 1 {
		t.Fatal("nothing was begun")
	}
	l.reply(confirmed)
	l.add(0, "x:well", 1, -ms)
	l.sleep(time.Second)
	l.wantOnce("what came while it rested again was sent", l.sent["x:well"], 2*time.Second+l.m.c.DrainStep)
}

// While it works on, it is swept: messages without a nudge are found.
func TestHandOverSweepsWhileItWorksOn(t *testing.T) {
	l := newStuckLeaver(t)
	l.sleep(l.m.c.DrainStep + ms)
	l.put(0, "inbox:a", 1, -ms)
	l.sleep(l.m.c.SweepEvery)
	if len(l.sent["inbox:a"]) != 1 {
		t.Errorf("sent after %v", l.sent["inbox:a"])
	}
}

// The bucket waits for an answer until DrainMax is over. Then the message is in doubt for the
// next owner, and the bucket goes.
func TestHandOverAbandonsAtItsEnd(t *testing.T) {
	l := newStuckLeaver(t)
	l.sleep(2 * l.m.c.DrainMax)
	settled, _ := l.begun(false, -1)
	l.wantOnce("it was settled", settled, l.m.c.DrainMax)
	l.wantOnce("it was handed over", l.gone[0], l.m.c.DrainMax)
	if as := l.log[slices.IndexFunc(l.log, settles)].settle.Settlements[0]; as.How != store.SettleRetry || !as.PossibleDuplicate {
		t.Errorf("what was not answered is settled as %+v", as)
	}
}

// It waits even longer for the store, because only the store's answer shows what the next owner
// finds. Nothing is read meanwhile.
func TestHandOverWaitsForTheStore(t *testing.T) {
	l := newStuckLeaver(t)
	l.waits = has[Settle]
	goneBy := l.m.c.DrainMax + 2*l.m.c.DrainStep
	for _, left := range []int{1, 0} { // milliseconds
		l.sleep(goneBy - time.Duration(left)*ms - (l.now.Mono - l.begin.Mono))
		claims := l.claims()
		l.nudge(0, l.store.Records[0].Claimed.Time.Sub(l.now.Wall)-ms)
		if l.claims() != claims+left {
			t.Errorf("%d ms before its end it claims %d times for what was late, want %d", left, l.claims()-claims, left)
		}
	}
	l.sleep(time.Second)
	if len(l.gone[0]) > 0 || len(l.calls) != 1 {
		t.Fatalf("handed over after %v with %d settlements under way", l.gone[0], len(l.calls))
	}
	l.answer(settles)
	l.wantOnce("it was handed over", l.gone[0], goneBy+time.Second)
}

// If a node's lease runs out during a hand-over, the node gives the bucket up when its time is
// over, even if it has messages in hand that it may not publish.
func TestHandOverWithoutALease(t *testing.T) {
	l := newLeaver(t, 10*time.Second)
	goneBy := l.m.c.DrainMax + 2*l.m.c.DrainStep
	l.m.leaseUntil = l.now.Mono + goneBy - 100*ms + l.m.c.LeaseMargin
	l.leave()
	l.add(0, "x:well", 1, goneBy-90*ms) // is claimed, and may not be sent any more
	l.sleep(2 * goneBy)
	l.wantOnce("it was handed over", l.gone[0], goneBy)
	if hand := l.m.View(l.now).Hand; hand != 0 || len(l.sent) > 0 {
		t.Errorf("%d messages in hand, sent: %v", hand, l.sent)
	}
}

// If an owner with a clock that was ahead claimed more than is due soon, those messages go out
// before the bucket does, each at its time, and the store is left alone meanwhile.
func TestHandOverOfWhatIsClaimedFarAhead(t *testing.T) {
	l := newLeaver(t, 3*time.Second)
	l.leave()
	l.add(0, "x:well", 1, time.Second)
	l.sleep(4 * time.Second)
	l.wantOnce("the message was sent", l.sent["x:well"], 1_001*ms)
	l.wantOnce("the bucket was handed over", l.gone[0], 3*time.Second+ms-l.m.c.Ahead)
	if l.claims() > 20 {
		t.Errorf("%d claims", l.claims())
	}
}

// A message that is due right behind what is claimed is not asked for repeatedly.
func TestHandOverWithAMessageRightBehindTheClaim(t *testing.T) {
	l := newLeaver(t, 300*ms)
	l.add(0, "x:mute", 1, -ms)
	l.add(0, "x:well", 1, l.store.Records[0].Claimed.Time.Sub(l.now.Wall))
	l.leave()
	l.sleep(l.m.c.DrainStep - ms)
	if l.claims() > 10 {
		t.Errorf("%d claims", l.claims())
	}
}

// What comes once an answer is no longer waited for is left to the next owner.
func TestHandOverBeginsNothingAtItsEnd(t *testing.T) {
	l := newStuckLeaver(t)
	l.sleep(l.m.c.DrainMax - ms)
	l.after(ms)
	l.add(0, "x:well", 1, -ms)
	l.sleep(time.Second)
	if len(l.sent) > 0 {
		t.Errorf("sent after %v", l.sent)
	}
}

// A claim under way may still be written, so its bucket goes only when the claim is answered. A
// bucket that is lost meanwhile is not handed over.
func TestHandOverWhileAClaimIsUnderWay(t *testing.T) {
	for _, lost := range []bool{false, true} {
		b := newBench(t)
		claims := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{{
			Token: 1, Owner: "me", Checkpoint: b.now.Wall - 500, Claimed: bucket.UpTo(b.now.Wall - 500),
		}}}))
		effects := b.step(fence.Drain{Holds: holds(0)})
		b.after(10 * ms)
		effects = append(effects, b.step(fence.Tick{})...)
		if len(of[fence.Drained](effects)) > 0 {
			t.Fatalf("handed over before the claim is answered: %+v", effects)
		}
		if lost {
			b.step(fence.Lost{Holds: holds(0)})
		}
		r := seen(claims[0].Claims[0])
		r.To = bucket.Position{} // nothing is due, and nothing was written
		effects = b.step(Claimed{claims[0].Call, []store.ClaimResult{r}})
		if drained := of[fence.Drained](effects); len(drained) > 0 == lost {
			t.Errorf("when the claim is answered, lost %t: %+v", lost, effects)
		}
	}
}

// What waits behind a limit is parked when its bucket is to be handed over, and no more of it
// goes out.
func TestHandOverParksWhatALimitHolds(t *testing.T) {
	l := newLeaver(t, 0)
	l.limits(store.ChannelSettings{Route: "x:tight", MaxPerSecond: 40})
	l.add(0, "x:tight", 10, -ms)
	if l.m.View(l.now).Hand == 0 || len(l.unanswered) > 0 {
		t.Fatalf("%d are in hand, and %d with the broker: this shows nothing", l.m.View(l.now).Hand, l.flying())
	}
	l.leave()
	l.sleep(time.Second)
	if len(l.sent) > 0 || len(l.gone[0]) != 1 || l.gone[0][0] > 2*l.m.c.SettleGather {
		t.Errorf("sent after %v, and handed over after %v", l.sent, l.gone[0])
	}
}

// While a bucket rests, nothing parked in it comes back. While it works on, only messages of
// channels that it does not wait for do.
func TestHandOverUnparksForOthers(t *testing.T) {
	b := newBench(t)
	due := append(records("inbox:mute", 1, b.now.Wall-20), records("inbox:well", 1, b.now.Wall-20)...)
	for _, p := range of[Publish](b.owned(due)) {
		if p.Channel == "inbox:well" {
			b.step(Published{p.Batch, []publisher.Result{confirmed}})
		}
	}
	b.after(10 * ms)
	b.step(fence.Tick{})
	b.step(Settled{Call: b.m.settleCall()})
	b.step(fence.Drain{Holds: holds(0)})
	effects := b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 0, Route: "inbox:mute"}, {Bucket: 0, Route: "inbox:well"}}})
	unparked := map[postdate.Route]time.Duration{}
	for begin := b.now.Mono; b.now.Mono < begin+3*time.Second; b.after(10 * ms) {
		for _, u := range of[Unpark](effects) {
			if _, again := unparked[u.Unpark.Route]; !again {
				unparked[u.Unpark.Route] = b.now.Mono - begin
			}
			b.step(Unparked{Unpark: u.Unpark})
		}
		effects = b.step(fence.Tick{})
		b.answerAll(effects)
	}
	if after, done := unparked["inbox:well"]; len(unparked) != 1 || !done || after < b.m.c.DrainStep {
		t.Errorf("unparked after %v", unparked)
	}
}
