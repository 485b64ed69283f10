package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// messageBody is the body that schedules or changes a message, as on the wire. A
// pointer tells "" from absent where that matters.
type messageBody struct {
	ScheduleID      *string         `json:"scheduleId"`
	Channel         string          `json:"channel"`
	ExecutionTime   *string         `json:"executionTime"`
	Delay           *string         `json:"delay"`
	Payload         jsontext.Value  `json:"payload"`
	ContentType     string          `json:"contentType"`
	PayloadEncoding string          `json:"payloadEncoding"`
	Headers         headerList      `json:"headers"`
	Key             string          `json:"key"`
	ExpiresAt       *string         `json:"expiresAt"`
	Retry           *retryBody      `json:"retry"`
	Priority        *string         `json:"priority"`
	Labels          labelList       `json:"labels"`
	Recurrence      *recurrenceBody `json:"recurrence"`
	Paused          *bool           `json:"paused"`
	FailureChannel  channelName     `json:"failureChannel"`
}

// changeBody is the body that changes a message. It takes [patchFields] alone: the others are refused by name.
type changeBody struct{ messageBody }

type retryBody struct {
	MaxAttempts *int    `json:"maxAttempts"`
	MinBackoff  *string `json:"minBackoff"`
	MaxBackoff  *string `json:"maxBackoff"`
	MaxParked   *string `json:"maxParked"`
}

type cancelBody struct {
	ScheduleIDs notNull[textList]   `json:"scheduleIds"`
	Filter      notNull[filterBody] `json:"filter"`
}

// notNull is a field that null does not leave out: a client whose variable is not set would select more than it
// means, or something else.
type notNull[T any] struct {
	value T
	given bool
}

// UnmarshalJSONFrom reads any value but null.
func (n *notNull[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind == 'n' {
		if err := dec.SkipValue(); err != nil {
			return err
		}
		return wrongKind(wantedOf(reflect.TypeFor[T]()), kind)
	}
	n.given = true
	return json.UnmarshalDecode(dec, &n.value)
}

// noFields is the body of a call that takes none.
type noFields struct{}

var (
	messageFields = slices.DeleteFunc(fieldsOf(reflect.TypeFor[messageBody]()), func(name string) bool {
		return name == "paused" // goes with PATCH
	})
	patchFields = []string{"executionTime", "delay", "payload", "contentType", "payloadEncoding", "channel",
		"labels", "recurrence", "paused", "failureChannel"}
	retryFields   = fieldsOf(reflect.TypeFor[retryBody]())
	cancelFields  = fieldsOf(reflect.TypeFor[cancelBody]())
	filterFields  = fieldsOf(reflect.TypeFor[filterBody]())
	receiveFields = fieldsOf(reflect.TypeFor[receiveBody]())
	ackFields     = fieldsOf(reflect.TypeFor[ackBody]())
)

// knownFields returns the names of the fields that a body may have under a pointer.
func knownFields(body any, under jsontext.Pointer) []string {
	switch body.(type) {
	case *taskBody:
		if under == "/frequency" {
			return frequencyFields
		}
		return taskFields
	case *cancelBody:
		if under == "/filter" {
			return filterFields
		}
		return cancelFields
	case *channelBody:
		return channelFields
	case *keyBody:
		return keyFields
	case *tenantBody:
		return tenantFields
	case *receiveBody:
		return receiveFields
	case *ackBody:
		return ackFields
	case *noFields:
		return nil
	}
	switch under {
	case "/recurrence":
		return recurrenceFields
	case "/retry":
		return retryFields
	}
	switch body.(type) {
	case *previewBody:
		return previewFields
	case *changeBody:
		return patchFields
	}
	return messageFields
}

func fieldsOf(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("json"))
	}
	return names
}

// singleBody reads the JSON body of a call that takes no parameters and is no batch.
func (s *Server) singleBody(ctx *fasthttp.RequestCtx, to any, types ...string) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	body, p := s.bodyOf(ctx, s.singleBytesMax(), types...)
	if p != nil {
		return p
	}
	return decodeBody(body, to)
}

