package rabbitmq

import (
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher/publishertest"
)

func delivery(headers ...postdate.Header) *postdate.Delivery {
	return &postdate.Delivery{Attempt: 1, Message: &postdate.Message{
		Key: postdate.Key{ScheduleID: "id"}, ExecutionTime: 1_800_000_000_000, Headers: headers,
	}}
}

// Headers that stand for properties become properties, and typed headers get their types back;
// invalid ones stay text headers.
func TestHeadersBecomeProperties(t *testing.T) {
	msg, err := publishing(delivery(
		postdate.Header{Name: "amqp-app-id", Value: "shop"}, postdate.Header{Name: "amqp-content-encoding", Value: "gzip"}, postdate.Header{Name: "amqp-correlation-id", Value: "c-1"},
		postdate.Header{Name: "amqp-expiration", Value: "60000"}, postdate.Header{Name: "amqp-message-id", Value: "m/1"},
		postdate.Header{Name: "amqp-priority", Value: "7"}, postdate.Header{Name: "amqp-reply-to", Value: "answers"},
		postdate.Header{Name: "amqp-timestamp", Value: "1700000000"}, postdate.Header{Name: "amqp-type", Value: "order"},
		postdate.Header{Name: "amqp-user-id", Value: "somebody"},
		postdate.Header{Name: "amqp-header-types", Value: "b=bool,i8=int8,i16=int16,i32=int32,i64=int64,u8=uint8,u16=uint16,u32=uint32,f32=float32,f64=float64,when=time,raw=bytes,lines=text64,none=null,odd=int32,new=complex"},
		postdate.Header{Name: "b", Value: "true"}, postdate.Header{Name: "i8", Value: "-8"}, postdate.Header{Name: "i16", Value: "-16"},
		postdate.Header{Name: "i32", Value: "-32"}, postdate.Header{Name: "i64", Value: "-64"}, postdate.Header{Name: "u8", Value: "8"},
		postdate.Header{Name: "u16", Value: "16"}, postdate.Header{Name: "u32", Value: "32"}, postdate.Header{Name: "f32", Value: "1.5"},
		postdate.Header{Name: "f64", Value: "2.5"}, postdate.Header{Name: "when", Value: "1700000001"}, postdate.Header{Name: "raw", Value: "AAE="},
		postdate.Header{Name: "lines", Value: "YQpi"}, postdate.Header{Name: "none", Value: ""}, postdate.Header{Name: "odd", Value: "x"},
		postdate.Header{Name: "new", Value: "y"}, postdate.Header{Name: "plain", Value: "z"},
	), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := amqp.Table{
		"b": true, "i8": int8(-8), "i16": int16(-16), "i32": int32(-32), "i64": int64(-64), "u8": byte(8), "u16": uint16(16), "u32": uint32(32),
		"f32": float32(1.5), "f64": 2.5, "when": time.Unix(1700000001, 0), "raw": []byte{0, 1}, "lines": "a\nb", "none": nil, "odd": "x", "new": "y", "plain": "z",
		"amqp-user-id": "somebody", "postdate-schedule-id": "id", "postdate-attempt": int32(1), "postdate-execution-time": "2027-01-15T08:00:00.000Z",
	}
	if !reflect.DeepEqual(msg.Headers, want) {
		t.Errorf("headers:\n got %v\nwant %v", msg.Headers, want)
	}
	msg.Headers = nil
	if want := (amqp.Publishing{
		AppId: "shop", ContentEncoding: "gzip", CorrelationId: "c-1", Expiration: "60000", MessageId: "m/1", Priority: 7, ReplyTo: "answers",
		Timestamp: time.Unix(1700000000, 0), Type: "order", DeliveryMode: amqp.Persistent,
	}); !reflect.DeepEqual(msg, want) {
		t.Errorf("properties:\n got %+v\nwant %+v", msg, want)
	}
	if err := want.Validate(); err != nil {
		t.Error(err)
	}
}

func TestHeadersThatAreNoProperties(t *testing.T) {
	msg, err := publishing(delivery(
		postdate.Header{Name: "amqp-expiration", Value: "soon"}, postdate.Header{Name: "amqp-priority", Value: "256"},
		postdate.Header{Name: "amqp-timestamp", Value: "noon"},
	), 0)
	if err != nil {
		t.Fatal(err)
	}
	if msg.Expiration != "" || msg.Priority != 4 || msg.Timestamp.Unix() != 1_800_000_000 || len(msg.Headers) != 6 {
		t.Errorf("%+v", msg)
	}
	for _, name := range []string{"amqp-correlation-id", "amqp-message-id", "amqp-type"} {
		if _, err := publishing(delivery(postdate.Header{Name: name, Value: strings.Repeat("x", 256)}), 0); err == nil {
			t.Errorf("%s of 256 bytes is not refused", name)
		}
	}
}

// A client's own priority counts, even one of zero.
func TestPriorityOfAMQP(t *testing.T) {
	for _, test := range []struct {
		priority postdate.Priority
		headers  []postdate.Header
		want     uint8
	}{
		{postdate.PriorityHigh, nil, 8}, {postdate.PriorityMedium, nil, 4}, {postdate.PriorityLow, nil, 1},
		{postdate.PriorityHigh, []postdate.Header{{Name: "amqp-priority", Value: "0"}}, 0},
		{postdate.PriorityLow, []postdate.Header{{Name: "amqp-priority", Value: "9"}}, 9},
	} {
		d := delivery(test.headers...)
		d.Message.Priority = test.priority
		if msg, err := publishing(d, 0); msg.Priority != test.want || err != nil {
			t.Errorf("%s with %v: priority %d, %v", test.priority, test.headers, msg.Priority, err)
		}
	}
}

// The clients' receivers are tested with what this package publishes.
func TestClientsReceivers(t *testing.T) {
	publishertest.Receivers(t, "rabbitmq", func(d *postdate.Delivery) (map[string]any, error) {
		msg, err := publishing(d, 0)
		return msg.Headers, err
	})
}
