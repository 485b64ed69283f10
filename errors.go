package postdate

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies errors by what a caller can do about them.
type Kind uint8

// The kinds. The list is closed: code may switch on it.
const (
	KindInternal    Kind = iota // a bug or a damaged store; no input is at fault
	KindInvalid                 // the request can never succeed as it is
	KindNotFound                // there is no such message
	KindExists                  // the schedule id is taken by other content
	KindConflict                // it was changed in between: read again and decide anew
	KindTooLate                 // delivery has begun or is done
	KindTooLarge                // over a size limit
	KindFull                    // the store has no room: certainly not done
	KindUnavailable             // not now: certainly not done, try again
	KindUnknown                 // it may or may not be done: only asking again tells
	KindFenced                  // the bucket has another owner by now
	KindLimited                 // over a tenant's limit: certainly not done, try again after RetryAfter
)

var kindNames = [...]string{"internal", "invalid", "not found", "exists", "conflict", "too late", "too large", "full",
	"unavailable", "unknown outcome", "fenced", "limited"}

func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Error is the error type that packages return to each other.
type Error struct {
	Kind   Kind
	Detail string // a sentence for the person who has to act on it
	Err    error  // the cause, or nil
	Limit  string // the tenant's limit that is in the way, by its name in the API; "": none is
	// RetryAfter is when to try again, for KindLimited.
	RetryAfter time.Duration
}

// E makes an Error. An argument for a %w verb becomes its cause.
func E(kind Kind, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Detail: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first [Error] in err's chain, or KindInternal if
// there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}
