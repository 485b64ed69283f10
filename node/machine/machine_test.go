package machine

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// rig is a machine whose store answers immediately.
type rig struct {
	t      *testing.T
	m      *Machine
	now    postdate.Now
	skew   time.Duration // of the wall clock against the store's
	store  []bucket.Partition
	leases []bucket.Lease

	silent  bool // renewals are not answered
	noClock bool // the store has none
	expires bool // deletions are answered
	hangs   bool // releases are not answered

	claims error                     // what all claims end with
	due    map[int][]postdate.Record // what claims find in each bucket
	next   postdate.Time             // what scans say of the first message beyond; 0: there is none
	looks  int                       // that were answered

	seen []Effect // what it did not answer
}

func newRig(t *testing.T, change func(*Config)) *rig {
	c := Config{
		Fence: fence.DefaultConfig("me", LeaseID("me", "1")), Poller: poller.DefaultConfig(), Buckets: 4,
		Retention: time.Hour, InboxRetention: time.Hour,
	}
	if change != nil {
		change(&c)
	}
	r := &rig{t: t, m: New(c, func() float64 { return 0 }), now: postdate.Now{Wall: 1_900_000_000_000, Mono: time.Minute}}
	for b := range c.Buckets {
		r.store = append(r.store, bucket.Partition{Bucket: b, Token: 1})
	}
	return r
}

// step feeds an event, answers what a store would, and keeps the other effects.
func (r *rig) step(ev Event) {
	for _, e := range r.m.Step(r.now, ev) {
		switch e := e.(type) {
		case fence.Look:
			r.looks++
			saw := fence.Saw{Began: r.now.Mono, Leases: append(r.leases, bucket.Lease{ID: LeaseID("me", "1")})}
			for _, b := range e.Buckets {
				saw.Partitions = append(saw.Partitions, r.store[b])
			}
			r.step(saw)
		case fence.Renew:
			if !r.silent {
				at := r.now.Wall.Add(-r.skew)
				if r.noClock {
					at = 0
				}
				r.step(fence.Renewed{Began: r.now, WallEnded: r.now.Wall, Store: at})
			}
		case fence.Take:
			var took fence.Took
			for _, want := range e.Wants {
				p, ok := r.store[want.Bucket].Acquire(want.SeenToken, want.Owner, want.Lease)
				r.store[want.Bucket] = p
				took.Results = append(took.Results, store.Acquired{Partition: p, OK: ok})
			}
			r.step(took)
		case fence.GiveBack:
			if r.hangs {
				r.seen = append(r.seen, e)
				continue
			}
			for _, hold := range e.Holds {
				r.store[hold.Bucket], _ = r.store[hold.Bucket].Release(hold.Token)
			}
			r.step(fence.GaveBack{Holds: e.Holds})
		case poller.Claim:
			results := make([]store.ClaimResult, len(e.Claims))
			for i, c := range e.Claims {
				results[i] = store.ClaimResult{Err: r.claims, Due: r.due[c.Bucket], To: c.To, Ended: c.To, Complete: true, Next: postdate.Far}
				if r.next >= c.To.Time {
					results[i].Next = r.next
				}
			}
			r.seen = append(r.seen, e)
			r.step(poller.Claimed{Call: e.Call, Results: results})
		case poller.FindParked:
			r.seen = append(r.seen, e)
			r.step(poller.ParkedFound{Buckets: e.Buckets})
		case Expire:
			r.seen = append(r.seen, e)
			if r.expires {
				r.step(Expired{})
			}
		default:
			r.seen = append(r.seen, e)
		}
	}
}

// fallDue lets a message fall due in each of these buckets.
func (r *rig) fallDue(at postdate.Time, buckets ...int) {
	r.due = map[int][]postdate.Record{}
	var nudges []poller.Nudge
	for _, b := range buckets {
		m := postdate.Message{Key: postdate.Key{Bucket: b, ScheduleID: "m"}, Channel: "inbox:x", ExecutionTime: at}
		r.due[b] = []postdate.Record{{Message: m, State: postdate.NewState(&m, 1)}}
		nudges = append(nudges, poller.Nudge{Bucket: b, At: at})
	}
	r.step(poller.Nudged{Nudges: nudges})
}

