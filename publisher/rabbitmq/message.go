package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	amqpheader "github.com/postdate/postdate/internal/amqp"
	"github.com/postdate/postdate/publisher"
)

// Sizes of the wire format, in bytes.
const (
	frameOverhead  = 8          // around every frame's content
	propertiesFix  = 12 + 2 + 4 // class, weight, body size; the mask; the table's length
	propertiesRest = 1 + 8      // delivery mode, timestamp; propertiesBytes counts the others
	fieldFix       = 1 + 1 + 4  // a field's name length, type and value length
	numberMax      = 8          // a number's width, which its text may be shorter than
)

// publishing converts a delivery to an AMQP message. If AMQP cannot carry it, or if it would
// make the broker close the connection that other messages share, the error says why; no retry
// can help it. frameBytesMax is the connection's largest frame; 0: no limit.
func publishing(d *postdate.Delivery, frameBytesMax int) (amqp.Publishing, error) {
	m := d.Message
	msg := amqp.Publishing{
		ContentType:  m.ContentType,
		DeliveryMode: amqp.Persistent,
		MessageId:    m.ScheduleID,
		Timestamp:    m.ExecutionTime.Std(),
		Priority:     uint8(m.Priority.Weight()),
		Body:         m.Payload,
	}
	headers := make(amqp.Table, len(m.Headers)+6)
	bytes, kinds := propertiesFix+propertiesRest, amqpheader.KindsOf(m.Headers)
	for h := range publisher.ClientHeaders(m) {
		if kinds != nil && h.Name == amqpheader.HeaderKinds {
			continue
		}
		isProperty, err := amqpheader.SetProperty(&msg, h.Name, h.Value)
		switch {
		case err != nil:
			return amqp.Publishing{}, err
		case isProperty:
			continue
		case h.Name == "CC" || h.Name == "BCC":
			return amqp.Publishing{}, fmt.Errorf("header %s: RabbitMQ takes it for a list of further queues, "+
				"and a text is none", h.Name)
		case len(h.Name) > amqpheader.ShortBytesMax:
			return amqp.Publishing{}, fmt.Errorf("header name of %d bytes: RabbitMQ allows %d",
				len(h.Name), amqpheader.ShortBytesMax)
		}
		headers[h.Name] = amqpheader.ValueOf(h.Value, kinds[h.Name])
		bytes += fieldFix + len(h.Name) + max(len(h.Value), numberMax)
	}
	own := func(name string, value any, size int) {
		headers[name] = value
		bytes += fieldFix + len(name) + size
	}
	executionTime := m.ExecutionTime.String()
	own(publisher.HeaderScheduleID, m.SeriesID(), len(m.SeriesID()))
	own(publisher.HeaderExecutionTime, executionTime, len(executionTime))
	own(publisher.HeaderAttempt, int32(d.Attempt), 4)
	if d.PossibleDuplicate {
		own(publisher.HeaderPossibleDuplicate, true, 1)
	}
	for name, value := range publisher.TraceHeaders(m) {
		own(name, value, len(value))
	}
	bytes += propertiesBytes(&msg)
	switch {
	case len(m.ContentType) > amqpheader.ShortBytesMax:
		return amqp.Publishing{}, fmt.Errorf("content type of %d bytes: RabbitMQ allows %d",
			len(m.ContentType), amqpheader.ShortBytesMax)
	case len(msg.MessageId) > amqpheader.ShortBytesMax:
		return amqp.Publishing{}, fmt.Errorf("message id of %d bytes: RabbitMQ allows %d",
			len(msg.MessageId), amqpheader.ShortBytesMax)
	case frameBytesMax > 0 && bytes > frameBytesMax-frameOverhead:
		return amqp.Publishing{}, fmt.Errorf("headers of %d bytes: they must fit into one frame, "+
			"and this broker's frames hold %d", bytes, frameBytesMax-frameOverhead)
	}
	msg.Headers = headers
	return msg, nil
}

// propertiesBytes returns the size of the optional properties in a frame.
func propertiesBytes(p *amqp.Publishing) int {
	n := 1 // priority
	for _, s := range []string{p.ContentType, p.ContentEncoding, p.MessageId, p.CorrelationId, p.ReplyTo, p.Type,
		p.AppId, p.Expiration} {
		n += 1 + len(s)
	}
	return n
}
