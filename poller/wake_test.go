package poller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// newSleeper is a bench whose machine asks for no wake-up: it owns one empty bucket, and sweeps
// it no more.
func newSleeper(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	c := DefaultConfig()
	c.SweepEvery, c.FindEvery = time.Hour, time.Hour
	if change != nil {
		change(&c)
	}
	b := &bench{t: t, m: newMachine(c), now: postdate.Now{Wall: 1_000_000, Mono: time.Minute}}
	b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now})
	b.gain(0, nil)
	return b
}

// gain gives the machine a bucket, changed by change, in which nothing is due.
func (b *bench) gain(number int, change func(*bucket.Partition)) {
	p := bucket.Partition{Bucket: number, Token: 1, Owner: "me", Lease: "me"}
	if change != nil {
		change(&p)
	}
	effects := b.step(fence.Gained{Partitions: []bucket.Partition{p}})
	b.answerAll(effects)
	b.step(ParkedFound{Buckets: []int{number}})
}

// read lets the machine read these messages, which are due, or will be soon.
func (b *bench) read(due ...postdate.Record) []Effect {
	b.t.Helper()
	claims := of[Claim](b.step(Nudged{[]Nudge{{due[0].Bucket, due[0].AttemptTime}}}))
	if len(claims) != 1 || len(claims[0].Claims) != 1 {
		b.t.Fatalf("claimed as %+v", claims)
	}
	return b.answer(claims[0], due)
}

// outcome answers the only publish among effects.
func (b *bench) outcome(effects []Effect, r publisher.Result) []Effect {
	b.t.Helper()
	p := of[Publish](effects)
	if len(p) != 1 {
		b.t.Fatalf("%d publishes, want one", len(p))
	}
	return b.step(Published{p[0].Batch, publisher.All(len(p[0].Batch), r)})
}

// written answers the only settle among effects.
func (b *bench) written(effects []Effect) []Effect {
	b.t.Helper()
	s := of[Settle](effects)
	if len(s) != 1 {
		b.t.Fatalf("%d settles, want one", len(s))
	}
	return b.step(Settled{Call: s[0].Call})
}

// due is one message of "inbox:a" that is due this long after now.
func (b *bench) due(after time.Duration) postdate.Record {
	return records("inbox:a", 1, b.now.Wall.Add(after))[0]
}

// leave hands the bucket over while a broker has not answered.
func (b *bench) leave() {
	b.read(b.due(-10 * ms))
	b.step(fence.Drain{Holds: holds(0)})
}

var errStore = postdate.E(postdate.KindUnavailable, "no primary")