// run lets time pass.
func (r *rig) run(d time.Duration) {
	for end := r.now.Mono + d; r.now.Mono < end; {
		r.now = r.now.Later(max(min(r.m.Wake(r.now), end-r.now.Mono), time.Millisecond))
		r.step(fence.Tick{})
	}
}

// took removes and returns the effects of a kind from those seen.
func took[E Effect](r *rig) (found []E) {
	var rest []Effect
	for _, e := range r.seen {
		if e, ok := e.(E); ok {
			found = append(found, e)
			continue
		}
		rest = append(rest, e)
	}
	r.seen = rest
	return found
}

// A bucket that is to be handed over while the broker is still being told of it goes back
// immediately, and is never worked on: not when the broker answers, nor later.
func TestDrainWhileTheBrokerIsTold(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Broker = true })
	r.step(fence.Tick{})
	r.run(10 * time.Millisecond)
	asked := took[KeepOut](r)
	if len(asked) != 1 || len(asked[0].Holds) != 4 {
		t.Fatalf("the broker was told %+v, want all four buckets at once", asked)
	}
	r.step(Leave{})
	if held := r.m.Status().Held; held != 0 {
		t.Fatalf("%d buckets are not given back", held)
	}
	if gave := took[GiveUp](r); len(gave) == 0 {
		t.Error("the broker does not hear that the buckets are given up")
	}
	r.step(KeptOut{Holds: asked[0].Holds})
	r.run(5 * time.Second)
	for b := range 4 {
		if token := r.m.Token(b); token != 0 {
			t.Errorf("bucket %d is worked on under token %d after it was given back", b, token)
		}
	}
	if claims := took[poller.Claim](r); len(claims) > 0 {
		t.Errorf("claimed: %+v", claims)
	}
}

// A broker that does not answer, or refuses, holds up only its own messages, and is told again
// until it has done it.
func TestABrokerThatDoesNotAnswer(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Broker = true })
	r.step(fence.Tick{})
	r.run(brokerFirst - 10*time.Millisecond)
	if r.m.Token(0) != 0 {
		t.Error("worked on before the broker had its time")
	}
	r.run(20 * time.Millisecond)
	if r.m.Token(0) == 0 {
		t.Error("not worked on though the broker had its time")
	}
	asked := took[KeepOut](r)
	if len(asked) != 1 {
		t.Fatalf("told %d times while it does not answer", len(asked))
	}
	r.step(KeptOut{Holds: asked[0].Holds, Err: errors.New("down")})
	r.run(brokerAgain + time.Millisecond)
	again := took[KeepOut](r)
	if len(again) != 1 || !reflect.DeepEqual(again[0], asked[0]) {
		t.Fatalf("after an error the broker is told %+v", again)
	}
	r.step(KeptOut{Holds: again[0].Holds})
	r.run(time.Minute)
	if more := took[KeepOut](r); len(more) > 0 {
		t.Errorf("told again after it was done: %+v", more)
	}
	r.step(TakenAtBroker{Bucket: 2})
	r.run(brokerAgain + time.Millisecond)
	if more := took[KeepOut](r); len(more) != 1 || len(more[0].Holds) != 1 || more[0].Holds[0].Bucket != 2 {
		t.Errorf("after a zombie took bucket 2 at the broker, it is told %+v", more)
	}
}

// The lease is renewed even if a driver that is busy with confirms sends no Tick.
func TestRenewsWithoutATick(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	for range 10_000 {
		r.now = r.now.Later(time.Millisecond)
		r.step(poller.Nudged{})
	}
	if lease := r.m.Status().Lease; lease < r.now.Mono || r.m.Status().Held != 4 {
		t.Errorf("the lease ended %s ago", r.now.Mono-lease)
	}
}

