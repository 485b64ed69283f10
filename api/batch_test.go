package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postdate/postdate"
)

// batchResults returns the results of a batch in a short form: each id with its
// status or the type of its error.
func batchResults(t *testing.T, a *answer) []string {
	t.Helper()
	var got struct {
		Results []struct {
			ScheduleID string `json:"scheduleId"`
			Status     string `json:"status"`
			Error      struct {
				Type    string `json:"type"`
				Pointer string `json:"pointer"`
				Offset  int    `json:"offset"`
			} `json:"error"`
		} `json:"results"`
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 {
		t.Fatal(a.status, a.body, err)
	}
	short := []string{}
	for _, r := range got.Results {
		text := r.ScheduleID + " " + r.Status + strings.TrimPrefix(r.Error.Type, ProblemPrefix) + r.Error.Pointer
		if r.Error.Offset > 0 {
			text += fmt.Sprint(" @", r.Error.Offset)
		}
		short = append(short, text)
	}
	return short
}

func wantResults(t *testing.T, a *answer, want ...string) {
	t.Helper()
	if got := batchResults(t, a); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got\n%s\nwant\n%s\nin %s", strings.Join(got, "\n"), strings.Join(want, "\n"), a.body)
	}
}

// badItems are items that are JSON but not messages, with their results.
var badItems = []struct{ body, result string }{
	{`7`, " invalid-field"},
	{`"text"`, " invalid-field"},
	{`[[{"a":[1,{}]}]]`, " invalid-field"},
	{`{"scheduleId":"x","chanel":{"deep":[1,2,{"a":"]}"}]}}`, "x unknown-field/chanel"},
	{`{"scheduleId":"x","channel":["a"]}`, "x invalid-field/channel"},
	{`{"scheduleId":"x","payload":{"a":1,"a":2},"channel":"inbox:test"}`, "x duplicate-field/payload/a"},
	{`{"scheduleId":"x y","channel":"inbox:test"}`, "x y invalid-field/scheduleId"},
	{`{"headers":{"a":{}},"channel":"inbox:test"}`, " invalid-field/headers/a"},
	{`{"scheduleId":"x","retry":{"maxAttempts":"\"}"}}`, "x invalid-field/retry/maxAttempts"},
}

// TestOneBadItemFailsAlone puts every kind of bad item between good ones, in an
// array and in lines.
func TestOneBadItemFailsAlone(t *testing.T) {
	for _, bad := range badItems {
		for _, format := range []struct{ open, between, end, mediaType string }{
			{"[", ",", "]", "application/json"},
			{" [ ", " ,\n ", " ] \n", "application/json"},
			{"", "\n", "\n", "application/x-ndjson"},
			{"\n\r\n", "\r\n\n", "", "application/x-ndjson; charset=utf-8"},
		} {
			r := newRig(t)
			body := format.open + strings.Join([]string{order("a"), bad.body, order("b"), bad.body}, format.between) + format.end
			a := r.send("POST", "/v1/messages/batch", body, "Content-Type: "+format.mediaType)
			wantResults(t, a, "a PENDING", bad.result, "b PENDING", bad.result)
			if len(r.store.Rows) != 2 || len(r.nudges) != 2 {
				t.Errorf("%s: %d stored, %d nudges", body, len(r.store.Rows), len(r.nudges))
			}
		}
	}
}

func TestBatchLinesThatAreNotJSON(t *testing.T) {
	r := newRig(t)
	first := order("a")
	body := first + "\n{\"scheduleId\":\"x\",}\n" + order("b") + "\n{\"scheduleId\":\"y"
	a := r.send("POST", "/v1/messages/batch", body, "Content-Type: application/x-ndjson")
	wantResults(t, a, "a PENDING", fmt.Sprint("x malformed-json @", len(first)+1+17), "b PENDING", fmt.Sprint(" malformed-json @", len(body)))
	latin := "[" + first + ",{\"key\":\"\xff\"}," + order("b") + "]"
	a = r.send("POST", "/v1/messages/batch", latin)
	if got := batchResults(t, a); len(got) != 3 || !strings.HasPrefix(got[1], " malformed-json") || got[2] != "b PENDING" {
		t.Errorf("%q", got)
	}
}

