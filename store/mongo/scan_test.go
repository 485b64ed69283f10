package mongo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// Scans of several buckets together, page by page, find just what the rule says, in order: where channels and
// tenants are behind at any places, within a millisecond too, beside damaged messages, and however few a page
// takes.
func TestScansAsTheRule(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		r := testrun.Random(t)
		uri := mongotest.Fresh(t)
		c := DefaultConfig(uri)
		if sharded {
			c.URI = routertest.Start(t, uri).URI()
		}
		c.Buckets = 4
		s, err := Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		x := scans{t: t, r: r, s: s, direct: (&filled{t: t, c: c}).bare(uri)}
		for _, tenant := range []string{"default", "b", "b-"} {
			for _, channel := range []postdate.Channel{"inbox:a", "https://example.org/a?b=$1&c.d", "inbox:ä\u00a0"} {
				x.routes = append(x.routes, postdate.RouteOf(tenant, channel), postdate.RouteAt(tenant, channel, postdate.PriorityLow))
			}
		}
		for b := range c.Buckets {
			if got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}}); err != nil || !got[0].OK {
				t.Fatalf("Acquire: %+v, %v", got, err)
			}
		}
		for range 12 {
			x.round()
		}
		if x.pages < 200 || x.found < 100 {
			t.Errorf("%d pages with %d messages say nothing", x.pages, x.found)
		}
	}
}

// scans plays scans of a store's buckets. Each round is a second later.
type scans struct {
	t      *testing.T
	r      *rand.Rand
	s      *Store
	direct *Store // not through a mongos
	routes []postdate.Route

	base         postdate.Time
	number       uint64
	pages, found int
}

func (x *scans) round() {
	x.base += 1_000
	if _, err := x.direct.messages.DeleteMany(x.t.Context(), doc()); err != nil {
		x.t.Fatal(err)
	}
	claims := make([]store.Claim, x.s.Buckets())
	got, want := make([][]postdate.Key, len(claims)), make([][]postdate.Key, len(claims))
	left := map[int]bool{}
	for b := range claims {
		all := x.fill(b)
		c := &claims[b]
		*c = store.Claim{Bucket: b, Claim: bucket.Claim{Token: 1, To: bucket.UpTo(x.base + 200), Behind: x.behind()},
			Scan: store.Scan{After: bucket.UpTo(x.base + 200), Limit: 1 + x.r.IntN(8), BytesMax: 1 << 20}}
		x.claim(claims[b : b+1]) // all is claimed, but for what is behind
		c.Scan.After = bucket.Position{}
		if routes := sortedRoutes(c.Behind); x.r.IntN(3) == 0 && len(routes) > 0 {
			c.Only = routes[x.r.IntN(len(routes))]
			c.Scan.After = c.Behind[c.Only]
			if all, is := c.Behind[postdate.AllOf(c.Only.Tenant())]; is {
				c.To = c.To.Earliest(all)
			}
		}
		slices.SortFunc(all, func(a, b *document) int { return a.place().Compare(b.place()) })
		for _, d := range all {
			if at := d.place(); c.Scan.After.Before(at) && !c.To.Before(at) && c.Covers(d.route(), at) {
				want[b] = append(want[b], d.key())
			}
		}
		left[b] = c.Scan.After.Before(c.To)
	}
	for {
		var some []store.Claim
		for b := range claims {
			if left[b] {
				some = append(some, claims[b])
			}
		}
		if len(some) == 0 {
			break
		}
		for i, r := range x.claim(some) {
			c := &claims[some[i].Bucket]
			if !c.Scan.After.Before(r.Ended) || len(r.Due) > c.Scan.Limit || r.Complete != (r.Ended == c.To) {
				x.t.Fatalf("%+v is answered %+v", *c, r)
			}
			for _, rec := range r.Due {
				got[c.Bucket] = append(got[c.Bucket], rec.Key)
			}
			c.Scan.After, left[c.Bucket] = r.Ended, !r.Complete
			if c.Only != "" {
				next := c.Claim
				next.To = r.To
				c.Behind = next.Places()
			}
		}
	}
	for b := range claims {
		if x.found += len(want[b]); !slices.Equal(got[b], want[b]) {
			x.t.Fatalf("a scan of bucket %d only of %q, with %v behind, finds %v, want %v", b, claims[b].Only, claims[b].Behind, got[b], want[b])
		}
	}
}

