package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
)

const (
	seriesPath  = "/v1/messages/a"
	triggerPath = "/v1/messages/a/trigger"
)

// withSeries is a rig with the series a, which recurs every hour from 13:00 on. It is 12:00.
func withSeries(t *testing.T, changes ...func(*Config)) *rig {
	t.Helper()
	r := newRig(t, changes...)
	r.send("PUT", seriesPath, recurring("a", everyHour))
	return r
}

func (r *rig) series() postdate.Record { return r.store.Rows[keyOf("a")].Record }

// patch changes the series a, and checks the answer.
func (r *rig) patch(body string) *answer {
	r.t.Helper()
	a := r.send("PATCH", seriesPath, body)
	want := fmt.Sprintf(`{"scheduleId":"a","bucket":%d,"executionTime":"%s","status":"PENDING"}`, keyOf("a").Bucket, r.series().First)
	return a.want(200, want)
}

// shows checks that a GET of the series a has each of the parts.
func (r *rig) shows(parts ...string) {
	r.t.Helper()
	a := r.send("GET", seriesPath, "")
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			r.t.Fatalf("%s\ndoes not show %s", a.body, part)
		}
	}
}

// counts makes the store count its calls by method.
func (r *rig) counts() map[string]int {
	calls := map[string]int{}
	r.store.seen = func(_ context.Context, method string) { calls[method]++ }
	return calls
}

// A change holds from the next occurrence on. The series keeps what it has done.
func TestPatchASeries(t *testing.T) {
	r := withSeries(t)
	r.attempt(store.SettleDelivered, 0)
	r.pass(70 * time.Minute)
	before := r.series()
	past := `"fired":1,"failed":0,"skipped":0,"history":[{"executionTime":"2027-01-30T13:00:00.000Z","status":"DELIVERED","at":"2027-01-30T13:00:00.005Z","attempts":1}]}}`

	r.patch(`{"payload":"new","contentType":"text/plain","channel":"rabbitmq:b"}`)
	r.shows(`"channel":"rabbitmq:b"`, `"contentType":"text/plain","payload":"new"`, `"createdAt":"2027-01-30T12:00:00.000Z"`,
		`"nextAttemptAt":"2027-01-30T14:00:00.000Z"`, `"next":"2027-01-30T14:00:00.000Z",`+past)

	r.patch(`{"recurrence":{"every":"PT30M"}}`)
	r.shows(`"channel":"rabbitmq:b"`, `"payload":"new"`, `"recurrence":{"every":"PT30M"}`, `"next":"2027-01-30T13:30:00.000Z",`+past)
	if last := r.nudges[len(r.nudges)-1]; last != (nudge{before.Bucket, testNow.Add(90 * time.Minute)}) {
		t.Errorf("the owner is told %v", last)
	}

	r.patch(`{"recurrence":{"every":"PT7M"},"payload":3,"channel":"inbox:test","paused":true}`)
	r.shows(`"channel":"inbox:test"`, `"payload":3`, `"recurrence":{"every":"PT7M"},"series":{"paused":true,`, past)
	if after := r.series(); after.Version != before.Version+3 || after.Run != before.Run || after.CreatedAt != before.CreatedAt || !after.Owns(before.Version) {
		t.Errorf("%+v\nbefore: %+v", after, before)
	}
}

// What is changed equals a series that was scheduled so, for a PUT that repeats it.
func TestPatchedSeriesIsPutAgain(t *testing.T) {
	r := withSeries(t)
	r.patch(`{"recurrence":{"every":"PT2H"},"paused":true}`)
	before := r.series()
	r.send("PUT", seriesPath, recurring("a", `{"every":"PT2H"}`)).want(200, r.patch(`{"paused":true}`).body)
	if after := r.series(); after.Version != before.Version || !after.Paused {
		t.Errorf("it was replaced: %+v", after.State)
	}
	r.send("PUT", seriesPath, recurring("a", everyHour))
	if after := r.series(); after.Version != before.Version+1 || after.Paused || after.Changes != 0 {
		t.Errorf("it was not replaced: %+v", after.State)
	}
}

