package postdate

// Headers that stand for what AMQP 0.9.1 has beside body and headers. A message
// that came in over RabbitMQ carries them, a client may set them, and a delivery to
// RabbitMQ turns them back into what they stand for. Other brokers and webhooks
// get them as headers.
const (
	AMQPContentEncoding = "amqp-content-encoding"
	AMQPCorrelationID   = "amqp-correlation-id"
	AMQPReplyTo         = "amqp-reply-to"
	AMQPExpiration      = "amqp-expiration" // milliseconds, as AMQP has it: a text
	AMQPPriority        = "amqp-priority"   // 0 to 255
	AMQPMessageID       = "amqp-message-id" // in the place of the schedule id
	AMQPTimestamp       = "amqp-timestamp"  // seconds since 1970, in the place of the execution time
	AMQPType            = "amqp-type"
	AMQPAppID           = "amqp-app-id"

	// AMQPUserID stays a header: a broker closes the channel of whoever publishes
	// under a user's name that is not his own.
	AMQPUserID = "amqp-user-id"

	// AMQPHeaderTypes says which headers are no texts, as "name=kind,name=kind". The
	// kinds are those of the AMQP... constants below; a header that is not named is
	// a text.
	AMQPHeaderTypes = "amqp-header-types"
)

// The kinds of header values in [AMQPHeaderTypes], with the text that stands for
// each.
const (
	AMQPBool    = "bool" // true or false
	AMQPInt8    = "int8" // this and the following numbers: as Go writes them
	AMQPInt16   = "int16"
	AMQPInt32   = "int32"
	AMQPInt64   = "int64"
	AMQPUint8   = "uint8"
	AMQPUint16  = "uint16"
	AMQPUint32  = "uint32"
	AMQPFloat32 = "float32"
	AMQPFloat64 = "float64"
	AMQPTime    = "time"   // seconds since 1970
	AMQPBytes   = "bytes"  // base64
	AMQPText    = "text64" // base64 of a text that a header cannot hold as it is
	AMQPNull    = "null"   // empty
)
