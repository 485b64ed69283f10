package poller

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// own gives the machine a bucket that is claimed up to now.
func (b *bench) own(number int, token uint64) []Effect {
	return b.step(fence.Gained{Partitions: []bucket.Partition{{
		Bucket: number, Token: token, Owner: "me", Lease: "me", Checkpoint: b.now.Wall - 1_000, Claimed: bucket.UpTo(b.now.Wall - 500),
	}}})
}

// in puts records into another bucket.
func in(number int, rs []postdate.Record) []postdate.Record {
	for i := range rs {
		rs[i].Bucket = number
	}
	return rs
}

// A machine asks to be woken when there is something to do: each message goes out at its time,
// in whatever order they were found, and claims begin as early as they should.
func TestEachAtItsTime(t *testing.T) {
	s := newShop(t, 4, nil)
	s.sleep(3 * time.Second)
	random := rand.New(rand.NewPCG(1, 1))
	first, claimed := postdate.Far, postdate.Far
	for i := range 50 {
		at := s.now.Wall + 100 + postdate.Time(random.IntN(100))
		first = min(first, at)
		s.add(i%4, "x:a", 1, at.Sub(s.now.Wall))
	}
	s.watch = func(e Effect) {
		switch e := e.(type) {
		case Claim:
			claimed = min(claimed, s.now.Wall)
		case Publish:
			for _, it := range e.Batch {
				if late := s.now.Wall.Sub(it.Delivery.Message.ExecutionTime); late != ms {
					t.Errorf("%s goes out %s after its time, want it 1ms after", it.Delivery.Message.ScheduleID, late)
				}
			}
		}
	}
	s.sleep(first.Sub(s.now.Wall) - s.m.c.Ahead + s.m.c.Gather/2) // and no earlier than they are to
	s.sleep(500 * ms)
	if want := first.Add(s.m.c.Gather - s.m.c.Ahead); claimed != want || s.arrived["x:a"] != 50 {
		t.Errorf("the first claim is made at %d, want it at %d; %d of 50 messages arrived", claimed, want, s.arrived["x:a"])
	}
}

// A bucket in which nothing happens is swept every SweepEvery, and those that fall due soon
// after each other are swept together.
func TestSweepsComeInTime(t *testing.T) {
	s := newShop(t, 1, nil)
	s.sleep(s.m.c.SweepEvery / 4)
	s.gain(bucket.Partition{Bucket: 1})
	var at []time.Duration
	s.watch = func(e Effect) {
		if c, is := e.(Claim); is {
			at = append(at, s.now.Wall.Sub(s.begin.Wall))
			if len(c.Claims) != 2 || c.Claims[0].Scan.After != (bucket.Position{}) || c.Claims[1].Scan.After != (bucket.Position{}) {
				t.Errorf("after %s it reads %+v, want a sweep of two buckets", at[len(at)-1], c.Claims)
			}
		}
	}
	every := s.m.c.SweepEvery
	s.sleep(3 * every)
	if !slices.Equal(at, []time.Duration{every, 2 * every, 3 * every}) {
		t.Errorf("swept after %v, want it every %s", at, every)
	}
}

// A message that turns up behind what was read is looked for immediately, each time.
func TestWhatIsLateIsReadAtOnce(t *testing.T) {
	b := newBench(t)
	b.owned(nil)
	for i := range 7 {
		b.after(ms)
		late := b.now.Wall - 1_000
		claims := of[Claim](b.step(Nudged{[]Nudge{{0, late}}}))
		if len(claims) != 1 || bucket.UpTo(late).Before(claims[0].Claims[0].Scan.After) {
			t.Fatalf("nudge %d: %+v", i+1, claims)
		}
		b.answer(claims[0], nil)
	}
}

