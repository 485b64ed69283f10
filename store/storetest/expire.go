package storetest

import (
	"fmt"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func expiring() []check {
	return []check{
		{"what was settled before the time is gone, and nothing else", expireSettled},
		{"a PENDING message never expires, nor a parked or a retried one", expirePending},
		{"what lies in other buckets stays, and takes nothing of the limit", expireBuckets},
		{"a call deletes up to its limit, and says how many", expireLimit},
		{"an id whose message expired is free again, for any content", expireFree},
		{"inbox messages that were delivered before the time are gone, and cursors go on", expireInbox},
		{"an inbox that belongs to another bucket stays, and takes nothing of the limit", expireInboxBuckets},
		{"a call deletes up to its limit of inbox messages, over all inboxes", expireInboxLimit},
		{"who expire at once, each in buckets of its own, delete everything once", expireRace},
	}
}

// expire expires in all buckets.
func (x *trial) expire(settled, delivered postdate.Time, limit, want int) {
	x.Helper()
	x.expireIn(store.Expiry{Buckets: x.everywhere(), SettledBefore: settled, DeliveredBefore: delivered, Limit: limit},
		want)
}

// everywhere is all of the store's buckets.
func (x *trial) everywhere() (buckets []int) {
	for b := range x.store.Buckets() {
		buckets = append(buckets, b)
	}
	return buckets
}

func (x *trial) expireIn(e store.Expiry, want int) {
	x.Helper()
	if n, err := x.store.Expire(x.ctx, e); err != nil || n != want {
		x.Errorf("Expire(%+v) answered %d, %v; want %d", e, n, err, want)
	}
}

func (x *trial) wantGone(m postdate.Message) {
	x.Helper()
	_, err := x.store.Get(x.ctx, m.Key)
	x.wantKind(err, postdate.KindNotFound)
}

// settledAt settles messages at the given times.
func (x *trial) settledAt(token uint64, how store.Settling, ends map[*postdate.Message]postdate.Time) {
	x.Helper()
	for m, at := range ends {
		s := x.settlement(*m, token, how)
		s.At = at
		x.settle(s)
	}
}

func expireSettled(x *trial) {
	old, edge, young := x.add(t0), x.add(t0), x.add(t0)
	failed, cancelled := x.add(t0), x.add(t0+50)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settledAt(token, store.SettleDelivered, map[*postdate.Message]postdate.Time{&old: t0 + 9, &edge: t0 + 10,
		&young: t0 + 11})
	x.settledAt(token, store.SettleFailed, map[*postdate.Message]postdate.Time{&failed: t0 + 9})
	x.cancel(cancelled, t0+9)
	x.expire(t0+9, 0, plenty, 0)
	x.expire(t0+10, 0, plenty, 3)
	x.expire(t0+10, 0, plenty, 0)
	for _, m := range []postdate.Message{old, failed, cancelled} {
		x.wantGone(m)
		x.wantKind(x.cancel(m, t0).Err, postdate.KindNotFound)
	}
	x.wantStatus(edge, postdate.Delivered)
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 3}, []postdate.Message{edge, young})
	x.expire(t0+12, 0, plenty, 2)
	x.wantList(store.ListQuery{Tenant: tenant, Limit: 3}, nil)
}

func expirePending(x *trial) {
	plain, retried, parked, replaced := x.add(t0-1000), x.add(t0), x.add(t0), x.add(t0+10)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.retryAt(retried, token, t0+5), x.settlement(parked, token, store.SettlePark))
	next := changed(replaced)
	x.replace(next)
	x.expire(postdate.LatestTime, postdate.LatestTime, plenty, 0)
	for _, m := range []postdate.Message{plain, retried, parked, replaced} {
		x.wantStatus(m, postdate.Pending)
	}
	x.wantDue(everything(home, token, t0+20), plain, retried, next)
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
}

func expireBuckets(x *trial) {
	var foreign, own []postdate.Message
	for i := range 6 {
		foreign, own = append(foreign, x.messageIn(abroad, tenant, t0)), append(own, x.message(t0))
		x.insert(foreign[i], own[i])
		x.cancel(foreign[i], t0-9) // it is older than what is looked for
		x.cancel(own[i], t0-postdate.Time(i))
	}
	here := store.Expiry{Buckets: []int{home}, SettledBefore: t0 - 1, Limit: 3}
	x.expireIn(store.Expiry{SettledBefore: t0 - 1, Limit: 3}, 0)
	x.expireIn(here, 3)
	x.expireIn(here, 1)
	x.expireIn(here, 0)
	for i := range own {
		x.wantStatus(foreign[i], postdate.Cancelled)
		if i < 2 {
			x.wantStatus(own[i], postdate.Cancelled)
		} else {
			x.wantGone(own[i])
		}
	}
	x.expireIn(store.Expiry{Buckets: []int{0, abroad}, SettledBefore: t0 + 1, Limit: plenty}, 6)
	x.wantList(store.ListQuery{Tenant: tenant, Limit: plenty}, own[:2])
}

