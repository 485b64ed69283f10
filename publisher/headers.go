package publisher

import (
	"iter"
	"strings"

	"github.com/postdate/postdate"
)

// ClientHeaders are the client's own headers that go to the consumer. Names
// that begin with postdate- in any case are this product's and are left out, so
// that no client can forge them; so is a traceparent where the message has one.
func ClientHeaders(m *postdate.Message) iter.Seq[postdate.Header] {
	const own = "postdate-"
	return func(yield func(postdate.Header) bool) {
		for _, h := range m.Headers {
			if len(h.Name) >= len(own) && strings.EqualFold(h.Name[:len(own)], own) {
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
