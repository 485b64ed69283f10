package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/proctest"
)

func TestSendBodies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte{0xff, 0xfe}, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		args  []string
		stdin string
		want  string
	}{
		{"JSON, byte for byte", []string{"--in", "5s", "--data", `{"a": "<b>",  "n": 1.0}`}, "",
			`{"channel":"inbox:x","delay":"5s","payload":{"a": "<b>",  "n": 1.0}}`},
		{"text", []string{"--at", "2027-01-31T09:30:00Z", "--data", "hello \"you\""}, "",
			`{"channel":"inbox:x","executionTime":"2027-01-31T09:30:00Z","contentType":"text/plain; charset=utf-8","payload":"hello \"you\""}`},
		{"empty text", []string{"--in", "5s", "--data", ""}, "",
			`{"channel":"inbox:x","delay":"5s","contentType":"text/plain; charset=utf-8","payload":""}`},
		{"JSON from standard input", []string{"--in", "5s", "--data", "-"}, " [1]\n",
			`{"channel":"inbox:x","delay":"5s","payload":[1]}`},
		{"text from standard input", []string{"--in", "5s", "--data", "-"}, "a\nb\n",
			`{"channel":"inbox:x","delay":"5s","contentType":"text/plain; charset=utf-8","payload":"a\nb\n"}`},
		{"bytes from a file", []string{"--in", "5s", "--data", "@" + file}, "",
			`{"channel":"inbox:x","delay":"5s","contentType":"application/octet-stream","payloadEncoding":"base64","payload":"//4="}`},
		{"a type of one's own", []string{"--in", "5s", "--data", "<p>", "--content-type", "text/html"}, "",
			`{"channel":"inbox:x","delay":"5s","contentType":"text/html","payload":"<p>"}`},
		{"JSON as text", []string{"--in", "5s", "--data", "42", "--content-type", "text/plain"}, "",
			`{"channel":"inbox:x","delay":"5s","contentType":"text/plain","payload":"42"}`},
		{"another name for JSON", []string{"--in", "5s", "--data", `{"a":1}`, "--content-type", "text/json"}, "",
			`{"channel":"inbox:x","delay":"5s","contentType":"text/json","payload":{"a":1}}`},
		{"a JSON type of one's own", []string{"--in", "5s", "--data", `{"a":1}`, "--content-type", "application/cloudevents+json; charset=utf-8"}, "",
			`{"channel":"inbox:x","delay":"5s","contentType":"application/cloudevents+json; charset=utf-8","payload":{"a":1}}`},
		{"all the rest", []string{"--in", "5s", "--data", "1", "--id", "o-1", "--key", "k", "--priority", "high", "--label", "a", "--label", "b,c", "--expires-at", "2028-01-01T00:00:00Z", "--header", "a=b=c", "--header", "d="}, "",
			`{"scheduleId":"o-1","channel":"inbox:x","delay":"5s","headers":{"a":"b=c","d":""},"key":"k","priority":"high","labels":["a","b,c"],"expiresAt":"2028-01-01T00:00:00Z","payload":1}`},
		{"a series", []string{"--every", "10s", "--anchor", "2027-01-31T09:30:00Z", "--end", "2028-01-31T09:30:00Z", "--max-runs", "7", "--jitter", "PT1S", "--misfire", "skip", "--misfire-after", "5m", "--data", "1"}, "",
			`{"channel":"inbox:x","recurrence":{"every":"10s","anchor":"2027-01-31T09:30:00Z","end":"2028-01-31T09:30:00Z","maxRuns":7,"jitter":"PT1S","misfire":"skip","misfireAfter":"5m"},"payload":1}`},
		{"a series by cron", []string{"--cron", "0 9 * * *", "--timezone", "UTC", "--start", "2027-01-31T09:30:00Z", "--gap", "skip", "--overlap", "both", "--data", "1"}, "",
			`{"channel":"inbox:x","recurrence":{"cron":"0 9 * * *","timezone":"UTC","start":"2027-01-31T09:30:00Z","gap":"skip","overlap":"both"},"payload":1}`},
	} {
		s := newStandIn()
		r := call([]string{"POSTDATE_SERVER=" + s.start(t)}, test.stdin, append([]string{"send", "--channel", "inbox:x"}, test.args...)...)
		if r.code != exitOK || len(s.bodies) != 1 {
			t.Errorf("%s: %+v", test.name, r)
			continue
		}
		// The encoder escapes < and > outside the payload.
		got := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(s.bodies[0])
		if got != test.want {
			t.Errorf("%s: sent\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

func TestSendGetCancel(t *testing.T) {
	s := newStandIn()
	env := []string{"POSTDATE_SERVER=" + s.start(t)}
	send := []string{"send", "--at", "2027-01-31T09:30:00.000Z", "--channel", "inbox:x", "--data", `{"n":1}`, "--id", "o-1", "--priority", "low", "--label", "x", "--label", "y", "--header", "b=2", "--header", "a=1"}
	for _, test := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{send, 0, "scheduled o-1 for 2027-01-31T09:30:00.000Z (PENDING, bucket 7)\n", ""},
		{send, 0, "was scheduled already: o-1 for 2027-01-31T09:30:00.000Z (PENDING, bucket 7)\n", ""},
		{append(send, "--json"), 0, `{"bucket":7,"executionTime":"2027-01-31T09:30:00.000Z","scheduleId":"o-1","status":"PENDING"}` + "\n", ""},
		{[]string{"send", "--in", "5s", "--channel", "nowhere:x", "--data", "x"}, 1, "", "postdate: there is no broker \"nowhere\": name one of inbox, rabbitmq\n"},
		{[]string{"get", "o-1"}, 0, `scheduleId     o-1
status         PENDING
channel        inbox:x
priority       low
labels         x y
executionTime  2027-01-31T09:30:00.000Z
attempts       0
header a       1
header b       2
payload        {"n":1}
`, ""},
		{[]string{"get", "o-2"}, 1, "", "postdate: there is no message \"o-2\"\n"},
		{[]string{"get", "o/2"}, 1, "", "postdate: scheduleId \"o/2\" has a forbidden character at byte 1: allowed are letters, digits and - _ . : ~ @ + = ,\n"},
		{[]string{"cancel", "o-1"}, 0, "cancelled o-1\n", ""},
		{[]string{"cancel", "o-2", "o-1"}, 1, "cancelled o-1\n", "postdate: o-2: there is no message \"o-2\"\n"},
		{[]string{"cancel", "o-1", "--json"}, 0, `{"scheduleId":"o-1","status":"CANCELLED"}` + "\n", ""},
	} {
		if got, want := call(env, "", test.args...), (result{test.code, test.stdout, test.stderr}); got != want {
			t.Errorf("%v:\ngot  %+v\nwant %+v", test.args, got, want)
		}
	}
	s.messages["o-1"]["status"] = "DELIVERED"
	if got := call(env, "", "cancel", "o-1"); got.code != 1 || got.stderr != "postdate: message \"o-1\" is DELIVERED: too late to cancel it\n" {
		t.Errorf("a cancel that is too late: got %+v", got)
	}
}

// Get shows a message's latest move.
func TestMoveIsShown(t *testing.T) {
	s := newStandIn()
	s.messages["moved"] = map[string]any{
		"scheduleId": "moved", "channel": "inbox:x", "executionTime": "2027-01-31T09:30:00.000Z", "status": "PENDING", "attempts": 0, "priority": "medium", "payload": 1,
		"movedAt": "2027-01-30T18:00:00.000Z", "movedFrom": "2027-01-31T08:00:00.000Z",
	}
	const want = "executionTime  2027-01-31T09:30:00.000Z\nmovedAt        2027-01-30T18:00:00.000Z\nmovedFrom      2027-01-31T08:00:00.000Z\n"
	if r := call(nil, "", "get", "moved", "--server", s.start(t)); !strings.Contains(r.stdout, want) {
		t.Errorf("%+v\nwant %s", r, want)
	}
}

// Get and list show what a series has done, and when it goes on.
func TestSeriesIsShown(t *testing.T) {
	s := newStandIn()
	url := s.start(t)
	s.messages["a"] = map[string]any{
		"scheduleId": "a", "channel": "inbox:x", "executionTime": "2027-01-30T08:00:00.000Z", "status": "PENDING", "attempts": 0, "priority": "medium", "payload": 1,
		"recurrence": map[string]any{"cron": "0 9 * * *", "timezone": "Europe/Berlin", "start": "2027-01-30T00:00:00.000Z", "end": "2028-01-30T00:00:00.000Z",
			"maxRuns": 7, "jitter": "PT1M", "misfire": "skip", "misfireAfter": "PT1H30M", "gap": "skip", "overlap": "both"},
		"series": map[string]any{"paused": false, "last": "2027-01-30T08:00:00.000Z", "next": "2027-01-31T08:00:00.000Z", "fired": 3, "failed": 1, "skipped": 2, "history": []any{}},
	}
	s.messages["b"] = map[string]any{
		"scheduleId": "b", "channel": "inbox:x", "executionTime": "2027-01-31T09:30:00.000Z", "status": "PENDING", "attempts": 0, "priority": "medium", "payload": 1,
		"recurrence": map[string]any{"every": "PT1M0.5S", "anchor": "2027-01-30T00:00:00.000Z"},
		"series":     map[string]any{"paused": false, "ending": true, "fired": 0, "failed": 0, "skipped": 0, "history": []any{}},
	}
	s.messages["c"] = map[string]any{
		"scheduleId": "c", "channel": "inbox:x", "executionTime": "2027-01-31T09:30:00.000Z", "status": "PENDING", "attempts": 0, "priority": "medium", "payload": 1, "version": "17p",
		"recurrence": map[string]any{"every": "PT1M"},
		"series":     map[string]any{"paused": true, "last": "2027-01-31T09:30:00.000Z", "fired": 1, "failed": 0, "skipped": 0, "history": []any{}},
	}
	const rule = `"0 9 * * *" in Europe/Berlin, start 2027-01-30T00:00:00.000Z, end 2028-01-30T00:00:00.000Z, max-runs 7, jitter 1m0s, misfire skip, misfire-after 1h30m0s, gap skip, overlap both`
	const ending = "0 fired, 0 failed, 0 skipped; cancelled, and ends with an occurrence that may be on its way"
	for _, test := range []struct{ args, want string }{
		{"get a", `scheduleId     a
status         PENDING
channel        inbox:x
priority       medium
executionTime  2027-01-30T08:00:00.000Z
recurs         ` + rule + `
next           2027-01-31T08:00:00.000Z
last           2027-01-30T08:00:00.000Z
so far         3 fired, 1 failed, 2 skipped
attempts       0
payload        1
`},
		{"list", `SCHEDULE ID  DUE                       STATUS   ATTEMPTS  PRIORITY  CHANNEL
a            2027-01-31T08:00:00.000Z  PENDING  0         medium    inbox:x (` + rule + `: 3 fired, 1 failed, 2 skipped)
b            2027-01-31T09:30:00.000Z  PENDING  0         medium    inbox:x (every 1m0.5s, anchor 2027-01-30T00:00:00.000Z: ` + ending + `)
c            paused                    PENDING  0         medium    inbox:x (every 1m0s: 1 fired, 0 failed, 0 skipped)
`},
		{"get c", `scheduleId     c
status         PENDING
channel        inbox:x
priority       medium
executionTime  2027-01-31T09:30:00.000Z
recurs         every 1m0s
next           paused
last           2027-01-31T09:30:00.000Z
so far         1 fired, 0 failed, 0 skipped
attempts       0
version        17p
payload        1
`},
	} {
		if r := call(nil, "", append(strings.Fields(test.args), "--server", url)...); r.stdout != test.want || r.code != exitOK {
			t.Errorf("%s: %+v\nwant %s", test.args, r, test.want)
		}
	}
}

func TestPauseResumeTrigger(t *testing.T) {
	s := newStandIn()
	env := []string{"POSTDATE_SERVER=" + s.start(t)}
	for _, id := range []string{"a", "b"} {
		s.messages[id] = map[string]any{"scheduleId": id, "status": "PENDING", "series": map[string]any{"fired": 0}}
	}
	s.messages["o"] = map[string]any{"scheduleId": "o", "status": "PENDING"}
	const none, single = "there is no message \"c\"\n", "the message does not recur\n"
	for _, test := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"pause-series a", 0, "paused a\n", ""},
		{"pause-series b --json", 0, `{"scheduleId":"b","status":"PENDING"}` + "\n", ""},
		{"pause-series c o a", 1, "paused a\n", "postdate: c: " + none + "o: " + single},
		{"resume-series a", 0, "resumed a\n", ""},
		{"resume-series o", 1, "", "postdate: " + single},
		{"trigger a", 0, "triggered a/2027-01-31T09:30:00.001Z\n", ""},
		{"trigger a --json", 0, `{"scheduleId":"a/2027-01-31T09:30:00.002Z","status":"PENDING"}` + "\n", ""},
		{"trigger c b", 1, "triggered b/2027-01-31T09:30:00.001Z\n", "postdate: c: " + none},
		{"trigger a/2027-01-31T09:30:00.001Z", 1, "", "postdate: \"a/2027-01-31T09:30:00.001Z\" is an occurrence of a series, as a message of its own: it can be read and cancelled, but neither made nor changed\n"},
	} {
		if got, want := call(env, "", strings.Fields(test.args)...), (result{test.code, test.stdout, test.stderr}); got != want {
			t.Errorf("%v:\ngot  %+v\nwant %+v", test.args, got, want)
		}
	}
	for id, paused := range map[string]bool{"a": false, "b": true} {
		if series := s.messages[id]["series"].(map[string]any); series["paused"] != paused {
			t.Errorf("%s is %v", id, series)
		}
	}
	if got := call(env, "", "resume-series", "b", "--json"); got.code != 0 || s.messages["b"]["series"].(map[string]any)["paused"] != false {
		t.Errorf("%+v", got)
	}
}

