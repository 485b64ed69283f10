// Package publisher is the contract of what brings messages to brokers. Its
// specification is the conformance suite in publisher/publishertest.
//
// A publish has three outcomes: confirmed, refused (surely not delivered) and
// unknown. Unknown is never reported as refused: a message whose outcome is
// unknown may have arrived, and it is published again with a mark.
package publisher

import (
	"context"
	"time"

	"github.com/postdate/postdate"
)

// Publisher brings messages to one broker. It is safe for concurrent use.
type Publisher interface {
	// Publish hands over a batch for one channel and returns, in order, what
	// became of each. It returns when all outcomes are known, and no later than its
	// own deadline or the end of ctx, when what is still open is Unknown. The
	// messages of a batch may arrive in any order.
	Publish(ctx context.Context, channel postdate.Channel, batch []postdate.Delivery) []Result

	// Check says whether a channel's form is one that this publisher can serve,
	// as a KindInvalid error that helps. It asks no broker.
	Check(channel postdate.Channel) error

	// Close waits for what is in flight, no longer than ctx, and disconnects.
	Close(ctx context.Context) error
}

// Fencer is a Publisher that can keep from consumers what a former owner of a bucket
// publishes after it has lost it.
type Fencer interface {
	// Gained is called when the node has become the owner of buckets, and before it
	// publishes from them. When it returns nil, nothing that former owners have not
	// finished by then is ever seen. After an error it is called again, for a node
	// that has made sure that it still is the owner; until then, publishes from those
	// buckets are Down.
	Gained(ctx context.Context, buckets []int) error

	// Lost is called when the node has given buckets up, or has lost them.
	Lost(buckets []int)
}

// Outcome is what became of one publish. The zero value is not an outcome.
type Outcome uint8

// The outcomes.
const (
	Confirmed Outcome = iota + 1 // the broker has taken responsibility for it
	Refused                      // surely not delivered, because of this message or its target
	Down                         // surely not delivered: the channel takes nothing at present
	Unknown                      // may have been delivered
)

var outcomeNames = [...]string{Confirmed: "confirmed", Refused: "refused", Down: "down", Unknown: "unknown"}

func (o Outcome) String() string {
	if int(o) >= len(outcomeNames) || o == 0 {
		return "invalid"
	}
	return outcomeNames[o]
}

// Result is an outcome with the broker's own words.
type Result struct {
	Outcome Outcome
	Reason  string // for all but Confirmed
	// Permanent: no retry can help (the message is too large, say). Only with
	// Refused.
	Permanent bool
	// RetryAfter is how long the receiver asks to be left alone before the next
	// attempt; 0 where it did not ask. It waits no longer than the message's MaxBackoff.
	RetryAfter time.Duration
}

// All is the same result n times, for a batch that shares one fate.
func All(n int, r Result) []Result {
	rs := make([]Result, n)
	for i := range rs {
		rs[i] = r
	}
	return rs
}

// Names of what a consumer sees beside the payload. They are part of the
// product's contract.
const (
	HeaderScheduleID        = "postdate-schedule-id"
	HeaderExecutionTime     = "postdate-execution-time"
	HeaderAttempt           = "postdate-attempt"
	HeaderPossibleDuplicate = "postdate-possible-duplicate"
	HeaderTraceparent       = "traceparent"
)
