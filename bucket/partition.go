package bucket

import (
	"fmt"
	"maps"
	"time"

	"github.com/postdate/postdate"
)

// Partition is a bucket's record in the store. It is created with the store and
// never deleted, so that tokens grow for ever.
type Partition struct {
	Bucket     int
	Owner      string // the node that holds the lock; "": nobody
	Token      uint64 // grows by one at every change of owner, for ever
	Lease      string // the owner's lease, by whose renewals it shows that it is alive
	Claims     uint64 // the number of the latest claim; it never goes back
	Checkpoint postdate.Time
	Claimed    Position // everything up to it is claimed, but for what Behind says

	// Behind holds the routes that are claimed less far, and up to where; or all routes of a tenant
	// ([postdate.AllOf]), but for those that it names too. The map is never modified: a claim
	// replaces it.
	Behind map[postdate.Route]Position
}

// Lease is a node's sign of life. The node keeps changing it, and whoever has watched it stand
// still for as long as it lasts may take over what hangs on it. One lease serves all buckets of
// a node.
type Lease struct {
	ID       string // unique to one run of one node
	Renewals uint64

	// Lasts is how long its holder relies on it, from the beginning of a renewal. Nodes may be
	// set differently. 0: unknown, as in a record of an older version.
	Lasts time.Duration
}

// Acquire gives the bucket to owner if p still has the token that the contender saw. ok is
// false if somebody was quicker.
func (p Partition) Acquire(seenToken uint64, owner, lease string) (next Partition, ok bool) {
	if p.Token != seenToken {
		return p, false
	}
	p.Owner, p.Lease = owner, lease
	p.Token++
	return p, true
}

// Release gives the bucket back. The token stays, so the next owner gets a
// higher one.
func (p Partition) Release(token uint64) (next Partition, ok bool) {
	if p.Token != token {
		return p, false
	}
	p.Owner, p.Lease = "", ""
	return p, true
}

// Claim is what an owner writes into its bucket's record before it hands messages out: what it
// claims, and which routes it claims less far.
type Claim struct {
	Token      uint64
	Number     uint64 // above that of every claim before
	Checkpoint postdate.Time
	To         Position // up to where it claims

	// Only is the route, one of those in Behind, whose messages alone are claimed, or all routes of
	// a tenant. "" claims every route, but those in Behind only as far as it says.
	Only postdate.Route
	// Behind holds what is claimed less far than the rest, and up to where: nothing of it beyond
	// that was ever handed out. No route's place lies beyond that of all routes of its tenant. The
	// map is never modified.
	Behind map[postdate.Route]Position
}

// Covers reports whether a claim takes a message that waits at a position, if its To does.
func (c *Claim) Covers(route postdate.Route, at Position) bool {
	to, all := c.CoversTo(route)
	return all || !to.Before(at)
}

// CoversTo returns up to where a claim takes a route's messages, if its To does. all is true if it takes
// every one.
func (c *Claim) CoversTo(route postdate.Route) (to Position, all bool) {
	var behind bool
	switch {
	case c.Only == "":
		to, behind = placeIn(c.Behind, route)
	case c.Only == route:
	case c.Only.IsAllOf(route.Tenant()):
		to, behind = c.Behind[route]
	default:
		return Position{}, false
	}
	return to, !behind
}

// Places returns what the record's Behind becomes, but for what has come up to its Claimed. A route
// that has come up to the place of all routes of its tenant is claimed with them from there on.
func (c *Claim) Places() map[postdate.Route]Position {
	places := maps.Clone(c.Behind)
	if to, is := places[c.Only]; is {
		all, behind := places[postdate.AllOf(c.Only.Tenant())]
		if to = to.Latest(c.To); behind && !c.Only.IsAll() {
			to = to.Earliest(all)
		}
		places[c.Only] = to
	}
	maps.DeleteFunc(places, func(route postdate.Route, to Position) bool {
		all, behind := places[postdate.AllOf(route.Tenant())]
		return behind && to == all && !route.IsAll()
	})
	return places
}

