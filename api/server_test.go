package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/store"
)

const testBuckets = 64

// testNow is the start time of the tests' clock.
var testNow = must(postdate.ParseTime("2027-01-30T12:00:00Z"))

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// rig is a server on a real listener, over a store and an inbox in memory.
type rig struct {
	t        *testing.T
	server   *Server
	store    *fakeStore
	inbox    *fakeInbox
	channels *fakeChannels
	tenants  *fakeTenants
	url      string
	log      *nodetest.Log
	started  atomic.Int64 // jobs

	mu     sync.Mutex
	now    postdate.Time
	nudges []nudge
	ready  error
}

type nudge struct {
	bucket int
	at     postdate.Time
}

func newRig(t *testing.T, changes ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, store: newFakeStore(), inbox: &fakeInbox{}, channels: &fakeChannels{set: map[postdate.Route]store.ChannelSettings{}},
		tenants: &fakeTenants{set: map[string]store.TenantSettings{}}, now: testNow, log: &nodetest.Log{}}
	config := Config{
		Buckets: testBuckets, Messages: r.store, Requests: r.store, Inbox: r.inbox, Channels: r.channels, Tenants: r.tenants,
		Jobs: r.store, JobStarted: func() { r.started.Add(1) },
		Now: func() postdate.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now },
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Scheduled: func(bucket int, at postdate.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.nudges = append(r.nudges, nudge{bucket, at})
		},
		CheckChannel: func(c postdate.Channel) error {
			if c.Broker() != "inbox" && c.Broker() != "rabbitmq" {
				return postdate.E(postdate.KindInvalid, "broker %q is not configured: there are inbox, rabbitmq", c.Broker())
			}
			return nil
		},
		Cluster: func() Cluster {
			return Cluster{
				Node: "a", Members: []Member{{Node: "a", Address: "127.0.0.1:7946", State: "alive"}},
				Buckets: []Bucket{{Bucket: 0, Owner: "a", Token: 3, Checkpoint: testNow, Claimed: testNow + 5, Lag: 12 * time.Millisecond}, {Bucket: 1}},
			}
		},
		Ready: func() error { r.mu.Lock(); defer r.mu.Unlock(); return r.ready },
	}
	for _, change := range changes {
		change(&config)
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.server, r.url = server, "http://"+listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

// answer is a response whose body has been read.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// send makes a request. A body that begins with { or [ is JSON unless a header
// says otherwise. Headers have the form "Name: value".
func (r *rig) send(method, path, body string, headers ...string) *answer {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	if _, given := req.Header["Content-Type"]; !given && body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return &answer{r.t, res.StatusCode, res.Header, string(text)}
}

// want checks the status and the body.
func (a *answer) want(status int, body string) *answer {
	a.t.Helper()
	if a.status != status || a.body != body {
		a.t.Fatalf("got  %d %s\nwant %d %s", a.status, a.body, status, body)
	}
	return a
}

// is checks the status.
func (a *answer) is(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got %d %s, want %d", a.status, a.body, status)
	}
	return a
}

// problem checks that a is a well-formed problem of a type, and that its body
// has each of the parts.
func (a *answer) problem(status int, kind ProblemType, parts ...string) *answer {
	a.t.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(a.body), &p, json.MatchCaseInsensitiveNames(true)); err != nil {
		a.t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if a.status != status || p.Status != status || p.Type != ProblemPrefix+string(kind) || p.Title == "" || p.Detail == "" {
		a.t.Fatalf("got %d %s\nwant %d %s", a.status, a.body, status, kind)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		a.t.Fatalf("content type %q", got)
	}
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			a.t.Fatalf("%s\ndoes not say %s", a.body, part)
		}
	}
	return a
}

func keyOf(id string) postdate.Key {
	return bucket.KeyOf(postdate.DefaultTenant, id, testBuckets)
}

// order returns the body of a message that is due in a day.
func order(id string) string {
	return `{"scheduleId":"` + id + `","channel":"inbox:test","executionTime":"2027-01-31T12:00:00Z","payload":{"order":1}}`
}

func (r *rig) settle(id string, status postdate.Status) {
	r.store.set(keyOf(id), func(rec *postdate.Record) {
		rec.Status, rec.SettledAt, rec.Attempts = status, testNow+1, 1
	})
}

// pass moves the rig's clock forward.
func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func TestPathsAndMethods(t *testing.T) {
	r := newRig(t)
	r.send("GET", "/v2/messages", "").problem(404, NoSuchPath, "/v2/messages", "/openapi.json")
	r.send("GET", "/v1/messages/", "").problem(404, NoSuchPath)
	r.send("GET", "/v1/messages/a/b", "").problem(404, NoSuchPath)
	a := r.send("DELETE", "/v1/messages", "").problem(405, MethodNotAllowed, "POST")
	if allow := a.header.Get("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "POST") || strings.Contains(allow, "DELETE") {
		t.Errorf("Allow: %s", allow)
	}
	r.send("POST", "/v1/messages/some-id", "{}").problem(405, MethodNotAllowed, "PATCH")
	r.send("BREW", "/v1/messages", "").problem(405, MethodNotAllowed)
	for _, method := range []string{"PUT", "DELETE", "PATCH"} {
		if a := r.send(method, "/schedulers", "").problem(405, MethodNotAllowed, "it takes GET, HEAD, POST"); a.header.Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("%s /schedulers: Allow is %q", method, a.header.Get("Allow"))
		}
	}
	r.send("GET", "/v1/messages/batch", "").problem(404, NotFound) // an id like any other
}

func TestHead(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", order("a"))
	get, head := r.send("GET", "/v1/messages/a", ""), r.send("HEAD", "/v1/messages/a", "")
	if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != get.header.Get("Content-Length") {
		t.Errorf("HEAD: %d %q %v", head.status, head.body, head.header)
	}
	if get.header.Get("Content-Length") == "" {
		t.Error("no Content-Length")
	}
}

