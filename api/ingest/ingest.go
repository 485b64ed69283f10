// Package ingest takes schedules from brokers: what in that is no broker's own.
// Below it, ingest/rabbitmq consumes a queue and ingest/kafka a topic.
//
// A message of a broker is a [Command]. [Decide], which is pure, reads it by the
// rules of the HTTP API, and [Taker] carries a batch of decisions out on the store.
//
// # Two forms
//
// A message with a header x-delay (milliseconds, as the delayed-message plugin of
// RabbitMQ has it) or postdate-execution-time (RFC 3339) is scheduled as it is:
// its body is the payload, its headers and properties go with it. Any other
// message is a command, in the JSON that POST /v1/messages takes.
//
// # Promises
//
//   - [Done] stands on a durable write, or on something durable that makes a write
//     needless. Only then, or once a bad message lies in a place of its own, may a
//     source tell its broker that it has the message: nothing is lost on the way.
//   - A command that comes again, because the broker was not told, schedules
//     nothing twice where it has a name: a schedule id, a message id, a place in a
//     partition. Where it has none, or where a message id is found to stand for a
//     message that may have gone out, it is scheduled under a new id, and its
//     delivery is marked as a possible duplicate: one message too many, with a mark,
//     rather than one too few.
//   - Commands of one source about the same id take effect in their order.
package ingest

import (
	"fmt"
	"strings"

	"github.com/postdate/postdate"
)

// Headers by which a message says what is to become of it.
const (
	HeaderDelay         = "x-delay" // milliseconds
	HeaderExecutionTime = "postdate-execution-time"
	HeaderChannel       = "postdate-channel"
	HeaderScheduleID    = "postdate-schedule-id"
)

// Headers of a message that was rejected, in the place where those lie. They are
// passed over when it is put back.
const (
	headerRejected     = "postdate-rejected-"
	HeaderReason       = headerRejected + "reason"
	HeaderRejectedFrom = headerRejected + "from" // the queue or topic
	HeaderRejectedKey  = headerRejected + "routing-key"
)

// IsRejection says whether a header speaks of a rejection.
func IsRejection(name string) bool { return strings.HasPrefix(strings.ToLower(name), headerRejected) }

// Headers of deliveries that concern a command only where it is one that came
// back.
const (
	headerAttempt   = "postdate-attempt"
	headerDuplicate = "postdate-possible-duplicate"
	headerTrace     = "traceparent"
)

// HeaderSource is a header of stored messages that no consumer sees: the place in
// a Kafka topic from which the message came.
const HeaderSource = "postdate-source"

// Command is one message of a broker. A source fills its exported fields, and gives
// the same Command to [Taker.Take] until that says what became of it.
type Command struct {
	Body        []byte // nil: a record without a value, as Kafka has it
	Headers     []postdate.Header
	Properties  []postdate.Header // what else is to survive to the delivery, as headers
	ContentType string
	MessageID   string
	Key         string // Kafka's record key
	Channel     string // where it goes, unless it says otherwise

	// Position names the place of this message in its broker, and never another one,
	// in the form of a schedule id; "": the broker has no such name.
	Position string

	// Place is the same in a form of which two can be compared; only of Kafka.
	Place Place

	// Sent is when the broker got the message by its own clock, 0 where that is not
	// known. A delay counts from then, otherwise from when the command is read.
	Sent postdate.Time

	// Redelivered: the broker may have handed this message over before.
	Redelivered bool

	// Fault says what of the message cannot be taken at all; "": nothing.
	Fault string

	// Records: the message is a record of a topic. JSON that names an id replaces
	// the message of that id, and a record without a value cancels it.
	Records bool

	decision *Decision
	result   Result
}

// Place is an offset in a partition of a topic.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// PositionOf is a [Command.Position] of a record: its place, and its time stamp, for
// a topic that is deleted and made anew begins with the same places.
func PositionOf(p Place, stamp int64) string {
	id := fmt.Sprintf("%s:%d:%d:%d", p.Topic, p.Partition, p.Offset, stamp)
	if len(id) > postdate.ScheduleIDBytesMax {
		return hashed("p", id)
	}
	return id
}

// Template is a channel in which a placeholder may stand for something of each
// message: its routing key, or its record key.
type Template struct{ text, placeholder string }

// ParseTemplate reads a channel with a placeholder like "{key}". check says whether
// the node serves a channel. An empty text stands for no channel.
func ParseTemplate(text, placeholder string, check func(postdate.Channel) error) (Template, error) {
	t := Template{text, placeholder}
	if text == "" {
		return t, nil
	}
	if rest := strings.ReplaceAll(text, placeholder, ""); strings.ContainsAny(rest, "{}") {
		return t, postdate.E(postdate.KindInvalid, "the channel %q has braces of which only %s is known here", text, placeholder)
	}
	if strings.HasPrefix(text, placeholder) {
		return t, nil // the whole channel is for the sender to say
	}
	channel, err := postdate.ParseChannel(t.With("x"))
	if err == nil && check != nil {
		err = check(channel)
	}
	return t, err
}

// With is the channel for a message.
func (t Template) With(value string) string {
	if t.placeholder == "" {
		return t.text
	}
	return strings.ReplaceAll(t.text, t.placeholder, value)
}

// Uses says whether the placeholder stands in t.
func (t Template) Uses() bool { return t.placeholder != "" && strings.Contains(t.text, t.placeholder) }