func (x *scans) claim(claims []store.Claim) []store.ClaimResult {
	for i := range claims {
		x.number++
		claims[i].Number = x.number
	}
	x.pages += len(claims)
	all := x.s.Claim(x.t.Context(), claims)
	for i := range all {
		if all[i].Err != nil {
			x.t.Fatalf("%+v: %v", claims[i], all[i].Err)
		}
	}
	return all
}

// at draws one of few times.
func (x *scans) at() postdate.Time { return x.base + 100 + postdate.Time(x.r.IntN(5)) }

// fill makes messages of bucket b, and returns those that are sound.
func (x *scans) fill(b int) (sound []*document) {
	var all []any
	for i := range x.r.IntN(60) {
		route := x.routes[x.r.IntN(len(x.routes))]
		if x.r.IntN(2) == 0 {
			route = x.routes[b]
		}
		m := postdate.Message{Key: postdate.Key{Bucket: b, Tenant: route.Tenant(), ScheduleID: fmt.Sprint(x.r.IntN(9), []string{"~", ""}[x.r.IntN(2)], b, "-", i)},
			Channel: route.Channel(), Priority: route.Priority(), ExecutionTime: x.at()}
		st := postdate.NewState(&m, 1)
		d := documentOf(&m, &st)
		if x.r.IntN(12) > 0 {
			sound, all = append(sound, d), append(all, d)
			continue
		}
		raw, err := bson.Marshal(d)
		if err != nil {
			x.t.Fatal(err)
		}
		var damaged bson.M
		if err := bson.Unmarshal(raw, &damaged); err != nil {
			x.t.Fatal(err)
		}
		switch x.r.IntN(3) {
		case 0:
			damaged["due"] = bson.A{damaged["due"]}
		case 1:
			damaged["_id"] = bson.NewObjectID()
		case 2:
			damaged["channel"] = int32(5)
		}
		all = append(all, damaged)
	}
	if len(all) > 0 {
		if _, err := x.direct.messages.InsertMany(x.t.Context(), all); err != nil {
			x.t.Fatal(err)
		}
	}
	return sound
}

// behind draws what is behind, and from where on.
func (x *scans) behind() map[postdate.Route]bucket.Position {
	all := map[postdate.Route]bucket.Position{}
	for _, route := range x.routes {
		if x.r.IntN(4) == 0 {
			all[route] = bucket.Position{Time: x.at(), Tenant: "b", ScheduleID: fmt.Sprint(x.r.IntN(9))}
		}
	}
	for _, tenant := range []string{"default", "b"} {
		if x.r.IntN(4) > 0 {
			continue
		}
		at := bucket.UpTo(x.at()) // no place of the tenant's lies beyond
		for route, to := range all {
			if route.Tenant() == tenant {
				all[route] = to.Earliest(at)
			}
		}
		all[postdate.AllOf(tenant)] = at
	}
	return all
}

// A message that a version before tenants wrote names its channel alone. It is not behind with the default
// tenant's channel of that name.
func TestScanOfAnEarlierVersion(t *testing.T) {
	s := openFresh(t)
	if got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: 1, Owner: "n", Lease: "l"}}); err != nil || !got[0].OK {
		t.Fatalf("Acquire: %+v, %v", got, err)
	}
	for i, tenant := range []string{"b", "default"} {
		m := postdate.Message{Key: postdate.Key{Bucket: 1, Tenant: tenant, ScheduleID: "x"}, Channel: "inbox:full", ExecutionTime: postdate.Time(1000 + i)}
		st := postdate.NewState(&m, 1)
		d := documentOf(&m, &st)
		d.Route = "inbox:full"
		if _, err := s.messages.InsertOne(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	r := s.Claim(t.Context(), []store.Claim{{Bucket: 1, Claim: bucket.Claim{Token: 1, Number: 1, To: bucket.UpTo(2000),
		Behind: map[postdate.Route]bucket.Position{"inbox:full": bucket.UpTo(900)}}, Scan: store.Scan{Limit: 10, BytesMax: 1000}}})[0]
	if len(r.Due) != 1 || r.Due[0].Tenant != "b" || !r.Complete {
		t.Errorf("the scan finds %+v, want what b has", r)
	}
}
