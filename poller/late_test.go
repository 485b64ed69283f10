package poller

import (
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
		s.add(during(10 * i))
		s.add(during(10 * i))
	}
	if len(s) != spansMax {
		t.Fatalf("%d spans wait, want %d", len(s), spansMax)
	}
	for i := range postdate.Time(2 * spansMax) {
		if got := s.next(); got != during(10*(i%spansMax)).after {
			t.Errorf("turn %d begins after %v", i, got)
		}
	}
	s.add(during(5))
	s.add(during(500))
	s.add(during(300))
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
		{"it lies before the scan", during(10), at(10, "a"), at(20, ""), spans{during(10)}},
		{"it lies beyond the scan", during(20), at(5, ""), at(15, ""), spans{during(20)}},
		{"the scan ends within it", during(10), at(5, ""), at(10, "a"), spans{{at(10, "a"), at(11, "")}}},
		{"the scan begins with it and ends within it", during(10), at(10, ""), at(10, "a"), spans{{at(10, "a"), at(11, "")}}},
		{"the scan ends where it ends", during(10), at(10, ""), at(11, ""), nil},
		{"the scan passes it", during(10), at(5, ""), at(20, ""), nil},
		{"it has no end", since(10), at(5, ""), at(20, "a"), spans{from(at(20, "a"))}},
		{"the scan sees all", since(10), at(5, ""), nowhere, nil},
	} {
		s := spans{test.span, during(1)}.without(test.after, test.ended)
		if want := append(test.want, during(1)); !slices.Equal(s, want) {
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
		b.read, b.due, b.late, b.again = at(90, ""), postdate.Far, test.late, spans{during(10)}
		p := poll{bucket: b, kind: scanAgain}
		p.claim.Scan.After = b.again.next()
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
		s.m.nudge(0, during(n))
	}
	if b.late != nowhere || b.due != postdate.Far {
		t.Fatalf("during the claim: late %v, due %v", b.late, b.due)
	}
	b.polling = false
	s.m.heardNudges(b)
	if b.late != at(20, "") || !slices.Equal(b.again, spans{during(40), during(50)}) || b.due != 90 || len(b.nudged) > 0 {
		t.Errorf("late %v, again %v, due %v, nudged %v", b.late, b.again, b.due, b.nudged)
	}
}

// What a settlement leaves to do is looked for in its own millisecond. A nudge may stand for later messages, too.
func TestWhereToLook(t *testing.T) {
	for name, test := range map[string]struct {
		as   store.Settlement
		want spans
	}{
		"tried again": {store.Settlement{How: store.SettleRetry, At: 10, AttemptTime: 20}, spans{during(20)}},
		"parked":      {store.Settlement{How: store.SettlePark, At: 10, AttemptTime: 20}, spans{during(20)}},
		"parked by a clock that was set back": {store.Settlement{How: store.SettlePark, At: 10, AttemptTime: 20,
			ExecutionTime: 40}, spans{during(40)}},
		"a series goes on": {store.Settlement{How: store.SettleDelivered, At: 10, Occurrence: 5,
			Next: store.Next{Occurrence: 15, AttemptTime: 25}}, spans{during(25)}},
		"a series is over": {store.Settlement{How: store.SettleDelivered, At: 10, Occurrence: 5,
			Next: store.Next{Over: true}}, nil},
		"failed": {store.Settlement{How: store.SettleFailed, At: 10, FailureChannel: "inbox:failed"},
			spans{during(10)}},
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
	if want := (spans{since(30)}); !slices.Equal(b.nudged, want) {
		t.Errorf("nudged: %v, want %v", b.nudged, want)
	}
}