// Fields of a rule stay unless they are given, and null removes them.
func TestPatchMergesTheRule(t *testing.T) {
	for _, test := range []struct{ rule, patch, want string }{
		{everyHour, `{"jitter":"PT1M","maxRuns":5}`, `{"every":"PT1H","jitter":"PT1M","maxRuns":5}`},
		{`{"every":"PT1H","jitter":"PT1M","maxRuns":5,"misfire":"skip"}`, `{"jitter":null,"misfire":null}`, `{"every":"PT1H","maxRuns":5}`},
		{`{"every":"PT1H","end":"2028-01-30T12:00:00.000Z"}`, `{"every":"90m"}`, `{"every":"PT1H30M","end":"2028-01-30T12:00:00.000Z"}`},
		{everyHour, `{"every":null,"cron":"@daily","timezone":"UTC"}`, `{"cron":"@daily","timezone":"UTC"}`},
		{`{"cron":"0 9 * * *","timezone":"Europe/Berlin","gap":"skip","overlap":"both"}`, `{"timezone":"Asia/Tokyo","gap":null}`,
			`{"cron":"0 9 * * *","timezone":"Asia/Tokyo","overlap":"both"}`},
		{`{"cron":"0 9 * * *","timezone":"Europe/Berlin","gap":"skip"}`, `{"cron":null,"timezone":null,"gap":null,"every":"PT1H","anchor":"2027-02-01T00:00:00Z"}`,
			`{"every":"PT1H","anchor":"2027-02-01T00:00:00.000Z"}`},
		{everyHour, `{"start":null}`, everyHour},
		{everyHour, `{}`, everyHour},
	} {
		r := newRig(t)
		r.send("PUT", seriesPath, recurring("a", test.rule))
		r.patch(`{"recurrence":` + test.patch + `}`)
		r.shows(`"recurrence":` + test.want + `,"series"`)
	}
}

