package fence_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// next returns the look that is under way, or advances to the next one.
func (r *rig) next() fence.Look {
	r.t.Helper()
	for range 10 {
		if r.asked != nil {
			return *r.asked
		}
		r.now = max(r.now, r.m.Wake())
		r.renewed(r.step(fence.Tick{}))
	}
	r.t.Fatal("it does not look any more")
	return fence.Look{}
}

// reads fails the test unless the next look reads these records.
func (r *rig) reads(when string, buckets ...int) {
	r.t.Helper()
	if look := r.next(); !slices.Equal(look.Buckets, buckets) {
		r.t.Errorf("%s it reads the records of %v, want %v", when, look.Buckets, buckets)
	}
}

// Each look reads what is wanted and not owned; what is owned is read every ten seconds.
func TestWhatALookReads(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	r.answer(r.next(), fence.Saw{})
	var seldom []time.Duration
	for end := r.now + time.Minute; r.now < end; {
		switch look := r.next(); {
		case slices.Equal(look.Buckets, []int{1, 2}):
			seldom = append(seldom, r.now)
		case len(look.Buckets) > 0:
			t.Fatalf("while nothing happens it reads %v", look.Buckets)
		}
		r.step(fence.Saw{Began: r.now})
	}
	if len(seldom) < 5 || seldom[1]-seldom[0] != 10*time.Second {
		t.Errorf("it reads what it owns at %v", seldom)
	}
	look := only[fence.Look](t, r.step(fence.Want{Buckets: []int{2, 4, 3}}))
	for range 4 {
		if !slices.Equal(look.Buckets, []int{3, 4}) {
			t.Errorf("of 2, 3 and 4, of which it owns 2, it reads %v", look.Buckets)
		}
		r.step(fence.Saw{Began: r.now, Err: errors.New("down")})
		look = r.next()
	}
}

// A bucket that may hang on this node's lease is read until it is known not to: nobody else can
// take it while the lease moves.
func TestWhatMayHangOnTheOwnLease(t *testing.T) {
	const bucketMine = 4
	mine := bucket.Partition{Bucket: bucketMine, Token: 8, Owner: "me", Lease: "me/1"}
	unanswered := func(t *testing.T) *rig {
		r := newRig(t)
		r.lease(bucketMine)
		only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: bucketMine, Token: 7}}}))
		r.step(fence.Want{})
		r.step(fence.Took{Err: postdate.E(postdate.KindUnknown, "lost")})
		r.step(fence.Saw{Began: r.now})
		return r
	}
	t.Run("an acquisition that comes late", func(t *testing.T) {
		r := unanswered(t)
		for range 40 { // it is on its way for long
			r.reads("without an answer", bucketMine)
			r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: bucketMine, Token: 7}}})
		}
		give := only[fence.GiveBack](t, r.look(fence.Saw{Partitions: []bucket.Partition{mine}}))
		r.step(fence.GaveBack{Holds: give.Holds})
		r.reads("after it went back")
	})
	t.Run("an acquisition that came to nothing", func(t *testing.T) {
		r := unanswered(t)
		r.look(fence.Saw{Partitions: []bucket.Partition{{Bucket: bucketMine, Token: 8, Owner: "you", Lease: "you/1"}}})
		r.reads("when another node has it")
	})
	t.Run("an acquisition before the lease lapsed", func(t *testing.T) {
		r := newRig(t)
		r.lease(bucketMine)
		only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: bucketMine, Token: 7}}}))
		r.now += r.c.LeaseTime
		r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}})
		r.step(fence.Want{})
		r.step(fence.Took{Results: []store.Acquired{{Partition: mine, OK: true}}})
		r.step(fence.Saw{Began: r.now, Err: errors.New("down")})
		if give := only[fence.GiveBack](t, r.answer(r.next(), fence.Saw{Partitions: []bucket.Partition{mine}})); give.Holds[0].Token != 8 {
			t.Errorf("it gives back %+v", give.Holds)
		}
	})
	t.Run("a bucket that was to be drained when the lease lapsed", func(t *testing.T) {
		r := newRig(t)
		r.own(1, bucketMine)
		r.answer(r.next(), fence.Saw{})
		r.step(fence.Want{Buckets: []int{1}})
		r.now += r.c.LeaseTime
		r.step(fence.Saw{Began: r.now})
		look := only[fence.Look](t, r.step(fence.Renewed{Began: postdate.Now{Mono: r.now}}))
		if !slices.Equal(look.Buckets, []int{1, bucketMine}) {
			t.Errorf("it reads %v", look.Buckets)
		}
		hung := bucket.Partition{Bucket: bucketMine, Token: 1, Owner: "me", Lease: "me/1"}
		if give := only[fence.GiveBack](t, r.answer(look, fence.Saw{Partitions: []bucket.Partition{hung}})); give.Holds[0].Token != 1 {
			t.Errorf("it gives back %+v", give.Holds)
		}
	})
	t.Run("a bucket that another node has", func(t *testing.T) {
		r := newRig(t)
		r.own(1, 2)
		r.answer(r.next(), fence.Saw{})
		r.step(fence.Want{Buckets: []int{1}})
		r.step(fence.Fenced{Holds: []store.Hold{{Bucket: 2, Token: 1}}})
		r.answer(r.next(), fence.Saw{})
		r.answer(r.next(), fence.Saw{Partitions: []bucket.Partition{{Bucket: 2, Token: 2, Owner: "you", Lease: "you/1"}}})
		r.reads("when that is seen")
	})
}