func TestList(t *testing.T) {
	s := newStandIn()
	url := s.start(t)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.messages[id] = map[string]any{"scheduleId": id, "channel": "inbox:x", "executionTime": "2027-01-31T09:30:00.000Z", "status": "PENDING", "attempts": 2, "priority": "medium"}
	}
	r := call(nil, "", "list", "--server", url, "--limit", "3", "--status", "PENDING", "--channel", "inbox:x", "--label", "l", "--id-prefix", "p", "--recurring=false", "--from", "2027-01-01T00:00:00+01:00")
	want := result{stdout: `SCHEDULE ID  DUE                       STATUS   ATTEMPTS  PRIORITY  CHANNEL
a            2027-01-31T09:30:00.000Z  PENDING  2         medium    inbox:x
b            2027-01-31T09:30:00.000Z  PENDING  2         medium    inbox:x
c            2027-01-31T09:30:00.000Z  PENDING  2         medium    inbox:x
`, stderr: "There are more than these 3: --limit 0 shows all.\n"}
	if r != want {
		t.Errorf("got %+v\nwant %+v", r, want)
	}
	const first = "channel=inbox%3Ax&from=2027-01-01T00%3A00%3A00%2B01%3A00&idPrefix=p&label=l&limit=3&recurring=false&status=PENDING"
	const second = "channel=inbox%3Ax&cursor=b&from=2027-01-01T00%3A00%3A00%2B01%3A00&idPrefix=p&label=l&limit=1&recurring=false&status=PENDING"
	if len(s.queries) != 2 || s.queries[0] != first || s.queries[1] != second {
		t.Errorf("asked %q", s.queries)
	}
	r = call(nil, "", "list", "--server", url, "--limit", "0", "--json")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if r.code != 0 || len(lines) != 5 || r.stderr != "" {
		t.Fatalf("got %+v", r)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("%s is not JSON", line)
		}
	}
}

