package pebble

import (
	"bytes"
	"context"
	"slices"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// examinedMax bounds how many messages one scan looks at, including those that it skips, so
// that one bucket's scan cannot hold up the others.
const examinedMax = 20_000

// Claim implements store.Due. It looks before it takes the locks: they are held no longer
// than for any other write, however far a look goes.
func (s *Store) Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult {
	results := make([]store.ClaimResult, len(claims))
	found, err := s.look(claims, results)
	if err == nil {
		s.writeClaims(ctx, claims, found, results)
		// The claims are on disk: only from here on is anything read that is answered.
		err = s.read(claims, found, results)
	}
	if err == nil {
		err = s.awaitSynced()
	}
	for i := range results {
		if err != nil && results[i].Err == nil {
			results[i] = store.ClaimResult{Err: s.readError(err)}
		}
	}
	return results
}

// look notes in results how far each scan goes, and returns how many messages it will find.
func (s *Store) look(claims []store.Claim, results []store.ClaimResult) (found []int, err error) {
	r, err := s.scanner(claims)
	if err != nil {
		return nil, err
	}
	defer r.close()
	return r.look(claims, results)
}

// writeClaims writes the claims under the locks of their buckets, and waits for the disk.
func (s *Store) writeClaims(ctx context.Context, claims []store.Claim, found []int, results []store.ClaimResult) {
	var wanted []int
	for i := range claims {
		if found[i] > 0 || !claims[i].IfDue {
			wanted = append(wanted, i)
		}
	}
	decide := func(w *writer, from, to int) error {
		for _, i := range wanted[from:to] {
			s.claim(w, claims[i], &results[i])
		}
		return nil
	}
	for _, f := range s.under(ctx, len(wanted), func(i int) (int, int) { return claims[wanted[i]].Bucket, 0 }, decide) {
		for _, i := range wanted[f.from:f.to] {
			if results[i].Err == nil {
				results[i] = store.ClaimResult{Err: f.err}
			}
		}
	}
}

// claim writes one claim, as far as the scan goes. It also claims what came in since the look.
func (s *Store) claim(w *writer, c store.Claim, result *store.ClaimResult) {
	p, asked := s.partitions[c.Bucket], c.To
	c.To = result.Ended
	next, err := p.Claim(c.Claim)
	if err != nil {
		*result = store.ClaimResult{Err: err}
		return
	}
	if next.Claims != p.Claims { // else it was written before, and no other process can have changed it
		s.setPartition(w, next)
	}
	result.To = c.To.Earliest(next.ClaimedFor(c.Only))
	result.Ended, result.Complete = result.To, result.To == asked
}

// read reads what the looks found, for every claim that went through. If they found nothing,
// what they noted is the answer.
func (s *Store) read(claims []store.Claim, found []int, results []store.ClaimResult) error {
	if !slices.ContainsFunc(found, func(n int) bool { return n > 0 }) {
		return nil
	}
	r, err := s.scanner(claims)
	if err != nil {
		return err
	}
	defer r.close()
	for i := range claims {
		if results[i].Err != nil || found[i] == 0 {
			continue
		}
		c := claims[i]
		// A later claim may cover less, and what it leaves out may be cancelled.
		p, err := s.partition(c.Bucket).Claim(c.Claim)
		if err != nil {
			results[i] = store.ClaimResult{Err: err}
			continue
		}
		c.To, c.Behind = results[i].To, p.Behind
		if err := r.page(&c, r.looks[i].from, &results[i]); err != nil {
			return err
		}
		results[i].Complete = results[i].Complete && c.To == claims[i].To
	}
	return nil
}

// lastRoute is the route of the last message that a walk passed, and up to where the claim covers the route.
// A walk may pass thousands of messages of a channel that is left behind.
type lastRoute struct {
	known           bool
	tenant, channel []byte
	priority        postdate.Priority
	to              []byte // a due key
}

func (s *lastRoute) is(tenant, channel []byte, priority postdate.Priority) bool {
	return s.known && s.priority == priority && bytes.Equal(s.tenant, tenant) && bytes.Equal(s.channel, channel)
}

func (s *lastRoute) set(tenant, channel []byte, priority postdate.Priority) {
	s.known, s.priority = true, priority
	s.tenant, s.channel = append(s.tenant[:0], tenant...), append(s.channel[:0], channel...)
}

// scanner walks through the messages that claims cover, and reads them. While nothing is
// retried, the due space and the messages are in the same order, so neighbours are read
// together.
type scanner struct {
	s             *Store
	due, messages *lsm.Iterator // messages is nil until one is read
	looks         []begun       // one per claim
	key           []byte        // scratch

	// The walk through one bucket.
	claim    *store.Claim
	from     bucket.Position // nothing waits before it
	first    bucket.Position // where the walk began
	to       []byte          // the key of claim.To
	limit    []byte          // the end of the bucket: deleted keys beyond it are not stepped over
	last     lastRoute
	examined int
}

// scanner takes the snapshot that the scans of claims read.
func (s *Store) scanner(claims []store.Claim) (*scanner, error) {
	looks := make([]begun, len(claims))
	for i := range claims {
		if claims[i].Scan.After == (bucket.Position{}) {
			looks[i] = s.beginLook(claims[i].Bucket)
		}
	}
	due, err := s.db.NewIter(spaceOnly(spaceDue))
	if err != nil {
		return nil, err
	}
	return &scanner{s: s, due: due, looks: looks}, nil
}

func (r *scanner) close() {
	r.due.Close()
	if r.messages != nil {
		r.messages.Close()
	}
}

// look counts what the scans of claims will find, and notes in results how far they go.
func (r *scanner) look(claims []store.Claim, results []store.ClaimResult) (found []int, err error) {
	found = make([]int, len(claims))
	for i := range claims {
		for r.start(&claims[i], r.looks[i].from); r.next(); {
			if found[i]++; found[i] >= claims[i].Scan.Limit {
				break
			}
		}
		if err := r.end(&results[i]); err != nil {
			return nil, err
		}
		if l := r.looks[i]; l != (begun{}) {
			r.s.endLook(claims[i].Bucket, l, r.first)
		}
	}
	return found, nil
}

// start begins a walk through what c covers beyond its scan's After, in order. Without an After
// it begins at from.
func (r *scanner) start(c *store.Claim, from bucket.Position) {
	r.claim, r.from, r.last.known, r.examined = c, from, false, 0
	r.to = timedKey(r.to[:0], spaceDue, c.Bucket, c.To)
	r.limit = appendBucket(append(r.limit[:0], spaceDue), c.Bucket+1)
}

// next goes to the next message. It returns false at the end: at c.To, or earlier if too many
// were skipped.
func (r *scanner) next() bool {
	for r.examined < examinedMax {
		if r.examined++; r.examined == 1 {
			r.seek()
		} else {
			r.due.NextWithLimit(r.limit)
		}
		if r.beyond() {
			return false
		}
		if r.covered() {
			return true
		}
	}
	return false
}

// seek goes to the first message beyond After.
func (r *scanner) seek() {
	if after := r.claim.Scan.After; after != (bucket.Position{}) {
		r.key = timedKey(r.key[:0], spaceDue, r.claim.Bucket, after)
		if r.due.SeekGEWithLimit(r.key, r.limit) == lsm.IterValid && bytes.Equal(r.due.Key(), r.key) {
			r.due.NextWithLimit(r.limit)
		}
		return
	}
	r.key = timedKey(r.key[:0], spaceDue, r.claim.Bucket, r.from)
	r.due.SeekGEWithLimit(r.key, r.limit)
	if r.first = nowhere; r.here() {
		r.first = r.at()
	}
}

// here says whether the walk stands at a message of its bucket.
func (r *scanner) here() bool {
	return r.due.Valid() && bytes.HasPrefix(r.due.Key(), r.to[:1+bucketBytes])
}

// beyond says whether the walk has passed the claim's end.
func (r *scanner) beyond() bool { return !r.due.Valid() || bytes.Compare(r.due.Key(), r.to) > 0 }

// covered says whether the claim covers the message. It reads the message's route only if claims
// of routes differ.
func (r *scanner) covered() bool {
	if r.claim.Only == "" && len(r.claim.Behind) == 0 {
		return true
	}
	channel, priority, err := targetOf(r.due.Value())
	if err != nil {
		return true // whoever reads it reports it
	}
	tenant, _, _ := bytes.Cut(r.due.Key()[1+bucketBytes+timeBytes:], []byte{0})
	if !r.last.is(tenant, channel, priority) {
		r.last.set(tenant, channel, priority)
		to, all := r.claim.CoversTo(postdate.RouteAt(string(tenant), postdate.Channel(channel), priority))
		if r.last.to = r.to; !all {
			r.last.to = timedKey(nil, spaceDue, r.claim.Bucket, to)
		}
	}
	return bytes.Compare(r.due.Key(), r.last.to) <= 0
}

// at is where the walk stands.
func (r *scanner) at() bucket.Position {
	return splitTimed(r.due.Key()[1+bucketBytes:])
}

// end notes how far the walk got.
func (r *scanner) end(result *store.ClaimResult) error {
	if !r.beyond() && bytes.Equal(r.due.Key(), r.to) {
		r.due.NextWithLimit(r.limit) // it came to the very end
	}
	result.Ended, result.Complete, result.Next = r.claim.To, true, postdate.Far
	switch {
	case !r.beyond():
		result.Ended, result.Complete = r.at(), false
	case r.here():
		result.Next = r.at().Time
	}
	return r.due.Error()
}

// page reads what c covers, as far as its scan goes.
func (r *scanner) page(c *store.Claim, from bucket.Position, result *store.ClaimResult) error {
	bytes, damaged := 0, 0
	for r.start(c, from); r.next(); {
		at := r.at()
		key := postdate.Key{Bucket: c.Bucket, Tenant: at.Tenant, ScheduleID: at.ScheduleID}
		rec, err := r.record(key)
		if err != nil {
			if damaged++; damaged == 1 {
				r.s.reportDamage(key, err) // one damaged record must not stall a bucket
			}
			continue
		}
		result.Due = append(result.Due, rec)
		if bytes += rec.Bytes(); len(result.Due) >= c.Scan.Limit || bytes >= c.Scan.BytesMax {
			break
		}
	}
	if damaged > 1 {
		r.s.c.Log.Error("more due messages of this bucket cannot be read", "count", damaged-1, "bucket", c.Bucket)
	}
	return r.end(result)
}

// record reads the message where the walk stands.
func (r *scanner) record(key postdate.Key) (postdate.Record, error) {
	st, err := readState(r.due.Value())
	if err != nil {
		return postdate.Record{}, err
	}
	m, err := r.message(key, st.ExecutionTime)
	return postdate.Record{Message: m, State: st.State}, err
}

func (r *scanner) message(key postdate.Key, execution postdate.Time) (m postdate.Message, err error) {
	if r.messages == nil { // of the same snapshot, so that no later message with the id is taken for this one
		r.messages, err = r.due.Clone(lsm.CloneOptions{IterOptions: spaceOnly(spaceMessage)})
		if err != nil {
			return m, err
		}
	}
	r.key = messageKey(r.key[:0], key, execution)
	if !r.messages.SeekGE(r.key) || !bytes.Equal(r.messages.Key(), r.key) {
		if err := r.messages.Error(); err != nil {
			return m, err
		}
		return m, lsm.ErrNotFound
	}
	return readMessage(r.messages.Value(), key, execution)
}

func (s *Store) reportDamage(key postdate.Key, err error) {
	s.c.Log.Error("a due message cannot be read: it is passed over and stays PENDING",
		"scheduleId", key.ScheduleID, "bucket", key.Bucket, "error", err)
}
