package api

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// checkedProblem checks what every problem promises.
func checkedProblem(t *testing.T, p *Problem) {
	t.Helper()
	if problemKinds[p.Type].status == 0 || p.Detail == "" || !jsontext.Value(p.appendJSON(nil)).IsValid() {
		t.Fatalf("problem %+v", p)
	}
}

func FuzzMessageBody(f *testing.F) {
	for _, seed := range []string{
		order("a"), `{"channel":"inbox:a","delay":"PT1M","payload":"AA==","payloadEncoding":"base64"}`, `{"payload":{"a":1,"a":2}}`, `{"retry":{"maxAttempts":1e9}}`,
		`{"channel":"inbox:a","delay":"1s","payload":"x","contentType":"text/plain","headers":{"a":"b"},"expiresAt":"2099-01-01T00:00:00Z","priority":"high","labels":["a","b"]}`, `[`, `"`,
		recurring("a", `{"every":"PT1H0.1S","anchor":"2027-03-28T00:00:00Z","jitter":"1s","maxRuns":3,"misfire":"skip","misfireAfter":"1h"}`),
		recurring("a", `{"cron":"30 2 * * *","timezone":"Europe/Berlin","start":"2027-03-28T00:00:00+01:00","end":"2028-03-28T00:00:00Z","gap":"skip","overlap":"both"}`),
	} {
		f.Add([]byte(seed))
	}
	c := checker{now: testNow, payloadBytesMax: 1000, checkChannel: func(postdate.Channel) error { return nil }}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var body messageBody
		if p := decodeBody(raw, &body); p != nil {
			checkedProblem(t, p)
			return
		}
		var m postdate.Message
		if p, _ := c.named(&body, postdate.DefaultTenant, testBuckets, &m); p != nil {
			checkedProblem(t, p)
			return
		}
		if postdate.CheckScheduleID(m.ScheduleID) != nil || m.ExecutionTime < postdate.EarliestTime || len(m.Payload) > c.payloadBytesMax || m.ContentType == "" {
			t.Fatalf("taken: %+v", m)
		}
		// What is shown of it reads back as the same message.
		record := postdate.Record{Message: m, State: postdate.NewState(&m, 1)}
		shown := appendRecord(nil, &record)
		if !jsontext.Value(shown).IsValid() {
			t.Fatalf("shown %s", shown)
		}
		var again struct {
			Payload         jsontext.Value  `json:"payload"`
			ContentType     string          `json:"contentType"`
			PayloadEncoding string          `json:"payloadEncoding"`
			Priority        string          `json:"priority"`
			Labels          []string        `json:"labels"`
			Recurrence      *recurrenceBody `json:"recurrence"`
		}
		if err := json.Unmarshal(shown, &again); err != nil {
			t.Fatal(err)
		}
		var m2 postdate.Message
		p := c.payload(&messageBody{Payload: again.Payload, ContentType: again.ContentType, PayloadEncoding: again.PayloadEncoding}, &m2)
		if !slices.Equal(again.Labels, m.Labels) || len(m.Labels) > postdate.LabelsMax {
			t.Fatalf("%s has the labels %q", shown, m.Labels)
		}
		if p != nil || !bytes.Equal(m.Payload, m2.Payload) || m.Encoding != m2.Encoding || again.Priority != m.Priority.String() {
			t.Fatalf("%s comes back as %+v, %v", shown, m2, p)
		}
		if (again.Recurrence == nil) != (m.Recurrence == nil) || m.Recurrence != nil && m.First <= c.now {
			t.Fatalf("%s begins at %s", shown, m.First)
		}
		if m.Recurrence == nil {
			return
		}
		if given, p := again.Recurrence.read(); p != nil || given != *m.Recurrence {
			t.Fatalf("%+v comes back as %+v, %v", *m.Recurrence, given, p)
		}
	})
}

// FuzzPatch changes a series. What comes of that has a rule that can be read, and is shown so.
func FuzzPatch(f *testing.F) {
	for _, seed := range []string{
		`{"recurrence":{"every":null,"cron":"@daily","timezone":"UTC","gap":"skip"}}`, `{"recurrence":{"every":"PT2H","jitter":"1s"},"paused":true}`, `{"recurrence":null}`,
		`{"payload":"AA==","payloadEncoding":"base64","channel":"inbox:b"}`, `{"recurrence":{"every":"1s","\u0065very":"2s"}}`, `{"paused":false}`, `{"delay":"1s"}`,
	} {
		f.Add([]byte(seed))
	}
	c := checker{now: testNow, payloadBytesMax: 1000, checkChannel: func(postdate.Channel) error { return nil }}
	old := postdate.NewRecord(postdate.Message{Key: keyOf("a"), Channel: "inbox:a", CreatedAt: testNow, First: testNow + 1, ExecutionTime: testNow + 1, Payload: []byte("1"), ContentType: "application/json",
		Recurrence: &postdate.Recurrence{Every: time.Hour, Anchor: testNow + 1}}, 7)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var body messageBody
		p := decodeBody(raw, &body)
		var rule map[string]jsontext.Value
		if p == nil {
			rule, p = patchOfRule(raw)
		}
		if p == nil {
			p = patchable(&body)
		}
		var next postdate.Record
		if p == nil {
			next, p = c.patched(&body, rule, &old)
		}
		if p != nil {
			checkedProblem(t, p)
			return
		}
		var shown struct {
			Recurrence *recurrenceBody `json:"recurrence"`
		}
		if err := json.Unmarshal(appendRecord(nil, &next), &shown); err != nil {
			t.Fatal(err)
		}
		if given, p := shown.Recurrence.read(); p != nil || given != *next.Recurrence || next.Occurrence < testNow || next.Version != 8 || *old.Recurrence != (postdate.Recurrence{Every: time.Hour, Anchor: testNow + 1}) {
			t.Fatalf("%s makes %+v, %v", raw, next, p)
		}
	})
}