// Tail continues where it was when the server comes back, says once that it was away, and
// prints nothing twice.
func TestTailSurvivesARestart(t *testing.T) {
	s := newStandIn()
	first := &http.Server{Handler: s.handler()}
	l, err := net.Listen("tcp", proctest.Closed(t))
	if err != nil {
		t.Fatal(err)
	}
	go first.Serve(l)
	s.deliver("a", false)

	stdout, out := io.Pipe()
	stderr, errs := io.Pipe()
	code := make(chan int)
	go func() {
		c := run([]string{"tail", "inbox:x", "--server", l.Addr().String(), "--count", "3"},
			process{stdin: strings.NewReader(""), stdout: out, stderr: errs})
		out.Close()
		errs.Close()
		code <- c
	}()
	const at = "2027-01-31T09:30:00.004Z  +4 ms  "
	line := func(r io.Reader) string { return readLine(t, r) }
	if got := line(stdout); got != at+`a  "hello"` {
		t.Errorf("printed %q", got)
	}
	first.Close()
	if got := line(stderr); !strings.Contains(got, "waiting for it") {
		t.Errorf("said %q", got)
	}
	second := &http.Server{Handler: s.handler()}
	l, err = net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	go second.Serve(l)
	defer second.Close()
	s.deliver("b", true)
	s.deliver("c", false)
	if got := line(stdout); got != at+`b  "hello"  (possible duplicate)` {
		t.Errorf("printed %q", got)
	}
	if got := line(stdout); got != at+`c  "hello"` {
		t.Errorf("printed %q", got)
	}
	if rest, _ := io.ReadAll(stderr); len(rest) > 0 {
		t.Errorf("said more than once: %s", rest)
	}
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d", c)
	}
}

