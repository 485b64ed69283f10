package mongo

import (
	"slices"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

// The server leaves out nothing that a claim takes, and the claim takes all that is left.
func TestDivide(t *testing.T) {
	r := testrun.Random(t)
	at := func() bucket.Position {
		return bucket.Position{Time: postdate.Time(r.IntN(6)), Tenant: "b", ScheduleID: string("xyz"[r.IntN(3)])}
	}
	var all []postdate.Route
	for _, tenant := range []string{"a", "b"} {
		for _, channel := range []postdate.Channel{"inbox:a", "inbox:b", "inbox:c", "inbox:d", "inbox:e"} {
			all = append(all, postdate.RouteOf(tenant, channel), postdate.RouteAt(tenant, channel, postdate.PriorityLow))
		}
	}
	divided := 0
	for range 3_000 {
		c := &scan{Claim: &store.Claim{Claim: bucket.Claim{Behind: map[postdate.Route]bucket.Position{}}}}
		for _, i := range r.Perm(len(all))[:r.IntN(len(all))] {
			c.Behind[all[i]] = at()
		}
		for _, tenant := range []string{"a", "b"} {
			if r.IntN(2) == 0 {
				continue
			}
			all := at() // no place of the tenant's lies beyond
			for route, to := range c.Behind {
				if route.Tenant() == tenant {
					c.Behind[route] = to.Earliest(all)
				}
			}
			c.Behind[postdate.AllOf(tenant)] = all
		}
		if behind := sortedRoutes(c.Behind); len(behind) > 0 && r.IntN(2) == 0 {
			c.Only = behind[r.IntN(len(behind))]
		}
		c.span = span{after: at(), to: at()}
		if r.IntN(2) == 0 {
			c.span.after = bucket.Position{}
		}
		taken := c.divide()
		if len(c.parts) > 1 {
			divided++
		}
		if !taken {
			t.Fatalf("a scan %+v of what is behind at %v takes not all of %+v", c.span, c.Behind, c.parts)
		}
		for range 20 {
			route, p := all[r.IntN(len(all))], at()
			in := c.span.after.Before(p) && !c.span.to.Before(p)
			reads := 0
			for _, part := range c.parts {
				if part.after.Before(p) && !part.to.Before(p) && part.lets(route) {
					reads++
				}
			}
			if covers := in && c.Covers(route, p); reads > 1 || covers != (reads == 1) {
				t.Fatalf("a scan %+v for %q with %v behind takes %s at %v: %t; %d of its parts have it: %+v",
					c.span, c.Only, c.Behind, route, p, covers, reads, c.parts)
			}
		}
	}
	if divided < 500 {
		t.Errorf("only %d scans are divided", divided)
	}
}

// lets says what the condition on the route does.
func (c span) lets(route postdate.Route) bool {
	is := func(of postdate.Route) bool { return of == route || of.IsAllOf(route.Tenant()) }
	if c.only != "" && !is(c.only) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(c.but, "\x00"), func(but string) bool { return but != "" && is(postdate.Route(but)) })
}