// bodyOf returns the body after a check of its media type and size. A body has to name
// its type: a web page of another origin may send one that does not without asking first.
func (s *Server) bodyOf(ctx *fasthttp.RequestCtx, bytesMax int, types ...string) ([]byte, *Problem) {
	given, length := ctx.Request.Header.ContentType(), ctx.Request.Header.ContentLength()
	if hasBody := length > 0 || length == -1; hasBody && !isOneOf(given, types) {
		named := "a body of " + clip(string(given)) + " is not supported"
		if len(given) == 0 {
			named = "the body has no media type"
		}
		return nil, &Problem{Type: UnsupportedContent, Detail: named + ": send it with Content-Type: " +
			strings.Join(types, " or ")}
	}
	if hasHeader(ctx, fasthttp.HeaderContentEncoding) {
		return s.codedBody(ctx, bytesMax)
	}
	return s.bodyBytes(ctx, bytesMax)
}

func isOneOf(given []byte, types []string) bool {
	mediaType, _, _ := bytes.Cut(given, []byte(";"))
	mediaType = bytes.TrimSpace(mediaType)
	for _, t := range types {
		if len(t) == len(mediaType) && strings.EqualFold(t, string(mediaType)) {
			return true
		}
	}
	return false
}

// headerList is decoded from an object of strings, without a map in between.
type headerList []postdate.Header

// UnmarshalJSONFrom reads the object member by member. The decoder refuses duplicate
// names.
func (h *headerList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == 'n' {
		*h = nil
		return dec.SkipValue()
	}
	if kind := dec.PeekKind(); kind != '{' {
		if err := dec.SkipValue(); err != nil {
			return err
		}
		return wrongKind("an object of strings", kind)
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*h = headerList{}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		header := postdate.Header{Name: name.String()}
		value, err := dec.ReadToken()
		if err != nil {
			return err
		}
		if kind := value.Kind(); kind != '"' {
			return &json.SemanticError{JSONPointer: dec.StackPointer(), Err: wrongKind("a string", kind)}
		}
		header.Value = value.String()
		*h = append(*h, header)
	}
	_, err := dec.ReadToken()
	return err
}

// textList is decoded from an array of strings. Of a null in it, the decoder would make an empty string.
type textList []string

// UnmarshalJSONFrom reads the array item by item. null stands for no array.
func (l *textList) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind != '[' {
		*l = nil
		if err := dec.SkipValue(); err != nil || kind == 'n' {
			return err
		}
		return wrongKind("an array", kind)
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	*l = textList{}
	for dec.PeekKind() != ']' {
		kind := dec.PeekKind()
		if kind != '"' {
			if err := dec.SkipValue(); err != nil {
				return err
			}
			return &json.SemanticError{JSONPointer: dec.StackPointer(), Err: wrongKind("a string", kind)}
		}
		item, err := dec.ReadToken()
		if err != nil {
			return err
		}
		*l = append(*l, item.String())
	}
	_, err := dec.ReadToken()
	return err
}

// decodeBody reads one JSON value into to, and refuses anything after it.
func decodeBody(body []byte, to any) *Problem {
	switch string(bytes.Trim(body, " \t\r\n")) {
	case "":
		return &Problem{Type: MalformedJSON, Offset: -1, Detail: "the body is empty: send a JSON object"}
	case "null": // would count as an object without fields
		return &Problem{Type: InvalidField, Detail: "an object was expected at the top of the body, not null"}
	}
	return jsonProblem(json.Unmarshal(body, to, json.RejectUnknownMembers(true)), to)
}

// decodeNext reads one JSON value from dec into to.
func decodeNext(dec *jsontext.Decoder, to any) *Problem {
	return jsonProblem(json.UnmarshalDecode(dec, to, json.RejectUnknownMembers(true)), to)
}

// jsonProblem turns an error that the JSON library returned when it read into to into
// the Problem that the client sees.
func jsonProblem(err error, to any) *Problem {
	if err == nil {
		return nil
	}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		return syntacticProblem(syntactic)
	}
	var semantic *json.SemanticError
	if errors.As(err, &semantic) {
		return semanticProblem(semantic, to)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Problem{Type: MalformedJSON, Offset: -1, Detail: "the JSON ends too early"}
	}
	return &Problem{Type: MalformedJSON, Offset: -1, Detail: "the JSON cannot be read: " + err.Error()}
}

