package node_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
)

// badInput is a request that cannot be served, and what its answer must say.
type badInput struct {
	name, method, path, contentType, body string
	code                                  int
	kind                                  string
	words                                 []string // in the detail
}

// with returns a body with members and all that is required except the time.
func with(members string) string { return `{"channel": "inbox:a", "payload": 1, ` + members + `}` }

func badInputs() []badInput {
	const messages = "/v1/messages"
	later := with(`"delay": "1h"`)
	// The limit of a single body is its payload in base64 plus the other fields.
	overLimit := strings.Repeat(" ", postdate.PayloadBytesMax/3*4+384<<10+1-len(later)) + later
	return []badInput{
		{"malformed JSON", "POST", messages, "", `{"channel": "inbox:a",}`, 400, "malformed-json", []string{"not JSON", "at byte 21"}},
		{"JSON that ends", "POST", messages, "", `{"channel": "inbox:a"`, 400, "malformed-json", []string{"ends too early"}},
		{"no body", "POST", messages, "", ``, 400, "malformed-json", []string{"the body is empty: send a JSON object"}},
		{"unknown field", "POST", messages, "", with(`"executiontime": "2030-01-01T00:00:00Z"`), 400, "unknown-field", []string{`"executiontime" is not known`, `did you mean "executionTime"?`}},
		{"field twice", "POST", messages, "", with(`"delay": "1h", "delay": "2h"`), 400, "duplicate-field", []string{`"delay" stands twice`}},
		{"wrong kind of value", "POST", messages, "", with(`"delay": 60`), 400, "invalid-field", []string{`a string was expected at /delay, not a number: write it like "15m"`}},
		{"no channel", "POST", messages, "", `{"payload": 1, "delay": "1h"}`, 400, "invalid-field", []string{"channel is missing", "inbox:test"}},
		{"channel without broker", "POST", messages, "", `{"channel": "orders", "payload": 1, "delay": "1h"}`, 400, "invalid-field", []string{`"orders" is not of the form broker:target`}},
		{"unknown broker", "POST", messages, "", `{"channel": "kafkaa:orders", "payload": 1, "delay": "1h"}`, 400, "invalid-field", []string{"kafkaa:orders", "does not have", "it has http, https, inbox", "did you mean kafka:?"}},
		{"a broker's protocol", "POST", messages, "", `{"channel": "amqp:orders", "payload": 1, "delay": "1h"}`, 400, "invalid-field", []string{"did you mean rabbitmq:?"}},
		{"a broker in capitals", "POST", messages, "", `{"channel": "Inbox:a", "payload": 1, "delay": "1h"}`, 400, "invalid-field", []string{"did you mean inbox:?"}},
		{"broker not configured", "POST", messages, "", `{"channel": "rabbitmq:orders", "payload": 1, "delay": "1h"}`, 400, "invalid-field", []string{"start it with --rabbitmq"}},
		{"no time", "POST", messages, "", `{"channel": "inbox:a", "payload": 1}`, 400, "invalid-field", []string{"say when", "executionTime", "delay"}},
		{"both times", "POST", messages, "", with(`"delay": "1h", "executionTime": "2030-01-01T00:00:00Z"`), 400, "invalid-field", []string{"executionTime and delay exclude each other"}},
		{"time without zone", "POST", messages, "", with(`"executionTime": "2030-01-01T00:00:00"`), 400, "invalid-field", []string{"has no zone", "end it with Z", "+02:00"}},
		{"the year 20000", "POST", messages, "", with(`"executionTime": "20000-01-01T00:00:00Z"`), 400, "invalid-field", []string{"20000-01-01T00:00:00Z", "9999"}},
		{"the 30th of February", "POST", messages, "", with(`"executionTime": "2030-02-30T00:00:00Z"`), 400, "invalid-field", []string{"2030-02-30T00:00:00Z"}},
		{"negative delay", "POST", messages, "", with(`"delay": "-5m"`), 400, "invalid-field", []string{`delay "-5m" is negative`, "zero or more"}},
		{"no delay", "POST", messages, "", with(`"delay": "soon"`), 400, "invalid-field", []string{`"soon" is not a duration`, "PT15M or 15m"}},
		{"id with forbidden characters", "POST", messages, "", with(`"delay": "1h", "scheduleId": "a b"`), 400, "invalid-field", []string{`"a b" has a forbidden character at byte 1`, "letters, digits"}},
		{"id in the path with forbidden characters", "GET", messages + "/a%20b", "", ``, 400, "invalid-parameter", []string{"forbidden character at byte 1"}},
		{"id too long", "POST", messages, "", with(`"delay": "1h", "scheduleId": "` + strings.Repeat("x", 129) + `"`), 400, "invalid-field", []string{"129 bytes long: at most 128"}},
		{"no payload", "POST", messages, "", `{"channel": "inbox:a", "delay": "1h"}`, 400, "invalid-field", []string{"payload is missing", "null is one"}},
		{"a payload one byte over the limit", "POST", messages, "", `{"channel": "inbox:a", "delay": "1h", "payload": "` + strings.Repeat("x", postdate.PayloadBytesMax-1) + `"}`, 413, "too-large", []string{"262145 bytes", "at most 262144"}},
		{"a body one byte over the limit", "POST", messages, "", overLimit, 413, "too-large", []string{"742,741 bytes", "at most 742,740"}},
		{"forged header", "POST", messages, "", with(`"delay": "1h", "headers": {"Postdate-Attempt": "1"}`), 400, "invalid-field", []string{"Postdate keeps for its own"}},
		{"expired before its time", "POST", messages, "", with(`"executionTime": "2030-01-01T00:00:00Z", "expiresAt": "2029-01-01T00:00:00Z"`), 400, "invalid-field", []string{"must lie after the execution time"}},
		{"recurrence", "POST", messages, "", with(`"delay": "1h", "recurrence": {"every": "1h"}`), 400, "invalid-field", []string{"delay and recurrence exclude each other"}},
		{"a priority of 5", "POST", messages, "", with(`"delay": "1h", "priority": 5`), 400, "invalid-field", []string{"a string was expected at /priority, not a number", `"high", "medium" or "low"`}},
		{"no such priority", "POST", messages, "", with(`"delay": "1h", "priority": "urgent"`), 400, "invalid-field", []string{`priority "urgent" is not one of high, medium, low`}},
		{"wrong method", "DELETE", messages, "", ``, 405, "method-not-allowed", []string{"does not take DELETE", "GET", "POST"}},
		{"wrong path", "GET", "/v1/mesages", "", ``, 404, "no-such-path", []string{"/v1/mesages", "/openapi.json"}},
		{"wrong content type", "POST", messages, "text/plain", later, 415, "unsupported-media-type", []string{"text/plain is not supported", "application/json"}},
		{"no such message", "GET", messages + "/nobody", "", ``, 404, "not-found", []string{"no message with this scheduleId"}},
		{"cancelling no such message", "DELETE", messages + "/nobody", "", ``, 404, "not-found", []string{"no message with this scheduleId"}},
		{"unknown parameter", "GET", messages + "?state=PENDING", "", ``, 400, "invalid-parameter", []string{"state"}},
		{"unknown status", "GET", messages + "?status=SENT", "", ``, 400, "invalid-parameter", []string{"SENT", "PENDING, DELIVERED, DELIVERY_FAILED, CANCELLED"}},
		{"no cursor", "GET", "/v1/inbox/a?after=xyz", "", ``, 400, "invalid-parameter", []string{"cursor"}},
		{"too long a wait", "GET", "/v1/inbox/a?wait=1h", "", ``, 400, "invalid-parameter", []string{"between 0s and 30s"}},
	}
}

