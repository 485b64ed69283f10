package api

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// begin returns the response's own buffer, empty, for an answer to be appended to.
func begin(ctx *fasthttp.RequestCtx) []byte { return ctx.Response.SwapBody(nil)[:0] }

// finish makes b the response. b comes from begin.
func finish(ctx *fasthttp.RequestCtx, status int, b []byte) *Problem {
	ctx.SetStatusCode(status)
	ctx.SetContentType(contentTypeJSON)
	ctx.Response.SwapBody(b)
	return nil
}

// scheduled is the answer to a request that schedules or changes a message.
type scheduled struct {
	key           postdate.Key
	executionTime postdate.Time
	status        postdate.Status
	version       string // "": not known
	ending        bool   // it is a series that was cancelled, and ends with the occurrence that is on its way
}

func (a scheduled) write(ctx *fasthttp.RequestCtx, status int) *Problem {
	setETag(ctx, a.version)
	if status == fasthttp.StatusCreated {
		ctx.Response.Header.Set("Location", "/v1/messages/"+url.PathEscape(a.key.ScheduleID))
	}
	return finish(ctx, status, append(a.append(begin(ctx)), '}'))
}

// append appends an object with the members of a, and leaves it open.
func (a scheduled) append(b []byte) []byte {
	b = append(b, `{"scheduleId":`...)
	b = appendText(b, a.key.ScheduleID)
	b = append(b, `,"bucket":`...)
	b = strconv.AppendInt(b, int64(a.key.Bucket), 10)
	b = appendTime(b, "executionTime", a.executionTime)
	b = appendMember(b, "status", a.status.String())
	if a.ending {
		b = append(b, `,"ending":true`...)
	}
	return b
}

// appendResult appends the result of one item of many: its status, or why it failed.
func appendResult(b []byte, id string, status postdate.Status, p *Problem) []byte {
	b = append(b, '{')
	if id != "" {
		b = append(b, `"scheduleId":`...)
		b = append(appendText(b, id), ',')
	}
	if p != nil {
		b = append(b, `"error":`...)
		b = p.appendJSON(b)
	} else {
		b = append(b, `"status":"`...)
		b = append(b, status.String()...)
		b = append(b, '"')
	}
	return append(b, '}')
}

// appendRecord appends a message with its state.
func appendRecord(b []byte, r *postdate.Record) []byte {
	b = append(b, `{"scheduleId":`...)
	b = appendText(b, r.ScheduleID)
	b = append(b, `,"bucket":`...)
	b = strconv.AppendInt(b, int64(r.Bucket), 10)
	b = appendMember(b, "channel", string(r.Channel))
	if r.FailureChannel != "" {
		b = appendMember(b, "failureChannel", string(r.FailureChannel))
	}
	b = appendMember(b, "priority", r.Priority.String())
	b = appendTime(b, "executionTime", shownTime(&r.Message))
	if r.Moved != (postdate.Move{}) {
		b = appendTime(b, "movedAt", r.Moved.At)
		b = appendTime(b, "movedFrom", r.Moved.From)
	}
	if r.ExpiresAt != 0 {
		b = appendTime(b, "expiresAt", r.ExpiresAt)
	}
	b = appendTime(b, "createdAt", r.CreatedAt)
	b = appendMember(b, "version", versionOf(&r.State))
	b = appendPayload(b, r.Encoding, r.ContentType, r.Payload)
	b = appendHeaders(b, masked(r.Headers))
	if r.PartitionKey != "" {
		b = appendMember(b, "key", r.PartitionKey)
	}
	if r.Traceparent != "" {
		b = appendMember(b, "traceparent", r.Traceparent)
	}
	if r.Tracestate != "" {
		b = appendMember(b, "tracestate", r.Tracestate)
	}
	b = appendLabels(b, r.Labels)
	b = appendRetry(b, r.Retry)
	b = appendState(b, &r.State)
	if r.Recurrence != nil {
		b = appendSeries(appendRecurrence(b, r.Recurrence), r)
	}
	return append(b, '}')
}

// appendState appends the members that tell a message's state.
func appendState(b []byte, s *postdate.State) []byte {
	b = appendMember(b, "status", s.Status.String())
	b = append(b, `,"attempts":`...)
	b = strconv.AppendInt(b, int64(s.Attempts), 10)
	switch {
	case s.Status == postdate.Pending && s.Paused: // nothing is due
	case s.Status == postdate.Pending && s.Parked:
		b = appendMember(b, "parked", "waiting for its channel")
	case s.Status == postdate.Pending:
		b = appendTime(b, "nextAttemptAt", s.AttemptTime)
	case s.Status == postdate.Delivered:
		b = appendTime(b, "deliveredAt", s.SettledAt)
	case s.Status == postdate.DeliveryFailed:
		b = appendTime(b, "failedAt", s.SettledAt)
	case s.Status == postdate.Cancelled:
		b = appendTime(b, "cancelledAt", s.SettledAt)
	}
	if s.LastError != "" {
		b = appendMember(b, "lastError", s.LastError)
	}
	if s.PossibleDuplicate {
		b = append(b, `,"possibleDuplicate":true`...)
	}
	return b
}

