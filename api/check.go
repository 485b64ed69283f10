package api

import (
	"bytes"
	"encoding/base64"
	"mime"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/amqp"
	"github.com/postdate/postdate/internal/tracing"
	"github.com/postdate/postdate/recurrence"
)

// The content types of payloads sent without one.
const (
	contentTypeJSON   = "application/json"
	contentTypeBinary = "application/octet-stream"
)

// checker turns bodies into messages. It is pure: it reads no clock, and now holds for
// the whole request.
type checker struct {
	now             postdate.Time
	payloadBytesMax int
	checkChannel    func(postdate.Channel) error
	identity        *auth.Identity // nil: anybody
}

func (s *Server) checker(ctx *fasthttp.RequestCtx) checker {
	return checker{now: s.config.Now(), payloadBytesMax: s.config.PayloadBytesMax, checkChannel: s.config.CheckChannel,
		identity: identityOf(ctx)}
}

// named checks a body that may have a schedule id, and makes an id if it has none.
func (c *checker) named(body *messageBody, tenant string, buckets int,
	m *postdate.Message) (p *Problem, expiring bool) {
	id := ""
	if body.ScheduleID != nil {
		id = *body.ScheduleID
		if err := postdate.CheckScheduleID(id); err != nil {
			return fieldProblem("/scheduleId", err), false
		}
	} else {
		id = uuid.Must(uuid.NewV7()).String()
	}
	m.Key = bucket.KeyOf(tenant, id, buckets)
	return c.message(body, m)
}

// invalid is an error about a client's input.
func invalid(format string, args ...any) error {
	return postdate.E(postdate.KindInvalid, format, args...)
}

// message checks everything in b but the schedule id, which is the caller's job, and
// fills everything in m but the key, which is set already. If expiresAt is not after the
// execution time, or a recurrence has no occurrence left, m has its digest all the same, and
// expiring is true: a repeated request may come that late.
func (c *checker) message(b *messageBody, m *postdate.Message) (p *Problem, expiring bool) {
	if m.Channel, p = c.channel(b.Channel, "/channel"); p != nil {
		return p, false
	}
	if b.FailureChannel.given {
		if m.FailureChannel, p = c.failureChannel(b.FailureChannel, m.Channel); p != nil {
			return p, false
		}
	}
	m.CreatedAt = c.now
	when, p := c.when(b, m)
	if p != nil {
		return p, false
	}
	if b.Paused != nil {
		return fieldProblem("/paused", invalid("paused goes with PATCH: schedule the series, then pause it")), false
	}
	if b.Recurrence != nil {
		if m.Recurrence, p = recurrenceOf(b); p != nil {
			return p, false
		}
	}
	if when == "" && m.Recurrence == nil {
		return &Problem{Type: InvalidField, Pointer: "/executionTime", Detail: "say when: give executionTime (like " +
			`"2027-01-31T09:30:00Z"), delay (like "PT15M") or recurrence (like {"every": "PT10S"})`}, false
	}
	if p := c.payload(b, m); p != nil {
		return p, false
	}
	if p := rest(b, m); p != nil {
		return p, false
	}
	m.Digest = postdate.DigestOf(m, when)
	if p := checkExpiry(m); p != nil {
		return p, true
	}
	if m.Recurrence != nil {
		if err := recurrence.Begin(m, c.now); err != nil {
			return fieldProblem("/recurrence", err), true
		}
	}
	return nil, false
}

// channel reads a channel that the body has at pointer.
func (c *checker) channel(text, pointer string) (postdate.Channel, *Problem) {
	channel, err := postdate.ParseChannel(text)
	if err != nil {
		return "", fieldProblem(pointer, err)
	}
	if p := mayUse(c.identity, channel, pointer); p != nil {
		return "", p
	}
	if err := c.checkChannel(channel); err != nil {
		return "", fieldProblem(pointer, err)
	}
	return channel, nil
}

// checkExpiry refuses a message that would expire before its time.
func checkExpiry(m *postdate.Message) *Problem {
	if m.ExpiresAt != 0 && m.ExpiresAt <= m.ExecutionTime {
		return fieldProblem("/expiresAt", invalid("expiresAt %s must lie after the execution time, which is %s",
			m.ExpiresAt, m.ExecutionTime))
	}
	return nil
}

// when sets m's execution time from executionTime or delay, and returns the text that
// represents it in the digest: "" if neither is given.
func (c *checker) when(b *messageBody, m *postdate.Message) (string, *Problem) {
	switch {
	case b.ExecutionTime != nil && b.Delay != nil:
		return "", &Problem{Type: InvalidField, Pointer: "/delay",
			Detail: "executionTime and delay exclude each other: give one of them"}
	case b.ExecutionTime != nil:
		at, err := postdate.ParseTime(*b.ExecutionTime)
		if err != nil {
			return "", fieldProblem("/executionTime", err)
		}
		m.ExecutionTime = at
		return at.String(), nil
	case b.Delay != nil:
		d, err := ParseDuration(*b.Delay)
		if err != nil {
			return "", fieldProblem("/delay", err)
		}
		if d < 0 {
			return "", fieldProblem("/delay", invalid("delay %q is negative: "+
				"give one of zero or more, or a past executionTime for now", *b.Delay))
		}
		if d > postdate.DelayMax {
			return "", fieldProblem("/delay", invalid("delay %q is too long: at most %d days are allowed",
				*b.Delay, daysOf(postdate.DelayMax)))
		}
		m.ExecutionTime = c.now.Add(d)
		return *b.Delay, nil
	}
	return "", nil
}