// TestBadInput sends the mistakes of clients to a real node: each is answered with a problem
// whose detail helps, and nothing is scheduled.
func TestBadInput(t *testing.T) {
	_, api := start(t, config(t))
	for _, test := range badInputs() {
		t.Run(test.name, func(t *testing.T) {
			var body []byte
			if test.method == http.MethodPost {
				body = []byte(test.body)
			}
			call := client.Call{Method: test.method, Path: test.path, Body: body}
			if test.contentType != "" {
				call.Header = http.Header{"Content-Type": {test.contentType}}
			}
			a, err := api.Do(t.Context(), call)
			var p client.Problem
			if json.Unmarshal(a.Body, &p) != nil {
				t.Fatalf("%d %s, %v", a.Status, a.Body, err)
			}
			if a.Status != test.code || p.Status != test.code || a.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("status %d as %s, want %d; %s", a.Status, a.Header.Get("Content-Type"), test.code, a.Body)
			}
			if p.Type != client.ProblemType("urn:postdate:problem:"+test.kind) || p.Title == "" {
				t.Errorf("type %q, title %q; want the type %s", p.Type, p.Title, test.kind)
			}
			for _, w := range test.words {
				if !strings.Contains(p.Detail, w) {
					t.Errorf("the detail %q has no %q", p.Detail, w)
				}
			}
		})
	}
	if all := shown(t, api); len(all) > 0 {
		t.Errorf("something was scheduled: %+v", all)
	}
}

// A bad line in a batch fails alone, and its result is in its place.
func TestBatchWithOneBadLine(t *testing.T) {
	_, api := start(t, config(t))
	lines := strings.Join([]string{
		`{"scheduleId": "first", "channel": "inbox:a", "payload": 1, "delay": "1h"}`,
		`{"scheduleId": "second", "channel": "inbox:a", "payload": `,
		`{"scheduleId": "third", "channel": "inbox:a", "payload": 3, "dely": "1h"}`,
		`{"scheduleId": "fourth", "channel": "inbox:a", "payload": 4, "delay": "1h"}`,
	}, "\n")
	a, err := api.Do(t.Context(), client.Call{
		Method: http.MethodPost, Path: "/v1/messages/batch", Body: []byte(lines), Header: http.Header{"Content-Type": {"application/x-ndjson"}},
	})
	if err != nil || a.Status != http.StatusOK {
		t.Fatal(a.Status, err)
	}
	var answer struct{ Results []client.Result }
	if err := json.Unmarshal(a.Body, &answer); err != nil || len(answer.Results) != 4 {
		t.Fatalf("%s, %v", a.Body, err)
	}
	for i, want := range []string{"", "ends too early", `did you mean "delay"?`, ""} {
		r := answer.Results[i]
		switch {
		case want == "" && (r.Problem != nil || r.Status != "PENDING"):
			t.Errorf("line %d: %+v, want PENDING", i+1, r)
		case want != "" && (r.Problem == nil || !strings.Contains(r.Problem.Detail, want) || r.Problem.Status != 400):
			t.Errorf("line %d: %s, want %q", i+1, a.Body, want)
		}
	}
	if all := shown(t, api); len(all) != 2 || all["first"].Status != "PENDING" || all["fourth"].Status != "PENDING" {
		t.Errorf("scheduled are %+v", all)
	}
}
