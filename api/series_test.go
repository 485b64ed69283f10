package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// recurring is the body of a message that recurs.
func recurring(id, rule string) string {
	return `{"scheduleId":"` + id + `","channel":"inbox:test","payload":{"order":1},"recurrence":` + rule + `}`
}

const everyHour = `{"every":"PT1H"}`

// occurrence is the id of an occurrence of the series a, in its bucket.
func occurrence(at string) string { return "a/2027-01-30T" + at + ":00.000Z" }

func escaped(id string) string { return "/v1/messages/" + strings.ReplaceAll(id, "/", "%2F") }

// own makes the test the owner of a's bucket, and returns its token.
func (r *rig) own() uint64 {
	b := keyOf("a").Bucket
	record := r.store.Records[b]
	if record.Owner == "" {
		acquired, _ := r.store.Acquire(context.Background(), []store.Acquisition{{Bucket: b, SeenToken: record.Token, Owner: "n", Lease: "l"}})
		record = acquired[0].Partition
	}
	return record.Token
}

// attempt settles the present occurrence of the series a, as if its delivery had ended like that an hour
// from now, when it began.
func (r *rig) attempt(how store.Settling, skipped int64) {
	r.t.Helper()
	rec := r.store.Rows[keyOf("a")].Record
	rule, err := recurrence.Parse(*rec.Recurrence, rec.CreatedAt)
	if err != nil {
		r.t.Fatal(err)
	}
	s := store.Settlement{Key: rec.Key, ExecutionTime: rec.Occurrence, Version: rec.Version, Token: r.own(), How: how, At: rec.Occurrence + 5,
		AttemptTime: rec.Occurrence.Add(24 * time.Hour), Attempts: 1, Occurrence: rec.Occurrence, Next: store.Next{Skipped: skipped}}
	if how == store.SettleSkip {
		s.Attempts = 0
	} else if how != store.SettleDelivered {
		s.Reason = "NACK"
	}
	at, run, ok := rec.Occurrence, rec.Run, true
	for range max(skipped, 1) {
		at, ok = rule.Next(at, run)
		run++
	}
	if s.Next.Over = !ok; ok {
		s.Next.Occurrence, s.Next.AttemptTime = at, rule.Due("a", at)
	}
	if err := r.store.Settle(context.Background(), []store.Settlement{s}); err != nil {
		r.t.Fatal(err)
	}
}

// tail is what a GET of a message shows from its status on.
func (r *rig) tail(id, want string) {
	r.t.Helper()
	a := r.send("GET", escaped(id), "")
	if _, tail, _ := strings.Cut(a.body, `"headers":{},`); a.status != 200 || tail != want {
		r.t.Fatalf("got  %d %s\nwant %s", a.status, a.body, want)
	}
}