// wakes lists the reasons to wake a machine: what is done to one that wants nothing, when it
// then asks to be woken, and what it does when it is.
var wakes = map[string]struct {
	change func(*Config)
	do     func(b *bench)
	want   time.Duration
	then   Effect
}{
	"nothing":           {do: func(*bench) {}, want: time.Second},
	"a message in hand": {do: func(b *bench) { b.read(b.due(30 * ms)) }, want: 31 * ms, then: Publish{}},
	"a message that is due soon": {
		do: func(b *bench) { b.step(Nudged{[]Nudge{{0, b.now.Wall + 500}}}) }, want: 480 * ms, then: Claim{},
	},
	"a sweep": {func(c *Config) { c.SweepEvery = 800 * ms }, func(*bench) {}, 800 * ms, Claim{}},
	"settlements that gather": {do: func(b *bench) {
		first := b.outcome(b.read(b.due(-10*ms)), confirmed)
		b.after(2 * ms)
		b.written(first)
		b.outcome(b.read(b.due(-10*ms)), confirmed)
	}, want: 3 * ms, then: Settle{}},
	"a claim that failed": {do: func(b *bench) {
		claim := of[Claim](b.step(Nudged{[]Nudge{{0, b.now.Wall - 1}}}))[0]
		b.step(Claimed{claim.Call, []store.ClaimResult{{Err: errStore}}})
	}, want: 100 * ms, then: Claim{}},
	"a message that is due soon in a bucket whose settles fail": {do: func(b *bench) {
		b.failSettle()
		b.step(Nudged{[]Nudge{{0, b.now.Wall + 70}}})
	}, want: 50 * ms, then: Claim{}},
	"a sweep of a bucket whose settles fail": {
		func(c *Config) { c.SweepEvery, c.RetryAfter = 400*ms, 900*ms },
		func(b *bench) { b.after(200 * ms); b.failSettle() },
		200 * ms, Claim{},
	},
	"a bucket that rests, which works on for its other channels": {do: func(b *bench) {
		b.leave()
		b.step(Nudged{[]Nudge{{0, b.now.Wall + 100}}})
		b.after(200 * ms)
		if effects := b.step(fence.Tick{}); len(effects) > 0 {
			b.t.Errorf("a bucket that rests: %+v", effects)
		}
	}, want: 300 * ms, then: Claim{}},
	"a bucket that waits no longer for an answer": {
		func(c *Config) { c.DrainMax = 700 * ms },
		func(b *bench) { b.leave(); b.after(500 * ms); b.step(fence.Tick{}) },
		200 * ms, Settle{},
	},
	"a bucket that is handed over though the store does not answer": {
		func(c *Config) { c.DrainMax = 700 * ms },
		func(b *bench) {
			effects := b.step(Nudged{[]Nudge{{0, b.now.Wall - 1}}})
			b.step(fence.Drain{Holds: holds(0)})
			for range 15 { // the last one fails for the fifth time, and is not to be repeated soon
				for _, c := range of[Claim](effects) {
					b.step(Claimed{c.Call, []store.ClaimResult{{Err: errStore}}})
				}
				b.after(100 * ms)
				effects = b.step(fence.Tick{})
			}
			for _, c := range of[Claim](effects) {
				b.step(Claimed{c.Call, []store.ClaimResult{{Err: errStore}}})
			}
		},
		200 * ms, fence.Drained{},
	},
	"what an owner claimed whose clock was ahead, in a bucket that is handed over": {do: func(b *bench) {
		b.gain(0, func(p *bucket.Partition) { p.Token, p.Claimed = 2, bucket.UpTo(b.now.Wall+300) })
		b.step(fence.Drain{Holds: []store.Hold{{Bucket: 0, Token: 2}}})
	}, want: 261 * ms, then: Claim{}},
	"a message that such an owner claimed": {do: func(b *bench) {
		p := bucket.Partition{Token: 2, Owner: "me", Lease: "me", Claimed: bucket.UpTo(b.now.Wall + 300)}
		claim := of[Claim](b.step(fence.Gained{Partitions: []bucket.Partition{p}}))[0]
		r := seen(claim.Claims[0])
		r.Next = b.now.Wall + 150
		b.step(Claimed{claim.Call, []store.ClaimResult{r}})
		b.step(fence.Drain{Holds: []store.Hold{{Bucket: 0, Token: 2}}})
	}, want: 130 * ms, then: Claim{}},
	"a rate": {do: func(b *bench) {
		b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", MaxPerSecond: 10}}})
		b.read(records("inbox:a", 3, b.now.Wall-10)...)
	}, want: 100*ms + 1, then: Publish{}},
	"room for a channel with a rate that is behind": {do: func(b *bench) {
		b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", MaxPerSecond: 1}}})
		b.written(b.outcome(b.read(b.due(-10*ms)), confirmed))
		b.gain(1, func(p *bucket.Partition) {
			p.Checkpoint, p.Claimed = b.now.Wall-100, bucket.UpTo(b.now.Wall-10)
			p.Behind = map[postdate.Route]bucket.Position{"inbox:a": bucket.UpTo(b.now.Wall - 50)}
		})
	}, want: 750*ms + 1, then: Claim{}},
	"room for what is parked of a channel with a rate": {do: func(b *bench) {
		b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", MaxPerSecond: 1}}})
		b.read(b.due(-10 * ms))
		b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 0, Route: "inbox:a"}}})
	}, want: 750*ms + 1, then: Unpark{}},
	"a probe": {do: func(b *bench) {
		b.written(b.outcome(b.read(b.due(-10*ms)), publisher.Result{Outcome: publisher.Down}))
	}, want: 250 * ms, then: Unpark{}},
	"a probe where no other unpark may begin": {func(c *Config) { c.UnparksMax = 1 }, func(b *bench) {
		b.unpark()
		b.written(b.outcome(b.read(records("inbox:b", 1, b.now.Wall-10)...), publisher.Result{Outcome: publisher.Down}))
	}, time.Second, nil},
	"an unpark that failed": {do: func(b *bench) {
		b.step(Unparked{Unpark: b.unpark(), Err: errStore})
	}, want: 100 * ms, then: Unpark{}},
	"a look for what is parked": {func(c *Config) { c.FindEvery = 600 * ms }, func(*bench) {}, 600 * ms, FindParked{}},
	"a look for what is parked, while another one is under way": {
		func(c *Config) { c.FindEvery = 600 * ms }, func(b *bench) {
			b.after(600 * ms)
			if find := of[FindParked](b.step(fence.Tick{})); len(find) != 1 {
				b.t.Errorf("asks %+v", find)
			}
		}, time.Second, nil,
	},
	"a look for what is parked that failed": {do: func(b *bench) {
		effects := b.step(fence.Gained{Partitions: []bucket.Partition{{Bucket: 1, Token: 1, Owner: "me", Lease: "me"}}})
		b.answerAll(effects)
		b.step(ParkedFound{Buckets: of[FindParked](effects)[0].Buckets, Err: errStore})
	}, want: 100 * ms, then: FindParked{}},
}