// A look that shows several buckets to be lost ends the work on all of them: the loss of one
// does not cause another to be handed over.
func TestBucketsThatAreLostTogether(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(50 * time.Millisecond)
	due := r.now.Wall + 30
	r.fallDue(due, 0, 1, 2, 3)
	for r.now.Wall < due {
		r.now = r.now.Later(time.Millisecond)
		r.step(fence.Tick{})
	}
	if hand, published := r.m.View(r.now).Hand, len(took[poller.Publish](r)); hand != 4 || published > 0 {
		t.Fatalf("%d messages are in hand and %d published, want 4 and none", hand, published)
	}
	r.now = r.now.Later(time.Millisecond) // they are due
	for i := range r.store {
		r.store[i].Owner, r.store[i].Token = "you", r.store[i].Token+1
	}
	r.step(fence.Saw{Began: r.now.Mono, Partitions: r.store})
	if published := len(took[poller.Publish](r)); published > 0 || r.m.Status().Held > 0 {
		t.Errorf("%d batches are published of buckets that another node has, %d buckets held", published, r.m.Status().Held)
	}
}

// The log of a message's attempts names the node by the name that others know it by.
func TestAttemptsNameTheNode(t *testing.T) {
	r := newRig(t, nil)
	r.step(fence.Tick{})
	r.run(50 * time.Millisecond)
	r.fallDue(r.now.Wall, 0)
	r.run(time.Second)
	for _, e := range took[poller.Publish](r) {
		r.step(poller.Published{Batch: e.Batch, Results: []publisher.Result{{Outcome: publisher.Refused, Reason: "400"}}})
	}
	settles := took[poller.Settle](r)
	if len(settles) != 1 || settles[0].Settlements[0].Node != "me" {
		t.Errorf("an attempt is settled as %+v", settles)
	}
}

// A node that owns every bucket gives all of them back when it leaves.
func TestLeavesWithManyBuckets(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Buckets = postdate.BucketsMax })
	r.step(fence.Tick{})
	r.run(200 * time.Millisecond)
	if held := r.m.Status().Held; held != postdate.BucketsMax {
		t.Fatalf("%d buckets are held", held)
	}
	r.step(Leave{})
	if held := r.m.Status().Held; held > 0 {
		t.Errorf("%d buckets are held after it left", held)
	}
}

// BenchmarkLeave measures the cost per bucket when a node with many buckets leaves: it must be
// flat, because no lease is renewed within a step.
func BenchmarkLeave(b *testing.B) {
	for _, buckets := range []int{64, 1_024, postdate.BucketsMax} {
		b.Run(fmt.Sprint(buckets), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				r := newRig(nil, func(c *Config) { c.Buckets = buckets })
				r.step(fence.Tick{})
				r.run(200 * time.Millisecond)
				b.StartTimer()
				r.step(Leave{})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*buckets), "ns/bucket")
		})
	}
}

// If a zombie takes a bucket at the broker while the broker is still being told of it, among
// others, that is not forgotten when the answer comes: its channels would stay down.
func TestTakenWhileTheBrokerIsTold(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Broker = true })
	r.step(fence.Tick{})
	r.run(brokerFirst + 10*time.Millisecond)
	asked := took[KeepOut](r)
	r.step(TakenAtBroker{Bucket: 2})
	r.run(10 * time.Millisecond)
	r.step(KeptOut{Holds: asked[0].Holds})
	r.run(time.Minute)
	if more := took[KeepOut](r); len(more) != 1 || len(more[0].Holds) != 1 || more[0].Holds[0].Bucket != 2 {
		t.Errorf("the broker is told %+v, want bucket 2 once", more)
	}
}

// A node that shares its store wants nothing before it knows who else is there.
func TestWantsNothingBeforeItLooked(t *testing.T) {
	r := newRig(t, nil)
	effects := r.m.Step(r.now, fence.Tick{})
	for _, e := range append(effects, r.m.Step(r.now, Members{})...) {
		if take, ok := e.(fence.Take); ok {
			t.Errorf("wants %+v", take)
		}
	}
}

