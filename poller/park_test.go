package poller

import (
	"fmt"
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

// What earlier owners parked is tried with one message. Once that has arrived, the rest becomes
// due, in several buckets at a time, each bucket once.
func TestParkedMessagesComeBackTogether(t *testing.T) {
	const buckets = 10
	b := newBench(t)
	var ps []bucket.Partition
	var found []store.ParkedRoute
	for i := range buckets {
		ps = append(ps, bucket.Partition{Bucket: i, Token: 1, Owner: "me", Lease: "me"})
		found = append(found, store.ParkedRoute{Bucket: i, Route: "inbox:a"})
	}
	effects := b.step(fence.Gained{Partitions: ps})
	effects = append(effects, b.answerAll(effects)...)
	find := of[FindParked](effects)[0]
	effects = b.step(ParkedFound{Buckets: find.Buckets, Found: found})
	probe := of[Unpark](effects)
	if len(probe) != 1 || probe[0].Unpark.Limit != 1 {
		t.Fatalf("the probe is %+v", probe)
	}
	unparks := of[Unpark](b.step(Unparked{Unpark: probe[0].Unpark, Moved: 1}))
	b.after(time.Duration(probe[0].Unpark.At-b.now.Wall+5) * ms)
	rec := records("inbox:a", 1, b.now.Wall-3)[0]
	tick := b.step(fence.Tick{})
	unparks = append(unparks, of[Unpark](tick)...) // another one, until the first is read
	claims := of[Claim](tick)
	results := make([]store.ClaimResult, len(claims[0].Claims))
	for i, c := range claims[0].Claims {
		results[i] = seen(c)
		if c.Bucket == probe[0].Unpark.Bucket {
			results[i].Due = []postdate.Record{rec}
		}
	}
	publishes := of[Publish](b.step(Claimed{b.m.claimCall(), results}))
	if len(publishes) != 1 {
		t.Fatalf("the probe is not published: %+v", publishes)
	}
	effects = b.step(Published{publishes[0].Batch, []publisher.Result{confirmed}})
	var in []int
	unparks = append(unparks, of[Unpark](effects)...)
	for _, u := range unparks {
		in = append(in, u.Unpark.Bucket)
	}
	slices.Sort(in)
	if len(in) < 2 || len(slices.Compact(slices.Clone(in))) != len(in) {
		t.Fatalf("unparked in %v, want several different buckets", in)
	}
	next := of[Unpark](b.step(Unparked{Unpark: unparks[1].Unpark, Moved: 3}))
	if len(next) != 1 || slices.Contains(in, next[0].Unpark.Bucket) {
		t.Errorf("after the first is done: %+v", next)
	}
}

// answerAll answers the claims among effects with no messages.
func (b *bench) answerAll(effects []Effect) (more []Effect) {
	for _, c := range of[Claim](effects) {
		results := make([]store.ClaimResult, len(c.Claims))
		for i, c := range c.Claims {
			results[i] = seen(c)
		}
		more = append(more, b.step(Claimed{b.m.claimCall(), results})...)
	}
	return more
}

// Sites with parked messages come up ordered by when to look at them; of two at the same time,
// the one queued first.
func TestParkingHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m := newMachine(DefaultConfig())
	var in [2][]*site // those that are up and those that are down, by when it was said
	for range 6_000 {
		s, from := &site{tenant: m.tenantOf("a")}, r.IntN(2)
		if all := in[from]; len(all) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(all))
			s = all[i]
			in[from] = slices.Delete(all, i, i+1)
		}
		if s.queue != nil && r.IntN(2) == 0 {
			m.unqueue(s)
		} else {
			to := r.IntN(2)
			s.down = to == 1
			m.queueFor(s, time.Duration(r.IntN(5)))
			in[to] = append(in[to], s)
		}
		for i, heap := range []siteHeap{m.tenantOf("a").returns, m.tenantOf("a").probes} {
			if len(heap) != len(in[i]) {
				t.Fatalf("%d sites wait, want %d", len(heap), len(in[i]))
			}
			if len(heap) > 0 && heap[0] != slices.MinFunc(in[i], func(a, b *site) int { return int(a.lookAt - b.lookAt) }) {
				t.Fatalf("of %d sites it is the turn of a wrong one", len(heap))
			}
		}
	}
}

