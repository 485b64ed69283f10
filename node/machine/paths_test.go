package machine

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// wants fails the test unless these are all the effects of their kind that were seen.
func wants[E Effect](r *rig, when string, want ...E) {
	r.t.Helper()
	if got := took[E](r); !slices.EqualFunc(got, want, func(a, b E) bool { return reflect.DeepEqual(a, b) }) {
		r.t.Errorf("%s: %+v, want %+v", when, got, want)
	}
}

// at steps the machine at a given time, and not in between.
func (r *rig) at(mono time.Duration) {
	r.now = r.now.Later(mono - r.now.Mono)
	r.step(fence.Tick{})
}

// lend gives a bucket to another node, whose lease moves.
func (r *rig) lend(b int) {
	r.leases = []bucket.Lease{{ID: LeaseID("you", "7"), Renewals: 1, Lasts: time.Hour}}
	r.store[b] = bucket.Partition{Bucket: b, Token: r.store[b].Token + 1, Owner: "you", Lease: LeaseID("you", "7")}
}

func withBroker(c *Config) { c.Broker = true }

// While the store takes its time to release a bucket, the broker's answer does not bring the
// bucket to the poller.
func TestTheBrokerAnswersWhileABucketGoesBack(t *testing.T) {
	r := newRig(t, withBroker)
	r.hangs = true
	r.step(fence.Tick{})
	asked := took[KeepOut](r)
	if len(asked) != 1 {
		t.Fatalf("the broker was told %+v", asked)
	}
	r.step(Leave{})
	if len(took[fence.GiveBack](r)) != 1 {
		t.Fatal("nothing is given back")
	}
	r.step(KeptOut{Holds: asked[0].Holds})
	for b := range 4 {
		if token := r.m.Token(b); token != 0 {
			t.Errorf("bucket %d is worked on under token %d while it goes back", b, token)
		}
	}
}

// The broker is told immediately of gained buckets, waits are kept to the moment, and one
// bucket's wait is not changed by another bucket.
func TestTheBrokersTimes(t *testing.T) {
	r := newRig(t, withBroker)
	r.lend(1)
	start := r.now.Mono
	r.step(fence.Tick{})
	asked := took[KeepOut](r)
	if len(asked) != 1 || len(asked[0].Holds) != 3 {
		t.Fatalf("at once the broker was told %+v, want three buckets", asked)
	}
	r.at(start + brokerFirst - 1)
	if r.m.Token(0) != 0 {
		t.Error("worked on before the broker had its time")
	}
	r.at(start + brokerFirst)
	if r.m.Token(0) == 0 {
		t.Error("not worked on when the broker had its time")
	}
	r.step(KeptOut{Holds: asked[0].Holds, Err: errors.New("down")})
	again := r.now.Mono + brokerAgain
	r.now = r.now.Later(brokerAgain / 2)
	r.store[1].Owner, r.store[1].Lease = "", ""
	r.step(fence.Hint{})
	one := took[KeepOut](r)
	if len(one) != 1 || len(one[0].Holds) != 1 || one[0].Holds[0].Bucket != 1 {
		t.Fatalf("of bucket 1 the broker was told %+v", one)
	}
	r.at(again - 1)
	wants[KeepOut](r, "before the pause is over")
	r.at(again)
	wants(r, "after the pause", asked[0])
	r.step(KeptOut{Holds: asked[0].Holds})
	r.step(KeptOut{Holds: one[0].Holds})

	looks := r.looks
	r.step(TakenAtBroker{Bucket: 2})
	if r.looks != looks+1 {
		t.Error("the records are not read at once when another node took a bucket at the broker")
	}
	said := r.now.Mono
	r.at(said + brokerAgain - 1)
	wants[KeepOut](r, "before the look could tell")
	r.at(said + brokerAgain)
	wants(r, "then", KeepOut{asked[0].Holds[1:2]})
}

