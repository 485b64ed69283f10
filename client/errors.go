package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// ProblemType names a kind of problem. The list is part of the API's contract.
type ProblemType string

// The problem types.
const (
	MalformedJSON      ProblemType = "urn:postdate:problem:malformed-json"
	UnknownField       ProblemType = "urn:postdate:problem:unknown-field"
	DuplicateField     ProblemType = "urn:postdate:problem:duplicate-field"
	InvalidField       ProblemType = "urn:postdate:problem:invalid-field"
	InvalidParameter   ProblemType = "urn:postdate:problem:invalid-parameter"
	NotSupported       ProblemType = "urn:postdate:problem:not-supported"
	BadRequest         ProblemType = "urn:postdate:problem:bad-request"
	Unauthorized       ProblemType = "urn:postdate:problem:unauthorized" // there is no key, or none that is good
	Forbidden          ProblemType = "urn:postdate:problem:forbidden"    // the key is not for this
	Limited            ProblemType = "urn:postdate:problem:limited"      // the tenant is at its limit
	NotFound           ProblemType = "urn:postdate:problem:not-found"    // no such message
	NoSuchKey          ProblemType = "urn:postdate:problem:no-such-key"
	NoSuchJob          ProblemType = "urn:postdate:problem:no-such-job"
	NoSuchPath         ProblemType = "urn:postdate:problem:no-such-path"
	MethodNotAllowed   ProblemType = "urn:postdate:problem:method-not-allowed"
	RequestTimeout     ProblemType = "urn:postdate:problem:request-timeout"
	Exists             ProblemType = "urn:postdate:problem:exists"   // the id is taken by other content
	TooLate            ProblemType = "urn:postdate:problem:too-late" // delivery has begun or is done: see MessageStatus
	Conflict           ProblemType = "urn:postdate:problem:conflict" // others changed it at the same time
	ReceiptOutdated    ProblemType = "urn:postdate:problem:receipt-outdated"
	PreconditionFailed ProblemType = "urn:postdate:problem:precondition-failed"
	KeyReused          ProblemType = "urn:postdate:problem:idempotency-key-reused"
	TooLarge           ProblemType = "urn:postdate:problem:too-large"
	UnsupportedContent ProblemType = "urn:postdate:problem:unsupported-media-type"
	HeadersTooLarge    ProblemType = "urn:postdate:problem:headers-too-large"
	Internal           ProblemType = "urn:postdate:problem:internal"
	Unavailable        ProblemType = "urn:postdate:problem:unavailable" // certainly not done
	NotReady           ProblemType = "urn:postdate:problem:not-ready"
	UnknownOutcome     ProblemType = "urn:postdate:problem:unknown-outcome" // may have been done
	StoreFull          ProblemType = "urn:postdate:problem:full"            // certainly not done
)

// Problem is an error response (RFC 9457). One that does not come from Postdate itself but
// from a proxy, say, may have no Type and no Detail.
type Problem struct {
	Type       ProblemType `json:"type"`
	Title      string      `json:"title"`
	Status     int         `json:"status"` // of HTTP
	Detail     string      `json:"detail"` // a sentence that says what is wrong and what to do
	Pointer    string      `json:"pointer"`
	Parameter  string      `json:"parameter"`
	Offset     *int64      `json:"offset"` // of malformed JSON: the byte at fault, from 0
	Suggestion string      `json:"suggestion"`
	Limit      string      `json:"limit"` // the tenant's limit that is in the way
	ScheduleID string      `json:"scheduleId"`

	// Only with TooLate, about the message:
	MessageStatus Status    `json:"messageStatus"`
	DeliveredAt   time.Time `json:"deliveredAt"`

	RetryAfter time.Duration `json:"-"` // 0: the server sent none
	RequestID  string        `json:"-"` // names the request in the node's log; "": the server sent none
}

func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	if p.Title != "" {
		return p.Title
	}
	return fmt.Sprintf("the server answered %d %s", p.Status, http.StatusText(p.Status))
}

// mayBeDone says whether a call that changes something may have taken effect.
func (p *Problem) mayBeDone() bool {
	return p.Status >= 500 && p.Type != Unavailable && p.Type != NotReady && p.Type != StoreFull
}

// problemOf returns the answer's problem, or nil if the answer is a success.
func problemOf(a Answer) error {
	if a.Status >= 200 && a.Status < 300 {
		return nil
	}
	p := &Problem{}
	if json.Unmarshal(a.Body, p) != nil {
		p = &Problem{} // a proxy's page: only its status is known
	}
	p.Status, p.RequestID = a.Status, a.Header.Get("X-Request-Id")
	after := a.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(after); err == nil {
		p.RetryAfter = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		p.RetryAfter = time.Until(at)
	}
	return p
}

// NoAnswer is the error of a call that got no answer, or none that can be read.
type NoAnswer struct {
	Server    string // the one that was asked last; "": the call was not sent
	MayBeDone bool   // false: certainly nothing was done
	Err       error  // why; the context's error if the context ended
}

// ErrGarbled is in the chain of a NoAnswer if an answer came that makes no sense. A retry
// does not help.
var ErrGarbled = errors.New("the answer is not what a Postdate server says")

func (e *NoAnswer) Error() string {
	switch {
	case e.MayBeDone:
		return fmt.Sprintf("no answer from %s (%v): the call may have been done or not; "+
			"repeat a schedule or a cancel with the same scheduleId, which is safe, "+
			"and look at the message before you repeat anything else", e.Server, e.Err)
	case e.Server == "":
		return fmt.Sprintf("the call was not sent (%v): nothing was done", e.Err)
	}
	return fmt.Sprintf("no answer from %s (%v): nothing was done; see that a Postdate node serves there, "+
		"and repeat the call", e.Server, e.Err)
}

// Unwrap returns the reason.
func (e *NoAnswer) Unwrap() error { return e.Err }

// MayBeDone says whether a call that returned err may have taken effect all the same.
func MayBeDone(err error) bool {
	var lost *NoAnswer
	if errors.As(err, &lost) {
		return lost.MayBeDone
	}
	var p *Problem
	return errors.As(err, &p) && p.mayBeDone()
}

// TypeOf returns the type of the [Problem] in err's chain, or "" if there is none.
func TypeOf(err error) ProblemType {
	var p *Problem
	if errors.As(err, &p) {
		return p.Type
	}
	return ""
}