// A change that is refused says why, and changes nothing.
func TestBadPatchOfASeries(t *testing.T) {
	r := withSeries(t)
	before := r.series()
	const merge = "(a field that is not given stays; null removes one)"
	for body, words := range map[string][2]string{
		`{"recurrence":{"cron":"@daily","timezone":"UTC"}}`:    {"/recurrence", merge},
		`{"recurrence":{"every":null}}`:                        {"/recurrence", merge},
		`{"recurrence":{"every":null,"cron":"@daily"}}`:        {"/recurrence", "timezone"},
		`{"recurrence":{"every":"1ms"}}`:                       {"/recurrence/every", "100ms"},
		`{"recurrence":{"every":"soon"}}`:                      {"/recurrence/every", "soon"},
		`{"recurrence":{"misfire":"wait"}}`:                    {"/recurrence/misfire", "fire_once"},
		`{"recurrence":5}`:                                     {"/recurrence", "an object was expected"},
		`{"recurrence":null}`:                                  {"/recurrence", "cannot be removed: cancel the series"},
		`{"recurrence":null,"payload":1}`:                      {"/recurrence", "cannot be removed: cancel the series"},
		`{"recurrence":{"end":"2027-01-30T12:30:00Z"}}`:        {"/recurrence", "no occurrence follows after 2027-01-30T12:00:00.000Z"},
		`{"executionTime":"2027-02-01T00:00:00Z"}`:             {"/executionTime", "change its recurrence instead"},
		`{"delay":"1h","recurrence":{"every":"1h"}}`:           {"/delay", "change its recurrence instead"},
		`{"delay":"1h","paused":true}`:                         {"/delay", "change its recurrence instead"},
		`{"channel":"x:y"}`:                                    {"/channel", "not configured"},
		`{"channel":"none"}`:                                   {"/channel", "channel"},
		`{"headers":{}}`:                                       {"/headers", "with PUT"},
		`{"paused":true,"priority":"low"}`:                     {"/priority", "with PUT"},
		`{"paused":true,"expiresAt":"2028-01-30T12:30:00Z"}`:   {"/expiresAt", "with PUT"},
		`{"paused":"yes"}`:                                     {"/paused", "true or false was expected"},
		`{"paused":null}`:                                      {"/paused", "cannot be removed: leave it out"},
		`{"paused":true,"contentType":"a/b"}`:                  {"/contentType", "give both"},
		`{"paused":false,"payload":"x","contentType":"a b/c"}`: {"/contentType", "media type"},
	} {
		a := r.send("PATCH", seriesPath, body).problem(400, InvalidField, words[1])
		if words[0] != "" && !strings.Contains(a.body, `"pointer":"`+words[0]+`"`) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	r.send("PATCH", seriesPath, `{"recurrence":{"evry":null}}`).problem(400, UnknownField, `"pointer":"/recurrence/evry"`, `"suggestion":"every"`)
	r.send("PATCH", seriesPath, `{"every":"1h"}`).problem(400, UnknownField, "put it into recurrence")
	r.send("PATCH", seriesPath, `{"recurrence":{"every":"1h","every":"2h"}}`).problem(400, DuplicateField)
	if after := r.series(); !after.Same(&before) || after.Recurrence != before.Recurrence || after.Digest != before.Digest {
		t.Errorf("%+v\nbefore: %+v", after, before)
	}
}

// A paused series begins nothing. Resumed, it goes on with what follows then.
func TestPauseASeries(t *testing.T) {
	r := withSeries(t)
	fresh := r.send("GET", seriesPath, "").body
	tag := r.patch(`{"paused":true}`).header.Get("ETag")
	paused := `"attempts":0,"recurrence":{"every":"PT1H"},"series":{"paused":true,"fired":0,"failed":0,"skipped":0,"history":[]}}`
	r.shows(paused)
	if list := r.send("GET", "/v1/messages", "").body; !strings.Contains(list, paused) {
		t.Error(list)
	}
	row := r.store.Rows[keyOf("a")]
	if again := r.patch(`{"paused":true}`).header.Get("ETag"); again != tag || r.store.Rows[keyOf("a")] != row {
		t.Errorf("a second pause changed something: %s, before %s", again, tag)
	}

	tag = r.patch(`{"paused":false}`).header.Get("ETag") // before anything was due
	if a := r.send("GET", seriesPath, ""); strings.ReplaceAll(a.body, strings.Trim(tag, `"`), fmt.Sprint(row.Version)) != fresh {
		t.Errorf("%s\nwant %s", a.body, fresh)
	}
	row = r.store.Rows[keyOf("a")]
	if again := r.patch(`{"paused":false}`).header.Get("ETag"); again != tag || r.store.Rows[keyOf("a")] != row {
		t.Errorf("a second resume changed something: %s, before %s", again, tag)
	}

	r.patch(`{"paused":true,"payload":7}`)
	r.pass(3*time.Hour + 30*time.Minute)
	r.patch(`{"payload":8}`) // it stays paused
	r.shows(`"payload":8`, `"series":{"paused":true,"fired"`)
	r.patch(`{"paused":false}`)
	r.shows(`"payload":8`, `"series":{"paused":false,"last":"2027-01-30T13:00:00.000Z","next":"2027-01-30T16:00:00.000Z","fired":0,"failed":0,"skipped":3,"history":[`+
		`{"executionTime":"2027-01-30T13:00:00.000Z","status":"SKIPPED","at":"2027-01-30T15:30:00.000Z","skipped":3}]}}`)
	if last := r.nudges[len(r.nudges)-1]; last != (nudge{keyOf("a").Bucket, testNow.Add(4 * time.Hour)}) {
		t.Errorf("the owner is told %v", last)
	}
	r.patch(`{"paused":true}`)
	r.send("DELETE", seriesPath, "").want(200, `{"scheduleId":"a","status":"CANCELLED"}`)
	r.shows(`"series":{"paused":false`)
}

// A series of which nothing is left when it is resumed stays paused.
func TestResumeASeriesThatIsOver(t *testing.T) {
	r := newRig(t)
	r.send("PUT", seriesPath, recurring("a", `{"every":"PT1H","end":"2027-01-30T13:30:00Z"}`))
	r.patch(`{"paused":true}`)
	r.pass(90 * time.Minute)
	r.send("PATCH", seriesPath, `{"paused":false}`).problem(400, InvalidField, `"pointer":"/paused"`, "no occurrence follows after 2027-01-30T13:30:00.000Z", "cancel the series")
	r.patch(`{"paused":false,"recurrence":{"end":null}}`)
	r.shows(`"next":"2027-01-30T14:00:00.000Z"`)
}

// A pause does not wait for an occurrence that is on its way, and holds after it.
func TestPauseWhileAnOccurrenceIsOnItsWay(t *testing.T) {
	r := withSeries(t)
	r.pass(time.Hour)
	r.store.claim(testNow.Add(time.Hour))
	calls := r.counts()
	r.patch(`{"paused":true}`)
	r.patch(`{"paused":true}`)
	if calls["Pause"] != 1 || calls["Replace"] != 0 {
		t.Errorf("calls %v", calls)
	}
	r.attempt(store.SettleDelivered, 0)
	r.shows(`"series":{"paused":true,"last":"2027-01-30T13:00:00.000Z","fired":1,`)
	r.patch(`{"paused":false}`)
	r.store.claim(testNow.Add(2 * time.Hour))
	r.patch(`{"paused":false}`) // nothing is to be done, so it does not wait
	if calls["Replace"] != 1 {
		t.Errorf("calls %v", calls)
	}
}

// Another change waits for the occurrence that is on its way, which goes out as it was.
func TestPatchWaitsForAnOccurrence(t *testing.T) {
	for _, body := range []string{`{"payload":2}`, `{"recurrence":{"every":"PT30M"}}`, `{"paused":true,"payload":2}`, `{"channel":"inbox:b","paused":false}`} {
		r := withSeries(t)
		r.pass(time.Hour)
		r.store.claim(testNow.Add(time.Hour))
		gets := 0
		r.store.seen = func(_ context.Context, method string) {
			if method == "Get" {
				if gets++; gets == 4 {
					r.attempt(store.SettleDelivered, 0)
				}
			}
		}
		r.patch(body)
		r.store.seen = nil
		r.shows(`"fired":1,"failed":0,"skipped":0,"history":[{"executionTime":"2027-01-30T13:00:00.000Z","status":"DELIVERED"`)
		if after := r.series(); gets != 5 || after.Changes != 1 || after.Occurrence <= testNow.Add(time.Hour) {
			t.Errorf("%s: %d reads, %+v", body, gets, after)
		}
	}
}

// A change that has waited for long is refused, and says how to get through.
func TestPatchGivesUpOnAnOccurrence(t *testing.T) {
	r := withSeries(t)
	r.store.claim(testNow.Add(time.Hour))
	before := r.series()
	calls := r.counts()
	begun := time.Now()
	a := r.send("PATCH", seriesPath, `{"payload":2}`).problem(409, TooLate, `"messageStatus":"PENDING"`, "occurrence of 2027-01-30T13:00:00.000Z may have begun", "pause the series first")
	if a.header.Get("Retry-After") != "1" || calls["Replace"] != 1 || time.Since(begun) < inFlightWait-2*inFlightLookMax {
		t.Errorf("Retry-After %q after %v, calls %v", a.header.Get("Retry-After"), time.Since(begun), calls)
	}
	if a := r.send("PUT", seriesPath, order("a")).problem(409, TooLate); a.header.Get("Retry-After") != "1" || calls["Replace"] != 2 {
		t.Errorf("PUT: Retry-After %q, calls %v", a.header.Get("Retry-After"), calls)
	}
	r.send("PUT", "/v1/messages/b", order("b"))
	r.store.claim(testNow.Add(25 * time.Hour))
	if a := r.send("PATCH", "/v1/messages/b", `{"payload":2}`).problem(409, TooLate); a.header.Get("Retry-After") != "" {
		t.Errorf("a single message: Retry-After %q", a.header.Get("Retry-After"))
	}
	if after := r.series(); !after.Same(&before) || string(after.Payload) != string(before.Payload) {
		t.Errorf("%+v", after)
	}
}

// What does not go on is neither changed nor triggered, and the answer says how it stands.
func TestChangesOfASeriesThatDoesNotGoOn(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(r *rig)
		parts []string
	}{
		"cancelled": {func(r *rig) { r.send("DELETE", seriesPath, "") }, []string{`"messageStatus":"CANCELLED"`, "was cancelled already"}},
		"ending": {func(r *rig) {
			r.store.claim(testNow.Add(time.Hour))
			r.send("DELETE", seriesPath, "").problem(409, TooLate)
		}, []string{`"messageStatus":"PENDING"`, "the series was cancelled: it ends with its occurrence of 2027-01-30T13:00:00.000Z"}},
		"over": {func(r *rig) { r.attempt(store.SettleDelivered, 0) }, []string{`"messageStatus":"DELIVERED"`, `"deliveredAt"`, "the series has ended already"}},
	} {
		for _, ended := range []bool{true, false} { // before the request, or between read and write
			for _, call := range [][3]string{{"PATCH", "", `{"payload":2}`}, {"PATCH", "", `{"paused":true}`}, {"PATCH", "", `{"paused":false}`}, {"POST", "/trigger", ""}} {
				if !ended && call[2] == `{"paused":false}` {
					continue // it writes nothing
				}
				r := newRig(t)
				r.send("PUT", seriesPath, recurring("a", `{"every":"PT1H","maxRuns":1}`))
				if r.store.between = func() { test.end(r) }; ended {
					r.store.between()
					r.store.between = nil
				}
				calls := r.counts()
				r.send(call[0], seriesPath+call[1], call[2]).problem(409, TooLate, append(test.parts, `"scheduleId":"a"`)...)
				if calls["Get"] > 4 || len(r.store.Rows) != 1 {
					t.Errorf("%s, %v: calls %v, rows %d", name, call, calls, len(r.store.Rows))
				}
			}
		}
	}
	r := withSeries(t)
	r.attempt(store.SettleRetry, 0)
	calls := r.counts()
	for _, call := range [][3]string{{"PATCH", "", `{"paused":true}`}, {"POST", "/trigger", ""}} {
		r.send(call[0], "/v1/messages/none"+call[1], call[2]).problem(404, NotFound, `"scheduleId":"none"`)
		r.send(call[0], escaped(occurrence("13:00"))+call[1], call[2]).problem(400, InvalidParameter, "it can be read and cancelled, but neither made nor changed")
		r.send(call[0], "/v1/messages/a%20b"+call[1], call[2]).problem(400, InvalidParameter, "forbidden character")
		r.send(call[0], seriesPath+call[1]+"?x=1", call[2]).problem(400, InvalidParameter, "takes none")
	}
	if calls["Get"] != 2 {
		t.Errorf("calls %v", calls)
	}
}

