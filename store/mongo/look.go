package mongo

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

const (
	// lookMax bounds how many messages the look that all buckets share goes over. Buckets that
	// it does not reach are looked at alone.
	lookMax = 5_000
	// passedMax is how many messages beyond its limit a scan looks at if it skips some. One of a single
	// route looks at passedFirst first: mostly it takes all that it finds.
	passedMax, passedFirst = 1_000, 10
	// butMax bounds how many routes the server is told to leave out, and so how many parts a scan has.
	butMax = 64
)

var (
	// keys are in the index: no message is read.
	keys = projection{max: lookMax, fields: doc("_id", 1, "bucket", 1, "due", 1)}
	// keysAndRoutes make the server read the messages: the index has no channel.
	keysAndRoutes = projection{max: lookMax, fields: doc("_id", 1, "bucket", 1, "due", 1, "channel", 1)}
)

// look finds where each scan ends, and ends it there. For claims that may not have to be
// written it also finds what comes next.
func (s *Store) look(ctx context.Context, scans []*scan) error {
	var plain, passing, alone, ifDue []*scan
	s.crowdedMu.Lock()
	for _, c := range scans {
		switch _, crowded := s.crowded[c.Bucket]; {
		case crowded, c.comesPast():
			alone = append(alone, c)
		case c.passes:
			passing = append(passing, c)
		default:
			plain = append(plain, c)
		}
		if c.IfDue {
			ifDue = append(ifDue, c)
		}
	}
	s.crowdedMu.Unlock()
	var looks []func(ctx context.Context) error
	for some := range slices.Chunk(plain, rangesMax) {
		looks = append(looks, func(ctx context.Context) error { return s.readCommon(ctx, some, keys) })
	}
	for some := range slices.Chunk(passing, rangesMax) {
		looks = append(looks, func(ctx context.Context) error { return s.readCommon(ctx, some, keysAndRoutes) })
	}
	if len(alone) > 0 {
		looks = append(looks, func(ctx context.Context) error {
			return s.sideBySide(ctx, len(alone),
				func(ctx context.Context, i int) error { return s.lookAlone(ctx, alone[i]) })
		})
	}
	if err := s.all(ctx, append(looks, s.nextReads(ifDue)...)...); err != nil {
		return err
	}
	short := slices.DeleteFunc(slices.Clone(scans), (*scan).enough)
	if err := s.sideBySide(ctx, len(short), func(ctx context.Context, i int) error {
		short[i].most = short[i].Scan.Limit + passedMax
		return s.readAlone(ctx, short[i], keysAndRoutes)
	}); err != nil {
		return err
	}
	s.crowdedMu.Lock()
	defer s.crowdedMu.Unlock()
	for _, c := range scans {
		if c.aim(); c.whole() {
			delete(s.crowded, c.Bucket)
		} else {
			s.crowded[c.Bucket] = struct{}{}
		}
	}
	return nil
}

// comesPast reports whether a route begins to be behind within the scan.
func (c *scan) comesPast() bool {
	return slices.ContainsFunc(c.behind(),
		func(route postdate.Route) bool { return c.span.after.Before(c.Behind[route]) })
}

// ofOne reports whether the scan is of a single route.
func (c *scan) ofOne() bool { return c.Only != "" && !c.Only.IsAll() }

// lookAlone looks at one bucket. If the scan takes all routes alike, it asks only for the message that fills
// the page.
func (s *Store) lookAlone(ctx context.Context, c *scan) (err error) {
	switch {
	case c.ofOne():
		return s.readAlone(ctx, c, keysAndRoutes)
	case c.passes:
		return s.lookPast(ctx, c)
	}
	c.found, err = s.findDue(ctx, c.parts, keys, c.Scan.Limit-1, 1)
	c.expected, c.reached = c.Scan.Limit-1, len(c.found) == 0
	if err == nil && !c.reached && !anyPlaced(c.found) {
		c.expected = 0
		return s.readAlone(ctx, c, keys)
	}
	return err
}

// lookPast first finds how far the scan may go. Up to there the server leaves out what is behind.
func (s *Store) lookPast(ctx context.Context, c *scan) error {
	last, err := s.findDue(ctx, c.parts, keys, c.most-1, 1)
	switch {
	case err != nil:
		return err
	case len(last) == 0:
		c.endAt(c.span.to)
	case last[0].placed():
		c.endAt(last[0].place())
	}
	return s.readAlone(ctx, c, keysAndRoutes)
}

// enough says whether a look is the last one: it comes to the scan's end, fills a quarter of the page, or was
// not one at few messages. If channels take turns in a bucket, each finds a part of a page, which is better
// than another round trip.
func (c *scan) enough() bool {
	return !c.passes || c.reached || c.most >= c.Scan.Limit+passedMax || 4*c.covered() >= c.Scan.Limit
}

// covered counts the messages found that the claim covers.
func (c *scan) covered() (n int) {
	for _, d := range c.found {
		if d.placed() && c.Covers(d.route(), d.place()) {
			n++
		}
	}
	return n
}

// aim ends the scan at the message that fills its page, or where its look ended.
func (c *scan) aim() {
	end, count := c.span.to, c.expected // the expected ones were skipped
	var last bucket.Position
	for n, d := range c.found {
		c.expected++
		if d.placed() {
			last = d.place()
			if c.Covers(d.route(), d.place()) {
				count++
			}
		}
		if count == c.Scan.Limit || !c.reached && n == len(c.found)-1 {
			end = last
			break
		}
	}
	c.idle = c.IfDue && count == 0 && end == c.To
	c.found, c.reached = nil, false
	c.endAt(end)
}

// endAt ends the scan at a place.
func (c *scan) endAt(at bucket.Position) {
	if c.span.to = at; c.divide() {
		c.most = c.Scan.Limit
	}
}

// divide makes the parts of a scan that has an end: one ends where a route begins to be behind, and from there
// on the server leaves that out. Before, it would go over all of a backlog. divide reports whether the scan
// takes all that is left.
func (c *scan) divide() bool {
	part := c.span
	part.only = c.Only
	but := c.behind()
	if len(but) > butMax {
		c.parts = []span{part}
		return false
	}
	from := func(route postdate.Route) bucket.Position { return c.Behind[route].Latest(part.after) }
	slices.SortStableFunc(but, func(a, b postdate.Route) int { return from(a).Compare(from(b)) })
	c.parts = nil
	for _, route := range but {
		if at := from(route); at != part.after {
			part.to = at
			c.parts = append(c.parts, part)
			part.after = at
		}
		part.but += string(route) + "\x00"
	}
	part.to = c.span.to
	c.parts = append(c.parts, part)
	return true
}

// behind returns the routes of which the scan takes no more than what lies before some place in it.
func (c *scan) behind() (all []postdate.Route) {
	for _, route := range sortedRoutes(c.Behind) {
		among := c.Only == "" || route != c.Only && c.Only.IsAllOf(route.Tenant())
		if among && c.Behind[route].Before(c.span.to) {
			all = append(all, route)
		}
	}
	return all
}