func TestOperations(t *testing.T) {
	r := newRig(t)
	r.send("GET", "/healthz", "").want(200, `{"status":"ok"}`)
	r.send("GET", "/readyz", "").want(200, `{"status":"ready"}`)
	r.mu.Lock()
	r.ready = errors.New("the clock is 3s from the store's")
	r.mu.Unlock()
	r.send("GET", "/readyz", "").problem(503, NotReady, "the clock is 3s")
	r.send("GET", "/v1/cluster", "").want(200, `{"node":"a","members":[{"node":"a","address":"127.0.0.1:7946","state":"alive"}],`+
		`"buckets":[{"bucket":0,"owner":"a","token":3,"checkpoint":"2027-01-30T12:00:00.000Z","claimed":"2027-01-30T12:00:00.005Z","lag":12},{"bucket":1,"owner":"","token":0,"lag":0}]}`)
	if a := r.send("GET", "/openapi.json", ""); a.status != 200 || a.body != string(OpenAPI) {
		t.Errorf("openapi.json: %d", a.status)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.send("POST", "/v1/messages", order("a"))
	r.send("POST", "/v1/messages", order("a")) // counts once
	r.send("POST", "/v1/messages", order("b"))
	r.send("DELETE", "/v1/messages/a", "")
	r.pass(time.Second)
	r.send("DELETE", "/v1/messages/a", "") // counts once
	r.settle("b", postdate.Delivered)
	r.send("DELETE", "/v1/messages/b", "")
	r.send("BREW", "/v1/messages/b", "")
	text := r.send("GET", "/metrics", "").body
	for _, line := range []string{
		`postdate_scheduled_total{broker="inbox",tenant="default"} 2`,
		`postdate_cancelled_total{tenant="default"} 1`,
		`postdate_cancel_too_late_total{tenant="default"} 1`,
		`postdate_http_requests_total{code="201",method="POST",route="/v1/messages"} 2`,
		`postdate_http_requests_total{code="200",method="POST",route="/v1/messages"} 1`,
		`postdate_http_requests_total{code="409",method="DELETE",route="/v1/messages/{id}"} 1`,
		`postdate_http_requests_total{code="405",method="other",route="none"} 1`,
		`postdate_http_request_seconds_count{method="POST",route="/v1/messages"} 3`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func TestPanicIsAnsweredAndLogged(t *testing.T) {
	r := newRig(t)
	r.store.seen = func(context.Context, string) { panic("the secret is 42") }
	a := r.send("GET", "/v1/messages/a", "").problem(500, Internal)
	if strings.Contains(a.body, "42") {
		t.Errorf("inner details: %s", a.body)
	}
	if !strings.Contains(r.log.String(), "the secret is 42") {
		t.Errorf("not logged: %s", r.log)
	}
	r.send("GET", "/healthz", "").want(200, `{"status":"ok"}`)
}

func TestShutdownEndsLongPolls(t *testing.T) {
	r := newRig(t)
	r.inbox.waiting = make(chan struct{}, 1)
	polled := make(chan *answer, 1)
	go func() { polled <- r.send("GET", "/v1/inbox/test?wait=30s&after=7", "") }()
	<-r.inbox.waiting
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	begin := time.Now()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	(<-polled).want(200, `{"messages":[],"nextCursor":"7"}`)
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("the shutdown waited for the poll: %s", took)
	}
}

// lateListener returns one more connection after it is closed, as if that one had been
// accepted while the shutdown began.
type lateListener struct {
	net.Listener
	once sync.Once
	late net.Conn

	asked, shut chan struct{}
}

func (l *lateListener) Accept() (net.Conn, error) {
	conn := l.late
	if conn == nil {
		return nil, io.EOF
	}
	close(l.asked)
	<-l.shut
	l.late = nil
	return conn, nil
}

func (l *lateListener) Close() error {
	l.once.Do(func() { close(l.shut) })
	return l.Listener.Close()
}

// A client's spare connection, on which no request was sent, does not delay a shutdown,
// whenever it was made.
func TestShutdownWaitsForNoSpareConnection(t *testing.T) {
	r := newRig(t)
	early, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, late := net.Pipe()
	defer client.Close()
	l := &lateListener{Listener: inner, late: late, shut: make(chan struct{}), asked: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	<-l.asked
	r.send("GET", "/healthz", "") // on a later connection: the early one was accepted
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Errorf("the stop waited for a connection on which nothing was asked: %v", err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestSlowAndHugeRequests(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ReadTimeout = 200 * time.Millisecond })
	address := strings.TrimPrefix(r.url, "http://")
	for _, test := range []struct{ name, request, want string }{
		{"half a request line", "POST /v1/mess", "HTTP/1.1 408 "},
		{"half a body", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", "HTTP/1.1 408 "},
		{"no HTTP", "hello there\r\n\r\n", "HTTP/1.1 400 "},
		{"huge headers", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20<<10), "HTTP/1.1 431 "},
		{"huge body announced", "POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n" + strings.Repeat(" ", preloadBytes), "HTTP/1.1 413 "},
		{"huge batch announced", "POST /v1/messages/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n" + strings.Repeat(" ", preloadBytes), "HTTP/1.1 413 "},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, test.request); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(conn)
			if err != nil && len(text) == 0 {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), test.want) || !strings.Contains(string(text), ProblemPrefix) {
				t.Errorf("got %q", text)
			}
		})
	}
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	_, err := New(Config{Buckets: 0, PayloadBytesMax: -1})
	for _, part := range []string{"Buckets is 0", "Messages is missing", "Inbox is missing", "PayloadBytesMax is -1"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}
