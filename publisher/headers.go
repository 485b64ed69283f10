package publisher

import (
	"iter"
	"strings"

	"github.com/postdate/postdate"
)

// ClientHeaders yields the client's own headers, as the consumer gets them. It leaves out names
// that begin with postdate-, in any case, so that no client can forge one, and the client's
// traceparent and tracestate if the message has its own. With them come the headers of a message
// that a failed one left ([postdate.Message.Telling]).
func ClientHeaders(m *postdate.Message) iter.Seq[postdate.Header] {
	const own = "postdate-"
	return func(yield func(postdate.Header) bool) {
		for _, h := range m.Headers {
			if len(h.Name) >= len(own) && strings.EqualFold(h.Name[:len(own)], own) && !m.Telling(h) {
				continue
			}
			if isTrace(m, h.Name) {
				continue
			}
			if !yield(h) {
				return
			}
		}
	}
}

// isTrace reports whether the message has its own trace context for what the client's header says. Earlier versions
// took a client's tracestate as any other header.
func isTrace(m *postdate.Message, name string) bool {
	return m.Traceparent != "" && strings.EqualFold(name, HeaderTraceparent) ||
		m.Tracestate != "" && strings.EqualFold(name, HeaderTracestate)
}

// TraceHeaders yields the headers of the message's own trace context. Postdate passes on what came with the message:
// an intermediary does not change it.
func TraceHeaders(m *postdate.Message) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if m.Traceparent != "" && yield(HeaderTraceparent, m.Traceparent) && m.Tracestate != "" {
			yield(HeaderTracestate, m.Tracestate)
		}
	}
}
