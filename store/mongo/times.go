package mongo

import (
	"fmt"
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
)

// Times are stored as MongoDB's dates, which people and their tools can read. Like
// postdate.Time they are milliseconds since the Unix epoch, in eight bytes, in the same order.

var timeType = reflect.TypeFor[postdate.Time]()

// bsonTypes is the driver's own registry of types, with postdate.Time added.
func bsonTypes() *bson.Registry {
	r := bson.NewRegistry()
	r.RegisterTypeEncoder(timeType, bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter,
		v reflect.Value) error {
		return w.WriteDateTime(v.Int())
	}))
	r.RegisterTypeDecoder(timeType, bson.ValueDecoderFunc(func(_ bson.DecodeContext, r bson.ValueReader,
		v reflect.Value) error {
		if r.Type() != bson.TypeDateTime {
			return fmt.Errorf("a time is stored as %s, and not as a date", r.Type())
		}
		at, err := r.ReadDateTime()
		v.SetInt(at)
		return err
	}))
	return r
}
