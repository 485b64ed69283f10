package storetest

import (
	"fmt"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func parking() []check {
	return []check{
		{"a parked message is not due before its time, until it is unparked", parkAndBack},
		{"a scan returns a parked message when its time has come", parkedDue},
		{"a parked message can be taken back also where a claim covers it", func(x *trial) {
			cancelled, replaced := x.add(t0), x.add(t0)
			token := x.own(home)
			x.park(token, cancelled, replaced)
			c := everything(home, token, parkedUntil(cancelled))
			x.wantDue(c, cancelled, replaced)
			x.wantCancelled(cancelled)
			next := changed(replaced)
			next.ExecutionTime = parkedUntil(replaced) + 10
			x.replace(next)
			c.To = bucket.UpTo(next.ExecutionTime)
			x.wantDue(c, next)
			x.wantParked([]int{home})
		}},
		{"however a parked message is settled, it waits where its new state says, and nowhere else", parkedSettled},
		{"Unpark takes the oldest first, up to its limit, and says how many", unparkOldest},
		{"Unpark makes no message due before its execution time, and says how many are early", func(x *trial) {
			token := x.own(home)
			now, early, late := x.add(t0), x.add(t0+1), x.add(t0+500)
			x.park(token, now, early, late)
			u := store.Unpark{Bucket: home, Token: token, Route: orders, At: t0, Limit: plenty}
			if found, ahead, err := x.store.Unpark(x.ctx, u); found != 3 || ahead != 2 || err != nil {
				x.Errorf("Unpark found %d messages, %d of them early: want 3 and 2; error %v", found, ahead, err)
			}
			x.wantDue(everything(home, token, t0), now)
			x.wantDue(everything(home, token, t0+1), now, early)
			x.wantDue(everything(home, token, t0+500), now, early, late)
		}},
		{"Unpark takes one channel's messages of one bucket", unparkChannel},
		{"Unpark with a token that was passed on is KindFenced and moves nothing", func(x *trial) {
			m := x.add(t0)
			stale := x.own(home)
			x.park(stale, m)
			present := x.own(home)
			for _, token := range []uint64{stale, 0, present + 1} {
				u := store.Unpark{Bucket: home, Token: token, Route: orders, At: t0, Limit: plenty}
				_, _, err := x.store.Unpark(x.ctx, u)
				x.wantKind(err, postdate.KindFenced)
			}
			x.wantDue(everything(home, present, t0))
			x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
		}},
		{"Parked names each channel once per bucket, of the buckets asked for", parkedChannels},
		{"an unparked message can be parked again", func(x *trial) {
			m := x.add(t0)
			token := x.own(home)
			for i := range postdate.Time(3) {
				x.park(token, m)
				x.wantDue(everything(home, token, t0+i))
				if n := x.unpark(token, orders, t0+i, plenty); n != 1 {
					x.Errorf("Unpark moved %d messages, want 1", n)
				}
				x.wantDue(everything(home, token, t0+i), m)
			}
		}},
		{"an unparked message is judged by its attempt time", func(x *trial) {
			within, beyond := x.add(t0), x.add(t0, onRoute("kafka:b"))
			token := x.own(home)
			x.park(token, within, beyond)
			x.unpark(token, orders, t0, plenty)
			x.unpark(token, "kafka:b", t0+1, plenty)
			x.wantTooLate(within)
			x.wantCancelled(beyond)
		}},
	}
}

// park claims the messages' bucket and parks them.
func (x *trial) park(token uint64, messages ...postdate.Message) {
	x.Helper()
	x.claim(everything(messages[0].Bucket, token, t0))
	for _, m := range messages {
		x.settle(x.settlement(m, token, store.SettlePark))
	}
}

func (x *trial) unpark(token uint64, r postdate.Route, at postdate.Time, limit int) int {
	x.Helper()
	n, _, err := x.store.Unpark(x.ctx, store.Unpark{Bucket: home, Token: token, Route: r, At: at, Limit: limit})
	if err != nil {
		x.Fatalf("Unpark: %v", err)
	}
	return n
}

func (x *trial) wantParked(buckets []int, want ...store.ParkedRoute) {
	x.Helper()
	got, err := x.store.Parked(x.ctx, buckets)
	if err != nil {
		x.Fatalf("Parked: %v", err)
	}
	text := func(all []store.ParkedRoute) []string {
		var lines []string
		for _, pc := range all {
			lines = append(lines, fmt.Sprint(pc))
		}
		slices.Sort(lines)
		return lines
	}
	if !slices.Equal(text(got), text(want)) {
		x.Errorf("Parked(%v) names %v, want %v", buckets, got, want)
	}
}

func parkAndBack(x *trial) {
	m := x.add(t0)
	token := x.own(home)
	x.claim(everything(home, token, t0))
	s := x.settlement(m, token, store.SettlePark)
	s.Attempts, s.PossibleDuplicate, s.Reason, s.DownSince = 2, true, "connection refused", t0+3
	x.settle(s)
	x.wantDue(everything(home, token, t0+1000))
	if n := x.unpark(token, orders, t0+500, plenty); n != 1 {
		x.Errorf("Unpark moved %d messages, want 1", n)
	}
	want := fresh(m)
	want.Version = s.Version
	want.State = s.State(want.State)
	want.Parked, want.AttemptTime = false, t0+500 // DownSince is kept
	x.wantRecord(x.get(m.Key), want)
	c := everything(home, token, t0+1000)
	c.To = bucket.UpTo(t0 + 499)
	x.wantDue(c)
	c.To = bucket.UpTo(t0 + 500)
	x.wantDue(c, m)
	x.wantDue(everything(home, token, parkedUntil(m)+1000), m)
}

func parkedDue(x *trial) {
	first, m, last := x.add(t0), x.add(t0+1, onRoute("kafka:b")), x.add(t0+2)
	token := x.own(home)
	x.wantDue(everything(home, token, t0+9), first, m, last)
	s := x.settlement(m, token, store.SettlePark)
	s.AttemptTime, s.DownSince, s.Reason = t0+50, t0+20, "connection refused"
	x.settle(x.settlement(last, token, store.SettlePark), s, x.retryAt(first, token, t0+60))
	x.wantComplete(x.claim(everything(home, token, t0+49)), t0+49, t0+50)
	c := everything(home, token, t0+55)
	got := x.due(c)
	x.wantIDs("a scan", idsOf(got), m)
	want := fresh(m)
	want.State = s.State(want.State)
	for _, r := range got {
		x.wantRecord(r, want)
	}
	x.wantDue(everything(home, token, parkedUntil(last)), m, first, last)
	c = everything(home, token, parkedUntil(last))
	c.Behind = places{"kafka:b": bucket.UpTo(t0 + 49)}
	x.wantDue(c, first, last)
	c.Only = "kafka:b"
	c.To = bucket.UpTo(t0 + 50)
	x.wantDue(c, m)
	if n := x.unpark(token, orders, parkedUntil(last)+10, plenty); n != 1 {
		x.Errorf("Unpark moved %d messages, want 1", n)
	}
	x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: "kafka:b"})
}