// A series is scheduled in every way in which a message is, and answers show its first occurrence.
func TestScheduleASeries(t *testing.T) {
	answer := func(id, at string) string {
		return fmt.Sprintf(`{"scheduleId":"%s","bucket":%d,"executionTime":"%s","status":"PENDING"`, id, keyOf(id).Bucket, at)
	}
	for _, test := range []struct{ rule, first, shown string }{
		{everyHour, "2027-01-30T13:00:00.000Z", ""},
		{`{"every":"1h30m0.5s","anchor":"2027-01-30T13:00:00+01:00"}`, "2027-01-30T13:30:00.500Z", `{"every":"PT1H30M0.5S","anchor":"2027-01-30T12:00:00.000Z"}`},
		{`{"every":"PT24H","anchor":"2027-01-30T12:00:00.001Z"}`, "2027-01-30T12:00:00.001Z", ""},
		{`{"every":"PT24H","anchor":"2027-01-30T12:00:00.001Z","misfire":"fire_once","misfireAfter":"60s"}`, "2027-01-30T12:00:00.001Z",
			`{"every":"PT24H","anchor":"2027-01-30T12:00:00.001Z"}`}, // defaults
		{`{"every":"P1D","start":"2027-02-01T00:00:00Z"}`, "2027-02-01T00:00:00.000Z", `{"every":"PT24H","start":"2027-02-01T00:00:00.000Z"}`},
		{`{"every":"100ms","jitter":"100ms","maxRuns":1000000000,"misfire":"fire_all","misfireAfter":"90s","end":"2027-01-30T12:00:00.1Z"}`,
			"2027-01-30T12:00:00.100Z",
			`{"every":"PT0.1S","jitter":"PT0.1S","misfireAfter":"PT1M30S","end":"2027-01-30T12:00:00.100Z","misfire":"fire_all","maxRuns":1000000000}`},
		{`{"cron":"0 9 * * MON","timezone":"Europe/Berlin","misfire":"skip","gap":"after","overlap":"second"}`, "2027-02-01T08:00:00.000Z", ""},
		{`{"cron":"@daily","timezone":"UTC","jitter":"PT5H","misfire":"fire_once","gap":"skip","overlap":"both","every":null}`, "2027-01-31T00:00:00.000Z",
			`{"jitter":"PT5H","cron":"@daily","timezone":"UTC","gap":"skip","overlap":"both"}`},
	} {
		r := newRig(t)
		first := answer("a", test.first)
		r.send("POST", "/v1/messages", recurring("a", test.rule)).want(201, first+"}")
		rec := r.store.Rows[keyOf("a")].Record
		if rec.First.String() != test.first || rec.Occurrence != rec.First || rec.Run != 1 || rec.ExecutionTime < rec.First ||
			rec.ExecutionTime > rec.First.Add(rec.Recurrence.Jitter) || rec.Recurrence.Jitter > time.Second && rec.ExecutionTime == rec.First {
			t.Errorf("%s: %+v", test.rule, rec)
		}
		if r.nudges[0] != (nudge{rec.Bucket, rec.ExecutionTime}) {
			t.Errorf("%s: nudges %v", test.rule, r.nudges)
		}
		shown := `"recurrence":` + orElse(test.shown, test.rule) + `,"series":{"paused":false,"next":"` + test.first + `","fired":0,"failed":0,"skipped":0,"history":[]}}`
		for _, path := range []string{"/v1/messages/a", "/v1/messages"} {
			if a := r.send("GET", path, ""); !strings.Contains(a.body, `"executionTime":"`+test.first+`"`) || !strings.Contains(a.body, shown) {
				t.Errorf("GET %s: %s\nwant %s", path, a.body, shown)
			}
		}
		r.pass(30 * time.Hour) // also when nothing of some is left
		r.send("POST", "/v1/messages", recurring("a", test.rule)).want(200, first+"}")
		r.send("PUT", "/v1/messages/a", recurring("a", test.rule)).want(200, first+"}")
		r.send("POST", "/v1/messages/batch", "["+recurring("a", test.rule)+"]").want(200, `{"results":[`+first+`,"created":false}]}`)
		r.send("POST", "/v1/messages", recurring("a", `{"every":"PT2H"}`)).problem(409, Exists)
	}
	r := newRig(t)
	r.send("PUT", "/v1/messages/a", recurring("a", everyHour)).want(201, answer("a", "2027-01-30T13:00:00.000Z")+"}")
	r.send("POST", "/v1/messages/batch", recurring("b", everyHour)+"\n"+recurring("c", `{"every":"PT0S"}`), "Content-Type: application/x-ndjson").want(200,
		`{"results":[`+answer("b", "2027-01-30T13:00:00.000Z")+`,"created":true},{"scheduleId":"c","error":{"type":"urn:postdate:problem:invalid-field",`+
			`"title":"A field of the body is invalid","status":400,"detail":"\"PT0S\" must be more than 0","pointer":"/recurrence/every"}}]}`)
}