// The checkpoint stays below what was sent and is not settled, and below what is not yet
// claimed of a channel that is behind. When all is settled it follows.
func TestTheCheckpointFollowsWhatIsSettled(t *testing.T) {
	s := newShop(t, 1, nil)
	s.mute = every
	sent := map[string]postdate.Time{}
	s.watch = func(e Effect) {
		switch e := e.(type) {
		case Publish:
			for _, it := range e.Batch {
				sent[it.Delivery.Message.ScheduleID] = it.Delivery.Message.ExecutionTime
			}
		case Settle:
			for _, as := range e.Settlements {
				delete(sent, as.Key.ScheduleID)
			}
		case Claim:
			c := e.Claims[0]
			for id, at := range sent {
				if c.Checkpoint >= at {
					t.Errorf("the checkpoint is %d, and %s with the time %d is not settled", c.Checkpoint, id, at)
				}
			}
			for name, to := range c.Behind {
				if c.Checkpoint >= to.Time || c.Checkpoint < 0 {
					t.Errorf("the checkpoint is %d, and %s is claimed up to %d", c.Checkpoint, name, to.Time)
				}
			}
		}
	}
	for range 20 { // one is answered while the next ones are due
		s.add(0, "x:a", 3, 30*ms)
		s.sleep(50 * ms)
		if len(s.unanswered) > 4 {
			s.reply(confirmed)
		}
	}
	last := s.now.Wall
	for len(s.unanswered) > 0 {
		s.confirmAll()
		s.sleep(50 * ms)
	}
	s.sleep(3 * time.Second)
	s.nudge(0, 0)
	if got := s.store.Records[0].Checkpoint; len(sent) > 0 || got < last-100 {
		t.Errorf("%d messages are not settled; the checkpoint is %s behind the last one", len(sent), last.Sub(got))
	}
}

// A message that a scan had to leave out holds the checkpoint back until a sweep has passed
// without it, however many pages that takes, even if the bucket is handed over.
func TestTheCheckpointWaitsForWhatIsLeftOut(t *testing.T) {
	b := newBench(t)
	leftOut := bucket.Position{Time: b.now.Wall - 10, Tenant: postdate.DefaultTenant, ScheduleID: "left-out"}
	claims := of[Claim](b.own(0, 1))
	// next answers the claim that is under way, and gives the next one.
	next := func(answer store.ClaimResult) store.Claim {
		t.Helper()
		effects := b.step(Claimed{b.m.claimCall(), []store.ClaimResult{answer}})
		for range 100 {
			if claims = of[Claim](effects); len(claims) == 1 {
				return claims[0].Claims[0]
			}
			b.after(max(b.m.Wake(b.now), ms))
			effects = b.step(fence.Tick{})
		}
		t.Fatal("there is no next claim")
		return store.Claim{}
	}
	page := seen(claims[0].Claims[0])
	page.LeftOut = leftOut
	for i := range 4 {
		c := next(page)
		if c.Checkpoint >= leftOut.Time {
			t.Errorf("claim %d: the checkpoint is %d, and the message that was left out is due at %d", i, c.Checkpoint, leftOut.Time)
		}
		page = seen(c)
		switch i {
		case 0: // the first page of a sweep finds it, and says so
			page.LeftOut, page.Complete, page.Ended = leftOut, false, bucket.UpTo(leftOut.Time)
		case 2: // the first page of the next one comes to it, and it is not left out
			page.Complete, page.Ended = false, bucket.UpTo(leftOut.Time)
		}
	}
	if c := next(page); c.Checkpoint < leftOut.Time {
		t.Errorf("the checkpoint is %d after a sweep that found nothing left out; it was due at %d", c.Checkpoint, leftOut.Time)
	}
	page.LeftOut = bucket.Position{Time: b.now.Wall - 5}
	b.step(Claimed{b.m.claimCall(), []store.ClaimResult{page}})
	var released []fence.Drained
	for effects := b.step(fence.Drain{Holds: holds(0)}); len(released) == 0; effects = b.step(fence.Tick{}) {
		for _, c := range of[Claim](effects) {
			if c.Claims[0].Checkpoint >= page.LeftOut.Time {
				t.Errorf("it is handed over with the checkpoint %d, and a message that is left out is due at %d", c.Claims[0].Checkpoint, page.LeftOut.Time)
			}
			effects = append(effects, b.step(Claimed{b.m.claimCall(), []store.ClaimResult{seen(c.Claims[0])}})...)
		}
		released = of[fence.Drained](effects)
		b.after(50 * ms)
		if b.now.Mono > 2*time.Hour {
			t.Fatal("it is not handed over")
		}
	}
}