// FuzzBatch checks that the same items get the same results in an array and in
// lines, and that no item is lost or counted twice.
func FuzzBatch(f *testing.F) {
	for _, bad := range badItems {
		f.Add([]byte(bad.body), []byte(order("a")))
	}
	f.Add([]byte(`1`), []byte(`2]`))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		parse := func(each func([]byte, func(*messageBody, *Problem) *Problem) *Problem, raw []byte) (types []ProblemType, whole *Problem) {
			whole = each(raw, func(_ *messageBody, p *Problem) *Problem {
				if p == nil {
					types = append(types, "")
				} else {
					checkedProblem(t, p)
					types = append(types, p.Type)
				}
				return nil
			})
			return types, whole
		}
		array := append(append(append(append([]byte("["), one...), ','), two...), ']')
		fromArray, whole := parse(eachOfArray, array)
		if whole != nil {
			checkedProblem(t, whole)
		} else if !validLoosely(array) {
			t.Fatalf("taken: %q", array)
		}
		lines := append(append(bytes.Clone(one), '\n'), two...)
		fromLines, _ := parse(eachLine, lines)
		if bytes.ContainsRune(lines[:len(one)], '\n') || bytes.ContainsRune(two, '\n') || whole != nil || len(fromArray) != 2 || len(fromLines) != 2 {
			return
		}
		if validLoosely(one) && validLoosely(two) && (fromArray[0] != fromLines[0] || fromArray[1] != fromLines[1]) {
			t.Fatalf("%q: as an array %q, as lines %q", lines, fromArray, fromLines)
		}
	})
}

func validLoosely(b []byte) bool {
	return jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

func FuzzCursor(f *testing.F) {
	q := &store.ListQuery{Tenant: postdate.DefaultTenant, Status: postdate.Pending}
	f.Add(cursorOf(q, &store.ListPosition{ExecutionTime: testNow, Bucket: 3, ScheduleID: "a"}), int64(testNow), 3, "a")
	f.Fuzz(func(t *testing.T, text string, at int64, bucket int, id string) {
		if got, err := parseCursor(q, text, testBuckets); err == nil && cursorOf(q, got) != text {
			t.Fatalf("%q is taken for %+v", text, got)
		}
		if at < 0 || at > int64(postdate.Far) || bucket < 0 || bucket >= testBuckets || postdate.CheckScheduleID(id) != nil {
			return
		}
		want := store.ListPosition{ExecutionTime: postdate.Time(at), Bucket: bucket, ScheduleID: id}
		got, err := parseCursor(q, cursorOf(q, &want), testBuckets)
		if err != nil || *got != want {
			t.Fatalf("%+v, %v, want %+v", got, err, want)
		}
	})
}

func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"PT15M", "15m", "-P1D", "P1Y", "P99999999999W", "1e9h", "PT0.0000000001S"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDuration(text)
		if err != nil {
			if postdate.KindOf(err) != postdate.KindInvalid || err.Error() == "" {
				t.Fatal(err)
			}
			return
		}
		if negative := text[0] == '-'; negative && d > 0 || !negative && d < 0 {
			t.Fatalf("%q is %s", text, d)
		}
	})
}

// FuzzNames covers times, channels and schedule ids, as a client writes them.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"2027-01-31T09:30:00Z", "2027-01-31T09:30:00.9999+14:00", "inbox:a", "rabbitmq:a/b", "https://a/b?c", "a", "..", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if at, err := postdate.ParseTime(text); err == nil {
			if again, err := postdate.ParseTime(at.String()); err != nil || again != at {
				t.Fatalf("%q is %s, which is %d, %v", text, at, again, err)
			}
		}
		if c, err := postdate.ParseChannel(text); err == nil && (c.Broker() == "" || c.Broker()+":"+c.Target() != text) {
			t.Fatalf("channel %q", text)
		}
	})
}

// FuzzPath sends arbitrary paths and queries to a real server. It must answer,
// and never with 500.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/v1/messages/a%2fb", "/v1/messages?cursor=%ff", "/v1/inbox/%zz?wait=1s&&=", "/..//v1/messages/..", "/v1/messages/a?a=b;c", "/v1/messages/a/trigger", "/v1/messages/a%2f/trigger/"} {
		f.Add([]byte(seed))
	}
	server, err := New(Config{Buckets: testBuckets, Messages: newFakeStore(), Requests: newFakeStore(), Inbox: &fakeInbox{}})
	if err != nil {
		f.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	f.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		_ = server.Shutdown(context.Background())
	})
	f.Fuzz(func(t *testing.T, path []byte) {
		if bytes.ContainsAny(path, "\r\n \x00") || bytes.Contains(path, []byte("wait=")) {
			return // another request, or a long wait
		}
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = conn.Write(append(append([]byte("GET /"), path...), " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"...))
		text, err := io.ReadAll(conn)
		if err != nil || bytes.HasPrefix(text, []byte("HTTP/1.1 500")) || !bytes.HasPrefix(text, []byte("HTTP/1.1 ")) {
			t.Fatalf("%q: %q, %v", path, text, err)
		}
	})
}