// The jitter follows from the id, also from one that the server makes.
func TestJitterOfAGeneratedID(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", strings.Replace(recurring("", `{"every":"P1D","jitter":"P1D"}`), `"scheduleId":"",`, "", 1))
	for _, rec := range r.store.Rows {
		rule, _ := recurrence.Parse(*rec.Recurrence, rec.CreatedAt)
		if rec.ExecutionTime != rule.Due(rec.ScheduleID, rec.First) {
			t.Errorf("%+v", rec)
		}
	}
	if len(r.store.Rows) != 1 {
		t.Errorf("%d messages", len(r.store.Rows))
	}
}

// What does not go with a recurrence is refused, and so is one that is none.
func TestBadSeries(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct{ fields, pointer, words string }{
		{`"recurrence":{"every":"PT1H"},"executionTime":"2027-01-31T12:00:00Z"`, "/executionTime", "start or anchor"},
		{`"recurrence":{"every":"PT1H"},"delay":"1h"`, "/delay", "start or anchor"},
		{`"recurrence":{"every":"PT1H"},"expiresAt":"2027-01-31T12:00:00Z"`, "/expiresAt", "with end, and with misfire"},
		{`"recurrence":{"every":"PT1H","end":"2027-01-30T12:59:59.999Z"}`, "/recurrence", "no occurrence after 2027-01-30T12:00:00.000Z"},
		{`"recurrence":{"cron":"@daily","timezone":"UTC","end":"2027-01-30T00:00:00Z"}`, "/recurrence", "no occurrence after"},
		{`"recurrence":{}`, "/recurrence", "needs every"},
		{`"recurrence":{"cron":"@daily"}`, "/recurrence", "needs a timezone"},
		{`"recurrence":{"every":"1s","misfire":"wait"}`, "/recurrence/misfire", "fire_once, fire_all, skip"},
		{`"recurrence":{"every":5}`, "/recurrence/every", "PT15M"},
		{`"recurrence":"PT1H"`, "/recurrence", "an object was expected"},
		{`"recurrence":{"every":"PT1H"},"paused":true`, "/paused", "schedule the series, then pause it"},
		{`"recurrence":{"every":"PT1H"},"paused":false`, "/paused", "PATCH"},
		{`"delay":"1h","paused":true`, "/paused", "PATCH"},
		{`"recurrence":null`, "/executionTime", "recurrence (like"},
	} {
		body := `{"scheduleId":"a","channel":"inbox:test","payload":1,` + test.fields + `}`
		for _, call := range [][2]string{{"POST", "/v1/messages"}, {"PUT", "/v1/messages/a"}} {
			r.send(call[0], call[1], body).problem(400, InvalidField, `"pointer":"`+test.pointer+`"`, test.words)
		}
	}
	body := `{"scheduleId":"a","channel":"inbox:test","payload":1,`
	if a := r.send("POST", "/v1/messages/batch", "["+body+`"recurrence":{"every":"PT1H"},"paused":true}]`); !strings.Contains(a.body, `"pointer":"/paused"`) {
		t.Error(a.body)
	}
	r.send("POST", "/v1/messages", body+`"recurrence":{"evry":"1s"}}`).problem(400, UnknownField, `"suggestion":"every"`, "/recurrence/evry")
	r.send("POST", "/v1/messages", body+`"every":"1s"}`).problem(400, UnknownField, "put it into recurrence")
	if len(r.store.Rows) != 0 {
		t.Errorf("%d messages were stored", len(r.store.Rows))
	}
}

