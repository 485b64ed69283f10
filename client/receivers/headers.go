// Package receivers is for programs that receive messages from webhooks, RabbitMQ and Kafka: it verifies
// signatures, reads headers, and drops repetitions.
package receivers

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Delivery is what the headers of a message say.
type Delivery struct {
	// MessageID is the same for each attempt: drop repetitions by it. Of a series it names the occurrence too.
	MessageID         string
	ScheduleID        string // the same for all occurrences of a series
	ExecutionTime     time.Time
	Attempt           int  // from 1
	PossibleDuplicate bool // the receiver may have the message already
	Traceparent       string
	Tracestate        string
	Failed            *Failed // only on a failure channel: the message that could not be delivered
}

// Failed is what is said of a message that could not be delivered.
type Failed struct {
	MessageID         string
	Channel           string // where it went; of a URL, the scheme and host
	Reason            string
	Attempts          int
	Time              time.Time
	PossibleDuplicate bool // it may have arrived all the same
}

// ReadHeaders reads the headers of a message: the Header of a request, the amqp.Table of RabbitMQ, or those of a
// record of Kafka by name, as texts or bytes. On RabbitMQ the message id is a property: give it as messageID. An
// error means that the message is not from Postdate.
func ReadHeaders[V any](headers map[string]V, messageID string) (Delivery, error) {
	r := read(headers)
	if messageID == "" {
		messageID = r.texts["message-id"]
	}
	if messageID == "" {
		messageID = r.text("ce-id")
	}
	d := Delivery{
		MessageID:         messageID,
		ScheduleID:        r.text("postdate-schedule-id"),
		ExecutionTime:     r.time("postdate-execution-time"),
		Attempt:           r.number("postdate-attempt", 1),
		PossibleDuplicate: r.texts["postdate-possible-duplicate"] == "true",
		Traceparent:       r.texts["traceparent"],
		Tracestate:        r.texts["tracestate"],
		Failed:            r.failed(),
	}
	return d, r.err
}

// ReadFailed reads what the headers of a message on a failure channel say of the one that could not be delivered.
// It returns nil for any other message. It also takes the Headers of a message in an inbox.
func ReadFailed[V any](headers map[string]V) (*Failed, error) {
	r := read(headers)
	return r.failed(), r.err
}

// reader keeps the first error.
type reader struct {
	texts map[string]string // by their names in small letters
	err   error
}

func read[V any](headers map[string]V) *reader {
	texts := make(map[string]string, len(headers))
	for name, value := range headers {
		name = strings.ToLower(name)
		switch value := any(value).(type) {
		case []byte:
			texts[name] = string(value)
		case []string:
			texts[name] = strings.Join(value, ", ")
		default:
			texts[name] = fmt.Sprint(value)
		}
	}
	return &reader{texts: texts}
}

func (r *reader) failed() *Failed {
	if _, ok := r.texts["postdate-failed-id"]; !ok {
		return nil
	}
	return &Failed{
		MessageID:         r.text("postdate-failed-id"),
		Channel:           r.text("postdate-failed-channel"),
		Reason:            r.text("postdate-failed-reason"),
		Attempts:          r.number("postdate-failed-attempts", 0),
		Time:              r.time("postdate-failed-time"),
		PossibleDuplicate: r.texts["postdate-failed-possible-duplicate"] == "true",
	}
}

func (r *reader) text(name string) string {
	text, ok := r.texts[name]
	if !ok {
		r.fail("there is no header %s: the message is not from Postdate", name)
	}
	return text
}

func (r *reader) time(name string) time.Time {
	text := r.text(name)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.fail("%s is no time: %s", name, text)
	}
	return at
}

func (r *reader) number(name string, least int) int {
	text := r.text(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		r.fail("%s is no number from %d: %s", name, least, text)
	}
	return n
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}
