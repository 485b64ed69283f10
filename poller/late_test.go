package poller

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// at is a position among those of a millisecond.
func at(t postdate.Time, id string) bucket.Position { return bucket.Position{Time: t, ScheduleID: id} }

// What waits is there once, has turns, and is one span more at most than there may be: what comes then is part of it.
func TestSpans(t *testing.T) {
	var s spans
	for i := range postdate.Time(spansMax) {
		s.add(spanOf(10 * i))
		s.add(spanOf(10 * i))
	}
	if len(s) != spansMax {
		t.Fatalf("%d spans wait, want %d", len(s), spansMax)
	}
	for i := range postdate.Time(2 * spansMax) {
		if got := s.takeTurn(); got != spanOf(10*(i%spansMax)).after {
			t.Errorf("turn %d begins after %v", i, got)
		}
	}
	s.add(spanOf(5))
	s.add(spanOf(500))
	s.add(spanOf(300))
	if last := s[len(s)-1]; len(s) != spansMax || last != (span{at(5, ""), at(501, "")}) {
		t.Errorf("of %d spans, the last is %v", len(s), last)
	}
}

// A scan leaves what it has not come to, and what lies before it.
func TestWhatAScanLeaves(t *testing.T) {
	for _, test := range []struct {
		name         string
		span         span
		after, ended bucket.Position
		want         spans
	}{
		{"it lies before the scan", spanOf(10), at(10, "a"), at(20, ""), spans{spanOf(10)}},
		{"it lies beyond the scan", spanOf(20), at(5, ""), at(15, ""), spans{spanOf(20)}},
		{"the scan ends within it", spanOf(10), at(5, ""), at(10, "a"), spans{{at(10, "a"), at(11, "")}}},
		{"the scan begins with it and ends within it", spanOf(10), at(10, ""), at(10, "a"), spans{{at(10, "a"), at(11, "")}}},
		{"the scan ends where it ends", spanOf(10), at(10, ""), at(11, ""), nil},
		{"the scan passes it", spanOf(10), at(5, ""), at(20, ""), nil},
		{"it has no end", spanSince(10), at(5, ""), at(20, "a"), spans{spanFrom(at(20, "a"))}},
		{"the scan sees all", spanSince(10), at(5, ""), nowhere, nil},
	} {
		s := spans{test.span, spanOf(1)}.without(test.after, test.ended)
		if want := append(test.want, spanOf(1)); !slices.Equal(s, want) {
			t.Errorf("%s: %v is left, want %v", test.name, s, want)
		}
	}
}

// A scan that goes back for one millisecond is over with it, even if its page ends before what is late or before what
// the bucket is read to. If it comes further, or to its end by a clock that was set back, it says what is read.
func TestAScanOfAMillisecond(t *testing.T) {
	for _, test := range []struct {
		name      string
		late      bucket.Position
		ended     bucket.Position
		complete  bool
		wantLate  bucket.Position
		wantAgain spans
		wantRead  bucket.Position
	}{
		{"within it", at(60, ""), at(10, "a"), false, at(60, ""), spans{{at(10, "a"), at(11, "")}}, at(90, "")},
		{"beyond it", at(60, ""), at(30, ""), false, at(60, ""), nil, at(90, "")},
		{"beyond what is late", at(60, ""), at(70, "b"), false, at(70, "b"), nil, at(90, "")},
		{"what is read", at(60, ""), at(90, ""), false, nowhere, nil, at(90, "")},
		{"beyond what is read", at(60, ""), at(95, "b"), false, nowhere, nil, at(95, "b")},
		{"the same, after what is late", at(5, ""), at(95, "b"), false, at(5, ""), nil, at(95, "b")},
		{"a clock that was set back", at(5, ""), at(40, ""), true, at(5, ""), nil, at(40, "")},
	} {
		s := newShop(t, 1, nil)
		b := s.m.buckets[0]
		b.read, b.due, b.late, b.again = at(90, ""), postdate.Far, test.late, spans{spanOf(10)}
		p := poll{bucket: b, kind: scanAgain}
		p.claim.Scan.After = b.again.takeTurn()
		s.m.scanned(s.now, p, &store.ClaimResult{Ended: test.ended, Complete: test.complete, Next: postdate.Far})
		if b.late != test.wantLate || !slices.Equal(b.again, test.wantAgain) || b.read != test.wantRead {
			t.Errorf("up to %s: late %v, again %v, read to %v", test.name, b.late, b.again, b.read)
		}
	}
}

