package api

import (
	"bufio"
	"crypto/tls"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/quota"
)

// asking is the head of a request that waits with its body. It says how long that is, or that it comes in chunks.
func asking(line string, length int, headers ...string) string {
	body := "Content-Length: " + strconv.Itoa(length)
	if length < 0 {
		body = "Transfer-Encoding: chunked"
	}
	return line + " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n" + body + "\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

const jsonType = "Content-Type: application/json"

// A client that waits with its body is asked for it if that is taken, and only then.
func TestContinue(t *testing.T) {
	r := newRig(t)
	long := strings.TrimSuffix(order("long"), "1}}") + strings.Repeat(" ", 100_000) + "1}}"
	for _, test := range []struct{ name, head, body string }{
		{"a short one", asking("POST /v1/messages", len(order("short")), jsonType), order("short")},
		{"a long one", asking("POST /v1/messages", len(long), jsonType), long},
		{"chunks", asking("POST /v1/messages", -1, jsonType), "3b\r\n" + order("chunks")[:0x3b] + "\r\n" + strconv.FormatInt(int64(len(order("chunks"))-0x3b), 16) + "\r\n" + order("chunks")[0x3b:] + "\r\n0\r\n\r\n"},
		{"in other letters", strings.Replace(asking("POST /v1/messages", len(order("l")), jsonType), "100-continue", "100-Continue", 1), order("l")},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := r.dial()
			conn.t = t
			conn.write(test.head)
			if a := conn.read(); a.status != 100 {
				t.Fatal(a.status, a.body)
			}
			conn.write(test.body)
			if a := conn.read(); a.status != 201 {
				t.Fatal(a.status, a.body)
			}
			conn.write("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
			conn.read().want(200, `{"status":"ok"}`)
		})
	}
	t.Run("no content", func(t *testing.T) {
		conn := r.dial()
		conn.t = t
		conn.write(asking("POST /v1/messages", 0, jsonType) + "GET /healthz HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n")
		conn.read().problem(400, MalformedJSON, "empty")
		conn.read().want(200, `{"status":"ok"}`)
	})
	t.Run("HTTP/1.0", func(t *testing.T) {
		conn := r.dial()
		conn.t = t
		body := order("old")
		conn.write(strings.Replace(asking("POST /v1/messages", len(body), jsonType), "HTTP/1.1", "HTTP/1.0", 1) + body)
		if a := conn.read(); a.status != 201 {
			t.Error(a.status, a.body)
		}
	})
	t.Run("behind another request", func(t *testing.T) {
		conn := r.dial()
		conn.t = t
		conn.write("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + asking("PUT /v1/messages/piped", len(order("piped")), jsonType))
		conn.read().want(200, `{"status":"ok"}`)
		if a := conn.read(); a.status != 100 {
			t.Fatal(a.status, a.body)
		}
		conn.write(order("piped"))
		if a := conn.read(); a.status != 201 {
			t.Error(a.status, a.body)
		}
	})
}

// A client that waits with a body that is not taken gets the answer alone. If it sends the body all the same, that
// is taken for no request.
func TestNoContinue(t *testing.T) {
	r := newRig(t, withKeys)
	writer := bearer(r.key("acme", auth.WriteMessages))
	for _, test := range []struct {
		name, head string
		status     int
		kind       ProblemType
	}{
		{"no key", asking("POST /v1/messages", 100, jsonType), 401, Unauthorized},
		{"no scope", asking("POST /v1/keys", 100, jsonType, writer), 403, Forbidden},
		{"no such path", asking("POST /nowhere", 100, jsonType, writer), 404, NoSuchPath},
		{"no such method", asking("BREW /v1/messages", 100, jsonType, writer), 405, MethodNotAllowed},
		{"a length beyond the limit", asking("POST /v1/messages", 100_000_000, jsonType, writer), 413, TooLarge},
		{"another media type", asking("POST /v1/messages", 100, "Content-Type: text/plain", writer), 415, UnsupportedContent},
		{"another media type, in chunks", asking("POST /v1/messages", -1, "Content-Type: text/plain", writer), 415, UnsupportedContent},
		{"a parameter", asking("POST /v1/messages?x=1", 100, jsonType, writer), 400, InvalidParameter},
		{"two lengths", asking("POST /v1/messages", 100, "Transfer-Encoding: chunked", writer), 400, BadRequest},
	} {
		for _, eager := range []bool{false, true} {
			t.Run(test.name+" "+strconv.FormatBool(eager), func(t *testing.T) {
				conn := r.dial()
				conn.t = t
				conn.write(test.head)
				if eager {
					conn.write(strings.Repeat("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 10_000))
				}
				conn.read().problem(test.status, test.kind)
				if !conn.ended() {
					t.Error("the connection goes on")
				}
			})
		}
	}
}

// A tenant at its limit is asked for no body.
func TestNoContinueAtTheLimit(t *testing.T) {
	at := time.Now()
	r := newRig(t, withQuota(quota.Limits{RequestsPerSecond: 1}, &at))
	head := asking("PUT /v1/messages/a", len(order("a")), jsonType)
	for {
		conn := r.dial()
		conn.write(head)
		a := conn.read()
		if a.status == 100 {
			conn.write(order("a"))
			a = conn.read()
		} else {
			a.problem(429, Limited)
			return
		}
		if a.status >= 300 {
			t.Fatal(a.status, a.body)
		}
	}
}

// What a call does that reads no body, it does without one.
func TestABodyThatNobodyAsksFor(t *testing.T) {
	r := newRig(t)
	r.send("PUT", "/v1/messages/a", order("a"))
	conn := r.dial()
	conn.write(asking("DELETE /v1/messages/a", 100))
	conn.read().want(200, `{"scheduleId":"a","status":"CANCELLED"}`)
}

// A body that ends before its length is taken for no whole one.
func TestABodyThatEndsEarly(t *testing.T) {
	r := newRig(t)
	lines := strings.Repeat(order("early")+"\n", 100)
	for _, head := range []string{"", "Expect: 100-continue\r\n"} {
		conn := r.dial()
		conn.write("POST /v1/messages/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n" + head + "Content-Length: " + strconv.Itoa(2*len(lines)) + "\r\n\r\n" + lines)
		if head != "" && conn.read().status != 100 {
			t.Fatal("no 100")
		}
		if err := conn.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		conn.read().problem(400, BadRequest)
		r.send("GET", "/v1/messages/early", "").problem(404, NotFound)
	}
}

// Over TLS it is the same.
func TestContinueWithTLS(t *testing.T) {
	_, address, secure := newTLSRig(t)
	for _, test := range []struct {
		path  string
		asked bool
	}{{"/v1/messages", true}, {"/nowhere", false}} {
		inner, err := tls.Dial("tcp", address, secure)
		if err != nil {
			t.Fatal(err)
		}
		defer inner.Close()
		conn := &raw{inner, t, bufio.NewReader(inner)}
		conn.write(asking("POST "+test.path, len(order("a")), jsonType))
		a := conn.read()
		if (a.status == 100) != test.asked {
			t.Fatal(a.status, a.body)
		}
		if !test.asked {
			a.problem(404, NoSuchPath)
			continue
		}
		conn.write(order("a"))
		if a := conn.read(); a.status != 201 {
			t.Error(a.status, a.body)
		}
	}
}
