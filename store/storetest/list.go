package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func listing() []check {
	return []check{
		{"messages come in ascending order of execution time, then bucket, then id", func(x *trial) {
			want := x.spread(60)
			x.wantList(store.ListQuery{Tenant: tenant, Limit: plenty}, want)
		}},
		{"pages of every size give the same as one, each within its limit", func(x *trial) {
			want := x.spread(40)
			for _, limit := range []int{1, 2, 3, 7, 39, 40, 41} {
				x.wantList(store.ListQuery{Tenant: tenant, Limit: limit}, want)
			}
		}},
		{"a store without messages has an empty list", func(x *trial) {
			x.wantList(store.ListQuery{Tenant: tenant, Limit: 5}, nil)
		}},
		{"a tenant sees its own messages only", func(x *trial) {
			mine := x.spread(10)
			theirs := x.messageIn(home, "tenant-b", t0)
			x.insert(theirs)
			x.wantList(store.ListQuery{Tenant: tenant, Limit: 3}, mine)
			x.wantList(store.ListQuery{Tenant: "tenant-b", Limit: 3}, []postdate.Message{theirs})
			x.wantList(store.ListQuery{Tenant: "tenant-c", Limit: 3}, nil)
		}},
		{"From is inclusive and To exclusive", listRange},
		{"a status selects, and so does a channel, and all filters together", listFilters},
		{"what recurs is selected, or what does not, on pages of every size, also once it has ended or changed",
			listRecurring},
		{"what is pending is listed in the order of execution times, wherever it waits", listPending},
		{"what has failed is listed until it is redriven, purged or forgotten", listFailed},
		{"the beginning of an id selects, exactly, on pages of every size", listPrefix},
		{"records are whole, as Get gives them, in the order of execution times also after a retry", listRecords},
		{"records of states only have the keys, the execution times, the channels and the states", listStates},
		{"who follows the cursor while messages come and end sees each that was there throughout once",
			listUnderChange},
	}
}

// spread inserts messages over all buckets, several at each time, in no particular order, and
// returns them in the order of a list.
func (x *trial) spread(n int) []postdate.Message {
	x.Helper()
	var all []postdate.Message
	for i := range n {
		all = append(all, x.messageIn(i*5%x.store.Buckets(), tenant, t0+postdate.Time(i*7%4)))
	}
	x.insert(all...)
	inListOrder(all)
	return all
}

func inListOrder(messages []postdate.Message) {
	slices.SortFunc(messages, func(a, b postdate.Message) int {
		ra, rb := fresh(a), fresh(b)
		return compareListed(listPosition(&ra), listPosition(&rb))
	})
}

// list follows the cursor to the end.
func (x *trial) list(q store.ListQuery, between func(page int)) []postdate.Record {
	x.Helper()
	var all []postdate.Record
	for n := range pageMax {
		page, err := x.store.List(x.ctx, q)
		if err != nil {
			x.Fatalf("List: %v", err)
		}
		if len(page.Records) > q.Limit {
			x.Errorf("a page holds %d messages, its limit is %d", len(page.Records), q.Limit)
		}
		all = append(all, page.Records...)
		if page.Next == nil {
			return all
		}
		if between != nil {
			between(n)
		}
		q.After = page.Next
	}
	x.Fatalf("a list did not end within %d pages", pageMax)
	return nil
}

func (x *trial) wantList(q store.ListQuery, want []postdate.Message) {
	x.Helper()
	x.wantIDs(fmt.Sprintf("a list by %d", q.Limit), idsOf(x.list(q, nil)), want...)
}

func listRange(x *trial) {
	var all []postdate.Message
	for i := range postdate.Time(8) {
		m := x.messageIn(int(i)%4, tenant, t0+i)
		x.insert(m)
		all = append(all, m)
	}
	x.wantList(store.ListQuery{Tenant: tenant, From: t0 + 2, To: t0 + 5, Limit: 2}, all[2:5])
	x.wantList(store.ListQuery{Tenant: tenant, From: t0 + 6, Limit: 1}, all[6:])
	x.wantList(store.ListQuery{Tenant: tenant, To: t0 + 1, Limit: 4}, all[:1])
	x.wantList(store.ListQuery{Tenant: tenant, From: t0 + 3, To: t0 + 3, Limit: 4}, nil)
}

