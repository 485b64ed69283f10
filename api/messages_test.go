package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/postdate/postdate"
)

func TestScheduleAgainAndOtherwise(t *testing.T) {
	r := newRig(t)
	bucket := keyOf("a").Bucket
	first := fmt.Sprintf(`{"scheduleId":"a","bucket":%d,"executionTime":"2027-01-31T12:00:00.000Z","status":"PENDING"}`, bucket)
	r.send("POST", "/v1/messages", order("a")).want(201, first)
	r.send("POST", "/v1/messages", order("a")).want(200, first)
	r.send("POST", "/v1/messages", strings.Replace(order("a"), "T12:00:00Z", "T13:00:00.000+01:00", 1)).want(200, first)
	r.send("POST", "/v1/messages", strings.Replace(order("a"), "1}", "2}", 1)).problem(409, Exists, `"scheduleId":"a"`, "PUT")
	if len(r.nudges) != 3 || r.nudges[0] != (nudge{bucket, testNow.Add(24 * time.Hour)}) {
		t.Errorf("nudges %v", r.nudges)
	}
}

func TestDelayIsTheSameRequestLater(t *testing.T) {
	r := newRig(t)
	body := `{"scheduleId":"a","channel":"inbox:test","delay":"PT15M","payload":1,"expiresAt":"2027-01-30T12:20:00Z"}`
	first := fmt.Sprintf(`{"scheduleId":"a","bucket":%d,"executionTime":"2027-01-30T12:15:00.000Z","status":"PENDING"}`, keyOf("a").Bucket)
	r.send("POST", "/v1/messages", body).want(201, first)
	r.pass(time.Minute)
	r.send("POST", "/v1/messages", body).want(200, first)
	r.pass(time.Hour) // counted from now, the delay would end after expiresAt
	r.send("POST", "/v1/messages", body).want(200, first)
	r.send("PUT", "/v1/messages/a", body).problem(400, InvalidField, "/expiresAt") // it would move the message
	r.send("POST", "/v1/messages/batch", "["+body+"]").want(200, `{"results":[`+strings.TrimSuffix(first, "}")+`,"created":false}]}`)
	r.send("POST", "/v1/messages", strings.Replace(body, `"a"`, `"b"`, 1)).problem(400, InvalidField, "/expiresAt")
	r.send("POST", "/v1/messages", strings.Replace(body, `"payload":1`, `"payload":2`, 1)).problem(400, InvalidField, "/expiresAt")
}