// What is behind in a bucket that is taken over holds its checkpoint back until it is read.
func TestTheCheckpointWaitsForWhatIsBehind(t *testing.T) {
	b := newBench(t)
	at := b.now.Wall - 700
	call := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{{
		Token: 1, Owner: "me", Checkpoint: b.now.Wall - 1_000, Claimed: bucket.UpTo(b.now.Wall - 500),
		Behind: map[postdate.Route]bucket.Position{"inbox:a": {Time: at, Tenant: postdate.DefaultTenant, ScheduleID: "m"}},
	}}}))[0]
	if all := b.m.Channels(); len(all) != 1 || all[0].Route != "inbox:a" {
		t.Errorf("of channels it knows %+v, and one of them is behind", all)
	}
	calls := of[Claim](b.answer(call, nil))
	if len(calls) != 1 || calls[0].Claims[0].Only != "inbox:a" || calls[0].Claims[0].Checkpoint >= at {
		t.Errorf("it claims %+v, and inbox:a is claimed up to %d", calls, at)
	}
}

// From LeaseMargin before the lease's end on, nothing is published or claimed. A renewal in
// time changes nothing; after one that comes when the lease has ended, all is claimed anew.
func TestTheEndOfALease(t *testing.T) {
	margin := DefaultConfig().LeaseMargin
	for _, test := range []struct {
		name    string
		lasts   time.Duration // from when the message is due
		sent    bool          // then
		renewed time.Duration // after that
		lapsed  bool
	}{
		{name: "it lasts", lasts: margin + 1, sent: true},
		{name: "its margin begins", lasts: margin, renewed: margin - 1},
		{name: "it ends", lasts: margin, renewed: margin, lapsed: true},
		{name: "it has ended", lasts: margin, renewed: margin + 1, lapsed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := &bench{t: t, m: newMachine(DefaultConfig()), now: postdate.Now{Wall: 1_000_000, Mono: time.Minute}}
			const ahead = 30 * ms
			b.step(fence.LeaseUntil{Mono: b.now.Mono + ahead + test.lasts, Read: b.now})
			due := records("inbox:a", 1, b.now.Wall.Add(ahead)-1)
			b.owned(due)
			b.after(ahead)
			effects := b.step(Nudged{[]Nudge{{0, b.now.Wall}}})
			if sent, claimed := len(of[Publish](effects)) > 0, len(of[Claim](effects)) > 0; sent != test.sent || claimed != test.sent {
				t.Fatalf("published: %t, claimed: %t, want %t", sent, claimed, test.sent)
			}
			if test.sent {
				return
			}
			b.after(test.renewed)
			effects = b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
			if sent := len(of[Publish](effects)) > 0; sent == test.lapsed {
				t.Fatalf("published at the renewal: %t", sent)
			}
			c := of[Claim](effects)[0]
			if !test.lapsed {
				return
			}
			if at := due[0].AttemptTime; c.Claims[0].Checkpoint >= at || c.Claims[0].Scan.After.Time > at {
				t.Errorf("it claims %+v, and what it had is due at %d", c, at)
			}
			if len(of[Publish](b.answer(c, due))) != 1 {
				t.Error("it is not published when it is claimed anew")
			}
		})
	}
}

// A wall clock that is set by more than JumpMax ends the lease. Until a renewal that began then
// or later, times continue from before.
func TestAClockThatIsSet(t *testing.T) {
	most := DefaultConfig().JumpMax
	for _, by := range []time.Duration{most, -most, most + ms, -most - ms, 48 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			b := newBench(t)
			published := of[Publish](b.owned(records("inbox:a", 1, b.now.Wall-200)))[0]
			b.after(10 * ms)
			good := b.now
			b.now.Wall = b.now.Wall.Add(by)
			if by <= most && by >= -most {
				good = b.now
			}
			sets := of[fence.ClockSet](b.step(fence.Tick{}))
			if is := good != b.now; is != (len(sets) == 1) || is && sets[0].By != by {
				t.Fatalf("the clock is set: %+v", sets)
			}
			effects := b.step(Published{published.Batch, []publisher.Result{{Outcome: publisher.Refused}}})
			settles := of[Settle](append(effects, b.step(fence.Tick{})...))
			if want := good.Wall.Add(postdate.RetryDefault.Backoff(1, 0)); len(settles) != 1 || settles[0].Settlements[0].AttemptTime != want {
				t.Errorf("it is settled as %+v, want another attempt at %d", settles, want)
			}
			effects = b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
			effects = append(effects, b.step(Nudged{[]Nudge{{0, b.now.Wall}}})...)
			if len(of[Claim](effects)) == 0 {
				t.Error("nothing is claimed after a renewal that began when the clock was seen to be set")
			}
		})
	}
}

