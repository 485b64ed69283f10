package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// tagOf returns the entity tag of a message.
func (r *rig) tagOf(id string) string {
	r.t.Helper()
	a := r.send("GET", escaped(id), "")
	tag := a.header.Get("ETag")
	if !strings.Contains(a.body, `"createdAt":"2027-01-30T12:00:00.000Z","version":`+tag+`,`) {
		r.t.Fatalf("the tag is %s of %s", tag, a.body)
	}
	if list := r.send("GET", "/v1/messages", "").body; !strings.Contains(list, `,"version":`+tag+`,`) {
		r.t.Fatalf("the tag is %s in %s", tag, list)
	}
	return tag
}

// Each change by a client makes another version, and the answer names it. A delivery does not.
func TestVersions(t *testing.T) {
	r := newRig(t)
	seen := map[string]bool{}
	changed := func(a *answer) {
		t.Helper()
		tag := r.tagOf("a")
		if seen[tag] || a.status != 200 || a.header.Get("ETag") != tag {
			t.Errorf("%s after %s, answered %d, %s", tag, fmt.Sprint(seen), a.status, a.header.Get("ETag"))
		}
		seen[tag] = true
	}
	for _, call := range []string{"PUT /v1/messages/a", "POST /v1/messages"} {
		method, path, _ := strings.Cut(call, " ")
		if tag := r.send(method, path, order("a")).header.Get("ETag"); method == "PUT" && tag != "" {
			t.Errorf("a new message: %s", tag) // nobody has read it
		}
	}
	changed(r.send("PUT", "/v1/messages/a", order("a")))
	changed(r.send("PATCH", "/v1/messages/a", `{"delay":"1h"}`))
	changed(r.send("PUT", "/v1/messages/a", recurring("a", everyHour)))
	changed(r.patch(`{"payload":2}`))
	changed(r.patch(`{"paused":true}`))
	changed(r.patch(`{"payload":3}`))
	changed(r.patch(`{"paused":false}`))
	tag := r.tagOf("a")
	r.attempt(store.SettleDelivered, 0)
	r.attempt(store.SettleRetry, 0)
	r.send("POST", triggerPath, "")
	r.attempt(store.SettleSkip, 1)
	if after := r.tagOf("a"); after != tag {
		t.Errorf("deliveries made %s of %s", after, tag)
	}
	if of := r.tagOf(occurrence("14:00")); of != tag {
		t.Errorf("an occurrence has %s, and its series %s", of, tag)
	}
}

// A condition that names the message's version, or any, is met. Nothing else is, and then nothing is done.
func TestIfMatch(t *testing.T) {
	calls := []struct{ method, path, body string }{
		{"PUT", seriesPath, recurring("a", `{"every":"PT2H"}`)}, {"PATCH", seriesPath, `{"payload":2}`}, {"PATCH", seriesPath, `{"paused":true}`},
		{"PATCH", seriesPath, `{"paused":false}`}, {"POST", triggerPath, ""},
	}
	for _, call := range calls {
		for _, test := range []struct {
			fields []string // TAG and VERSION stand for those of the message
			met    bool
		}{
			{[]string{"TAG"}, true}, {[]string{"*"}, true}, {[]string{`"1", TAG`}, true}, {[]string{`TAG,"1"`}, true}, {[]string{`"1"`, "TAG"}, true},
			{[]string{`"1"`}, false}, {[]string{`"1", "2"`}, false}, {[]string{"W/TAG"}, false}, {[]string{"VERSION"}, false}, {[]string{""}, false},
			{[]string{`"VERSIONp"`}, false}, {[]string{`"0VERSION"`}, false}, {[]string{`"*"`}, false},
		} {
			r := withSeries(t)
			before, tag := r.series(), r.tagOf("a")
			var headers []string
			for _, field := range test.fields {
				headers = append(headers, "If-Match: "+strings.NewReplacer("TAG", tag, "VERSION", strings.Trim(tag, `"`)).Replace(field))
			}
			a := r.send(call.method, call.path, call.body, headers...)
			if test.met {
				if a.status/100 != 2 {
					t.Errorf("%v %q: %d %s", call, headers, a.status, a.body)
				}
				continue
			}
			a.problem(412, PreconditionFailed, `"scheduleId":"a"`, "the message has version "+strings.Trim(tag, `"`)+",", "read it with GET")
			if after := r.series(); !after.Same(&before) || len(r.store.Rows) != 1 {
				t.Errorf("%v %q: %+v", call, headers, after)
			}
		}
	}
}

