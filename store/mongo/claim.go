package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Claim implements store.Due: one write for all buckets, and after it, side by
// side, the reads of whose the buckets are, of what is due, and of what comes next.
func (s *Store) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := make([]store.ClaimResult, len(claims))
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for _, round := range rounds(len(claims), func(i int) int { return claims[i].Bucket }) {
		s.claim(ctx, claims, round, results)
	}
	return results
}

func (s *Store) claim(ctx context.Context, claims []store.Claim, round []int, results []store.ClaimResult) {
	at := tableOf(round, func(i int) int { return claims[i].Bucket })
	err := s.within(ctx, func(ctx context.Context) error {
		err := s.writeClaims(ctx, at, claims)
		s.sawSession(ctx)
		return err
	})
	if err == nil {
		err = s.readDue(ctx, at, claims, results)
		err = unknown("reading what is due", err) // the claims are written
	}
	if err == nil {
		return
	}
	err = asWrite("claiming", err)
	for _, i := range round {
		if results[i].Err == nil {
			results[i] = store.ClaimResult{Err: err}
		}
	}
}

// writeClaims is bucket.Partition.Claim for many records. It is idempotent, and one
// that arrives late moves no claimed back and no checkpoint forward. A record without
// a number of claims is below every number.
func (s *Store) writeClaims(ctx context.Context, at *table, claims []store.Claim) error {
	token := at.column(func(i int) any { return int64(claims[i].Token) })
	number := at.column(func(i int) any { return int64(claims[i].Number) })
	claimed := at.column(func(i int) any { return int64(claims[i].Claimed) })
	checkpoint := at.column(func(i int) any { return int64(claims[i].Checkpoint) })
	filter := doc("_id", anyOf(at.buckets), "owner", doc("$ne", ""), "$expr", doc("$eq", bson.A{"$token", token}))
	late := doc("$lte", bson.A{number, "$claims"})
	update := bson.A{
		doc("$set", doc("claims", doc("$max", bson.A{"$claims", number}), "claimed", doc("$max", bson.A{"$claimed", claimed}),
			"checkpoint", doc("$cond", bson.A{late, doc("$min", bson.A{checkpoint, "$checkpoint"}), checkpoint}))),
		doc("$set", doc("checkpoint", doc("$min", bson.A{"$checkpoint", "$claimed"}))),
	}
	return s.repeat(ctx, func(ctx context.Context) error {
		_, err := s.partitions.UpdateMany(ctx, filter, update, options.UpdateMany().SetHint(indexID))
		return err
	})
}

// mine says whether a record that was read after a claim's write shows that the
// write found its token there. Tokens grow and are owned without a gap from their
// acquisition to their release, so one that is owned afterwards was owned then.
func mine(p *partition, c *store.Claim) bool {
	return p != nil && p.Token == int64(c.Token) && p.Owner != ""
}

func errFenced(bucket int) error {
	return postdate.E(postdate.KindFenced, "bucket %d belongs to another owner by now", bucket)
}

// readDue reads what is due in the buckets that are still the claims'. Where a scan
// goes beyond its own claim, up to an earlier, wider one, that one is read first:
// what is returned must be covered by a claim that was there before the read.
func (s *Store) readDue(ctx context.Context, at *table, claims []store.Claim, results []store.ClaimResult) error {
	scans := make([]*scan, len(at.items))
	var records map[int]*partition
	look := func(ctx context.Context) (err error) {
		records, err = s.lookAt(ctx, at.buckets)
		return err
	}
	beyond := false
	for _, i := range at.items {
		beyond = beyond || claims[i].Scan.To > claims[i].Claimed
	}
	if beyond {
		if err := s.all(ctx, look); err != nil {
			return err
		}
	}
	for n, i := range at.items {
		c := &claims[i]
		to := min(c.Scan.To, c.Claimed)
		if p := records[c.Bucket]; mine(p, c) {
			to = min(c.Scan.To, postdate.Time(p.Claimed))
		}
		scans[n] = &scan{Scan: &c.Scan, bucket: c.Bucket, token: c.Token, to: to, next: postdate.Far}
	}
	reads := s.readsOf(scans)
	if !beyond {
		reads = append(reads, look)
	}
	if err := s.all(ctx, reads...); err != nil {
		return err
	}
	var held []*scan
	for n, i := range at.items {
		if !mine(records[claims[i].Bucket], &claims[i]) {
			results[i].Err = errFenced(claims[i].Bucket)
			continue
		}
		held = append(held, scans[n])
	}
	if err := s.complete(ctx, held); err != nil {
		return err
	}
	for n, i := range at.items {
		if results[i].Err == nil {
			results[i] = scans[n].result()
		}
	}
	return nil
}
