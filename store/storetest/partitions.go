package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func partitions() []check {
	return []check{
		{"a new store has every bucket's record, without an owner and at token 0", func(x *trial) {
			var buckets []int
			var want []bucket.Partition
			for b := range x.store.Buckets() {
				buckets, want = append(buckets, b), append(want, bucket.Partition{Bucket: b})
			}
			all, leases, err := x.store.Look(x.ctx, buckets)
			if err != nil || len(leases) != 0 {
				x.Errorf("Look: leases %v, error %v; want neither", leases, err)
			}
			slices.SortFunc(all, func(a, b bucket.Partition) int { return a.Bucket - b.Bucket })
			if !slices.EqualFunc(all, want, bucket.Partition.Equal) {
				x.Errorf("the records are %+v, want %+v", all, want)
			}
		}},
		{"a look reads the records that it names, as they are, and no others", look},
		{"who saw the present token acquires the bucket, under the next token", acquire},
		{"who saw another token gets the record as it is, and changes nothing", acquireStale},
		{"an acquisition that is repeated changes nothing and shows the owner", func(x *trial) {
			want := []store.Acquisition{{Bucket: home, SeenToken: 0, Owner: "n", Lease: "l"}}
			for i := range 3 {
				got, err := x.store.Acquire(x.ctx, want)
				if err != nil || got[0].OK != (i == 0) || got[0].Partition.Owner != "n" || got[0].Partition.Token != 1 {
					x.Errorf("try %d: got %+v, %v", i, got, err)
				}
			}
		}},
		{"of many contenders exactly one acquires a bucket", acquireRace},
		{"a release leaves token, checkpoint and claimed, and the next token is higher", release},
		{"a release with a token that was passed on changes nothing, and the others of its call are released",
			releaseStale},
		{"a lease is seen as it was renewed last, and for how long it lasts", renew},
		{"a renewal tells the store's clock, if it has one, and it never goes back", clock},
	}
}

func (x *trial) release(holds ...store.Hold) {
	x.Helper()
	if err := x.store.Release(x.ctx, holds); err != nil {
		x.Fatalf("Release: %v", err)
	}
}

// look looks at the same buckets after each change of one.
func look(x *trial) {
	at := func(buckets ...int) {
		x.Helper()
		var want []bucket.Partition
		for _, b := range buckets {
			want = append(want, x.partition(b))
		}
		got, _, err := x.store.Look(x.ctx, buckets)
		slices.SortFunc(got, func(a, b bucket.Partition) int { return a.Bucket - b.Bucket })
		if err != nil || !slices.EqualFunc(got, want, bucket.Partition.Equal) {
			x.Errorf("a look at %v: got %+v, %v; want %+v", buckets, got, err, want)
		}
	}
	all := func() {
		x.Helper()
		at()
		at(home)
		at(min(home, abroad), max(home, abroad))
	}
	all()
	token := x.own(home)
	all()
	x.own(abroad)
	x.claim(everything(home, token, t0))
	all()
	x.release(store.Hold{Bucket: home, Token: token})
	all()
	if p := x.partition(home); p.Owner != "" || p.Token != token {
		x.Errorf("after all this the record is %+v", p)
	}
}

func acquire(x *trial) {
	wants := []store.Acquisition{
		{Bucket: abroad, SeenToken: 0, Owner: "node-a", Lease: "lease-1"},
		{Bucket: home, SeenToken: 0, Owner: "node-b", Lease: "lease-2"},
	}
	got, err := x.store.Acquire(x.ctx, wants)
	if err != nil || len(got) != len(wants) {
		x.Fatalf("Acquire: got %+v, %v", got, err)
	}
	for i, w := range wants {
		want := bucket.Partition{Bucket: w.Bucket, Owner: w.Owner, Lease: w.Lease, Token: 1}
		if !got[i].OK || !got[i].Partition.Equal(want) {
			x.Errorf("item %d: got %+v, want %+v", i, got[i], want)
		}
		if p := x.partition(w.Bucket); !p.Equal(want) {
			x.Errorf("the record is %+v, want %+v", p, want)
		}
	}
	if p := x.partition(0); p.Token != 0 || p.Owner != "" {
		x.Errorf("bucket 0 was not asked for, and its record is %+v", p)
	}
}

func acquireStale(x *trial) {
	token := x.own(home)
	before := x.partition(home)
	for _, seen := range []uint64{0, token + 1, token + 100} {
		wants := []store.Acquisition{
			{Bucket: home, SeenToken: seen, Owner: "thief", Lease: "lease-t"},
			{Bucket: abroad, SeenToken: x.partition(abroad).Token, Owner: "node-b", Lease: "lease-b"},
		}
		got, err := x.store.Acquire(x.ctx, wants)
		if err != nil || len(got) != 2 || got[0].OK || !got[0].Partition.Equal(before) || !got[1].OK {
			x.Errorf("Acquire at token %d: got %+v, %v; want the present record %+v and the other bucket",
				seen, got, err, before)
		}
		if p := x.partition(home); !p.Equal(before) {
			x.Errorf("the record changed from %+v to %+v", before, p)
		}
	}
}

