package publisher

import (
	"iter"
	"strings"

	"github.com/postdate/postdate"
)

// ClientHeaders yields the client's own headers, as the consumer gets them. It leaves out names
// that begin with postdate-, in any case, so that no client can forge one, and the client's
// traceparent if the message has its own. With them come the headers of a message that a failed
// one left ([postdate.Message.Telling]).
func ClientHeaders(m *postdate.Message) iter.Seq[postdate.Header] {
	const own = "postdate-"
	return func(yield func(postdate.Header) bool) {
		for _, h := range m.Headers {
			if len(h.Name) >= len(own) && strings.EqualFold(h.Name[:len(own)], own) && !m.Telling(h) {
				continue
			}
			if m.Traceparent != "" && strings.EqualFold(h.Name, HeaderTraceparent) {
				continue
			}
			if !yield(h) {
				return
			}
		}
	}
}
