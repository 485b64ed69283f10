package storetest

import (
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// wantRecurring expects that these messages recur and these do not, and that lists by that are as long.
func (x *trial) wantRecurring(q store.ListQuery, recur, others []postdate.Message) {
	x.Helper()
	q.Tenant = tenant
	inListOrder(recur)
	inListOrder(others)
	for _, q.Limit = range []int{1, 3, plenty} {
		q.Recurring = store.OnlyRecurring
		x.wantList(q, recur)
		q.Recurring = store.NotRecurring
		x.wantList(q, others)
	}
}

func listRecurring(x *trial) {
	var recur, others []postdate.Message
	for i := range 20 {
		m := x.messageIn(i*5%x.store.Buckets(), tenant, t0+postdate.Time(i*7%4), labelled("a"))
		if i%3 == 0 {
			recurring(&m)
			recur = append(recur, m)
		} else {
			others = append(others, m)
		}
		x.insert(m)
	}
	theirs := x.messageIn(home, "tenant-b", t0, recurring)
	x.insert(theirs)
	q := store.ListQuery{Tenant: "tenant-b", Recurring: store.OnlyRecurring, Limit: 1}
	x.wantList(q, []postdate.Message{theirs})
	q.Recurring = store.NotRecurring
	x.wantList(q, nil)
	x.wantRecurring(store.ListQuery{}, recur, others)
	x.wantRecurring(store.ListQuery{StatesOnly: true, Label: "a"}, recur, others)
	x.wantRecurring(store.ListQuery{Label: "b"}, nil, nil)
	x.wantRecurring(store.ListQuery{Channel: "kafka:none"}, nil, nil)
	x.wantRecurring(store.ListQuery{Status: postdate.Cancelled}, nil, nil)
	at := recur[0].ExecutionTime + 1
	x.wantRecurring(store.ListQuery{From: at}, since(recur, at), since(others, at))
	x.wantRecurring(store.ListQuery{To: at}, until(recur, at), until(others, at))
	last := listPosition(&postdate.Record{Message: recur[2]})
	x.wantList(store.ListQuery{Tenant: tenant, Recurring: store.OnlyRecurring, After: &last, Limit: 2}, recur[3:])

	x.listRecurringEnded(recur, others)
}

// listRecurringEnded goes on with what recurs and what does not.
func (x *trial) listRecurringEnded(recur, others []postdate.Message) {
	x.Helper()
	over, turned, became := x.addSeries(t0), x.addSeries(t0+99*every), x.add(t0+99*every)
	token := x.own(home)
	child, extra := x.detach(over, token, 1), x.trigger(over, t0-9)
	x.settled(x.isOver(over, token, store.SettleDelivered, 2))
	turned, became = changed(turned, single), changed(became, recurring)
	x.replace(turned)
	x.replace(became)
	x.wantCancelled(became)
	recur, others = append(recur, over, became), append(others, child, extra, turned)
	x.wantRecurring(store.ListQuery{}, recur, others)
	x.wantRecurring(store.ListQuery{Status: postdate.Cancelled}, []postdate.Message{became}, nil)
	x.wantRecurring(store.ListQuery{Status: postdate.Delivered}, []postdate.Message{over}, nil)

	for _, m := range []postdate.Message{over, became} {
		x.forget(m)
	}
	gone := func(m postdate.Message) bool { return m.Key == over.Key || m.Key == became.Key }
	x.wantRecurring(store.ListQuery{}, slices.DeleteFunc(recur, gone), others)
	once := changed(became, single) // the id is used again
	x.insert(once)
	later := store.ListQuery{Status: postdate.Pending, From: t0 + 50*every}
	x.wantRecurring(later, nil, []postdate.Message{turned, once})
}

// since is those of all, in the order of a list, that are due at or after a time.
func since(all []postdate.Message, at postdate.Time) (later []postdate.Message) {
	for _, m := range all {
		if m.ExecutionTime >= at {
			later = append(later, m)
		}
	}
	return later
}

func listFailed(x *trial) {
	token := x.own(home)
	wantFailed := func(want ...postdate.Message) {
		x.Helper()
		inListOrder(want)
		for _, limit := range []int{1, 2, plenty} {
			q := store.ListQuery{Tenant: tenant, Status: postdate.DeliveryFailed, Limit: limit}
			x.wantList(q, want)
			q.StatesOnly, q.From = true, t0+1
			x.wantList(q, since(want, t0+1))
			q.From, q.To = 0, t0+2
			x.wantList(q, until(want, t0+2))
			q.To, q.Channel = 0, "kafka:invoices"
			x.wantList(q, nil)
		}
	}
	var all []postdate.Message
	for i := range postdate.Time(8) {
		x.add(t0 + i) // stays PENDING
		all = append(all, x.fails(x.add(t0+i%4), token))
	}
	theirs := x.messageIn(home, "tenant-b", t0)
	x.insert(theirs)
	x.settle(x.settlement(theirs, token, store.SettleFailed))
	wantFailed(slices.Clone(all)...)
	q := store.ListQuery{Tenant: "tenant-b", Status: postdate.DeliveryFailed, Limit: 1}
	x.wantList(q, []postdate.Message{theirs})

	x.redriven(all[0], t0+9)
	x.purged(store.Versioned{Key: all[1].Key})
	x.forget(all[2])
	wantFailed(slices.Clone(all[3:])...)
	x.fails(all[0], token) // once more
	x.insert(all[1])       // as if it had never been there
	wantFailed(append(slices.Clone(all[3:]), all[0])...)
	x.expire(postdate.LatestTime, 0, plenty, 7) // theirs too
	wantFailed()
}
