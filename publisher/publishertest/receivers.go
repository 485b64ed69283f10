package publishertest

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

// Receivers checks that a publisher makes the headers with which the clients' receivers are tested:
// those of the cases of clients/scenario/receivers.json whose names begin with the publisher's. What it
// makes beyond them is its own business.
func Receivers(t *testing.T, publisher string, headersOf func(*postdate.Delivery) (map[string]any, error)) {
	text, err := os.ReadFile("../../clients/scenario/receivers.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Headers []struct {
			Name    string
			Headers map[string]any
			Want    struct {
				MessageID, Traceparent, Tracestate string
				ExecutionTime                      time.Time
				Attempt                            int
				PossibleDuplicate                  bool
			}
		}
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	marks := map[bool]bool{}
	for _, c := range all.Headers {
		if !strings.HasPrefix(c.Name, publisher) {
			continue
		}
		m := message("", c.Want.MessageID)
		m.ExecutionTime = postdate.TimeOf(c.Want.ExecutionTime)
		m.Traceparent, m.Tracestate = c.Want.Traceparent, c.Want.Tracestate
		made, err := headersOf(&postdate.Delivery{Message: m, Attempt: c.Want.Attempt,
			PossibleDuplicate: c.Want.PossibleDuplicate})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(made) // texts and numbers
		var form map[string]any
		if err := json.Unmarshal(text, &form); err != nil {
			t.Fatal(err)
		}
		for name, want := range c.Headers {
			if got := form[name]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: the header %s is %#v, want %#v", c.Name, name, got, want)
			}
		}
		marks[c.Want.PossibleDuplicate] = true
	}
	if !marks[true] || !marks[false] {
		t.Error("the clients' receivers are not tested with a possible duplicate, and with none, of " + publisher)
	}
}
