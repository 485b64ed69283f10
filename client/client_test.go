package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/proctest"
)

// patience bounds every wait.
const patience = 90 * time.Second

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// server starts a node, which stops when the test ends, and returns its address.
func server(t testing.TB) string {
	address, stop := startNode()
	t.Cleanup(stop)
	return address
}

// open makes a client and closes it when the test ends.
func open(t testing.TB, config client.Config) *client.Client {
	t.Helper()
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestAWholeMessage sends a message with all fields set, and reads it back.
func TestAWholeMessage(t *testing.T) {
	c, ctx := open(t, client.Config{Servers: []string{server(t)}}), patient(t)
	at := time.Date(2037, 1, 31, 9, 30, 0, 250e6, time.FixedZone("", 3600))
	m := client.Message{
		ScheduleID: "whole", Channel: "inbox:whole", ExecutionTime: at, Payload: []byte("<a>\n& \xff"), ContentType: "image/png",
		Headers: map[string]string{"a": "<1>", "b": ""}, Key: "k", Priority: client.PriorityHigh, Labels: []string{"a", "b:1"}, ExpiresAt: at.Add(time.Hour),
		Retry:       &client.Retry{MaxAttempts: 3, MinBackoff: time.Second, MaxBackoff: time.Second, MaxParked: time.Hour},
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Tracestate: "a=1",
	}
	s, err := c.Put(ctx, m)
	if err != nil || !s.Created || s.Status != client.Pending || !s.ExecutionTime.Equal(at) || s.ScheduleID != "whole" {
		t.Fatalf("%+v %v", s, err)
	}
	again, err := c.Schedule(ctx, m)
	if err != nil || again.Created || again.Bucket != s.Bucket || !again.ExecutionTime.Equal(at) {
		t.Errorf("the same again: %+v %v", again, err)
	}
	r, err := c.Get(ctx, "whole")
	if err != nil || r.Bucket != s.Bucket || r.Status != client.Pending || r.Attempts != 0 || !r.NextAttemptAt.Equal(at) || r.CreatedAt.IsZero() {
		t.Fatalf("%+v %v", r, err)
	}
	if !r.ExecutionTime.Equal(m.ExecutionTime) || !r.ExpiresAt.Equal(m.ExpiresAt) {
		t.Errorf("times %v %v", r.ExecutionTime, r.ExpiresAt)
	}
	r.ExecutionTime, r.ExpiresAt = m.ExecutionTime, m.ExpiresAt
	if !reflect.DeepEqual(r.Message, m) {
		t.Errorf("got  %+v\nwant %+v", r.Message, m)
	}
	for r, err := range c.List(ctx, client.Filter{Channel: "inbox:whole"}) {
		if err != nil || r.Priority != client.PriorityHigh {
			t.Errorf("listed with priority %q, %v", r.Priority, err)
		}
	}
}

// TestLabels: a label and the beginning of an id find messages, and a change replaces or removes labels.
func TestLabels(t *testing.T) {
	c, ctx := open(t, client.Config{Servers: []string{server(t)}}), patient(t)
	for _, id := range []string{"labels-1", "labels-2", "other"} {
		m := client.Message{ScheduleID: id, Channel: "inbox:labels", Delay: time.Hour, Payload: []byte("1"), Labels: []string{"campaign-7", "a"}}
		if _, err := c.Schedule(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	want := func(f client.Filter, want ...string) {
		t.Helper()
		var got []string
		for r, err := range c.List(ctx, f) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.ScheduleID)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%+v selects %v, want %v", f, got, want)
		}
	}
	change := func(id string, labels []string) {
		t.Helper()
		if _, err := c.Patch(ctx, id, client.Change{Delay: time.Hour, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	want(client.Filter{Label: "campaign-7", PageSize: 1}, "labels-1", "labels-2", "other")
	want(client.Filter{Label: "campaign-7", IDPrefix: "labels-"}, "labels-1", "labels-2")
	yes, no := true, false
	want(client.Filter{Label: "campaign-7", Recurring: &no}, "labels-1", "labels-2", "other")
	want(client.Filter{Label: "campaign-7", Recurring: &yes})
	change("labels-1", []string{"b"})
	change("labels-2", []string{})
	change("other", nil)
	want(client.Filter{Label: "campaign-7"}, "other")
	want(client.Filter{Label: "b"}, "labels-1")
	want(client.Filter{IDPrefix: "labels"}, "labels-1", "labels-2")
}

// TestPayloads: the consumer gets the bytes that were scheduled, whatever they are.
func TestPayloads(t *testing.T) {
	c, ctx := open(t, client.Config{Servers: []string{server(t)}}), patient(t)
	want := map[string]string{}
	for n, m := range []client.Message{
		{Payload: []byte(`{"a": "<b>",  "n": 1.0}`)}, {Payload: []byte(`"text"`)}, {Payload: []byte("null")},
		{Payload: []byte(`"a" `), ContentType: "text/plain"}, {Payload: []byte("a\n\"b\""), ContentType: "text/plain; charset=utf-8"},
		{Payload: nil, ContentType: "text/plain"}, {Payload: []byte("\xff\x00"), ContentType: "application/octet-stream"},
		{Payload: []byte("[1]"), ContentType: "application/cloudevents+json"},
	} {
		m.ScheduleID, m.Channel, m.ExecutionTime = fmt.Sprint("payload-", n), "inbox:payloads", time.Now()
		want[m.ScheduleID] = string(m.Payload)
		if _, err := c.Schedule(ctx, m); err != nil {
			t.Fatal(n, err)
		}
	}
	for id, change := range map[string]client.Change{
		"changed-text":   {Payload: []byte(`"quoted"`)},
		"changed-json":   {Payload: []byte(`{"n": 2}`)},
		"changed-binary": {Payload: []byte("\xff")},
		"changed-type":   {Payload: []byte("<p>"), ContentType: "text/html"},
		"changed-time":   {ExecutionTime: time.Now()},
	} {
		if _, err := c.Schedule(ctx, client.Message{ScheduleID: id, Channel: "inbox:payloads", Delay: time.Hour, Payload: []byte("first"), ContentType: "text/plain"}); err != nil {
			t.Fatal(err)
		}
		want[id] = "first"
		if change.Payload != nil {
			want[id] = string(change.Payload)
			change.Delay = time.Millisecond
		}
		if _, err := c.Patch(ctx, id, change); err != nil {
			t.Fatal(id, err)
		}
	}
	alone := client.Change{ContentType: "text/plain"} // erases no payload
	if _, err := c.Patch(ctx, "changed-time", alone); client.TypeOf(err) != client.InvalidField {
		t.Errorf("a content type without a payload: %v", err)
	}
	for page, err := range c.Follow(ctx, "payloads", "") {
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			if got := string(m.Payload); got != want[m.ScheduleID] {
				t.Errorf("%s arrived as %q, not as %q", m.ScheduleID, got, want[m.ScheduleID])
			}
			delete(want, m.ScheduleID)
		}
		if len(want) == 0 {
			break
		}
	}
	if _, err := c.Schedule(ctx, client.Message{Channel: "inbox:x", Delay: 1, Payload: []byte("hi")}); err == nil || !strings.Contains(err.Error(), "ContentType") {
		t.Errorf("text without a type: %v", err)
	}
}

// TestProblems: an error has everything that the server says.
func TestProblems(t *testing.T) {
	c, ctx := open(t, client.Config{Servers: []string{server(t)}}), patient(t)
	_, err := c.Schedule(ctx, client.Message{ScheduleID: "p", Channel: "nowhere:x", Delay: time.Hour, Payload: []byte("1")})
	var p *client.Problem
	if !errors.As(err, &p) || p.Type != client.InvalidField || p.Status != 400 || p.Pointer != "/channel" || p.Title == "" || err.Error() != p.Detail {
		t.Fatalf("%#v", err)
	}
	if _, err := c.Get(ctx, "none"); client.TypeOf(err) != client.NotFound || client.MayBeDone(err) {
		t.Errorf("%v", err)
	}
	for _, id := range []string{"", ".", "..", "a/b", "a b"} {
		_, err := c.Get(ctx, id)
		if client.TypeOf(err) != client.InvalidField {
			t.Errorf("%q: %v", id, err)
		}
		if err := c.Cancel(ctx, id); client.TypeOf(err) != client.InvalidField {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := c.Do(ctx, client.Call{Method: "POST", Path: "/v1/messages", Body: []byte(`{"chanel":1}`)}); !errors.As(err, &p) || p.Suggestion != "channel" {
		t.Errorf("%v", err)
	}
	if a, err := c.Do(ctx, client.Call{Method: "POST", Path: "/v1/messages", Body: []byte(`{"x`)}); !errors.As(err, &p) || p.Offset == nil || a.Status != 400 || !bytes.Contains(a.Body, []byte("offset")) {
		t.Errorf("%v", err)
	}
	if _, err := c.Schedule(ctx, client.Message{ScheduleID: "late", Channel: "inbox:late", ExecutionTime: time.Now(), Payload: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Follow(ctx, "late", "") {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if err := c.Cancel(ctx, "late"); !errors.As(err, &p) || p.Type != client.TooLate || p.MessageStatus != client.Delivered && p.MessageStatus != client.Pending {
		t.Errorf("%#v", err)
	}
	results, err := c.CancelAll(ctx, []string{"late", "none"})
	if err != nil || results[0].Problem.Type != client.TooLate || client.TypeOf(results[1].Err()) != client.NotFound {
		t.Errorf("%+v %v", results, err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, servers := range [][]string{{""}, {"ftp://a"}, {"http://"}, {"a:1", "b c"}} {
		if c, err := client.New(client.Config{Servers: servers}); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:8080") {
			t.Errorf("%q: %v %v", servers, c, err)
		}
	}
}

// What the configuration leaves empty is as the environment says.
func TestEnvironment(t *testing.T) {
	var asked http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.Header }))
	defer s.Close()
	for _, test := range []struct {
		env, given, want [3]string // server, key, tenant
	}{
		{[3]string{s.URL, "a-key", "acme"}, [3]string{}, [3]string{s.URL, "Bearer a-key", "acme"}},
		{[3]string{"http://else:1", "a-key", "acme"}, [3]string{s.URL, "mine", "other"}, [3]string{s.URL, "Bearer mine", "other"}},
		{[3]string{}, [3]string{}, [3]string{"http://127.0.0.1:8080"}},
	} {
		for n, name := range []string{"POSTDATE_SERVER", "POSTDATE_API_KEY", "POSTDATE_AS_TENANT"} {
			t.Setenv(name, test.env[n])
		}
		config := client.Config{APIKey: test.given[1], Tenant: test.given[2], RetryFor: -1}
		if test.given[0] != "" {
			config.Servers = []string{test.given[0]}
		}
		c := open(t, config)
		if got := c.Server(); got != test.want[0] {
			t.Errorf("%+v: the server is %s", test, got)
		}
		if c.Server() != s.URL {
			continue
		}
		if err := c.Health(patient(t)); err != nil || asked.Get("Authorization") != test.want[1] || asked.Get("Postdate-Tenant") != test.want[2] {
			t.Errorf("%+v: asked with %v, %v", test, asked, err)
		}
	}
}

// What cannot be a header is refused, and not told: nothing is sent or tried again.
func TestNoHeader(t *testing.T) {
	m := client.Message{Channel: "inbox:x", Delay: time.Hour, Payload: []byte("1")}
	traced := m
	traced.Traceparent = "a\nb"
	stated := m
	stated.Traceparent, stated.Tracestate = "00-a", "a\nb"
	for name, test := range map[string]struct {
		config client.Config
		m      client.Message
	}{
		"Authorization":   {client.Config{APIKey: "secret\n"}, m},
		"Postdate-Tenant": {client.Config{Tenant: "a\x00"}, m},
		"Traceparent":     {client.Config{}, traced},
		"Tracestate":      {client.Config{}, stated},
	} {
		test.config.Servers = []string{"http://" + proctest.Closed(t)}
		ctx, cancel := context.WithCancel(patient(t))
		_, err := open(t, test.config).Schedule(ctx, test.m)
		cancel()
		if err == nil || client.MayBeDone(err) || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; may be done: %t", name, err, client.MayBeDone(err))
		}
	}
}

// The ids that the client makes are there although the answer is lost, so that the user can repeat with them.
func TestIDsOfALostAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	c, m := open(t, client.Config{Servers: []string{s.URL}, RetryFor: -1}), client.Message{Channel: "inbox:x", Delay: time.Hour, Payload: []byte("1")}
	one, err := c.Schedule(patient(t), m)
	if !client.MayBeDone(err) || one.ScheduleID == "" {
		t.Errorf("one: %+v %v", one, err)
	}
	all, err := c.ScheduleAll(patient(t), []client.Message{m, m})
	if !client.MayBeDone(err) || len(all) != 2 || all[0].ScheduleID == "" || all[0].ScheduleID == all[1].ScheduleID {
		t.Errorf("all: %+v %v", all, err)
	}
}

// faulty is a proxy in front of a node. It loses every third answer and refuses every
// fifth request, as networks and proxies do.
type faulty struct {
	server      string
	mu          sync.Mutex
	count, lost int
	together    int // batch requests
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.count++
	n := f.count
	if strings.HasSuffix(r.URL.Path, "/batch") || strings.HasSuffix(r.URL.Path, "/cancel") {
		f.together++
	}
	f.mu.Unlock()
	if n%5 == 0 {
		http.Error(w, "<html>wait</html>", http.StatusTooManyRequests)
		return
	}
	body, _ := io.ReadAll(r.Body)
	req, _ := http.NewRequest(r.Method, f.server+r.URL.RequestURI(), bytes.NewReader(body))
	req.Header = r.Header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || n%3 == 0 {
		f.mu.Lock()
		f.lost++
		f.mu.Unlock()
		if n%2 == 0 { // in the middle of it
			w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
			w.Write(answer[:len(answer)/2])
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(res.StatusCode)
	w.Write(answer)
}

// TestLostAnswers schedules and cancels from many concurrent goroutines through a network
// that loses answers. In the end, every call has its answer, no message is delivered twice,
// and no cancelled message arrives.
func TestLostAnswers(t *testing.T) {
	const callers, each = 20, 10
	f := &faulty{server: server(t)}
	front := httptest.NewServer(f)
	defer front.Close()
	c, ctx := open(t, client.Config{Servers: []string{front.URL}}), patient(t)
	due := time.Now().Add(3 * time.Second)
	cancelled := sync.Map{}
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			for i := range each {
				s, err := c.Schedule(ctx, client.Message{Channel: "inbox:lost", ExecutionTime: due, Payload: fmt.Append(nil, n*each+i)})
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					continue
				}
				switch err := c.Cancel(ctx, s.ScheduleID); {
				case err == nil:
					cancelled.Store(fmt.Sprint(n*each+i), true)
				case client.TypeOf(err) != client.TooLate: // the machine may be slow
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if f.lost == 0 || f.together == 0 {
		t.Fatalf("%d answers were lost, %d requests gathered: nothing is tested", f.lost, f.together)
	}
	want := map[string]bool{}
	for n := range callers * each {
		if _, gone := cancelled.Load(fmt.Sprint(n)); !gone {
			want[fmt.Sprint(n)] = true
		}
	}
	direct := open(t, client.Config{Servers: []string{f.server}})
	stored := 0
	for _, err := range direct.List(ctx, client.Filter{Channel: "inbox:lost", PageSize: 30}) {
		if err != nil {
			t.Fatal(err)
		}
		stored++
	}
	if stored != callers*each {
		t.Errorf("%d messages are stored, not %d", stored, callers*each)
	}
	cursor := ""
	for len(want) > 0 {
		page, err := direct.ReadInbox(ctx, "lost", client.InboxRead{After: cursor, Limit: 50, Wait: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			if !want[string(m.Payload)] {
				t.Errorf("%s arrived, and is cancelled or there twice", m.Payload)
			}
			delete(want, string(m.Payload))
		}
		cursor = page.NextCursor
	}
	if page, err := direct.ReadInbox(ctx, "lost", client.InboxRead{After: cursor}); err != nil || len(page.Messages) > 0 {
		t.Errorf("more arrived: %+v %v", page, err)
	}
}

// TestNoServer: after a refused connection nothing is done, and a client that does not
// retry says so immediately.
func TestNoServer(t *testing.T) {
	closed := proctest.Closed(t)
	c := open(t, client.Config{Servers: []string{closed}, RetryFor: -1})
	_, err := c.Put(t.Context(), client.Message{ScheduleID: "a", Channel: "inbox:a", Delay: time.Hour, Payload: []byte("1")})
	var lost *client.NoAnswer
	if !errors.As(err, &lost) || lost.MayBeDone || client.MayBeDone(err) || lost.Server != "http://"+closed || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	second := server(t)
	c = open(t, client.Config{Servers: []string{closed, second}})
	if _, err := c.Put(t.Context(), client.Message{ScheduleID: "second", Channel: "inbox:a", Delay: time.Hour, Payload: []byte("1")}); err != nil || c.Server() != second {
		t.Errorf("the second server: %v, now %s", err, c.Server())
	}
}

// TestUntrustedServer: a server whose certificate no known authority signed gets nothing.
func TestUntrustedServer(t *testing.T) {
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	c := open(t, client.Config{Servers: []string{untrusted.URL}, RetryFor: -1})
	_, err := c.Put(t.Context(), client.Message{ScheduleID: "a", Channel: "inbox:a", Delay: time.Hour, Payload: []byte("1")})
	var unverified *tls.CertificateVerificationError
	if !errors.As(err, &unverified) || client.MayBeDone(err) {
		t.Errorf("%v", err)
	}
}

// TestProblemTypes: the client has all problem types of the document.
func TestProblemTypes(t *testing.T) {
	for _, known := range []client.ProblemType{
		client.MalformedJSON, client.UnknownField, client.DuplicateField, client.InvalidField, client.InvalidParameter, client.NotSupported,
		client.BadRequest, client.NotFound, client.NoSuchPath, client.MethodNotAllowed, client.RequestTimeout, client.Exists, client.TooLate,
		client.Conflict, client.PreconditionFailed, client.KeyReused, client.TooLarge, client.UnsupportedContent, client.HeadersTooLarge, client.Internal, client.Unavailable,
		client.NotReady, client.UnknownOutcome, client.StoreFull,
	} {
		if !bytes.Contains(api.OpenAPI, []byte(`"`+string(known)+`"`)) {
			t.Errorf("the document does not know %s", known)
		}
	}
}

// A problem says which request it answers, so that the node's log can be searched for that.
func TestProblemsNameTheirRequest(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if own := r.Header["X-Request-Id"]; own != nil {
			t.Errorf("the client sends %q by itself", own)
		}
		w.Header().Set("X-Request-Id", "the-one")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	c, err := client.New(client.Config{Servers: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Get(t.Context(), "a")
	var p *client.Problem
	if !errors.As(err, &p) || p.RequestID != "the-one" {
		t.Errorf("%+v", err)
	}
}

// The list of channels is whole, however many pages it has.
func TestChannelsOfAllPages(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			io.WriteString(w, `{"channels":[{"channel":"inbox:a"}],"missing":["c","b"],"nextCursor":"x+1"}`)
		case "x+1":
			io.WriteString(w, `{"channels":[{"channel":"inbox:b"}],"missing":["c"]}`)
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}))
	defer s.Close()
	c, err := client.New(client.Config{Servers: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Channels(t.Context())
	if all := list.Channels; err != nil || len(all) != 2 || all[0].Channel != "inbox:a" || all[1].Channel != "inbox:b" ||
		!slices.Equal(list.Missing, []string{"b", "c"}) {
		t.Errorf("%+v, %v", list, err)
	}
}