// payload sets m's payload, content type and encoding. If the body names no content
// type, one that m already has stays.
func (c *checker) payload(b *messageBody, m *postdate.Message) *Problem {
	if len(b.Payload) == 0 {
		return fieldProblem("/payload", invalid("payload is missing: give any JSON value; null is one"))
	}
	if b.ContentType != "" {
		if err := checkContentType(b.ContentType); err != nil {
			return fieldProblem("/contentType", err)
		}
		m.ContentType = b.ContentType
	}
	isText := b.Payload.Kind() == '"'
	switch {
	case b.PayloadEncoding == "base64":
		if !isText {
			return fieldProblem("/payload", invalid(`with payloadEncoding "base64", payload must be a string, not %s`,
				kindName(b.Payload.Kind())))
		}
		raw, err := decodeBase64(b.Payload)
		if err != nil {
			return fieldProblem("/payload", err)
		}
		m.Encoding, m.Payload = postdate.EncodingBase64, raw
		m.ContentType = orElse(m.ContentType, contentTypeBinary)
	case b.PayloadEncoding != "":
		return fieldProblem("/payloadEncoding", invalid(`payloadEncoding %q is not known: it is "base64" or absent`,
			clip(b.PayloadEncoding)))
	case isText && m.ContentType != "" && !postdate.IsJSON(m.ContentType):
		text, err := jsontext.AppendUnquote(nil, b.Payload)
		if err != nil {
			return fieldProblem("/payload", invalid("payload is not a string of UTF-8: %w", err))
		}
		m.Encoding, m.Payload = postdate.EncodingText, text
	case nestsTooDeep(b.Payload):
		return fieldProblem("/payload", invalid("payload has more than %d levels of arrays and objects: "+
			"send it as a string, or in base64", postdate.PayloadLevelsMax))
	default:
		m.Encoding, m.Payload = postdate.EncodingJSON, b.Payload
		m.ContentType = orElse(m.ContentType, contentTypeJSON)
	}
	if len(m.Payload) > c.payloadBytesMax {
		return fieldProblem("/payload", postdate.E(postdate.KindTooLarge, "payload is %d bytes long: "+
			"at most %d are allowed; put it elsewhere and send a reference", len(m.Payload), c.payloadBytesMax))
	}
	return nil
}

// nestsTooDeep reports whether a JSON value, which is well-formed, has more levels than a
// payload may. Readers recurse, and break where we do not.
func nestsTooDeep(v jsontext.Value) bool {
	if bytes.Count(v, []byte("["))+bytes.Count(v, []byte("{")) <= postdate.PayloadLevelsMax {
		return false
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return false
		}
		if dec.StackDepth() > postdate.PayloadLevelsMax {
			return true
		}
	}
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// decodeBase64 reads a JSON string of standard base64, padded.
func decodeBase64(quoted jsontext.Value) ([]byte, error) {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		unquoted, err := jsontext.AppendUnquote(nil, quoted)
		if err != nil {
			return nil, invalid("payload is not a string of UTF-8: %w", err)
		}
		text = unquoted
	}
	// The decoder skips line breaks, so an answer could not show the payload in the
	// form in which it came.
	if bytes.ContainsAny(text, "\r\n") {
		return nil, invalid("payload has line breaks: write its base64 in one line")
	}
	raw, err := base64.StdEncoding.Strict().AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))),
		text)
	if err != nil {
		return nil, invalid("payload is not base64 in the standard alphabet with padding: %w", err)
	}
	return raw, nil
}

// rest sets everything but the channel, the times that when sets, and the payload.
func rest(b *messageBody, m *postdate.Message) *Problem {
	if len(b.Key) > postdate.KeyBytesMax {
		return fieldProblem("/key", invalid("key is %d bytes long: at most %d are allowed",
			len(b.Key), postdate.KeyBytesMax))
	}
	m.PartitionKey = b.Key
	if p := checkHeaders(b.Headers); p != nil {
		return p
	}
	for _, h := range b.Headers {
		if strings.EqualFold(h.Name, amqp.MessageID) {
			return headerProblem(h.Name, invalid("header %s is for messages that are taken from RabbitMQ: "+
				"leave it out; the message-id of a delivery is the scheduleId", h.Name))
		}
		if strings.EqualFold(h.Name, amqp.ReplyTo) && amqp.IsDirectReply(h.Value) {
			return headerProblem(h.Name, invalid("header %s asks for a direct reply, which works only for the "+
				"connection that waits for it: name a queue", h.Name))
		}
		if h.Secret() && h.Value == mask {
			return headerProblem(h.Name, invalid("header %s is %s, which is how answers show it: send its value",
				h.Name, mask))
		}
	}
	m.Headers = b.Headers
	postdate.SortHeaders(m.Headers)
	if b.ExpiresAt != nil {
		at, err := postdate.ParseTime(*b.ExpiresAt)
		if err != nil {
			return fieldProblem("/expiresAt", err)
		}
		m.ExpiresAt = at
	}
	if b.Priority != nil {
		priority, err := postdate.ParsePriority(clip(*b.Priority))
		if err != nil {
			return fieldProblem("/priority", err)
		}
		m.Priority = priority
	}
	if b.Labels != nil {
		if p := b.labels(m); p != nil {
			return p
		}
	}
	if b.Retry != nil {
		return retryPolicy(b.Retry, &m.Retry)
	}
	return nil
}

