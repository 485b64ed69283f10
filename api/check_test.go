package api

import (
	"strings"
	"testing"
	"time"
)

const okay = `"channel":"inbox:test","delay":"1h","payload":1`

func long(n int) string { return strings.Repeat("x", n) }

// badMessages are bodies that are refused, each with its problem and the detail.
var badMessages = []struct {
	name, body string
	status     int
	kind       ProblemType
	parts      []string
}{
	{"empty", ` `, 400, MalformedJSON, []string{"empty"}},
	{"malformed", `{"channel":"inbox:test",}`, 400, MalformedJSON, []string{`"offset":23`, "(at byte 23)"}},
	{"cut off", `{"channel":"inb`, 400, MalformedJSON, []string{"too early"}},
	{"two values", `{` + okay + `} {}`, 400, MalformedJSON, []string{`"offset":`}},
	{"not UTF-8", "{" + okay + ",\"key\":\"\xff\"}", 400, MalformedJSON, []string{"UTF-8"}},
	{"array", `[]`, 400, InvalidField, []string{"an object was expected at the top of the body, not an array"}},
	{"number", `7`, 400, InvalidField, []string{"an object was expected"}},
	{"unknown field", `{"chanel":"inbox:test"}`, 400, UnknownField, []string{`"pointer":"/chanel"`, `"suggestion":"channel"`, "did you mean"}},
	{"unknown far", `{"zzzzzzzz":1}`, 400, UnknownField, []string{`"pointer":"/zzzzzzzz"`, "known are scheduleId, channel"}},
	{"other case", `{"Channel":"inbox:test"}`, 400, UnknownField, []string{`"suggestion":"channel"`}},
	{"unknown inside", `{` + okay + `,"retry":{"maxAttempt":3}}`, 400, UnknownField, []string{`"pointer":"/retry/maxAttempt"`, `"suggestion":"maxAttempts"`}},
	{"twice", `{` + okay + `,"delay":"2h"}`, 400, DuplicateField, []string{`"pointer":"/delay"`}},
	{"twice in payload", `{"channel":"inbox:test","delay":"1h","payload":{"a":1,"a":2}}`, 400, DuplicateField, []string{`"pointer":"/payload/a"`}},
	{"twice in headers", `{` + okay + `,"headers":{"a":"1","a":"2"}}`, 400, DuplicateField, []string{`"pointer":"/headers/a"`}},
	{"wrong type", `{"channel":7}`, 400, InvalidField, []string{"a string was expected at /channel, not a number", `"pointer":"/channel"`}},
	{"wrong type inside", `{` + okay + `,"retry":{"maxAttempts":"3"}}`, 400, InvalidField, []string{"a whole number was expected at /retry/maxAttempts, not a string"}},
	{"fraction", `{` + okay + `,"retry":{"maxAttempts":1.5}}`, 400, InvalidField, []string{"a whole number was expected at /retry/maxAttempts, not 1.5"}},
	{"header no string", `{` + okay + `,"headers":{"a":1}}`, 400, InvalidField, []string{"a string was expected at /headers/a, not a number"}},
	{"headers no object", `{` + okay + `,"headers":[]}`, 400, InvalidField, []string{"an object of strings was expected at /headers, not an array"}},

	{"no channel", `{"delay":"1h","payload":1}`, 400, InvalidField, []string{"channel is missing", `"pointer":"/channel"`}},
	{"null channel", `{"channel":null,"delay":"1h","payload":1}`, 400, InvalidField, []string{"channel is missing"}},
	{"bad channel", `{"channel":"orders","delay":"1h","payload":1}`, 400, InvalidField, []string{"broker:target"}},
	{"bad inbox", `{"channel":"inbox:a b","delay":"1h","payload":1}`, 400, InvalidField, []string{"forbidden character"}},
	{"unknown broker", `{"channel":"rabbit:orders","delay":"1h","payload":1}`, 400, InvalidField, []string{"there are inbox, rabbitmq"}},
	{"empty id", `{"scheduleId":"",` + okay + `}`, 400, InvalidField, []string{`"pointer":"/scheduleId"`, "empty"}},
	{"bad id", `{"scheduleId":"a/b",` + okay + `}`, 400, InvalidField, []string{"forbidden character at byte 1"}},
	{"long id", `{"scheduleId":"` + long(129) + `",` + okay + `}`, 400, InvalidField, []string{"at most 128"}},

	{"no time", `{"channel":"inbox:test","payload":1}`, 400, InvalidField, []string{"give executionTime", "delay (", "or recurrence"}},
	{"both times", `{` + okay + `,"executionTime":"2027-01-31T12:00:00Z"}`, 400, InvalidField, []string{"exclude each other"}},
	{"no zone", `{"channel":"inbox:test","payload":1,"executionTime":"2027-01-31T12:00:00"}`, 400, InvalidField, []string{"no zone", `"pointer":"/executionTime"`}},
	{"year 20000", `{"channel":"inbox:test","payload":1,"executionTime":"20000-01-31T12:00:00Z"}`, 400, InvalidField, []string{`"pointer":"/executionTime"`}},
	{"before 1970", `{"channel":"inbox:test","payload":1,"executionTime":"1969-01-31T12:00:00Z"}`, 400, InvalidField, []string{"out of range"}},
	{"negative delay", `{"channel":"inbox:test","payload":1,"delay":"-PT1S"}`, 400, InvalidField, []string{"negative", `"pointer":"/delay"`}},
	{"long delay", `{"channel":"inbox:test","payload":1,"delay":"P36601D"}`, 400, InvalidField, []string{"at most 36600 days"}},
	{"no duration", `{"channel":"inbox:test","payload":1,"delay":"15"}`, 400, InvalidField, []string{"PT15M or 15m"}},
	{"months", `{"channel":"inbox:test","payload":1,"delay":"P1M"}`, 400, InvalidField, []string{"length varies"}},
	{"expired", `{` + okay + `,"expiresAt":"2027-01-30T13:00:00Z"}`, 400, InvalidField, []string{`"pointer":"/expiresAt"`, "must lie after"}},
	{"bad expiry", `{` + okay + `,"expiresAt":"tomorrow"}`, 400, InvalidField, []string{`"pointer":"/expiresAt"`}},

	{"no payload", `{"channel":"inbox:test","delay":"1h"}`, 400, InvalidField, []string{"payload is missing", "null is one"}},
	{"encoding", `{` + okay + `,"payloadEncoding":"hex"}`, 400, InvalidField, []string{`"pointer":"/payloadEncoding"`}},
	{"no base64", `{"channel":"inbox:test","delay":"1h","payload":"a_-b","payloadEncoding":"base64"}`, 400, InvalidField, []string{"standard alphabet"}},
	{"loose base64", `{"channel":"inbox:test","delay":"1h","payload":"/wB=","payloadEncoding":"base64"}`, 400, InvalidField, []string{"base64"}},
	{"base64 in lines", `{"channel":"inbox:test","delay":"1h","payload":"/w\nA=","payloadEncoding":"base64"}`, 400, InvalidField, []string{"one line"}},
	{"base64 of a number", `{` + okay + `,"payloadEncoding":"base64"}`, 400, InvalidField, []string{"must be a string, not a number"}},
	{"content type", `{` + okay + `,"contentType":"json"}`, 400, InvalidField, []string{`"pointer":"/contentType"`}},
	{"content type lines", `{` + okay + `,"contentType":"text/plain;\r\n a=b"}`, 400, InvalidField, []string{`"pointer":"/contentType"`}},
	{"long content type", `{` + okay + `,"contentType":"a/` + long(255) + `"}`, 400, InvalidField, []string{"at most 256"}},
	{"long key", `{` + okay + `,"key":"` + long(1025) + `"}`, 400, InvalidField, []string{"at most 1024"}},

	{"header name", `{` + okay + `,"headers":{"a b":"1"}}`, 400, InvalidField, []string{`"pointer":"/headers/a b"`, "forbidden character at byte 1"}},
	{"header without name", `{` + okay + `,"headers":{"":"1"}}`, 400, InvalidField, []string{"1 to 128"}},
	{"our header", `{` + okay + `,"headers":{"Postdate-Attempt":"1"}}`, 400, InvalidField, []string{"begins with postdate-"}},
	{"traceparent", `{` + okay + `,"headers":{"TraceParent":"1"}}`, 400, InvalidField, []string{"header of the HTTP request"}},
	{"tracestate", `{` + okay + `,"headers":{"TraceState":"a=1"}}`, 400, InvalidField, []string{"header tracestate", "header of the HTTP request"}},
	{"message-id", `{` + okay + `,"headers":{"message-id":"1"}}`, 400, InvalidField, []string{"scheduleId"}},
	{"message-id of AMQP", `{` + okay + `,"headers":{"Amqp-Message-Id":"1"}}`, 400, InvalidField, []string{`"pointer":"/headers/Amqp-Message-Id"`, "taken from RabbitMQ", "scheduleId"}},
	{"direct reply", `{` + okay + `,"headers":{"Amqp-Reply-To":"amq.rabbitmq.reply-to"}}`, 400, InvalidField, []string{`"pointer":"/headers/Amqp-Reply-To"`, "name a queue"}},
	{"header value", `{` + okay + `,"headers":{"a":"1\r\nb: 2"}}`, 400, InvalidField, []string{"control character"}},
	{"long header", `{` + okay + `,"headers":{"a":"` + long(4097) + `"}}`, 400, InvalidField, []string{"at most 4096"}},
	{"pointer with a slash", `{` + okay + `,"headers":{"a/b":"1"}}`, 400, InvalidField, []string{`"pointer":"/headers/a~1b"`}},

	{"no attempts", `{` + okay + `,"retry":{"maxAttempts":0}}`, 400, InvalidField, []string{`"pointer":"/retry/maxAttempts"`}},
	{"many attempts", `{` + okay + `,"retry":{"maxAttempts":1001}}`, 400, InvalidField, []string{"1000"}},
	{"no backoff", `{` + okay + `,"retry":{"minBackoff":"0s"}}`, 400, InvalidField, []string{`"pointer":"/retry/minBackoff"`}},
	{"long backoff", `{` + okay + `,"retry":{"maxBackoff":"P8D"}}`, 400, InvalidField, []string{"7 days"}},
	{"backoffs", `{` + okay + `,"retry":{"minBackoff":"2m","maxBackoff":"1m"}}`, 400, InvalidField, []string{"longer than maxBackoff"}},
	{"no wait", `{` + okay + `,"retry":{"maxParked":"PT0S"}}`, 400, InvalidField, []string{`"pointer":"/retry/maxParked"`, "between 1ms and 3660 days"}},
	{"long wait", `{` + okay + `,"retry":{"maxParked":"P3661D"}}`, 400, InvalidField, []string{"3660 days"}},
	{"a wait of a day", `{` + okay + `,"retry":{"maxParked":"a day"}}`, 400, InvalidField, []string{`"pointer":"/retry/maxParked"`, "is not a duration"}},
	{"recurrence and a delay", `{` + okay + `,"recurrence":{"every":"PT1S"}}`, 400, InvalidField, []string{"delay and recurrence exclude each other", "start or anchor", `"pointer":"/delay"`}},
	{"a label", `{` + okay + `,"labels":"a"}`, 400, InvalidField, []string{`"pointer":"/labels"`, "an array was expected at /labels, not a string"}},
	{"labels in an object", `{` + okay + `,"labels":{"a":"b"}}`, 400, InvalidField, []string{"an array was expected"}},
	{"a label of 5", `{` + okay + `,"labels":["a",5]}`, 400, InvalidField, []string{`"pointer":"/labels/1"`, "a string was expected"}},
	{"a null label", `{` + okay + `,"labels":[null]}`, 400, InvalidField, []string{`"pointer":"/labels/0"`, "not null"}},
	{"empty label", `{` + okay + `,"labels":["a",""]}`, 400, InvalidField, []string{`"pointer":"/labels/1"`, "label is empty"}},
	{"bad label", `{` + okay + `,"labels":["a/b"]}`, 400, InvalidField, []string{`"pointer":"/labels/0"`, "forbidden character at byte 1"}},
	{"long label", `{` + okay + `,"labels":["` + long(129) + `"]}`, 400, InvalidField, []string{"at most 128"}},
	{"label twice", `{` + okay + `,"labels":["a","b","a"]}`, 400, InvalidField, []string{`"pointer":"/labels/2"`, `label \"a\" stands twice: leave one`}},
	{"a priority of 5", `{` + okay + `,"priority":5}`, 400, InvalidField, []string{`"pointer":"/priority"`, `a string was expected at /priority, not a number: write \"high\", \"medium\" or \"low\"`}},
	{"no such priority", `{` + okay + `,"priority":"urgent"}`, 400, InvalidField, []string{`"pointer":"/priority"`, `priority \"urgent\" is not one of high, medium, low`}},
	{"high in capitals", `{` + okay + `,"priority":"HIGH"}`, 400, InvalidField, []string{"high, medium, low"}},
	{"empty priority", `{` + okay + `,"priority":""}`, 400, InvalidField, []string{"high, medium, low"}},
	{"long priority", `{` + okay + `,"priority":"` + long(9000) + `"}`, 400, InvalidField, []string{`x…\" is not one of high, medium, low`}},
}

