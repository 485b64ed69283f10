// Package publishertest is the conformance suite of package publisher: what
// every publisher.Publisher promises, whatever its broker. A publisher's own
// test calls [Run] in a few lines.
package publishertest

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Harness is what the suite needs of a publisher and its broker. Optional parts
// may be nil; the checks that need them then do not exist for this publisher.
type Harness struct {
	// New makes a publisher, connected or about to be. The suite closes it.
	New func(t *testing.T) publisher.Publisher

	// Channel makes a new, empty channel that takes everything.
	Channel func(t *testing.T) postdate.Channel

	// Consume waits until at least n messages are on the channel and returns all
	// that have come since it was made, in any order.
	Consume func(t *testing.T, channel postdate.Channel, n int) []Consumed

	// Bad spoils a message so that the publisher refuses it for good. Optional.
	Bad func(m *postdate.Message)

	// Refusing makes a channel that refuses every message. Optional.
	Refusing func(t *testing.T) postdate.Channel

	// Break takes the broker down and returns what restores it, with all that it
	// had confirmed. Optional.
	Break func(t *testing.T) (restore func())

	// Timeout is the publisher's own deadline, and with some air the longest that
	// any Publish may take.
	Timeout time.Duration

	// BadChannel is one whose form the publisher cannot serve.
	BadChannel postdate.Channel
}

// Consumed is what a consumer sees of a message. Values of headers are as text:
// 1, true.
type Consumed struct {
	MessageID   string
	ContentType string
	Payload     []byte
	Headers     map[string]string
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	check := func(name string, possible bool, f func(*testing.T, Harness)) {
		if possible {
			t.Run(name, func(t *testing.T) { f(t, h) })
		}
	}
	check("ConfirmedIsConsumable", true, confirmedIsConsumable)
	check("EmptyBatch", true, emptyBatch)
	check("DuplicatesAreMarked", true, duplicatesAreMarked)
	check("OwnHeadersCannotBeForged", true, ownHeadersCannotBeForged)
	check("SameIDTwice", true, sameIDTwice)
	check("ConcurrentBatches", true, concurrentBatches)
	check("BadChannelIsRefused", true, badChannelIsRefused)
	check("BadMessageFailsAlone", h.Bad != nil, badMessageFailsAlone)
	check("RefusingChannel", h.Refusing != nil, refusingChannel)
	check("EndedContext", true, endedContext)
	check("CloseWaits", true, closeWaits)
	check("BrokerDown", h.Break != nil, brokerDown)
	check("BrokerBreaksUnderLoad", h.Break != nil, brokerBreaksUnderLoad)
}
