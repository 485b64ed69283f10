package mongo

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Claim implements store.Due in three steps, each for all buckets together: it looks where the
// scans will end, writes the claims up to there, and reads.
func (s *Store) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := make([]store.ClaimResult, len(claims))
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for _, round := range rounds(len(claims), func(i int) int { return claims[i].Bucket }) {
		scans := make([]*scan, len(round))
		for n, i := range round {
			scans[n] = newScan(&claims[i])
		}
		err := s.claim(ctx, scans)
		for n, i := range round {
			switch c := scans[n]; {
			case c.refused != nil:
				results[i].Err = c.refused
			case err != nil && !c.idle:
				results[i].Err = err
			default:
				results[i] = c.result()
				s.noteHanded(results[i].Due)
			}
		}
	}
	return results
}

// claim takes scans of different buckets through the three steps. Its error applies to all
// scans but those that are refused and those that had nothing to write.
func (s *Store) claim(ctx context.Context, scans []*scan) error {
	if err := s.look(ctx, scans); err != nil {
		return readError("looking at what is due", err) // nothing is written
	}
	scans = slices.DeleteFunc(slices.Clone(scans), func(c *scan) bool { return c.idle })
	if len(scans) == 0 {
		return nil
	}
	all := false
	err := s.within(ctx, func(ctx context.Context) (err error) {
		all, err = s.writeClaims(ctx, scans)
		s.sawSession(ctx)
		return err
	})
	if err == nil {
		err = unknown("reading what is due", s.readDue(ctx, scans, all)) // the claims are written
	}
	return writeError("claiming", err)
}

// writeClaims is bucket.Partition.Claim for many records. It is idempotent: a record takes only
// claims numbered above its own, and a record without a number is below every number. all says
// that this call surely wrote every claim.
func (s *Store) writeClaims(ctx context.Context, scans []*scan) (all bool, err error) {
	items := make([]int, len(scans))
	for i := range items {
		items[i] = i
	}
	at := tableOf(items, func(i int) int { return scans[i].Bucket })
	token := at.column(func(i int) any { return int64(scans[i].Token) })
	number := at.column(func(i int) any { return int64(scans[i].Number) })
	filter := doc("_id", anyOf(at.buckets), "owner", doc("$ne", ""), "$expr", doc("$and", bson.A{
		doc("$eq", bson.A{"$token", token}), doc("$lt", bson.A{"$claims", number}),
	}))
	to := doc(
		"t", at.column(func(i int) any { return scans[i].claimed().Time }),
		"id", at.column(func(i int) any { return placed(scans[i].claimed()).ID }),
	)
	update := bson.A{
		doc("$set", doc("claims", number, "claimed", doc("$max", bson.A{"$claimed", to}),
			"checkpoint", at.column(func(i int) any { return scans[i].Checkpoint }), "behind", behindOf(at, scans))),
		doc("$set", doc("behind", doc("$filter", doc("input", "$behind",
			"cond", doc("$lt", bson.A{"$$this.to", "$claimed"}))))),
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		r, err := s.partitions.UpdateMany(ctx, filter, update, options.UpdateMany().SetHint(indexID))
		if err == nil {
			all = r.MatchedCount == int64(len(scans)) // fewer also if an earlier try got through without an answer
		}
		return err
	})
	return all, err
}

// claimed is where the claim moves the record's claimed to, unless that is further already.
func (c *scan) claimed() bucket.Position {
	if c.Only != "" {
		return bucket.Position{}
	}
	return c.span.to
}

// behindOf is the column of what the claims say about single routes.
func behindOf(at *table, scans []*scan) any {
	values := make(bson.A, len(scans))
	none := true
	for i, c := range scans {
		claim := c.Claim.Claim
		claim.To = c.span.to
		places := claim.Places()
		list := make([]routeTo, 0, len(places))
		for _, route := range sortedRoutes(places) {
			list = append(list, routeTo{string(route), placed(places[route])})
		}
		values[i] = list
		none = none && len(list) == 0
	}
	if none {
		return doc("$literal", bson.A{})
	}
	return at.pick(values)
}

// refusalOf judges a claim by a record that was read after the claim's write. Tokens grow, and
// a token is owned without a gap from its acquisition to its release: one that is owned
// afterwards was owned at the write.
func refusalOf(p *partition, c *store.Claim) error {
	switch {
	case p == nil || p.Token != int64(c.Token) || p.Owner == "":
		return bucket.ErrFenced(c.Bucket)
	case uint64(p.Claims) > c.Number:
		return bucket.ErrOvertaken(c.Bucket, c.Number, uint64(p.Claims))
	case uint64(p.Claims) < c.Number: // a holder of the bucket never sees this
		return postdate.E(postdate.KindUnknown, "claim %d of bucket %d was not written: repeat it", c.Number, c.Bucket)
	}
	return nil
}

// readDue reads what the claims cover. If some may not have been written, or a claim of a
// single route may go further than the record, it reads the records as well. Both may be read
// at the same time: a record that shows a claim's number has not changed since that claim was
// written.
func (s *Store) readDue(ctx context.Context, scans []*scan, all bool) error {
	look := !all || slices.ContainsFunc(scans, func(c *scan) bool { return c.Only != "" })
	reads := s.readsOf(scans)
	var records map[int]*partition
	if look {
		reads = append(reads, func(ctx context.Context) (err error) {
			records, err = s.lookAt(ctx, bucketsOf(scans))
			return err
		})
	}
	if err := s.all(ctx, reads...); err != nil {
		return err
	}
	valid := scans
	if look {
		valid = nil
		for _, c := range scans {
			p := records[c.Bucket]
			if c.refused = refusalOf(p, c.Claim); c.refused == nil {
				c.limit(p.record())
				valid = append(valid, c)
			}
		}
	}
	for _, c := range valid {
		c.cut()
		for _, d := range c.damaged {
			s.report(d)
		}
	}
	if err := s.overtake(ctx, valid); err != nil {
		return err
	}
	return s.readLarge(ctx, valid)
}

func sortedRoutes(behind map[postdate.Route]bucket.Position) []postdate.Route {
	return slices.Sorted(maps.Keys(behind))
}

func bucketsOf(scans []*scan) (buckets []int) {
	for _, c := range scans {
		buckets = append(buckets, c.Bucket)
	}
	return buckets
}
