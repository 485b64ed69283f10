package api

import (
	"strings"
	"testing"
)

const appPage = "https://app.example"

func withOrigins(origins ...string) func(*Config) {
	return func(c *Config) { c.Origins = origins }
}

// A page whose origin is listed may use the API with a key, and its browser may ask for that without one.
func TestCORS(t *testing.T) {
	r := newRig(t, withKeys, withOrigins("http://localhost:3000", appPage))
	a := r.send("OPTIONS", "/v1/messages/a", "", "Origin: "+appPage, "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: authorization,content-type")
	a.want(204, "")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":  appPage,
		"Access-Control-Allow-Methods": "DELETE, GET, HEAD, PATCH, PUT",
		"Access-Control-Allow-Headers": corsHeaders,
		"Access-Control-Max-Age":       "7200",
		"Vary":                         "Origin",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, a := range map[string]*answer{
		"a success":         r.send("PUT", "/v1/messages/a", order("a"), bearer(adminKey), "Origin: "+appPage),
		"a preflight":       a,
		"no key":            r.send("GET", "/v1/messages", "", "Origin: "+appPage).problem(401, Unauthorized),
		"no such path":      r.send("OPTIONS", "/nowhere", "", "Origin: "+appPage, "Access-Control-Request-Method: GET", bearer(adminKey)).problem(404, NoSuchPath),
		"no preflight":      r.send("OPTIONS", "/v1/messages", "", "Origin: "+appPage, bearer(adminKey)).problem(405, MethodNotAllowed),
		"OPTIONS, no key":   r.send("OPTIONS", "/v1/messages", "", "Origin: "+appPage).problem(401, Unauthorized),
		"a public call":     r.send("GET", "/healthz", "", "Origin: "+appPage),
		"the other, listed": r.send("GET", "/healthz", "", "Origin: http://localhost:3000"),
	} {
		if got := a.header.Get("Access-Control-Allow-Origin"); got != appPage && name != "the other, listed" || got == "" {
			t.Errorf("%s: the page may not read it: %v", name, a.header)
		}
		if a.header.Get("Vary") != "Origin" || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "ETag") || a.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", name, a.header)
		}
	}
	for _, origin := range []string{"https://evil.example", "https://app.example.evil.example", "https://app.example:444", "http://app.example", "null", "https://APP.example", "*"} {
		refused := r.send("OPTIONS", "/v1/messages", "", "Origin: "+origin, "Access-Control-Request-Method: POST").problem(401, Unauthorized)
		read := r.send("GET", "/healthz", "", "Origin: "+origin)
		for _, a := range []*answer{refused, read} {
			for name := range a.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s gets %s", origin, name)
				}
			}
			if a.header.Get("Vary") != "Origin" {
				t.Errorf("%s: no Vary: %v", origin, a.header)
			}
		}
	}
	closed := newRig(t)
	closed.send("OPTIONS", "/v1/messages", "", "Origin: "+appPage, "Access-Control-Request-Method: POST").problem(405, MethodNotAllowed)
	if a := closed.send("GET", "/healthz", "", "Origin: "+appPage); a.header.Get("Vary") != "" || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without origins: %v", a.header)
	}
	all := newRig(t, withOrigins("*")).send("GET", "/healthz", "", "Origin: https://any.example")
	if all.header.Get("Access-Control-Allow-Origin") != "*" || all.header.Get("Vary") != "" {
		t.Errorf("for all: %v", all.header)
	}
}

// A node of this machine that asks nobody for a key lets in the pages that are listed, but under no name of theirs.
func TestListedPagesReachALoopbackNode(t *testing.T) {
	r := newRig(t, withOrigins(appPage), func(c *Config) { c.Loopback = true })
	for _, test := range []struct {
		head  string
		taken bool
	}{
		{"Host: localhost:8080\r\nOrigin: " + appPage, true},
		{"Host: localhost:8080\r\nSec-Fetch-Site: cross-site\r\nOrigin: " + appPage, true},
		{"Host: evil.example\r\nOrigin: " + appPage, false},
		{"Host: app.example\r\nSec-Fetch-Site: same-origin\r\nOrigin: " + appPage, false},
		{"Host: localhost:8080\r\nSec-Fetch-Site: cross-site\r\nOrigin: https://evil.example", false},
		{"Host: localhost:8080\r\nSec-Fetch-Site: cross-site", false},
		{"Host: localhost:8080\r\nOrigin: " + appPage + "\r\nOrigin: " + appPage, false},
	} {
		for _, line := range []string{"GET /v1/messages", "OPTIONS /v1/messages"} {
			conn := r.dial()
			conn.write(line + " HTTP/1.1\r\n" + test.head + "\r\nAccess-Control-Request-Method: GET\r\n\r\n")
			a := conn.read()
			if a.status >= 300 == test.taken {
				t.Errorf("%s with %q: %d %s", line, test.head, a.status, a.body)
			}
			if !test.taken {
				a.problem(403, Forbidden, "--insecure")
			}
		}
	}
}

func TestCheckOrigins(t *testing.T) {
	for _, origins := range [][]string{nil, {"*"}, {appPage}, {"http://localhost:3000", "https://[::1]:8443"}, {"http://127.0.0.1"}} {
		if err := CheckOrigins(origins); err != nil {
			t.Errorf("%q: %v", origins, err)
		}
	}
	for _, test := range []struct{ origins, says string }{
		{"*," + appPage, "leave the others out"},
		{"", "is not an origin"},
		{"app.example", "is not an origin"},
		{"https://app.example/", "with no path"},
		{"https://app.example/console", "with no path"},
		{"https://u@app.example", "is not an origin"},
		{"https://app.example?x", "is not an origin"},
		{"https://*.example", "is not an origin"},
		{"ftp://app.example", "is not an origin"},
		{"null", "is not an origin"},
		{"https://app.example:443", "write https://app.example"},
		{"http://app.example:80", "write http://app.example"},
		{"http://[::1]:80", "write http://[::1]"},
		{"https://App.example", "lower case"},
		{"HTTPS://app.example", "is not an origin"},
	} {
		if err := CheckOrigins(strings.Split(test.origins, ",")); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q: %v, want %q", test.origins, err, test.says)
		}
	}
}