// Changes at the same time both hold, in whichever order they came.
func TestChangesAtTheSameTime(t *testing.T) {
	steps := map[string]struct {
		do   func(r *rig)
		done func(rec *postdate.Record) bool
	}{
		"pause":   {func(r *rig) { r.patch(`{"paused":true}`) }, func(rec *postdate.Record) bool { return rec.Paused }},
		"payload": {func(r *rig) { r.patch(`{"payload":2}`) }, func(rec *postdate.Record) bool { return string(rec.Payload) == "2" }},
		"rule":    {func(r *rig) { r.patch(`{"recurrence":{"jitter":"1s"}}`) }, func(rec *postdate.Record) bool { return rec.Recurrence.Jitter != 0 }},
		"trigger": {func(r *rig) {
			if a := r.send("POST", triggerPath, ""); a.status != 201 {
				t.Error(a.body)
			}
		}, func(rec *postdate.Record) bool { return rec.Series.Fired == 1 }},
		"skip": {func(r *rig) { r.attempt(store.SettleSkip, 1) }, func(rec *postdate.Record) bool { return rec.Series.Skipped == 1 }},
	}
	for first, one := range steps {
		for second, other := range steps {
			if first == second || first == "skip" {
				continue
			}
			r := withSeries(t)
			r.store.between = func() { other.do(r) }
			one.do(r)
			if rec := r.series(); !one.done(&rec) || !other.done(&rec) {
				t.Errorf("%s while %s: %+v", second, first, rec)
			}
		}
	}
	r := withSeries(t)
	r.store.seen = func(_ context.Context, method string) {
		if method != "Get" {
			r.store.set(keyOf("a"), func(rec *postdate.Record) { rec.Version++ })
		}
	}
	for _, call := range [][3]string{{"PATCH", "", `{"payload":2}`}, {"PATCH", "", `{"paused":true}`}, {"POST", "/trigger", ""}} {
		r.send(call[0], seriesPath+call[1], call[2]).problem(409, Conflict, "GET")
	}
}