func expireLimit(x *trial) {
	var all []postdate.Message
	for i := range 10 {
		m := x.messageIn(i%4, tenant, t0)
		x.insert(m)
		x.cancel(m, t0-postdate.Time(i))
		all = append(all, m)
	}
	for i, want := range []int{4, 4, 2, 0} {
		x.expire(t0+1, t0+1, 4, want)
		left := x.list(store.ListQuery{Tenant: tenant, Limit: plenty}, nil)
		if want := max(0, len(all)-4*(i+1)); len(left) != want {
			x.Errorf("%d messages are left, want %d", len(left), want)
		}
	}
}

func expireFree(x *trial) {
	m := x.add(t0)
	x.wantCancelled(m)
	x.expire(postdate.LatestTime, 0, plenty, 1)
	again := changed(m)
	again.ExecutionTime = t0 + 5
	x.insert(again)
	x.wantRecord(x.get(m.Key), fresh(again))
	x.wantDue(everything(home, x.own(home), t0+10), again)
	x.expire(postdate.LatestTime, 0, plenty, 0)
}

func expireInbox(x *trial) {
	x.appendInbox(letter("news", 1), letter("news", 2)) // delivered at t0+2
	young := letter("news", 3)
	young.DeliveredAt = t0 + 3
	x.appendInbox(young)
	_, first := x.readInbox(tenant, "news", "", 1)
	_, last := x.readInbox(tenant, "news", "", plenty)
	x.expire(postdate.LatestTime, t0+2, plenty, 0)
	x.expire(0, t0+3, plenty, 2)
	for _, cursor := range []string{"", first} {
		got, _ := x.readInbox(tenant, "news", cursor, plenty)
		x.wantLetters(got, young)
	}
	x.expire(0, postdate.LatestTime, plenty, 1)
	for _, cursor := range []string{"", first, last} {
		got, _ := x.readInbox(tenant, "news", cursor, plenty)
		x.wantLetters(got)
	}
	x.appendInbox(letter("news", 4)) // an empty inbox does not begin anew
	for _, cursor := range []string{"", first, last} {
		got, _ := x.readInbox(tenant, "news", cursor, plenty)
		x.wantLetters(got, letter("news", 4))
	}
}

// inboxIn is the name of an inbox that belongs to a bucket.
func (x *trial) inboxIn(b int) string {
	for n := 0; ; n++ {
		if name := fmt.Sprint("box-", n); bucket.Of(tenant, name, x.store.Buckets()) == b {
			return name
		}
	}
}

func expireInboxBuckets(x *trial) {
	foreign, own := x.inboxIn(abroad), x.inboxIn(home)
	for i := range 6 {
		x.appendInbox(letter(foreign, i), letter(own, i))
	}
	here := store.Expiry{Buckets: []int{home}, DeliveredBefore: t0 + 3, Limit: 4}
	x.expireIn(store.Expiry{DeliveredBefore: t0 + 3, Limit: 4}, 0)
	x.expireIn(here, 4)
	got, _ := x.readInbox(tenant, own, "", plenty)
	x.wantLetters(got, letter(own, 4), letter(own, 5))
	x.expireIn(here, 2)
	x.expireIn(here, 0)
	if got, _ := x.readInbox(tenant, foreign, "", plenty); len(got) != 6 {
		x.Errorf("%d messages are left in the inbox of another bucket, want 6", len(got))
	}
	x.expireIn(store.Expiry{Buckets: []int{0, abroad}, DeliveredBefore: t0 + 3, Limit: plenty}, 6)
}

func expireRace(x *trial) {
	const each = 30 // messages per bucket
	var all []postdate.Message
	var keys []postdate.Key
	for i := range each * x.store.Buckets() {
		all = append(all, x.messageIn(i%x.store.Buckets(), tenant, t0))
		keys = append(keys, all[i].Key)
	}
	x.insert(all...)
	for _, c := range x.store.Cancel(x.ctx, keys, t0) {
		if c.Err != nil {
			x.Fatalf("Cancel: %v", c.Err)
		}
	}
	var group sync.WaitGroup
	for from := range 2 {
		e := store.Expiry{SettledBefore: postdate.LatestTime, Limit: 7}
		for b := from; b < x.store.Buckets(); b += 2 {
			e.Buckets = append(e.Buckets, b)
		}
		group.Go(func() {
			total := 0
			for n := e.Limit; n == e.Limit; total += n { // none of them stops before the end
				var err error
				if n, err = x.store.Expire(x.ctx, e); err != nil {
					x.Errorf("Expire: %v", err)
				}
			}
			if want := each * len(e.Buckets); total != want {
				x.Errorf("one of two deleted %d messages, want %d", total, want)
			}
		})
	}
	group.Wait()
	x.wantList(store.ListQuery{Tenant: tenant, Limit: plenty}, nil)
}

func expireInboxLimit(x *trial) {
	for i := range 6 {
		x.appendInbox(letter("news", i), letter("mail", i))
	}
	for _, want := range []int{5, 5, 2, 0} {
		x.expire(0, t0+3, 5, want)
	}
}
