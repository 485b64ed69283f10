// Package publisher is the contract of everything that delivers messages to brokers. Its
// specification is the conformance suite in publisher/publishertest.
//
// A publish has three outcomes: confirmed, refused (surely not delivered) and unknown. Unknown
// is never reported as refused: the message may have arrived, and it is published again with a
// mark.
package publisher

import (
	"context"
	"time"

	"github.com/postdate/postdate"
)

// Publisher publishes messages to one broker. It is safe for concurrent use.
type Publisher interface {
	// Publish sends a batch to one channel and returns the result of each message, in order. It
	// returns when all outcomes are known, and at the latest at its own deadline or the end of
	// ctx; what is still open then is Unknown. The messages of a batch may arrive in any order.
	Publish(ctx context.Context, channel postdate.Channel, batch []postdate.Delivery) []Result

	// Check returns a KindInvalid error, with advice, if this publisher cannot serve a channel
	// of that form. It asks no broker.
	Check(channel postdate.Channel) error

	// Close waits for what is in flight, until ctx ends, and disconnects.
	Close(ctx context.Context) error
}

// Fencer is a Publisher that can hide from consumers what a former owner of a bucket publishes
// after it has lost the bucket.
type Fencer interface {
	// Gained is called when the node becomes the owner of buckets, before it publishes from
	// them. Once it has returned nil, consumers never see anything that former owners had not
	// finished by then. After an error it is called again, once the node has made sure that it
	// is still the owner; until then, publishes from those buckets are Down.
	Gained(ctx context.Context, buckets []int) error

	// Lost is called when the node has given buckets up, or has lost them.
	Lost(buckets []int)
}

// Outcome says how one publish ended. The zero value is not an outcome.
type Outcome uint8

// The outcomes.
const (
	Confirmed Outcome = iota + 1 // the broker has taken responsibility for it
	Refused                      // surely not delivered, because of this message or its target
	Down                         // surely not delivered: the channel accepts nothing at present
	Unknown                      // may have been delivered
)

var outcomeNames = [...]string{Confirmed: "confirmed", Refused: "refused", Down: "down", Unknown: "unknown"}

func (o Outcome) String() string {
	if int(o) >= len(outcomeNames) || o == 0 {
		return "invalid"
	}
	return outcomeNames[o]
}

// Result is an outcome and the reason for it, in the broker's own words.
type Result struct {
	Outcome Outcome
	Reason  string // empty for Confirmed
	// Permanent means that no retry can help, for example because the message is too large.
	// Only with Refused.
	Permanent bool
	// RetryAfter is how long the receiver asks to wait before the next attempt; 0 if it does
	// not ask. The wait is never longer than the message's MaxBackoff.
	RetryAfter time.Duration
	// Settled means that the store has the message as delivered, in the same step in which the message was
	// delivered. Only with Confirmed, and only where a settlement was passed on.
	Settled bool
}

// All returns n copies of r, for a batch that shares one fate.
func All(n int, r Result) []Result {
	rs := make([]Result, n)
	for i := range rs {
		rs[i] = r
	}
	return rs
}

// Names of Postdate's own headers, as a consumer sees them. They are part of the product's
// contract.
const (
	HeaderScheduleID        = "postdate-schedule-id"
	HeaderExecutionTime     = "postdate-execution-time"
	HeaderAttempt           = "postdate-attempt"
	HeaderPossibleDuplicate = "postdate-possible-duplicate"
	HeaderTraceparent       = "traceparent"
	HeaderTracestate        = "tracestate" // only with a traceparent
)