func listFilters(x *trial) {
	pending, delivered, failed, cancelled := x.add(t0), x.add(t0+1), x.add(t0+2), x.add(t0+9)
	other, low := x.add(t0+20, onRoute("kafka:orders")), x.add(t0+21, onRoute("@default!low kafka:orders"))
	token := x.own(home)
	x.claim(everything(home, token, t0+5))
	x.settle(x.settlement(delivered, token, store.SettleDelivered), x.settlement(failed, token, store.SettleFailed))
	x.wantCancelled(cancelled)
	by := func(status postdate.Status, channel postdate.Channel) store.ListQuery {
		return store.ListQuery{Tenant: tenant, Status: status, Channel: channel, Limit: 2}
	}
	x.wantList(by(0, ""), []postdate.Message{pending, delivered, failed, cancelled, other, low})
	x.wantList(by(postdate.Pending, ""), []postdate.Message{pending, other, low})
	x.wantList(by(postdate.Delivered, ""), []postdate.Message{delivered})
	x.wantList(by(postdate.DeliveryFailed, ""), []postdate.Message{failed})
	x.wantList(by(postdate.Cancelled, ""), []postdate.Message{cancelled})
	x.wantList(by(0, "kafka:orders"), []postdate.Message{other, low})
	x.wantList(by(0, "kafka:order"), nil)
	x.wantList(by(postdate.Delivered, "kafka:orders"), nil)
	q := by(postdate.Pending, orders)
	q.From, q.To = t0, t0+1
	x.wantList(q, []postdate.Message{pending})
}

func listPrefix(x *trial) {
	var all []postdate.Message
	for i, id := range []string{"task-a", "task-a+", "task-a.b", "task-a~~", "task-a:1=2,3", "task-a@b_c", "task-ab",
		"task-", "task", "Task-a", "TASK-A:1", "my-task-a", "task-b", "task,a", "taskXa", "a", "task-A"} {
		m := postdate.Message{Key: bucket.KeyOf(tenant, id, x.store.Buckets()), Channel: orders}
		m.ExecutionTime = t0 + postdate.Time(i%3)
		all = append(all, m)
	}
	series := x.message(t0, recurring)
	series.Key = bucket.KeyOf(tenant, "task-a:s", x.store.Buckets())
	theirs := all[0]
	theirs.Tenant = "tenant-b"
	x.insert(append(all, series, theirs)...)
	x.wantCancelled(all[1])
	all = append(all, series, x.trigger(series, t0-9))
	inListOrder(all)
	for _, prefix := range []string{"task-a", "task-a:s", "task-a:s/", "task-a.", "task-a~", "task", "t", "my", "x",
		"task-a:sx"} {
		var want, cancelled []postdate.Message
		for _, m := range all {
			if strings.HasPrefix(m.ScheduleID, prefix) {
				want = append(want, m)
				if m.ScheduleID == "task-a+" {
					cancelled = append(cancelled, m)
				}
			}
		}
		for _, limit := range []int{1, 2, 5, plenty} {
			x.wantList(store.ListQuery{Tenant: tenant, IDPrefix: prefix, Limit: limit}, want)
		}
		x.wantList(store.ListQuery{Tenant: tenant, IDPrefix: prefix, Status: postdate.Cancelled, Limit: 1}, cancelled)
	}
	x.wantList(store.ListQuery{Tenant: "tenant-b", IDPrefix: "task-a", Limit: 1}, []postdate.Message{theirs})
	x.wantList(store.ListQuery{Tenant: tenant, IDPrefix: "task-a:s", To: t0, Limit: 1}, all[:1])
}

func listRecords(x *trial) {
	first, second := x.add(t0), x.add(t0+1)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.retryAt(first, token, t0+50))
	records := x.list(store.ListQuery{Tenant: tenant, Limit: 1}, nil)
	x.wantIDs("a list", idsOf(records), first, second)
	for _, r := range records {
		x.wantRecord(r, x.get(r.Key))
	}
}

func listStates(x *trial) {
	first, second := x.add(t0), x.add(t0+1)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.retryAt(first, token, t0+50))
	for _, status := range []postdate.Status{0, postdate.Pending} {
		records := x.list(store.ListQuery{Tenant: tenant, Status: status, Limit: 1, StatesOnly: true}, nil)
		x.wantIDs("a list of states", idsOf(records), first, second)
		for _, r := range records {
			whole := x.get(r.Key)
			if r.Key != whole.Key || r.ExecutionTime != whole.ExecutionTime || r.Channel != whole.Channel ||
				r.State != whole.State {
				x.Errorf("a list of states has %+v, want those of %+v", r, whole)
			}
		}
	}
}

func listUnderChange(x *trial) {
	throughout := x.spread(60)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	between := func(page int) {
		at := t0 + postdate.Time(page%4)
		x.insert(x.messageIn(page%4, tenant, at), x.messageIn(abroad, tenant, at+1))
		m := throughout[page*3%len(throughout)]
		s := x.settlement(m, token, store.SettleDelivered) // it ends, and is still listed
		x.settle(s)
	}
	seen := map[string]int{}
	for _, r := range x.list(store.ListQuery{Tenant: tenant, Limit: 4}, between) {
		seen[r.ScheduleID]++
	}
	for _, m := range throughout {
		if seen[m.ScheduleID] != 1 {
			x.Errorf("%s was listed %d times, want once", m.ScheduleID, seen[m.ScheduleID])
		}
	}
}
