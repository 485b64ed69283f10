package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

// raw is a connection on which a test writes what no client would.
type raw struct {
	net.Conn
	t       *testing.T
	answers *bufio.Reader
}

// dial opens a connection to the rig.
func (r *rig) dial() *raw {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	return &raw{conn, r.t, bufio.NewReader(conn)}
}

func (c *raw) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// read reads one answer.
func (c *raw) read() *answer {
	c.t.Helper()
	res, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return &answer{c.t, res.StatusCode, res.Header, string(body)}
}

// ended reports whether the server ends the connection.
func (c *raw) ended() bool {
	_, err := c.answers.ReadByte()
	timeout, ok := err.(net.Error)
	return err != nil && (!ok || !timeout.Timeout())
}

// Bytes in which a proxy and the node could see different requests are refused, and the
// connection ends: what follows them is not taken for a request.
func TestFraming(t *testing.T) {
	r := newRig(t)
	const hidden = "DELETE /v1/messages/kept HTTP/1.1\r\nHost: a\r\n\r\n"
	length := "Content-Length: " + strconv.Itoa(len(hidden)) + "\r\n"
	for _, test := range []struct{ name, request, says string }{
		{"both lengths", "POST /v1/messages HTTP/1.1\r\nHost: a\r\n" + length + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, "exclude each other"},
		{"both lengths, the other order", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + length + "\r\n0\r\n\r\n" + hidden, "exclude each other"},
		{"both, in another case", "POST /v1/messages HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n" + hidden, "exclude each other"},
		{"a space before the colon", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length : " + strconv.Itoa(len(hidden)) + "\r\n\r\n" + hidden, "space"},
		{"a tab before the colon", "GET /healthz HTTP/1.1\r\nHost: a\r\nX\t: 1\r\n\r\n" + hidden, ""},
		{"a space in a name", "GET /healthz HTTP/1.1\r\nHost: a\r\nX y: 1\r\n\r\n" + hidden, ""},
		{"a header in two lines", "GET /healthz HTTP/1.1\r\nHost: a\r\nX: 1\r\n y\r\n\r\n" + hidden, "second line"},
		{"a length in a second line", "GET /healthz HTTP/1.1\r\nHost: a\r\nX: 1\r\n\tContent-Length: 5\r\n\r\n" + hidden, "second line"},
		{"chunks in HTTP/1.0", "POST /v1/messages HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, "HTTP/1.0"},
		{"another coding", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n" + length + "\r\n" + hidden, "chunked"},
		{"two codings", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden, ""},
		{"chunks twice", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, "twice"},
		{"two lengths", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" + length + "\r\n" + hidden, ""},
		{"a length with a sign", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n" + hidden, ""},
		{"a list of lengths", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n" + hidden, ""},
		{"a line that ends with LF", "GET /healthz HTTP/1.1\r\nHost: a\r\nX: 1\nY: 2\r\n\r\n" + hidden, "LF"},
		{"a head that ends with two LF", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nX: 1\n\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, ""},
		{"no host", "GET /healthz HTTP/1.1\r\nX: 1\r\n\r\n" + hidden, ""},
		{"no header at all", "GET /healthz HTTP/1.1\r\n\r\n" + hidden, ""},
		{"two hosts", "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + hidden, ""},
		{"a chunk's size with LF", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\n{\r\n0\r\n\r\n" + hidden, ""},
		{"a chunk without an end", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n" + hidden, ""},
		{"OPTIONS with both lengths", "OPTIONS /v1/messages HTTP/1.1\r\nHost: a\r\n" + length + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, "exclude each other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.send("PUT", "/v1/messages/kept", order("kept"))
			conn := r.dial()
			conn.t = t
			conn.write(test.request)
			conn.read().problem(400, BadRequest, test.says)
			if !conn.ended() {
				t.Error("the connection goes on")
			}
			if kept := r.send("GET", "/v1/messages/kept", ""); !strings.Contains(kept.body, "PENDING") {
				t.Errorf("what follows was taken for a request: %s", kept.body)
			}
		})
	}
	t.Run("sound ones", func(t *testing.T) {
		conn := r.dial()
		body := order("chunked")
		conn.write("POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"5\r\n" + body[:5] + "\r\n" + strconv.FormatInt(int64(len(body)-5), 16) + ";x=y\r\n" + body[5:] + "\r\n0\r\n\r\n" +
			"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		if a := conn.read(); a.status != 201 {
			t.Fatal(a.status, a.body)
		}
		conn.read().want(200, `{"status":"ok"}`)
		conn.write("GET /healthz HTTP/1.0\r\n\r\n")
		conn.read().want(200, `{"status":"ok"}`)
	})
}

// What a body leaves unread is not taken for the next request.
func TestUnreadBodies(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct{ name, head string }{
		{"a path that takes none", "GET /healthz HTTP/1.1\r\n"},
		{"no such path", "POST /nowhere HTTP/1.1\r\n"},
		{"a method that no path takes", "OPTIONS /v1/messages HTTP/1.1\r\n"},
		{"another media type", "POST /v1/messages HTTP/1.1\r\nContent-Type: text/plain\r\n"},
		{"a parameter that is not known", "POST /v1/messages?x=1 HTTP/1.1\r\nContent-Type: application/json\r\n"},
	} {
		for _, size := range []int{0, 100, preloadBytes, preloadBytes + 1, 100_000} {
			t.Run(test.name+" "+strconv.Itoa(size), func(t *testing.T) {
				conn := r.dial()
				conn.t = t
				line := "GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n"
				body := strings.Repeat(line, size/len(line)+1)[:size]
				conn.write(test.head + "Host: a\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n" + body + "GET /v1/cluster HTTP/1.1\r\nHost: a\r\n\r\n")
				if first := conn.read(); first.status == 200 != (test.name == "a path that takes none") {
					t.Error(first.status, first.body)
				}
				if size > preloadBytes {
					if !conn.ended() {
						t.Error("the connection goes on")
					}
				} else if second := conn.read(); !strings.Contains(second.body, "members") {
					t.Errorf("the next answer is %s", second.body)
				}
			})
		}
	}
}

// A web page cannot reach a node of this machine through its visitor's browser.
func TestPagesOfElsewhere(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Loopback = true })
	open := newRig(t)
	for _, test := range []struct {
		head  string
		taken bool
	}{
		{"Host: 127.0.0.1:8080", true},
		{"Host: localhost", true},
		{"Host: LOCALHOST:8080", true},
		{"Host: [::1]:8080", true},
		{"Host: 127.8.8.8", true},
		{"Host: evil.example", false},
		{"Host: evil.example:8080", false},
		{"Host: localhost.evil.example", false},
		{"Host: 127.0.0.1.evil.example", false},
		{"Host: 0.0.0.0:8080", false},

		{"Host: 10.0.0.1", false},
		{"Host: localhost:1\r\nOrigin: http://localhost:1", true},
		{"Host: localhost:1\r\nOrigin: http://localhost:2", false},
		{"Host: localhost:1\r\nOrigin: http://evil.example", false},
		{"Host: localhost:1\r\nOrigin: null", false},
		{"Host: localhost:1\r\nSec-Fetch-Site: same-origin\r\nOrigin: http://localhost:1", true},
		{"Host: localhost:1\r\nSec-Fetch-Site: none", true},
		{"Host: localhost:1\r\nSec-Fetch-Site: cross-site", false},
		{"Host: localhost:1\r\nSec-Fetch-Site: same-site\r\nOrigin: http://localhost:2", false},
	} {
		for _, method := range []string{"GET", "POST"} {
			body := order("a")
			request := method + " /v1/messages HTTP/1.1\r\n" + test.head + "\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
			conn := r.dial()
			conn.write(request)
			a := conn.read()
			if taken := a.status < 300; taken != test.taken {
				t.Errorf("%s with %q: %d %s", method, test.head, a.status, a.body)
			}
			if !test.taken {
				a.problem(403, Forbidden, "--insecure")
			}
			conn = open.dial()
			conn.write(request)
			if a := conn.read(); a.status >= 300 {
				t.Errorf("a node behind a proxy refuses %q: %d %s", test.head, a.status, a.body)
			}
		}
	}
}

// Bodies that are announced or half sent keep no others out, and take no more memory than
// has arrived.
func TestBodiesTakeWhatTheyBring(t *testing.T) {
	r := newRig(t, func(c *Config) { c.BodiesBytesMax = postdate.BatchBytesMax + 64<<10 })
	const head = "POST /v1/messages/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
	var announced []*raw
	for range 200 {
		conn := r.dial()
		conn.write(head + strconv.Itoa(postdate.BatchBytesMax) + "\r\n\r\n[")
		announced = append(announced, conn)
	}
	large := "[" + strings.Repeat(" ", 10_000_000) + order("large") + "]"
	if a := r.send("POST", "/v1/messages/batch", large); a.status != 200 || !strings.Contains(a.body, `"created":true`) {
		t.Fatal(a.status, a.body)
	}
	if left := r.server.bodies.left.Load(); left != int64(r.server.config.BodiesBytesMax) {
		t.Errorf("%d of %d bytes are left when nothing has come", left, r.server.config.BodiesBytesMax)
	}
	// Now one sends all but the end of a batch, and keeps it.
	announced[0].write(strings.Repeat(" ", postdate.BatchBytesMax-2))
	for r.server.bodies.left.Load() > 64<<10 {
		time.Sleep(time.Millisecond) // the node reads
	}
	a := r.send("POST", "/v1/messages/batch", large)
	a.problem(503, Unavailable, "surely nothing was done")
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if a := r.send("POST", "/v1/messages", order("small")); a.status != 201 {
		t.Errorf("a small request: %d %s", a.status, a.body)
	}
	announced[0].write("]")
	announced[0].read().want(200, `{"results":[]}`)
	if a := r.send("POST", "/v1/messages/batch", large); a.status != 200 {
		t.Error(a.status, a.body)
	}
}

// Connections that ask nothing, or slowly, keep nobody out.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ConnectionsMax = 100 })
	r.inbox.waiting = make(chan struct{}, 1)
	poll := r.dial()
	poll.write("GET /v1/inbox/test?wait=30s&after=7 HTTP/1.1\r\nHost: a\r\n\r\n")
	<-r.inbox.waiting
	for i := range 1000 {
		conn := r.dial()
		defer conn.Close() // before the shutdown, which waits for half a request
		if i%2 == 0 {
			conn.write("POST /v1/messages HTTP/1.1\r\nHost: a\r\n")
		}
		if i%50 == 0 {
			http.DefaultClient.CloseIdleConnections()
			if a := r.send("PUT", "/v1/messages/a", order("a")); a.status >= 300 {
				t.Fatal(i, a.status, a.body)
			}
		}
	}
	const most = 50
	for range most - 1 {
		r.dial().write("GET /v1/inbox/test?wait=30s HTTP/1.1\r\nHost: a\r\n\r\n")
		<-r.inbox.waiting
	}
	r.send("GET", "/v1/inbox/test?wait=30s", "").problem(503, Unavailable, "too many clients wait")
	r.server.endPolls()
	poll.read().want(200, `{"messages":[],"nextCursor":"7"}`) // it was kept
}

// However hostile a batch is, its answer is not many times as long.
func TestAnswersAreNoLongerThanWhatTheyAnswer(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat(`\u0001<"`, 1000)
	long = strings.ReplaceAll(long, `"`, `\"`)
	for name, item := range map[string]string{
		"an unknown field":    `{"` + long + `":1}`,
		"a field twice":       `{"headers":{"` + long + `":"","` + long + `":""}}`,
		"a field twice, deep": `{"payload":{"` + long + `":{"a":1,"a":2}}}`,
		"a header's kind":     `{"headers":{"` + long + `":1}}`,
		"a channel":           `{"channel":"` + long + `"}`,
		"a channel's broker":  `{"channel":"` + strings.Repeat("é", 500) + `:x"}`,
		"a time":              `{"channel":"inbox:a","payload":1,"executionTime":"` + long + `"}`,
		"a delay":             `{"channel":"inbox:a","payload":1,"delay":"` + long + `"}`,
		"an id":               `{"scheduleId":"` + long + `"}`,
		"a header":            `{"channel":"inbox:a","payload":1,"delay":"1s","headers":{"` + long + `":""}}`,
		"a content type":      `{"channel":"inbox:a","payload":1,"delay":"1s","contentType":"` + long + `"}`,
		"an encoding":         `{"channel":"inbox:a","payload":"1","delay":"1s","payloadEncoding":"` + long + `"}`,
		"a number":            `{"retry":{"maxAttempts":1` + strings.Repeat("0", 5000) + `}}`,
		"a retry":             `{"channel":"inbox:a","payload":1,"delay":"1s","retry":{"maxBackoff":"` + long + `"}}`,
	} {
		items := strings.Repeat(item+"\n", 100)
		a := r.send("POST", "/v1/messages/batch", items, "Content-Type: application/x-ndjson")
		if a.status != 200 || strings.Count(a.body, `"error":`) != 100 {
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
		if most := 100 * 3000; len(a.body) > most {
			t.Errorf("%s: %d bytes are answered with %d", name, len(items), len(a.body))
		}
	}
}

// What readers cannot read is not taken, in whatever way it comes.
func TestDeepPayloads(t *testing.T) {
	r := newRig(t)
	nested := func(levels int) string {
		return strings.Repeat(`{"a":[`, levels/2) + "1" + strings.Repeat(`]}`, levels/2)
	}
	with := func(payload string) string {
		return `{"scheduleId":"deep","channel":"inbox:a","delay":"1h","payload":` + payload + `}`
	}
	if a := r.send("PUT", "/v1/messages/deep", with(nested(postdate.PayloadLevelsMax))); a.status != 201 {
		t.Error(a.status, a.body)
	}
	r.send("PUT", "/v1/messages/deep", with(nested(postdate.PayloadLevelsMax+2))).problem(400, InvalidField, "64 levels", `"pointer":"/payload"`)
	r.send("PUT", "/v1/messages/deep", with(nested(9998))).problem(400, InvalidField, "64 levels")
	r.send("PATCH", "/v1/messages/deep", `{"payload":`+nested(9998)+`}`).problem(400, InvalidField, "64 levels")
	if a := r.send("PUT", "/v1/messages/deep", with("["+strings.Repeat(`{"a":"[[[["},`, 1000)+"1]")); a.status != 200 {
		t.Error(a.status, a.body)
	}
	in := Intake{Tenant: postdate.DefaultTenant, Buckets: testBuckets, PayloadBytesMax: 1 << 20, CheckChannel: func(postdate.Channel) error { return nil }}
	m, err := in.FromParcel(&Parcel{Offer: Offer{ScheduleID: "a", Channel: "inbox:a", Now: testNow}, ContentType: "application/json", Payload: []byte(nested(9998)), ExecutionTime: testNow, When: "x"})
	if err != nil || m.Encoding != postdate.EncodingText {
		t.Errorf("from a broker: %v as %v, want as text: it is delivered as it came", err, m.Encoding)
	}
}

// Credentials that a message carries reach its receiver, and are not shown again.
func TestSecretHeadersAreNotShown(t *testing.T) {
	r := newRig(t)
	body := strings.TrimSuffix(order("a"), "}") + `,"headers":{"authorization":"Bearer t0ken","Cookie":"c00kie","x-shop":"berlin"}}`
	r.send("POST", "/v1/messages", body)
	if a := r.send("POST", "/v1/messages", body); a.status != 200 {
		t.Errorf("the same again: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/v1/messages/a", "/v1/messages"} {
		a := r.send("GET", path, "")
		if strings.Contains(a.body, "t0ken") || strings.Contains(a.body, "c00kie") || !strings.Contains(a.body, `"authorization":"***"`) || !strings.Contains(a.body, "berlin") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	var kept []postdate.Header
	r.store.set(keyOf("a"), func(rec *postdate.Record) { kept = rec.Headers })
	if kept[0].Value+kept[1].Value != "c00kieBearer t0ken" && kept[0].Value+kept[1].Value != "Bearer t0kenc00kie" {
		t.Errorf("stored: %v", kept)
	}
	r.send("PUT", "/v1/messages/a", strings.ReplaceAll(body, "Bearer t0ken", "***")).problem(400, InvalidField, "send its value")
}

// A connection that is being closed to make room answers nothing but that nothing was done.
func TestNothingIsDoneOnAConnectionThatMakesRoom(t *testing.T) {
	r := newRig(t)
	r.send("PUT", "/v1/messages/kept", order("kept"))
	conn := r.dial()
	conn.write("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	conn.read()
	r.server.conns.mu.Lock()
	for c := range r.server.conns.all {
		c.since.Store(closing) // chosen, and not closed yet
	}
	r.server.conns.mu.Unlock()
	conn.write("DELETE /v1/messages/kept HTTP/1.1\r\nHost: a\r\n\r\n")
	conn.read().problem(503, Unavailable, "surely nothing was done")
	if !conn.ended() {
		t.Error("the connection goes on")
	}
	http.DefaultClient.CloseIdleConnections()
	if a := r.send("GET", "/v1/messages/kept", ""); !strings.Contains(a.body, "PENDING") {
		t.Error(a.body)
	}
}

// Clients that do not take their answers keep nobody out.
func TestUnreadAnswersMakeRoom(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ConnectionsMax = 32 })
	for range 40 {
		conn := r.dial()
		if err := conn.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(conn.Conn, strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n", 400))
		}()
	}
	for range 20 { // one at a time, on a connection of its own
		http.DefaultClient.CloseIdleConnections()
		for ok := false; !ok; { // while a request of the others is being answered, there may be no room
			res, err := http.Get(r.url + "/healthz")
			if err == nil {
				ok = res.StatusCode == 200
				res.Body.Close()
			}
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
	}
}

// A request that is being answered keeps its connection, also if it announced a body that
// nobody reads.
func TestARequestWithABodyThatNobodyReadsIsAnswered(t *testing.T) {
	r := newRig(t)
	r.send("PUT", "/v1/messages/a", order("a"))
	http.DefaultClient.CloseIdleConnections()
	conn := r.dial()
	r.store.seen = func(_ context.Context, method string) {
		if method == "Cancel" {
			r.server.conns.makeRoom()
		}
	}
	conn.write("DELETE /v1/messages/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	conn.read().want(200, `{"scheduleId":"a","status":"CANCELLED"}`)
}