// Only buckets held under the given token are lost, and of a list all of them. They get no more
// work, and nudges for them do not matter.
func TestLosesWhatItHolds(t *testing.T) {
	b := newBench(t)
	b.answerAll(b.own(0, 5))
	b.answerAll(b.own(1, 1))
	claims := of[Claim](b.step(Nudged{[]Nudge{{1, b.now.Wall + 10}}}))
	b.answer(claims[0], in(1, records("inbox:a", 1, b.now.Wall+10)))
	effects := b.step(fence.Lost{Holds: []store.Hold{{Bucket: 7, Token: 1}, {Bucket: 0, Token: 4}, {Bucket: 1, Token: 1}}})
	if b.m.Token(0) != 5 || b.m.Token(1) != 0 || !slices.Equal(of[Horizon](effects), []Horizon{{Bucket: 1}}) {
		t.Errorf("the tokens are %d and %d: %+v", b.m.Token(0), b.m.Token(1), effects)
	}
	if hand, wake := b.m.View(b.now).Hand, b.m.Wake(b.now); hand != 0 || wake <= 11*ms {
		t.Errorf("%d messages are in hand, and it is to be woken after %s", hand, wake)
	}
	b.after(20 * ms)
	if effects = b.step(fence.Tick{}); len(of[Publish](effects)) > 0 {
		t.Errorf("%+v", effects)
	}
}

// A bucket that comes back under another token begins anew: what was claimed under the first
// one is not published.
func TestABucketThatIsTakenAnew(t *testing.T) {
	b := newBench(t)
	due := records("inbox:a", 1, b.now.Wall+10)
	b.answer(of[Claim](b.own(0, 1))[0], due)
	claims := of[Claim](b.own(0, 2))
	b.after(20 * ms)
	if effects := b.step(fence.Tick{}); len(of[Publish](effects)) > 0 || b.m.View(b.now).Hand != 0 {
		t.Errorf("%+v", effects)
	}
	if effects := b.answer(claims[0], due); len(of[Publish](effects)) != 1 {
		t.Errorf("when it is claimed anew: %+v", effects)
	}
}

// What is with a broker when its bucket is lost is settled if it is confirmed, even if calls
// for the bucket had failed; what had to wait is dropped. Then nothing of it is left.
func TestLosesABucketWhoseCallsFail(t *testing.T) {
	b := newBench(t)
	due := records("inbox:a", 1, b.now.Wall-20)
	published := of[Publish](b.answer(of[Claim](b.own(0, 1))[0], due))
	claims := of[Claim](b.step(Nudged{[]Nudge{{0, b.now.Wall}}}))
	waits := b.answer(claims[0], append(records("inbox:b", 1, b.now.Wall+30), due...))
	claims = of[Claim](append(waits, b.step(Nudged{[]Nudge{{0, b.now.Wall - 1}}})...))
	b.step(Claimed{claims[0].Call, []store.ClaimResult{{Err: postdate.E(postdate.KindUnknown, "no primary")}}})
	if len(b.m.apart) != 1 {
		t.Fatalf("%d lanes of their own", len(b.m.apart))
	}
	b.step(fence.Lost{Holds: holds(0)})
	effects := b.step(Published{published[0].Batch, []publisher.Result{confirmed}})
	b.after(time.Second)
	settles := of[Settle](append(effects, b.step(fence.Tick{})...))
	if len(settles) != 1 || len(settles[0].Settlements) != 1 {
		t.Fatalf("settled: %+v", settles)
	}
	if as := settles[0].Settlements[0]; as.How != store.SettleDelivered || as.PossibleDuplicate {
		t.Errorf("it is settled as %+v", as)
	}
	b.step(Settled{Call: settles[0].Call})
	if len(b.m.apart) > 0 || b.m.View(b.now).Hand > 0 || len(b.m.Channels()) > 0 {
		t.Errorf("%d lanes, %d messages and the channels %+v are left", len(b.m.apart), b.m.View(b.now).Hand, b.m.Channels())
	}
}