// withParked is a bench with this many buckets, from 0 on. Channels that are up have one
// message each with their brokers.
func withParked(t *testing.T, buckets int, change func(*Config), up ...postdate.Route) *bench {
	b := newBench(t)
	if change != nil {
		change(&b.m.c)
	}
	var due []postdate.Record
	for _, c := range up {
		due = append(due, records(c, 1, b.now.Wall-3)...)
	}
	if n := len(of[Publish](b.owned(due))); n != len(up) {
		t.Fatalf("%d publishes, want %d", n, len(up))
	}
	for i := 1; i < buckets; i++ {
		b.answerAll(b.step(fence.Gained{Partitions: []bucket.Partition{{Bucket: i, Token: 1, Owner: "me", Lease: "me"}}}))
	}
	return b
}

// parked tells the machine that a channel has parked messages in these buckets, and returns the
// unparks that follow.
func (b *bench) parked(c postdate.Route, in ...int) []Unpark {
	var found []store.ParkedRoute
	for _, number := range in {
		found = append(found, store.ParkedRoute{Bucket: number, Route: c})
	}
	return of[Unpark](b.step(ParkedFound{Found: found}))
}

// parkedIn is how many buckets have messages parked for a channel, as far as the machine knows;
// -1: the channel is unknown.
func (b *bench) parkedIn(c postdate.Route) int {
	if known := b.m.channels[c]; known != nil {
		return known.parkedIn.len()
	}
	return -1
}

// moved answers an unpark, and returns those that follow.
func (b *bench) moved(u Unpark, n int) []Unpark {
	return of[Unpark](b.step(Unparked{Unpark: u.Unpark, Moved: n}))
}

// Messages parked during an unpark may lie behind it: its answer no longer holds for its
// channel and bucket.
func TestMoreIsParkedMeanwhile(t *testing.T) {
	for _, test := range []struct {
		channel postdate.Route
		bucket  int
		left    int // buckets in which the first channel may have some then
	}{{"inbox:a", 1, 1}, {"inbox:b", 1, 0}, {"inbox:a", 2, 1}, {"inbox:b", 2, 0}} {
		b := withParked(t, 3, nil, "inbox:a", "inbox:b")
		unparks := b.parked("inbox:a", 1)
		if len(unparks) != 1 {
			t.Fatalf("%d unparks, want 1", len(unparks))
		}
		b.parked(test.channel, test.bucket)
		b.moved(unparks[0], 0)
		if n := b.parkedIn("inbox:a"); n != test.left {
			t.Errorf("%s in bucket %d: %d buckets are left, want %d", test.channel, test.bucket, n, test.left)
		}
	}
}

// What is parked in a lost bucket is left to the next owner; what is parked elsewhere still
// comes back. A channel with nothing else is forgotten.
func TestParkedInABucketThatIsLost(t *testing.T) {
	b := withParked(t, 4, func(c *Config) { c.UnparksMax = 1 }, "inbox:a", "inbox:z")
	unpark := b.parked("inbox:z", 3)[0]
	b.parked("inbox:a", 1, 2)
	b.step(fence.Lost{Holds: holds(1)})
	if n := b.parkedIn("inbox:a"); n != 1 {
		t.Errorf("it has parked messages in %d buckets, want 1", n)
	}
	if next := b.moved(unpark, 0); len(next) != 1 || next[0].Unpark.Bucket != 2 {
		t.Errorf("what is left is not unparked: %+v", next)
	}
	if n := b.m.buckets[3].parkedFor.len(); n > 0 {
		t.Errorf("a bucket without parked messages remembers %d channels", n)
	}

	b = withParked(t, 2, nil)
	b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", Paused: true}}})
	if n := len(b.parked("inbox:a", 1)); n > 0 || b.parkedIn("inbox:a") != 1 {
		t.Fatalf("%d unparks of a channel that is paused", n)
	}
	b.step(fence.Lost{Holds: holds(1)})
	if b.parkedIn("inbox:a") >= 0 {
		t.Error("a channel without messages is remembered")
	}
}

