package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func expiring() []check {
	return []check{
		{"what was settled before the time is gone, and nothing else", expireSettled},
		{"a PENDING message never expires, nor a parked or a retried one", expirePending},
		{"a call deletes up to its limit, and says how many", expireLimit},
		{"an id whose message expired is free again, for any content", expireFree},
		{"inbox messages that were delivered before the time are gone, and cursors go on", expireInbox},
		{"a call deletes up to its limit of inbox messages, over all inboxes", expireInboxLimit},
	}
}

func (x *trial) expire(settled, delivered postdate.Time, limit, want int) {
	x.Helper()
	n, err := x.store.Expire(x.ctx, settled, delivered, limit)
	if err != nil || n != want {
		x.Errorf("Expire(%d, %d, %d) answered %d, %v; want %d", settled, delivered, limit, n, err, want)
	}
}

func (x *trial) wantGone(m postdate.Message) {
	x.Helper()
	_, err := x.store.Get(x.ctx, m.Key)
	x.wantKind(err, postdate.KindNotFound)
}

// settledAt brings messages to their ends at the given times.
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
	x.settledAt(token, store.SettleDelivered, map[*postdate.Message]postdate.Time{&old: t0 + 9, &edge: t0 + 10, &young: t0 + 11})
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
	x.wantParked([]int{home}, store.ParkedChannel{Bucket: home, Channel: orders})
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

func expireInboxLimit(x *trial) {
	for i := range 6 {
		x.appendInbox(letter("news", i), letter("mail", i))
	}
	for _, want := range []int{5, 5, 2, 0} {
		x.expire(0, t0+3, 5, want)
	}
}
