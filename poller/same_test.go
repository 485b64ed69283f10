package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// The same events at the same times give the same effects: what follows from a lapsed lease or
// a lost bucket has one order.
func TestSameEffects(t *testing.T) {
	scripts := map[string]func(b *bench) string{"a lapsed lease": lapsedLease, "a lost bucket": lostBucket}
	for name, script := range scripts {
		first := script(newBench(t))
		for range 10 {
			if again := script(newBench(t)); again != first {
				t.Errorf("%s:\n%s\nand then\n%s", name, first, again)
				break
			}
		}
	}
}

func said(effects []Effect) (text string) {
	for _, e := range effects {
		switch e := e.(type) {
		case Claim:
			for _, c := range e.Claims {
				text += fmt.Sprint(c.Bucket, " ")
			}
		case Unpark:
			text += fmt.Sprint(e.Unpark.Route, " ")
		}
	}
	return text
}

func lapsedLease(b *bench) string {
	var ps []bucket.Partition
	for i := range 20 {
		ps = append(ps, bucket.Partition{Bucket: i, Token: 1, Owner: "me", Lease: "me"})
	}
	claim := of[Claim](b.step(fence.Gained{Partitions: ps}))[0]
	var results []store.ClaimResult
	for _, c := range claim.Claims {
		results = append(results, seen(c, records(postdate.Route(fmt.Sprint("inbox:", c.Bucket)), 1, b.now.Wall+30)...))
	}
	b.step(Claimed{claim.Call, results})
	b.m.leaseUntil = b.now.Mono + 10*ms
	b.after(15 * ms)
	return said(b.step(fence.LeaseUntil{Mono: b.now.Mono + time.Hour, Read: b.now}))
}

func lostBucket(b *bench) (text string) {
	var due []postdate.Record
	var found []store.ParkedRoute
	for i := range 20 {
		channel := named("inbox:%d", i)
		due = append(due, records(channel, 1, b.now.Wall+30)...)
		found = append(found, store.ParkedRoute{Bucket: 1, Route: channel})
	}
	b.owned(due)
	b.step(fence.Gained{Partitions: []bucket.Partition{{Bucket: 1, Token: 1, Owner: "me", Lease: "me"}}})
	unparks := of[Unpark](b.step(ParkedFound{Found: found}))
	b.step(fence.Lost{Holds: holds(0)})
	for range 12 {
		effects := b.step(Unparked{Unpark: unparks[0].Unpark, Moved: unparks[0].Unpark.Limit})
		text += said(effects)
		unparks = append(unparks[1:], of[Unpark](effects)...)
	}
	return text
}