// With a lost bucket go the messages that its last claim, whose outcome is unknown, may have
// brought, and what was behind in it.
func TestLosesAClaimOfWhichNothingIsKnown(t *testing.T) {
	b := newBench(t)
	gain := func(token uint64) Claim {
		t.Helper()
		calls := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{{
			Token: token, Owner: "me", Checkpoint: b.now.Wall - 1_000, Claimed: bucket.UpTo(b.now.Wall - 500),
			Behind: map[postdate.Route]bucket.Position{"inbox:a": {Time: b.now.Wall - 700}},
		}}}))
		if len(calls) != 1 {
			t.Fatalf("it claims %+v", calls)
		}
		return calls[0]
	}
	first := gain(1)
	b.step(Claimed{first.Call, []store.ClaimResult{{Err: postdate.E(postdate.KindUnknown, "no primary")}}})
	b.step(fence.Lost{Holds: holds(0)})
	if all := b.m.Channels(); len(all) > 0 {
		t.Errorf("it knows of %+v, and owns nothing", all)
	}
	if limit, again := first.Claims[0].Scan.Limit, gain(2).Claims[0].Scan.Limit; again != limit {
		t.Errorf("a claim may bring %d messages, and after the loss %d", limit, again)
	}
}

// A bucket in which nothing is due any more is swept by reads alone: otherwise each bucket of a
// quiet cluster would be written every two seconds.
func TestAQuietBucketIsNotWritten(t *testing.T) {
	s := newShop(t, 1, nil)
	s.add(0, "x:a", 1, time.Second)
	s.sleep(10 * time.Second)
	if s.arrived["x:a"] != 1 {
		t.Fatalf("%d messages came", s.arrived["x:a"])
	}
	record := s.store.Records[0]
	s.sleep(time.Minute)
	if !s.store.Records[0].Equal(record) {
		t.Errorf("the record was %+v, and is %+v a minute later", record, s.store.Records[0])
	}
	s.add(0, "x:a", 1, time.Second)
	s.sleep(10 * time.Second)
	if s.arrived["x:a"] != 2 {
		t.Error("what comes after that is not found")
	}
}

// What a claim of one channel has read ahead of the others, and must be read again because the
// lease had ended, moves no checkpoint past unread messages in between.
func TestWhatWasReadAheadIsReadAgain(t *testing.T) {
	s := newSlowShop(t, 0, func(c *Config) { c.PageMax = 2 })
	p := s.behind("x:slow")
	p.Claimed = bucket.UpTo(s.now.Wall + 30)
	s.put(0, "x:a", 8, -900*ms)
	s.put(0, "x:slow", 2, 25*ms) // they wait for their time
	s.mute = every
	s.watch = func(e Effect) {
		claim, is := e.(Claim)
		if !is {
			return
		}
		for _, r := range s.store.Waiting[0] {
			if c := claim.Claims[0]; r.Channel == "x:a" && r.AttemptTime <= c.Checkpoint {
				t.Fatalf("the checkpoint moves to %d ms, past what was due %d ms ago and is not settled", c.Checkpoint-s.now.Wall, s.now.Wall-r.AttemptTime)
			}
		}
	}
	s.gain(p)
	behind := func(c call) bool { return c.claim != nil && c.claim.Claims[0].Only == "x:slow" }
	for !s.answer(behind) {
		if !s.answer(claims) {
			s.tick(5 * ms)
		}
	}
	checkpoint := s.watch
	s.watch = func(e Effect) { // until they are read again they take room
		checkpoint(e)
		if c := s.m.channels["x:slow"]; c == nil || c.hand+c.dropped != 2 {
			t.Fatalf("neither in hand nor to be read again: %+v", c)
		}
	}
	s.lapse()
	s.work(3 * time.Second)
	if n := s.flying("x:a"); n != 8 {
		t.Errorf("%d messages are with their broker, want 8", n)
	}
}

// A message scheduled for a millisecond within which a page has ended, at a place before that
// end, is found by its nudge and needs no sweep.
func TestWithinTheMillisecondOfAPage(t *testing.T) {
	s := newSlowShop(t, 2, func(c *Config) { c.PageMax = 2 })
	s.add(0, "x:b", 4, -ms)
	at := s.now.Wall - 1
	s.sleep(callSlow)
	s.add(1, "x:b", 1, -ms) // its claim keeps the next one of bucket 0 back
	s.answer(claims)
	s.put(0, "x:a", 1, at.Sub(s.now.Wall))
	if at >= s.horizon[0] {
		t.Fatal("a nudge for it does not matter")
	}
	s.step(Nudged{[]Nudge{{0, at}}})
	s.work(time.Second)
	if s.arrived["x:a"] != 1 {
		t.Error("it waits for a sweep")
	}
}

