package api

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// ProblemType names a kind of problem. The list is closed and part of the public
// contract. On the wire each is a URN that begins with [ProblemPrefix].
type ProblemType string

// ProblemPrefix begins every problem's type on the wire.
const ProblemPrefix = "urn:postdate:problem:"

// The problem types.
const (
	MalformedJSON      ProblemType = "malformed-json"         // 400, with offset
	UnknownField       ProblemType = "unknown-field"          // 400, with pointer
	DuplicateField     ProblemType = "duplicate-field"        // 400, with pointer
	InvalidField       ProblemType = "invalid-field"          // 400, with pointer
	InvalidParameter   ProblemType = "invalid-parameter"      // 400, with parameter: of the URL, or a header
	NotSupported       ProblemType = "not-supported"          // 400, with pointer
	BadRequest         ProblemType = "bad-request"            // 400: not HTTP, or a body that is not gzip
	Unauthorized       ProblemType = "unauthorized"           // 401: no key, or none that is good
	Forbidden          ProblemType = "forbidden"              // 403
	Limited            ProblemType = "limited"                // 429: over a limit of the tenant
	NotFound           ProblemType = "not-found"              // 404: no such message
	NoSuchKey          ProblemType = "no-such-key"            // 404: no such API key
	NoSuchJob          ProblemType = "no-such-job"            // 404
	NoSuchPath         ProblemType = "no-such-path"           // 404
	MethodNotAllowed   ProblemType = "method-not-allowed"     // 405
	RequestTimeout     ProblemType = "request-timeout"        // 408
	Exists             ProblemType = "exists"                 // 409
	TooLate            ProblemType = "too-late"               // 409, with messageStatus
	Conflict           ProblemType = "conflict"               // 409
	ReceiptOutdated    ProblemType = "receipt-outdated"       // 409: of one receipt of many
	PreconditionFailed ProblemType = "precondition-failed"    // 412: If-Match or If-None-Match does not hold
	KeyReused          ProblemType = "idempotency-key-reused" // 422
	TooLarge           ProblemType = "too-large"              // 413
	UnsupportedContent ProblemType = "unsupported-media-type" // 415
	HeadersTooLarge    ProblemType = "headers-too-large"      // 431
	Internal           ProblemType = "internal"               // 500
	Unavailable        ProblemType = "unavailable"            // 503: certainly not done
	NotReady           ProblemType = "not-ready"              // 503
	UnknownOutcome     ProblemType = "unknown-outcome"        // 504: may have been done
	StoreFull          ProblemType = "full"                   // 507: certainly not done
)

var problemKinds = map[ProblemType]struct {
	status int
	title  string
}{
	MalformedJSON:      {400, "The body is not well-formed JSON"},
	UnknownField:       {400, "The body has an unknown field"},
	DuplicateField:     {400, "The body has a field twice"},
	InvalidField:       {400, "A field of the body is invalid"},
	InvalidParameter:   {400, "A parameter of the request is invalid"},
	NotSupported:       {400, "That is not possible here"},
	BadRequest:         {400, "The request is not well-formed"},
	Unauthorized:       {401, "The request needs a key"},
	Forbidden:          {403, "The request is refused"},
	Limited:            {429, "The tenant is at its limit"},
	NotFound:           {404, "There is no such message"},
	NoSuchKey:          {404, "There is no such key"},
	NoSuchJob:          {404, "There is no such job"},
	NoSuchPath:         {404, "There is no such path"},
	MethodNotAllowed:   {405, "The path does not take this method"},
	RequestTimeout:     {408, "The request took too long to arrive"},
	Exists:             {409, "The schedule id is taken"},
	TooLate:            {409, "Delivery has begun or is done"},
	Conflict:           {409, "The message is in another state, or was changed at the same time"},
	ReceiptOutdated:    {409, "The receipt is too old"},
	PreconditionFailed: {412, "The condition does not hold"},
	KeyReused:          {422, "The idempotency key stands for another request"},
	TooLarge:           {413, "The request is too large"},
	UnsupportedContent: {415, "The body's media type or coding is not supported"},
	HeadersTooLarge:    {431, "The request's headers are too large"},
	Internal:           {500, "The node failed"},
	Unavailable:        {503, "Not possible at present"},
	NotReady:           {503, "The node is not ready"},
	UnknownOutcome:     {504, "The outcome is unknown"},
	StoreFull:          {507, "The store is full"},
}

