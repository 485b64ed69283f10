package postdate

import (
	"slices"
	"strconv"
	"strings"
)

// The headers of a message that a failed one left: what failed, and why. No client's header has such a name.
const (
	HeaderFailedID                = failedPrefix + "id"
	HeaderFailedChannel           = failedPrefix + "channel" // as Channel.Shown shows it
	HeaderFailedReason            = failedPrefix + "reason"
	HeaderFailedAttempts          = failedPrefix + "attempts"
	HeaderFailedTime              = failedPrefix + "time"
	HeaderFailedPossibleDuplicate = failedPrefix + "possible-duplicate" // true, or not there

	failedPrefix = "postdate-failed-"
)

// failureMark separates a message's id from the version of it that failed. No client's id has it.
const failureMark = "!"

// Failure says how a message failed for good, and where it goes on to.
type Failure struct {
	Version           uint64  // of the message
	To                Channel // its failure channel
	At                Time
	Attempts          int
	Reason            string
	PossibleDuplicate bool // it may have arrived all the same
}

// Failed returns the message that goes to the failure channel of m, which failed. It is due at once, has what m
// has, and headers that say why. Credentials stay behind: they are for m's own channel. If it fails too, nothing
// follows.
func (m *Message) Failed(f Failure) Message {
	next := *m
	next.ScheduleID += failureMark + strconv.FormatUint(f.Version, 10)
	next.Channel, next.FailureChannel = f.To, ""
	next.ExecutionTime, next.CreatedAt, next.ExpiresAt = f.At, f.At, 0
	next.Recurrence, next.First, next.Retry, next.Original, next.Moved = nil, 0, RetryPolicy{}, Original{}, Move{}
	next.Headers = slices.DeleteFunc(slices.Clone(m.Headers), func(h Header) bool {
		return h.Secret() || isFailureHeader(h.Name) // the latter are what somebody sent back to us
	})
	next.Headers = append(next.Headers,
		Header{HeaderFailedID, m.ScheduleID},
		Header{HeaderFailedChannel, headerText(m.Channel.Shown())},
		Header{HeaderFailedReason, headerText(f.Reason)},
		Header{HeaderFailedAttempts, strconv.Itoa(f.Attempts)},
		Header{HeaderFailedTime, f.At.String()})
	if f.PossibleDuplicate {
		next.Headers = append(next.Headers, Header{HeaderFailedPossibleDuplicate, "true"})
	}
	SortHeaders(next.Headers)
	return next
}

// OfFailure says whether k names a message that a failed one left.
func (k Key) OfFailure() bool { return strings.Contains(k.ScheduleID, failureMark) }

// Secret says whether the header holds credentials, which only the message's receiver sees.
func (h Header) Secret() bool {
	return strings.EqualFold(h.Name, "Authorization") || strings.EqualFold(h.Name, "Cookie")
}

// Telling says whether consumers of m get the header, although its name is Postdate's own: it tells how another
// message failed.
func (m *Message) Telling(h Header) bool { return m.OfFailure() && isFailureHeader(h.Name) }

func isFailureHeader(name string) bool {
	return len(name) >= len(failedPrefix) && strings.EqualFold(name[:len(failedPrefix)], failedPrefix)
}

// headerText makes a text that can stand in a header of every broker.
func headerText(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}

func errFailureID(id string) error {
	return E(KindInvalid, "%q is what a failed message left for its failure channel: it can be read and cancelled, "+
		"but neither made nor changed", id)
}

// checkFailureID checks the id of a message that a failed one left.
func checkFailureID(id, failed, version string) error {
	if n, err := strconv.ParseUint(version, 10, 64); err != nil || strconv.FormatUint(n, 10) != version {
		return checkName("scheduleId", id, ScheduleIDBytesMax) // then the mark is what is wrong
	}
	return CheckMessageID(failed)
}
