package mongo

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// This file decides, in pure functions, between a claim and those who want to change a claimed
// message's state without holding its bucket's lock. DESIGN.md has the protocol; decide_test.go
// plays every order of its steps.

// mark announces on a PENDING message that somebody is about to change its state, and first
// looks at the partition record. The change is made only if the mark still stands; whoever
// removes the mark has won.
type mark struct {
	ID    bson.ObjectID `bson:"id"`              // of one try: never used twice
	Token int64         `bson:"token"`           // the settling owner's; 0: a cancel or a replace
	Apart bool          `bson:"apart,omitempty"` // a transaction is to follow it: see apart.go
}

func (m *mark) is(id bson.ObjectID) bool { return m != nil && m.ID == id }

// verdict is what a cancel or a replace does next.
type verdict uint8

const (
	// the mark stands and no claim covers the message: write, if the mark still stands
	verdictFinish    verdict = iota + 1
	verdictTooLate           // a claim covers the message, or it has ended
	verdictCancelled         // it is withdrawn
	verdictWait              // somebody else is about to change it: look again soon
)

// sighting is what a cancel or a replace saw of a message.
type sighting struct {
	key   postdate.Key
	route postdate.Route
	state postdate.State
	mark  *mark
}

// judge is the look: both the message and the partition record p were read after the mark id
// was set.
func judge(p bucket.Partition, saw sighting, id bson.ObjectID) verdict {
	switch {
	case saw.state.Withdrawn():
		return verdictCancelled
	case !p.Withdrawable(saw.key, saw.route, saw.state):
		return verdictTooLate
	case saw.mark.is(id):
		return verdictFinish
	}
	return verdictWait
}

// meeting is what an owner does with a due message that it read after its claim under token.
type meeting uint8

const (
	meetTake     meeting = iota + 1 // it is the owner's
	meetOvertake                    // remove the mark first: its bearer can then no longer write
)

func meet(m *mark, token uint64) meeting {
	if m == nil || m.Token != 0 && uint64(m.Token) == token {
		return meetTake // the owner's own settlement is under way: it knows that the message is in its hands
	}
	return meetOvertake
}

// stillDue says whether a message whose mark was already gone is still what the owner's claim
// covers. was is its state when it was found, with the mark.
func stillDue(was, now postdate.State) bool {
	return now.Status == postdate.Pending && now.Version == was.Version && now.Parked == was.Parked &&
		now.AttemptTime == was.AttemptTime && now.Occurrence == was.Occurrence
}

// overtaken says whether a message that was found marked, as was, may be handed out as it is
// now: nil if it is gone. It does not matter whether the owner or the mark's bearer removed the
// mark; while the mark stands, its bearer can still write.
func overtaken(was, now *document) bool {
	return now != nil && now.damaged == nil && !now.Mark.is(was.Mark.ID) && stillDue(was.state(), now.state())
}