func syntacticProblem(err *jsontext.SyntacticError) *Problem {
	pointer := string(err.JSONPointer)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return &Problem{
			Type: DuplicateField, Pointer: pointer,
			Detail: fmt.Sprintf("the field %q stands twice at %s: leave one", err.JSONPointer.LastToken(), pointer),
		}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &Problem{Type: MalformedJSON, Offset: err.ByteOffset, Detail: "the JSON ends too early"}
	}
	return &Problem{Type: MalformedJSON, Offset: err.ByteOffset,
		Detail: fmt.Sprintf("the body is not JSON: %v", err.Err)}
}

func semanticProblem(err *json.SemanticError, to any) *Problem {
	pointer := string(err.JSONPointer)
	if errors.Is(err, json.ErrUnknownName) {
		name, known := err.JSONPointer.LastToken(), knownFields(to, err.JSONPointer.Parent())
		p := &Problem{Type: UnknownField, Pointer: pointer, Suggestion: Nearest(name, known)}
		p.Detail = fmt.Sprintf("the field %q is not known", clip(name))
		if slices.Contains(known, "recurrence") && slices.Contains(recurrenceFields, name) {
			p.Suggestion = ""
			p.Detail += " here: put it into recurrence"
		} else if p.Suggestion != "" {
			p.Detail += fmt.Sprintf(": did you mean %q?", p.Suggestion)
		} else if len(known) == 0 {
			p.Detail += ": this call takes no fields; remove it"
		} else {
			p.Detail += ": remove it; known are " + strings.Join(known, ", ")
		}
		return p
	}
	var kind *kindError
	if !errors.As(err, &kind) {
		kind = wrongKind(wantedOf(err.GoType), err.JSONKind)
	}
	where := pointer
	if where == "" {
		where = "the top of the body"
	}
	detail := fmt.Sprintf("%s was expected at %s, not %s", kind.want, where, kindName(kind.got))
	number := err.JSONKind == '0' && kind.got == '0'
	if number && errors.Is(err.Err, strconv.ErrRange) {
		detail = fmt.Sprintf("the number %s at %s is too large", clip(string(err.JSONValue)), where)
	} else if number && kind.want == "a whole number" {
		detail = fmt.Sprintf("a whole number was expected at %s, not %s", where, clip(string(err.JSONValue)))
		if bytes.ContainsAny(err.JSONValue, ".eE") {
			detail += ": write it in digits alone"
		}
	}
	return &Problem{Type: InvalidField, Pointer: pointer, Detail: detail + formOf(pointer)}
}

// formOf says how to write the time, duration or priority at pointer, for a client that sent a number.
func formOf(pointer string) string {
	switch pointer {
	case "/executionTime", "/expiresAt", "/from", "/recurrence/anchor", "/recurrence/start", "/recurrence/end":
		return `: write it like "2027-01-31T09:30:00Z"`
	case "/delay", "/retry/minBackoff", "/retry/maxBackoff", "/retry/maxParked", "/recurrence/every",
		"/recurrence/jitter", "/recurrence/misfireAfter", "/wait", "/visibility":
		return `: write it like "15m" or "PT15M"`
	case "/priority":
		return `: write "high", "medium" or "low"`
	}
	return ""
}

// kindError says that a value is of another kind than the one wanted.
type kindError struct {
	want string
	got  jsontext.Kind
}

func wrongKind(want string, got jsontext.Kind) *kindError { return &kindError{want, got} }

func (e *kindError) Error() string { return e.want + " was expected, not " + kindName(e.got) }

func wantedOf(t reflect.Type) string {
	if t == nil {
		return "another value"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wantedOf(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "that"
}

// Nearest returns the known name closest to name, or "" if none is close.
func Nearest(name string, known []string) string {
	if len(name) > 64 {
		return ""
	}
	name = strings.ToLower(name)
	best, bestDistance := "", max(len(name)/3, min(2, len(name)/2))+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := levenshtein.ComputeDistance(name, strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// clip shortens a client's own text before it is shown back.
func clip(s string) string { return clipTo(s, 100) }

// clipTo cuts s after bytesMax bytes.
func clipTo(s string, bytesMax int) string {
	if len(s) <= bytesMax {
		return s
	}
	return strings.ToValidUTF8(s[:bytesMax], "") + "…"
}