func acquireRace(x *trial) {
	const contenders = 12
	for token := range uint64(8) {
		var group sync.WaitGroup
		results := make([]store.Acquired, contenders)
		for i := range contenders {
			want := store.Acquisition{Bucket: home, SeenToken: token, Owner: fmt.Sprint("node-", i),
				Lease: fmt.Sprint("lease-", i)}
			group.Go(func() {
				got, err := x.store.Acquire(x.ctx, []store.Acquisition{want})
				if err != nil || len(got) != 1 {
					x.Errorf("Acquire: got %+v, %v", got, err)
					return
				}
				results[i] = got[0]
			})
		}
		group.Wait()
		winners := 0
		after := x.partition(home)
		for i, r := range results {
			if !r.Partition.Equal(after) {
				x.Errorf("contender %d was shown %+v, the record is %+v", i, r.Partition, after)
			}
			if r.OK {
				winners++
				if after.Owner != fmt.Sprint("node-", i) {
					x.Errorf("node-%d was told that it acquired the bucket, which is %+v", i, after)
				}
			}
		}
		if winners != 1 || after.Token != token+1 {
			x.Errorf("%d contenders acquired the bucket, want 1; its token is %d, want %d",
				winners, after.Token, token+1)
		}
	}
}

func release(x *trial) {
	last := uint64(0)
	for range 4 {
		token := x.own(home)
		if token <= last {
			x.Errorf("the token is %d after %d, want it higher", token, last)
		}
		last = token
		c := everything(home, token, t0)
		c.Number, c.Checkpoint = token, t0-10
		x.claim(c)
		x.release(store.Hold{Bucket: home, Token: token})
		want := bucket.Partition{Bucket: home, Token: token, Claims: token, Checkpoint: t0 - 10,
			Claimed: bucket.UpTo(t0)}
		if got := x.partition(home); !got.Equal(want) {
			x.Errorf("after a release the record is %+v, want %+v", got, want)
		}
		x.release(store.Hold{Bucket: home, Token: token}) // repeated
		if got := x.partition(home); !got.Equal(want) {
			x.Errorf("after a second release the record is %+v, want %+v", got, want)
		}
	}
}

func releaseStale(x *trial) {
	stale := x.own(home)
	x.own(home)
	other := x.own(abroad)
	before := x.partition(home)
	x.release(store.Hold{Bucket: home, Token: stale}, store.Hold{Bucket: home, Token: before.Token + 1},
		store.Hold{Bucket: abroad, Token: other})
	if after := x.partition(home); !after.Equal(before) {
		x.Errorf("the record changed from %+v to %+v", before, after)
	}
	if p := x.partition(abroad); p.Owner != "" || p.Lease != "" {
		x.Errorf("the other bucket is still held: %+v", p)
	}
}

func renew(x *trial) {
	want := map[string]bucket.Lease{}
	for _, l := range []bucket.Lease{
		{ID: "lease-a", Renewals: 1, Lasts: 2500 * time.Millisecond}, {ID: "lease-b", Renewals: 1},
		{ID: "lease-a", Renewals: 2, Lasts: 30 * time.Second}, {ID: "knoten-ä", Renewals: 1 << 40, Lasts: 500_000_001},
		{ID: "lease-a", Renewals: 3, Lasts: 5 * time.Minute},
	} {
		want[l.ID] = l
		if _, err := x.store.Renew(x.ctx, l); err != nil {
			x.Fatalf("Renew: %v", err)
		}
	}
	_, leases, err := x.store.Look(x.ctx, nil)
	if err != nil || len(leases) != len(want) {
		x.Fatalf("Look: leases %+v, %v; want %d of them", leases, err, len(want))
	}
	for _, l := range leases {
		w := want[l.ID]
		if longer := l.Lasts - w.Lasts; l.Renewals != w.Renewals || longer < 0 || longer >= time.Millisecond {
			x.Errorf("got lease %+v, want %+v", l, w)
		}
	}
}

// clock checks only what holds on a machine of any speed.
func clock(x *trial) {
	last := postdate.Time(0)
	for i := range uint64(5) {
		now, err := x.store.Renew(x.ctx, bucket.Lease{ID: "lease-a", Renewals: i})
		if err != nil || now < last || last != 0 && now == 0 {
			x.Errorf("Renew: the clock shows %v after %v, error %v", now, last, err)
		}
		last = now
	}
}