// An occurrence out of turn is a message of its own. The series goes on as it would.
func TestTrigger(t *testing.T) {
	r := withSeries(t)
	r.pass(5 * time.Minute)
	now, before := testNow.Add(5*time.Minute), r.series()
	answer := func(at string) string {
		return fmt.Sprintf(`{"scheduleId":"a/2027-01-30T%sZ","bucket":%d,"executionTime":"2027-01-30T%sZ","status":"PENDING"}`, at, keyOf("a").Bucket, at)
	}
	a := r.send("POST", triggerPath, "").want(201, answer("12:05:00.000"))
	if tag := a.header.Get("ETag"); tag != "" {
		t.Errorf("ETag %s", tag)
	}
	if last := r.nudges[len(r.nudges)-1]; last != (nudge{before.Bucket, now}) {
		t.Errorf("the owner is told %v", last)
	}
	r.send("POST", triggerPath, "{}").want(201, answer("12:05:00.001")) // in the same millisecond
	extra := `{"executionTime":"2027-01-30T12:05:00.00%dZ","status":"%s","at":"2027-01-30T12:05:00.00%dZ"%s}`
	history := func(first, second string) {
		t.Helper()
		r.shows(`"attempts":0,"nextAttemptAt":"2027-01-30T13:00:00.000Z","recurrence":{"every":"PT1H"},"series":{"paused":false,"last":"2027-01-30T12:05:00.001Z",` +
			`"next":"2027-01-30T13:00:00.000Z","fired":2,"failed":0,"skipped":0,"history":[` + first + "," + second + `]}}`)
	}
	pending := fmt.Sprintf(extra, 1, "PENDING", 1, "")
	history(fmt.Sprintf(extra, 0, "PENDING", 0, ""), pending)
	child := r.store.Rows[keyOf("a/2027-01-30T12:05:00.000Z")].Record
	if child.Recurrence != nil || child.AttemptTime != now || string(child.Payload) != string(before.Payload) || child.Channel != before.Channel || r.series().Version != before.Version {
		t.Errorf("%+v", child)
	}
	r.store.set(child.Key, func(rec *postdate.Record) { rec.Status, rec.SettledAt, rec.Attempts = postdate.Delivered, now+3, 1 })
	history(fmt.Sprintf(extra, 0, "DELIVERED", 3, `,"attempts":1`), pending)
	r.patch(`{"payload":2}`) // what was triggered stays the series' own, and as it was
	history(fmt.Sprintf(extra, 0, "DELIVERED", 3, `,"attempts":1`), pending)
	r.tail("a/2027-01-30T12:05:00.001Z", `"status":"PENDING","attempts":0,"nextAttemptAt":"2027-01-30T12:05:00.001Z"}`)
	if payload := r.store.Rows[keyOf("a/2027-01-30T12:05:00.001Z")].Payload; string(payload) != `{"order":1}` {
		t.Errorf("its payload is %s", payload)
	}
	metrics := r.send("GET", "/metrics", "").body
	for _, line := range []string{`postdate_scheduled_total{broker="inbox",tenant="default"} 3`, `postdate_http_requests_total{code="201",method="POST",route="/v1/messages/{id}/trigger"} 2`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	r.send("DELETE", seriesPath, "").want(200, `{"scheduleId":"a","status":"CANCELLED"}`)
	if got := r.store.Rows[keyOf("a/2027-01-30T12:05:00.001Z")].Status; got != postdate.Cancelled {
		t.Errorf("after the series' cancel it is %s", got)
	}
}

// What is triggered at the time of an occurrence is another one, and neither a pause nor an occurrence that is
// on its way stops it.
func TestTriggerAtAnyTime(t *testing.T) {
	r := withSeries(t)
	r.pass(time.Hour)
	r.store.claim(testNow.Add(time.Hour))
	if a := r.send("POST", triggerPath, ""); a.status != 201 || !strings.Contains(a.body, `"scheduleId":"a/2027-01-30T13:00:00.001Z"`) {
		t.Errorf("at the time of an occurrence that is on its way: %d %s", a.status, a.body)
	}
	r.attempt(store.SettleDelivered, 0)
	r.patch(`{"paused":true}`)
	r.pass(2 * time.Hour)
	if a := r.send("POST", triggerPath, ""); a.status != 201 || !strings.Contains(a.body, `"scheduleId":"a/2027-01-30T15:00:00.001Z"`) {
		t.Errorf("of a paused series: %d %s", a.status, a.body)
	}
	r.shows(`"series":{"paused":true,"last":"2027-01-30T15:00:00.001Z","fired":3,"failed":0,"skipped":0`)
}

// A trigger takes nothing but a series.
func TestBadTrigger(t *testing.T) {
	r := withSeries(t)
	r.send("PUT", "/v1/messages/b", order("b"))
	r.send("POST", "/v1/messages/b/trigger", "").problem(400, NotSupported, `"scheduleId":"b"`, "does not recur", `PATCH it with {\"delay\": \"0s\"}`)
	for body, kind := range map[string]ProblemType{
		`{"payload":2}`: UnknownField, `{"at":2}`: UnknownField, `{`: MalformedJSON, `[]`: InvalidField, `{}{}`: MalformedJSON, ` `: MalformedJSON,
	} {
		a := r.send("POST", triggerPath, body).problem(400, kind)
		if kind == UnknownField && (!strings.Contains(a.body, "this call takes no fields") || strings.Contains(a.body, "suggestion")) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	r.send("POST", triggerPath, "x", "Content-Type: text/plain").problem(415, UnsupportedContent)
	r.send("GET", triggerPath, "").problem(405, MethodNotAllowed, "POST")
	if len(r.store.Rows) != 2 || r.series().Series.Fired != 0 {
		t.Errorf("%d messages", len(r.store.Rows))
	}
}

// A key for some channels moves nothing from or to others, and triggers nothing there.
func TestChangesWithAKeyForSomeChannels(t *testing.T) {
	r := newRig(t, withKeys)
	free := bearer(r.key("acme", auth.WriteMessages))
	key := bearer(r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages}, Channels: []string{"inbox:te*"}}))
	for id, channel := range map[string]string{"mine": "inbox:test", "other": "inbox:other"} {
		for _, rest := range []string{`"recurrence":{"every":"PT1H"}`, `"delay":"1h"`} {
			name := id + rest[1:2]
			r.send("PUT", "/v1/messages/"+name, `{"channel":"`+channel+`","payload":1,`+rest+`}`, free)
			allowed := id == "mine"
			for _, body := range []string{`{"payload":2}`, `{"channel":"inbox:tea"}`, `{"paused":true}`, `{"paused":false}`} {
				if a := r.send("PATCH", "/v1/messages/"+name, body, key); allowed == (a.status == 403) {
					t.Errorf("%s %s: %d %s", name, body, a.status, a.body)
				}
			}
			if a := r.send("POST", "/v1/messages/"+name+"/trigger", "", key); allowed == (a.status == 403) {
				t.Errorf("trigger %s: %d %s", name, a.status, a.body)
			}
			if a := r.send("PATCH", "/v1/messages/"+name, `{"payload":2}`, key, `If-Match: "1"`); allowed == (a.status == 403) {
				t.Errorf("%s with If-Match: %d %s", name, a.status, a.body)
			}
		}
	}
	r.send("PATCH", "/v1/messages/miner", `{"channel":"inbox:other"}`, key).problem(403, Forbidden, `"pointer":"/channel"`)
	if a := r.send("PATCH", "/v1/messages/miner", `{"channel":"inbox:other"}`, free); a.status != 200 {
		t.Error(a.body)
	}
}

// What is triggered counts against the limits of its tenant, and so does a larger payload. A pause does not.
func TestChangesAtTheLimits(t *testing.T) {
	at := time.Unix(1_900_000_000, 0)
	r := withSeries(t, withQuota(quota.Limits{PendingMax: 2, BytesMax: 40, ChannelsMax: 1}, &at))
	if a := r.send("POST", triggerPath, ""); a.status != 201 {
		t.Fatal(a.body)
	}
	if a := r.send("POST", triggerPath, "").problem(429, Limited, `"limit":"pendingMax"`); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
	if got := r.series().Series.Fired; got != 1 || len(r.store.Rows) != 2 {
		t.Errorf("what was refused was counted: %d", got)
	}
	r.patch(`{"paused":true}`)
	r.patch(`{"payload":{"order":2},"paused":false}`)
	r.send("PATCH", seriesPath, `{"payload":"`+strings.Repeat("x", 30)+`"}`).problem(429, Limited, `"limit":"bytesMax"`)
	r.send("PATCH", seriesPath, `{"channel":"inbox:b"}`).problem(429, Limited, `"limit":"channelsMax"`)
	r.shows(`"payload":{"order":2}`, `"channel":"inbox:test"`)
}
