package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

const (
	// commonMax bounds how many messages a read returns that several buckets share.
	commonMax = 2_000
	// rangesMax bounds how many parts of buckets share a read: a command with too many ranges is not
	// answered in index order.
	rangesMax = 128
	// aloneMax bounds how many reads of single buckets are under way at a time.
	aloneMax = 8
)

// scan is one bucket's scan in progress.
type scan struct {
	*store.Claim
	span     span   // up to the claim's To, and after the look up to where the scan ends
	parts    []span // what the server reads of the span
	most     int    // how many messages it looks at
	passes   bool   // its look passes over some of what it finds
	expected int    // how many the look found in the parts
	idle     bool   // the claim covers none, and has nothing else to write

	refused error             // why the record refuses the claim
	record  *bucket.Partition // as it was when the read began; nil: this call surely wrote the claim to it

	found   []*document // in order
	reached bool        // found extends to the end of the span
	next    postdate.Time
	ahead   bool // next is known
	chosen  []*document
	damaged []*document     // skipped
	leftOut bucket.Position // the first one that could not be overtaken
	ended   bucket.Position
}

func newScan(c *store.Claim) *scan {
	n := &scan{Claim: c, next: postdate.Far, most: c.Scan.Limit}
	n.span = span{bucket: c.Bucket, after: c.Scan.After, to: c.To}
	n.parts = []span{n.span}
	switch {
	case n.ofOne():
		n.most, n.passes = n.most+passedFirst, true
	case len(n.behind()) > 0:
		n.most, n.passes = n.most+passedMax, true
	}
	if c.Only.IsAll() {
		n.parts[0].only = c.Only // for which the index suffices
	}
	return n
}

// leavesOut says whether the server leaves out some of the span.
func (c *scan) leavesOut() bool {
	return slices.ContainsFunc(c.parts, func(p span) bool { return p.only != "" || p.but != "" })
}

// whole says whether the scan goes as far as was asked.
func (c *scan) whole() bool { return c.span.to == c.To }

// projection says which fields a find returns, and of how many messages.
type projection struct {
	fields bson.D
	max    int // messages, for a command that several scans share
}

var (
	orderDue  = doc("bucket", 1, "due", 1, "_id", 1)
	orderTime = doc("due", 1, "_id", 1)
	// lightly leaves out large payloads, which are read only once they are known to fit, and most of the
	// history of a series and of the log of attempts. The rest of these shows whether they can be written to.
	lightly = projection{max: commonMax, fields: doc("large", 0, "series.history", doc("$slice", -1),
		"attemptLog", doc("$slice", -1))}
)

// readsOf returns the reads of what scans cover and of what comes next. If the look found
// nothing in any bucket, one read answers both: it finds the first messages.
func (s *Store) readsOf(scans []*scan) []func(ctx context.Context) error {
	if allQuiet(scans) {
		return []func(ctx context.Context) error{func(ctx context.Context) error { return s.readQuiet(ctx, scans) }}
	}
	packs := packed(scans)
	reads := []func(ctx context.Context) error{func(ctx context.Context) error {
		return s.sideBySide(ctx, len(packs),
			func(ctx context.Context, i int) error { return s.readCommon(ctx, packs[i], lightly) })
	}}
	return append(reads, s.nextReads(slices.DeleteFunc(slices.Clone(scans),
		func(c *scan) bool { return !c.whole() || c.ahead }))...)
}

// allQuiet says whether the look found nothing in any bucket and one read can confirm it: nothing was left
// out, all scans begin at the same place, and that place and their ends are whole milliseconds.
func allQuiet(scans []*scan) bool {
	after := scans[0].span.after
	if placed(after).ID != "" {
		return false
	}
	for _, c := range scans {
		if c.expected > 0 || c.leavesOut() || c.span.after != after || !after.Before(c.To) || placed(c.To).ID != "" {
			return false
		}
	}
	return true
}