// Of the nudges that come during a claim, each that is behind what is read is late, the earliest first, and the
// others are due.
func TestNudgesDuringAClaim(t *testing.T) {
	s := newShop(t, 1, nil)
	b := s.m.buckets[0]
	b.read, b.due, b.late, b.again = at(90, ""), postdate.Far, nowhere, nil
	b.polling = true
	for _, n := range []postdate.Time{50, 20, 120, 90, 50, 40} {
		s.m.nudge(0, spanOf(n))
	}
	if b.late != nowhere || b.due != postdate.Far {
		t.Fatalf("during the claim: late %v, due %v", b.late, b.due)
	}
	b.polling = false
	s.m.heardNudges(b)
	if b.late != at(20, "") || !slices.Equal(b.again, spans{spanOf(40), spanOf(50)}) || b.due != 90 || len(b.nudged) > 0 {
		t.Errorf("late %v, again %v, due %v, nudged %v", b.late, b.again, b.due, b.nudged)
	}
}

// What a settlement leaves to do is looked for in its own millisecond. A nudge may stand for later messages, too.
func TestWhereToLook(t *testing.T) {
	for name, test := range map[string]struct {
		as   store.Settlement
		want spans
	}{
		"tried again": {store.Settlement{How: store.SettleRetry, At: 10, AttemptTime: 20}, spans{spanOf(20)}},
		"parked":      {store.Settlement{How: store.SettlePark, At: 10, AttemptTime: 20}, spans{spanOf(20)}},
		"parked by a clock that was set back": {store.Settlement{How: store.SettlePark, At: 10, AttemptTime: 20,
			ExecutionTime: 40}, spans{spanOf(40)}},
		"a series goes on": {store.Settlement{How: store.SettleDelivered, At: 10, Occurrence: 5,
			Next: store.Next{Occurrence: 15, AttemptTime: 25}}, spans{spanOf(25)}},
		"a series is over": {store.Settlement{How: store.SettleDelivered, At: 10, Occurrence: 5,
			Next: store.Next{Over: true}}, nil},
		"failed": {store.Settlement{How: store.SettleFailed, At: 10, FailureChannel: "inbox:failed"},
			spans{spanOf(10)}},
		"delivered": {store.Settlement{How: store.SettleDelivered, At: 10}, nil},
	} {
		s := newShop(t, 1, nil)
		b := s.m.buckets[0]
		b.polling = true
		s.m.wrote(settling{bucket: b, as: test.as})
		if !slices.Equal(b.nudged, test.want) {
			t.Errorf("%s: %v, want %v", name, b.nudged, test.want)
		}
	}
	s := newShop(t, 1, nil)
	b := s.m.buckets[0]
	b.polling = true
	s.step(Nudged{[]Nudge{{0, 30}}})
	if want := (spans{spanSince(30)}); !slices.Equal(b.nudged, want) {
		t.Errorf("nudged: %v, want %v", b.nudged, want)
	}
}

// A settlement without an answer was written, and the message was moved twice since: it is looked for where it is.
func TestWhatMovedTwiceBeforeItsSettlementWasHeard(t *testing.T) {
	s := newSlowShop(t, 1, nil)
	b := s.m.buckets[0]
	b.read, b.due, b.late, b.again = bucket.UpTo(s.now.Wall), postdate.Far, at(s.now.Wall-50, ""), nil
	rec := records("inbox:a", 1, s.now.Wall-500)[0]
	s.m.take(s.now, poll{bucket: b}, &rec)
	it := b.hand[rec.Key]
	for _, at := range []postdate.Time{s.now.Wall - 300, s.now.Wall - 100} { // two scans see it elsewhere
		moved := rec
		moved.AttemptTime, moved.Attempts = at, 1
		s.m.take(s.now, poll{bucket: b}, &moved)
	}
	s.m.drop(it)
	for _, span := range b.again {
		if p := at(s.now.Wall-100, "x"); span.after.Before(p) && p.Before(span.to) {
			return
		}
	}
	t.Errorf("late %v, again %v", b.late, b.again)
}