// The broker hears once of every bucket that is given back or lost, and its answers for buckets
// lost meanwhile change nothing for the others.
func TestTheBrokerHearsWhatIsGivenUp(t *testing.T) {
	r := newRig(t, withBroker)
	r.step(fence.Tick{})
	asked := took[KeepOut](r)
	wants[GiveUp](r, "after what was gained")
	r.lend(0)
	r.step(fence.Hint{Buckets: []int{0}})
	wants(r, "after a bucket was lost", fence.Lost{Holds: []store.Hold{asked[0].Holds[0]}})
	wants(r, "after a bucket was lost", GiveUp{[]int{0}})
	r.step(KeptOut{Holds: asked[0].Holds})
	for b := range 4 {
		if worked := r.m.Token(b) != 0; worked != (b > 0) {
			t.Errorf("after the broker's answer bucket %d is worked on: %v", b, worked)
		}
	}
	r.run(time.Second)
	wants[GiveUp](r, "while nothing changes")
	r.step(Leave{})
	r.run(time.Second)
	var gave []int
	for _, g := range took[GiveUp](r) {
		gave = append(gave, g.Buckets...)
	}
	slices.Sort(gave)
	if !slices.Equal(gave, []int{1, 2, 3}) {
		t.Errorf("at the end the broker hears that %v are given up", gave)
	}
	wants[GiveUp](r, "after that")
}

// The nodes that are to own the buckets hear that these are free once that is written, and not
// earlier; other nodes do not.
func TestReleased(t *testing.T) {
	r := newRig(t, withBroker)
	for _, node := range []string{"you", "she"} {
		r.leases = append(r.leases, bucket.Lease{ID: LeaseID(node, "7"), Renewals: 1, Lasts: time.Hour})
	}
	r.step(fence.Tick{})
	r.step(KeptOut{Holds: took[KeepOut](r)[0].Holds})
	r.hangs = true
	r.step(Leave{})
	gave := took[fence.GiveBack](r)
	if len(gave) != 1 || len(gave[0].Holds) != 4 {
		t.Fatalf("given back: %+v, want all four at once", gave)
	}
	wants[Released](r, "before the store has answered")
	r.step(fence.GaveBack{Holds: gave[0].Holds, Err: errors.New("down")})
	wants[Released](r, "after an error")
	wants[GiveUp](r, "after an error")
	r.step(fence.GaveBack{Holds: gave[0].Holds})
	wants[Released](r, "when nobody else is there")
	wants(r, "when it is written", GiveUp{[]int{0, 1, 2, 3}})

	for others, want := range map[string]Released{"you": {[]string{"you"}}, "she you": {[]string{"she", "you"}}} {
		var members []Member
		for _, node := range strings.Fields(others) {
			members = append(members, Member{node, LeaseID(node, "7")})
		}
		r.step(Members{members})
		r.step(fence.GaveBack{Holds: gave[0].Holds})
		wants(r, "to "+others, want)
	}
	owner := r.m.share.owners[2]
	r.step(fence.GaveBack{Holds: gave[0].Holds[2:3]})
	wants(r, "of one bucket", Released{[]string{owner}})
}

// Gossip changes the share: a node that joins is given buckets, and they come back when it is
// gone.
func TestMembersChangeTheShare(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Buckets = 16 })
	r.leases = []bucket.Lease{{ID: LeaseID("you", "7"), Renewals: 1, Lasts: time.Hour}}
	r.step(fence.Tick{})
	if held := r.m.Status().Held; held != 16 {
		t.Fatalf("alone, it owns %d of 16", held)
	}
	r.step(Members{[]Member{{"you", LeaseID("you", "7")}}})
	if held := r.m.Status().Held; held < 6 || held > 10 {
		t.Errorf("one of two nodes owns %d of 16", held)
	}
	r.step(Members{})
	if held := r.m.Status().Held; held != 16 {
		t.Errorf("alone again, it owns %d of 16", held)
	}
}