// nextReads returns the reads of what lies beyond the ends of claims.
func (s *Store) nextReads(scans []*scan) (reads []func(ctx context.Context) error) {
	byTo := map[bucket.Position][]*scan{}
	for _, c := range scans {
		c.ahead = true
		byTo[c.To] = append(byTo[c.To], c)
	}
	for to, some := range byTo {
		reads = append(reads, func(ctx context.Context) error { return s.readNext(ctx, to, some) })
	}
	return reads
}

// packed groups scans into those that share a command.
func packed(scans []*scan) (packs [][]*scan) {
	expected, ranges := 0, 0
	for _, c := range scans {
		expected += c.expected
		ranges += len(c.parts)
		last := len(packs) - 1
		if last < 0 || expected > commonMax || ranges > rangesMax {
			packs, expected, ranges = append(packs, nil), c.expected, len(c.parts)
			last++
		}
		packs[last] = append(packs[last], c)
	}
	return packs
}

// readQuiet reads the first message of each of several buckets in which the look found nothing
// due. A bucket in which something has come in since is read as usual.
func (s *Store) readQuiet(ctx context.Context, scans []*scan) error {
	if err := s.readNext(ctx, scans[0].span.after, scans); err != nil {
		return err
	}
	var came []*scan
	for _, c := range scans {
		if c.reached = c.next >= c.To.Time; !c.reached {
			c.expected, c.next = 1, postdate.Far
			came = append(came, c)
		}
	}
	if len(came) == 0 {
		return nil
	}
	return s.all(ctx, s.readsOf(came)...)
}

// readCommon reads several buckets with one command.
func (s *Store) readCommon(ctx context.Context, scans []*scan, r projection) error {
	byBucket := make(map[int]*scan, len(scans))
	var spans []span
	limit := 0
	for _, c := range scans {
		byBucket[c.Bucket] = c
		spans = append(spans, c.parts...)
		limit += c.most
	}
	limit = min(limit, max(r.max, scans[0].most))
	all, err := s.findDue(ctx, spans, r, 0, limit)
	if err != nil {
		return err
	}
	for _, d := range all {
		c := byBucket[d.Bucket]
		if c == nil { // damaged: only the server knows its bucket
			s.report(d)
			continue
		}
		c.found = append(c.found, d)
	}
	if len(all) < limit {
		for _, c := range scans {
			c.reached = true
		}
		return nil
	}
	// Not everything came. The buckets below the last message's are complete; that one may have
	// more, for the next page; those above were not looked at.
	last := all[len(all)-1].Bucket
	var rest []*scan
	for _, c := range scans {
		c.reached = c.Bucket < last
		if c.Bucket > last || !c.reached && !anyPlaced(c.found) {
			rest = append(rest, c)
		}
	}
	return s.sideBySide(ctx, len(rest), func(ctx context.Context, i int) error { return s.readAlone(ctx, rest[i], r) })
}

// readAlone reads a bucket with a command of its own. While nothing that it found is placed, it
// reads more: the next scan would only find the same again.
func (s *Store) readAlone(ctx context.Context, c *scan, r projection) (err error) {
	for most := c.most; ; most *= 2 {
		c.found, err = s.findDue(ctx, c.parts, r, 0, most)
		c.reached = len(c.found) < most
		if err != nil || c.reached || anyPlaced(c.found) {
			return err
		}
	}
}

