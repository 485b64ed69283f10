// Package amqp converts the properties and headers of an AMQP 0.9.1 message to headers of a
// [postdate.Message], whose values are texts, and back. A property becomes a header whose name
// begins with "amqp-". A header's value becomes a text, and the header [HeaderKinds] says which
// values were of another type.
//
// A message taken from RabbitMQ carries such headers, and clients may set them (except
// [MessageID]). A delivery to RabbitMQ converts them back; other brokers and webhooks get them
// as headers.
package amqp

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
)

// Headers that stand for properties.
const (
	ContentEncoding = "amqp-content-encoding"
	CorrelationID   = "amqp-correlation-id"
	ReplyTo         = "amqp-reply-to"
	Expiration      = "amqp-expiration" // milliseconds, as text, as in AMQP
	Priority        = "amqp-priority"   // 0 to 255
	MessageID       = "amqp-message-id" // replaces the schedule id; only on messages taken from RabbitMQ
	Timestamp       = "amqp-timestamp"  // seconds since 1970; replaces the execution time
	Type            = "amqp-type"
	AppID           = "amqp-app-id"

	// UserID stays a header: a broker closes the channel of a client that publishes under
	// another user's name.
	UserID = "amqp-user-id"
)

// ShortBytesMax is the length of the longest AMQP short string, in bytes. Names, and properties
// that are texts, are short strings.
const ShortBytesMax = 255

// Properties returns the properties of a delivery as headers.
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

// IsDirectReply reports whether a reply-to asks for RabbitMQ's direct replies. RabbitMQ closes
// the channel of a publisher that has no consumer for them, with all messages under way. The name
// that it makes of it for receivers has more after it, and disturbs nobody.
func IsDirectReply(replyTo string) bool { return replyTo == "amq.rabbitmq.reply-to" }

// SetProperty converts a header that stands for an AMQP property to that property, and reports
// whether it did. A value that the property cannot have stays a header. An error says what AMQP
// cannot carry.
func SetProperty(p *amqp091.Publishing, name, value string) (bool, error) {
	var to *string
	switch name {
	case ContentEncoding:
		to = &p.ContentEncoding
	case CorrelationID:
		to = &p.CorrelationId
	case ReplyTo:
		if IsDirectReply(value) {
			return false, fmt.Errorf("%s: %s works only for the connection that waits for the reply", name, value)
		}
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