// GET shows what became of a series' occurrences, and how those stand that are tried again.
func TestSeriesIsShown(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", `{"every":"PT1H","maxRuns":7}`))
	r.attempt(store.SettleDelivered, 0)
	r.attempt(store.SettleFailed, 0)
	r.attempt(store.SettleSkip, 3)
	r.attempt(store.SettleRetry, 0)
	const rule = `"recurrence":{"every":"PT1H","maxRuns":7},"series":{"paused":false,"last":"2027-01-30T18:00:00.000Z",`
	past := `"history":[{"executionTime":"2027-01-30T13:00:00.000Z","status":"DELIVERED","at":"2027-01-30T13:00:00.005Z","attempts":1},` +
		`{"executionTime":"2027-01-30T14:00:00.000Z","status":"DELIVERY_FAILED","at":"2027-01-30T14:00:00.005Z","attempts":1},` +
		`{"executionTime":"2027-01-30T15:00:00.000Z","status":"SKIPPED","at":"2027-01-30T15:00:00.005Z","skipped":3},` +
		`{"executionTime":"2027-01-30T18:00:00.000Z","status":`
	pending := `"status":"PENDING","attempts":0,"nextAttemptAt":"2027-01-30T19:00:00.000Z","lastError":"NACK",` + rule +
		`"next":"2027-01-30T19:00:00.000Z","fired":3,"failed":1,"skipped":3,` + past
	again := `"PENDING","at":"2027-01-30T18:00:00.005Z","attempts":`
	r.tail("a", pending+again+`1}]}}`)
	r.tail(occurrence("18:00"), `"status":"PENDING","attempts":1,"nextAttemptAt":"2027-01-31T18:00:00.000Z","lastError":"NACK"}`)
	retried := r.store.Rows[keyOf(occurrence("18:00"))].Key
	r.store.set(retried, func(rec *postdate.Record) { rec.Attempts = 2 })
	r.tail("a", pending+again+`2}]}}`)
	r.store.set(retried, func(rec *postdate.Record) { rec.Status, rec.SettledAt = postdate.Delivered, testNow.Add(9*time.Hour) })
	r.tail("a", pending+`"DELIVERED","at":"2027-01-30T21:00:00.000Z","attempts":2}]}}`)
	list := r.send("GET", "/v1/messages", "").body // it looks nothing up
	if !strings.Contains(list, again+`1}]}}`) || !strings.Contains(list, `"scheduleId":"`+occurrence("18:00")+`"`) {
		t.Error(list)
	}
	r.store.set(retried, func(rec *postdate.Record) { rec.Version++ }) // of another series with this id
	r.tail("a", pending+again+`1}]}}`)
	r.store.Drop(r.store.Rows[retried])
	again = strings.Replace(again, "PENDING", "EXPIRED", 1)
	r.tail("a", pending+again+`1}]}}`)
	r.store.set(keyOf("a"), func(rec *postdate.Record) { rec.Ending = true })
	r.tail("a", strings.Replace(pending, `"next":"2027-01-30T19:00:00.000Z"`, `"ending":true`, 1)+again+`1}]}}`)
	r.store.set(keyOf("a"), func(rec *postdate.Record) { rec.Ending = false })
	r.attempt(store.SettleDelivered, 0)
	a := r.send("GET", "/v1/messages/a", "")
	if !strings.Contains(a.body, `"status":"DELIVERED","attempts":1,"deliveredAt":"2027-01-30T19:00:00.005Z","recurrence"`) || strings.Contains(a.body, `"next"`) {
		t.Errorf("after its last occurrence: %s", a.body)
	}
	r.send("DELETE", "/v1/messages/a", "").problem(409, TooLate, `"messageStatus":"DELIVERED"`, "the series has ended already")
}

// If a message of a series cannot be read, neither is the series.
func TestSeriesIsNotShownInPart(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	r.attempt(store.SettleRetry, 0)
	gets := 0
	r.store.seen = func(_ context.Context, method string) {
		if gets++; gets == 2 {
			r.store.err = postdate.E(postdate.KindUnavailable, "away")
		}
	}
	r.send("GET", "/v1/messages/a", "").problem(503, Unavailable)
}

