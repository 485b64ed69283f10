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
			c.Number, c.Checkpoint = 3, t0-40
			x.claim(c)
			want := bucket.Partition{Bucket: home, Owner: "node-a", Lease: "lease-a", Token: token, Claims: 3, Checkpoint: t0 - 40, Claimed: t0}
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
		{"a claim that comes after its successor raises no checkpoint, not even with an equal claimed", claimLate},
		{"a claim that is repeated writes what it wrote", claimAgain},
		{"claims of many buckets come late, each by itself", claimLateMany},
		{"the next owner's claims count on", claimOn},
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
	for i, step := range []struct{ checkpoint, claimed, want postdate.Time }{
		{t0, t0 + 100, t0 + 100},
		{t0 + 50, t0 + 70, t0 + 100},
		{t0 - 50, t0 + 100, t0 + 100},
		{t0 - 60, t0 + 20, t0 + 100},
		{t0 + 10, t0 + 101, t0 + 101},
		{t0 + 101, t0 + 101, t0 + 101},
		{t0 - 60, t0 + 20, t0 + 101},
	} {
		x.wantClaimed(home, numbered(home, token, uint64(i+1), step.checkpoint, step.claimed), step.checkpoint, step.want)
	}
	m := x.add(t0 + 60)
	x.wantTooLate(m)
}

// numbered is a claim with everything that it writes.
func numbered(b int, token, number uint64, checkpoint, claimed postdate.Time) store.Claim {
	c := everything(b, token, claimed)
	c.Number, c.Checkpoint, c.Scan.To = number, checkpoint, t0-1000
	return c
}

// wantClaimed claims, and expects what the bucket's record says then.
func (x *trial) wantClaimed(b int, c store.Claim, checkpoint, claimed postdate.Time) {
	x.Helper()
	x.claim(c)
	if p := x.partition(b); p.Claimed != claimed || p.Checkpoint != checkpoint {
		x.Errorf("after claim %d, (%d, %d], the record is (%d, %d], want (%d, %d]",
			c.Number, c.Checkpoint-t0, c.Claimed-t0, p.Checkpoint-t0, p.Claimed-t0, checkpoint-t0, claimed-t0)
	}
}

func claimLate(x *trial) {
	token := x.own(home)
	x.wantClaimed(home, numbered(home, token, 5, t0-50, t0+100), t0-50, t0+100)
	for _, late := range []struct{ checkpoint, claimed, wantCheckpoint, want postdate.Time }{
		{t0, t0 + 100, t0 - 50, t0 + 100}, // while draining, or after the clock was set back
		{t0, t0 + 99, t0 - 50, t0 + 100},
		{t0, t0 + 120, t0 - 50, t0 + 120}, // the clock was set back between the two
		{t0 - 60, t0 + 99, t0 - 60, t0 + 120},
	} {
		for _, number := range []uint64{4, 1} {
			x.wantClaimed(home, numbered(home, token, number, late.checkpoint, late.claimed), late.wantCheckpoint, late.want)
		}
	}
	x.wantClaimed(home, numbered(home, token, 6, t0+120, t0+120), t0+120, t0+120)
}

func claimAgain(x *trial) {
	token := x.own(home)
	first, second := numbered(home, token, 1, t0, t0+100), numbered(home, token, 2, t0-50, t0+100)
	for range 2 {
		x.wantClaimed(home, first, t0, t0+100)
	}
	for _, c := range []store.Claim{second, first, second} {
		x.wantClaimed(home, c, t0-50, t0+100)
	}
}

func claimLateMany(x *trial) {
	tokens := []uint64{x.own(home), x.own(abroad)}
	x.claim(numbered(home, tokens[0], 2, t0-50, t0+100))
	x.claim(numbered(abroad, tokens[1], 7, t0-50, t0+100))
	for _, r := range x.store.Claim(x.ctx, []store.Claim{
		numbered(abroad, tokens[1], 6, t0, t0+100), numbered(home, tokens[0], 3, t0, t0+100),
	}) {
		if r.Err != nil {
			x.Errorf("Claim: %v", r.Err)
		}
	}
	for b, want := range map[int]bucket.Partition{home: {Claims: 3, Checkpoint: t0}, abroad: {Claims: 7, Checkpoint: t0 - 50}} {
		if p := x.partition(b); p.Claims != want.Claims || p.Checkpoint != want.Checkpoint {
			x.Errorf("the record is %+v, want claim %d and the checkpoint %d", p, want.Claims, want.Checkpoint)
		}
	}
}

func claimOn(x *trial) {
	x.claim(numbered(home, x.own(home), 5, t0, t0+100))
	token := x.own(home)
	p := x.partition(home)
	if p.Claims != 5 {
		x.Errorf("the next owner finds the number %d, want 5", p.Claims)
	}
	x.wantClaimed(home, numbered(home, token, p.Claims+1, t0+50, t0+100), t0+50, t0+100)
	x.release(store.Hold{Bucket: home, Token: token})
	if got := x.partition(home).Claims; got != 6 {
		x.Errorf("after a release the record has the number %d, want 6", got)
	}
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
