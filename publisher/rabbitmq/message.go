package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// Sizes of the wire format, in bytes.
const (
	frameOverhead  = 8             // around every frame's content
	propertiesFix  = 12 + 2 + 4    // class, weight, body size; the mask; the table's length
	propertiesRest = 1 + 8 + 1 + 1 // delivery mode, timestamp, lengths of content type and message id
	fieldFix       = 1 + 1 + 4     // a field's name length, type and value length
)

// publishing is the delivery as AMQP has it. What AMQP cannot carry, or what would
// make the broker close the connection over other messages' heads, is an error
// that says why; no retry can help it. frameBytesMax is the connection's largest
// frame; 0: no limit.
func publishing(d *postdate.Delivery, frameBytesMax int) (amqp.Publishing, error) {
	m := d.Message
	headers := make(amqp.Table, len(m.Headers)+5)
	bytes := propertiesFix + propertiesRest + len(m.ContentType) + len(m.ScheduleID)
	for h := range publisher.ClientHeaders(m) {
		if h.Name == "CC" || h.Name == "BCC" {
			return amqp.Publishing{}, fmt.Errorf("header %s: RabbitMQ takes it for a list of further queues, and a text is none", h.Name)
		}
		if len(h.Name) > shortBytesMax {
			return amqp.Publishing{}, fmt.Errorf("header name of %d bytes: RabbitMQ allows %d", len(h.Name), shortBytesMax)
		}
		headers[h.Name] = h.Value
		bytes += fieldFix + len(h.Name) + len(h.Value)
	}
	own := func(name string, value any, size int) {
		headers[name] = value
		bytes += fieldFix + len(name) + size
	}
	executionTime := m.ExecutionTime.String()
	own(publisher.HeaderScheduleID, m.ScheduleID, len(m.ScheduleID))
	own(publisher.HeaderExecutionTime, executionTime, len(executionTime))
	own(publisher.HeaderAttempt, int32(d.Attempt), 4)
	if d.PossibleDuplicate {
		own(publisher.HeaderPossibleDuplicate, true, 1)
	}
	if m.Traceparent != "" {
		own(publisher.HeaderTraceparent, m.Traceparent, len(m.Traceparent))
	}
	switch {
	case len(m.ContentType) > shortBytesMax:
		return amqp.Publishing{}, fmt.Errorf("content type of %d bytes: RabbitMQ allows %d", len(m.ContentType), shortBytesMax)
	case len(m.ScheduleID) > shortBytesMax:
		return amqp.Publishing{}, fmt.Errorf("message id of %d bytes: RabbitMQ allows %d", len(m.ScheduleID), shortBytesMax)
	case frameBytesMax > 0 && bytes > frameBytesMax-frameOverhead:
		return amqp.Publishing{}, fmt.Errorf("headers of %d bytes: they must fit into one frame, and this broker's frames hold %d", bytes, frameBytesMax-frameOverhead)
	}
	return amqp.Publishing{
		Headers:      headers,
		ContentType:  m.ContentType,
		DeliveryMode: amqp.Persistent,
		MessageId:    m.ScheduleID,
		Timestamp:    m.ExecutionTime.Std(),
		Body:         m.Payload,
	}, nil
}
