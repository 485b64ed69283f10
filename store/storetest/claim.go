package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func claiming() []check {
	return []check{
		{"a claim writes number, checkpoint and claimed", func(x *trial) {
			token := x.own(home)
			c := numbered(home, token, 3, t0-40, t0)
			x.claim(c)
			want := bucket.Partition{Bucket: home, Owner: "node-a", Lease: "lease-a", Token: token, Claims: 3,
				Checkpoint: t0 - 40, Claimed: c.To}
			if got := x.partition(home); !got.Equal(want) {
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
		{"a claim covers no more messages than its limit, and ends with one: all beyond it can be taken back",
			claimNoMore},
		{"nor does it where pages follow each other", claimPages},
		{"where fewer are there, it covers all up to its end, also what comes later", claimFewer},
		{"what is claimed already counts towards the limit where it is read again", claimAgainstLimit},
		{"a claim that ends below what is claimed reads, and claims nothing new", claimBelow},
		{"a claim that comes after its successor is KindConflict, reads nothing and writes nothing", claimLate},
		{"a claim that is repeated writes nothing, and reads", claimAgain},
		{"a claim that is repeated reads nothing that the first one left unclaimed", claimAgainShort},
		{"one that is for what is due alone writes nothing where nothing is", claimIfDue},
		{"claims of many buckets come late, each by itself", claimLateMany},
		{"the next owner's claims count on", claimOn},
		{"a claim can be made again", func(x *trial) {
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
	c := everything(home, token, x.partition(home).Claimed.Time+t0)
	c.Number = x.claims + 1
	x.wantRefused(c, postdate.KindFenced)
}

// wantRefused expects that a claim fails, returns nothing and changes nothing.
func (x *trial) wantRefused(c store.Claim, kind postdate.Kind) {
	x.Helper()
	before := x.partition(c.Bucket)
	results := x.store.Claim(x.ctx, []store.Claim{c})
	if len(results) != 1 {
		x.Fatalf("Claim of one bucket answered %d results", len(results))
	}
	x.wantKind(results[0].Err, kind)
	if n := len(results[0].Due); n != 0 {
		x.Errorf("a claim that was refused returned %d messages", n)
	}
	if after := x.partition(c.Bucket); !after.Equal(before) {
		x.Errorf("a claim that was refused changed the record from %+v to %+v", before, after)
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
		x.wantClaimed(numbered(home, token, uint64(i+1), step.checkpoint, step.claimed), step.checkpoint,
			bucket.UpTo(step.want))
	}
	m := x.add(t0 + 60)
	x.wantTooLate(m)
}

// numbered is a claim with everything that it writes.
func numbered(b int, token, number uint64, checkpoint, claimed postdate.Time) store.Claim {
	c := everything(b, token, claimed)
	c.Number, c.Checkpoint = number, checkpoint
	return c
}

// wantClaimed claims, and expects these values in the bucket's record afterwards.
func (x *trial) wantClaimed(c store.Claim, checkpoint postdate.Time, claimed bucket.Position) store.ClaimResult {
	x.Helper()
	r := x.claim(c)
	if p := x.partition(c.Bucket); p.Claimed != claimed || p.Checkpoint != checkpoint {
		x.broken("after the claim %+v the record is (%d, %v], want (%d, %v]",
			c, p.Checkpoint, p.Claimed, checkpoint, claimed)
	}
	return r
}

// crowd inserts many messages within very few milliseconds, in the order of positions.
func (x *trial) crowd(n int, edits ...edit) []postdate.Message {
	x.Helper()
	var all []postdate.Message
	for i := range n {
		all = append(all, x.messageIn(home, []string{tenant, "tenant-b"}[i%2], t0+postdate.Time(i/(n/2)), edits...))
	}
	x.insert(all...)
	inDueOrder(all)
	return all
}

func claimNoMore(x *trial) {
	all := x.crowd(24)
	token := x.own(home)
	taken := 0
	for _, limit := range []int{5, 1, 7} { // of 12 in the first millisecond
		c := everything(home, token, t0+10)
		c.Scan.Limit = limit
		if taken > 0 {
			c.Scan.After = place(all[taken-1])
		}
		taken += limit
		r := x.wantClaimed(c, 0, place(all[taken-1]))
		x.wantIDs("a page", idsOf(r.Due), all[taken-limit:taken]...)
		if r.To != place(all[taken-1]) || r.Ended != r.To {
			x.Errorf("a page by %d ended at %v and claimed up to %v, want both to be %v",
				limit, r.Ended, r.To, place(all[taken-1]))
		}
		for _, m := range all[:taken] {
			x.wantTooLate(m)
		}
	}
	moved := changed(all[taken])
	moved.ExecutionTime = t0 + 100
	x.replace(moved)
	for _, m := range all[taken+1:] {
		x.wantCancelled(m)
	}
	x.wantDue(everything(home, token, t0+10), all[:taken]...)
}

func claimPages(x *trial) {
	all := x.crowd(40)
	c := everything(home, x.own(home), t0+10)
	c.Scan.Limit = 6
	seen := 0
	x.pages(c, func(r store.ClaimResult) {
		seen += len(r.Due)
		want := c.To
		if seen < len(all) {
			want = place(all[seen-1])
		}
		if p := x.partition(home); !r.Complete && p.Claimed != want {
			x.broken("after %d messages the record is %+v, want it claimed to %v", seen, p, want)
		}
		if len(all) > seen+1 {
			x.wantCancelled(all[len(all)-1])
			all = all[:len(all)-1]
		}
	})
	if p := x.partition(home); seen != len(all) || p.Claimed != c.To {
		x.Errorf("%d messages came of %d, and then the record is %+v, want it claimed to %v", seen, len(all), p, c.To)
	}
}

func claimFewer(x *trial) {
	m := x.add(t0)
	c := everything(home, x.own(home), t0+10)
	c.Scan.Limit = 2
	r := x.wantClaimed(c, 0, c.To)
	x.wantIDs("a scan", idsOf(r.Due), m)
	x.wantTooLate(x.add(t0 + 10))
	x.wantCancelled(x.add(t0 + 11))
}

func claimAgainstLimit(x *trial) {
	all := x.crowd(20)
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Scan.Limit = 8
	x.claim(c)
	r := x.wantClaimed(c, 0, place(all[7]))
	x.wantIDs("the same scan", idsOf(r.Due), all[:8]...)
	c.Scan.After = place(all[4])
	r = x.wantClaimed(c, 0, place(all[12]))
	x.wantIDs("a scan that begins within what is claimed", idsOf(r.Due), all[5:13]...)
	x.wantTooLate(all[12])
	x.wantCancelled(all[13])
}

func claimBelow(x *trial) {
	all := x.crowd(10)
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Scan.Limit = 6
	x.claim(c)
	for _, end := range []int{1, 3, 5} {
		c.To = place(all[end])
		r := x.wantClaimed(c, 0, place(all[5]))
		x.wantIDs("a scan below what is claimed", idsOf(r.Due), all[:end+1]...)
		if r.To != c.To || r.Ended != c.To {
			x.Errorf("it ended at %v of %v, want %v", r.Ended, r.To, c.To)
		}
	}
	x.wantTooLate(all[5])
	x.wantCancelled(all[6])
}

func claimLate(x *trial) {
	x.add(t0 + 50)
	token := x.own(home)
	written := numbered(home, token, 5, t0-50, t0+100)
	written.Behind = map[postdate.Route]bucket.Position{"kafka:slow": bucket.UpTo(t0)}
	x.claim(written)
	for _, late := range []store.Claim{
		numbered(home, token, 4, t0, t0+100), // while draining, or after the clock was set back
		numbered(home, token, 4, t0-60, t0+99),
		numbered(home, token, 1, t0, t0+120), // the clock was set back between the two
		numbered(home, token, 0, t0-60, t0+120),
	} {
		x.wantRefused(late, postdate.KindConflict)
		late.Behind, late.Only = written.Behind, "kafka:slow"
		x.wantRefused(late, postdate.KindConflict)
	}
	x.wantClaimed(numbered(home, token, 6, t0+100, t0+100), t0+100, bucket.UpTo(t0+100))
}

func claimAgain(x *trial) {
	m := x.add(t0 + 60)
	token := x.own(home)
	first, second := numbered(home, token, 1, t0, t0+100), numbered(home, token, 2, t0-50, t0+120)
	for range 2 {
		x.wantComplete(x.wantClaimed(first, t0, bucket.UpTo(t0+100)), t0+100, postdate.Far)
	}
	later := x.add(t0 + 110)
	for range 2 {
		r := x.wantClaimed(second, t0-50, bucket.UpTo(t0+120))
		x.wantIDs("a claim that is repeated", idsOf(r.Due), m, later)
	}
	x.wantRefused(first, postdate.KindConflict)
	other := second
	other.Checkpoint, other.Behind = t0+10, map[postdate.Route]bucket.Position{"kafka:slow": bucket.UpTo(t0 + 50)}
	x.wantClaimed(other, t0-50, bucket.UpTo(t0+120))
	if p := x.partition(home); len(p.Behind) != 0 {
		x.Errorf("a number that was used says now what is behind: %+v", p)
	}
}

// claimAgainShort repeats a claim after some of its messages ended: it claims no more.
func claimAgainShort(x *trial) {
	all := x.crowd(10)
	token := x.own(home)
	c := numbered(home, token, 1, 0, t0+10)
	c.Scan.Limit = 4
	x.claim(c)
	for _, m := range all[:3] {
		x.settle(x.settlement(m, token, store.SettleDelivered))
	}
	r := x.wantClaimed(c, 0, place(all[3]))
	x.wantIDs("a claim that is repeated", idsOf(r.Due), all[3])
	if r.To != place(all[3]) || r.Ended != r.To {
		x.Errorf("it ended at %v of %v, want %v", r.Ended, r.To, place(all[3]))
	}
	x.wantCancelled(all[4])
	c.Scan.After, c.Number = r.Ended, 0
	x.wantDue(c, all[5:]...)
}

func claimIfDue(x *trial) {
	m := x.add(t0 + 100)
	token := x.own(home)
	c := numbered(home, token, 1, t0-50, t0+50)
	c.IfDue = true
	before := x.partition(home)
	r := x.store.Claim(x.ctx, []store.Claim{c})[0]
	if r.Err != nil || len(r.Due) > 0 || r.To != (bucket.Position{}) || r.Ended != c.To || !r.Complete ||
		r.Next != m.ExecutionTime {
		x.Errorf("where nothing is due it answers %+v", r)
	}
	if p := x.partition(home); !p.Equal(before) {
		x.broken("where nothing is due it changed the record from %+v to %+v", before, p)
	}
	x.wantCancelled(x.add(t0 + 50))
	c.To = bucket.UpTo(t0 + 100)
	r = x.wantClaimed(c, t0-50, c.To)
	x.wantIDs("where something is due, a scan", idsOf(r.Due), m)
	x.wantTooLate(m)
}

func claimLateMany(x *trial) {
	tokens := []uint64{x.own(home), x.own(abroad)}
	x.claim(numbered(home, tokens[0], 2, t0-50, t0+100))
	x.claim(numbered(abroad, tokens[1], 7, t0-50, t0+100))
	results := x.store.Claim(x.ctx, []store.Claim{
		numbered(abroad, tokens[1], 6, t0, t0+100), numbered(home, tokens[0], 3, t0, t0+100),
	})
	if len(results) != 2 || results[1].Err != nil {
		x.Fatalf("Claim of two buckets: got %+v", results)
	}
	x.wantKind(results[0].Err, postdate.KindConflict)
	for b, want := range map[int]bucket.Partition{home: {Claims: 3, Checkpoint: t0},
		abroad: {Claims: 7, Checkpoint: t0 - 50}} {
		if p := x.partition(b); p.Claims != want.Claims || p.Checkpoint != want.Checkpoint {
			x.Errorf("the record is %+v, want claim %d and the checkpoint %d", p, want.Claims, want.Checkpoint)
		}
	}
}

func claimOn(x *trial) {
	x.claim(numbered(home, x.own(home), 5, t0, t0+100))
	token := x.own(home)
	p := x.partition(home)
	if p.Claims != 5 || p.Claimed != bucket.UpTo(t0+100) {
		x.Errorf("the next owner finds %+v, want claim 5 up to the end of %d", p, t0+100)
	}
	x.wantRefused(numbered(home, token, 4, t0+50, t0+100), postdate.KindConflict)
	x.wantClaimed(numbered(home, token, p.Claims+1, t0+50, t0+100), t0+50, p.Claimed)
	x.release(store.Hold{Bucket: home, Token: token})
	if got := x.partition(home).Claims; got != 6 {
		x.Errorf("after a release the record has the number %d, want 6", got)
	}
}

func claimMany(x *trial) {
	n := x.store.Buckets()
	messages := make([]postdate.Message, n)
	claims := make([]store.Claim, n)
	for b := range n {
		messages[b] = x.messageIn(b, tenant, t0)
		x.insert(messages[b])
		claims[n-1-b] = numbered(b, x.own(b), 1, 0, t0) // in descending order of buckets
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
