package amqp_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/amqp"
)

// The properties and headers of a delivery survive the conversion to headers and back.
func TestThereAndBack(t *testing.T) {
	values := map[string]any{
		"text": "x", "lines": "a\nb", "bytes": []byte{0, 1}, "none": nil, "bool": true, "when": time.Unix(1700000001, 0),
		"i8": int8(-8), "i16": int16(-16), "i32": int32(-32), "i64": int64(-64), "u8": byte(8), "u16": uint16(16), "u32": uint32(32),
		"f32": float32(1.5), "f64": 2.5, "name=with": int8(1),
	}
	kinds, texts := amqp.Kinds{}, map[string]string{}
	for name, v := range values {
		text, kind := amqp.TextOf(v)
		texts[name] = text
		if kind != "" {
			kinds[name] = kind
		}
	}
	if kinds = amqp.KindsOf([]postdate.Header{{Name: amqp.HeaderKinds, Value: kinds.String()}}); len(kinds) != len(values)-1 {
		t.Errorf("%d kinds: %v", len(kinds), kinds)
	}
	for name, v := range values {
		if got := amqp.ValueOf(texts[name], kinds[name]); !reflect.DeepEqual(got, v) {
			t.Errorf("%s came back as %#v, want %#v", name, got, v)
		}
	}

	sent := amqp091.Delivery{
		ContentEncoding: "gzip", CorrelationId: "c", ReplyTo: "answers", Expiration: "60000", MessageId: "m", Type: "order", AppId: "shop",
		UserId: "u", Priority: 7, Timestamp: time.Unix(1700000000, 0),
	}
	var back amqp091.Publishing
	for _, h := range amqp.Properties(&sent) {
		if ok, err := amqp.SetProperty(&back, h.Name, h.Value); ok == (h.Name == amqp.UserID) || err != nil {
			t.Errorf("%s is a property: %v, %v", h.Name, ok, err)
		}
	}
	if want := (amqp091.Publishing{
		ContentEncoding: "gzip", CorrelationId: "c", ReplyTo: "answers", Expiration: "60000", MessageId: "m", Type: "order", AppId: "shop",
		Priority: 7, Timestamp: time.Unix(1700000000, 0),
	}); !reflect.DeepEqual(back, want) {
		t.Errorf("properties:\n got %+v\nwant %+v", back, want)
	}
	if amqp.KindsOf(nil) != nil || len(amqp.Properties(&amqp091.Delivery{})) != 0 {
		t.Error("something came of nothing")
	}
}
