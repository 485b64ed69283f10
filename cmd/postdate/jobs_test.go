package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What cancel, redrive and purge ask for with ids and with a filter, and what they print.
func TestCommandsWithAFilter(t *testing.T) {
	const state = `{"jobId":"j","kind":"purge","state":"done","done":3,"failed":0}`
	const ids, filter = "give ids or a filter, such as --label: one of the two", "give ids, a filter such as --label, or --all: one of the three"
	for _, test := range []struct {
		args, asked, job string
		code             int
		stdout, stderr   string
	}{
		{"cancel --label a --id-prefix p --channel inbox:x --from 2027-01-01T00:00:00Z --to 2028-01-01T00:00:00Z",
			`cancel {"filter":{"label":"a","idPrefix":"p","channel":"inbox:x","from":"2027-01-01T00:00:00Z","to":"2028-01-01T00:00:00Z"}}`,
			strings.Replace(state, "purge", "cancel", 1), 0, "cancel done: 3 done, 0 failed\n", ""},
		{"redrive --label a --no-wait", `redrive {"filter":{"label":"a"}}`, "", 0, "j\n", ""},
		{"redrive --all", `redrive {"filter":{}}`, `{"kind":"redrive","state":"done","done":1,"failed":2,"lastError":"it expired"}`, 1,
			"redrive done: 1 done, 2 failed; it expired\n", "postdate: 2 messages could not be changed; of the last: it expired\n"},
		{"purge --all", `purge {"filter":{}}`, state, 0, "purge done: 3 done, 0 failed\n", ""},
		{"redrive m", `redrive {"scheduleIds":["m"]}`, "", 0, "redriven m\n", ""},
		{"purge m", `purge {"scheduleIds":["m"]}`, "", 0, "purged m\n", ""},
		{"job j", "", state, 0, "purge done: 3 done, 0 failed\n", ""},
		{"cancel", "", "", 2, "", ids}, {"cancel m --label a", "", "", 2, "", ids},
		{"purge", "", "", 2, "", filter}, {"purge m --all", "", "", 2, "", filter}, {"purge --all --label a", "", "", 2, "", filter},
		{"cancel --from soon", "", "", 2, "", "--from: "}, {"cancel --to soon", "", "", 2, "", "--to: "},
	} {
		asked := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				io.WriteString(w, test.job)
				return
			}
			body, _ := io.ReadAll(r.Body)
			asked = strings.TrimPrefix(r.URL.Path, "/v1/messages/") + " " + string(body)
			if strings.Contains(asked, "scheduleIds") {
				status := map[bool]string{true: "DELIVERY_FAILED", false: "PENDING"}[strings.HasPrefix(asked, "purge")]
				io.WriteString(w, `{"results":[{"scheduleId":"m","status":"`+status+`"}]}`)
				return
			}
			w.WriteHeader(http.StatusAccepted)
			io.WriteString(w, `{"jobId":"j"}`)
		}))
		got := call([]string{"POSTDATE_SERVER=" + server.URL}, "", strings.Fields(test.args)...)
		server.Close()
		if asked != test.asked || got.code != test.code || got.stdout != test.stdout || !strings.Contains(got.stderr, test.stderr) ||
			test.stderr == "" && got.stderr != "" {
			t.Errorf("%s: asked %s and got %+v, want %+v", test.args, asked, got, test)
		}
	}
}

// A filter's flag that is given but empty is refused, since the rest would select more than is meant.
func TestEmptyFilterFlags(t *testing.T) {
	asked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the server is asked for %s", r.URL)
	}))
	defer asked.Close()
	env := []string{"POSTDATE_SERVER=" + asked.URL}
	for args, words := range map[string]string{
		"cancel --label= --channel inbox:x":       "--label is empty",
		"cancel --id-prefix= --label x":           "--id-prefix is empty",
		"cancel --channel= --label x":             "--channel is empty",
		"cancel --from= --label x":                "--from is empty",
		"cancel --to= --label x":                  "--to is empty",
		"cancel --label= order-42":                "one of the two",
		"cancel":                                  "one of the two",
		"purge --label=":                          "--label is empty",
		"purge --label= --all":                    "one of the three",
		"redrive --channel inbox:x --id-prefix= ": "--id-prefix is empty",
	} {
		if got := call(env, "", strings.Fields(args)...); got.code != exitUsage || !strings.Contains(got.stderr, words) {
			t.Errorf("%s: %+v, want %s", args, got, words)
		}
	}
}