// The buckets are divided among the nodes that gossip knows and whose own leases move. A member
// that names another node's lease gets none, because nobody would own them.
func TestRing(t *testing.T) {
	alive := []string{"a/1", "b/7", "c/x/2", "me/1"}
	for name, test := range map[string]struct {
		members []Member
		want    []string
	}{
		"alone":                      {nil, []string{"me"}},
		"known, and its lease moves": {[]Member{{"b", "b/7"}, {"a", "a/1"}}, []string{"a", "b", "me"}},
		"its lease stands still":     {[]Member{{"a", "a/2"}}, []string{"me"}},
		"names another one's lease":  {[]Member{{"ghost", "b/7"}, {"b", "b/7"}}, []string{"b", "me"}},
		"names a lease of a longer name": {[]Member{{"c", "c/x/2"}, {"c/x", "c/x/2"}},
			[]string{"c/x", "me"}},
		"names no lease": {[]Member{{"a", ""}}, []string{"me"}},
	} {
		if got := ringOf("me", test.members, alive); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Deletion goes by the store's clock, and happens only while the node has its lease and its own
// clock is right.
func TestExpiresByTheStoresClock(t *testing.T) {
	r := newRig(t, nil)
	r.skew = 900 * time.Millisecond // not too much
	r.step(fence.Tick{})
	r.run(expireEvery - time.Millisecond)
	if early := took[Expire](r); len(early) > 0 {
		t.Fatalf("deletes right after the start: %+v", early)
	}
	r.run(time.Second)
	first := took[Expire](r)
	if len(first) != 1 {
		t.Fatalf("%d looks for what is past its retention, want one", len(first))
	}
	e, by := first[0].Expiry, r.now.Wall.Add(-r.skew)
	if late := e.SettledBefore.Sub(by.Add(-time.Hour)); late > 0 || late < -2*time.Second || e.DeliveredBefore != e.SettledBefore {
		t.Errorf("deletes what ended before %d and %d, which is %s later than the store's clock allows", e.SettledBefore, e.DeliveredBefore, late)
	}
	if len(e.Buckets) != 4 || e.Limit != expirePage {
		t.Errorf("deletes %+v", e)
	}
	r.run(time.Minute)
	if more := took[Expire](r); len(more) > 0 {
		t.Fatalf("two deletions at a time: %+v", more)
	}
	r.step(Expired{Count: expirePage})
	if more := took[Expire](r); len(more) != 1 {
		t.Errorf("after a full page there are %d more, want one at once", len(more))
	}
	r.step(Expired{})

	r.skew = 48 * time.Hour
	r.run(time.Minute)
	if wrong := took[Expire](r); len(wrong) > 0 {
		t.Errorf("deletes by a clock that is 48 h ahead: %+v", wrong)
	}
	r.skew = 0
	r.run(time.Minute)
	if took[Expire](r); r.m.Status().Held != 4 {
		t.Fatalf("owns %d buckets", r.m.Status().Held)
	}
	r.step(Expired{})
	r.silent = true
	r.run(time.Minute)
	took[Expire](r)
	r.step(Expired{})
	r.run(time.Minute)
	if wrong := took[Expire](r); len(wrong) > 0 {
		t.Errorf("deletes without a lease: %+v", wrong)
	}
}

// In a store that has no clock but the node's, nothing is deleted until that clock has run for
// a while without being set, after a start and after each time it is set.
func TestExpiresByAClockThatIsBelieved(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Fence.Exclusive = true })
	r.noClock, r.expires = true, true
	r.step(fence.Tick{})
	want := func(when string, some bool) {
		t.Helper()
		got := took[Expire](r)
		if len(got) > 0 != some {
			t.Errorf("%s: %d deletions", when, len(got))
		}
		for _, e := range got {
			if late := e.Expiry.SettledBefore.Sub(r.now.Wall.Add(-time.Hour)); late > 0 || late < -time.Minute {
				t.Errorf("%s it deletes what ended %s later than an hour ago", when, late)
			}
		}
	}
	r.run(believeAfter - time.Second)
	want("before the clock is believed", false)
	r.run(time.Minute)
	want("then", true)
	r.now.Wall = r.now.Wall.Add(48 * time.Hour)
	r.run(believeAfter - time.Second)
	want("after it jumped ahead", false)
	r.now.Wall = r.now.Wall.Add(-48 * time.Hour)
	r.run(believeAfter - time.Second)
	want("after it was set back", false)
	r.run(time.Minute)
	want("long after", true)
}

