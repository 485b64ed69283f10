// Package publishertest is the conformance suite of package publisher: what every
// publisher.Publisher promises, whatever its broker. Each publisher's own test calls [Run] in a
// few lines.
package publishertest

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Harness is what the suite needs from a publisher and its broker. Optional parts may be nil;
// the checks that need them are then left out.
type Harness struct {
	// New makes a publisher, connected or connecting. The suite closes it.
	New func(t *testing.T) publisher.Publisher

	// Channel makes a new, empty channel that accepts everything.
	Channel func(t *testing.T) postdate.Channel

	// Consume waits until at least n messages are on the channel and returns all that have
	// arrived since it was made, in any order.
	Consume func(t *testing.T, channel postdate.Channel, n int) []Consumed

	// Bad changes a message so that the publisher refuses it permanently. Optional.
	Bad func(m *postdate.Message)

	// Refusing makes a channel that refuses every message. Optional.
	Refusing func(t *testing.T) postdate.Channel

	// Break takes the broker down and returns a func that brings it back, with everything that
	// it had confirmed. Optional.
	Break func(t *testing.T) (restore func())

	// Timeout is the publisher's own deadline. No Publish may take much longer.
	Timeout time.Duration

	// BadChannel is a channel whose form the publisher cannot serve.
	BadChannel postdate.Channel
}

// Consumed is a message as a consumer sees it. Values of headers are text: 1, true.
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
	check("OccurrencesNameTheirSeries", true, occurrencesNameTheirSeries)
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
