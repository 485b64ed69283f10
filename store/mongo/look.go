package mongo

import (
	"context"
	"slices"

	"github.com/postdate/postdate/bucket"
)

const (
	// lookMax bounds how many messages the look that all buckets share goes over. Buckets that
	// it does not reach are looked at alone.
	lookMax = 5_000
	// passedMax is how many messages beyond its limit a scan looks at if it skips some. One of a single
	// route looks at passedFirst first: mostly it takes all that it finds.
	passedMax, passedFirst = 1_000, 10
	// butMax bounds how many routes the server is told to leave out.
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
	var plain, parted, alone, ifDue []*scan
	s.crowdedMu.Lock()
	for _, c := range scans {
		switch _, crowded := s.crowded[c.Bucket]; {
		case crowded:
			alone = append(alone, c)
		case c.parted:
			parted = append(parted, c)
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
	for some := range slices.Chunk(parted, rangesMax) {
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

// lookAlone looks at a bucket that filled its page last time. If the scan takes all routes
// alike, it asks only for the message that fills the page.
func (s *Store) lookAlone(ctx context.Context, c *scan) (err error) {
	if c.parted {
		return s.readAlone(ctx, c, keysAndRoutes)
	}
	c.found, err = s.findDue(ctx, []span{c.span}, keys, c.Scan.Limit-1, 1)
	c.expected, c.reached = c.Scan.Limit-1, len(c.found) == 0
	if err == nil && !c.reached && !anyPlaced(c.found) {
		c.expected = 0
		return s.readAlone(ctx, c, keys)
	}
	return err
}

// enough says whether a look is the last one: it comes to the scan's end, fills a quarter of the page, or was
// not one at few messages. If channels take turns in a bucket, each finds a part of a page, which is better
// than another round trip.
func (c *scan) enough() bool {
	return !c.parted || c.reached || c.most >= c.Scan.Limit+passedMax || 4*c.covered() >= c.Scan.Limit
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
	end, count := c.To, c.expected // the expected ones were skipped
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
	c.quiet = c.expected == 0
	c.idle = c.IfDue && count == 0 && end == c.To
	c.span.to, c.found, c.reached = end, nil, false
	if c.leaveOut(true) {
		c.most = c.Scan.Limit
	}
}

// leaveOut has the server leave out what the scan takes nothing of, and reports whether it takes all
// that is left. For a tenant the index suffices. For a route the server reads all messages that it
// leaves out, so for the look, which has no end yet, routes stay.
func (c *scan) leaveOut(routes bool) (all bool) {
	c.span.only, c.span.but = "", ""
	if c.Only.IsAll() || routes {
		c.span.only = c.Only
	}
	switch {
	case c.Only != "" && !c.Only.IsAll():
		return c.span.only != ""
	case len(c.Behind) > butMax:
		return false
	}
	all = true
	for _, route := range sortedRoutes(c.Behind) {
		switch {
		case route == c.Only, c.Only != "" && !c.Only.IsAllOf(route.Tenant()): // only leaves it out
		case (routes || route.IsAll()) && !c.Scan.After.Before(c.Behind[route]):
			c.span.but += string(route) + "\x00"
		default:
			all = false
		}
	}
	return all
}