// Problem is an error as the client sees it.
type Problem struct {
	Type       ProblemType
	Detail     string // a sentence that says what to do
	Pointer    string // JSON Pointer (RFC 6901) to the field at fault
	Parameter  string // the parameter of the URL at fault
	Offset     int64  // of malformed JSON: the byte of the body at fault, from 0; -1: no single byte
	Suggestion string // the nearest known name
	Limit      string // the tenant's limit that is in the way
	ScheduleID string

	// Only with TooLate, about the message:
	Status      postdate.Status
	DeliveredAt postdate.Time

	inFlight   postdate.Time // of TooLate: the occurrence that is on its way of a series that goes on
	retryAfter int           // seconds; 0: no such header
	keyID      string        // of a refusal: the key that was sent, for the log; "": none that is known
	why        string        // what the log says in place of Detail, if that may quote a secret
}

func (p *Problem) Error() string { return p.Detail }

// shift makes p.Offset, which counts from offset, count from the body's start.
func (p *Problem) shift(offset int) {
	if p.Offset >= 0 {
		p.Offset += int64(offset)
	}
}

// HTTPStatus returns the status code of the answer.
func (p *Problem) HTTPStatus() int { return problemKinds[p.Type].status }

// How much of a problem is shown. A batch of 10,000 bad items, each quoted, must not
// answer many times what it brought.
const (
	detailBytesMax  = 600
	pointerBytesMax = 300
)

// clipMiddle shortens a long detail. Its end says what to do, so the middle goes, which
// quotes the client.
func clipMiddle(detail string) string {
	if len(detail) <= detailBytesMax {
		return detail
	}
	return clipTo(detail, detailBytesMax/2) + strings.ToValidUTF8(detail[len(detail)-detailBytesMax/2:], "")
}

// appendJSON appends p as an object of application/problem+json.
func (p *Problem) appendJSON(b []byte) []byte {
	kind := problemKinds[p.Type]
	b = append(b, `{"type":"`+ProblemPrefix...)
	b = append(b, p.Type...)
	b = append(b, `","title":"`...)
	b = append(b, kind.title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(kind.status), 10)
	detail, placed := clipMiddle(p.Detail), p.Type == MalformedJSON && p.Offset >= 0
	if placed {
		detail += " (at byte " + strconv.FormatInt(p.Offset, 10) + ")"
	}
	b = appendMember(b, "detail", detail)
	if p.Pointer != "" {
		b = appendMember(b, "pointer", clipTo(p.Pointer, pointerBytesMax))
	}
	if p.Parameter != "" {
		b = appendMember(b, "parameter", p.Parameter)
	}
	if placed {
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, p.Offset, 10)
	}
	if p.Suggestion != "" {
		b = appendMember(b, "suggestion", p.Suggestion)
	}
	if p.Limit != "" {
		b = appendMember(b, "limit", p.Limit)
	}
	if p.ScheduleID != "" {
		b = appendMember(b, "scheduleId", p.ScheduleID)
	}
	if p.Status != 0 {
		b = appendMember(b, "messageStatus", p.Status.String())
	}
	if p.DeliveredAt != 0 {
		b = appendTime(b, "deliveredAt", p.DeliveredAt)
	}
	return append(b, '}')
}

// write makes p the response.
func (p *Problem) write(ctx *fasthttp.RequestCtx) {
	ctx.SetStatusCode(p.HTTPStatus())
	ctx.SetContentType("application/problem+json")
	if p.retryAfter > 0 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	b := p.appendJSON(ctx.Response.SwapBody(nil)[:0])
	ctx.Response.SwapBody(b)
}

// fieldProblem is a problem with one field of the body.
func fieldProblem(pointer string, err error) *Problem {
	p := &Problem{Type: InvalidField, Detail: err.Error(), Pointer: pointer}
	if postdate.KindOf(err) == postdate.KindTooLarge {
		p.Type = TooLarge
	}
	return p
}

