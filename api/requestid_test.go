package api

import (
	"context"
	"strings"
	"testing"

	"github.com/postdate/postdate"
)

// Each answer names its request, whatever becomes of that.
func TestRequestIDs(t *testing.T) {
	r := newRig(t)
	seen := map[string]bool{}
	made := func(name string, a *answer) {
		t.Helper()
		ids := a.header.Values("X-Request-Id")
		if len(ids) != 1 || len(ids[0]) != 32 || seen[ids[0]] {
			t.Errorf("%s: the request id is %q", name, ids)
		} else {
			seen[ids[0]] = true
		}
	}
	made("a success", r.send("POST", "/v1/messages", order("a")))
	made("a broken body", r.send("POST", "/v1/messages", "{").problem(400, MalformedJSON))
	made("no such path", r.send("GET", "/nowhere", "").problem(404, NoSuchPath))
	made("no such method", r.send("BREW", "/v1/messages", "").problem(405, MethodNotAllowed))
	made("too large", r.send("POST", "/v1/messages", strings.Repeat(" ", r.server.singleBytesMax()+1)).problem(413, TooLarge))
	made("metrics", r.send("GET", "/metrics", ""))
	made("HEAD", r.send("HEAD", "/healthz", ""))
	for name, request := range map[string]string{
		"no HTTP":       "hello there\r\n\r\n",
		"two lengths":   "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"a folded line": "GET /healthz HTTP/1.1\r\nHost: a\r\nX: 1\r\n y\r\n\r\n",
		"huge headers":  "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n",
	} {
		conn := r.dial()
		conn.write(request)
		made(name, conn.read())
	}
	r.store.seen = func(context.Context, string) { panic("a fault") }
	a := r.send("GET", "/v1/messages/a", "").problem(500, Internal)
	made("a panic", a)
	if !strings.Contains(r.log.String(), a.header.Get("X-Request-Id")) {
		t.Errorf("the log does not name the request: %s", r.log)
	}
}

// A client names its request itself, if the name is fit for a log.
func TestOwnRequestIDs(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "~!$", "00-0af7651916cd43dd8448eb211c80319c", strings.Repeat("x", 128)} {
		if got := r.send("GET", "/v1/messages/a", "", "X-Request-Id: "+id).header.Get("X-Request-Id"); got != id {
			t.Errorf("%q became %q", id, got)
		}
	}
	for name, head := range map[string]string{
		"none":          "",
		"an empty one":  "X-Request-Id: \r\n",
		"a long one":    "X-Request-Id: " + strings.Repeat("x", 129) + "\r\n",
		"a space":       "X-Request-Id: a b\r\n",
		"a tab":         "X-Request-Id: a\tb\r\n",
		"not ASCII":     "X-Request-Id: \u00e9\r\n",
		"two":           "X-Request-Id: a\r\nX-Request-Id: b\r\n",
		"two, in lower": "x-request-id: a\r\nX-REQUEST-ID: b\r\n",
	} {
		conn := r.dial()
		conn.write("GET /healthz HTTP/1.1\r\nHost: a\r\n" + head + "\r\n")
		a := conn.read().want(200, `{"status":"ok"}`)
		if ids := a.header.Values("X-Request-Id"); len(ids) != 1 || len(ids[0]) != 32 {
			t.Errorf("%s: %q", name, ids)
		}
	}
}

// What a request leaves in the log names it.
func TestTheLogNamesRequests(t *testing.T) {
	r := newRig(t)
	r.store.err = postdate.E(postdate.KindUnavailable, "the store is away")
	for name, send := range map[string]func(id string){
		"one":    func(id string) { r.send("PUT", "/v1/messages/a", order("a"), "X-Request-Id: "+id) },
		"batch":  func(id string) { r.send("POST", "/v1/messages/batch", "["+order("a")+"]", "X-Request-Id: "+id) },
		"cancel": func(id string) { r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["a"]}`, "X-Request-Id: "+id) },
	} {
		if send("id-of-" + name); !strings.Contains(r.log.String(), "requestId=id-of-"+name) {
			t.Errorf("%s is not named in\n%s", name, r.log)
		}
	}
	locked := newRig(t, withKeys)
	a := locked.send("GET", "/v1/messages", "", "X-Request-Id: refused-1").problem(401, Unauthorized)
	if a.header.Get("X-Request-Id") != "refused-1" || !strings.Contains(locked.log.String(), "requestId=refused-1") {
		t.Errorf("%v, and the log is\n%s", a.header, locked.log)
	}
}
