package postdate

import (
	"errors"
	"fmt"
)

// Kind says what sort of error it is: what a caller can do about it.
type Kind uint8

// The kinds. The list is closed: code may switch over it.
const (
	KindInternal    Kind = iota // a bug or a damaged store; nobody's input is at fault
	KindInvalid                 // the request can never succeed as it is
	KindNotFound                // there is no such message
	KindExists                  // the schedule id is taken by other content
	KindConflict                // somebody changed it in between: read again and decide anew
	KindTooLate                 // delivery has begun or is done
	KindTooLarge                // over a size limit
	KindFull                    // the store has no room: surely not done
	KindUnavailable             // not now: surely not done, try again
	KindUnknown                 // may be done or not: only asking again tells
	KindFenced                  // the bucket belongs to somebody else by now
)

var kindNames = [...]string{"internal", "invalid", "not found", "exists", "conflict", "too late", "too large", "full", "unavailable", "unknown outcome", "fenced"}

func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Error is every error that crosses a package's border here.
type Error struct {
	Kind   Kind
	Detail string // a sentence for the person who has to act on it
	Err    error  // the cause, or nil
}

// E makes an Error. An argument for a %w verb becomes its cause.
func E(kind Kind, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Detail: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of the first [Error] in err's chain, and KindInternal
// where there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}