func parkedSettled(x *trial) {
	token := x.own(home)
	for i, how := range ways {
		m := x.add(t0 + postdate.Time(i)*1_000_000)
		x.claim(everything(home, token, m.ExecutionTime))
		park := x.settlement(m, token, store.SettlePark)
		park.DownSince = t0
		x.settle(park)
		s := x.settlement(m, token, how)
		s.AttemptTime = parkedUntil(m) + 7
		x.settle(s)
		want := fresh(m)
		want.State = s.State(park.State(want.State))
		x.wantRecord(x.get(m.Key), want)
		c := everything(home, token, s.AttemptTime)
		if how == store.SettlePark {
			x.wantParked([]int{home}, store.ParkedRoute{Bucket: home, Route: orders})
		} else {
			x.wantParked([]int{home})
		}
		if !want.Status.Final() {
			x.wantDue(c, m)
		}
		x.settle(x.settlement(m, token, store.SettleDelivered))
		x.wantDue(c)
		x.wantParked([]int{home})
	}
}

func unparkOldest(x *trial) {
	c, a, d, b := x.add(t0-2), x.add(t0-9), x.add(t0-1), x.add(t0-3)
	token := x.own(home)
	x.park(token, a, b, c, d)
	if n := x.unpark(token, orders, t0, 2); n != 2 {
		x.Errorf("Unpark of at most 2 moved %d", n)
	}
	x.wantDue(everything(home, token, t0), a, b)
	if n := x.unpark(token, orders, t0, 2); n != 2 {
		x.Errorf("Unpark of the other 2 moved %d", n)
	}
	x.wantDue(everything(home, token, t0), c, a, d, b) // all at one time: by id
	if n := x.unpark(token, orders, t0, 2); n != 0 {
		x.Errorf("Unpark with nothing parked moved %d", n)
	}
}

func unparkChannel(x *trial) {
	const a, ab, theirs, low = "kafka:a", "kafka:ab", "@acme kafka:a", "@default!low kafka:a"
	one, other, third := x.add(t0, onRoute(a)), x.add(t0, onRoute(ab)), x.add(t0, onRoute(theirs))
	fourth := x.add(t0, onRoute(low))
	elsewhere := x.messageIn(abroad, tenant, t0, onRoute(a))
	x.insert(elsewhere)
	token, token2 := x.own(home), x.own(abroad)
	x.park(token, one, other, third, fourth)
	x.park(token2, elsewhere)
	if n := x.unpark(token, a, t0+1, plenty); n != 1 {
		x.Errorf("Unpark moved %d messages, want 1", n)
	}
	x.wantDue(everything(home, token, t0+10), one)
	x.wantDue(everything(abroad, token2, t0+10))
	x.wantParked([]int{home, abroad}, store.ParkedRoute{Bucket: home, Route: ab},
		store.ParkedRoute{Bucket: home, Route: theirs}, store.ParkedRoute{Bucket: home, Route: low},
		store.ParkedRoute{Bucket: abroad, Route: a})
}

func parkedChannels(x *trial) {
	const a, b = "kafka:a", "@acme kafka:a"
	x.wantParked([]int{home, abroad})
	m1, m2, m3 := x.add(t0, onRoute(a)), x.add(t0, onRoute(a)), x.add(t0, onRoute(b))
	m4 := x.messageIn(abroad, tenant, t0, onRoute(a))
	x.insert(m4)
	token := x.own(home)
	x.park(token, m1, m2, m3)
	x.park(x.own(abroad), m4)
	here := []store.ParkedRoute{{Bucket: home, Route: a}, {Bucket: home, Route: b}}
	there := store.ParkedRoute{Bucket: abroad, Route: a}
	x.wantParked([]int{home}, here...)
	x.wantParked([]int{abroad, home}, append(here, there)...)
	x.wantParked([]int{0, abroad}, there)
	x.wantParked(nil)
	x.settle(x.settlement(m3, token, store.SettleDelivered)) // it had arrived after all
	x.unpark(token, a, t0, 1)
	x.wantParked([]int{home}, here[0])
	x.unpark(token, a, t0, 1)
	x.wantParked([]int{home})
}
