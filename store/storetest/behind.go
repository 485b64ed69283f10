package storetest

import (
	"maps"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

const (
	slow    = "kafka:slow"
	limited = "@acme!low kafka:slow" // another tenant's messages to the same channel, at another priority
)

// places says up to where each channel that is behind is claimed.
type places = map[postdate.Route]bucket.Position

// lagging checks channels of which less is claimed than of the others.
func lagging() []check {
	return []check{
		{"of a channel that is behind, what lies beyond its place is neither claimed nor returned", behindLeaves},
		{"it does not count towards the limit", behindUncounted},
		{"a place within a millisecond parts the messages of that millisecond", behindParts},
		{"what comes in for a channel that is behind can be taken back, unless it lies up to its place",
			behindNewcomers},
		{"a message that is put from one channel to another is judged by the one that it has", behindReplaced},
		{"what is parked or retried of a channel that is behind is judged by its place", behindRetried},
		{"a claim says anew what is behind: a channel that it does not name is claimed as the others are",
			behindCatchesUp},
		{"a channel can fall behind again, down to what was handed out of it", behindFalls},
		{"a place that lies beyond what is claimed is none", behindBeyond},
		{"a claim of only one channel claims and returns nothing of the others", onlyOne},
		{"it moves that channel's place no further than its limit, and no other one's", onlyLimit},
		{"it never moves a place back", onlyBack},
		{"a channel that comes up to what is claimed of the others is behind no more", onlyCatchesUp},
		{"nothing beyond what is claimed of the others is claimed or returned", onlyBeyond},
		{"a claim of only one channel that comes late, or again, moves nothing", onlyLate},
		{"the record keeps many places, of channels with long and odd names", behindRoundTrip},
		{"the next owner finds the places, and so does who comes after a release", behindInherited},
		{"places are each bucket's own", behindBuckets},
		{"a scan that passes over very many comes to an end, and so does one of only one channel", behindMany},
	}
}

// shelf inserts n messages on each of three routes, all within two milliseconds.
func (x *trial) shelf(n int) map[postdate.Route][]postdate.Message {
	x.Helper()
	by := places{orders: {}, slow: {}, limited: {}}
	shelf := map[postdate.Route][]postdate.Message{}
	for c := range by {
		shelf[c] = x.crowd(n, onRoute(c))
	}
	return shelf
}

// wantBehind expects that the record names exactly these places.
func (x *trial) wantBehind(want places) {
	x.Helper()
	if p := x.partition(home); !maps.Equal(p.Behind, want) {
		x.broken("the record says that %v are behind, want %v", p.Behind, want)
	}
}

func (x *trial) wantAllTooLate(messages []postdate.Message) {
	x.Helper()
	for _, m := range messages {
		x.wantTooLate(m)
	}
}

func (x *trial) wantAllCancelled(messages []postdate.Message) {
	x.Helper()
	for _, m := range messages {
		x.wantCancelled(m)
	}
}

// together merges messages of several channels in the order of positions.
func together(lists ...[]postdate.Message) []postdate.Message {
	var all []postdate.Message
	for _, l := range lists {
		all = append(all, l...)
	}
	inDueOrder(all)
	return all
}

func behindLeaves(x *trial) {
	shelf := x.shelf(8)
	c := everything(home, x.own(home), t0+10)
	c.Behind = places{slow: place(shelf[slow][2]), limited: {Time: t0}}
	x.wantClaimed(c, 0, c.To)
	x.wantBehind(c.Behind)
	x.wantDue(c, together(shelf[orders], shelf[slow][:3])...)
	x.wantAllTooLate(shelf[orders])
	x.wantAllTooLate(shelf[slow][:3])
	x.wantAllCancelled(shelf[slow][3:])
	moved := changed(shelf[limited][0])
	moved.ExecutionTime = t0 + 200
	x.replace(moved)
	x.wantAllCancelled(shelf[limited][1:])
	x.wantDue(c, together(shelf[orders], shelf[slow][:3])...)
	if len(c.Behind) != 2 {
		x.Errorf("the claim's Behind was changed to %v", c.Behind)
	}
}

func behindUncounted(x *trial) {
	shelf := x.shelf(8)
	c := everything(home, x.own(home), t0+10)
	c.Behind, c.Scan.Limit = places{slow: {Time: t0}, limited: {Time: t0}}, 5
	r := x.wantClaimed(c, 0, place(shelf[orders][4]))
	x.wantIDs("a page", idsOf(r.Due), shelf[orders][:5]...)
	x.wantCancelled(shelf[orders][5])
	x.wantAllCancelled(shelf[slow])
	x.wantDue(c, append(shelf[orders][:5:5], shelf[orders][6:]...)...)
}

func behindParts(x *trial) {
	all := x.crowd(16, onRoute(slow))
	token := x.own(home)
	for n := range 4 {
		c := everything(home, token, t0+10)
		c.Behind = places{slow: place(all[n])}
		x.wantDue(c, all[:n+1]...)
		x.wantBehind(c.Behind)
		x.wantTooLate(all[n])
	}
	x.wantAllCancelled(all[4:])
}

func behindNewcomers(x *trial) {
	c := everything(home, x.own(home), t0+10)
	c.Behind = places{slow: bucket.UpTo(t0 + 4)}
	x.claim(c)
	within, beyond, other := x.add(t0+4, onRoute(slow)), x.add(t0+5, onRoute(slow)), x.add(t0+5)
	x.wantDue(c, within, other)
	x.wantTooLate(within)
	x.wantTooLate(other)
	x.wantCancelled(beyond)
}

func behindReplaced(x *trial) {
	c := everything(home, x.own(home), t0+10)
	c.Behind = places{slow: {Time: t0}}
	x.claim(c)
	m, stays := x.add(t0+5, onRoute(slow)), x.add(t0+20)
	next := changed(m, onRoute(orders))
	x.replace(next)
	x.wantTooLate(next)
	next2 := changed(stays, onRoute(slow))
	next2.ExecutionTime = t0 + 6
	x.replace(next2)
	x.wantDue(c, next)
	x.wantCancelled(next2)
}

func behindRetried(x *trial) {
	within, beyond, parked := x.add(t0, onRoute(slow)), x.add(t0, onRoute(slow)), x.add(t0, onRoute(slow))
	token := x.own(home)
	c := everything(home, token, t0+100)
	c.Behind = places{slow: bucket.UpTo(t0 + 50)}
	x.wantDue(c, within, beyond, parked)
	x.settle(x.retryAt(within, token, t0+50), x.retryAt(beyond, token, t0+51),
		x.settlement(parked, token, store.SettlePark))
	x.wantDue(c, within)
	x.wantTooLate(within)
	x.wantCancelled(beyond)
	x.unpark(token, slow, t0+60, plenty)
	x.wantDue(c, within)
	x.wantCancelled(parked)
}

func behindCatchesUp(x *trial) {
	shelf := x.shelf(6)
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Behind = places{slow: place(shelf[slow][1]), limited: {Time: t0}}
	x.claim(c)
	c.Behind = places{limited: place(shelf[limited][0])}
	c.Scan.Limit = 3 // the record is claimed further
	x.claim(c)
	x.wantBehind(c.Behind)
	x.wantAllTooLate(shelf[slow])
	x.wantTooLate(shelf[limited][0])
	x.wantCancelled(shelf[limited][1])
	c.Behind, c.Scan.Limit = nil, plenty
	x.wantDue(c, together(shelf[orders], shelf[slow], shelf[limited][:1], shelf[limited][2:])...)
	x.wantBehind(nil)
}

func behindFalls(x *trial) {
	all := x.crowd(10, onRoute(slow))
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Scan.BytesMax = 1
	x.wantIDs("a page of one byte", idsOf(x.claim(c).Due), all[0])
	x.wantAllTooLate(all)
	c.Behind = places{slow: place(all[0])}
	x.wantDue(c, all[0])
	x.wantBehind(c.Behind)
	x.wantTooLate(all[0])
	x.wantAllCancelled(all[1:])
}

func behindBeyond(x *trial) {
	shelf := x.shelf(8)
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Behind, c.Scan.Limit = places{slow: c.To, limited: bucket.UpTo(t0 + 99)}, 9
	all := together(shelf[orders], shelf[slow], shelf[limited])
	r := x.wantClaimed(c, 0, place(all[8]))
	x.wantIDs("a page", idsOf(r.Due), all[:9]...)
	x.wantBehind(nil)
	x.wantTooLate(all[8])
	x.wantCancelled(all[9])
}

func onlyOne(x *trial) {
	shelf := x.shelf(8)
	token := x.own(home)
	c := everything(home, token, t0)
	c.Behind = places{slow: {Time: t0}, limited: {Time: t0}}
	x.claim(c)
	claimed := c.To
	c.Only, c.To = slow, place(shelf[slow][2])
	r := x.wantClaimed(c, 0, claimed)
	x.wantIDs("a scan of only one channel", idsOf(r.Due), shelf[slow][:3]...)
	x.wantBehind(places{slow: c.To, limited: {Time: t0}})
	x.wantAllTooLate(shelf[slow][:3])
	x.wantAllCancelled(shelf[slow][3:])
	x.wantAllCancelled(shelf[limited])
	x.wantAllTooLate(shelf[orders][:4]) // of the first millisecond, as before
	x.wantAllCancelled(shelf[orders][4:])
}

func onlyLimit(x *trial) {
	shelf := x.shelf(10)
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Behind = places{slow: {Time: t0}, limited: place(shelf[limited][1])}
	x.claim(c)
	claimed := c.To
	c.Only, c.Scan.Limit = slow, 3
	for n := 0; n < 6; n += 3 {
		r := x.wantClaimed(c, 0, claimed)
		x.wantIDs("a page of only one channel", idsOf(r.Due), shelf[slow][n:n+3]...)
		if r.To != place(shelf[slow][n+2]) || r.Ended != r.To || r.Complete {
			x.Errorf("it ended at %v of %v, Complete %t; want %v", r.Ended, r.To, r.Complete, place(shelf[slow][n+2]))
		}
		c.Behind = places{slow: r.To, limited: place(shelf[limited][1])}
		x.wantBehind(c.Behind)
		c.Scan.After = r.Ended
	}
	x.wantAllTooLate(shelf[slow][:6])
	x.wantAllCancelled(shelf[slow][6:])
	x.wantAllCancelled(shelf[limited][2:])
}

func onlyBack(x *trial) {
	all := x.crowd(10, onRoute(slow))
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Behind = places{slow: place(all[6])}
	x.claim(c)
	c.Only, c.To = slow, place(all[2])
	x.wantIDs("a scan below its place", idsOf(x.claim(c).Due), all[:3]...)
	x.wantBehind(c.Behind)
	x.wantTooLate(all[6])
	x.wantCancelled(all[7])
}

func onlyCatchesUp(x *trial) {
	shelf := x.shelf(6)
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Behind = places{slow: {Time: t0}, limited: {Time: t0}}
	x.claim(c)
	claimed := c.To
	c.Only = slow
	r := x.wantClaimed(c, 0, claimed)
	x.wantIDs("a scan of only one channel", idsOf(r.Due), shelf[slow]...)
	x.wantBehind(places{limited: {Time: t0}})
	x.wantAllTooLate(shelf[slow])
	if !r.Complete || r.Next != postdate.Far {
		x.Errorf("it ended with Complete %t, Next %d; want it complete, and nothing to follow", r.Complete, r.Next)
	}
	later := x.add(t0+20, onRoute(slow))
	c.Only, c.Behind, c.To = "", places{limited: {Time: t0}}, bucket.UpTo(t0+20)
	x.wantDue(c, append(together(shelf[orders], shelf[slow]), later)...)
}

func onlyBeyond(x *trial) {
	all := x.crowd(10, onRoute(slow))
	token := x.own(home)
	c := everything(home, token, t0)
	c.Behind = places{slow: {Time: t0}}
	x.claim(c)
	claimed := c.To
	c.Only, c.To = slow, bucket.UpTo(t0+10)
	r := x.wantClaimed(c, 0, claimed)
	x.wantIDs("a scan of only one channel", idsOf(r.Due), all[:5]...)
	x.wantAllTooLate(all[:5])
	x.wantAllCancelled(all[5:])
	x.wantBehind(nil)
}

func onlyLate(x *trial) {
	all := x.crowd(10, onRoute(slow))
	token := x.own(home)
	c := numbered(home, token, 4, t0-1, t0+10)
	c.Behind = places{slow: place(all[1])}
	x.claim(c)
	only := numbered(home, token, 5, t0-1, t0+10)
	only.Only, only.Behind, only.Scan.Limit = slow, c.Behind, 4
	x.claim(only)
	x.wantBehind(places{slow: place(all[3])})
	for _, m := range all[:3] {
		x.settle(x.settlement(m, token, store.SettleDelivered))
	}
	x.wantIDs("a claim that is repeated", idsOf(x.claim(only).Due), all[3])
	x.wantBehind(places{slow: place(all[3])})
	only.Number = 4
	x.wantIDs("a number that was used", idsOf(x.store.Claim(x.ctx, []store.Claim{only})[0].Due))
	x.wantRefused(only, postdate.KindConflict)
	x.wantAllCancelled(all[4:])
}

// oddPlaces are places of channels whose names are as long as allowed, or hard on a format.
func oddPlaces() places {
	odd := places{
		"a:b":                                 {Time: t0},
		"https://host.example/p.q?a=$1&b=%00": bucket.UpTo(t0 + 1),
		"@a:c@m~e kafka:slow":                 {Time: t0 + 3},
		"kafka:$set.a.b":                      {Time: t0 + 2, Tenant: "tenant~1", ScheduleID: "a-_.:~@+=,b"},
		"rabbitmq:ü.😀/\"'\\":                  {Time: 1, Tenant: "t"},
	}
	for i := range 8 {
		name := strings.Repeat("~", postdate.ChannelBytesMax-7) + string(rune('a'+i))
		odd[postdate.Route("kafka:"+name)] = bucket.Position{
			Time: t0 + postdate.Time(i), Tenant: strings.Repeat("~", postdate.TenantBytesMax),
			ScheduleID: strings.Repeat("z", postdate.ScheduleIDBytesMax),
		}
	}
	return odd
}

func behindRoundTrip(x *trial) {
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Behind = oddPlaces()
	for range 2 {
		x.claim(c)
		x.wantBehind(oddPlaces())
	}
	next := everything(home, token, t0+10)
	next.Behind = places{"a:b": {Time: t0 + 1}}
	x.claim(next)
	x.wantBehind(next.Behind)
	x.claim(everything(home, token, t0+10))
	x.wantBehind(nil)
}

func behindInherited(x *trial) {
	all := x.crowd(8, onRoute(slow))
	token := x.own(home)
	c := everything(home, token, t0+10)
	c.Behind = oddPlaces()
	c.Behind[slow] = place(all[3])
	x.claim(c)
	want := x.partition(home)
	want.Owner, want.Lease, want.Token = "node-b", "lease-b", token+1
	got, err := x.store.Acquire(x.ctx,
		[]store.Acquisition{{Bucket: home, SeenToken: token, Owner: "node-b", Lease: "lease-b"}})
	if err != nil || len(got) != 1 || !got[0].OK || !got[0].Partition.Equal(want) {
		x.Fatalf("Acquire: got %+v, %v, want %+v", got, err, want)
	}
	x.wantBehind(c.Behind)
	x.wantTooLate(all[3])
	x.wantCancelled(all[4])
	lost, err := x.store.Acquire(x.ctx,
		[]store.Acquisition{{Bucket: home, SeenToken: token, Owner: "node-c", Lease: "lease-c"}})
	if err != nil || len(lost) != 1 || lost[0].OK || !lost[0].Partition.Equal(want) {
		x.Errorf("Acquire by who came too late: got %+v, %v, want the record %+v", lost, err, want)
	}
	x.release(store.Hold{Bucket: home, Token: token + 1})
	x.wantBehind(c.Behind)
	x.wantTooLate(all[3])
	x.wantCancelled(all[5])
	c.Token = x.own(home)
	x.wantDue(c, all[:4]...)
}

func behindBuckets(x *trial) {
	here, there := x.add(t0, onRoute(slow)), x.messageIn(abroad, tenant, t0, onRoute(slow))
	x.insert(there)
	one, other := everything(home, x.own(home), t0+10), everything(abroad, x.own(abroad), t0+10)
	one.Behind = places{slow: {Time: t0}}
	one.Number, other.Number = 1, 1
	results := x.store.Claim(x.ctx, []store.Claim{one, other})
	if len(results) != 2 || results[0].Err != nil || results[1].Err != nil {
		x.Fatalf("Claim of two buckets: got %+v", results)
	}
	x.wantIDs("a scan where the channel is behind", idsOf(results[0].Due))
	x.wantIDs("a scan where it is not", idsOf(results[1].Due), there)
	x.wantBehind(one.Behind)
	x.wantTooLate(there)
	x.wantCancelled(here)
}

// passed is more messages than a store looks at in one scan.
const passed = 21_000

func behindMany(x *trial) {
	first, slow1 := x.add(t0), x.add(t0, onRoute(slow))
	for range passed / 1000 {
		var some []postdate.Message
		for range 1000 {
			some = append(some, x.message(t0, onRoute(limited)))
		}
		for _, r := range x.store.Insert(x.ctx, some) {
			if r.Err != nil {
				x.Fatalf("Insert: %v", r.Err)
			}
		}
	}
	last, slow2 := x.add(t0), x.add(t0, onRoute(slow))
	c := everything(home, x.own(home), t0+10)
	c.Behind, c.Scan.Limit = places{slow: {Time: t0}, limited: {Time: t0}}, 3
	x.wantDue(c, first, last)
	x.wantBehind(c.Behind)
	x.wantTooLate(last)
	c.Only = slow
	var found []postdate.Record
	x.pages(c, func(r store.ClaimResult) {
		found = append(found, r.Due...)
		c.Behind = places{slow: r.Ended, limited: {Time: t0}}
	})
	x.wantIDs("a scan of only one channel", idsOf(found), slow1, slow2)
	x.wantBehind(places{limited: {Time: t0}})
	x.wantTooLate(slow2)
}
