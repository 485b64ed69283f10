package bucket

import (
	"fmt"
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
	Claimed    postdate.Time
}

// Lease is a node's sign of life: the node changes it again and again, and who
// watches it stand still for as long as it lasts may take over what hangs on it. One
// lease serves all buckets of a node.
type Lease struct {
	ID       string // unique to one run of one node
	Renewals uint64

	// Lasts is how long its holder counts on it from the beginning of a renewal: nodes
	// may be set differently. 0: not known, as in the record of an older version.
	Lasts time.Duration
}

// Acquire gives the bucket to owner, provided that p is still at the token that
// the contender saw. ok is false where somebody was quicker.
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

// Claim is the fence: it moves claimed forward and sets the checkpoint, and only
// the holder of the present token can do it. Claimed never moves back. The
// checkpoint may: when a message turns up behind it, the owner lowers it before it
// publishes that message, so that everything that is published and not settled lies
// between checkpoint and claimed. A claim that was given up and arrives after its
// successor therefore never raises it. The owner numbers its claims, from p.Claims as
// it was when the owner took the bucket, for the times do not tell: claimed stands
// while a bucket is drained, and after the wall clock was set back.
func (p Partition) Claim(token, number uint64, checkpoint, claimed postdate.Time) (next Partition, ok bool) {
	if p.Token != token || p.Owner == "" {
		return p, false
	}
	late := number <= p.Claims
	p.Claims = max(p.Claims, number)
	p.Claimed = max(p.Claimed, claimed)
	if checkpoint > p.Claimed {
		panic(fmt.Sprintf("bucket %d: checkpoint %d beyond claimed %d", p.Bucket, checkpoint, p.Claimed))
	}
	if late {
		checkpoint = min(checkpoint, p.Checkpoint)
	}
	p.Checkpoint = checkpoint
	return p, true
}

// Withdrawable says whether a PENDING message with state s can still be taken
// back for certain (cancelled, or put at another time): no claim covers it yet, so
// the owner's read that could find it comes after, and no earlier publish is in
// doubt.
func (p Partition) Withdrawable(s postdate.State) bool {
	if s.Status != postdate.Pending || s.PossibleDuplicate {
		return false
	}
	return s.Parked || s.AttemptTime > p.Claimed
}
