package rabbitmq

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
)

// setProperty turns a header that stands for a property of AMQP into that
// property, and says whether it did. What does not read as such a property stays
// a header. An error says what AMQP cannot carry.
func setProperty(p *amqp.Publishing, name, value string) (bool, error) {
	var to *string
	switch name {
	case postdate.AMQPContentEncoding:
		to = &p.ContentEncoding
	case postdate.AMQPCorrelationID:
		to = &p.CorrelationId
	case postdate.AMQPReplyTo:
		to = &p.ReplyTo
	case postdate.AMQPType:
		to = &p.Type
	case postdate.AMQPAppID:
		to = &p.AppId
	case postdate.AMQPMessageID:
		to = &p.MessageId
	case postdate.AMQPExpiration:
		// RabbitMQ closes the channel over an expiration that is none.
		if _, err := strconv.ParseUint(value, 10, 32); err != nil {
			return false, nil
		}
		to = &p.Expiration
	case postdate.AMQPPriority:
		n, err := strconv.ParseUint(value, 10, 8)
		if err == nil {
			p.Priority = uint8(n)
		}
		return err == nil, nil
	case postdate.AMQPTimestamp:
		n, err := strconv.ParseInt(value, 10, 64)
		if err == nil {
			p.Timestamp = time.Unix(n, 0)
		}
		return err == nil, nil
	default:
		return false, nil
	}
	if len(value) > shortBytesMax {
		return false, fmt.Errorf("%s of %d bytes: RabbitMQ allows %d", name, len(value), shortBytesMax)
	}
	*to = value
	return true, nil
}

// propertiesBytes is the room that the optional properties take in a frame.
func propertiesBytes(p *amqp.Publishing) int {
	n := 1 // priority
	for _, s := range []string{p.ContentType, p.ContentEncoding, p.MessageId, p.CorrelationId, p.ReplyTo, p.Type, p.AppId, p.Expiration} {
		n += 1 + len(s)
	}
	return n
}

// headerKinds are the kinds of the headers that are no texts, by name.
func headerKinds(m *postdate.Message) map[string]string {
	for _, h := range m.Headers {
		if h.Name != postdate.AMQPHeaderTypes {
			continue
		}
		kinds := map[string]string{}
		for entry := range strings.SplitSeq(h.Value, ",") {
			if i := strings.LastIndexByte(entry, '='); i > 0 {
				kinds[entry[:i]] = entry[i+1:]
			}
		}
		return kinds
	}
	return nil
}

// typed is a header's value as the kind says, and the text where it does not read
// so.
func typed(text, kind string) any {
	var value any = text
	var err error
	switch kind {
	case postdate.AMQPBool:
		value, err = strconv.ParseBool(text)
	case postdate.AMQPInt8, postdate.AMQPInt16, postdate.AMQPInt32, postdate.AMQPInt64:
		value, err = typedInt(text, kind)
	case postdate.AMQPUint8, postdate.AMQPUint16, postdate.AMQPUint32:
		value, err = typedUint(text, kind)
	case postdate.AMQPFloat32:
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		value = float32(f)
	case postdate.AMQPFloat64:
		value, err = strconv.ParseFloat(text, 64)
	case postdate.AMQPTime:
		var seconds int64
		seconds, err = strconv.ParseInt(text, 10, 64)
		value = time.Unix(seconds, 0)
	case postdate.AMQPBytes:
		value, err = base64.StdEncoding.DecodeString(text)
	case postdate.AMQPText:
		var b []byte
		b, err = base64.StdEncoding.DecodeString(text)
		value = string(b)
	case postdate.AMQPNull:
		value = nil
	}
	if err != nil {
		return text
	}
	return value
}

func typedInt(text, kind string) (any, error) {
	bits := map[string]int{postdate.AMQPInt8: 8, postdate.AMQPInt16: 16, postdate.AMQPInt32: 32, postdate.AMQPInt64: 64}[kind]
	n, err := strconv.ParseInt(text, 10, bits)
	switch bits {
	case 8:
		return int8(n), err
	case 16:
		return int16(n), err
	case 32:
		return int32(n), err
	}
	return n, err
}

func typedUint(text, kind string) (any, error) {
	bits := map[string]int{postdate.AMQPUint8: 8, postdate.AMQPUint16: 16, postdate.AMQPUint32: 32}[kind]
	n, err := strconv.ParseUint(text, 10, bits)
	switch bits {
	case 8:
		return byte(n), err
	case 16:
		return uint16(n), err
	}
	return uint32(n), err
}
