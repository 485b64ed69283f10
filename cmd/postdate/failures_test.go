package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestFailures(t *testing.T) {
	const group = `{"channel":"inbox:x","lastError":"no \"route\"\n","count":1207,"exact":true,"firstFailedAt":"2027-01-31T09:30:00Z","lastFailedAt":"2027-01-31T09:35:00Z","example":"a"}`
	const inexact = `{"channel":"inbox:x","lastError":"","count":1,"exact":false,"firstFailedAt":"2027-01-31T09:30:00Z","lastFailedAt":"2027-01-31T09:35:00Z","example":"a"}`
	const head = "COUNT  CHANNEL  LAST FAILED               EXAMPLE  ERROR\n"
	const row = "1207   inbox:x  2027-01-31T09:35:00.000Z  a        \"no \\\"route\\\"\\n\"\n"
	answer, asked := "", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		io.WriteString(w, answer)
	}))
	defer server.Close()
	for _, test := range []struct {
		answer string
		want   result
	}{
		{`{"groups":[` + group + `],"exact":true}`, result{stdout: head + row}},
		{`{"groups":[` + group + `],"exact":false}`, result{stdout: head + row,
			stderr: "There are more groups than these 1: narrow them down with --channel, --from and --to.\n"}},
		{`{"groups":[` + inexact + `],"exact":false}`, result{stdout: head + "1      inbox:x  2027-01-31T09:35:00.000Z  a        \"\"\n",
			stderr: "More have failed than were looked at: narrow them down with --from and --to.\n"}},
		{`{"groups":[],"exact":false}`, result{stdout: "COUNT  CHANNEL  LAST FAILED  EXAMPLE  ERROR\n",
			stderr: "More have failed than were looked at: narrow them down with --from and --to.\n"}},
	} {
		answer = test.answer
		if got := call([]string{"POSTDATE_SERVER=" + server.URL}, "", "failures"); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.answer, got, test.want)
		}
	}
	got := call([]string{"POSTDATE_SERVER=" + server.URL}, "", "failures", "--json", "--channel", "inbox:x", "--from", "2027-01-01T00:00:00Z", "--to", "2028-01-01T00:00:00Z")
	if got.stdout != answer+"\n" || asked != "/v1/failures?channel=inbox%3Ax&from=2027-01-01T00%3A00%3A00Z&to=2028-01-01T00%3A00%3A00Z" {
		t.Errorf("%s: %+v", asked, got)
	}
}