// lateModel is a bucket in which messages turn up at random, and which of them no scan has seen.
type lateModel struct {
	*rand.Rand
	m      *Machine
	b      *owned
	unseen map[bucket.Position]bool
}

func (x *lateModel) position() bucket.Position {
	return at(postdate.Time(1+x.IntN(40)), string(rune('a'+x.IntN(4))))
}

// turnUp makes a message turn up, as a settlement or a nudge tells.
func (x *lateModel) turnUp() {
	p := x.position()
	x.unseen[p] = true
	x.m.nudge(0, []span{spanOf(p.Time), spanSince(p.Time)}[x.IntN(2)])
}

// scan makes one of the scans that the bucket may have. Others turn up meanwhile.
func (x *lateModel) scan() {
	b := x.b
	p := poll{bucket: b, kind: scanOn}
	p.claim.Scan.After = b.read
	switch kind := x.IntN(4); {
	case kind == 0 && !b.sweeping:
		p.kind, p.claim.Scan.After = scanSweep, bucket.Position{}
	case kind == 1 && b.late != nowhere:
		p.kind, p.claim.Scan.After = scanLate, b.late
	case kind == 2 && len(b.again) > 0:
		p.kind, p.claim.Scan.After = scanAgain, b.again.takeTurn()
	}
	after := p.claim.Scan.After
	r := &store.ClaimResult{Ended: bucket.UpTo(postdate.Time(25 + x.IntN(20))).Latest(after), Complete: true, Next: postdate.Far}
	if early := x.position(); x.IntN(4) > 0 && after.Before(early) && early.Before(r.Ended) {
		r.Ended, r.Complete = early, false
	}
	for q := range x.unseen {
		switch {
		case after.Before(q) && !r.Ended.Before(q):
			delete(x.unseen, q)
		case r.Complete && r.Ended.Before(q):
			r.Next = min(r.Next, q.Time)
		}
	}
	b.polling = true
	for range x.IntN(3) {
		x.turnUp()
	}
	b.polling = false
	x.m.scanned(postdate.Now{}, p, r)
	x.m.heardNudges(b)
}

// looksFor says whether some later scan sees a position.
func (x *lateModel) looksFor(p bucket.Position) bool {
	b := x.b
	if b.late.Before(p) || b.read.Before(p) && b.due <= p.Time {
		return true
	}
	return slices.ContainsFunc(b.again, func(s span) bool { return s.after.Before(p) && !s.to.Before(p) })
}

// Whatever turns up, and however scans end, what none of them has seen is looked for by another one.
func TestWhatNoScanHasSeenIsLookedFor(t *testing.T) {
	for seed := range uint64(1000) {
		m := newShop(t, 1, nil).m
		b := m.buckets[0]
		b.read, b.due, b.late, b.again, b.nudged = at(20, ""), postdate.Far, nowhere, nil, nil
		b.sweepAt, b.sweeping = 1<<62, false
		x := &lateModel{rand.New(rand.NewPCG(seed, 0)), m, b, map[bucket.Position]bool{}}
		for step := range 60 {
			if x.IntN(2) == 0 {
				x.turnUp()
			} else {
				x.scan()
			}
			if len(b.again) > 0 && b.late == nowhere {
				t.Fatalf("seed %d, step %d: something is late again, and nothing is late", seed, step)
			}
			for p := range x.unseen {
				if !x.looksFor(p) {
					t.Fatalf("seed %d, step %d: nobody looks for %v: late %v, again %v, due %v, read %v",
						seed, step, p, b.late, b.again, b.due, b.read)
				}
			}
		}
	}
}
