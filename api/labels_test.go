package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func labelledOrder(id, labels string) string {
	return fmt.Sprintf(`{"scheduleId":"%s","channel":"inbox:test","executionTime":"2027-01-31T12:00:00Z","payload":1,"labels":%s}`, id, labels)
}

// TestLabels: labels are kept however a message comes, and shown however it is read.
func TestLabels(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", labelledOrder("post", `["a","b:1"]`)).is(201)
	r.send("PUT", "/v1/messages/put", labelledOrder("put", `["b:1"]`)).is(201)
	r.send("POST", "/v1/messages/batch", "["+labelledOrder("batch", `["c","a"]`)+"]").is(200)
	r.send("POST", "/v1/messages", labelledOrder("none", `[]`)).is(201)
	r.send("POST", "/v1/messages", labelledOrder("null", `null`)).is(201)
	for id, want := range map[string]string{"post": `,"labels":["a","b:1"],`, "put": `,"labels":["b:1"],`, "batch": `,"labels":["c","a"],`, "none": "", "null": ""} {
		a := r.send("GET", "/v1/messages/"+id, "")
		if !strings.Contains(a.body, want) || strings.Contains(a.body, "labels") != (want != "") {
			t.Errorf("%s is shown as %s", id, a.body)
		}
	}
	// The same request again is that, and one with other labels is another.
	r.send("POST", "/v1/messages", labelledOrder("post", `["a","b:1"]`)).is(200)
	r.send("POST", "/v1/messages", labelledOrder("none", `null`)).is(200)
	r.send("POST", "/v1/messages", labelledOrder("post", `["a"]`)).problem(409, Exists)
	list := func(query string) string { ids, _ := pageOf(r.send("GET", "/v1/messages?"+query, "")); return ids }
	for query, want := range map[string]string{
		"label=a": "batch post", "label=b:1": "post put", "label=c": "batch", "label=b": "", "idPrefix=n": "none null", "idPrefix=p&label=b:1": "post put",
		"idPrefix=b&label=a&channel=inbox:test&status=PENDING": "batch", "label=a&channel=inbox:tes": "", "idPrefix=b/2027-": "", "idPrefix=.": "", "label=a&status=CANCELLED": "",
	} {
		ids := strings.Fields(list(query))
		slices.Sort(ids)
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	r.send("PUT", "/v1/messages/post", labelledOrder("post", `["d"]`)).is(200)
	if got := list("label=a") + "|" + list("label=d"); got != "batch|post" {
		t.Errorf("after a PUT the labels select %s", got)
	}
}

// TestPatchLabels: a merge patch with labels puts them in place of all, null removes them, and one without keeps them.
func TestPatchLabels(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", labelledOrder("m", `["a","b"]`)).is(201)
	r.send("POST", "/v1/messages", `{"scheduleId":"s","channel":"inbox:test","recurrence":{"every":"PT1H"},"payload":1,"labels":["a"]}`).is(201)
	for _, id := range []string{"m", "s"} {
		for _, step := range []struct{ patch, want string }{
			{`{"payload":2}`, map[string]string{"m": "a b", "s": "a"}[id]}, {`{"labels":["c","d"]}`, "c d"}, {`{"channel":"inbox:b"}`, "c d"},
			{`{"labels":["e"],"payload":3}`, "e"}, {`{"labels":null}`, ""}, {`{"labels":["a"]}`, "a"}, {`{"labels":[]}`, ""},
		} {
			r.send("PATCH", "/v1/messages/"+id, step.patch).is(200)
			if got := strings.Join(r.store.Rows[keyOf(id)].Labels, " "); got != step.want {
				t.Errorf("after %s the message %s has the labels %q, want %q", step.patch, id, got, step.want)
			}
		}
	}
	if got := r.store.Rows[keyOf("s")]; got.Changes != 7 || string(got.Payload) != "3" {
		t.Errorf("the series was changed %d times, to %s", got.Changes, got.Payload)
	}
	r.send("PATCH", "/v1/messages/s", `{"paused":true,"labels":["z"]}`).is(200)
	if got := r.store.Rows[keyOf("s")]; !got.Paused || !slices.Equal(got.Labels, []string{"z"}) {
		t.Errorf("paused and labelled at once, the series is paused: %v, with %v", got.Paused, got.Labels)
	}
	r.send("PATCH", "/v1/messages/m", `{"labels":["a b"]}`).problem(400, InvalidField, `"pointer":"/labels/0"`)
	r.send("PATCH", "/v1/messages/m", `{"labels":""}`).problem(400, InvalidField, `"pointer":"/labels"`, "an array was expected")
}

// An occurrence of a series that is triggered is found by the labels of the series.
func TestTriggeredLabels(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", `{"scheduleId":"s","channel":"inbox:test","recurrence":{"every":"PT1H"},"payload":1,"labels":["a"]}`).is(201)
	r.send("POST", "/v1/messages/s/trigger", "").is(201)
	if ids, _ := pageOf(r.send("GET", "/v1/messages?label=a", "")); len(strings.Fields(ids)) != 2 {
		t.Errorf("the label finds %s", ids)
	}
}

// A cursor goes on only in the list of the same label, and those of before there were labels stay valid.
func TestCursorOfLabel(t *testing.T) {
	at := store.ListPosition{ExecutionTime: testNow, Bucket: 3, ScheduleID: "a"}
	queries := []store.ListQuery{{Tenant: "acme"}, {Tenant: "acme", Label: "a"}, {Tenant: "acme", IDPrefix: "a"}, {Tenant: "acme", IDPrefix: "a", Label: "a"},
		{Tenant: "acme", Label: "ab"}, {Tenant: "acme", Channel: "inbox:a", Label: "a"}}
	for i := range queries {
		cursor := cursorOf(&queries[i], &at)
		for j := range queries {
			got, err := parseCursor(&queries[j], cursor, testBuckets)
			if i == j && (err != nil || *got != at) || i != j && err == nil {
				t.Errorf("a cursor of %+v in %+v: %+v, %v", queries[i], queries[j], got, err)
			}
		}
	}
}

func TestLabelsMax(t *testing.T) {
	r := newRig(t)
	var labels []string
	for i := range postdate.LabelsMax {
		labels = append(labels, fmt.Sprintf(`"%d%s"`, i, strings.Repeat("~", postdate.LabelBytesMax-1)))
	}
	all := strings.Join(labels, ",")
	r.send("POST", "/v1/messages", labelledOrder("most", "["+all+"]")).is(201)
	r.send("POST", "/v1/messages", labelledOrder("more", "["+all+`,"x"]`)).problem(400, InvalidField, `"pointer":"/labels"`, "9 labels are too many: at most 8 are allowed")
}
