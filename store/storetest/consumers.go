package storetest

import (
	"reflect"
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// worker is a consumer of the inbox news.
var worker = store.ConsumerName{Tenant: tenant, Inbox: "news", Consumer: "worker"}

func consumers() []check {
	return []check{
		{"one that nobody set is the zero Consumer, and the first sets it from version 0", func(x *trial) {
			x.wantConsumer(worker, store.Consumer{})
			x.setConsumer(worker, 7, consumerAt(8, t0), false)
			x.wantConsumer(worker, store.Consumer{})
			x.setConsumer(worker, 0, consumerAt(9, t0), true)
			x.wantConsumer(worker, consumerAt(9, t0))
		}},
		{"all of it reads back", func(x *trial) {
			whole := store.Consumer{
				Version: 1<<63 - 1, UsedAt: t0, Cursor: "ü-7", Reached: 1<<62 + 5, Open: []store.OpenMessage{
					{Place: store.InboxPlace{Segment: 1 << 40, Number: 0}, Until: t0 + 1, Deliveries: 1, Receipt: 3},
					{Place: store.InboxPlace{Number: 1 << 62}, Until: t0 + 2, Deliveries: 1000, Receipt: 1<<63 - 1},
				}}
			x.setConsumer(worker, 0, whole, true)
			x.wantConsumer(worker, whole)
			x.setConsumer(worker, whole.Version, consumerAt(2, t0), true)
			x.wantConsumer(worker, consumerAt(2, t0))
		}},
		{"it changes only from the version that it is at", func(x *trial) {
			x.setConsumer(worker, 0, consumerAt(4, t0), true)
			x.setConsumer(worker, 0, consumerAt(5, t0), false)
			x.setConsumer(worker, 3, consumerAt(6, t0), false)
			x.wantConsumer(worker, consumerAt(4, t0))
			x.setConsumer(worker, 4, consumerAt(1, t0+1), true)
			x.setConsumer(worker, 4, consumerAt(7, t0+2), false)
			x.wantConsumer(worker, consumerAt(1, t0+1))
		}},
		{"every consumer of every inbox of every tenant is one of its own", consumerNames},
		{"what was last used before the time is forgotten, and nothing else", expireConsumers},
		{"none is forgotten before its messages are", func(x *trial) {
			x.appendInbox(letter("news", 1), letter("news", 2)) // delivered at t0+2
			x.setConsumer(worker, 0, consumerAt(1, t0+2), true)
			for range 2 {
				x.expire(0, t0+3, 1, 1)
				x.wantConsumer(worker, consumerAt(1, t0+2))
			}
			x.expire(0, t0+3, 1, 0)
			x.wantConsumer(worker, store.Consumer{})
		}},
		{"of many that set it at once one succeeds", consumersAtOnce},
		{"a message that was read is found at its place, for as long as it is kept", inboxPlaces},
		{"a place is that of one inbox", func(x *trial) {
			x.appendInbox(letter("news", 1), letter("mail", 2))
			got, _ := x.readInbox(tenant, "news", "", plenty)
			other, _ := x.readInbox(tenant, "mail", "", plenty)
			x.wantPlaces("mail", other, letter("mail", 2))
			x.wantPlaces("none", got)
			x.wantPlaces("news", nil)
		}},
	}
}

// consumerAt is a consumer at a version, with one open message.
func consumerAt(version uint64, usedAt postdate.Time) store.Consumer {
	return store.Consumer{Version: version, UsedAt: usedAt, Cursor: "c", Reached: 3, Open: []store.OpenMessage{
		{Place: store.InboxPlace{Segment: 1, Number: 2}, Until: usedAt + 9, Deliveries: 1, Receipt: version}}}
}

func (x *trial) wantConsumer(name store.ConsumerName, want store.Consumer) {
	x.Helper()
	got, err := x.store.Consumer(x.ctx, name)
	if len(got.Open) == 0 {
		got.Open = nil
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		x.Errorf("the consumer %v is %+v, %v; want %+v", name, got, err, want)
	}
}

func (x *trial) setConsumer(name store.ConsumerName, from uint64, to store.Consumer, want bool) {
	x.Helper()
	if done, err := x.store.SetConsumer(x.ctx, name, from, to); err != nil || done != want {
		x.Errorf("SetConsumer of %v from version %d answered %v, %v; want %v", name, from, done, err, want)
	}
}

// wantPlaces reads the places of messages again, and expects these messages there.
func (x *trial) wantPlaces(inbox string, read []store.InboxMessage, want ...store.InboxMessage) {
	x.Helper()
	var places []store.InboxPlace
	for _, m := range read {
		places = append(places, m.Place)
	}
	got, left, err := x.store.ReadPlaces(x.ctx, tenant, inbox, places)
	if err != nil || len(left) > 0 {
		x.Errorf("ReadPlaces left %v: %v", left, err)
	}
	at := map[store.InboxPlace]store.InboxMessage{}
	for _, m := range got {
		at[m.Place] = m
	}
	var ordered []store.InboxMessage
	for _, p := range places {
		if m, is := at[p]; is {
			ordered = append(ordered, m)
		}
	}
	if len(ordered) != len(got) {
		x.Errorf("of the places %v there came %+v", places, got)
	}
	x.wantLetters(ordered, want...)
}

func consumerNames(x *trial) {
	var names []store.ConsumerName
	for _, t := range []string{"tenant", "tenant-a"} {
		for _, inbox := range []string{"a", "ab"} {
			for _, c := range []string{"b", "bc", "c"} {
				names = append(names, store.ConsumerName{Tenant: t, Inbox: inbox, Consumer: c})
			}
		}
	}
	for i, name := range names {
		x.setConsumer(name, 0, consumerAt(uint64(i+1), t0), true)
	}
	for i, name := range names {
		x.wantConsumer(name, consumerAt(uint64(i+1), t0))
	}
}

func expireConsumers(x *trial) {
	here, foreign := x.inboxIn(home), x.inboxIn(abroad)
	old := store.ConsumerName{Tenant: tenant, Inbox: here, Consumer: "old"}
	young := store.ConsumerName{Tenant: tenant, Inbox: here, Consumer: "young"}
	elsewhere := store.ConsumerName{Tenant: tenant, Inbox: foreign, Consumer: "old"}
	x.setConsumer(old, 0, consumerAt(1, t0), true)
	x.setConsumer(elsewhere, 0, consumerAt(2, t0), true)
	x.setConsumer(young, 0, consumerAt(3, t0), true)
	x.setConsumer(young, 3, consumerAt(4, t0+1), true) // used again
	e := store.Expiry{Buckets: []int{home}, SettledBefore: postdate.LatestTime, DeliveredBefore: t0 + 1, Limit: plenty}
	x.expireIn(e, 0)
	x.wantConsumer(old, store.Consumer{})
	x.wantConsumer(young, consumerAt(4, t0+1))
	x.wantConsumer(elsewhere, consumerAt(2, t0))
	x.setConsumer(old, 1, consumerAt(5, t0+2), false)
	x.setConsumer(old, 0, consumerAt(6, t0+2), true)
	x.expire(postdate.LatestTime, t0+2, plenty, 0)
	x.wantConsumer(young, store.Consumer{})
	x.wantConsumer(elsewhere, store.Consumer{})
	x.wantConsumer(old, consumerAt(6, t0+2))
}

func consumersAtOnce(x *trial) {
	const callers = 8
	for from := range uint64(3) {
		var done [callers]bool
		var calls sync.WaitGroup
		for i := range callers {
			calls.Go(func() {
				var err error
				to := consumerAt((from+1)*100+uint64(i), t0)
				if done[i], err = x.store.SetConsumer(x.ctx, worker, from*100, to); err != nil {
					x.Errorf("SetConsumer: %v", err)
				}
			})
		}
		calls.Wait()
		winner, winners := 0, 0
		for i, is := range done {
			if is {
				winner, winners = i, winners+1
			}
		}
		if winners != 1 {
			x.Errorf("%d of %d that set a consumer at once did it, want one", winners, callers)
			return
		}
		won := (from+1)*100 + uint64(winner)
		x.wantConsumer(worker, consumerAt(won, t0))
		x.setConsumer(worker, won, consumerAt((from+1)*100, t0), true)
	}
}

func inboxPlaces(x *trial) {
	var all []store.InboxMessage
	for i := range 7 {
		all = append(all, letter("news", i))
		all[i].DeliveredAt = t0 + postdate.Time(i)
	}
	x.appendInbox(all[:4]...)
	x.appendInbox(all[4:]...)
	first, next := x.readInbox(tenant, "news", "", 3)
	rest, _ := x.readInbox(tenant, "news", next, plenty)
	read := append(first, rest...)
	for i := 1; i < len(read); i++ {
		if read[i].Place.Number <= read[i-1].Place.Number {
			x.Errorf("the place %v comes after %v", read[i].Place, read[i-1].Place)
		}
	}
	x.wantPlaces("news", read, all...)
	x.wantPlaces("news", []store.InboxMessage{read[5], read[2]}, all[5], all[2])
	x.expire(0, t0+3, plenty, 3)
	x.wantPlaces("news", read, all[3:]...)
	x.wantPlaces("news", read[1:5], all[3], all[4])
	x.expire(0, t0+7, plenty, 4)
	x.wantPlaces("news", read)
	x.appendInbox(letter("news", 9)) // it takes no former place
	x.wantPlaces("news", read)
}

// consumersSurvive is a durable check.
func consumersSurvive(x *trial) {
	other := store.ConsumerName{Tenant: tenant, Inbox: "news", Consumer: "other"}
	x.appendInbox(letter("news", 1), letter("news", 2))
	read, _ := x.readInbox(tenant, "news", "", plenty)
	x.setConsumer(worker, 0, consumerAt(1, t0+5), true)
	x.setConsumer(worker, 1, consumerAt(2, t0+6), true)
	x.setConsumer(other, 0, consumerAt(3, t0), true)
	x.expire(0, t0+1, plenty, 0)
	x.crash()
	x.wantConsumer(worker, consumerAt(2, t0+6))
	x.wantConsumer(other, store.Consumer{})
	x.setConsumer(worker, 1, consumerAt(4, t0), false)
	x.wantPlaces("news", read, letter("news", 1), letter("news", 2))
}
