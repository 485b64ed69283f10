package storetest

import (
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// RunDeliverer checks what a [store.Deliverer] promises. open and crash are those of [RunDurable].
func RunDeliverer(t *testing.T, open func(t *testing.T) store.Store,
	crash func(t *testing.T, s store.Store) store.Store) {
	for _, c := range delivering() {
		t.Run(c.promise, func(t *testing.T) {
			x := newTrial(t, open(t), func(s store.Store) store.Store { return crash(t, s) })
			c.run(x)
			closeStore(t, x.store)
		})
	}
}

func delivering() []check {
	return []check{
		{"a message gets into its inbox and becomes DELIVERED", deliverOnce},
		{"both survive the end of the process", func(x *trial) {
			token := x.own(home)
			m := x.add(t0)
			d := x.delivery(m, token)
			x.deliver(d)
			x.crash()
			x.wantStatus(m, postdate.Delivered)
			x.deliver(d)
			x.wantNews(d)
		}},
		{"what is not as it was published is not appended", deliverNothing},
		{"a token that was passed on delivers, which is a fact", func(x *trial) {
			m := x.add(t0)
			stale := x.own(home)
			x.own(home)
			d := x.delivery(m, stale)
			x.deliver(d)
			x.wantStatus(m, postdate.Delivered)
			x.wantNews(d)
		}},
		{"of many deliveries each stands alone", deliverMany},
		{"each inbox gets its own messages", deliverNames},
		{"a series goes on, and delivers each occurrence once", deliverSeries},
		{"who follows the cursor while many deliver the same sees every message exactly once", deliverRace},
	}
}

// delivery delivers m to the inbox news.
func (x *trial) delivery(m postdate.Message, token uint64) store.InboxDelivery {
	d := store.InboxDelivery{Message: letter("news", 0), Settlement: x.settlement(m, token, store.SettleDelivered)}
	d.Message.Tenant, d.Message.ScheduleID, d.Message.Payload = m.Tenant, m.ScheduleID, m.Payload
	return d
}

func (x *trial) deliver(deliveries ...store.InboxDelivery) {
	x.Helper()
	errs := x.store.(store.Deliverer).Deliver(x.ctx, deliveries)
	if len(errs) != len(deliveries) {
		x.Fatalf("Deliver of %d messages returned %d errors", len(deliveries), len(errs))
	}
	for _, err := range errs {
		if err != nil {
			x.Fatalf("Deliver: %v", err)
		}
	}
}

// wantNews expects that the inbox news has what was delivered, and nothing else.
func (x *trial) wantNews(want ...store.InboxDelivery) {
	x.Helper()
	var letters []store.InboxMessage
	for _, d := range want {
		letters = append(letters, d.Message)
	}
	got, _ := x.readInbox(tenant, "news", "", plenty)
	x.wantLetters(got, letters...)
}

func deliverOnce(x *trial) {
	token := x.own(home)
	x.appendInbox(letter("other", 1))
	var all []store.InboxDelivery
	for range 3 {
		m := x.add(t0)
		x.claim(everything(home, token, t0))
		want := fresh(m)
		want.Version = x.first[m.Key]
		d := x.delivery(m, token)
		d.Settlement.Outcome, d.Settlement.Node = postdate.AttemptDelivered, "n"
		want.Log = d.Settlement.Log(want.Log)
		want.State = d.Settlement.State(want.State)
		x.deliver(d)
		x.wantRecord(x.get(m.Key), want)
		x.deliver(d)
		x.wantRecord(x.get(m.Key), want)
		all = append(all, d)
		x.wantNews(all...)
	}
	x.wantDue(everything(home, token, t0+9))
}

func deliverNothing(x *trial) {
	moved, cancelled, failed, missing := x.add(t0), x.add(t0+100), x.add(t0), x.message(t0)
	next := changed(moved)
	next.ExecutionTime = t0 + 20
	x.replace(next)
	x.wantCancelled(cancelled)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.settlement(failed, token, store.SettleFailed))
	ahead := x.delivery(moved, token)
	ahead.Settlement.Version += 2
	x.deliver(x.delivery(moved, token), ahead, x.delivery(cancelled, token), x.delivery(failed, token),
		x.delivery(missing, token))
	x.wantNews()
	x.wantStatus(moved, postdate.Pending)
	x.wantStatus(cancelled, postdate.Cancelled)
	x.wantStatus(failed, postdate.DeliveryFailed)
	_, err := x.store.Get(x.ctx, missing.Key)
	x.wantKind(err, postdate.KindNotFound)
}

func deliverMany(x *trial) {
	var all, want []store.InboxDelivery
	tokens := map[int]uint64{home: x.own(home), abroad: x.own(abroad)}
	var messages []postdate.Message
	for i := range 600 {
		b := []int{home, abroad}[i%2]
		m := x.messageIn(b, tenant, t0)
		x.insert(m)
		messages = append(messages, m)
		d := x.delivery(m, tokens[b])
		if i%5 == 0 {
			d.Settlement.Version++ // changes nothing
		} else {
			want = append(want, d)
		}
		all = append(all, d)
		if i%7 == 0 {
			all = append(all, d) // twice in one call
		}
	}
	x.deliver(all...)
	for i, m := range messages {
		status := postdate.Delivered
		if i%5 == 0 {
			status = postdate.Pending
		}
		x.wantStatus(m, status)
	}
	x.wantNews(want...)
}

func deliverNames(x *trial) {
	token := x.own(home)
	var all []store.InboxDelivery
	for _, box := range [][2]string{{tenant, "a"}, {"tenant-b", "a"}, {"tenant-b", "ab"}, {tenant, "ab"}} {
		m := x.messageIn(home, box[0], t0)
		x.insert(m)
		d := x.delivery(m, token)
		d.Message.Inbox = box[1]
		all = append(all, d)
	}
	x.deliver(all...) // one call, many inboxes; each has its tenant or its name from the one before
	for _, d := range all {
		got, next := x.readInbox(d.Message.Tenant, d.Message.Inbox, "", plenty)
		x.wantLetters(got, d.Message)
		got, _ = x.readInbox(d.Message.Tenant, d.Message.Inbox, next, plenty)
		x.wantLetters(got)
	}
}

func deliverSeries(x *trial) {
	token := x.own(home)
	m := x.addSeries(t0)
	var all []store.InboxDelivery
	for run := 1; run <= 3; run++ {
		x.claim(everything(home, token, begins(m, run)))
		d := x.delivery(m, token)
		d.Settlement = x.goesOn(m, token, store.SettleDelivered, run)
		want := x.get(m.Key)
		want.Series = d.Settlement.Series(want.State, want.Series)
		want.State = d.Settlement.State(want.State)
		x.deliver(d)
		x.deliver(d)
		x.wantRecord(x.get(m.Key), want)
		all = append(all, d)
	}
	x.wantNews(all...)
}

func deliverRace(x *trial) {
	const deliverers, calls, perCall = 4, 40, 5
	token := x.own(home)
	var all []store.InboxDelivery
	for range calls * perCall {
		all = append(all, x.delivery(x.add(t0), token))
	}
	var group sync.WaitGroup
	for range deliverers {
		group.Go(func() {
			for c := range calls {
				x.deliver(all[c*perCall : (c+1)*perCall]...)
			}
		})
	}
	seen := x.follow("news", 3, group.Wait)
	for _, d := range all {
		if n := seen[d.Message.ScheduleID]; n != 1 {
			x.Errorf("%s was read %d times, want once", d.Message.ScheduleID, n)
		}
	}
}
