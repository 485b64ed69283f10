package publisher

import (
	"slices"
	"testing"

	"github.com/postdate/postdate"
)

// A message's own trace context replaces what its client's headers say of that, and no more.
func TestClientHeadersBesideATrace(t *testing.T) {
	headers := []postdate.Header{{Name: "TraceParent", Value: "p"}, {Name: "a", Value: "b"}, {Name: "tracestate", Value: "s"}}
	for _, test := range []struct {
		parent, state string
		want          []string
	}{
		{"", "", []string{"TraceParent", "a", "tracestate"}},
		{"00-1", "", []string{"a", "tracestate"}}, // as an earlier version took it
		{"00-1", "x=1", []string{"a"}},
	} {
		var names []string
		for h := range ClientHeaders(&postdate.Message{Headers: headers, Traceparent: test.parent, Tracestate: test.state}) {
			names = append(names, h.Name)
		}
		if !slices.Equal(names, test.want) {
			t.Errorf("with %q and %q the client's headers are %v, want %v", test.parent, test.state, names, test.want)
		}
	}
}