// What turns up while a sweep goes through a backlog is read in the next claims but few, not when the
// sweep comes to it.
func TestWhatTurnsUpDuringASweep(t *testing.T) {
	s, b := sweptShop(t)
	s.add(0, "x:a", 1, b.read.Time.Sub(s.now.Wall)-ms)
	for range 4 {
		s.tick(5 * ms)
		s.answer(claims)
	}
	if !b.sweeping || s.arrived["x:a"] != 1 {
		t.Errorf("%d of 1 arrived; the sweep goes on: %t", s.arrived["x:a"], b.sweeping)
	}
}

// It does not wait for what turned up long before it either, with a backlog in hand between them.
func TestWhatTurnsUpAfterABacklog(t *testing.T) {
	s, b := sweptShop(t)
	s.add(0, "x:a", 1, -2*time.Second)
	s.add(0, "x:a", 1, b.read.Time.Sub(s.now.Wall)-ms)
	for range 8 {
		s.tick(5 * ms)
		s.answer(claims)
	}
	if !b.sweeping || s.arrived["x:a"] != 2 {
		t.Errorf("%d of 2 arrived; the sweep goes on: %t", s.arrived["x:a"], b.sweeping)
	}
}

// sweptShop has a bucket that a sweep goes through, with a backlog in hand. Only x:a answers.
func sweptShop(t *testing.T) (*shop, *owned) {
	s := newShop(t, 1, func(c *Config) { c.PageMax, c.SweepEvery = 8, time.Hour })
	s.mute = func(r postdate.Route) bool { return r != "x:a" }
	for i := range 10 {
		s.add(0, named("x:mute%d", i), 40, -100*ms)
	}
	s.work(time.Second)
	if s.flying() != 400 {
		t.Fatalf("%d of 400 are with their brokers", s.flying())
	}
	s.waits = storeCalls
	b := s.m.buckets[0]
	b.sweepAt = s.now.Mono
	s.m.touch(b)
	for range 5 {
		s.tick(5 * ms)
		s.answer(claims)
	}
	return s, b
}

// Where scans of what is late and late again go on after a scan of each kind.
func TestWhereScansGoOn(t *testing.T) {
	at := func(t postdate.Time) bucket.Position {
		if t == 0 {
			return nowhere
		}
		return bucket.Position{Time: t}
	}
	for _, test := range []struct {
		name                   string
		kind                   scanKind
		late                   postdate.Time // 0: nowhere
		again                  spans
		ended                  postdate.Time
		wantLate               postdate.Time
		wantAgain              spans
		sweeping, wantSweeping bool
	}{
		{name: "a sweep keeps what it has not passed", kind: scanSweep, late: 50, ended: 30, wantLate: 30, wantAgain: spans{spanSince(50)}, wantSweeping: true},
		{name: "a sweep keeps both", kind: scanSweep, late: 50, again: spans{spanSince(40)}, ended: 30, wantLate: 30, wantAgain: spans{spanSince(40), spanSince(50)}, wantSweeping: true},
		{name: "a sweep passes both", kind: scanSweep, late: 20, again: spans{spanSince(10)}, ended: 30, wantLate: 30, wantSweeping: true},
		{name: "a sweep comes to its end", kind: scanSweep, late: 20, again: spans{spanSince(10)}, ended: 100},
		{name: "late goes on", kind: scanLate, late: 20, again: spans{spanSince(10)}, ended: 30, wantLate: 30, wantAgain: spans{spanSince(10)}},
		{name: "late passes again", kind: scanLate, late: 20, again: spans{spanSince(25)}, ended: 30, wantLate: 30},
		{name: "late ends, and again follows", kind: scanLate, late: 20, again: spans{spanSince(10)}, ended: 100, wantLate: 10},
		{name: "late ends a sweep beside again", kind: scanLate, late: 20, again: spans{spanSince(10)}, ended: 100, wantLate: 10, sweeping: true},
		{name: "again goes on before late", kind: scanAgain, late: 60, again: spans{spanSince(10)}, ended: 30, wantLate: 60, wantAgain: spans{spanSince(30)}},
		{name: "again catches up with late", kind: scanAgain, late: 25, again: spans{spanSince(10)}, ended: 30, wantLate: 30},
		{name: "again goes on after late", kind: scanAgain, late: 5, again: spans{spanSince(10)}, ended: 30, wantLate: 5, wantAgain: spans{spanSince(30)}},
		{name: "again after late ends", kind: scanAgain, late: 5, again: spans{spanSince(10)}, ended: 100, wantLate: 5},
		{name: "again before late ends both", kind: scanAgain, late: 60, again: spans{spanSince(10)}, ended: 100, sweeping: true},
		{name: "the clock was set back to between both", kind: scanOn, late: 20, again: spans{spanSince(50)}, ended: 40, wantLate: 20},
		{name: "the clock was set back to before both", kind: scanOn, late: 20, again: spans{spanSince(50)}, ended: 10},
	} {
		s := newShop(t, 1, nil)
		b := s.m.buckets[0]
		b.read, b.due, b.late, b.again, b.sweeping = at(90), postdate.Far, at(test.late), test.again, test.sweeping
		p := poll{bucket: b, kind: test.kind}
		switch test.kind {
		case scanLate:
			p.claim.Scan.After = b.late
		case scanAgain:
			p.claim.Scan.After = b.again.takeTurn()
		}
		s.m.scanned(s.now, p, &store.ClaimResult{Ended: at(test.ended), Complete: test.kind == scanOn || test.ended == 100, Next: postdate.Far})
		if b.late != at(test.wantLate) || !slices.Equal(b.again, test.wantAgain) || b.sweeping != test.wantSweeping {
			t.Errorf("%s: late %v, again %v, sweeping %t", test.name, b.late, b.again, b.sweeping)
		}
		if test.kind == scanOn && b.due != 20 && b.due != 50 {
			t.Errorf("%s: due %v", test.name, b.due)
		}
	}
}