func TestGeneratedID(t *testing.T) {
	r := newRig(t)
	a := r.send("POST", "/v1/messages", `{"channel":"inbox:test","delay":"1s","payload":1}`)
	var got struct {
		ScheduleID string `json:"scheduleId"`
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 201 {
		t.Fatal(a.status, a.body, err)
	}
	id, err := uuid.Parse(got.ScheduleID)
	if err != nil || id.Version() != 7 {
		t.Errorf("id %s", got.ScheduleID)
	}
	r.send("GET", "/v1/messages/"+got.ScheduleID, "")
}

// TestPayloadComesBackAsItWas checks payloads as delivered and as shown.
func TestPayloadComesBackAsItWas(t *testing.T) {
	r := newRig(t)
	for i, test := range []struct{ fields, delivered, shown string }{
		{`"payload":{"b" : 1.0, "a":[ ]}`, `{"b" : 1.0, "a":[ ]}`, `"contentType":"application/json","payload":{"b" : 1.0, "a":[ ]}`},
		{`"payload":null`, `null`, `"contentType":"application/json","payload":null`},
		{`"payload":"text"`, `"text"`, `"contentType":"application/json","payload":"text"`},
		{`"payload":"a\u00e9\n","contentType":"text/plain"`, "aé\n", `"contentType":"text/plain","payload":"aé\n"`},
		{`"payload":"","contentType":"text/plain"`, "", `"contentType":"text/plain","payload":""`},
		{`"payload":"x","contentType":"application/cloudevents+json"`, `"x"`, `"payload":"x"`},
		{`"payload":[1],"contentType":"application/vnd.x"`, `[1]`, `"contentType":"application/vnd.x","payload":[1]`},
		{`"payload":"/wA=","payloadEncoding":"base64"`, "\xff\x00", `"contentType":"application/octet-stream","payloadEncoding":"base64","payload":"/wA="`},
		{`"payload":"\/wA=","payloadEncoding":"base64","contentType":"image/png"`, "\xff\x00", `"contentType":"image/png","payloadEncoding":"base64","payload":"/wA="`},
		{`"payload":12345678901234567890.10`, `12345678901234567890.10`, `"payload":12345678901234567890.10`},
	} {
		id := fmt.Sprintf("p%d", i)
		a := r.send("POST", "/v1/messages", `{"scheduleId":"`+id+`","channel":"inbox:test","delay":"1h",`+test.fields+`}`)
		if a.status != 201 {
			t.Fatal(a.status, a.body)
		}
		rec, err := r.store.Get(context.Background(), keyOf(id))
		if err != nil || string(rec.Payload) != test.delivered {
			t.Errorf("%s: delivered %q, %v", test.fields, rec.Payload, err)
		}
		if a := r.send("GET", "/v1/messages/"+id, ""); !strings.Contains(a.body, test.shown) {
			t.Errorf("%s: shown %s", test.fields, a.body)
		}
	}
}

func TestGetShowsEverything(t *testing.T) {
	r := newRig(t)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r.send("POST", "/v1/messages", `{"scheduleId":"a~b","channel":"rabbitmq:orders","executionTime":"2027-01-31T12:00:00.0005Z","payload":1,"headers":{"z":"1","A":"ü"},
		"key":"k","priority":"low","expiresAt":"2027-02-01T00:00:00Z","retry":{"maxAttempts":3,"minBackoff":"PT2S","maxBackoff":"1m","maxParked":"P1D"}}`, "Traceparent: "+trace, "Tracestate: a=1", "Tracestate: b=2")
	r.pass(time.Hour)
	head := fmt.Sprintf(`{"scheduleId":"a~b","bucket":%d,"channel":"rabbitmq:orders","priority":"low","executionTime":"2027-01-31T12:00:00.001Z","expiresAt":"2027-02-01T00:00:00.000Z","createdAt":"2027-01-30T12:00:00.000Z",`+
		`"version":"4294967296","contentType":"application/json","payload":1,"headers":{"A":"ü","z":"1"},"key":"k","traceparent":"`+trace+`","tracestate":"a=1,b=2","retry":{"maxAttempts":3,"minBackoff":"2s","maxBackoff":"1m0s","maxParked":"24h0m0s"},`, keyOf("a~b").Bucket)
	r.send("GET", "/v1/messages/a%7eb", "").want(200, head+`"status":"PENDING","attempts":0,"nextAttemptAt":"2027-01-31T12:00:00.001Z"}`)
	for _, test := range []struct {
		state postdate.State
		tail  string
	}{
		{postdate.State{Status: postdate.Pending, Parked: true, LastError: `"down"`}, `"status":"PENDING","attempts":0,"parked":"waiting for its channel","lastError":"\"down\""}`},
		{postdate.State{Status: postdate.Delivered, Attempts: 2, SettledAt: testNow, PossibleDuplicate: true}, `"status":"DELIVERED","attempts":2,"deliveredAt":"2027-01-30T12:00:00.000Z","possibleDuplicate":true}`},
		{postdate.State{Status: postdate.DeliveryFailed, Attempts: 3, SettledAt: testNow, LastError: "NO_ROUTE"}, `"status":"DELIVERY_FAILED","attempts":3,"failedAt":"2027-01-30T12:00:00.000Z","lastError":"NO_ROUTE"}`},
		{postdate.State{Status: postdate.Cancelled, SettledAt: testNow}, `"status":"CANCELLED","attempts":0,"cancelledAt":"2027-01-30T12:00:00.000Z"}`},
	} {
		r.store.set(keyOf("a~b"), func(rec *postdate.Record) { test.state.Version = rec.Version; rec.State = test.state })
		r.send("GET", "/v1/messages/a~b", "").want(200, head+test.tail)
	}
}

// A priority is kept however a message comes, and is shown however it is read.
func TestPriorities(t *testing.T) {
	r := newRig(t)
	at := func(priority string) string {
		return `{"scheduleId":"` + orElse(priority, "none") + `","channel":"inbox:test","executionTime":"2027-01-31T12:00:00Z","payload":1` +
			strings.Replace(`,"priority":"?"}`, "?", priority, 1)
	}
	none := strings.Replace(at(""), `,"priority":""`, "", 1)
	r.send("POST", "/v1/messages", at("high"))
	r.send("PUT", "/v1/messages/low", at("low"))
	r.send("POST", "/v1/messages/batch", "["+at("medium")+"]")
	r.send("POST", "/v1/messages/batch", none, "Content-Type: application/x-ndjson")
	all := r.send("GET", "/v1/messages", "").body
	for id, want := range map[string]postdate.Priority{"high": postdate.PriorityHigh, "low": postdate.PriorityLow, "medium": postdate.PriorityMedium, "none": postdate.PriorityMedium} {
		shown := `"channel":"inbox:test","priority":"` + want.String() + `"`
		if a := r.send("GET", "/v1/messages/"+id, ""); r.store.Rows[keyOf(id)].Priority != want || !strings.Contains(a.body, shown) {
			t.Errorf("%s: kept as %s, shown as %s", id, r.store.Rows[keyOf(id)].Priority, a.body)
		}
		if i := strings.Index(all, `"scheduleId":"`+id+`"`); i < 0 || !strings.HasPrefix(all[i+strings.Index(all[i:], `"channel"`):], shown) {
			t.Errorf("%s is listed in %s", id, all)
		}
	}

	// Medium is the default, so to say it is no other request. Any other priority is.
	said := strings.Replace(at("medium"), `"scheduleId":"medium"`, `"scheduleId":"none"`, 1)
	if a := r.send("POST", "/v1/messages", said); a.status != 200 {
		t.Error(a.status, a.body)
	}
	r.send("POST", "/v1/messages", strings.Replace(said, `"medium"`, `"high"`, 1)).problem(409, Exists, "PUT")
	if a := r.send("PUT", "/v1/messages/none", strings.Replace(said, `"medium"`, `"high"`, 1)); a.status != 200 || r.store.Rows[keyOf("none")].Priority != postdate.PriorityHigh {
		t.Error(a.status, a.body)
	}
	if a := r.send("PATCH", "/v1/messages/none", `{"delay":"1h"}`); a.status != 200 || r.store.Rows[keyOf("none")].Priority != postdate.PriorityHigh {
		t.Error(a.status, a.body)
	}
}

func TestPathIDs(t *testing.T) {
	r := newRig(t)
	r.send("GET", "/v1/messages/none", "").problem(404, NotFound, `"scheduleId":"none"`)
	r.send("GET", "/v1/messages/a%2Fb", "").problem(400, InvalidParameter, `"parameter":"id"`, "forbidden character")
	r.send("DELETE", "/v1/messages/%C3%BC", "").problem(400, InvalidParameter, "forbidden character")
	r.send("GET", "/v1/messages/"+strings.Repeat("x", 129), "").problem(400, InvalidParameter, "129 bytes")
	r.send("GET", "/v1/messages/a?verbose=1", "").problem(400, InvalidParameter, `"parameter":"verbose"`, "takes none")
}

func TestPut(t *testing.T) {
	r := newRig(t)
	body := func(n int) string {
		return fmt.Sprintf(`{"channel":"inbox:test","executionTime":"2027-01-31T12:00:00Z","payload":%d}`, n)
	}
	answer := fmt.Sprintf(`{"scheduleId":"a","bucket":%d,"executionTime":"2027-01-31T12:00:00.000Z","status":"PENDING"}`, keyOf("a").Bucket)
	r.send("PUT", "/v1/messages/a", body(1)).want(201, answer)
	r.send("PUT", "/v1/messages/a", body(1)).want(200, answer)
	first := r.store.Rows[keyOf("a")].Version
	r.pass(time.Minute)
	r.send("PUT", "/v1/messages/a", body(2)).want(200, answer)
	rec, _ := r.store.Get(context.Background(), keyOf("a"))
	if rec.Version != first+1 || string(rec.Payload) != "2" || rec.CreatedAt != testNow {
		t.Errorf("record %+v", rec)
	}
	r.send("PUT", "/v1/messages/a", `{"scheduleId":"b",`+body(1)[1:]).problem(400, InvalidField, `"pointer":"/scheduleId"`)

	// Another request creates, replaces or removes it between read and write.
	r.store.between = func() { r.send("PUT", "/v1/messages/a", body(3)) }
	r.send("PUT", "/v1/messages/a", body(4)).want(200, answer)
	r.store.between = func() { r.send("PUT", "/v1/messages/c", body(3)) }
	if a := r.send("PUT", "/v1/messages/c", body(4)); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.settle("a", postdate.Delivered)
	r.send("PUT", "/v1/messages/a", body(4)).want(200, strings.Replace(answer, "PENDING", "DELIVERED", 1))
	r.send("PUT", "/v1/messages/a", body(5)).problem(409, TooLate, `"messageStatus":"DELIVERED"`, `"deliveredAt":"2027-01-30T12:00:00.001Z"`, `"scheduleId":"a"`)
	r.store.claim(testNow.Add(25 * time.Hour))
	r.send("PUT", "/v1/messages/c", body(5)).problem(409, TooLate, `"messageStatus":"PENDING"`)
}

func TestChangesThatNeverSettleGiveUp(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", order("a"))
	r.store.seen = func(_ context.Context, method string) {
		if method == "Replace" {
			r.store.set(keyOf("a"), func(rec *postdate.Record) { rec.Version++ })
		}
	}
	r.send("PUT", "/v1/messages/a", `{"channel":"inbox:test","delay":"1h","payload":2}`).problem(409, Conflict, "GET")
	r.send("PATCH", "/v1/messages/a", `{"delay":"2h"}`).problem(409, Conflict, "GET")
}

func TestPatch(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", `{"scheduleId":"a","channel":"inbox:test","executionTime":"2027-01-31T12:00:00Z","payload":"x","contentType":"text/plain","expiresAt":"2027-02-02T00:00:00Z","headers":{"h":"1"}}`)
	at := func(text string) string {
		return fmt.Sprintf(`{"scheduleId":"a","bucket":%d,"executionTime":"%s","status":"PENDING"}`, keyOf("a").Bucket, text)
	}
	r.send("PATCH", "/v1/messages/a", `{"delay":"PT1H"}`, "Content-Type: application/merge-patch+json").want(200, at("2027-01-30T13:00:00.000Z"))
	r.send("PATCH", "/v1/messages/a", `{"executionTime":"2027-02-01T00:00:00Z","payload":"y"}`).want(200, at("2027-02-01T00:00:00.000Z"))
	if a := r.send("GET", "/v1/messages/a", ""); !strings.Contains(a.body, `"contentType":"text/plain","payload":"y","headers":{"h":"1"}`) {
		t.Error(a.body)
	}
	r.send("PATCH", "/v1/messages/a", `{"channel":"rabbitmq:b"}`).want(200, at("2027-02-01T00:00:00.000Z"))
	if a := r.send("GET", "/v1/messages/a", ""); !strings.Contains(a.body, `"channel":"rabbitmq:b","priority":"medium","executionTime":"2027-02-01T00:00:00.000Z"`) || !strings.Contains(a.body, `"payload":"y"`) {
		t.Error(a.body)
	}
	if want := testNow.Add(36 * time.Hour); r.nudges[len(r.nudges)-1] != (nudge{keyOf("a").Bucket, want}) {
		t.Errorf("nudges %v", r.nudges)
	}
	for body, parts := range map[string][]string{
		`{}`:                                       {"nothing to change"},
		`{"channel":"x:b"}`:                        {"not configured", `"pointer":"/channel"`},
		`{"channel":""}`:                           {"channel is empty: leave it out", `"pointer":"/channel"`},
		`{"channel":"","delay":"1h"}`:              {"channel is empty", `"pointer":"/channel"`},
		`{"contentType":"","payload":1}`:           {"contentType is empty", `"pointer":"/contentType"`},
		`{"payloadEncoding":null,"payload":1}`:     {"payloadEncoding cannot be removed", `"pointer":"/payloadEncoding"`},
		`{"payloadEncoding":"","payload":1}`:       {"payloadEncoding is empty", `"pointer":"/payloadEncoding"`},
		`{"executionTime":null,"payload":1}`:       {"executionTime cannot be removed", `"pointer":"/executionTime"`},
		`{"delay":"","payload":1}`:                 {"delay is empty", `"pointer":"/delay"`},
		`{"paused":null}`:                          {"paused cannot be removed", `"pointer":"/paused"`},
		`{"headers":{}}`:                           {"PUT", `"pointer":"/headers"`},
		`{"priority":"high"}`:                      {"priority cannot be changed with PATCH: replace the whole message with PUT", `"pointer":"/priority"`},
		`{"contentType":"text/plain"}`:             {"payload", `"pointer":"/contentType"`},
		`{"payloadEncoding":"base64"}`:             {"payload", `"pointer":"/payloadEncoding"`},
		`{"executionTime":"2027-02-03T00:00:00Z"}`: {`"pointer":"/expiresAt"`},
		`{"delay":"-1s"}`:                          {"negative"},
	} {
		r.send("PATCH", "/v1/messages/a", body).problem(400, InvalidField, parts...)
	}
	r.send("PATCH", "/v1/messages/a", `{"xyz":1}`).problem(400, UnknownField, "known are executionTime, delay, payload, contentType, payloadEncoding, channel, labels, recurrence, paused, failureChannel\"")
	a := r.send("POST", "/v1/messages", `{"xyz":1}`).problem(400, UnknownField, "known are scheduleId, channel")
	if strings.Contains(a.body, "paused") {
		t.Errorf("a field that goes with PATCH alone: %s", a.body)
	}
	for _, body := range []string{`{"recurrence":{"every":"1s"}}`, `{"paused":true}`, `{"paused":false,"delay":"1s"}`} {
		r.send("PATCH", "/v1/messages/a", body).problem(400, NotSupported, `"scheduleId":"a"`, "does not recur", "replace it with PUT")
	}
	r.send("PATCH", "/v1/messages/none", `{"delay":"1s"}`).problem(404, NotFound)
	r.store.claim(testNow.Add(48 * time.Hour))
	r.send("PATCH", "/v1/messages/a", `{"delay":"1s"}`).problem(409, TooLate, `"messageStatus":"PENDING"`)
	r.settle("a", postdate.Cancelled)
	r.send("PATCH", "/v1/messages/a", `{"delay":"1s"}`).problem(409, TooLate, `"messageStatus":"CANCELLED"`)
}

// A move shows when a client made it, and what the time was before. What leaves the time leaves the move, too.
func TestMoves(t *testing.T) {
	r := newRig(t)
	shows := func(want string) {
		t.Helper()
		list := r.send("GET", "/v1/messages?limit=1", "").body
		if got := r.send("GET", "/v1/messages/a", "").body; !strings.Contains(got, want) || !strings.Contains(list, want) ||
			strings.Contains(got+list, "moved") != strings.Contains(want, "moved") {
			t.Errorf("%s\nis not shown in\n%s\n%s", want, got, list)
		}
	}
	moved := func(at, from string) string {
		return `"movedAt":"2027-01-30T` + at + `:00.000Z","movedFrom":"2027-01-` + from + `:00:00.000Z","createdAt"`
	}
	put := func(at string) {
		t.Helper()
		r.send("PUT", "/v1/messages/a", `{"channel":"inbox:test","executionTime":"`+at+`","payload":"put at `+r.now.String()+`"}`).is(200)
	}
	r.send("POST", "/v1/messages", `{"scheduleId":"a","channel":"inbox:test","executionTime":"2027-01-31T09:00:00Z","payload":1}`).is(201)
	r.pass(time.Minute)
	r.send("PATCH", "/v1/messages/a", `{"payload":2}`).is(200)
	r.send("PATCH", "/v1/messages/a", `{"executionTime":"2027-01-31T09:00:00Z"}`).is(200)
	put("2027-01-31T09:00:00Z")
	shows(`"createdAt":"2027-01-30T12:00:00.000Z"`)
	r.send("PATCH", "/v1/messages/a", `{"executionTime":"2027-01-31T10:00:00Z","payload":3}`).is(200)
	shows(moved("12:01", "31T09"))
	r.pass(time.Minute)
	r.send("PATCH", "/v1/messages/a", `{"channel":"inbox:b"}`).is(200)
	put("2027-01-31T10:00:00Z")
	shows(moved("12:01", "31T09"))
	put("2027-01-31T11:00:00Z")
	shows(moved("12:02", "31T10"))
	r.pass(time.Minute)
	r.send("PATCH", "/v1/messages/a", `{"delay":"PT0S"}`).is(200)
	shows(moved("12:03", "31T11"))
	r.pass(time.Minute)
	r.fail(postdate.DefaultTenant, "a", false)
	r.send("POST", "/v1/messages/redrive", `{"scheduleIds":["a"]}`).is(200)
	shows(moved("12:03", "31T11"))

	// The rule of a series says when that is due.
	r.send("PUT", "/v1/messages/a", recurring("a", everyHour)).is(200)
	r.pass(time.Minute)
	r.send("PATCH", "/v1/messages/a", `{"recurrence":{"every":"PT2H"}}`).is(200)
	shows(`"createdAt":"2027-01-30T12:00:00.000Z"`)
	put("2027-01-31T11:00:00Z")
	shows(`"createdAt":"2027-01-30T12:00:00.000Z"`)
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b", "c"} {
		r.send("POST", "/v1/messages", order(id))
	}
	r.send("DELETE", "/v1/messages/a", "").want(200, `{"scheduleId":"a","status":"CANCELLED"}`)
	r.send("DELETE", "/v1/messages/a", "").want(200, `{"scheduleId":"a","status":"CANCELLED"}`)
	r.send("DELETE", "/v1/messages/none", "").problem(404, NotFound)
	r.settle("b", postdate.Delivered)
	r.send("DELETE", "/v1/messages/b", "").problem(409, TooLate, `"scheduleId":"b","messageStatus":"DELIVERED","deliveredAt":"2027-01-30T12:00:00.001Z"`)

	a := r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["c","b","none","a","x y","c"]}`)
	error := `"error":\{"type":"urn:postdate:problem:%s".*?\}`
	want := `^\{"results":\[\{"scheduleId":"c","status":"CANCELLED"\},\{"scheduleId":"b",` + fmt.Sprintf(error, "too-late") + `\},\{"scheduleId":"none",` + fmt.Sprintf(error, "not-found") +
		`\},\{"scheduleId":"a","status":"CANCELLED"\},\{"scheduleId":"x y",` + fmt.Sprintf(error, "invalid-field") + `\},\{"scheduleId":"c","status":"CANCELLED"\}\]\}$`
	if a.status != 200 || !regexp.MustCompile(want).MatchString(a.body) {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":[]}`).want(200, `{"results":[]}`)
	r.send("POST", "/v1/messages/cancel", `{}`).problem(400, InvalidField, "scheduleIds is missing")
	r.send("POST", "/v1/messages/cancel", `{"ids":["a"]}`).problem(400, UnknownField, `"pointer":"/ids"`)
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":[1]}`).problem(400, InvalidField, `"pointer":"/scheduleIds/0"`)
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":[null]}`).problem(400, InvalidField, `"pointer":"/scheduleIds/0"`, "not null")
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["a",["b"]]}`).problem(400, InvalidField, `"pointer":"/scheduleIds/1"`, "not an array")
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["a",}`).problem(400, MalformedJSON)
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["a"`).problem(400, MalformedJSON, "too early")
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":"a"}`).problem(400, InvalidField, "an array was expected at /scheduleIds, not a string")
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":null}`).problem(400, InvalidField, `"pointer":"/scheduleIds"`, "not null")
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":null,"filter":{"label":"a"}}`).problem(400, InvalidField, `"pointer":"/scheduleIds"`, "not null")
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["a"],"filter":null}`).problem(400, InvalidField, `"pointer":"/filter"`, "not null")
	many := `{"scheduleIds":["a"` + strings.Repeat(`,"a"`, postdate.CancelItemsMax) + `]}`
	r.send("POST", "/v1/messages/cancel", many).problem(413, TooLarge, "10001")
}

// TestStoreErrors checks, for every call that writes, that its answer tells apart
// what was certainly not done, what may have been done, and what failed.
func TestStoreErrors(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		kind   postdate.Kind
		status int
		is     ProblemType
		parts  []string
	}{
		{postdate.KindUnavailable, 503, Unavailable, []string{"surely nothing was done"}},
		{postdate.KindFenced, 503, Unavailable, []string{"surely nothing was done"}},
		{postdate.KindFull, 507, StoreFull, []string{"surely nothing was done"}},
		{postdate.KindUnknown, 504, UnknownOutcome, []string{"may have been done or not", "same scheduleId"}},
		{postdate.KindInternal, 500, Internal, nil},
	} {
		r.store.err = postdate.E(test.kind, "inner words")
		for _, call := range [][3]string{
			{"POST", "/v1/messages", order("a")}, {"PUT", "/v1/messages/a", order("a")}, {"PATCH", "/v1/messages/a", `{"delay":"1s"}`},
			{"DELETE", "/v1/messages/a", ""}, {"GET", "/v1/messages/a", ""}, {"GET", "/v1/messages", ""},
		} {
			a := r.send(call[0], call[1], call[2]).problem(test.status, test.is, test.parts...)
			if strings.Contains(a.body, "inner") {
				t.Errorf("inner details: %s", a.body)
			}
			if (test.status != 500) != (a.header.Get("Retry-After") != "") {
				t.Errorf("%d with Retry-After %q", a.status, a.header.Get("Retry-After"))
			}
		}
		batch := r.send("POST", "/v1/messages/batch", "["+order("a")+"]")
		if batch.status != 200 || !strings.Contains(batch.body, ProblemPrefix+string(test.is)) {
			t.Errorf("%d %s", batch.status, batch.body)
		}
	}
	if !strings.Contains(r.log.String(), "inner words") {
		t.Error("the operator is not told")
	}
}

// TestStoreIsBounded checks that no call of the store can last for ever, and
// that a call that times out has an unknown outcome, unless the store says that it was not begun.
func TestStoreIsBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.StoreTimeout = 20 * time.Millisecond })
	r.store.seen = func(ctx context.Context, _ string) {
		<-ctx.Done()
		r.store.err = fmt.Errorf("insert: %w", ctx.Err())
	}
	r.send("POST", "/v1/messages", order("a")).problem(504, UnknownOutcome)
	r.store.seen = func(ctx context.Context, _ string) {
		<-ctx.Done()
		r.store.err = postdate.E(postdate.KindUnavailable, "given up before it was begun: %w", ctx.Err())
	}
	r.send("POST", "/v1/messages", order("a")).problem(503, Unavailable, "surely nothing was done")
}

func TestLimits(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PayloadBytesMax = 30_000 })
	with := func(payload string) string {
		return `{"channel":"inbox:test","delay":"1h","payload":` + payload + `}`
	}
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	if a := r.send("POST", "/v1/messages", with(text(30_000))); a.status != 201 {
		t.Fatal(a.status, a.body)
	}
	r.send("POST", "/v1/messages", with(text(30_001))).problem(413, TooLarge, `"pointer":"/payload"`, "30001")
	encode := func(n int) string {
		return `"` + base64.StdEncoding.EncodeToString(make([]byte, n)) + `","payloadEncoding":"base64"`
	}
	if a := r.send("POST", "/v1/messages", with(encode(30_000))); a.status != 201 {
		t.Fatal(a.status, a.body)
	}
	r.send("POST", "/v1/messages", with(encode(30_001))).problem(413, TooLarge)

	bodyMax := r.server.singleBytesMax()
	fill := func(n int) string { return with("1") + strings.Repeat(" ", n-len(with("1"))) }
	if a := r.send("POST", "/v1/messages", fill(bodyMax)); a.status != 201 {
		t.Fatal(a.status, a.body)
	}
	r.send("POST", "/v1/messages", fill(bodyMax+1)).problem(413, TooLarge, countOf(bodyMax+1, "byte"))
	r.send("POST", "/v1/messages", fill(bodyMax+128<<10)).problem(413, TooLarge)
	r.send("POST", "/v1/messages", fill(4<<20)).problem(413, TooLarge)
}

func TestMediaTypes(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", order("a"), "Content-Type: text/plain").problem(415, UnsupportedContent, "text/plain", "application/json")
	r.send("POST", "/v1/messages", order("a"), "Content-Type: application/x-ndjson").problem(415, UnsupportedContent)
	r.send("POST", "/v1/messages", order("a"), "Content-Encoding: br").problem(415, UnsupportedContent, "br", "gzip")
	r.send("PUT", "/v1/messages/a", order("a"), "Content-Type: application/merge-patch+json").problem(415, UnsupportedContent)
	r.send("POST", "/v1/messages", order("a"), "Content-Type: ").problem(415, UnsupportedContent, "no media type", "application/json")
	if a := r.send("POST", "/v1/messages", order("a"), "Content-Type: Application/JSON; charset=utf-8"); a.status != 201 {
		t.Error(a.status, a.body)
	}
}

// null stands for no text, wherever a list or an object of texts is wanted.
func TestNullIsNoText(t *testing.T) {
	r := newRig(t, withKeys)
	for _, test := range []struct{ path, body, pointer string }{
		{"/v1/messages/cancel", `{"scheduleIds":["a",null]}`, "/scheduleIds/1"},
		{"/v1/keys", `{"tenant":"acme","scopes":[null]}`, "/scopes/0"},
		{"/v1/keys", `{"tenant":"acme","scopes":["sched:r"],"channels":[null]}`, "/channels/0"},
		{"/v1/messages", `{"channel":"inbox:a","delay":"1s","payload":1,"headers":{"a":null}}`, "/headers/a"},
	} {
		r.send("POST", test.path, test.body, bearer(adminKey)).problem(400, InvalidField, `"pointer":"`+test.pointer+`"`, "a string was expected", "not null")
	}
}