// An occurrence that is tried again is listed, read and cancelled like a message, and nothing else.
func TestOccurrenceIsAMessage(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	for range 3 {
		r.attempt(store.SettleRetry, 0)
	}
	id := occurrence("14:00")
	a := r.send("GET", escaped(id), "")
	if want := fmt.Sprintf(`{"scheduleId":"%s","bucket":%d,"channel":"inbox:test","priority":"medium","executionTime":"2027-01-30T14:00:00.000Z"`, id,
		keyOf("a").Bucket); !strings.HasPrefix(a.body, want) || strings.Contains(a.body, "recurrence") {
		t.Errorf("%s\nwant %s", a.body, want)
	}
	r.send("DELETE", escaped(id), "").want(200, `{"scheduleId":"`+id+`","status":"CANCELLED"}`)
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["`+occurrence("15:00")+`"]}`).want(200,
		`{"results":[{"scheduleId":"`+occurrence("15:00")+`","status":"CANCELLED"}]}`)
	r.send("GET", escaped(occurrence("16:00")), "").problem(404, NotFound)
	for _, bad := range []string{"a/b", "a/", "/2027-01-30T14:00:00.000Z", "a/2027-01-30T14:00:00Z", "a/2027-01-30T15:00:00.000+01:00", "a b/2027-01-30T14:00:00.000Z", id + "/"} {
		r.send("GET", escaped(strings.ReplaceAll(bad, " ", "%20")), "").problem(400, InvalidParameter)
	}
	const words = "it can be read and cancelled, but neither made nor changed"
	r.send("PUT", escaped(id), recurring("a", everyHour)).problem(400, InvalidParameter, words)
	r.send("PATCH", escaped(id), `{"delay":"1h"}`).problem(400, InvalidParameter, words)
	r.send("POST", "/v1/messages", order(id)).problem(400, InvalidField, "/scheduleId", words)
	var ids []string // page by page, also after an occurrence
	for path := "/v1/messages?limit=1"; ; {
		var page struct {
			Messages []struct {
				ScheduleID string `json:"scheduleId"`
			} `json:"messages"`
			NextCursor string `json:"nextCursor"`
		}
		if err := json.Unmarshal([]byte(r.send("GET", path, "").body), &page); err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			ids = append(ids, m.ScheduleID)
		}
		if path = "/v1/messages?limit=1&cursor=" + page.NextCursor; page.NextCursor == "" {
			break
		}
	}
	if want := fmt.Sprint([]string{"a", occurrence("13:00"), id, occurrence("15:00")}); fmt.Sprint(ids) != want {
		t.Errorf("%s, want %s", ids, want)
	}
}

// cancelBoth cancels a series with each call that does.
func (r *rig) cancelBoth(status int, words string) {
	r.t.Helper()
	one := r.send("DELETE", "/v1/messages/a", "")
	many := r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["a"]}`)
	if one.status != status || !strings.Contains(one.body, words) || !strings.Contains(many.body, words) {
		r.t.Fatalf("%d %s\n%s\nwant %d %s", one.status, one.body, many.body, status, words)
	}
}

// A cancel ends a series, and those of its occurrences that are tried again.
func TestCancelASeries(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	r.send("POST", "/v1/messages", recurring("ab", everyHour))
	for range 2 {
		r.attempt(store.SettleRetry, 0)
	}
	r.store.set(keyOf(occurrence("13:00")), func(rec *postdate.Record) { rec.Status = postdate.Delivered })
	r.cancelBoth(200, `"status":"CANCELLED"`)
	for id, want := range map[string]postdate.Status{"a": postdate.Cancelled, occurrence("13:00"): postdate.Delivered, occurrence("14:00"): postdate.Cancelled, "ab": postdate.Pending} {
		if got := r.store.Rows[keyOf(id)].Status; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	r.tail(occurrence("14:00"), `"status":"CANCELLED","attempts":1,"cancelledAt":"2027-01-30T12:00:00.000Z","lastError":"NACK"}`)
}

// A series that has ended is not said to be cancelled while an occurrence of it may be being delivered.
func TestCancelWhileAnOccurrenceIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	r.attempt(store.SettleRetry, 0)
	key := keyOf(occurrence("13:00"))
	r.store.set(key, func(rec *postdate.Record) { rec.AttemptTime = testNow + 1 })
	r.store.claim(testNow + 1)
	r.cancelBoth(409, `delivery of \"`+key.ScheduleID+`\", one of its occurrences, may have begun`)
	if !strings.Contains(r.send("DELETE", "/v1/messages/a", "").body, `"messageStatus":"CANCELLED"`) {
		t.Error("the series has not ended")
	}
	r.store.set(key, func(rec *postdate.Record) { rec.Status = postdate.DeliveryFailed })
	r.cancelBoth(200, `"status":"CANCELLED"`)
}