func TestBrokenArrayDoesNothing(t *testing.T) {
	r := newRig(t)
	for body, offset := range map[string]string{
		"[" + order("a") + ",":                    `too early`,
		"[" + order("a"):                          `too early`,
		"[" + order("a") + ",]":                   `"offset":`,
		"[" + order("a") + " " + order("b") + "]": `"offset":`,
		"[" + order("a") + ",{\"a\":}]":           `"offset":`,
		"[" + order("a") + "] x":                  `"offset":`,
		"[" + order("a") + "][]":                  `"offset":`,
		" ":                                       `empty`,
	} {
		r.send("POST", "/v1/messages/batch", body).problem(400, MalformedJSON, offset)
	}
	r.send("POST", "/v1/messages/batch", order("a")).problem(400, InvalidField, "array", "application/x-ndjson")
	r.send("POST", "/v1/messages/batch", "[]", "Content-Type: text/csv").problem(415, UnsupportedContent, "application/x-ndjson")
	if len(r.store.Rows) != 0 {
		t.Errorf("%d were stored", len(r.store.Rows))
	}
	wantResults(t, r.send("POST", "/v1/messages/batch", " [ ] "))
	wantResults(t, r.send("POST", "/v1/messages/batch", "\n", "Content-Type: application/x-ndjson"))
}

func TestBatchIsOneInsert(t *testing.T) {
	r := newRig(t)
	inserts := 0
	r.store.seen = func(_ context.Context, method string) {
		if method == "Insert" {
			inserts++
		}
	}
	r.send("POST", "/v1/messages", strings.Replace(order("b"), "1}", "2}", 1))
	r.send("POST", "/v1/messages", order("c"))
	inserts = 0
	a := r.send("POST", "/v1/messages/batch", "["+order("a")+","+order("b")+","+order("c")+","+order("a")+"]", "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Tracestate: a=1")
	wantResults(t, a, "a PENDING", "b exists", "c PENDING", "a PENDING")
	if inserts != 1 {
		t.Errorf("%d inserts", inserts)
	}
	if rec := r.store.Rows[keyOf("a")]; rec.Traceparent == "" || rec.Tracestate != "a=1" {
		t.Errorf("traceparent %q, tracestate %q", rec.Traceparent, rec.Tracestate)
	}
	a = r.send("POST", "/v1/messages/batch", `[{"channel":"inbox:test","delay":"1h","payload":1}]`)
	if got := batchResults(t, a); len(got[0]) != len("00000000-0000-7000-8000-000000000000 PENDING") {
		t.Errorf("no id for a message without one: %q", got)
	}
}

// TestBatchResults compares each result with the answer to POST /v1/messages.
func TestBatchResults(t *testing.T) {
	r := newRig(t)
	single := r.send("POST", "/v1/messages", order("a")).body
	delayed := `{"scheduleId":"d","channel":"inbox:test","delay":"1h","payload":1,"expiresAt":"2027-01-30T14:00:00Z"}`
	for _, want := range []string{"true", "false"} {
		a := r.send("POST", "/v1/messages/batch", "["+order("a")+","+order("b")+","+order("b")+","+delayed+"]")
		other := strings.Replace(single, `"a","bucket":`+fmt.Sprint(keyOf("a").Bucket), `"b","bucket":`+fmt.Sprint(keyOf("b").Bucket), 1)
		result := func(answer, created string) string {
			return strings.TrimSuffix(answer, "}") + `,"created":` + created + "}"
		}
		begin := `{"results":[` + result(single, "false") + "," + result(other, want) + "," + result(other, "false") + `,{"scheduleId":"d",`
		if !strings.HasPrefix(a.body, begin) || !strings.HasSuffix(a.body, `"created":`+want+"}]}") {
			t.Errorf("got\n%s\nwant\n%s", a.body, begin)
		}
		r.pass(2 * time.Hour) // the delay would now end after expiresAt
	}
}

func TestBatchLimits(t *testing.T) {
	r := newRig(t)
	items := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",{\"scheduleId\":\"m%d\",\"channel\":\"inbox:test\",\"delay\":\"1h\",\"payload\":1}", i)
		}
		return b.String()[1:]
	}
	a := r.send("POST", "/v1/messages/batch", "["+items(postdate.BatchItemsMax)+"]")
	if got := batchResults(t, a); len(got) != postdate.BatchItemsMax || got[9_999] != "m9999 PENDING" {
		t.Fatal(len(got))
	}
	r = newRig(t)
	r.send("POST", "/v1/messages/batch", "["+items(postdate.BatchItemsMax+1)+"]").problem(413, TooLarge, "10,000 items")
	if len(r.store.Rows) != 0 {
		t.Errorf("%d were stored", len(r.store.Rows))
	}
	// One batch may be far larger than one message, up to its own limit.
	big := strings.Repeat(" ", 2<<20)
	wantResults(t, r.send("POST", "/v1/messages/batch", "["+order("a")+big+"]"), "a PENDING")
	whole := "[" + order("a") + "]"
	whole += strings.Repeat(" ", postdate.BatchBytesMax+1-len(whole))
	r.send("POST", "/v1/messages/batch", whole).problem(413, TooLarge, "67,108,865 bytes")
}
