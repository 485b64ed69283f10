package poller

import (
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// What earlier owners parked is tried with one message. Once that arrived, the rest is
// made due, in several buckets at a time, each bucket once.
func TestParkedMessagesComeBackTogether(t *testing.T) {
	const buckets = 10
	b := newBench(t)
	var ps []bucket.Partition
	var found []store.ParkedChannel
	for i := range buckets {
		ps = append(ps, bucket.Partition{Bucket: i, Token: 1, Owner: "me", Lease: "me"})
		found = append(found, store.ParkedChannel{Bucket: i, Channel: "inbox:a"})
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
	b.after(time.Duration(probe[0].Unpark.At-b.now.Wall+5) * time.Millisecond)
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
	effects = b.step(Published{publishes[0].Batch, []publisher.Result{{Outcome: publisher.Confirmed}}})
	var in []int
	unparks = append(unparks, of[Unpark](effects)...)
	for _, u := range unparks {
		in = append(in, u.Unpark.Bucket)
	}
	slices.Sort(in)
	if len(in) < 3 || len(slices.Compact(slices.Clone(in))) != len(in) {
		t.Fatalf("unparked in %v, want several different buckets", in)
	}
	next := of[Unpark](b.step(Unparked{Unpark: unparks[1].Unpark, Moved: 3}))
	if len(next) != 1 || slices.Contains(in, next[0].Unpark.Bucket) {
		t.Errorf("after the first is done: %+v", next)
	}
}

// answerAll answers the claims among effects with nothing.
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
