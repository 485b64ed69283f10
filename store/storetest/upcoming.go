package storetest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// forecasting checks what a store says is upcoming. So few messages are counted exactly.
func forecasting() []check {
	return []check{
		{"in a store without messages nothing is upcoming", func(x *trial) {
			x.wantUpcoming(upcoming(t0, t0+25, 10), 0, 0, 0)
		}},
		{"each message counts in the slot of its time, whatever its bucket", upcomingSlots},
		{"a channel counts alone, at every priority, and without one the ten that have most are named",
			upcomingChannels},
		{"a tenant is told of its own messages only", func(x *trial) {
			x.add(t0)
			for i := range 3 {
				x.insert(x.messageIn(i, "tenant-b", t0+5, onRoute("@tenant-b inbox:theirs")))
			}
			x.wantUpcoming(upcoming(t0, t0+20, 10), 1, 0)
			q := upcoming(t0, t0+20, 10)
			q.Tenant = "tenant-b"
			x.wantUpcoming(q, 3, 0)
			q.Tenant = "tenant"
			x.wantUpcoming(q, 0, 0)
		}},
		{"what has ended does not count", upcomingEnded},
		{"a message that is retried counts at its next attempt, and not before", func(x *trial) {
			m := x.add(t0)
			token := x.own(home)
			x.claim(everything(home, token, t0))
			x.settle(x.retryAt(m, token, t0+25))
			x.wantUpcoming(upcoming(t0, t0+30, 10), 0, 0, 1)
		}},
		{"a message that is moved counts at its new time, with its new channel", func(x *trial) {
			m := x.add(t0)
			next := changed(m, onRoute("kafka:orders"))
			next.ExecutionTime = t0 + 15
			x.replace(next)
			q := upcoming(t0, t0+20, 10)
			x.wantUpcoming(q, 0, 1)
			q.Channel = "kafka:orders"
			x.wantUpcoming(q, 0, 1)
			q.Channel = orders
			x.wantUpcoming(q, 0, 0)
		}},
		{"what is parked does not count until it is unparked", func(x *trial) {
			m := x.add(t0)
			token := x.own(home)
			x.park(token, m)
			q := upcoming(t0, parkedUntil(m)+10, (parkedUntil(m)+10-t0)/2)
			x.wantUpcoming(q, 0, 0)
			x.unpark(token, orders, t0+5, 1)
			x.wantUpcoming(q, 1, 0)
		}},
		{"a series counts at its next occurrence alone, and not while it is paused", func(x *trial) {
			m := x.addSeries(t0)
			step := 10 * every
			x.wantUpcoming(upcoming(t0, t0+2*step, step), 1, 0)
			x.trigger(m, t0-9)
			x.wantUpcoming(upcoming(t0-step, t0+step, step), 1, 1)
			x.pause(m)
			x.wantUpcoming(upcoming(t0, t0+2*step, step), 0, 0)
		}},
		{"what is pending counts by channel, whatever it waits for, and so does what is due of it", pendingByChannel},
	}
}

// upcoming asks in slots of so many milliseconds.
func upcoming(from, to, step postdate.Time) store.UpcomingQuery {
	return store.UpcomingQuery{Tenant: tenant, From: from, To: to, Step: time.Duration(step) * time.Millisecond}
}

// wantUpcoming expects these counts, exactly, and that the channels have no more in all.
func (x *trial) wantUpcoming(q store.UpcomingQuery, want ...int64) []store.UpcomingSlot {
	x.Helper()
	slots, err := x.store.Upcoming(x.ctx, q)
	if err != nil || len(slots) != len(want) {
		x.Fatalf("Upcoming has %d slots, want %d; error %v", len(slots), len(want), err)
	}
	for i, s := range slots {
		if s.From != q.Begin(i) || s.Count != want[i] || !s.Exact {
			x.broken("slot %d from %v to %v is %+v, want exactly %d", i, q.From, q.To, s, want[i])
		}
		named := int64(0)
		for _, c := range s.Channels {
			if named += c.Count; c.Count < 1 {
				x.broken("slot %d names %s with %d", i, c.Channel, c.Count)
			}
		}
		if q.Channel != "" && len(s.Channels) > 0 || q.Channel == "" && named != s.Count {
			x.broken("slot %d of %q has the channels %+v, and counts %d", i, q.Channel, s.Channels, s.Count)
		}
	}
	return slots
}