// An unanswered acquisition that takes effect after its bucket was given back, under the token
// that it saw, is found.
func TestAnAcquisitionThatComesAfterARelease(t *testing.T) {
	const bucketMine = 4
	mine := bucket.Partition{Bucket: bucketMine, Token: 8, Owner: "me", Lease: "me/1"}
	r := newRig(t)
	r.lease(bucketMine)
	hung := bucket.Partition{Bucket: bucketMine, Token: 7, Owner: "me", Lease: "me/1"}
	only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{hung}}))
	r.step(fence.Want{})
	r.step(fence.Took{Err: postdate.E(postdate.KindUnknown, "lost")})
	r.step(fence.Saw{Began: r.now})
	r.answer(r.next(), fence.Saw{Partitions: []bucket.Partition{hung}}) // goes back under token 7,
	r.step(fence.GaveBack{Holds: []store.Hold{{Bucket: bucketMine, Token: 7}}})
	r.reads("as the acquisition may be on its way", bucketMine) // and passes it over: by then it is at 8
	if give := only[fence.GiveBack](t, r.answer(r.next(), fence.Saw{Partitions: []bucket.Partition{mine}})); give.Holds[0].Token != 8 {
		t.Errorf("it gives back %+v", give.Holds)
	}
}

// A bucket that is another node's by the time its release is answered changes nothing for the others.
func TestAReleaseThatIsAnsweredAfterALoss(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	r.step(fence.Want{Buckets: []int{1}})
	give := only[fence.GiveBack](t, r.step(fence.Drained{Holds: []store.Hold{{Bucket: 2, Token: 1}}}))
	r.step(fence.Fenced(give))
	r.step(fence.GaveBack{Holds: give.Holds})
	if held := r.m.Buckets(); !slices.Equal(held, []int{1}) {
		t.Errorf("it holds %v, want 1", held)
	}
}

// It is found even if the bucket turns out to be another node's as it goes back.
func TestAnAcquisitionThatComesAfterALoss(t *testing.T) {
	r := newRig(t)
	r.lease(4)
	hung := bucket.Partition{Bucket: 4, Token: 7, Owner: "me", Lease: "me/1"}
	only[fence.Take](t, r.step(fence.Saw{Began: r.now, Partitions: []bucket.Partition{hung}}))
	r.step(fence.Want{})
	r.step(fence.Took{Err: postdate.E(postdate.KindUnknown, "lost")})
	r.step(fence.Saw{Began: r.now})
	r.answer(r.next(), fence.Saw{Partitions: []bucket.Partition{hung}})
	r.step(fence.Fenced{Holds: []store.Hold{{Bucket: 4, Token: 7}}})
	for range 3 { // what it saw, token 7, is what the acquisition asked for
		r.answer(r.next(), fence.Saw{Partitions: []bucket.Partition{{Bucket: 4, Token: 7}}})
		r.reads("as the acquisition may be on its way", 4)
		r.step(fence.Saw{Began: r.now})
	}
}

