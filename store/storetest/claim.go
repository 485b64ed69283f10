package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func claiming() []check {
	return []check{
		{"a claim writes checkpoint and claimed", func(x *trial) {
			token := x.own(home)
			c := everything(home, token, t0)
			c.Checkpoint = t0 - 40
			x.claim(c)
			want := bucket.Partition{Bucket: home, Owner: "node-a", Lease: "lease-a", Token: token, Checkpoint: t0 - 40, Claimed: t0}
			if got := x.partition(home); got != want {
				x.Errorf("the record is %+v, want %+v", got, want)
			}
		}},
		{"a token that was passed on reads nothing and writes nothing", func(x *trial) {
			x.add(t0)
			stale := x.own(home)
			present := x.own(home)
			x.wantFenced(stale)
			x.wantFenced(present + 1)
			x.wantFenced(0)
		}},
		{"nobody can claim a bucket that nobody owns", func(x *trial) {
			x.add(t0)
			x.wantFenced(0)
			token := x.own(home)
			x.release(store.Hold{Bucket: home, Token: token})
			x.wantFenced(token)
		}},
		{"claimed never moves back, and the checkpoint can", claimBack},
		{"a scan may go up to an earlier, wider claim", claimWider},
		{"a claim can be repeated", func(x *trial) {
			m := x.add(t0)
			token := x.own(home)
			for range 3 {
				x.wantDue(everything(home, token, t0), m)
			}
		}},
		{"many buckets travel together: results are in order, and who lost one keeps the others", claimMany},
	}
}

// wantFenced expects that a claim of the bucket home with this token fails and
// changes nothing.
func (x *trial) wantFenced(token uint64) {
	x.Helper()
	before := x.partition(home)
	results := x.store.Claim(x.ctx, []store.Claim{everything(home, token, before.Claimed+t0)})
	if len(results) != 1 {
		x.Fatalf("Claim of one bucket answered %d results", len(results))
	}
	x.wantKind(results[0].Err, postdate.KindFenced)
	if n := len(results[0].Due); n != 0 {
		x.Errorf("a claim that was fenced off returned %d messages", n)
	}
	if after := x.partition(home); after != before {
		x.Errorf("a claim that was fenced off changed the record from %+v to %+v", before, after)
	}
}

func claimBack(x *trial) {
	token := x.own(home)
	for _, step := range []struct{ checkpoint, claimed, wantCheckpoint, want postdate.Time }{
		{t0, t0 + 100, t0, t0 + 100},
		{t0 + 50, t0 + 20, t0, t0 + 100}, // a delayed claim arrives late, and raises nothing
		{t0 - 50, t0 + 100, t0 - 50, t0 + 100},
		{t0 - 60, t0 + 20, t0 - 60, t0 + 100},
		{t0 + 10, t0 + 101, t0 + 10, t0 + 101},
	} {
		c := everything(home, token, step.claimed)
		c.Checkpoint, c.Scan.To = step.checkpoint, t0
		x.claim(c)
		if p := x.partition(home); p.Claimed != step.want || p.Checkpoint != step.wantCheckpoint {
			x.Errorf("after a claim of %+v the record is %+v", step, p)
		}
	}
	m := x.add(t0 + 60)
	x.wantTooLate(m)
}

func claimWider(x *trial) {
	within, beyond := x.add(t0+10), x.add(t0+30)
	token := x.own(home)
	x.claim(everything(home, token, t0+20))
	c := everything(home, token, t0)
	c.Scan.To = t0 + 20
	x.wantDue(c, within)
	c.Scan.To = t0 + 40 // stands for claimed, which is still t0 + 20
	r := x.claim(c)
	x.wantIDs("a scan beyond claimed", idsOf(r.Due), within)
	x.wantComplete(r, t0+20, beyond.ExecutionTime)
}

func claimMany(x *trial) {
	n := x.store.Buckets()
	messages := make([]postdate.Message, n)
	claims := make([]store.Claim, n)
	for b := range n {
		messages[b] = x.messageIn(b, tenant, t0)
		x.insert(messages[b])
		claims[n-1-b] = everything(b, x.own(b), t0) // in descending order of buckets
	}
	lost := map[int]bool{0: true, n - 2: true}
	for b := range lost {
		x.own(b) // somebody else, meanwhile
	}
	results := x.store.Claim(x.ctx, claims)
	if len(results) != n {
		x.Fatalf("Claim of %d buckets answered %d results", n, len(results))
	}
	for i, r := range results {
		b := claims[i].Bucket
		if lost[b] {
			x.wantKind(r.Err, postdate.KindFenced)
			x.wantIDs("a scan of a lost bucket", idsOf(r.Due))
			continue
		}
		if r.Err != nil {
			x.Errorf("the claim of bucket %d: %v", b, r.Err)
		}
		x.wantIDs("a scan", idsOf(r.Due), messages[b])
	}
}