// failSettle makes a settle of bucket 0 fail.
func (b *bench) failSettle() {
	settles := of[Settle](b.outcome(b.read(b.due(-10*ms)), confirmed))
	b.step(Settled{settles[0].Call, errStore})
}

// unpark makes the machine unpark what an earlier owner parked.
func (b *bench) unpark() store.Unpark {
	b.t.Helper()
	b.m.finding = true
	unparks := of[Unpark](b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 0, Route: "inbox:p"}}}))
	if len(unparks) != 1 {
		b.t.Fatalf("unparks: %+v", unparks)
	}
	return unparks[0].Unpark
}

// A machine asks to be woken for what waits for a time, not earlier, and does it when it is
// woken then. It asks for that also if the time has come since the last step.
func TestWake(t *testing.T) {
	for name, test := range wakes {
		t.Run(name, func(t *testing.T) {
			b := newSleeper(t, test.change)
			test.do(b)
			if got := b.m.Wake(b.now); got != test.want {
				t.Fatalf("to be woken after %s, want %s", got, test.want)
			}
			for _, passed := range []time.Duration{ms, test.want - ms, test.want, test.want + ms} {
				if got := b.m.Wake(b.now.Later(passed)); test.then != nil && got != max(test.want-passed, 0) {
					t.Errorf("%s after the step, to be woken after %s, want %s", passed, got, max(test.want-passed, 0))
				}
			}
			b.after(test.want)
			effects := b.step(fence.Tick{})
			if test.then != nil && !slices.ContainsFunc(effects, func(e Effect) bool { return fmt.Sprintf("%T", e) == fmt.Sprintf("%T", test.then) }) {
				t.Errorf("woken then: %+v, want a %T", effects, test.then)
			}
		})
	}
}

// A machine that owns nothing asks for no wake-up, and one that was woken for what it cannot do
// yet does not ask again for a time in the past.
func TestWakeForNothing(t *testing.T) {
	m := newMachine(DefaultConfig())
	now := postdate.Now{Wall: 1_000_000, Mono: time.Minute}
	m.Step(now, fence.LeaseUntil{Mono: time.Hour, Read: now})
	if got := m.Wake(now); got != time.Second {
		t.Errorf("a machine that owns nothing is to be woken after %s", got)
	}
	for after, want := range map[time.Duration]time.Duration{
		-ms: time.Second, 0: time.Second, ms: ms,
		999 * ms: 999 * ms, time.Second: time.Second, time.Hour: time.Second,
	} {
		mono, wall := waker{now, now, time.Second}, waker{now, now, time.Second}
		mono.mono(now.Mono + after)
		wall.wall(now.Wall.Add(after))
		if mono.wait != want || wall.wait != want {
			t.Errorf("for what is to be done after %s it wakes after %s and %s, want %s", after, mono.wait, wall.wait, want)
		}
	}
	far := waker{now, now, time.Second}
	far.wall(postdate.Far)
	if far.wait != time.Second {
		t.Errorf("for what is never due it wakes after %s", far.wait)
	}
}
