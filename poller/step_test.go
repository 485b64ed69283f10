package poller

import (
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// After the renewal that checks a wall clock that was set, the machine uses that clock
// immediately: what it claims then reaches as far ahead of it as usual, and no further.
func TestAClockThatIsJudgedCounts(t *testing.T) {
	for _, set := range []time.Duration{30 * time.Second, -30 * time.Second} {
		b := newSleeper(t, nil)
		b.step(fence.Tick{})
		b.now.Wall = b.now.Wall.Add(set)
		b.step(fence.Tick{})
		b.after(ms)
		b.m.nudge(0, spanSince(b.now.Wall-1))
		claims := of[Claim](b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now}))
		if len(claims) != 1 || claims[0].Claims[0].To.Time != b.now.Wall.Add(b.m.c.Ahead)+1 {
			t.Errorf("set by %s: it is %d, and claimed as %+v", set, b.now.Wall, claims)
		}
	}
}

// A bucket that is handed over wants no more nudges, and the machine says so immediately.
func TestNoNudgesForWhatIsHandedOver(t *testing.T) {
	b := newSleeper(t, nil)
	hold := store.Hold{Bucket: 0, Token: 1}
	effects := b.step(fence.Drain{Holds: []store.Hold{hold}})
	for _, c := range of[Claim](effects) { // writes the checkpoint
		effects = b.answer(c, nil)
	}
	if drained := of[fence.Drained](effects); len(drained) != 1 || !slices.Contains(drained[0].Holds, hold) {
		t.Fatalf("not handed over: %+v", effects)
	}
	if said := of[Horizon](effects); len(said) == 0 || said[len(said)-1] != (Horizon{}) {
		t.Errorf("said of its nudges: %+v", said)
	}
}