// An unpark from an earlier ownership of a bucket says nothing wrong about the present one.
func TestABucketComesBackDuringAnUnpark(t *testing.T) {
	b := withParked(t, 2, nil)
	unpark := b.parked("inbox:a", 1)[0]
	b.step(fence.Lost{Holds: holds(1)})
	b.answerAll(b.step(fence.Gained{Partitions: []bucket.Partition{{Bucket: 1, Token: 2, Owner: "me", Lease: "me"}}}))
	b.moved(unpark, 0)
	if b.parkedIn("inbox:a") >= 0 {
		t.Error("a channel without messages is remembered")
	}
	b.after(time.Second)
	if unparks := b.parked("inbox:a", 1); len(unparks) != 1 || unparks[0].Unpark.Token != 2 {
		t.Errorf("what is found then is unparked by %+v", unparks)
	}
}

// Channels whose parked messages come back take turns, and so do the buckets of each. Messages
// of an unpark with its own time can be told from earlier ones.
func TestUnparksTakeTurns(t *testing.T) {
	b := withParked(t, 10, func(c *Config) { c.UnparksMax = 1 }, "inbox:a", "inbox:b", "inbox:c")
	unparks := b.parked("inbox:a", 9, 4, 2, 7, 3)
	b.parked("inbox:b", 8, 2)
	b.parked("inbox:c", 0)
	times := map[postdate.Time]bool{}
	var got, want []string
	for i := range 9 {
		if len(unparks) != 1 {
			t.Fatalf("%d unparks after %v", len(unparks), got)
		}
		u := unparks[0].Unpark
		got = append(got, fmt.Sprint(u.Route[6:], u.Bucket))
		want = append(want, []string{"a9", "a4", "b8", "c0", "a2", "b2", "c0", "a7", "b8"}[i])
		if times[u.At] && u.Bucket == 2 {
			t.Errorf("the time %d was given to what was parked before", u.At)
		}
		times[u.At] = u.Bucket == 2
		unparks = b.moved(unparks[0], u.Limit) // and there are more
	}
	if !slices.Equal(got, want) {
		t.Errorf("unparked %v, want %v", got, want)
	}
}

// Tenants take turns at unparks: who has one under way comes after who has none, and of two without, the
// one that waits longer comes first.
func TestUnparksOfTenantsTakeTurns(t *testing.T) {
	b := withParked(t, 10, func(c *Config) { c.UnparksMax = 3 }, "@a inbox:a", "@b inbox:b")
	under := func(want ...int) {
		t.Helper()
		if got := []int{b.m.tenantOf("a").unparks, b.m.tenantOf("b").unparks}; !slices.Equal(got, want) {
			t.Errorf("%v unparks are under way, want %v", got, want)
		}
	}
	first := b.parked("@a inbox:a", 0, 1, 2, 3)
	under(2, 0)
	b.parked("@b inbox:b", 4, 5, 6, 7)
	under(2, 1)
	var got []string
	for _, u := range first {
		for _, next := range b.moved(u, u.Unpark.Limit) {
			got = append(got, next.Unpark.Route.Tenant())
		}
	}
	under(1, 2)
	if want := []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the next unparks are of %v, want %v", got, want)
	}
	if a, b := b.m.tenantOf("a").turn, b.m.tenantOf("b").turn; a == 0 || b <= a {
		t.Errorf("the last turns are %d and %d", a, b)
	}
}

// No more unparks are under way than allowed, of one channel or of many, each in a different
// bucket.
func TestUnparksMax(t *testing.T) {
	most := DefaultConfig().UnparksMax
	b := withParked(t, 20, func(c *Config) { c.UnparkMax = 1 }, "inbox:a")
	unparks := b.parked("inbox:a", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19)
	for i, u := range unparks {
		if u.Unpark.Bucket != i {
			t.Errorf("number %d of the unparks is in bucket %d", i, u.Unpark.Bucket)
		}
	}
	if len(unparks) != most {
		t.Errorf("%d unparks of a channel are under way, want %d", len(unparks), most)
	}
	if next := b.moved(unparks[0], 0); len(next) != 1 || next[0].Unpark.Bucket != most {
		t.Errorf("after one is done: %+v", next)
	}

	b = withParked(t, 1, nil)
	n := 0
	for i := range 2 * most {
		n += len(b.parked(named("inbox:%d", i), 0))
		b.after(time.Second)
	}
	if n != most {
		t.Errorf("%d unparks are under way, want %d", n, most)
	}
}