// News of free buckets brings a look forward only if a bucket is missing, even if a look is
// under way, which may be older.
func TestFreed(t *testing.T) {
	r := newRig(t)
	r.own(1)
	r.answer(r.next(), fence.Saw{})
	if effects := r.step(fence.Freed{}); count[fence.Look](effects) > 0 {
		t.Error("it looks though it owns all that it wants")
	}
	only[fence.Look](t, r.step(fence.Want{Buckets: []int{1, 2}}))
	if effects := r.step(fence.Freed{}); count[fence.Look](effects) > 0 {
		t.Fatal("two looks at a time")
	}
	theirs := fence.Saw{Began: r.now, Partitions: []bucket.Partition{{Bucket: 2, Token: 5, Owner: "you", Lease: "you/1"}}}
	look := only[fence.Look](t, r.step(theirs))
	r.answer(look, theirs)
	look = only[fence.Look](t, r.step(fence.Freed{}))
	if !slices.Equal(look.Buckets, []int{2}) {
		t.Errorf("it reads %v", look.Buckets)
	}
	only[fence.Take](t, r.answer(look, fence.Saw{Partitions: []bucket.Partition{{Bucket: 2, Token: 5}}}))
}

// A bucket that becomes wanted during a look is read immediately after it.
func TestWantedWhileItLooks(t *testing.T) {
	r := newRig(t)
	r.lease() // a look is under way
	r.step(fence.Want{Buckets: []int{3}})
	look := only[fence.Look](t, r.step(fence.Saw{Began: r.now}))
	if !slices.Equal(look.Buckets, []int{3}) {
		t.Errorf("it reads %v", look.Buckets)
	}
}

// What a hint names is read once, if it is owned, and again if that look failed or had begun
// earlier.
func TestWhatAHintNames(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	r.answer(r.next(), fence.Saw{})
	named := func(effects []fence.Effect, want ...int) fence.Look {
		t.Helper()
		look := only[fence.Look](t, effects)
		if !slices.Equal(look.Buckets, want) {
			t.Errorf("it reads %v, want %v", look.Buckets, want)
		}
		return look
	}
	named(r.step(fence.Hint{Buckets: []int{2, 7}}), 2)
	r.step(fence.Saw{Began: r.now, Err: errors.New("down")})
	r.reads("after a look that failed", 2)
	r.step(fence.Hint{Buckets: []int{1}})
	look := named(r.step(fence.Saw{Began: r.now}), 1, 2)
	r.answer(look, fence.Saw{})
	r.reads("after that")
	r.step(fence.Saw{Began: r.now})
	named(r.step(fence.Hint{}))
}

// The record of a bucket whose release failed is read: another node may have the bucket.
func TestReadsWhatItCouldNotGiveBack(t *testing.T) {
	r := newRig(t)
	r.own(1, 2)
	r.answer(r.next(), fence.Saw{})
	r.step(fence.Want{Buckets: []int{1}})
	r.step(fence.Saw{Began: r.now})
	give := only[fence.GiveBack](t, r.step(fence.Drained{Holds: []store.Hold{{Bucket: 2, Token: 1}}}))
	r.step(fence.GaveBack{Holds: give.Holds, Err: errors.New("down")})
	look := r.next()
	lost := only[fence.Lost](t, r.answer(look, fence.Saw{Partitions: []bucket.Partition{{Bucket: 2, Token: 2, Owner: "you", Lease: "you/1"}}}))
	if !slices.Equal(lost.Holds, give.Holds) {
		t.Errorf("it lost %+v", lost.Holds)
	}
}
