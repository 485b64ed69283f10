package rabbitmq

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
)

// read makes a command of a message. Properties become headers with names of the
// vocabulary (package postdate), which a delivery to RabbitMQ turns back. Header
// values are texts there; what they were stands beside them. Tables, arrays and
// decimals become their JSON and stay that. What brokers add on a message's way is
// left out.
func read(d *amqp.Delivery, template ingest.Template) *ingest.Command {
	c := &ingest.Command{
		Body: d.Body, ContentType: d.ContentType, MessageID: d.MessageId,
		Channel: template.With(d.RoutingKey), Redelivered: d.Redelivered,
	}
	if c.Body == nil {
		c.Body = []byte{}
	}
	if _, ok := d.Headers["CC"]; ok {
		c.Fault = "the header CC names further queues, and a delayed message goes to one channel: publish one message for each queue, without CC"
	}
	var kinds []string
	for name, value := range d.Headers {
		if isBrokersOwn(name) {
			continue
		}
		text, kind := textOf(value)
		c.Headers = append(c.Headers, postdate.Header{Name: name, Value: text})
		if kind != "" && !strings.HasPrefix(name, "postdate-") {
			kinds = append(kinds, name+"="+kind)
		}
	}
	postdate.SortHeaders(c.Headers)
	property := func(name, value string) {
		if value != "" {
			c.Properties = append(c.Properties, postdate.Header{Name: name, Value: value})
		}
	}
	property(postdate.AMQPContentEncoding, d.ContentEncoding)
	property(postdate.AMQPCorrelationID, d.CorrelationId)
	property(postdate.AMQPReplyTo, d.ReplyTo)
	property(postdate.AMQPExpiration, d.Expiration)
	property(postdate.AMQPMessageID, d.MessageId)
	property(postdate.AMQPType, d.Type)
	property(postdate.AMQPAppID, d.AppId)
	property(postdate.AMQPUserID, d.UserId)
	if d.Priority > 0 {
		property(postdate.AMQPPriority, strconv.Itoa(int(d.Priority)))
	}
	if !d.Timestamp.IsZero() {
		property(postdate.AMQPTimestamp, strconv.FormatInt(d.Timestamp.Unix(), 10))
	}
	slices.Sort(kinds)
	property(postdate.AMQPHeaderTypes, strings.Join(kinds, ","))
	return c
}

// isBrokersOwn says whether brokers set a header, on the way to us. They speak of
// that way and not of the message, change from one delivery to the next, and
// would mislead a broker that finds them in another form.
func isBrokersOwn(name string) bool {
	switch name {
	case "x-delivery-count", "x-acquired-count", "x-death", "x-received-from":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// textOf is a header's value as text, and its kind; "": it is that text.
func textOf(value any) (text, kind string) {
	switch v := value.(type) {
	case nil:
		return "", postdate.AMQPNull
	case string:
		if utf8.ValidString(v) && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return v, ""
		}
		return base64.StdEncoding.EncodeToString([]byte(v)), postdate.AMQPText
	case []byte:
		return base64.StdEncoding.EncodeToString(v), postdate.AMQPBytes
	case bool:
		return strconv.FormatBool(v), postdate.AMQPBool
	case int8:
		return fmt.Sprint(v), postdate.AMQPInt8
	case int16:
		return fmt.Sprint(v), postdate.AMQPInt16
	case int32:
		return fmt.Sprint(v), postdate.AMQPInt32
	case int64:
		return fmt.Sprint(v), postdate.AMQPInt64
	case uint8:
		return fmt.Sprint(v), postdate.AMQPUint8
	case uint16:
		return fmt.Sprint(v), postdate.AMQPUint16
	case uint32:
		return fmt.Sprint(v), postdate.AMQPUint32
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), postdate.AMQPFloat32
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), postdate.AMQPFloat64
	case time.Time:
		return strconv.FormatInt(v.Unix(), 10), postdate.AMQPTime
	}
	b, err := json.Marshal(value)
	if err != nil { // a NaN deep inside, for example
		return fmt.Sprint(value), ""
	}
	return string(b), ""
}