// After a failed unpark there is a pause, and an unpark that moved nothing causes no read.
func TestAnUnparkThatFails(t *testing.T) {
	b := withParked(t, 2, nil, "inbox:a")
	unpark := b.parked("inbox:a", 1)[0]
	again := b.step(Unparked{Unpark: unpark.Unpark, Err: errStore})
	b.after(b.m.c.RetryAfter - 1)
	if again = append(again, b.step(fence.Tick{})...); len(of[Unpark](again)) > 0 {
		t.Fatalf("unparked again before %s are over", b.m.c.RetryAfter)
	}
	if w := b.m.Wake(b.now); w != 1 {
		t.Errorf("it wants to be woken after %s, want 1 ns", w)
	}
	b.after(1)
	unparks := of[Unpark](b.step(fence.Tick{}))
	if len(unparks) != 1 || unparks[0].Unpark.Limit != 1 {
		t.Fatalf("unparks after %s: %+v, want one of one message", b.m.c.RetryAfter, unparks)
	}
	effects := b.step(Unparked{Unpark: unparks[0].Unpark, Moved: 0})
	b.after(500 * ms)
	if effects = append(effects, b.step(fence.Tick{})...); len(of[Claim](effects)) > 0 {
		t.Errorf("it reads where nothing was unparked: %+v", of[Claim](effects))
	}
}

// Buckets in which an unpark failed are tried again one after the other, in at most half of the
// places and after a pause, even if claims go through there. Once one answers, the rest of its
// messages come back as usual.
func TestUnparksThatFailAreTriedInTurn(t *testing.T) {
	b := withParked(t, 6, func(c *Config) { c.UnparksMax = 2 }, "inbox:a")
	unparks := b.parked("inbox:a", 0, 1, 2, 3, 4)
	const pause = -1
	var got []int
	for range 10 {
		if len(unparks) == 0 {
			got = append(got, pause)
			b.after(b.m.c.RetryAfter)
			unparks = of[Unpark](b.step(fence.Tick{}))
		}
		u := unparks[0].Unpark
		got = append(got, u.Bucket)
		next := b.step(Unparked{Unpark: u, Err: errStore})
		unparks = append(unparks[1:], of[Unpark](next)...)
	}
	if want := []int{0, 1, 2, pause, 0, 3, pause, 1, 4, pause, 2, pause, 0, pause, 3}; !slices.Equal(got, want) || len(unparks) > 0 {
		t.Errorf("unparked in %v, want %v", got, want)
	}
	b.after(b.m.c.RetryAfter)
	well := of[Unpark](b.step(fence.Tick{}))[0].Unpark
	next := of[Unpark](b.step(Unparked{Unpark: well, Moved: 1}))
	if len(next) != 2 || next[0].Unpark.Bucket != well.Bucket || next[0].Unpark.Limit == 1 || next[1].Unpark.Bucket != 4 || next[1].Unpark.Limit != 1 {
		t.Errorf("after bucket %d answered, unparked %+v, want more there, and one message in bucket 4", well.Bucket, next)
	}
}

// No retry is made in a bucket that was lost, that has nothing parked any more or only for
// paused channels, or in which an unpark has gone through meanwhile.
func TestUnparksThatAreNotTriedAgain(t *testing.T) {
	for name, then := range map[string]func(b *bench, other Unpark){
		"lost": func(b *bench, _ Unpark) { b.step(fence.Lost{Holds: holds(1)}) },
		"paused": func(b *bench, _ Unpark) {
			b.step(Limits{Settings: []store.ChannelSettings{{Route: "inbox:a", Paused: true}, {Route: "inbox:b", Paused: true}}})
		},
		"nothing parked": func(b *bench, other Unpark) { b.step(Unparked{Unpark: other.Unpark}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := withParked(t, 2, nil, "inbox:a", "inbox:b")
			one, other := b.parked("inbox:a", 1)[0], b.parked("inbox:b", 1)[0]
			b.step(Unparked{Unpark: one.Unpark, Err: errStore})
			then(b, other)
			b.after(lookAgain)
			got := of[Unpark](b.step(fence.Tick{}))
			if name == "nothing parked" { // for one of the two, so the other one is tried as usual
				if len(got) != 1 || got[0].Unpark.Route != "inbox:a" || got[0].Unpark.Limit == 1 {
					t.Errorf("unparked %+v, want all that is parked for inbox:a", got)
				}
			} else if len(got) > 0 {
				t.Errorf("unparked %+v, want nothing", got)
			}
			if name == "lost" && b.m.retries.len() > 0 {
				t.Error("a bucket that was lost is remembered")
			}
			if name == "paused" {
				effects := b.step(Limits{})
				b.after(b.m.c.RetryAfter)
				if again := of[Unpark](append(effects, b.step(fence.Tick{})...)); len(again) == 0 {
					t.Error("nothing is tried again when they are not paused any more")
				}
			}
		})
	}
}

