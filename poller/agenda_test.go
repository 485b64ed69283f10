package poller

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// filed is an agenda and a record of what each of its buckets should want.
type filed struct {
	t              *testing.T
	a              agenda
	all            []*owned
	in, sweep, now map[*owned]bool // it is on the agenda, to be swept, and wants something at once
}

func newFiled(t *testing.T, n int) *filed {
	f := &filed{t: t, a: agenda{bySweep: bucketHeap{sweep: true}}, in: map[*owned]bool{}, sweep: map[*owned]bool{}, now: map[*owned]bool{}}
	for i := range n {
		f.all = append(f.all, &owned{hold: store.Hold{Bucket: i}})
	}
	return f
}

// put changes a bucket at random and files it.
func (f *filed) put(r *rand.Rand) {
	b := f.all[r.IntN(len(f.all))]
	b.due, b.sweepAt, b.sweeping = postdate.Time(r.IntN(10)), time.Duration(r.IntN(10)), r.IntN(3) == 0
	late, rests := r.IntN(5) == 0, r.IntN(5) == 0
	b.late, b.leaveBy = nowhere, 0
	if late {
		b.late = bucket.Position{Time: 1}
	}
	if rests {
		b.leaveBy = 1
	}
	in := r.IntN(4) > 0
	f.a.put(b, in)
	f.in[b], f.sweep[b] = in, in && !b.sweeping && !rests
	f.now[b] = f.now[b] || in && (late || rests)
	if len(f.a.busy) > len(f.all) {
		f.t.Fatalf("%d buckets are listed as busy, of %d", len(f.a.busy), len(f.all))
	}
}

// take takes buckets and expects, in this order, those that are due, those to be swept, and
// those that want something right away.
func (f *filed) take(most int, due postdate.Time, sweep time.Duration) {
	f.t.Helper()
	got := f.a.take(most, due, sweep)
	got, n := f.first(got, most, f.in, func(b *owned) int { return int(b.due - due) })
	got, _ = f.first(got, most-n, f.sweep, func(b *owned) int { return int(b.sweepAt - sweep) })
	var want []*owned
	for _, b := range f.all {
		if f.now[b] && f.in[b] {
			want = append(want, b)
		}
	}
	slices.SortFunc(got, byNumber)
	if !slices.Equal(got, want) {
		f.t.Fatalf("%d buckets were taken because they want something at once, want %d", len(got), len(want))
	}
	for _, b := range want {
		f.in[b], f.sweep[b] = false, false
	}
	clear(f.now)
}

// first expects got to begin with up to most of those among whose time has come, ordered by
// their times. left is how far off a bucket's time is.
func (f *filed) first(got []*owned, most int, among map[*owned]bool, left func(*owned) int) (rest []*owned, n int) {
	f.t.Helper()
	var want []int
	for _, b := range f.all {
		if among[b] && left(b) <= 0 {
			want = append(want, left(b))
		}
	}
	slices.Sort(want)
	want = want[:min(len(want), most)]
	if len(got) < len(want) {
		f.t.Fatalf("%d buckets were taken, want %d at least", len(got), len(want))
	}
	for i, b := range got[:len(want)] {
		if !among[b] || left(b) != want[i] {
			f.t.Fatalf("bucket %d is taken, whose time is %d off, want one that is %d off", b.hold.Bucket, left(b), want[i])
		}
		f.in[b], f.sweep[b] = false, false
	}
	return got[len(want):], len(want)
}

// The agenda gives what is due, ordered by time, and no more than is asked for; buckets that
// want something right away it always gives. A bucket that was given does not come again until
// it is put back.
func TestAgenda(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	f := newFiled(t, 20)
	for range 3_000 {
		for range r.IntN(60) {
			f.put(r)
		}
		f.take(r.IntN(12), postdate.Time(r.IntN(12)-1), time.Duration(r.IntN(12)-1))
	}
}

// Horizons say which nudges matter: none for a bucket that is not owned here, all while a claim
// is under way (said before it begins), and otherwise those earlier than all that is known. No
// horizon is repeated.
func TestHorizons(t *testing.T) {
	b := newBench(t)
	at := func(ms postdate.Time) postdate.Time { return 1_000_000 + ms }
	last := postdate.Time(0)
	said := func(effects []Effect, what string, want ...postdate.Time) {
		t.Helper()
		var got []postdate.Time
		for _, e := range effects {
			switch e := e.(type) {
			case Horizon:
				if e.Before == last {
					t.Errorf("%s: %d is said twice", what, last)
				}
				last = e.Before
				got = append(got, last)
			case Claim:
				if last != postdate.Far {
					t.Errorf("%s: claimed while only what is earlier than %d matters", what, last)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: what is earlier than %v matters, want %v", what, got, want)
		}
	}
	answer := func(effects []Effect, next postdate.Time) []Effect {
		r := seen(of[Claim](effects)[0].Claims[0])
		r.Next = next
		return b.step(Claimed{b.m.claimCall(), []store.ClaimResult{r}})
	}
	gained := b.step(fence.Gained{Partitions: []bucket.Partition{{Token: 1, Owner: "me", Lease: "me"}}})
	said(gained, "gained", b.now.Wall, postdate.Far)
	said(answer(gained, at(500)), "something is due", at(500))
	said(b.step(Nudged{[]Nudge{{0, at(300)}}}), "something earlier", at(300))
	said(b.step(Nudged{[]Nudge{{0, at(400)}}}), "something later")
	said(b.step(fence.Tick{}), "nothing new")
	b.after(280 * ms)
	tick := b.step(fence.Tick{})
	said(tick, "its time has come", postdate.Far)
	said(answer(tick, postdate.Far), "nothing else is due")
	said(b.step(Nudged{[]Nudge{{0, at(900)}}}), "something later than all that is read", at(900))
	said(b.step(fence.Lost{Holds: []store.Hold{{Token: 1}}}), "lost", 0)
	said(b.step(Nudged{[]Nudge{{0, at(900)}}}), "lost already")
}

// A bucket whose claim failed is claimed again only after the pause, whatever falls due in it
// meanwhile.
func TestAClaimThatFailsIsNotRepeatedAtOnce(t *testing.T) {
	b := newBench(t)
	claim := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{{Token: 1, Owner: "me", Lease: "me"}}}))[0]
	effects := b.step(Claimed{claim.Call, []store.ClaimResult{{Err: postdate.E(postdate.KindUnavailable, "no primary")}}})
	effects = append(effects, b.step(Nudged{[]Nudge{{0, b.now.Wall - 1}}})...)
	b.after(b.m.c.RetryAfter - 1)
	if effects = append(effects, b.step(fence.Tick{})...); len(of[Claim](effects)) > 0 {
		t.Fatalf("claimed before %s are over", b.m.c.RetryAfter)
	}
	b.after(1)
	if n := len(of[Claim](b.step(fence.Tick{}))); n != 1 {
		t.Errorf("%d claims after %s, want 1", n, b.m.c.RetryAfter)
	}
}

// A lost bucket causes no wake-ups.
func TestALostBucketWakesNobody(t *testing.T) {
	b := newBench(t)
	b.owned(nil)
	b.step(Nudged{[]Nudge{{0, b.now.Wall + 500}}})
	if w := b.m.Wake(b.now); w > 500*ms {
		t.Fatalf("it wants to be woken after %s", w)
	}
	b.step(fence.Lost{Holds: []store.Hold{{Token: 1}}})
	if w := b.m.Wake(b.now); w != wakeMax {
		t.Errorf("it wants to be woken after %s, and owns nothing", w)
	}
}
