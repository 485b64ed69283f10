package mongo

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// span is the part (after, to] of a bucket's order of attempts.
type span struct {
	bucket    int
	after, to bucket.Position
	only      postdate.Route // or all routes of a tenant; "": every route
	but       string         // routes to leave out, each followed by a zero byte: spans are keys of a map
}

// rangesOf are the ranges of the due index that make up spans: one for all buckets with the
// same times, and up to three for a bucket whose span begins or ends within a millisecond.
// Empty spans have none.
func (s *Store) rangesOf(spans []span) (ranges []bson.D) {
	together := map[span][]int{} // without their buckets
	add := func(c span, bucket, due, id any) {
		r := doc("bucket", bucket, "due", due)
		if id != nil {
			r = append(r, bson.E{Key: "_id", Value: id})
		}
		if s.sharded && c.to.Time < postdate.Far {
			// Nothing is due before its execution time: this leaves out the chunks of later times.
			r = append(r, bson.E{Key: "executionTime", Value: doc("$lte", c.to.Time)})
		}
		ranges = append(ranges, append(r, c.routes()...))
	}
	for _, c := range spans {
		from, to := placed(c.after), placed(c.to)
		switch {
		case !c.after.Before(c.to):
			continue
		case from.ID == "" && to.ID == "":
			same := c
			same.bucket = 0
			together[same] = append(together[same], c.bucket)
			continue
		case from.T == to.T:
			add(c, c.bucket, to.T, doc("$gt", from.ID, "$lte", to.ID))
			continue
		}
		first := "$gte"
		if from.ID != "" {
			add(c, c.bucket, from.T, doc("$gt", from.ID))
			first = "$gt"
		}
		add(c, c.bucket, doc(first, from.T, "$lt", to.T), nil)
		if to.ID != "" {
			add(c, c.bucket, to.T, doc("$lte", to.ID))
		}
	}
	for c, buckets := range together {
		add(c, anyOf(buckets), doc("$gte", c.after.Time, "$lt", c.to.Time), nil)
	}
	return ranges
}

// routes is the condition on the route, if there is one. A message that a version before tenants wrote names
// its channel alone, whoever it belongs to: so a route is left out among the messages of its tenant.
func (c span) routes() bson.D {
	var all bson.A // conditions
	switch {
	case c.only.IsAll():
		all = append(all, doc("_id", idsOf(c.only)))
	case c.only != "":
		return doc("channel", string(c.only))
	}
	var not bson.A
	channels := map[string]bson.A{} // by tenant
	for text := range strings.SplitSeq(c.but, "\x00") {
		route := postdate.Route(text)
		switch tenant := route.Tenant(); {
		case text == "": // the end
		case route.IsAll():
			not = append(not, doc("_id", idsOf(route)))
		default:
			channels[tenant] = append(channels[tenant], text)
		}
	}
	for tenant, some := range channels {
		not = append(not, doc("_id", idsOf(postdate.AllOf(tenant)), "channel", doc("$in", some)))
	}
	if len(not) > 0 {
		all = append(all, doc("$nor", not))
	}
	if len(all) == 0 {
		return nil
	}
	return doc("$and", all)
}

// idsOf is the condition that an _id is one of a tenant, for which the due index suffices.
func idsOf(all postdate.Route) bson.D {
	tenant := all.Tenant()
	return doc("$gte", tenant+"\x00", "$lt", tenant+"\x01")
}