// Retries take no places beyond those that there are.
func TestUnparksThatFailBesideOthers(t *testing.T) {
	b := withParked(t, 4, func(c *Config) { c.UnparksMax = 2 }, "inbox:a")
	unparks := b.parked("inbox:a", 0, 1, 2)
	b.step(Unparked{Unpark: unparks[0].Unpark, Err: errStore})
	if b.after(b.m.c.RetryAfter); len(of[Unpark](b.step(fence.Tick{}))) > 0 || len(b.m.unparks) != 2 {
		t.Errorf("%d unparks are under way, want 2", len(b.m.unparks))
	}
}

// The store is asked for parked messages in new buckets, one call at a time, and repeatedly in
// all of them. What was not answered is asked again after a pause and after the others, for few
// buckets at a time.
func TestFindParked(t *testing.T) {
	b := newBench(t)
	gain := func(numbers ...int) []Effect {
		var ps []bucket.Partition
		for _, n := range numbers {
			ps = append(ps, bucket.Partition{Bucket: n, Token: 1, Owner: "me", Lease: "me"})
		}
		return b.step(fence.Gained{Partitions: ps})
	}
	asks := func(what string, effects []Effect, want ...int) {
		t.Helper()
		var got []int
		for _, e := range of[FindParked](effects) {
			got = append(got, e.Buckets...)
		}
		if slices.Sort(got); !slices.Equal(got, want) || len(of[FindParked](effects)) > 1 {
			t.Errorf("%s: it asks for %v, want %v", what, got, want)
		}
	}
	pause := func(d time.Duration) {
		t.Helper()
		b.after(d - 1)
		asks("before the pause is over", b.step(fence.Tick{}))
		b.after(1)
	}
	asks("nothing is owned", b.step(fence.Tick{}))
	asks("buckets are gained", gain(15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	begun := b.now.Mono
	asks("one more", gain(16))
	failed := func(numbers ...int) ParkedFound {
		return ParkedFound{Buckets: numbers, Err: postdate.E(postdate.KindUnavailable, "no primary")}
	}
	asks("no answer", b.step(failed(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)))
	pause(b.m.c.RetryAfter)
	asks("after the pause, others", b.step(fence.Tick{}), 16)
	asks("answered", b.step(ParkedFound{Buckets: []int{16}}), 0, 1)
	asks("answered again", b.step(ParkedFound{Buckets: []int{0, 1}}), 2, 3)
	asks("no answer", b.step(failed(2, 3)))
	pause(b.m.c.RetryAfter)
	next := b.step(fence.Tick{})
	for _, n := range []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 2, 3} {
		asks("what failed first, one at a time", next, n)
		next = b.step(ParkedFound{Buckets: []int{n}})
	}
	asks("all are answered", next)
	asks("one more", gain(17), 17)
	b.step(ParkedFound{Buckets: []int{17}})
	pause(begun + b.m.c.FindEvery - b.now.Mono)
	asks("all, now and then", b.step(fence.Tick{}), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
}

// Channels that have nothing parked are not looked at, however many come and go.
func TestNothingIsParked(t *testing.T) {
	s := newShop(t, 1, nil)
	for i := range 10 {
		s.add(0, named("x:%d", i), 3, -ms)
	}
	s.run(200 * ms)
	if len(s.arrived) != 10 || s.looked() > 0 {
		t.Errorf("%v arrived, and %d sites are looked at", s.arrived, s.looked())
	}
}

// What is found in a bucket that is no longer owned here hides nothing that is found in others.
// An unknown channel is tried with one message.
func TestFoundInABucketThatIsLost(t *testing.T) {
	b := withParked(t, 2, nil)
	unparks := of[Unpark](b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 7, Route: "inbox:b"}, {Bucket: 1, Route: "inbox:a"}}}))
	if len(unparks) != 1 || unparks[0].Unpark.Route != "inbox:a" || unparks[0].Unpark.Limit != 1 {
		t.Errorf("unparked: %+v", unparks)
	}
	if b.parkedIn("inbox:b") >= 0 {
		t.Error("a channel without messages is remembered")
	}
}
