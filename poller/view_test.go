package poller

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// A bucket is overdue by its earliest due message that is not settled, from the millisecond in
// which that is due.
func TestOverdue(t *testing.T) {
	b := newSleeper(t, nil)
	overdue := func(what string, want map[int]postdate.Time) {
		t.Helper()
		if v := b.m.View(b.now); !maps.Equal(v.Overdue, want) || v.At != b.now {
			t.Errorf("%s: overdue at %d: %v, want %v", what, b.now.Wall, v, want)
		}
	}
	b.after(100 * ms)
	overdue("nothing is there", map[int]postdate.Time{})
	soon := b.due(20 * ms)
	b.read(soon)
	overdue("a message is in hand", map[int]postdate.Time{})
	b.after(20 * ms)
	overdue("it is due", map[int]postdate.Time{0: soon.AttemptTime})
	b.after(ms)
	settles := b.outcome(b.step(fence.Tick{}), confirmed)
	overdue("it is delivered", map[int]postdate.Time{0: soon.AttemptTime})
	b.written(settles)
	b.after(time.Second)
	overdue("it is settled", map[int]postdate.Time{})
	behind := bucket.UpTo(b.now.Wall - 50)
	b.gain(1, func(p *bucket.Partition) {
		p.Checkpoint, p.Claimed = b.now.Wall-100, bucket.UpTo(b.now.Wall-10)
		p.Behind = map[postdate.Route]bucket.Position{"inbox:a": behind}
	})
	overdue("a channel is behind", map[int]postdate.Time{1: behind.Time})
}

// The view of the channels says, ordered by name, what each has in hand, with its broker and
// parked, and whether and why it takes nothing. A channel that people paused is not down.
func TestChannels(t *testing.T) {
	b := newSleeper(t, nil)
	b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:b", Paused: true}, {Route: "inbox:c", MaxInFlight: 2}}})
	b.written(b.outcome(b.read(records("inbox:d", 2, b.now.Wall-10)...), down))
	b.read(append(records("inbox:c", 3, b.now.Wall-10), records("inbox:a", 1, b.now.Wall+20)[0], records("inbox:e", 1, b.now.Wall+20)[0])...)
	b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 0, Route: "inbox:b"}}})
	want := []ChannelView{
		{Route: "inbox:a", InHand: 1},
		{Route: "inbox:b", Paused: true, Parked: true},
		{Route: "inbox:c", InHand: 3, InFlight: 2},
		{Route: "inbox:d", Down: true, Parked: true, Reason: "no such host", ReasonAt: b.now.Wall},
		{Route: "inbox:e", InHand: 1},
	}
	if got := b.m.Channels(); !slices.Equal(got, want) {
		t.Errorf("the channels are\n%+v, want\n%+v", got, want)
	}
	if v := b.m.View(b.now); v.Hand != 5 || v.Down != 1 || v.FirstDown[0].Channel != "inbox:d" {
		t.Errorf("in hand are %d, and %d channels are down: %+v", v.Hand, v.Down, v.FirstDown)
	}
}

// A bucket is worked on under the token under which it was last gained, and under none once it
// is lost.
func TestToken(t *testing.T) {
	b := newSleeper(t, nil)
	b.gain(0, func(p *bucket.Partition) { p.Token = 7 })
	if b.m.Token(0) != 7 || b.m.Token(1) != 0 {
		t.Errorf("the tokens are %d and %d", b.m.Token(0), b.m.Token(1))
	}
	b.step(fence.Lost{Holds: []store.Hold{{Bucket: 0, Token: 7}}})
	if b.m.Token(0) != 0 {
		t.Errorf("the token of a bucket that is lost is %d", b.m.Token(0))
	}
}

// The longest overdue is that of the earliest message of any bucket.
func TestLongestOverdue(t *testing.T) {
	v := View{At: postdate.Now{Wall: 1000}, Overdue: map[int]postdate.Time{1: 990, 2: 970, 3: 985}}
	if most := v.LongestOverdue(); most != 30*time.Millisecond {
		t.Errorf("it is %v", most)
	}
	if none := (View{At: v.At}).LongestOverdue(); none != 0 {
		t.Errorf("of nothing it is %v", none)
	}
}

// A bucket is held from when it is gained until it is lost, while the lease lets messages go out.
func TestHeld(t *testing.T) {
	b := newSleeper(t, nil)
	held := func(what string, want int) {
		t.Helper()
		if got := b.m.View(b.now).Held; got != want {
			t.Errorf("%s: %d are held, want %d", what, got, want)
		}
	}
	held("one was gained", 1)
	b.gain(1, nil)
	held("another was gained", 2)
	b.step(fence.Lost{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
	held("one was lost", 1)
	b.now.Mono, b.now.Wall = b.now.Mono+time.Hour, b.now.Wall.Add(time.Hour)
	held("the lease has ended", 0)
	b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
	held("the lease was renewed", 1)
}
