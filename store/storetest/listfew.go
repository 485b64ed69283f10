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

// listPending lists what is PENDING, much of which does not wait at its execution time, among what is settled.
func listPending(x *trial) {
	var pending []postdate.Message
	tokens := make([]uint64, x.store.Buckets())
	for b := range tokens {
		tokens[b] = x.own(b)
	}
	for i := range 60 {
		m := x.messageIn(i*5%len(tokens), tenant, t0+postdate.Time(i*7%4), labelled("a"))
		if i%12 == 0 {
			recurring(&m)
		}
		x.insert(m)
		x.befalls(m, tokens[m.Bucket], i)
		if x.get(m.Key).Status == postdate.Pending {
			pending = append(pending, m)
		}
		if i%12 == 0 {
			pending = append(pending, x.detach(m, tokens[m.Bucket], 1))
		}
	}
	theirs := x.messageIn(home, "tenant-b", t0)
	x.insert(theirs)
	x.settle(x.retryAt(theirs, tokens[home], t0+2))
	inListOrder(pending)
	for _, limit := range []int{1, 2, 7, plenty} {
		q := store.ListQuery{Tenant: tenant, Status: postdate.Pending, Limit: limit}
		x.wantList(q, pending)
		q.From = t0 + 1
		x.wantList(q, since(pending, q.From))
		q.To = t0 + 3
		x.wantList(q, until(since(pending, q.From), q.To))
		q.From, q.To, q.Label, q.StatesOnly = 0, 0, "a", true
		x.wantList(q, pending)
		q.Tenant, q.Label = "tenant-b", ""
		x.wantList(q, []postdate.Message{theirs})
	}
	x.listPendingUnderChange(pending, tokens)
}

// befalls retries, parks, redrives, delivers or cancels m, or leaves it as it is: i says which.
func (x *trial) befalls(m postdate.Message, token uint64, i int) {
	x.Helper()
	switch i % 6 {
	case 1: // perhaps to a time that others have
		x.settled(x.retryAt(m, token, m.ExecutionTime+postdate.Time(i%4)))
	case 2: // perhaps until its execution time
		s := x.settlement(m, token, store.SettlePark)
		s.AttemptTime = m.ExecutionTime + postdate.Time(i%4)
		x.settled(s)
	case 3:
		x.redriven(x.fails(m, token), t0+postdate.Time(i%4))
	case 4:
		x.settled(x.settlement(m, token, store.SettleDelivered))
	case 5:
		x.wantCancelled(m)
	}
}

// listPendingUnderChange follows the cursor while messages are retried. Each is seen once.
func (x *trial) listPendingUnderChange(pending []postdate.Message, tokens []uint64) {
	x.Helper()
	between := func(page int) {
		for _, i := range []int{page, page * 3, page * 7} {
			m := pending[i%len(pending)]
			if m.Recurrence != nil {
				continue // a series only goes on
			}
			s := x.retryAt(m, tokens[m.Bucket], m.ExecutionTime+postdate.Time(page))
			s.Version = x.get(m.Key).Version
			x.settled(s)
		}
	}
	q := store.ListQuery{Tenant: tenant, Status: postdate.Pending, Limit: 3}
	x.wantIDs("a list under change", idsOf(x.list(q, between)), pending...)
}