// parameterProblem is a problem with one parameter of the URL.
func parameterProblem(name string, err error) *Problem {
	return &Problem{Type: InvalidParameter, Detail: err.Error(), Parameter: name}
}

// storeProblem turns an error of the store into the Problem that the client sees. If
// logged is true, the caller logs the error for the operator.
func storeProblem(err error, scheduleID string) (p *Problem, logged bool) {
	var known *Problem
	if errors.As(err, &known) {
		return known, false
	}
	p = &Problem{Detail: err.Error(), ScheduleID: scheduleID}
	kind := postdate.KindOf(err)
	var e *postdate.Error
	if errors.As(err, &e) {
		p.Limit = e.Limit
	}
	if kind == postdate.KindInternal && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		kind = postdate.KindUnknown // time ran out, and the error does not say whether anything was done
	}
	switch kind {
	case postdate.KindInvalid:
		p.Type = InvalidField
	case postdate.KindNotFound:
		p.Type = NotFound
		p.Detail = "there is no message with this scheduleId; it may never have been scheduled, " +
			"or it is finished and its retention is over"
	case postdate.KindExists:
		p.Type = Exists
		p.Detail = "the scheduleId is taken by a message with other content: " +
			"choose another id, or replace that message with PUT while it is PENDING"
	case postdate.KindTooLate:
		p.Type = TooLate
	case postdate.KindConflict:
		p.Type = Conflict
		p.Detail = "others keep changing this message: read it with GET, decide anew, and repeat the request"
	case postdate.KindTooLarge:
		p.Type = TooLarge
	case postdate.KindFull:
		p.Type, p.retryAfter = StoreFull, 30
		p.Detail = "the store has no room; surely nothing was done: free space on the node's disk, " +
			"then repeat the request"
		return p, false // the store has logged it, once instead of for each request
	case postdate.KindLimited:
		p.Type, p.retryAfter = Limited, max(seconds(e.RetryAfter), 1)
	case postdate.KindUnavailable, postdate.KindFenced:
		p.Type, p.retryAfter = Unavailable, 1
		p.Detail = "the store cannot do this at present; surely nothing was done: repeat the request in a moment"
		return p, true
	case postdate.KindUnknown:
		p.Type, p.retryAfter = UnknownOutcome, 1
		p.Detail = "the store did not answer in time: a change may have been done or not. Repeat the same request " +
			"with the same scheduleId; that is safe, and its answer tells"
		return p, true
	default:
		p.Type = Internal
		p.Detail = "the node failed in a way that it did not expect; its log says more. Whether the request was done " +
			"is unknown: repeating it with the same scheduleId is safe"
		return p, true
	}
	return p, false
}

// tooLate returns the Problem of a request that came too late for a message in the
// given state.
func tooLate(scheduleID string, state postdate.State) *Problem {
	p := &Problem{Type: TooLate, ScheduleID: scheduleID, Status: state.Status}
	recurs := state.Occurrence != 0
	switch state.Status {
	case postdate.Delivered:
		p.Detail, p.DeliveredAt = "the message was delivered already: schedule another one "+
			"under another id", state.SettledAt
		if recurs {
			p.Detail = "the series has ended already: schedule it again under another id"
		}
	case postdate.DeliveryFailed:
		p.Detail = "the delivery of the message has failed already: GET it for the reason; redrive " +
			"tries it again, and purge deletes it"
	case postdate.Cancelled:
		p.Detail = "the message was cancelled already: schedule it again under another id"
	default:
		p.Detail = "delivery of the message may have begun: GET it in a moment for what became of it"
		switch {
		case recurs && state.Ending:
			p.Detail = "the series was cancelled: it ends with its occurrence of " + state.Occurrence.String()
		case recurs:
			p.inFlight, p.retryAfter = state.Occurrence, 1
			p.Detail = "delivery of the series' occurrence of " + state.Occurrence.String() + " may have begun: " +
				"repeat the request in a moment; if occurrences follow closely, pause the series first"
		}
	}
	return p
}