// If it is not known whether an occurrence was cancelled, then neither is it of the series.
func TestCancelThatIsUnknown(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	r.attempt(store.SettleRetry, 0)
	for _, fail := range []string{"Retried", "Cancel"} {
		calls := 0
		r.store.seen = func(_ context.Context, method string) {
			if method == "Cancel" {
				calls++
			}
			r.store.err = nil
			if method == fail && (fail == "Retried" || calls == 2) {
				r.store.err = postdate.E(postdate.KindUnavailable, "away")
			}
		}
		r.send("DELETE", "/v1/messages/a", "").problem(504, UnknownOutcome)
	}
	r.store.seen, r.store.err = nil, nil
	r.cancelBoth(200, `"status":"CANCELLED"`)
}

// A cancel that is too late for the present occurrence ends the series with it.
func TestCancelTooLateForAnOccurrence(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	r.attempt(store.SettleRetry, 0)
	r.store.claim(testNow.Add(2 * time.Hour))
	r.cancelBoth(409, "the series ends with it; cancel it again to see that it has ended")
	if got := r.store.Rows[keyOf(occurrence("13:00"))].Status; got != postdate.Cancelled {
		t.Errorf("the occurrence that was to be retried is %s", got)
	}
	r.send("PUT", "/v1/messages/a", order("a")).problem(409, TooLate, "the series was cancelled: it ends with its occurrence of 2027-01-30T14:00:00.000Z")
	if a := r.send("GET", "/v1/messages/a", ""); !strings.Contains(a.body, `"ending":true`) {
		t.Error(a.body)
	}
	r.attempt(store.SettleDelivered, 0)
	r.cancelBoth(200, `"status":"CANCELLED"`)
}

// PUT replaces what a series does, and turns a message into a series and back. It keeps the time of
// creation, from which an interval counts.
func TestPutOfASeries(t *testing.T) {
	r := newRig(t)
	want := func(body, at string) {
		t.Helper()
		r.send("PUT", "/v1/messages/a", body).want(200, fmt.Sprintf(`{"scheduleId":"a","bucket":%d,"executionTime":"%s","status":"PENDING"}`, keyOf("a").Bucket, at))
	}
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	r.attempt(store.SettleRetry, 0)
	r.pass(90 * time.Minute)
	want(recurring("a", `{"every":"PT1H","jitter":"PT30M"}`), "2027-01-30T14:00:00.000Z")
	rec := r.store.Rows[keyOf("a")].Record
	rule, _ := recurrence.Parse(*rec.Recurrence, testNow)
	if rec.CreatedAt != testNow || rec.Run != 1 || rec.Occurrence != rec.First || rec.ExecutionTime != rule.Due("a", rec.First) {
		t.Errorf("%+v", rec)
	}
	r.send("PUT", "/v1/messages/a", recurring("a", `{"every":"PT1H","end":"2027-01-30T13:45:00Z"}`)).problem(400, InvalidField, "no occurrence after")
	want(order("a"), "2027-01-31T12:00:00.000Z")
	if a := r.send("GET", "/v1/messages/a", ""); strings.Contains(a.body, "series") || r.store.Rows[keyOf("a")].Occurrence != 0 {
		t.Error(a.body)
	}
	want(recurring("a", everyHour), "2027-01-30T14:00:00.000Z")
}

