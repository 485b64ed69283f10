package bucket

import (
	"cmp"
	"strings"

	"github.com/postdate/postdate"
)

// Position is a place in a bucket's order of attempts: by attempt time, then tenant, then id. A
// position with only a time lies before every message of that time.
type Position struct {
	Time       postdate.Time
	Tenant     string
	ScheduleID string
}

// PositionOf is the position of a message whose next attempt is at the given time.
func PositionOf(key postdate.Key, attempt postdate.Time) Position {
	return Position{Time: attempt, Tenant: key.Tenant, ScheduleID: key.ScheduleID}
}

// UpTo is the position after every message of a time.
func UpTo(t postdate.Time) Position { return Position{Time: t + 1} }

// Compare is negative where p lies before q, and 0 where they are the same.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Time, q.Time); c != 0 { // mostly, and it is the cheapest
		return c
	}
	return cmp.Or(strings.Compare(p.Tenant, q.Tenant), strings.Compare(p.ScheduleID, q.ScheduleID))
}

// Before reports whether p lies before q.
func (p Position) Before(q Position) bool { return p.Compare(q) < 0 }

// Latest is the later of p and q.
func (p Position) Latest(q Position) Position {
	if p.Before(q) {
		return q
	}
	return p
}

// Earliest is the earlier of p and q.
func (p Position) Earliest(q Position) Position {
	if q.Before(p) {
		return q
	}
	return p
}