// sideBySide runs f for n items, aloneMax at a time.
func (s *Store) sideBySide(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	for from := 0; from < n; from += aloneMax {
		var some []func(ctx context.Context) error
		for i := from; i < min(from+aloneMax, n); i++ {
			some = append(some, func(ctx context.Context) error { return f(ctx, i) })
		}
		if err := s.all(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// findDue reads up to limit messages that wait in spans, after the first skip ones.
func (s *Store) findDue(ctx context.Context, spans []span, r projection, skip, limit int) ([]*document, error) {
	return s.findIn(ctx, spans, options.Find().SetSort(orderDue).SetProjection(r.fields).
		SetSkip(int64(skip)).SetLimit(int64(limit)).SetBatchSize(int32(limit+1)))
}

// findIn reads messages that wait in spans.
func (s *Store) findIn(ctx context.Context, spans []span, o *options.FindOptionsBuilder) ([]*document, error) {
	var filter bson.D
	switch ranges := s.rangesOf(spans); len(ranges) {
	case 0:
		return nil, nil
	case 1:
		filter = ranges[0]
	default:
		filter = doc("$or", ranges)
	}
	return s.find(ctx, filter, o.SetHint(s.dueIndex()))
}

// nextMin is how many messages a look for what comes next finds, besides one for each bucket.
const nextMin = 20

// readNext looks for the first message beyond a position in each bucket.
func (s *Store) readNext(ctx context.Context, from bucket.Position, scans []*scan) error {
	some := slices.Collect(slices.Chunk(scans, rangesMax/2)) // a place within a millisecond takes two ranges
	return s.sideBySide(ctx, len(some),
		func(ctx context.Context, i int) error { return s.readFirst(ctx, from, some[i]) })
}

// readFirst finds the first messages beyond a position in some buckets together, in order of
// time: the server merges one walk of the index for each bucket. A bucket with none among them
// has none before the last of them.
func (s *Store) readFirst(ctx context.Context, from bucket.Position, scans []*scan) error {
	byBucket := make(map[int]*scan, len(scans))
	spans := make([]span, len(scans))
	for i, c := range scans {
		byBucket[c.Bucket] = c
		spans[i] = span{bucket: c.Bucket, after: from, to: bucket.Position{Time: postdate.Far}}
	}
	limit := nextMin + len(scans)
	first, err := s.findIn(ctx, spans, options.Find().SetSort(orderTime).SetProjection(keys.fields).
		SetLimit(int64(limit)).SetBatchSize(int32(limit+1)))
	if err != nil {
		return err
	}
	full := len(first) == limit
	first = slices.DeleteFunc(first, func(d *document) bool { return byBucket[d.Bucket] == nil || !d.placed() })
	border := postdate.Far
	if last := len(first) - 1; full && last >= 0 {
		border = *first[last].Due
	}
	for _, c := range scans {
		c.next = border
	}
	for _, d := range slices.Backward(first) {
		byBucket[d.Bucket].next = *d.Due
	}
	return nil
}

// limit shortens the scan to what record covers, which was read along with the messages.
func (c *scan) limit(record bucket.Partition) {
	c.record = &record
	c.span.to = c.span.to.Earliest(record.ClaimedFor(c.Only))
}

// cut makes a page of what was found: what the claim and its record cover, up to the scan's
// limits.
func (c *scan) cut() {
	bytes := 0
	for _, d := range c.found {
		if !d.placed() {
			c.damaged = append(c.damaged, d)
			continue
		}
		at := d.place()
		if c.span.to.Before(at) {
			c.reached = true
			break
		}
		c.ended = at
		if d.damaged != nil {
			c.damaged = append(c.damaged, d)
			continue
		}
		if !c.Covers(d.route(), at) || c.record != nil && c.record.ClaimedFor(d.route()).Before(at) {
			continue
		}
		c.chosen = append(c.chosen, d)
		bytes += d.bytes()
		if len(c.chosen) >= c.Scan.Limit || bytes >= c.Scan.BytesMax {
			return
		}
	}
	if c.reached {
		c.ended = c.span.to
	}
}

func (c *scan) result() store.ClaimResult {
	if c.idle {
		return store.ClaimResult{Ended: c.To, Complete: true, Next: c.next}
	}
	r := store.ClaimResult{To: c.span.to, Ended: c.ended, Complete: c.ended == c.To, Next: c.next, LeftOut: c.leftOut}
	for _, d := range c.chosen {
		rec := d.record()
		rec.Series = postdate.Series{} // it is not whole
		r.Due = append(r.Due, rec)
	}
	return r
}