// appendLog appends what came of the attempts. A list leaves it out: it would be long.
func appendLog(b []byte, log []postdate.Attempt) []byte {
	if len(log) == 0 {
		return b
	}
	b = append(b, `,"attemptLog":[`...)
	for i, a := range log {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"outcome":"`...)
		b = append(append(b, a.Outcome.String()...), '"')
		b = appendTime(b, "time", a.At)
		b = appendMember(b, "node", a.Node)
		if a.Reason != "" {
			b = appendMember(b, "reason", a.Reason)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendInboxMessage appends a message of an inbox.
func appendInboxMessage(b []byte, m *store.InboxMessage) []byte {
	return append(appendInboxFields(append(b, '{'), m), '}')
}

// appendInboxFields appends the fields of a message of an inbox.
func appendInboxFields(b []byte, m *store.InboxMessage) []byte {
	b = append(b, `"scheduleId":`...)
	b = appendText(b, m.ScheduleID)
	b = appendTime(b, "executionTime", m.ExecutionTime)
	b = appendTime(b, "deliveredAt", m.DeliveredAt)
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(m.Attempt), 10)
	if m.PossibleDuplicate {
		b = append(b, `,"possibleDuplicate":true`...)
	}
	b = appendPayload(b, m.Encoding, m.ContentType, m.Payload)
	return appendHeaders(b, m.Headers)
}

// appendPayload appends a payload in the form in which it was scheduled.
func appendPayload(b []byte, encoding postdate.Encoding, contentType string, payload []byte) []byte {
	b = appendMember(b, "contentType", contentType)
	switch encoding {
	case postdate.EncodingJSON:
		b = append(b, `,"payload":`...)
		b = append(b, payload...)
	case postdate.EncodingText:
		b = append(b, `,"payload":`...)
		b = appendText(b, payload)
	default:
		b = append(b, `,"payloadEncoding":"base64","payload":"`...)
		b = base64.StdEncoding.AppendEncode(b, payload)
		b = append(b, '"')
	}
	return b
}

// mask stands for the value of a header that is a secret.
const mask = "***"

// masked returns a message's headers as those see them who only look at it: its receiver
// gets the credentials, and they are not shown again.
func masked(headers []postdate.Header) []postdate.Header {
	if !slices.ContainsFunc(headers, postdate.Header.Secret) {
		return headers
	}
	shown := slices.Clone(headers)
	for i := range shown {
		if shown[i].Secret() {
			shown[i].Value = mask
		}
	}
	return shown
}

func appendHeaders(b []byte, headers []postdate.Header) []byte {
	b = append(b, `,"headers":{`...)
	for i, h := range headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, h.Name), ':')
		b = appendText(b, h.Value)
	}
	return append(b, '}')
}

// appendRetry appends the fields of the policy that are set.
func appendRetry(b []byte, p postdate.RetryPolicy) []byte {
	if p == (postdate.RetryPolicy{}) {
		return b
	}
	b = append(b, `,"retry":{`...)
	start := len(b)
	if p.MaxAttempts != 0 {
		b = append(b, `,"maxAttempts":`...)
		b = strconv.AppendInt(b, int64(p.MaxAttempts), 10)
	}
	if p.MinBackoff != 0 {
		b = appendMember(b, "minBackoff", p.MinBackoff.String())
	}
	if p.MaxBackoff != 0 {
		b = appendMember(b, "maxBackoff", p.MaxBackoff.String())
	}
	if p.MaxParked != 0 {
		b = appendMember(b, "maxParked", p.MaxParked.String())
	}
	b = append(b[:start], b[start+1:]...) // the first comma
	return append(b, '}')
}

// appendCluster appends the view of the cluster.
func appendCluster(b []byte, c *Cluster) []byte {
	b = append(b, `{"node":`...)
	b = appendText(b, c.Node)
	b = append(b, `,"members":[`...)
	for i, m := range c.Members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"node":`...)
		b = appendText(b, m.Node)
		b = appendMember(b, "address", m.Address)
		b = append(appendClockAndLease(appendMember(b, "state", m.State), &m), '}')
	}
	b = append(b, `],"buckets":[`...)
	for i := range c.Buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendBucket(b, &c.Buckets[i])
	}
	return append(b, `]}`...)
}

// appendClockAndLease appends what only the node itself knows.
func appendClockAndLease(b []byte, m *Member) []byte {
	if m.ClockOffset != nil {
		b = appendNumber(b, "clockOffsetMs", m.ClockOffset.Milliseconds())
	}
	if m.Lease != nil {
		b = appendText(append(b, `,"lease":{"id":`...), m.Lease.ID)
		b = appendNumber(b, "lastsMs", m.Lease.Lasts.Milliseconds())
		b = append(appendNumber(b, "leftMs", m.Lease.Left.Milliseconds()), '}')
	}
	return b
}

func appendBucket(b []byte, k *Bucket) []byte {
	b = append(b, `{"bucket":`...)
	b = strconv.AppendInt(b, int64(k.Bucket), 10)
	b = appendMember(b, "owner", k.Owner)
	b = append(b, `,"token":`...)
	b = strconv.AppendUint(b, k.Token, 10)
	if k.Checkpoint > 0 {
		b = appendTime(b, "checkpoint", k.Checkpoint)
	}
	if k.Claimed > 0 {
		b = appendTime(b, "claimed", k.Claimed)
	}
	b = append(b, `,"lag":`...)
	b = strconv.AppendInt(b, k.Lag.Milliseconds(), 10)
	return append(b, '}')
}

// appendNumber appends a number to an object that already has a member.
func appendNumber(b []byte, name string, n int64) []byte {
	b = append(append(append(b, ',', '"'), name...), '"', ':')
	return strconv.AppendInt(b, n, 10)
}

// appendMember appends a string member to an object that already has a member.
func appendMember(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendText(b, value)
}

// appendText appends a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendText[T ~string | ~[]byte](b []byte, s T) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// appendTime appends a time member to an object that already has a member.
func appendTime(b []byte, name string, t postdate.Time) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':', '"')
	b = t.AppendText(b)
	return append(b, '"')
}
