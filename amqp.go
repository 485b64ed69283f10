package postdate

// Names of headers that stand for properties of an AMQP 0.9.1 message. A message
// that came in through RabbitMQ keeps its properties under them; the RabbitMQ
// publisher makes properties of them again, other channels deliver them as headers.
const (
	AMQPCorrelationID = "amqp-correlation-id"
	AMQPReplyTo       = "amqp-reply-to"
	AMQPType          = "amqp-type"
	AMQPAppID         = "amqp-app-id"
	AMQPPriority      = "amqp-priority"
	AMQPExpiration    = "amqp-expiration"
	AMQPEncoding      = "amqp-content-encoding"
)