// Series of another tenant are out of reach, and so are their occurrences.
func TestSeriesOfATenant(t *testing.T) {
	r := newRig(t, withKeys)
	acme := "Authorization: Bearer " + r.key("acme", "admin")
	other := "Authorization: Bearer " + r.key("other", "admin")
	r.send("POST", "/v1/messages", recurring("a", everyHour), acme)
	key := bucket.KeyOf("acme", "a", testBuckets)
	rec := r.store.Rows[key].Record
	alone := rec.Alone(rec.Occurrence)
	r.store.Put("set", nil, postdate.Record{Message: alone, State: postdate.NewState(&alone, rec.Version)}, nil)
	id := occurrence("13:00")
	for _, call := range [][2]string{{"GET", "/v1/messages/a"}, {"DELETE", "/v1/messages/a"}, {"GET", escaped(id)}, {"DELETE", escaped(id)}} {
		r.send(call[0], call[1], "", other).problem(404, NotFound)
	}
	r.send("GET", escaped(id), "", acme)
	r.send("DELETE", "/v1/messages/a", "", acme).want(200, `{"scheduleId":"a","status":"CANCELLED"}`)
	if r.store.Rows[alone.Key].Status != postdate.Cancelled {
		t.Error("the occurrence was left")
	}
}

// A series that ended with an occurrence in doubt is never said to be cancelled.
func TestCancelOfASeriesInDoubt(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	row := r.store.Rows[keyOf("a")]
	next := row.Record
	next.State = next.State.Cancel(testNow)
	next.PossibleDuplicate = true
	r.store.Put("set", row, next, nil)
	r.send("DELETE", "/v1/messages/a", "").problem(409, TooLate, "may have been delivered, or still arrive")
}

// counted counts how often the occurrences of series are looked up.
type counted struct {
	store.Store
	retried int
}

func (c *counted) Retried(ctx context.Context, key postdate.Key) ([]postdate.Key, error) {
	c.retried++
	return c.Store.Retried(ctx, key)
}

// However often a request names a series, its occurrences are looked up once.
func TestCancelOneSeriesOften(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	c := &counted{Store: r.store.Mem}
	for i, result := range Cancel(t.Context(), c, []postdate.Key{keyOf("a"), keyOf("a"), keyOf("a")}, 1) {
		if result.Err != nil || result.Changed != (i == 0) {
			t.Errorf("%d: %+v", i, result)
		}
	}
	if c.retried != 1 {
		t.Errorf("looked up %d times", c.retried)
	}
}

// A PUT goes on after what was sent last, also if this node's clock is behind that of the node that sent it.
func TestPutDoesNotRepeatAnOccurrence(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", recurring("a", everyHour))
	first := r.store.Rows[keyOf("a")].Occurrence
	r.attempt(store.SettleDelivered, 0)
	r.send("PUT", "/v1/messages/a", recurring("a", `{"every":"PT1H","maxRuns":9}`))
	if again := r.store.Rows[keyOf("a")].Record; again.Occurrence != first.Add(time.Hour) {
		t.Errorf("%s was sent, and %s is next", first, again.Occurrence)
	}
}

// Who repeats the request for a series that was cancelled, and ends with what is on its way, is told so.
func TestRepeatOfAnEndingSeries(t *testing.T) {
	r := newRig(t)
	body := recurring("a", everyHour)
	if a := r.send("POST", "/v1/messages", body); a.status != 201 || strings.Contains(a.body, "ending") {
		t.Fatal(a.status, a.body)
	}
	if a := r.send("POST", "/v1/messages", body); a.status != 200 || strings.Contains(a.body, "ending") {
		t.Error(a.status, a.body)
	}
	r.store.claim(testNow.Add(2 * time.Hour)) // the first occurrence may be on its way
	r.send("DELETE", "/v1/messages/a", "").problem(409, TooLate)
	for _, a := range []*answer{
		r.send("POST", "/v1/messages", body), r.send("PUT", "/v1/messages/a", body), r.send("POST", "/v1/messages/batch", "["+body+"]"),
	} {
		if a.status != 200 || !strings.Contains(a.body, `"status":"PENDING","ending":true`) {
			t.Error(a.status, a.body)
		}
	}
}