// A node that shares its store wants no bucket before it has read the leases; one that has the
// store alone immediately wants all.
func TestWhenTheFirstShareIsWanted(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		r := newRig(t, func(c *Config) { c.Fence.Exclusive = exclusive })
		r.m.Step(r.now, fence.Tick{})
		if told := r.m.share.told; told != exclusive {
			t.Errorf("exclusive %v: wants its share before the first look: %v", exclusive, told)
		}
		if r.m.Board().Looked() {
			t.Error("it says that it looked")
		}
		effects := r.m.Step(r.now, fence.Renewed{Began: r.now, WallEnded: r.now.Wall})
		if !slices.ContainsFunc(effects, func(e Effect) bool { _, look := e.(fence.Look); return look }) {
			t.Fatalf("with a lease it does not look: %+v", effects)
		}
		effects = r.m.Step(r.now, fence.Saw{Began: r.now.Mono, Partitions: r.store})
		if !r.m.Board().Looked() {
			t.Error("it does not say that it looked")
		}
		if !exclusive { // what it saw came before its share
			effects = r.m.Step(r.now, fence.Saw{Began: r.now.Mono, Partitions: r.store})
		}
		takes := 0
		for _, e := range effects {
			if take, ok := e.(fence.Take); ok {
				takes += len(take.Wants)
			}
		}
		if takes != 4 {
			t.Errorf("exclusive %v: after the look it takes %d buckets, want 4", exclusive, takes)
		}
	}
}

// If the machine is stepped when it asks for it, and with ticks alone, it asks at most a few
// times for each moment, and looks for messages at the configured pace.
func TestTicksAreEnough(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(time.Second)
	took[poller.Claim](r)
	steps := 0
	for end := r.now.Mono + 5*time.Second; r.now.Mono < end; steps++ {
		if steps > 5_000 {
			t.Fatalf("%d steps in %v", steps, 5*time.Second-(end-r.now.Mono))
		}
		r.now = r.now.Later(r.m.Wake(r.now))
		r.step(fence.Tick{})
	}
	if claims := len(took[poller.Claim](r)); claims < 2 {
		t.Errorf("%d claims in five seconds, want at least those of the sweep", claims)
	}
}

// The wake-up is the earliest that any part asks for: what is due between two renewals is
// claimed in time.
func TestWakesForTheFirstThatAsks(t *testing.T) {
	r := newRig(t, nil)
	r.next = r.now.Wall.Add(1230 * time.Millisecond)
	r.step(fence.Tick{})
	for claimed := false; !claimed; {
		r.now = r.now.Later(r.m.Wake(r.now))
		r.step(fence.Tick{})
		for _, e := range took[poller.Claim](r) {
			claimed = claimed || slices.ContainsFunc(e.Claims, func(c store.Claim) bool { return c.To.Time > r.next })
		}
		if r.now.Wall > r.next {
			t.Fatalf("%v after a message is due, it is not claimed", r.now.Wall.Sub(r.next))
		}
	}
}

// If no broker keeps former owners out, none is told anything.
func TestWithoutABroker(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.lend(0)
	r.step(fence.Hint{})
	r.step(Leave{})
	r.run(time.Second)
	wants[KeepOut](r, "without a broker")
	wants[GiveUp](r, "without a broker")
}

// A wall clock that is set is checked by a renewal that begins in the same step.
func TestAClockThatIsSetIsJudgedAtOnce(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(time.Second)
	r.now.Wall = r.now.Wall.Add(time.Minute)
	set, renews := 0, 0
	for _, e := range r.m.Step(r.now, fence.Tick{}) {
		switch e.(type) {
		case fence.ClockSet:
			set++
		case fence.Renew:
			renews++
		}
	}
	if set != 1 || renews != 1 {
		t.Errorf("%d words that the clock was set and %d renewals, want one of each", set, renews)
	}
}