// A clock is trusted for each retention separately: that inboxes are kept for only a second is
// no reason to delete, by a clock that jumped, what must be kept for long.
func TestAShortRetentionSharesNoBelief(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Fence.Exclusive, c.InboxRetention = true, time.Second })
	r.noClock, r.expires = true, true
	r.step(fence.Tick{})
	r.run(time.Hour)
	took[Expire](r)
	r.now.Wall = r.now.Wall.Add(48 * time.Hour)
	r.run(believeAfter - time.Second)
	found := took[Expire](r)
	if len(found) == 0 {
		t.Error("what is kept for a second is not deleted for ten minutes")
	}
	for _, e := range found {
		if e.Expiry.SettledBefore > 0 || e.Expiry.DeliveredBefore == 0 {
			t.Fatalf("deletes %+v", e.Expiry)
		}
	}
}

// Before the first renewal nobody notices that the clock is set: the time until then does not
// make it trusted.
func TestAClockThatIsSetBeforeTheFirstRenewal(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Fence.Exclusive = true })
	r.noClock, r.expires, r.silent = true, true, true
	r.step(fence.Tick{})
	r.run(believeAfter + time.Second)
	r.now.Wall = r.now.Wall.Add(48 * time.Hour)
	r.silent = false
	r.step(fence.Renewed{Began: r.now, WallEnded: r.now.Wall})
	r.run(believeAfter - time.Second)
	if early := took[Expire](r); len(early) > 0 {
		t.Errorf("deletes %+v", early[0].Expiry)
	}
	r.run(time.Minute)
	if len(took[Expire](r)) == 0 {
		t.Error("deletes nothing later")
	}
}

// If a clock is set again while no renewal is answered, that is noticed as it was the first
// time: the time since then does not make it trusted.
func TestAClockThatIsSetAgain(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Fence.Exclusive = true })
	r.noClock, r.expires = true, true
	r.step(fence.Tick{})
	r.run(time.Hour)
	took[Expire](r)
	r.silent = true
	r.now.Wall = r.now.Wall.Add(time.Second)
	r.run(believeAfter)
	r.now.Wall = r.now.Wall.Add(48 * time.Hour)
	r.run(time.Second)
	r.silent = false
	r.step(fence.Renewed{Began: r.now, WallEnded: r.now.Wall})
	r.run(believeAfter - 2*time.Second)
	if early := took[Expire](r); len(early) > 0 {
		t.Errorf("deletes %+v", early[0].Expiry)
	}
	r.run(time.Minute)
	if len(took[Expire](r)) == 0 {
		t.Error("deletes nothing later")
	}
}

// A clock that was set is not trusted even if the end of a deletion, or a look, is the first
// event after that.
func TestAClockThatIsSetWhileItDeletes(t *testing.T) {
	for _, first := range []Event{Expired{Count: expirePage}, fence.Saw{}} {
		r := newRig(t, func(c *Config) { c.Fence.Exclusive = true })
		r.noClock = true
		r.step(fence.Tick{})
		r.run(time.Hour)
		r.step(Expired{})
		if len(took[Expire](r)) != 2 {
			t.Fatal("nothing is deleted")
		}
		if _, page := first.(Expired); !page { // the next deletion is due just then
			r.step(Expired{})
			r.run(r.m.expiry.next - r.now.Mono - time.Millisecond)
		}
		r.now = r.now.Later(time.Millisecond)
		r.now.Wall = r.now.Wall.Add(48 * time.Hour)
		r.step(first)
		r.step(Expired{Count: expirePage})
		r.run(believeAfter - time.Second)
		if early := took[Expire](r); len(early) > 0 {
			t.Errorf("after %+v it deletes %+v", first, early[0].Expiry)
		}
	}
}

