package amqp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postdate/postdate"
)

// HeaderKinds is a header that lists the headers that are not texts, as "name=kind,name=kind".
// Headers that it does not name are texts.
const HeaderKinds = "amqp-header-types"

// The kinds of header values, and the text that represents each.
const (
	kindBool    = "bool" // true or false
	kindInt8    = "int8" // this and the other numbers: as Go writes them
	kindInt16   = "int16"
	kindInt32   = "int32"
	kindInt64   = "int64"
	kindUint8   = "uint8"
	kindUint16  = "uint16"
	kindUint32  = "uint32"
	kindFloat32 = "float32"
	kindFloat64 = "float64"
	kindTime    = "time"   // seconds since 1970
	kindBytes   = "bytes"  // base64
	kindText    = "text64" // base64 of a text that a header cannot hold
	kindNull    = "null"   // empty
)

// Kinds maps the names of the headers that are not texts to their kinds.
type Kinds map[string]string

// String returns the value of [HeaderKinds].
func (k Kinds) String() string {
	entries := make([]string, 0, len(k))
	for name, kind := range k {
		entries = append(entries, name+"="+kind)
	}
	slices.Sort(entries)
	return strings.Join(entries, ",")
}

// KindsOf parses [HeaderKinds]; nil if it is not among the headers.
func KindsOf(headers []postdate.Header) Kinds {
	for _, h := range headers {
		if h.Name != HeaderKinds {
			continue
		}
		kinds := Kinds{}
		for entry := range strings.SplitSeq(h.Value, ",") {
			if i := strings.LastIndexByte(entry, '='); i > 0 {
				kinds[entry[:i]] = entry[i+1:]
			}
		}
		return kinds
	}
	return nil
}

// TextOf returns a header's value as a text, and its kind; "" if it is a text. Tables, arrays
// and decimals become JSON and are not converted back.
func TextOf(value any) (text, kind string) {
	switch v := value.(type) {
	case nil:
		return "", kindNull
	case string:
		if utf8.ValidString(v) && !strings.ContainsFunc(v,
			func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return v, ""
		}
		return base64.StdEncoding.EncodeToString([]byte(v)), kindText
	case []byte:
		return base64.StdEncoding.EncodeToString(v), kindBytes
	case bool:
		return strconv.FormatBool(v), kindBool
	case int8:
		return fmt.Sprint(v), kindInt8
	case int16:
		return fmt.Sprint(v), kindInt16
	case int32:
		return fmt.Sprint(v), kindInt32
	case int64:
		return fmt.Sprint(v), kindInt64
	case uint8:
		return fmt.Sprint(v), kindUint8
	case uint16:
		return fmt.Sprint(v), kindUint16
	case uint32:
		return fmt.Sprint(v), kindUint32
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32), kindFloat32
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), kindFloat64
	case time.Time:
		return strconv.FormatInt(v.Unix(), 10), kindTime
	}
	b, err := json.Marshal(value)
	if err != nil { // for example, a NaN deep inside
		return fmt.Sprint(value), ""
	}
	return string(b), ""
}

// ValueOf converts a text to a value of the kind; if it cannot, it returns the text.
func ValueOf(text, kind string) any {
	var value any = text
	var err error
	switch kind {
	case kindBool:
		value, err = strconv.ParseBool(text)
	case kindInt8, kindInt16, kindInt32, kindInt64:
		value, err = intOf(text, kind)
	case kindUint8, kindUint16, kindUint32:
		value, err = uintOf(text, kind)
	case kindFloat32:
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		value = float32(f)
	case kindFloat64:
		value, err = strconv.ParseFloat(text, 64)
	case kindTime:
		var seconds int64
		seconds, err = strconv.ParseInt(text, 10, 64)
		value = time.Unix(seconds, 0)
	case kindBytes:
		value, err = base64.StdEncoding.DecodeString(text)
	case kindText:
		var b []byte
		b, err = base64.StdEncoding.DecodeString(text)
		value = string(b)
	case kindNull:
		value = nil
	}
	if err != nil {
		return text
	}
	return value
}

func intOf(text, kind string) (any, error) {
	bits := map[string]int{kindInt8: 8, kindInt16: 16, kindInt32: 32, kindInt64: 64}[kind]
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

func uintOf(text, kind string) (any, error) {
	bits := map[string]int{kindUint8: 8, kindUint16: 16, kindUint32: 32}[kind]
	n, err := strconv.ParseUint(text, 10, bits)
	switch bits {
	case 8:
		return byte(n), err
	case 16:
		return uint16(n), err
	}
	return uint32(n), err
}