// placeIn is what behind says of a route, or else of all routes of its tenant.
func placeIn(behind map[postdate.Route]Position, route postdate.Route) (to Position, is bool) {
	if len(behind) == 0 || route == "" {
		return to, false
	}
	if to, is = behind[route]; !is {
		to, is = behind[postdate.AllOf(route.Tenant())]
	}
	return to, is
}

// Holds says whether the bucket is owned under token.
func (p Partition) Holds(token uint64) bool { return p.Token == token && p.Owner != "" }

// ErrFenced says that a bucket is not owned under the caller's token.
func ErrFenced(bucket int) error {
	return postdate.E(postdate.KindFenced, "bucket %d belongs to another owner by now", bucket)
}

// ErrOvertaken says that a claim arrives after a later one of the same owner.
func ErrOvertaken(bucket int, number, last uint64) error {
	return postdate.E(postdate.KindConflict, "claim %d of bucket %d comes after claim %d", number, bucket, last)
}

// Claim is the fence: it moves claimed forward and sets the checkpoint. Only the holder of the
// present token can do that; everybody else gets KindFenced. Claimed never moves back. The
// checkpoint may: when a message turns up behind it, the owner lowers it before it publishes
// that message, so that everything published and not settled lies between checkpoint and
// claimed.
//
// The owner numbers its claims, continuing from p.Claims as it was when the owner took the
// bucket. A claim that was given up and arrives after its successor changes nothing and gets
// KindConflict. Repeating the last claim that was written changes nothing either.
func (p Partition) Claim(c Claim) (next Partition, err error) {
	switch {
	case !p.Holds(c.Token):
		return p, ErrFenced(p.Bucket)
	case c.Number < p.Claims:
		return p, ErrOvertaken(p.Bucket, c.Number, p.Claims)
	case c.Number == p.Claims:
		return p, nil
	}
	p.Claims, p.Checkpoint = c.Number, c.Checkpoint
	if c.Only == "" {
		p.Claimed = p.Claimed.Latest(c.To)
	}
	p.Behind = c.Places()
	maps.DeleteFunc(p.Behind, func(_ postdate.Route, to Position) bool { return !to.Before(p.Claimed) })
	if len(p.Behind) == 0 {
		p.Behind = nil
	}
	p.check()
	return p, nil
}

// check panics if the checkpoint lies beyond what is claimed. It may lie beyond what is claimed
// of a route that is behind: then nothing of that route is in doubt.
func (p Partition) check() {
	if p.Checkpoint > 0 && p.Checkpoint >= p.Claimed.Time {
		panic(fmt.Sprintf("bucket %d: checkpoint %d beyond claimed %v", p.Bucket, p.Checkpoint, p.Claimed))
	}
}

// ClaimedFor is up to where messages of a route are claimed.
func (p Partition) ClaimedFor(route postdate.Route) Position {
	if to, behind := placeIn(p.Behind, route); behind {
		return to
	}
	return p.Claimed
}

// InDoubt reports whether a PENDING message that waits at a position may have been handed out
// by the owner that wrote this record, or by one before it.
func (p Partition) InDoubt(route postdate.Route, at Position) bool {
	return p.Checkpoint < at.Time && !p.ClaimedFor(route).Before(at)
}

// Withdrawable reports whether a PENDING message with state s can certainly still be cancelled
// or given another time: it is parked, or no claim covers it yet, so that the owner's read that
// could find it is still to come; and no earlier publish is in doubt.
func (p Partition) Withdrawable(key postdate.Key, route postdate.Route, s postdate.State) bool {
	if s.Status != postdate.Pending || s.PossibleDuplicate {
		return false
	}
	return s.Parked || p.ClaimedFor(route).Before(PositionOf(key, s.AttemptTime))
}

// Equal reports whether two records are the same.
func (p Partition) Equal(q Partition) bool {
	return p.Bucket == q.Bucket && p.Owner == q.Owner && p.Token == q.Token && p.Lease == q.Lease &&
		p.Claims == q.Claims && p.Checkpoint == q.Checkpoint && p.Claimed == q.Claimed && maps.Equal(p.Behind, q.Behind)
}
