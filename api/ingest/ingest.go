// Package ingest takes schedules from brokers. It holds the part that all brokers share;
// ingest/rabbitmq consumes a queue, and ingest/kafka a topic.
//
// A broker's message is a [Command]. [Decide], which is pure, reads it by the rules of
// the HTTP API, and [Taker] applies a batch of decisions to the store.
//
// # Two forms
//
// A message with a header x-delay (milliseconds, as in RabbitMQ's delayed-message
// plugin) or postdate-execution-time (RFC 3339) is scheduled as it is: its body is the
// payload, and its headers and properties go with it. Any other message is a command in
// the JSON that POST /v1/messages takes. A source of task definitions has those alone, and
// they change series ([api.Task]). One of the form etf1+ has the records of
// etf1/kafka-message-scheduler alone.
//
// # Promises
//
//   - [Done] means that the write is durable, or that something durable makes a write
//     needless. A source acknowledges a message to its broker only then, or once a bad
//     message is safe in the place for rejected ones: nothing is lost on the way.
//   - A command that is redelivered, because it was not acknowledged, schedules nothing
//     twice if it has a name: a schedule id, a message id or a place in a partition. If
//     it has none, or if its message id belongs to a message that may already have been
//     delivered, it is scheduled under a new id and its delivery is marked as a possible
//     duplicate: one marked message too many is better than one too few.
//   - Commands of one source about the same id take effect in their order.
package ingest

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/postdate/postdate"
)

// Headers with which a sender says what to do with a message.
const (
	HeaderDelay         = "x-delay" // milliseconds
	HeaderExecutionTime = "postdate-execution-time"
	HeaderChannel       = "postdate-channel"
	HeaderScheduleID    = "postdate-schedule-id"
)

// Headers added to a rejected message. They are ignored if the message is sent again.
const (
	headerRejected     = "postdate-rejected-"
	HeaderReason       = headerRejected + "reason"
	HeaderRejectedFrom = headerRejected + "from" // the queue or topic
	HeaderRejectedKey  = headerRejected + "routing-key"
)

// RejectedSuffix, after the name of a queue or topic, names that of its rejected messages.
const RejectedSuffix = ".postdate-rejected"

// IsRejection says whether a header was added when its message was rejected.
func IsRejection(name string) bool { return strings.HasPrefix(strings.ToLower(name), headerRejected) }

// Headers of Postdate's deliveries. A command has them if it is a delivery that came back.
const (
	headerAttempt   = "postdate-attempt"
	headerDuplicate = "postdate-possible-duplicate"
)

// HeaderSource is a header of stored messages that no consumer sees. It names the place
// in a Kafka topic from which the message came.
const HeaderSource = "postdate-source"

// Command is one message of a broker. A source fills its exported fields, and passes
// the same Command to [Taker.Take] until the outcome is no longer [Again].
type Command struct {
	Body        []byte // nil: a Kafka record without a value
	Headers     []postdate.Header
	Properties  []postdate.Header // the broker's properties to keep for the delivery, as headers
	ContentType string
	MessageID   string
	Key         string // Kafka's record key
	Channel     string // where it goes, unless the message says otherwise
	Pinned      bool   // it goes there whatever the message says

	// Position is the message's place in its broker as a valid schedule id. No other
	// message ever has the same. "": the broker has no such place.
	Position string

	// Place is the same in a form that can be ordered. Only Kafka has it.
	Place Place

	// Sent is when the broker received the message, by the broker's clock. A delay counts
	// from then. 0: not known, and a delay counts from when the command is read.
	Sent postdate.Time

	// Stamp is a Kafka record's time stamp, in milliseconds since 1970, whoever set it.
	Stamp int64

	// Superseded: a later record has taken the place of this one ([Latest]).
	Superseded bool

	// FirstRead is when a first read began that this message is of: what was due then, another scheduler may
	// have delivered.
	FirstRead postdate.Time

	// Redelivered: the broker may have handed this message over before.
	Redelivered bool

	// Fault says why the message cannot be taken at all. "": it can.
	Fault string

	// Records: the message is a record of a topic. JSON with an id replaces the message
	// that has the id, and a record without a value cancels it.
	Records bool

	decision *Decision
	result   Result
	span     trace.Span // nil: it is not sampled
	late     int        // how often it came too late, and is tried again
}

// Place is an offset in a partition of a topic.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// PositionOf makes the [Command.Position] of a record from its place and its time stamp.
// The place alone is not unique: a topic that is deleted and recreated repeats offsets.
func PositionOf(p Place, stamp int64) string {
	id := fmt.Sprintf("%s:%d:%d:%d", p.Topic, p.Partition, p.Offset, stamp)
	if len(id) > postdate.ScheduleIDBytesMax {
		return hashed("p", id)
	}
	return id
}

// Template is a channel that may contain a placeholder for a message's routing key or
// record key. It is pinned if no message may name another channel.
type Template struct {
	text, placeholder string
	pinned            bool
}

// ParseTemplate parses a channel that may contain a placeholder like "{key}". A "!" before it
// pins it. check says whether the node serves a channel. An empty text means no channel.
func ParseTemplate(text, placeholder string, check func(postdate.Channel) error) (Template, error) {
	text, pinned := strings.CutPrefix(text, "!")
	t := Template{text, placeholder, pinned}
	switch {
	case text == "" && !pinned:
		return t, nil
	case pinned && !fixesTarget(text, placeholder):
		return t, postdate.E(postdate.KindInvalid, "the channel %q leaves the broker or the host to senders, "+
			"and cannot be pinned: write %s behind them, like !rabbitmq:orders/%s", text, placeholder, placeholder)
	}
	if rest := strings.ReplaceAll(text, placeholder, ""); strings.ContainsAny(rest, "{}") {
		return t, postdate.E(postdate.KindInvalid, "the channel %q has braces of which only %s is known here",
			text, placeholder)
	}
	if strings.HasPrefix(text, placeholder) {
		return t, nil // the sender chooses the whole channel
	}
	channel, err := postdate.ParseChannel(t.With("x"))
	if err == nil && check != nil {
		err = check(channel)
	}
	return t, err
}

// fixesTarget says whether no value of the placeholder leads to another broker, or to another
// host if the channel is a URL.
func fixesTarget(text, placeholder string) bool {
	before, _, templated := strings.Cut(text, placeholder)
	broker, target, ok := strings.Cut(before, ":")
	if templated && (broker == "http" || broker == "https") {
		host, isURL := strings.CutPrefix(target, "//")
		return isURL && strings.Contains(host, "/")
	}
	return ok || !templated
}

// With returns the channel with value in place of the placeholder.
func (t Template) With(value string) string {
	if t.placeholder == "" {
		return t.text
	}
	return strings.ReplaceAll(t.text, t.placeholder, value)
}

// Pinned says whether no message may name another channel.
func (t Template) Pinned() bool { return t.pinned }

// Uses says whether t contains the placeholder.
func (t Template) Uses() bool { return t.placeholder != "" && strings.Contains(t.text, t.placeholder) }