func pendingByChannel(x *trial) {
	const other, rests = postdate.Channel("inbox:other"), postdate.Channel("inbox:rests")
	x.add(t0)
	x.add(t0 + 1)
	x.add(t0+1_000*every, onRoute(postdate.Route(other)))
	x.insert(x.messageIn(1, "tenant-b", t0, onRoute("@tenant-b inbox:theirs")))
	parked, ended := x.add(t0), x.add(t0)
	series := x.addSeries(t0+5, onRoute(postdate.Route(rests)))
	x.pause(series)
	token := x.own(home)
	x.park(token, parked)
	x.settle(x.settlement(ended, token, store.SettleDelivered))
	want := store.Pending{Exact: true, Channels: map[postdate.Channel]store.PendingCount{
		orders: {All: 3, Due: 2}, other: {All: 1}, rests: {All: 1},
	}}
	if got, err := x.store.Pending(x.ctx, tenant, t0); err != nil || !reflect.DeepEqual(got, want) {
		x.broken("at %v %+v is pending, want %+v: %v", t0, got, want, err)
	}
}

func upcomingSlots(x *trial) {
	for b := range 4 {
		x.insert(x.messageIn(b, tenant, t0-1), x.messageIn(b, tenant, t0), x.messageIn(b, tenant, t0+9),
			x.messageIn(b, tenant, t0+10), x.messageIn(b, tenant, t0+24), x.messageIn(b, tenant, t0+25))
	}
	x.wantUpcoming(upcoming(t0, t0+25, 10), 8, 4, 4)
	x.wantUpcoming(upcoming(t0, t0+20, 10), 8, 4)
	x.wantUpcoming(upcoming(t0-1, t0+26, 27), 24)
	x.wantUpcoming(upcoming(t0-1, t0+1, 1), 4, 4)
	x.wantUpcoming(upcoming(t0+26, t0+50, 12), 0, 0)
}

func upcomingChannels(x *trial) {
	for i := range 12 {
		for n := range i + 1 {
			route := postdate.Route(fmt.Sprintf("inbox:%02d", i))
			x.insert(x.messageIn(n%4, tenant, t0+postdate.Time(i%2*10), onRoute(route)))
		}
	}
	x.add(t0+11, onRoute("@default!low inbox:09"))
	slots, err := x.store.Upcoming(x.ctx, upcoming(t0, t0+20, 10))
	if err != nil {
		x.Fatalf("Upcoming: %v", err)
	}
	want := []store.UpcomingSlot{{From: t0, Count: 36, Exact: true}, {From: t0 + 10, Count: 43, Exact: true}}
	for _, i := range []int{10, 8, 6, 4, 2} {
		want[0].Channels = append(want[0].Channels,
			store.ChannelCount{Channel: postdate.Channel(fmt.Sprintf("inbox:%02d", i)), Count: int64(i + 1)})
	}
	for _, i := range []int{11, 9, 7, 5, 3} {
		n := int64(i + 1)
		if i == 9 {
			n++
		}
		want[1].Channels = append(want[1].Channels,
			store.ChannelCount{Channel: postdate.Channel(fmt.Sprintf("inbox:%02d", i)), Count: n})
	}
	if !reflect.DeepEqual(slots, want) {
		x.broken("upcoming is %+v, want %+v", slots, want)
	}
	q := upcoming(t0, t0+20, 10)
	for channel, n := range map[postdate.Channel]int64{"inbox:09": 11, "inbox:01": 2, "inbox:1": 0} {
		q.Channel = channel
		x.wantUpcoming(q, 0, n)
	}
}

func upcomingEnded(x *trial) {
	delivered, failed, cancelled := x.add(t0), x.add(t0), x.add(t0)
	x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settle(x.settlement(delivered, token, store.SettleDelivered))
	x.settle(x.settlement(failed, token, store.SettleFailed))
	x.add(t0 + 10)
	x.wantUpcoming(upcoming(t0, t0+20, 10), 2, 1)
	x.wantTooLate(cancelled)
	x.settle(x.settlement(cancelled, token, store.SettleDelivered))
	x.wantUpcoming(upcoming(t0, t0+20, 10), 1, 1)
}