// Only nudges that are earlier than what their bucket waits for wake the machine. Each bucket's
// earliest is kept, and none is lost while a scan is under way.
func TestBoard(t *testing.T) {
	b := newBoard(Config{Buckets: 3})
	if b.Nudge(poller.Nudge{Bucket: 0, At: 1}) {
		t.Error("woken for a bucket that is not owned")
	}
	b.setHorizon(poller.Horizon{Bucket: 0, Before: 100})
	b.setHorizon(poller.Horizon{Bucket: 1, Before: postdate.Far})
	for _, n := range []poller.Nudge{{Bucket: 0, At: 100}, {Bucket: 0, At: 101}, {Bucket: -1, At: 1}, {Bucket: 3, At: 1}} {
		if b.Nudge(n) {
			t.Errorf("woken by %+v", n)
		}
	}
	if !b.Nudge(poller.Nudge{Bucket: 1, At: 500}) {
		t.Error("not woken though a scan is under way")
	}
	b.Nudge(poller.Nudge{Bucket: 0, At: 99})
	b.Nudge(poller.Nudge{Bucket: 0, At: 50})
	b.Nudge(poller.Nudge{Bucket: 0, At: 70})
	if got, want := b.Take(), []poller.Nudge{{Bucket: 0, At: 50}, {Bucket: 1, At: 500}}; !reflect.DeepEqual(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
	if got := b.Take(); len(got) != 0 {
		t.Errorf("took %v a second time", got)
	}
	if !b.Nudge(poller.Nudge{Bucket: 0, At: 50}) {
		t.Error("not woken again after all was taken")
	}
}

// Records of no bucket, and buckets that a look did not find, are the store's trouble and do
// not end the node.
func TestBoardNamesWithoutRecords(t *testing.T) {
	r := newRig(t, nil)
	r.leases = []bucket.Lease{{ID: LeaseID("you", "7"), Renewals: 1, Lasts: time.Hour}}
	r.step(Members{[]Member{{"you", LeaseID("you", "7")}}})
	odd := []bucket.Partition{{Bucket: -1}, {Bucket: 99, Owner: "me", Lease: LeaseID("me", "1"), Token: 1}}
	for range 3 {
		r.m.Step(r.now, fence.Saw{Began: r.now.Mono, Partitions: odd, Leases: r.leases})
		r.run(time.Second)
	}
	for b, owner := range r.m.share.owners {
		if got, want := r.m.Board().Owner(poller.Nudge{Bucket: b, At: 1}, 1, "me") == "you", owner == "you"; got != want {
			t.Errorf("bucket %d: you are nudged: %v, want %v", b, got, want)
		}
	}
}

// Other nodes that own a bucket are told of what is due soon.
func TestBoardNamesOwners(t *testing.T) {
	b := newBoard(Config{Buckets: 2})
	soon := poller.Nudge{Bucket: 1, At: 1_000}
	if got := b.Owner(soon, 1_000, "me"); got != "" {
		t.Errorf("before the first look: %q", got)
	}
	b.setOwners(nil) // the last node leaves
	if got := b.Owner(soon, 1_000, "me"); got != "" {
		t.Errorf("where nobody is to own anything: %q", got)
	}
	b.setOwners([]string{"you"})
	if got := b.Owner(poller.Nudge{At: 1_000}, 1_000, "me"); got != "you" {
		t.Errorf("of the first bucket: %q", got)
	}
	b.setOwners([]string{"me", "you"})
	for _, test := range []struct {
		nudge poller.Nudge
		want  string
	}{
		{soon, "you"},
		{poller.Nudge{Bucket: 0, At: 1_000}, ""},
		{poller.Nudge{Bucket: 1, At: postdate.Time(1_000).Add(nudgeWithin)}, "you"},
		{poller.Nudge{Bucket: 1, At: postdate.Time(1_001).Add(nudgeWithin)}, ""},
		{poller.Nudge{Bucket: 2, At: 1_000}, ""},
		{poller.Nudge{Bucket: -1, At: 1_000}, ""},
	} {
		if got := b.Owner(test.nudge, 1_000, "me"); got != test.want {
			t.Errorf("%+v is for %q, want %q", test.nudge, got, test.want)
		}
	}
}
