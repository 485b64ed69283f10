package storetest

import (
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// acme and everyone stand for all routes of either tenant.
var acme, everyone = postdate.AllOf("acme"), postdate.AllOf(tenant)

// laggingTenants checks tenants of which less is claimed than of others.
func laggingTenants() []check {
	return []check{
		{"of a tenant that is behind, what lies beyond its place is neither claimed nor returned",
			func(x *trial) { x.allLeaves(acme, everyone) }},
		{"nor of the default tenant", func(x *trial) { x.allLeaves(everyone, acme) }},
		{"a claim of only one tenant claims and returns nothing of the others, page by page",
			func(x *trial) { x.onlyAll(acme, everyone) }},
		{"nor does one of only the default tenant", func(x *trial) { x.onlyAll(everyone, acme) }},
		{"a channel that is further behind than its tenant is judged by its own place", allButOne},
		{"it comes no further than its tenant, and is then claimed with it", oneWithAll},
	}
}

// ofAll lists a shelf's messages of one tenant, in order.
func ofAll(shelf map[postdate.Route][]postdate.Message, all postdate.Route) []postdate.Message {
	if all == acme {
		return shelf[limited]
	}
	return together(shelf[orders], shelf[slow])
}

func (x *trial) allLeaves(all, other postdate.Route) {
	shelf := x.shelf(8)
	theirs, others := ofAll(shelf, all), ofAll(shelf, other)
	c := everything(home, x.own(home), t0+10)
	c.Behind = places{all: place(theirs[2])}
	x.wantClaimed(c, 0, c.To)
	x.wantBehind(c.Behind)
	x.wantDue(c, together(theirs[:3], others)...)
	c.Scan.After = place(theirs[2])
	x.wantDue(c, beyond(place(theirs[2]), others)...)
	x.wantAllTooLate(others)
	x.wantAllTooLate(theirs[:3])
	x.wantAllCancelled(theirs[3:])
}

func (x *trial) onlyAll(all, other postdate.Route) {
	shelf := x.shelf(8)
	theirs, others := ofAll(shelf, all), ofAll(shelf, other)
	c := everything(home, x.own(home), t0+10)
	c.Behind = places{all: {Time: t0}, other: place(others[3])}
	x.claim(c)
	claimed := c.To
	c.Only, c.Scan.Limit = all, 3
	for n := 0; n < 6; n += 3 {
		r := x.wantClaimed(c, 0, claimed)
		x.wantIDs("a page of only one tenant", idsOf(r.Due), theirs[n:n+3]...)
		c.Behind = places{all: place(theirs[n+2]), other: place(others[3])}
		x.wantBehind(c.Behind)
		c.Scan.After = r.Ended
	}
	x.wantAllTooLate(theirs[:6])
	x.wantCancelled(theirs[6])
	x.wantAllCancelled(others[4:])
	c.Scan.Limit = plenty
	x.wantIDs("the last page", idsOf(x.claim(c).Due), theirs[7:]...)
	x.wantBehind(places{other: place(others[3])})
	x.wantAllTooLate(theirs[7:])
}

func allButOne(x *trial) {
	shelf := x.shelf(8)
	c := everything(home, x.own(home), t0+10)
	c.Behind = places{everyone: place(shelf[orders][3]), slow: {Time: t0}}
	x.claim(c)
	x.wantBehind(c.Behind)
	x.wantDue(c, together(shelf[orders][:4], shelf[limited])...)
	c.Only, c.Scan.After = everyone, place(shelf[orders][3])
	x.wantDue(c, shelf[orders][4:]...)
	x.wantBehind(places{slow: {Time: t0}})
	x.wantAllTooLate(shelf[orders])
	x.wantAllCancelled(shelf[slow])
}

// beyond lists those of messages that wait beyond a place.
func beyond(at bucket.Position, messages []postdate.Message) []postdate.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m postdate.Message) bool { return !at.Before(place(m)) })
}

func oneWithAll(x *trial) {
	shelf := x.shelf(8)
	c := everything(home, x.own(home), t0+10)
	c.Behind = places{everyone: place(shelf[slow][5]), slow: place(shelf[slow][1])}
	x.claim(c)
	c.Only, c.Scan.After = slow, place(shelf[slow][1])
	x.wantIDs("a scan of only the channel", idsOf(x.claim(c).Due), shelf[slow][2:6]...)
	x.wantAllTooLate(shelf[slow][:6])
	x.wantBehind(places{everyone: place(shelf[slow][5])})
	c.Only, c.Behind, c.Scan.After = everyone, places{everyone: place(shelf[slow][5])}, place(shelf[slow][5])
	left := beyond(place(shelf[slow][5]), together(shelf[slow], shelf[orders]))
	x.wantDue(c, left...)
	x.wantBehind(nil)
	x.wantAllTooLate(left)
}
