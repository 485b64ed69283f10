// Package amqp writes what AMQP 0.9.1 has beside a message's body as headers of a
// [postdate.Message], whose values are texts, and reads it back. A property becomes a
// header whose name begins with "amqp-". A header's value becomes a text, and the header
// [HeaderKinds] says which of them were something else.
//
// A message that came in over RabbitMQ carries such headers, a client may set them (but
// for [MessageID]), and a delivery to RabbitMQ turns them back. Other brokers and webhooks
// get them as headers.
package amqp

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
)

// The headers that stand for properties.
const (
	ContentEncoding = "amqp-content-encoding"
	CorrelationID   = "amqp-correlation-id"
	ReplyTo         = "amqp-reply-to"
	Expiration      = "amqp-expiration" // milliseconds, as AMQP has it: a text
	Priority        = "amqp-priority"   // 0 to 255
	MessageID       = "amqp-message-id" // in the place of the schedule id; only on what was taken from RabbitMQ
	Timestamp       = "amqp-timestamp"  // seconds since 1970, in the place of the execution time
	Type            = "amqp-type"
	AppID           = "amqp-app-id"

	// UserID stays a header: a broker closes the channel of whoever publishes under a
	// user's name that is not his own.
	UserID = "amqp-user-id"
)

// ShortBytesMax is the longest text that AMQP's short strings hold: names, and the
// properties that are texts.
const ShortBytesMax = 255

// Properties are the properties of a delivery as headers.
func Properties(d *amqp091.Delivery) (headers []postdate.Header) {
	add := func(name, value string) {
		if value != "" {
			headers = append(headers, postdate.Header{Name: name, Value: value})
		}
	}
	add(ContentEncoding, d.ContentEncoding)
	add(CorrelationID, d.CorrelationId)
	add(ReplyTo, d.ReplyTo)
	add(Expiration, d.Expiration)
	add(MessageID, d.MessageId)
	add(Type, d.Type)
	add(AppID, d.AppId)
	add(UserID, d.UserId)
	if d.Priority > 0 {
		add(Priority, strconv.Itoa(int(d.Priority)))
	}
	if !d.Timestamp.IsZero() {
		add(Timestamp, strconv.FormatInt(d.Timestamp.Unix(), 10))
	}
	return headers
}

// SetProperty turns a header that stands for a property of AMQP into that
// property, and says whether it did. What does not read as such a property stays
// a header. An error says what AMQP cannot carry.
func SetProperty(p *amqp091.Publishing, name, value string) (bool, error) {
	var to *string
	switch name {
	case ContentEncoding:
		to = &p.ContentEncoding
	case CorrelationID:
		to = &p.CorrelationId
	case ReplyTo:
		to = &p.ReplyTo
	case Type:
		to = &p.Type
	case AppID:
		to = &p.AppId
	case MessageID:
		to = &p.MessageId
	case Expiration:
		// RabbitMQ closes the channel over an expiration that is not a number.
		if _, err := strconv.ParseUint(value, 10, 32); err != nil {
			return false, nil
		}
		to = &p.Expiration
	case Priority:
		n, err := strconv.ParseUint(value, 10, 8)
		if err == nil {
			p.Priority = uint8(n)
		}
		return err == nil, nil
	case Timestamp:
		n, err := strconv.ParseInt(value, 10, 64)
		if err == nil {
			p.Timestamp = time.Unix(n, 0)
		}
		return err == nil, nil
	default:
		return false, nil
	}
	if len(value) > ShortBytesMax {
		return false, fmt.Errorf("%s of %d bytes: RabbitMQ allows %d", name, len(value), ShortBytesMax)
	}
	*to = value
	return true, nil
}