// A pause changes the version as well.
func TestIfMatchWhilePaused(t *testing.T) {
	r := withSeries(t)
	running := "If-Match: " + r.tagOf("a")
	r.patch(`{"paused":true}`)
	paused := "If-Match: " + r.tagOf("a")
	for _, body := range []string{`{"paused":false}`, `{"paused":true}`, `{"payload":2}`} {
		r.send("PATCH", seriesPath, body, running).problem(412, PreconditionFailed, `p, which If-Match does not name`)
	}
	if a := r.send("PATCH", seriesPath, `{"paused":false}`, paused); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, tag := range []string{running, paused} {
		r.send("POST", triggerPath, "", tag).problem(412, PreconditionFailed)
	}
}

// A PUT with If-None-Match creates, and spares what is there. Other calls refuse it.
func TestIfNoneMatch(t *testing.T) {
	r := withSeries(t)
	before := r.series()
	for _, body := range []string{order("a"), recurring("a", everyHour), `{"channel":"inbox:test","delay":"1h","payload":2}`} {
		r.send("PUT", seriesPath, body, "If-None-Match: *").problem(412, PreconditionFailed, "already")
	}
	for _, tag := range []string{`"1"`, "", `*, "1"`, "a"} {
		r.send("PUT", seriesPath, order("a"), "If-None-Match: "+tag).problem(400, InvalidParameter, "If-None-Match")
	}
	for _, call := range [][3]string{{"PATCH", seriesPath, `{"payload":2}`}, {"DELETE", seriesPath, ""}, {"POST", triggerPath, ""}} {
		r.send(call[0], call[1], call[2], "If-None-Match: *").problem(400, NotSupported, "If-None-Match")
	}
	if after := r.series(); !after.Same(&before) {
		t.Errorf("%+v", after)
	}
	r.send("PUT", "/v1/messages/new", order("new"), "If-None-Match: *").is(201)
	r.send("PUT", "/v1/messages/new", order("new"), "If-None-Match: *").problem(412, PreconditionFailed)
}

// A PUT that made a message once, and is not possible any more, is not answered as if the message were that still.
func TestPutOfAnOriginal(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{
		recurring("a", `{"every":"PT1H","end":"2027-01-30T13:30:00Z"}`),
		`{"channel":"inbox:test","delay":"1h","payload":1,"expiresAt":"2027-01-30T14:00:00Z"}`,
	} {
		r.now = testNow
		r.send("PUT", "/v1/messages/a", body)
		tag := "If-Match: " + r.tagOf("a")
		r.send("PUT", "/v1/messages/a", recurring("a", `{"every":"PT7M"}`)).is(200)
		now := r.send("GET", "/v1/messages/a", "").body
		r.pass(5 * time.Hour)
		r.send("PUT", "/v1/messages/a", body).problem(400, InvalidField)
		r.send("PUT", "/v1/messages/a", body, tag).problem(400, InvalidField)
		if after := r.send("GET", "/v1/messages/a", "").body; after != now {
			t.Errorf("%s\nwas %s", after, now)
		}
	}
}

