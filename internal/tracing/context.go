// Package tracing reads and writes trace contexts as W3C has them (https://www.w3.org/TR/trace-context/).
package tracing

import (
	"strings"

	"github.com/postdate/postdate"
)

// The names of the headers that carry a trace context.
const (
	HeaderParent = "traceparent"
	HeaderState  = "tracestate"
)

// Checked returns what can be kept of a trace context: the standard tells receivers to ignore what they cannot
// parse. Of parent that is a traceparent of version 00, unchanged, or "". Of states, which stand for one header in
// as many lines, it is the tracestate, or "" if there is no traceparent, or if it is too long.
func Checked(parent []byte, states ...[]byte) (traceparent, tracestate string) {
	if !isParent(parent) {
		return "", ""
	}
	if len(states) > 0 {
		tracestate = checkedState(states)
	}
	return string(parent), tracestate
}

// lengthOfParent is that of a traceparent of version 00. Behind the version are the trace's id, the id of a span, and
// flags.
const (
	lengthOfParent = 55
	traceAt        = 3
	spanAt         = 36
	flagsAt        = 53
)

func isParent(s []byte) bool {
	if len(s) != lengthOfParent || s[0] != '0' || s[1] != '0' || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	return isHex(s[traceAt:35]) && isHex(s[spanAt:52]) && isHex(s[flagsAt:]) &&
		hasDigit(s[traceAt:35]) && hasDigit(s[spanAt:52])
}

func isHex(s []byte) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// hasDigit says whether a hexadecimal number is not zero.
func hasDigit(s []byte) bool {
	for _, c := range s {
		if c != '0' {
			return true
		}
	}
	return false
}

func checkedState(states [][]byte) string {
	length := len(states) - 1
	for _, s := range states {
		length += len(s)
	}
	if length > postdate.TracestateBytesMax {
		return ""
	}
	b := make([]byte, 0, postdate.TracestateBytesMax)
	for i, s := range states {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, s...)
	}
	if state := strings.Trim(string(b), blanks); isState(state) {
		return state
	}
	return ""
}

const (
	blanks     = " \t"
	membersMax = 32
	// of a member
	keyBytesMax, valueBytesMax = 256, 256
)

// isState says whether s is a list of members, some of which may be empty. No two have the same key.
func isState(s string) bool {
	var keys [membersMax]string
	count := 0
	for rest, more := s, true; more; {
		var member string
		member, rest, more = strings.Cut(rest, ",")
		if member = strings.Trim(member, blanks); member == "" {
			continue
		}
		key, value, is := strings.Cut(member, "=")
		if !is || count == membersMax || !isKey(key) || !isValue(value) {
			return false
		}
		for _, other := range keys[:count] {
			if key == other {
				return false
			}
		}
		keys[count] = key
		count++
	}
	return count > 0
}

func isKey(s string) bool {
	if s == "" || len(s) > keyBytesMax {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || strings.IndexByte("_-*/@", c) < 0) {
			return false
		}
	}
	return true
}

// isValue says whether s, which has no comma and no blanks around it, is the value of a member.
func isValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '=' {
			return false
		}
	}
	return s != "" && len(s) <= valueBytesMax
}
