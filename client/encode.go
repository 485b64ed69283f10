package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/postdate/postdate"
)

// encode returns m as the body of a request.
func (m *Message) encode() ([]byte, error) {
	payload, encoding, err := formOf(m.Payload, m.ContentType)
	if err != nil {
		return nil, err
	}
	type fields Message // without this method
	return withPayload(struct {
		fields
		Delay           string `json:"delay,omitempty"`
		PayloadEncoding string `json:"payloadEncoding,omitempty"`
	}{fields(*m), durationText(m.Delay), encoding}, payload)
}

// encode returns c as the body of a request. If c has no content type, the message keeps
// one that is not known here. Base64 means the same bytes under any content type, and so
// does JSON other than a string.
func (c *Change) encode() ([]byte, error) {
	var payload []byte
	var encoding string
	var err error
	switch {
	case c.Payload == nil, len(c.Payload) == 0 && c.ContentType == "": // the server refuses a content type alone
	case c.ContentType != "" || json.Valid(c.Payload) && !isString(c.Payload):
		payload, encoding, err = formOf(c.Payload, c.ContentType)
	default:
		payload, encoding = base64Form(c.Payload)
	}
	if err != nil {
		return nil, err
	}
	rule, err := wholeRuleOf(c.Recurrence)
	if err != nil {
		return nil, err
	}
	var labels *[]string
	if c.Labels != nil {
		labels = &c.Labels
	}
	return withPayload(struct {
		ExecutionTime   time.Time `json:"executionTime,omitzero"`
		Delay           string    `json:"delay,omitempty"`
		ContentType     string    `json:"contentType,omitempty"`
		PayloadEncoding string    `json:"payloadEncoding,omitempty"`
		Channel         string    `json:"channel,omitempty"`
		Labels          *[]string `json:"labels,omitempty"`
		Recurrence      wholeRule `json:"recurrence,omitempty"`
		Paused          *bool     `json:"paused,omitempty"`

		FailureChannel *removable `json:"failureChannel,omitempty"`
	}{c.ExecutionTime, durationText(c.Delay), c.ContentType, encoding, c.Channel, labels, rule, c.Paused,
		(*removable)(c.FailureChannel)}, payload)
}

// removable is a text of which "" means that it is removed.
type removable string

// MarshalJSON encodes it as a merge patch has it.
func (r removable) MarshalJSON() ([]byte, error) {
	if r == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(r))
}

// withPayload encodes a struct, and adds the payload to the object byte for byte: an encoder would compact
// and escape it.
func withPayload(rest any, payload []byte) ([]byte, error) {
	object, err := json.Marshal(rest)
	if err != nil || payload == nil {
		return object, err
	}
	b := object[:len(object)-1]
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = append(b, `"payload":`...)
	return append(append(b, payload...), '}'), nil
}

// formOf returns the JSON that represents a payload in a request, and its payloadEncoding.
func formOf(payload []byte, contentType string) (form []byte, encoding string, err error) {
	switch {
	case contentType == "" || postdate.IsJSON(contentType):
		if !json.Valid(payload) {
			return nil, "", errors.New("the payload is not JSON, which its content type says: " +
				"name another ContentType, such as text/plain")
		}
		return payload, "", nil
	case utf8.Valid(payload):
		form, err = json.Marshal(string(payload))
		return form, "", err
	}
	form, encoding = base64Form(payload)
	return form, encoding, nil
}

func base64Form(payload []byte) (form []byte, encoding string) {
	form = base64.StdEncoding.AppendEncode([]byte{'"'}, payload)
	return append(form, '"'), "base64"
}

// payloadWire is the payload of a message in an answer. Embedded beside the other fields it is decoded
// with them: a second pass would cost as much as the first.
type payloadWire struct {
	Payload         json.RawMessage `json:"payload"`
	PayloadEncoding string          `json:"payloadEncoding"`
}

// bytes decodes the payload.
func (p payloadWire) bytes(contentType string) (payload []byte, err error) {
	switch {
	case p.PayloadEncoding == "base64":
		err = json.Unmarshal(p.Payload, &payload)
		return payload, err
	case isString(p.Payload) && !postdate.IsJSON(contentType):
		var text string
		err = json.Unmarshal(p.Payload, &text)
		return []byte(text), err
	}
	return p.Payload, nil
}

// UnmarshalJSON decodes a message from the API's form.
func (r *Record) UnmarshalJSON(b []byte) (err error) {
	type fields Record // without this method
	wire := struct {
		*fields
		payloadWire
		Traceparent *string `json:"traceparent"`
		Tracestate  *string `json:"tracestate"`
	}{fields: (*fields)(r), Traceparent: &r.Traceparent, Tracestate: &r.Tracestate}
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	r.Payload, err = wire.bytes(r.ContentType)
	return err
}

// UnmarshalJSON decodes a message from an inbox's form.
func (m *InboxMessage) UnmarshalJSON(b []byte) (err error) {
	type fields InboxMessage // without this method
	wire := struct {
		*fields
		payloadWire
	}{fields: (*fields)(m)}
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	m.Payload, err = wire.bytes(m.ContentType)
	return err
}

// Retry says how often and how soon a refused message is tried again. Zero fields mean the
// node's defaults.
type Retry struct {
	MaxAttempts int           // includes the first one
	MinBackoff  time.Duration // before the second attempt; it doubles from there
	MaxBackoff  time.Duration
	MaxParked   time.Duration // how long the message may wait for a channel that is down
}

// retryWire is a Retry in the API's form.
type retryWire struct {
	MaxAttempts int    `json:"maxAttempts,omitempty"`
	MinBackoff  string `json:"minBackoff,omitempty"`
	MaxBackoff  string `json:"maxBackoff,omitempty"`
	MaxParked   string `json:"maxParked,omitempty"`
}

// MarshalJSON encodes r in the API's form.
func (r Retry) MarshalJSON() ([]byte, error) {
	return json.Marshal(retryWire{r.MaxAttempts, durationText(r.MinBackoff), durationText(r.MaxBackoff),
		durationText(r.MaxParked)})
}

// UnmarshalJSON decodes r from the API's form.
func (r *Retry) UnmarshalJSON(b []byte) error {
	var wire retryWire
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	var failed [3]error
	parse := func(n int, text string) (d time.Duration) {
		if text != "" {
			d, failed[n] = time.ParseDuration(text)
		}
		return d
	}
	*r = Retry{wire.MaxAttempts, parse(0, wire.MinBackoff), parse(1, wire.MaxBackoff), parse(2, wire.MaxParked)}
	return errors.Join(failed[:]...)
}

// durationText returns d in the API's form, and "" for zero.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func isString(form []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(form), []byte{'"'}) }