// What must be read again is read as late if the bucket is read beyond it, and otherwise in its
// turn, even if the wall clock was set back and a scan ends before it.
func TestWhatIsMissed(t *testing.T) {
	at := func(t postdate.Time) bucket.Position { return bucket.Position{Time: t} }
	for _, test := range []struct {
		name        string
		read, ended postdate.Time // ended: of a complete scan, after which nothing is due
		missed      postdate.Time // before that scan; 0: nothing
		wantLate    bucket.Position
		wantDue     postdate.Time
	}{
		{name: "behind what is read", read: 20, missed: 10, ended: 30, wantLate: at(10), wantDue: postdate.Far},
		{name: "at what is read", read: 20, missed: 20, ended: 30, wantLate: at(20), wantDue: postdate.Far},
		{name: "the scan ends before it", read: 20, missed: 10, ended: 5, wantLate: nowhere, wantDue: 10},
		{name: "nothing is missed", read: 20, ended: 5, wantLate: nowhere, wantDue: postdate.Far},
	} {
		b := &owned{read: at(test.read), late: nowhere, due: postdate.Far}
		if test.missed != 0 {
			b.missed(spanSince(test.missed))
		}
		b.readTo(&store.ClaimResult{Complete: true, Ended: at(test.ended), Next: postdate.Far})
		if b.late != test.wantLate || b.due != test.wantDue || b.read != at(test.ended) {
			t.Errorf("%s: late %v, due %v, read to %v", test.name, b.late, b.due, b.read)
		}
	}
	b := &owned{read: at(20), late: nowhere, due: 40}
	b.missed(spanSince(30))
	if b.missed(spanSince(50)); b.late != nowhere || b.due != 30 {
		t.Errorf("ahead of what is read: late %v, due %v", b.late, b.due)
	}
	b.missed(spanSince(10)) // from where scans go on
	b.missed(spanSince(12))
	b.missed(spanOf(8))
	b.missed(spanSince(4))
	b.missed(spanOf(8))
	if b.late != at(10) || !slices.Equal(b.again, spans{spanSince(12), spanOf(8), spanSince(4)}) {
		t.Errorf("beside what is late: late %v, again %v", b.late, b.again)
	}
	b.record.Claimed = at(20)
	if b.leftOut = nowhere; b.handledUpTo() != 3 {
		t.Errorf("settled up to %d, but 4 may not be read", b.handledUpTo())
	}
}