// readLine reads one line, byte by byte, so that nothing after it is consumed.
func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	lines := make(chan string, 1)
	go func() {
		var text []byte
		for b := make([]byte, 1); ; {
			if _, err := r.Read(b); err != nil || b[0] == '\n' {
				lines <- string(text)
				return
			}
			text = append(text, b[0])
		}
	}()
	select {
	case text := <-lines:
		return text
	case <-time.After(time.Minute):
		t.Fatal("no line within a minute")
		return ""
	}
}

func TestTailEndsOnARefusal(t *testing.T) {
	server := newStandIn().start(t)
	want := result{code: exitFailed, stderr: "postdate: inbox name \"x/y\" has a forbidden character\n"}
	if r := call(nil, "", "tail", "inbox:x/y", "--server", server); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

func TestCluster(t *testing.T) {
	r := call([]string{"POSTDATE_SERVER=" + newStandIn().start(t)}, "", "cluster")
	want := result{stdout: `NODE  ADDRESS         STATE             BUCKETS  CLOCK AHEAD  LEASE LEFT
n1    127.0.0.1:7946  alive (answered)  1        -3 ms        4712 of 5000 ms
n2    127.0.0.1:7947  lost              0        -            -

BUCKET  OWNER     TOKEN  SETTLED UP TO             CLAIMED UP TO             LAG MS
0       n1        3      2027-01-31T09:30:00.000Z  2027-01-31T09:30:01.000Z  1200
1       (nobody)  0      1970-01-01T00:00:00.000Z  1970-01-01T00:00:00.000Z  0
`}
	if r != want {
		t.Errorf("got\n%s\nwant\n%s", r.stdout, want.stdout)
	}
}

func TestChannels(t *testing.T) {
	r := call([]string{"POSTDATE_SERVER=" + newStandIn().start(t)}, "", "channels")
	want := result{stdout: `CHANNEL     STATE  RATE        DUE  PENDING  IN HAND  IN FLIGHT  PARKED  MAX/S  MAX IN FLIGHT  ON FAILURE  LAST ERROR
inbox:a     up     ?           ~0   ~1280    0        0          false   2.5    -              -           
rabbitmq:b  down   1234.568/s  12   15       3        1          true    -      -              inbox:f     refused (n2, 2027-01-31T09:30:00.000Z)
no answer from n3: what they have in hand is missing
`}
	if r != want {
		t.Errorf("got\n%s%s\nwant\n%s", r.stdout, r.stderr, want.stdout)
	}
}

func TestStats(t *testing.T) {
	s := newStandIn()
	server := "POSTDATE_SERVER=" + s.start(t)
	var document struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct{ Example json.RawMessage }
				}
			}
		}
	}
	if err := json.Unmarshal(api.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	s.stats = document.Paths["/v1/stats"].Get.Responses["200"].Content["application/json"].Example
	want := result{stdout: `MESSAGES   PER SECOND  LAST MINUTE  SINCE THE START
scheduled  10.0        640          1200000
delivered  2.0         128          199000
failed     0.0         0            12
cancelled  0.0         3            988

lateness in the last minute: median about 2.1 ms, 99th percentile about 9.4 ms
pending: 1000000 messages, 256000000 bytes
overdue: for 0 ms; in hand: 12 messages; channels down: 1
  down: rabbitmq:orders of tenant acme: "connection refused"
no answer from c: what they counted is missing
`}
	if r := call([]string{server}, "", "stats"); r != want {
		t.Errorf("got\n%s\nwant\n%s", r.stdout, want.stdout)
	}
	s.stats = []byte(`{"tenant":"acme","ownSeries":false}`)
	want = result{stdout: `MESSAGES   PER SECOND  LAST MINUTE  SINCE THE START
scheduled  0.0         0            0
delivered  0.0         0            0
failed     0.0         0            0
cancelled  0.0         0            0

these are the figures of the tenant acme
on some node this tenant has no metric series of its own: what that node counted is missing
`}
	if r := call([]string{server}, "", "stats"); r != want {
		t.Errorf("got\n%s%s\nwant\n%s", r.stdout, r.stderr, want.stdout)
	}
}

// Without a server, the error says what to do.
func TestNoServer(t *testing.T) {
	address := proctest.Closed(t)
	r := call(nil, "", "list", "--server", address)
	if r.code != exitFailed || !strings.Contains(r.stderr, "no answer from http://"+address) || !strings.Contains(r.stderr, "connection refused") || !strings.Contains(r.stderr, "postdate serve") {
		t.Errorf("got %+v", r)
	}
}

// A payload is shown in the form in which it can be sent again, and base64 says that it is.
func TestShownPayload(t *testing.T) {
	for _, c := range []struct{ payload, contentType, want string }{
		{`{"a": 1}`, "", `{"a": 1}`},
		{"hello", "text/plain", `"hello"`},
		{"\xff\xfe", "application/octet-stream", `base64 "//4="`},
	} {
		if got := shownPayload([]byte(c.payload), c.contentType); got != c.want {
			t.Errorf("%q of type %q is shown as %s, want %s", c.payload, c.contentType, got, c.want)
		}
	}
}
