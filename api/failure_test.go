package api

import (
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A message keeps the failure channel that it was scheduled with. PATCH sets and removes it, and other changes keep it.
func TestFailureChannel(t *testing.T) {
	r := newRig(t)
	with := func(id string) string { return strings.Replace(order(id), "{", `{"failureChannel":"inbox:failed",`, 1) }
	const path, shown = "/v1/messages/a", `"channel":"inbox:test","failureChannel":"inbox:failed","priority"`
	want := func(name, part string, there bool) {
		t.Helper()
		if a := r.send("GET", path, ""); strings.Contains(a.body, part) != there {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	if a := r.send("POST", "/v1/messages", with("a")); a.status != 201 {
		t.Fatal(a.status, a.body)
	}
	want("made", shown, true)
	r.send("POST", "/v1/messages", order("a")).problem(409, Exists)
	for _, step := range []struct {
		method, body string
		there        bool
	}{
		{"PATCH", `{"delay":"PT1H"}`, true}, {"PATCH", `{"failureChannel":null}`, false}, {"PATCH", `{"failureChannel":"inbox:failed"}`, true},
		{"PUT", order("a"), false}, {"PUT", with("a"), true}, {"PUT", strings.Replace(with("a"), `"inbox:failed"`, "null", 1), false},
	} {
		if a := r.send(step.method, path, step.body); a.status != 200 {
			t.Errorf("%s: %d %s", step.body, a.status, a.body)
		}
		want(step.body, shown, step.there)
	}
	r.send("PATCH", path, `{"failureChannel":"inbox:failed"}`)
	for body, parts := range map[string][]string{
		`{"failureChannel":"inbox:test"}`:                  {"where the message itself goes"},
		`{"channel":"inbox:failed"}`:                       {"where the message itself goes"},
		`{"channel":"inbox:b","failureChannel":"inbox:b"}`: {"where the message itself goes"},
		`{"failureChannel":"x:y"}`:                         {"not configured"},
		`{"failureChannel":"none"}`:                        {"broker:target"},
		`{"failureChannel":""}`:                            {"failureChannel is empty"},
		`{"failureChannel":7}`:                             {"a string or null was expected"},
	} {
		r.send("PATCH", path, body).problem(400, InvalidField, append(parts, `"pointer":"/failureChannel"`)...)
	}
}

// What a failed message left can be read, listed and cancelled, but neither made nor changed.
func TestWhatAFailureLeft(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", order("a"))
	old := r.store.Rows[keyOf("a")].Record
	s := store.Settlement{How: store.SettleFailed, FailureChannel: "inbox:failed", At: testNow, Attempts: 5, Reason: "no"}
	left, _ := s.Failed(&old)
	if left.Bucket != keyOf(left.ScheduleID).Bucket {
		t.Fatalf("%s is looked for in bucket %d, and lies in %d", left.ScheduleID, keyOf(left.ScheduleID).Bucket, left.Bucket)
	}
	r.store.Put("", nil, left, nil)
	path := "/v1/messages/" + strings.Replace(left.ScheduleID, "!", "%21", 1)
	for _, p := range []string{path, "/v1/messages/" + left.ScheduleID} {
		a := r.send("GET", p, "")
		for _, part := range []string{`"scheduleId":"` + left.ScheduleID + `"`, `"postdate-failed-id":"a"`, `"postdate-failed-reason":"no"`, `"channel":"inbox:failed"`} {
			if a.status != 200 || !strings.Contains(a.body, part) {
				t.Errorf("%d %s lacks %s", a.status, a.body, part)
			}
		}
	}
	if a := r.send("GET", "/v1/messages?channel=inbox:failed", ""); !strings.Contains(a.body, left.ScheduleID) {
		t.Errorf("the list is %s", a.body)
	}
	r.send("PATCH", path, `{"delay":"1s"}`).problem(400, InvalidParameter, "can be read and cancelled")
	r.send("PUT", path, order("a")).problem(400, InvalidParameter, "can be read and cancelled")
	r.send("POST", "/v1/messages", order(left.ScheduleID)).problem(400, InvalidField, "can be read and cancelled")
	r.send("DELETE", path, "").want(200, `{"scheduleId":"`+left.ScheduleID+`","status":"CANCELLED"}`)
	if r.store.Rows[left.Key].Status != postdate.Cancelled {
		t.Error("it is not cancelled")
	}
}

// A channel's settings have a failure channel until it is removed.
func TestFailureChannelOfAChannel(t *testing.T) {
	r := newRig(t)
	const none = `{"channel":"inbox:a","paused":true,"maxPerSecond":0,"maxInFlight":0`
	for _, step := range [][2]string{
		{`"paused":true`, none + "}"},
		{`"failureChannel":"inbox:failed"`, none + `,"failureChannel":"inbox:failed"}`},
		{`"paused":true`, none + `,"failureChannel":"inbox:failed"}`},
		{`"failureChannel":null`, none + "}"},
	} {
		r.send("PATCH", "/v1/channels", `{"channel":"inbox:a",`+step[0]+`}`).want(200, step[1])
	}
}