// A condition is about one message that may be there: no other call passes over it.
func TestConditionsOnOtherCalls(t *testing.T) {
	r := newRig(t, withKeys)
	for _, header := range []string{"If-Match: *", `If-None-Match: "1"`} {
		name, _, _ := strings.Cut(header, ":")
		for _, route := range routes {
			if route.method != "GET" && !strings.HasPrefix(route.path, "/v1/messages/{id}") {
				r.send(route.method, route.path, "{}", header, bearer(adminKey)).problem(400, NotSupported, name, "PUT or PATCH it")
			}
		}
	}
}

// Where there is no message, no condition is met, and none is made.
func TestIfMatchOfNothing(t *testing.T) {
	r := newRig(t)
	for _, tag := range []string{"*", `"1"`, ""} {
		r.send("PUT", "/v1/messages/a", order("a"), "If-Match: "+tag).problem(412, PreconditionFailed, "there is no message")
		r.send("PATCH", "/v1/messages/a", `{"delay":"1s"}`, "If-Match: "+tag).problem(404, NotFound)
		r.send("POST", triggerPath, "", "If-Match: "+tag).problem(404, NotFound)
	}
	if len(r.store.Rows) != 0 {
		t.Errorf("%d messages", len(r.store.Rows))
	}
}

// A PUT whose answer was lost is repeated as it was, with the version that it has replaced itself.
func TestPutAgainWithIfMatch(t *testing.T) {
	for _, body := range []string{
		`{"channel":"inbox:test","delay":"1h","payload":2}`, recurring("a", `{"every":"PT2H","end":"2027-01-30T16:00:00Z"}`),
		`{"channel":"inbox:test","delay":"1h","payload":2,"expiresAt":"2027-01-30T15:00:00Z"}`,
	} {
		r := newRig(t)
		r.send("PUT", "/v1/messages/a", order("a"))
		old := "If-Match: " + r.tagOf("a")
		first := r.send("PUT", "/v1/messages/a", body, old)
		for _, later := range []time.Duration{0, time.Hour, 9 * time.Hour} { // at last it can only be a repetition
			r.pass(later)
			if a := r.send("PUT", "/v1/messages/a", body, old).want(200, first.body); a.header.Get("ETag") != first.header.Get("ETag") || a.header.Get("ETag") != r.tagOf("a") {
				t.Errorf("%s: %v", body, a.header)
			}
		}
		r.send("PUT", "/v1/messages/a", order("a"), old).problem(412, PreconditionFailed)
	}
}

// Of two who change the version that both have read, one is told.
func TestIfMatchAtTheSameTime(t *testing.T) {
	for _, call := range [][3]string{{"PUT", "", recurring("a", `{"every":"PT2H"}`)}, {"PATCH", "", `{"payload":3}`}, {"PATCH", "", `{"paused":true,"payload":3}`}, {"POST", "/trigger", ""}} {
		r := withSeries(t)
		tag := "If-Match: " + r.tagOf("a")
		r.store.between = func() { r.patch(`{"payload":2}`) }
		r.send(call[0], seriesPath+call[1], call[2], tag).problem(412, PreconditionFailed)
		if rec := r.series(); string(rec.Payload) != "2" || rec.Recurrence.Every != time.Hour || rec.Paused || rec.Series.Fired != 0 {
			t.Errorf("%v: %+v", call, rec)
		}
	}
	r := withSeries(t) // a delivery is no such change
	tag := "If-Match: " + r.tagOf("a")
	r.store.between = func() { r.attempt(store.SettleDelivered, 0) }
	if a := r.send("PATCH", seriesPath, `{"payload":3}`, tag); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A cancel takes no condition, and says so, before it cancels anything.
func TestCancelWithIfMatch(t *testing.T) {
	r := withSeries(t)
	for _, tag := range []string{"*", r.tagOf("a"), ""} {
		r.send("DELETE", seriesPath, "", "If-Match: "+tag).problem(400, NotSupported, "leave the header out")
		r.send("DELETE", seriesPath, "", "If-None-Match: "+tag).problem(400, NotSupported, "leave the header out")
	}
	if got := r.series().Status; got != postdate.Pending {
		t.Errorf("it is %s", got)
	}
}