func TestBadMessages(t *testing.T) {
	r := newRig(t)
	for _, test := range badMessages {
		t.Run(test.name, func(t *testing.T) {
			r.t = t
			r.send("POST", "/v1/messages", test.body).problem(test.status, test.kind, test.parts...)
		})
	}
	if len(r.store.Rows) != 0 {
		t.Errorf("%d messages were stored", len(r.store.Rows))
	}
}

func TestManyHeaders(t *testing.T) {
	r := newRig(t)
	headers := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,"h` + strings.Repeat("i", i+1) + `":"v"`)
		}
		return `{"channel":"inbox:test","delay":"1h","payload":1,"headers":{` + b.String()[1:] + `}}`
	}
	if a := r.send("POST", "/v1/messages", headers(64)); a.status != 201 {
		t.Error(a.status, a.body)
	}
	r.send("POST", "/v1/messages", headers(65)).problem(400, InvalidField, "at most 64")
}

// TestAccepted lists bodies that must not be refused.
func TestAccepted(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{
		`{"channel":"inbox:test","executionTime":"2001-01-01T00:00:00Z","payload":1}`, // past: now
		`{"channel":"inbox:test","executionTime":"9999-12-31T23:59:59.999Z","payload":1}`,
		`{"channel":"inbox:test","delay":"0s","payload":1}`,
		`{"channel":"inbox:test","delay":"P36600D","payload":1}`,
		`{"channel":"inbox:test","delay":"1s","payload":1,"recurrence":null,"priority":null,"executionTime":null,"retry":null,"headers":null,"scheduleId":null}`,
		`{"channel":"inbox:test","delay":"1s","payload":1,"retry":{"maxAttempts":1000,"minBackoff":"1ms","maxBackoff":"P7D","maxParked":"P3660D"}}`,
		`{"channel":"inbox:test","delay":"1s","payload":1,"retry":{}}`,
		`{"channel":"inbox:test","delay":"1s","payload":1,"priority":"low"}`,
		`{"channel":"rabbitmq:exchange/routing.key","delay":"1s","payload":1,"headers":{"x-a":"","X-B":"\t"}}`,
	} {
		if a := r.send("POST", "/v1/messages", body); a.status != 201 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"PT15M": 15 * time.Minute, "15m": 15 * time.Minute, "P1DT2H3M4.5S": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond,
		"P2W": 14 * 24 * time.Hour, "PT0S": 0, "0": 0, "1h30m": 90 * time.Minute, "-PT1S": -time.Second, "-1s": -time.Second,
		"PT0.001S": time.Millisecond, "250ms": 250 * time.Millisecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "P", "PT", "P1DT", "PT15", "P1D1D", "PP1D", "15", "m", "P1Y", "P1M", "P1H", "PT1D", "P½D", "PT1M1H", "p1d", "P-1D", "PT.S",
		"P99999999999999999D", "PT9999999999999999999999S", "9999999h", strings.Repeat("1s", 40),
	} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%s: %s", text, got)
		}
	}
}
