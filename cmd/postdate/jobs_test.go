package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
		{"redrive --last-error down --no-wait", `redrive {"filter":{"lastError":"down"}}`, "", 0, "j\n", ""},
		{"purge --last-error down --channel inbox:x", `purge {"filter":{"channel":"inbox:x","lastError":"down"}}`, state, 0, "purge done: 3 done, 0 failed\n", ""},
		{"cancel --last-error down", "", "", 2, "", "unknown flag --last-error"}, {"purge --last-error=", "", "", 2, "", "--last-error is empty"},
		{"redrive --label a --no-wait", `redrive {"filter":{"label":"a"}}`, "", 0, "j\n", ""},
		{"redrive --all", `redrive {"filter":{"from":"1970-01-01T00:00:00.001Z"}}`, `{"kind":"redrive","state":"done","done":1,"failed":2,"lastError":"it expired"}`, 1,
			"redrive done: 1 done, 2 failed; it expired\n", "postdate: 2 messages could not be changed; of the last: it expired\n"},
		{"purge --all", `purge {"filter":{"from":"1970-01-01T00:00:00.001Z"}}`, state, 0, "purge done: 3 done, 0 failed\n", ""},
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

// jobServer starts one job, and answers each look at it as looks say, of which the last one repeats.
func jobServer(t *testing.T, looks ...http.HandlerFunc) (env []string) {
	t.Helper()
	var n atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			io.WriteString(w, `{"jobId":"job-1"}`)
			return
		}
		looks[min(int(n.Add(1)), len(looks))-1](w, r)
	}))
	t.Cleanup(front.Close)
	return []string{"POSTDATE_SERVER=" + front.URL}
}

func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

const doneJob = `{"jobId":"job-1","kind":"cancel","state":"done","done":2,"failed":0,"total":2}`

// A command goes on watching its job while the node restarts, and says what is so where it cannot watch it.
func TestJobIsWatched(t *testing.T) {
	lost := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	forbidden := saying(403, `{"type":"urn:postdate:problem:forbidden","status":403,"detail":"the key has no scope sched:r"}`)
	for _, test := range []struct {
		name  string
		looks []http.HandlerFunc
		code  int
		want  string // in what it prints
	}{
		{"a restart", []http.HandlerFunc{lost, saying(503, `{"type":"urn:postdate:problem:unavailable"}`),
			saying(504, `{"type":"urn:postdate:problem:unknown-outcome"}`), saying(200, doneJob)}, exitOK, "cancel done: 2 done, 0 failed"},
		{"a key that may not", []http.HandlerFunc{forbidden}, exitFailed, "the job job-1 goes on at the server, " +
			"but cannot be watched with this key: the key has no scope sched:r; --no-wait "},
		{"what does not pass", []http.HandlerFunc{saying(500, `{"detail":"surely nothing was done"}`)}, exitFailed,
			`postdate: the job job-1 goes on at the server: "postdate job job-1" asks how far it has come` + "\n"},
	} {
		got := call(jobServer(t, test.looks...), "", "cancel", "--label", "x")
		if got.code != test.code || !strings.Contains(got.stdout+got.stderr, test.want) {
			t.Errorf("%s: %+v, want %s", test.name, got, test.want)
		}
	}
}

// With --json, what a filter started is shown as the server tells it.
func TestJobsAsJSON(t *testing.T) {
	for args, want := range map[string]string{
		"cancel --label x --json":           doneJob,
		"redrive --label x --json":          doneJob,
		"purge --all --json":                doneJob,
		"purge --all --json --no-wait":      `{"jobId":"job-1"}`,
		"cancel --label x --no-wait":        "job-1",
		"cancel --label x --json --no-wait": `{"jobId":"job-1"}`,
	} {
		got := call(jobServer(t, saying(200, doneJob)), "", strings.Fields(args)...)
		if got != (result{exitOK, want + "\n", ""}) {
			t.Errorf("%s: %+v, want %s", args, got, want)
		}
	}
}

// With --json, redrive and purge show what became of each id.
func TestFailedAsJSON(t *testing.T) {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `["a"]`) {
			io.WriteString(w, `{"results":[{"scheduleId":"a","status":"PENDING"}]}`)
			return
		}
		io.WriteString(w, `{"results":[{"scheduleId":"b","error":{"status":409,"detail":"it is DELIVERED"}}]}`)
	}))
	defer front.Close()
	got := call([]string{"POSTDATE_SERVER=" + front.URL}, "", "redrive", "a", "b", "--json")
	if got != (result{exitFailed, `{"scheduleId":"a","status":"PENDING"}` + "\n", "postdate: b: it is DELIVERED\n"}) {
		t.Errorf("got %+v", got)
	}
}

// Get shows how a message failed.
func TestGetShowsWhatFailed(t *testing.T) {
	front := httptest.NewServer(saying(200, `{"scheduleId":"a","status":"DELIVERY_FAILED","attempts":1,"failedAt":"2027-01-31T09:30:01Z",`+
		`"possibleDuplicate":true,"attemptLog":[{"time":"2027-01-31T09:30:00Z","node":"n1","outcome":"refused","reason":"no route"}]}`))
	defer front.Close()
	got := call([]string{"POSTDATE_SERVER=" + front.URL}, "", "get", "a").stdout
	for _, line := range []string{"failedAt           2027-01-31T09:30:01.000Z\n", "possibleDuplicate  true\n",
		"attempt            2027-01-31T09:30:00.000Z n1 refused no route\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}