// If a claim is refused, somebody else has the bucket: it is lost immediately.
func TestARefusedClaimLosesItsBucket(t *testing.T) {
	r := newRig(t, nil)
	r.claims = postdate.E(postdate.KindFenced, "another owner")
	r.step(fence.Tick{})
	r.run(10 * time.Millisecond)
	if fenced := took[fence.Fenced](r); len(fenced) != 1 || len(fenced[0].Holds) != 4 {
		t.Errorf("the log hears of %+v, want all four buckets", fenced)
	}
	if lost := took[fence.Lost](r); len(lost) != 1 || len(lost[0].Holds) != 4 {
		t.Errorf("lost are %+v, want all four buckets", lost)
	}
	if held := r.m.Status().Held; held != 0 {
		t.Errorf("%d are still held", held)
	}
}

// The same events at the same times give the same effects, in the same order.
func TestSameEventsSameEffects(t *testing.T) {
	play := func() (all []Effect) {
		r := newRig(t, func(c *Config) { c.Broker, c.Buckets = true, 32 })
		r.step(fence.Tick{})
		r.run(brokerFirst + time.Second)
		r.step(Leave{})
		r.run(time.Second)
		return r.seen
	}
	first := play()
	for range 5 {
		if again := play(); !reflect.DeepEqual(again, first) {
			t.Fatalf("two runs, two sequences of effects:\n%+v\n%+v", first, again)
		}
	}
	found := false
	for _, e := range first {
		if find, ok := e.(poller.FindParked); ok && !slices.IsSorted(find.Buckets) {
			t.Errorf("buckets come as %v", find.Buckets)
		} else if ok {
			found = true
		}
	}
	if !found {
		t.Error("nothing parked is looked for")
	}
}

// After a full page was deleted, the next follows immediately; after one that was not full, or
// failed, at the next usual look.
func TestPagesOfExpiry(t *testing.T) {
	for name, test := range map[string]struct {
		ended Expired
		more  int
	}{
		"full":     {Expired{Count: expirePage}, 1},
		"not full": {Expired{Count: expirePage - 1}, 0},
		"failed":   {Expired{Count: expirePage, Err: errors.New("down")}, 0},
	} {
		r := newRig(t, nil)
		r.step(fence.Tick{})
		for len(took[Expire](r)) == 0 {
			r.run(10 * time.Millisecond)
		}
		asked := r.now.Mono
		r.step(test.ended)
		if more := took[Expire](r); len(more) != test.more {
			t.Errorf("%s: %d more at once, want %d", name, len(more), test.more)
		}
		if test.more > 0 {
			continue
		}
		for len(took[Expire](r)) == 0 && r.now.Mono < asked+2*expireEvery {
			r.run(10 * time.Millisecond)
		}
		if pause := r.now.Mono - asked; pause < expireEvery-20*time.Millisecond || pause > expireEvery+20*time.Millisecond {
			t.Errorf("%s: the next look follows after %v, want %v", name, pause, expireEvery)
		}
	}
}

// A failed renewal says nothing about the store's clock.
func TestAFailedRenewalSaysNothingOfTheClock(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(time.Second)
	r.step(fence.Renewed{Began: r.now, WallEnded: r.now.Wall, Store: r.now.Wall.Add(1000 * time.Hour), Err: errors.New("down")})
	by := r.m.expiry.before(r.now, 0)
	if off := by.Sub(r.now.Wall); off > time.Second || off < -time.Second {
		t.Errorf("ages are counted by a time that is off by %v", off)
	}
}

// At the very end of the lease nothing is deleted.
func TestNothingExpiresAtTheEndOfTheLease(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(expireEvery - time.Second)
	r.silent = true
	end := r.m.Status().Lease
	if end <= r.now.Mono+time.Second {
		t.Fatalf("the lease ends in %v", end-r.now.Mono)
	}
	r.at(end - 1)
	if n := len(took[Expire](r)); n != 1 {
		t.Errorf("just before the lease ends, %d deletions, want 1", n)
	}
	r = newRig(t, nil)
	r.step(fence.Tick{})
	r.run(expireEvery - time.Second)
	r.silent = true
	r.at(r.m.Status().Lease)
	if n := len(took[Expire](r)); n != 0 {
		t.Errorf("when the lease has ended, %d deletions", n)
	}
}
