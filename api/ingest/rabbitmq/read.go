package rabbitmq

import (
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
	amqpheader "github.com/postdate/postdate/internal/amqp"
)

// read makes a command from a message. Properties become headers and header values
// become text, as internal/amqp says; a delivery to RabbitMQ reverses that. Headers that
// brokers add on the way are left out.
func read(d *amqp.Delivery, template ingest.Template) *ingest.Command {
	c := &ingest.Command{
		Body: d.Body, ContentType: d.ContentType, MessageID: d.MessageId,
		Channel: template.With(d.RoutingKey), Pinned: template.Pinned(), Redelivered: d.Redelivered,
	}
	if c.Body == nil {
		c.Body = []byte{}
	}
	if _, ok := d.Headers["CC"]; ok {
		c.Fault = "the header CC names further queues, and a delayed message goes to one channel: " +
			"publish one message for each queue, without CC"
	}
	kinds := amqpheader.Kinds{}
	for name, value := range d.Headers {
		if isBrokersOwn(name) {
			continue
		}
		text, kind := amqpheader.TextOf(value)
		c.Headers = append(c.Headers, postdate.Header{Name: name, Value: text})
		if kind != "" && !strings.HasPrefix(name, "postdate-") {
			kinds[name] = kind
		}
	}
	postdate.SortHeaders(c.Headers)
	c.Properties = amqpheader.Properties(d)
	if len(kinds) > 0 {
		c.Properties = append(c.Properties, postdate.Header{Name: amqpheader.HeaderKinds, Value: kinds.String()})
	}
	return c
}

// isBrokersOwn says whether brokers set a header on the way here. Such headers describe
// the way instead of the message, change with each delivery, and would mislead a broker
// that finds them in another form.
func isBrokersOwn(name string) bool {
	switch name {
	case "x-delivery-count", "x-acquired-count", "x-death", "x-received-from":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}