// retryPolicy sets the fields of the policy that are given. Zero means the default.
func retryPolicy(b *retryBody, to *postdate.RetryPolicy) *Problem {
	if b.MaxAttempts != nil {
		if n := *b.MaxAttempts; n < 1 || n > postdate.RetryAttemptMax {
			return fieldProblem("/retry/maxAttempts",
				invalid("maxAttempts is %d: it must be between 1, no retry, and %d", n, postdate.RetryAttemptMax))
		}
		to.MaxAttempts = *b.MaxAttempts
	}
	for _, field := range []struct {
		name string
		text *string
		to   *time.Duration
		most time.Duration
	}{
		{"minBackoff", b.MinBackoff, &to.MinBackoff, postdate.RetryBackoffMax},
		{"maxBackoff", b.MaxBackoff, &to.MaxBackoff, postdate.RetryBackoffMax},
		{"maxParked", b.MaxParked, &to.MaxParked, postdate.RetryParkedMax},
	} {
		if field.text == nil {
			continue
		}
		d, err := ParseDuration(*field.text)
		if err == nil && (d < time.Millisecond || d > field.most) {
			err = invalid("%s is %q: it must be between 1ms and %d days", field.name, *field.text, daysOf(field.most))
		}
		if err != nil {
			return fieldProblem("/retry/"+field.name, err)
		}
		*field.to = d
	}
	if to.MinBackoff != 0 && to.MaxBackoff != 0 && to.MinBackoff > to.MaxBackoff {
		return fieldProblem("/retry/minBackoff", invalid("minBackoff %s is longer than maxBackoff %s",
			to.MinBackoff, to.MaxBackoff))
	}
	return nil
}

// checkHeaders checks the client's own headers, name by name.
func checkHeaders(headers []postdate.Header) *Problem {
	if len(headers) > postdate.HeadersMax {
		return fieldProblem("/headers", invalid("%d headers are too many: at most %d are allowed",
			len(headers), postdate.HeadersMax))
	}
	for _, h := range headers {
		err := checkHeaderName(h.Name)
		if err == nil && len(h.Value) > postdate.HeaderValueBytesMax {
			err = invalid("header %s is %d bytes long: at most %d are allowed",
				h.Name, len(h.Value), postdate.HeaderValueBytesMax)
		}
		if err == nil && strings.ContainsFunc(h.Value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			err = invalid("header %s has a control character", h.Name)
		}
		if err != nil {
			return headerProblem(h.Name, err)
		}
	}
	return nil
}

func headerProblem(name string, err error) *Problem {
	return fieldProblem(string(jsontext.Pointer("/headers").AppendToken(clip(name))), err)
}

// reserved begins the names of Postdate's own headers.
const reserved = "postdate-"

func checkHeaderName(name string) error {
	if name == "" || len(name) > postdate.HeaderNameBytesMax {
		return invalid("a header's name of %d bytes is not possible: it has 1 to %d",
			len(name), postdate.HeaderNameBytesMax)
	}
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return invalid("header name %q has a forbidden character at byte %d: "+
				"allowed are letters, digits and ! # $ %% & ' * + - . ^ _ ` | ~", name, i)
		}
	}
	lower := strings.ToLower(name)
	switch {
	case strings.HasPrefix(lower, reserved):
		return invalid("header %s begins with postdate-, which Postdate keeps for its own: choose another name", name)
	case lower == tracing.HeaderParent, lower == tracing.HeaderState:
		return invalid("header %s is set by Postdate: "+
			"send it as a header of the HTTP request, and it is passed on", lower)
	case lower == "message-id":
		return invalid("header message-id is set by Postdate to the scheduleId: choose another name")
	}
	return nil
}

// tokenByte says whether c may stand in a token of RFC 9110.
func tokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// checkContentType checks the form of a media type.
func checkContentType(s string) error {
	if len(s) > postdate.ContentTypeBytesMax {
		return invalid("contentType is %d bytes long: at most %d are allowed", len(s), postdate.ContentTypeBytesMax)
	}
	if s == contentTypeJSON || s == "text/plain" {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(s)
	notASCII := func(r rune) bool { return r < ' ' || r > '~' }
	if err != nil || !strings.Contains(mediaType, "/") || strings.ContainsFunc(s, notASCII) {
		return invalid("contentType %q is not a media type: "+
			"write it like application/json or text/plain; charset=utf-8", s)
	}
	return nil
}
