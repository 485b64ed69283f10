package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/benchtest"
)

// These tests test the client alone, with a stand-in for the network, in a bubble of
// synctest: there Wait returns when every call is blocked, and time is exact.

// request is a request to a stand-in that waits for its answer.
type request struct {
	*http.Request
	body   string
	answer chan any // "STATUS\nHEADER: VALUE\nBODY" or an error
}

func (r *request) String() string { return r.Method + " " + r.URL.String() + " " + r.body }

// network stands in for servers: a test takes each request and answers it.
type network struct {
	mu       sync.Mutex
	requests []*request
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	mine := &request{Request: r, body: string(body), answer: make(chan any, 1)}
	n.mu.Lock()
	n.requests = append(n.requests, mine)
	n.mu.Unlock()
	select {
	case a := <-mine.answer:
		if err, failed := a.(error); failed {
			return nil, err
		}
		lines := strings.SplitN(a.(string), "\n", 3)
		res := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(lines[2])), Request: r}
		fmt.Sscan(lines[0], &res.StatusCode)
		if name, value, ok := strings.Cut(lines[1], ": "); ok {
			res.Header.Set(name, value)
		}
		return res, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// next waits until every call is blocked, and takes the requests that came meanwhile.
func (n *network) next(t *testing.T, want int) []*request {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.requests
	n.requests = nil
	if len(taken) != want {
		t.Fatalf("%d requests came, not %d: %v", len(taken), want, taken)
	}
	return taken
}

func (r *request) say(status int, body string) { r.answer <- fmt.Sprintf("%d\n\n%s", status, body) }

// done answers like a node that succeeds.
func (r *request) done(t *testing.T) (ids []string) {
	result := func(id string, status client.Status) string {
		ids = append(ids, id)
		return fmt.Sprintf(`{"scheduleId":%q,"bucket":1,"executionTime":"2037-01-31T09:30:00.000Z","status":%q,"created":true}`, id, status)
	}
	many := func(all []string, status client.Status) string {
		var results []string
		for _, id := range all {
			results = append(results, result(id, status))
		}
		return `{"results":[` + strings.Join(results, ",") + `]}`
	}
	var m struct{ ScheduleID string }
	var ms []struct{ ScheduleID string }
	var cancels struct{ ScheduleIDs []string }
	decode := func(to any) {
		if err := json.Unmarshal([]byte(r.body), to); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	switch {
	case r.Method == http.MethodDelete:
		_, id, _ := strings.Cut(r.URL.Path, "/v1/messages/")
		r.say(200, result(id, client.Cancelled))
	case strings.HasSuffix(r.URL.Path, "/batch"):
		decode(&ms)
		var all []string
		for _, m := range ms {
			all = append(all, m.ScheduleID)
		}
		r.say(200, many(all, client.Pending))
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		decode(&cancels)
		r.say(200, many(cancels.ScheduleIDs, client.Cancelled))
	case r.body == "":
		r.say(201, result("a/2037-01-31T09:30:00.000Z", client.Pending))
	default:
		decode(&m)
		r.say(201, result(m.ScheduleID, client.Pending))
	}
	return ids
}

// calls are concurrent calls and their results.
type calls struct {
	mu     sync.Mutex
	errs   map[string]error // by schedule id
	client *client.Client
}

func newCalls(t *testing.T, config client.Config) (*calls, *network) {
	n := &network{}
	config.HTTP = &http.Client{Transport: n}
	if config.Servers == nil {
		config.Servers = []string{"http://one"}
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return &calls{errs: map[string]error{}, client: c}, n
}

func (c *calls) note(id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs[id] = err
}

func (c *calls) schedule(ctx context.Context, id, payload string) {
	go func() {
		s, err := c.client.Schedule(ctx, client.Message{ScheduleID: id, Channel: "inbox:x", Delay: time.Hour, Payload: []byte(payload)})
		if s.ScheduleID != id || err == nil && s.Bucket != 1 {
			err = fmt.Errorf("%s was answered with %+v, %w", id, s, err)
		}
		c.note(id, err)
	}()
}

func (c *calls) cancel(ctx context.Context, id string) {
	go func() { c.note(id, c.client.Cancel(ctx, id)) }()
}

// ended takes the finished calls by id, and fails the test if their ids are not these.
func (c *calls) ended(t *testing.T, ids ...string) map[string]error {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.errs
	c.errs = map[string]error{}
	if len(taken) != len(ids) {
		t.Fatalf("%v ended, not %v", taken, ids)
	}
	for _, id := range ids {
		if _, ok := taken[id]; !ok {
			t.Fatalf("%v ended, not %v", taken, ids)
		}
	}
	return taken
}

func (c *calls) succeeded(t *testing.T, ids ...string) {
	t.Helper()
	for id, err := range c.ended(t, ids...) {
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// A call is sent immediately while there is room, and later calls share the next request.
func TestGathering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 2})
		ctx := t.Context()
		for _, id := range []string{"a", "b"} {
			c.schedule(ctx, id, "1")
			if r := n.next(t, 1)[0]; !strings.HasPrefix(r.String(), `POST http://one/v1/messages {"scheduleId":"`+id) {
				t.Errorf("a call alone is %v", r)
			} else {
				defer func() { r.done(t) }()
			}
			c.cancel(ctx, "cancel-"+id)
			r := n.next(t, 1)[0]
			if r.String() != "DELETE http://one/v1/messages/cancel-"+id+" " {
				t.Errorf("a cancel alone is %v", r)
			}
			defer func() { r.done(t) }()
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 1})
		c.schedule(t.Context(), "first", "1")
		first := n.next(t, 1)[0]
		c.cancel(t.Context(), "first-cancel")
		firstCancel := n.next(t, 1)[0]
		var ids, cancels []string
		for i := range 100 {
			ids, cancels = append(ids, fmt.Sprint("s", i)), append(cancels, fmt.Sprint("c", i))
			c.schedule(t.Context(), ids[i], `{"a": "<b>",  "n": 1.0}`)
			c.cancel(t.Context(), cancels[i])
		}
		n.next(t, 0)
		firstCancel.done(t)
		together := n.next(t, 1)[0]
		if together.URL.Path != "/v1/messages/cancel" || len(together.done(t)) != 100 {
			t.Errorf("the other cancels are %v", together)
		}
		c.succeeded(t, append(cancels, "first-cancel")...)
		first.done(t)
		together = n.next(t, 1)[0]
		if together.URL.Path != "/v1/messages/batch" || strings.Count(together.body, `{"a": "<b>",  "n": 1.0}`) != 100 {
			t.Errorf("together they are %v", together)
		}
		together.done(t)
		c.succeeded(t, append(ids, "first")...)
		n.next(t, 0)
	})
}

// No request exceeds the API's limits.
func TestGatheringKeepsTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 1})
		c.schedule(t.Context(), "first", "1")
		first := n.next(t, 1)[0]
		large := `"` + strings.Repeat("x", postdate.PayloadBytesMax-2) + `"`
		for i := range 300 { // 75 MiB
			c.schedule(t.Context(), fmt.Sprint("m", i), large)
		}
		synctest.Wait()
		first.done(t)
		a := n.next(t, 1)[0]
		a.done(t)
		b := n.next(t, 1)[0]
		b.done(t)
		if len(a.body) > postdate.BatchBytesMax || len(a.body) < postdate.BatchBytesMax-postdate.PayloadBytesMax-100 {
			t.Errorf("the first has %d bytes", len(a.body))
		}
		if many := len(c.ended(t, c.ids()...)); many != 301 {
			t.Errorf("%d calls ended", many)
		}
		c.cancel(t.Context(), "c")
		first = n.next(t, 1)[0]
		for i := range postdate.CancelItemsMax + 1 {
			c.cancel(t.Context(), fmt.Sprint("c", i))
		}
		synctest.Wait()
		first.done(t)
		if ids := n.next(t, 1)[0].done(t); len(ids) != postdate.CancelItemsMax {
			t.Errorf("%d together", len(ids))
		}
		n.next(t, 1)[0].done(t)
		synctest.Wait()
	})
}

// ids returns the ids of the finished calls.
func (c *calls) ids() (ids []string) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.errs {
		ids = append(ids, id)
	}
	return ids
}

// A call whose context ends while it waits is withdrawn. Once sent, its outcome is unknown.
func TestContextsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 1})
		early, cancelEarly := context.WithCancel(t.Context())
		late, cancelLate := context.WithCancel(t.Context())
		c.schedule(late, "under way", "1")
		under := n.next(t, 1)[0]
		c.schedule(early, "withdrawn", "1")
		c.schedule(late, "late", "1")
		c.schedule(t.Context(), "stays", "1")
		synctest.Wait()
		cancelEarly()
		for id, err := range c.ended(t, "withdrawn") {
			if !errors.Is(err, context.Canceled) || client.MayBeDone(err) || !strings.Contains(err.Error(), "nothing was done") {
				t.Errorf("%s: %v", id, err)
			}
		}
		under.done(t)
		c.succeeded(t, "under way")
		together := n.next(t, 1)[0]
		if strings.Contains(together.body, "withdrawn") || !strings.Contains(together.body, "late") {
			t.Errorf("it has %s", together.body)
		}
		cancelLate()
		for id, err := range c.ended(t, "late") {
			if !errors.Is(err, context.Canceled) || !client.MayBeDone(err) || !strings.Contains(err.Error(), "done or not") {
				t.Errorf("%s: %v", id, err)
			}
		}
		together.done(t)
		c.succeeded(t, "stays")

		// A request is cancelled when the last of its callers gives up, and makes room.
		alone, cancelAlone := context.WithCancel(t.Context())
		c.cancel(alone, "alone")
		n.next(t, 1)
		c.cancel(t.Context(), "after-it")
		n.next(t, 0)
		cancelAlone()
		if err := c.ended(t, "alone")["alone"]; !client.MayBeDone(err) {
			t.Errorf("%v", err)
		}
		n.next(t, 1)[0].done(t)
		c.succeeded(t, "after-it")

		c.cancel(alone, "ended-before")
		if err := c.ended(t, "ended-before")["ended-before"]; client.MayBeDone(err) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		n.next(t, 0)
	})
}

// A bad call, or a request that is too large, does not make other calls fail.
func TestOneBadCallFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 1})
		c.schedule(t.Context(), "first", "1")
		first := n.next(t, 1)[0]
		var ids []string
		for i := range 7 {
			ids = append(ids, fmt.Sprint("m", i))
			c.schedule(t.Context(), ids[i], "1")
		}
		c.schedule(t.Context(), "bad", `"BAD"`)
		synctest.Wait()
		first.done(t)
		for requests := 0; ; requests++ {
			synctest.Wait()
			n.mu.Lock()
			came := n.requests
			n.requests = nil
			n.mu.Unlock()
			if len(came) == 0 {
				if requests != 7 { // 8 together; the half with the bad one; its half; ...
					t.Errorf("it took %d requests", requests)
				}
				break
			}
			if strings.Contains(came[0].body, "BAD") {
				came[0].say(413, "<html>too large</html>")
				continue
			}
			came[0].done(t)
		}
		ended := c.ended(t, append(ids, "first", "bad")...)
		for id, err := range ended {
			var p *client.Problem
			if id == "bad" && (!errors.As(err, &p) || p.Status != 413) || id != "bad" && err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

var refused = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// retried are calls that change something.
var retried = []struct {
	name string
	safe bool
	f    func(context.Context, *client.Client) error
}{
	{"schedule", true, func(ctx context.Context, c *client.Client) error {
		_, err := c.Schedule(ctx, client.Message{Channel: "inbox:x", Payload: []byte("1")})
		return err
	}},
	{"cancel", true, func(ctx context.Context, c *client.Client) error { return c.Cancel(ctx, "a") }},
	{"cancel many", true, func(ctx context.Context, c *client.Client) error {
		_, err := c.CancelAll(ctx, []string{"a"})
		return err
	}},
	{"put", false, func(ctx context.Context, c *client.Client) error {
		_, err := c.Put(ctx, client.Message{ScheduleID: "a", Payload: []byte("1")})
		return err
	}},
	{"patch", false, func(ctx context.Context, c *client.Client) error {
		_, err := c.Patch(ctx, "a", client.Change{Delay: time.Hour})
		return err
	}},
	{"pause a series", false, func(ctx context.Context, c *client.Client) error { return c.PauseSeries(ctx, "a") }},
	{"trigger", false, func(ctx context.Context, c *client.Client) error {
		_, err := c.Trigger(ctx, "a")
		return err
	}},
}

// TestRetries checks for each failure which calls are tried again, when and where.
func TestRetries(t *testing.T) {
	const unavailable = `{"type":"urn:postdate:problem:unavailable","status":503,"detail":"in a moment"}`
	const unknown = `{"type":"urn:postdate:problem:unknown-outcome","status":504,"detail":"nobody knows"}`
	for _, test := range []struct {
		name        string
		answer      any  // "STATUS\nHEADER: VALUE\nBODY" or an error
		safe, other bool // whether repeatable calls, and others, are tried again
		mayBeDone   bool
	}{
		{"refused", refused, true, true, false},
		{"lost", io.ErrUnexpectedEOF, true, false, true},
		{"unavailable", "503\nRetry-After: 1\n" + unavailable, true, true, false},
		{"unknown", "504\nRetry-After: 1\n" + unknown, true, false, true},
		{"a proxy's 503", "503\n\n<html>", true, false, true},
		{"a proxy's 502", "502\n\n<html>", true, false, true},
		{"too many", "429\n\n", true, true, false},
		{"full", "507\nRetry-After: 30\n" + `{"type":"urn:postdate:problem:full","status":507,"detail":"no room"}`, true, true, false},
		{"failed", "500\n\n" + `{"type":"urn:postdate:problem:internal","status":500,"detail":"see the log"}`, false, false, true},
		{"moved", "301\nLocation: http://other/\n", false, false, false},
		{"garbage", "200\n\n<html>hello</html>", false, false, true},
		{"half an answer", "200\n\n{}", false, false, true},
	} {
		for _, call := range retried {
			synctest.Test(t, func(t *testing.T) {
				what := call.name + ", " + test.name
				c, n := newCalls(t, client.Config{})
				go func() { c.note("x", call.f(t.Context(), c.client)) }()
				first := n.next(t, 1)[0]
				first.answer <- test.answer
				if again := call.safe && test.safe || test.other; !again {
					err := c.ended(t, "x")["x"]
					if err == nil || client.MayBeDone(err) != test.mayBeDone {
						t.Errorf("%s: %v", what, err)
					}
					return
				}
				if ids := c.ids(); len(ids) > 0 {
					t.Errorf("%s ends with %v", what, c.errs)
					return
				}
				pause := 100 * time.Millisecond
				if text, ok := test.answer.(string); ok && strings.Contains(text, "Retry-After: 1\n") {
					pause = time.Second - 1
				} else if ok && strings.Contains(text, "Retry-After") {
					pause = 30*time.Second - 1
				}
				if pause > 100*time.Millisecond {
					time.Sleep(pause)
					n.next(t, 0)
					pause = 1
				}
				time.Sleep(pause)
				second := n.next(t, 1)[0]
				if second.String() != first.String() {
					t.Errorf("%s: the second try is another one: %v, before %v", what, second, first)
				}
				second.done(t)
				c.succeeded(t, "x")
			})
		}
	}
}

// If one try of a call was lost, the outcome is unknown unless a later answer decides it.
func TestALostTryIsNotForgotten(t *testing.T) {
	for answer, mayBeDone := range map[string]bool{
		"503\n\n" + `{"type":"urn:postdate:problem:unavailable","status":503}`:   true,
		"400\n\n" + `{"type":"urn:postdate:problem:invalid-field","status":400}`: true,
		"409\n\n" + `{"type":"urn:postdate:problem:too-late","status":409}`:      false,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, n := newCalls(t, client.Config{Servers: []string{"http://one", "http://two"}})
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond) // before the next pause is over
			defer cancel()
			c.cancel(ctx, "a")
			n.next(t, 1)[0].answer <- io.ErrUnexpectedEOF
			second := n.next(t, 1)[0] // without a pause, at the other server
			if second.URL.Host != "two" {
				t.Errorf("it is %v", second)
			}
			second.answer <- answer
			if err := c.ended(t, "a")["a"]; err == nil || client.MayBeDone(err) != mayBeDone {
				t.Errorf("%s: %v", answer, err)
			}
		})
	}
}

// Retries end after RetryFor, and a server that does not answer is given up.
func TestRetriesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Servers: []string{"http://one", "http://two/"}, AnswerTimeout: 10 * time.Second, RetryFor: 15 * time.Second})
		begun := time.Now()
		c.schedule(t.Context(), "a", "1")
		n.next(t, 1)
		time.Sleep(10 * time.Second)
		if second := n.next(t, 1)[0]; second.URL.Host != "two" {
			t.Errorf("it is %v", second)
		}
		time.Sleep(10 * time.Second)
		err := c.ended(t, "a")["a"]
		var lost *client.NoAnswer
		if !errors.As(err, &lost) || !lost.MayBeDone || lost.Server != "http://two" || !strings.Contains(err.Error(), "10s") || time.Since(begun) != 20*time.Second {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		// The client stays with the server that answers.
		for range 3 {
			c.schedule(t.Context(), "b", "1")
			r := n.next(t, 1)[0]
			if r.URL.Host != "one" {
				t.Errorf("it is %v", r)
			}
			r.done(t)
			c.succeeded(t, "b")
		}
	})
}

// Each item of a batch gets its own result, even if only some items are tried again.
func TestSomeOfABatchFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 1})
		c.schedule(t.Context(), "first", "1")
		first := n.next(t, 1)[0]
		for _, id := range []string{"good", "taken", "busy"} {
			c.schedule(t.Context(), id, "1")
			synctest.Wait()
		}
		first.done(t)
		n.next(t, 1)[0].say(200, `{"results":[
			{"scheduleId":"good","bucket":1,"executionTime":"2037-01-31T09:30:00.000Z","status":"PENDING","created":true},
			{"scheduleId":"taken","error":{"type":"urn:postdate:problem:exists","status":409,"detail":"taken"}},
			{"scheduleId":"busy","error":{"type":"urn:postdate:problem:unavailable","status":503,"detail":"in a moment"}}]}`)
		ended := c.ended(t, "first", "good", "taken")
		if ended["good"] != nil || client.TypeOf(ended["taken"]) != client.Exists {
			t.Errorf("%v", ended)
		}
		time.Sleep(100 * time.Millisecond)
		if ids := n.next(t, 1)[0].done(t); !slices.Equal(ids, []string{"busy"}) {
			t.Errorf("again came %v", ids)
		}
		c.succeeded(t, "busy")
	})
}

// A long poll may last longer than any other call.
func TestALongPollIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{AnswerTimeout: time.Second, Header: http.Header{"Authorization": {"Bearer x"}}})
		go func() {
			_, err := c.client.ReadInbox(t.Context(), "a/b", client.InboxRead{After: "7", Wait: 30 * time.Second})
			c.note("x", err)
		}()
		r := n.next(t, 1)[0]
		if r.URL.String() != "http://one/v1/inbox/a%2Fb?after=7&limit=1000&wait=30s" || r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("%v %v", r, r.Header)
		}
		time.Sleep(30 * time.Second)
		n.next(t, 0)
		r.say(200, `{"messages":[],"nextCursor":"7"}`)
		c.succeeded(t, "x")
	})
}

// A request that was halved ends, too, when the last caller that waits for an answer gives up: it makes
// room for others.
func TestTheLastCallerAfterHalvingEndsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 1})
		ctx, cancel := context.WithCancel(t.Context())
		c.schedule(t.Context(), "first", "1")
		first := n.next(t, 1)[0]
		c.schedule(t.Context(), "answered", "1")
		synctest.Wait()
		c.schedule(ctx, "left", "1")
		synctest.Wait()
		first.done(t)
		n.next(t, 1)[0].say(413, "<html>too large</html>")
		n.next(t, 1)[0].done(t)
		n.next(t, 1) // has no answer
		cancel()
		synctest.Wait()
		c.schedule(t.Context(), "after", "1")
		n.next(t, 1)[0].done(t)
	})
}

// JSON has no form of a time after the year 9999: the call says so.
func TestATimeWithoutAForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, late := open(t, client.Config{Servers: []string{"http://nobody"}}), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		m := client.Message{Channel: "inbox:x", ExecutionTime: late, Payload: []byte("1")}
		if _, err := c.Schedule(t.Context(), m); err == nil {
			t.Error("it was scheduled")
		}
		if _, err := c.ScheduleAll(t.Context(), []client.Message{m}); err == nil {
			t.Error("it was scheduled with others")
		}
		if _, err := c.Patch(t.Context(), "x", client.Change{ExecutionTime: late, Payload: []byte("1")}); err == nil {
			t.Error("it was changed")
		}
	})
}

// A call with a trace context has a request of its own.
func TestATracedCallGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n := newCalls(t, client.Config{Requests: 1})
		c.schedule(t.Context(), "first", "1")
		first := n.next(t, 1)[0]
		go func() {
			_, err := c.client.Schedule(t.Context(), client.Message{Channel: "inbox:x", Payload: []byte("1"), Traceparent: "00-a"})
			c.note("traced", err)
		}()
		traced := n.next(t, 1)[0]
		if traced.Header.Get("traceparent") != "00-a" || bytes.Contains([]byte(traced.body), []byte("00-a")) {
			t.Errorf("%v %v", traced, traced.Header)
		}
		traced.done(t)
		first.done(t)
		c.succeeded(t, "first", "traced")
	})
}

// BenchmarkRequests measures schedules for several numbers of callers and of concurrent
// requests. Config.Requests has its default from it.
func BenchmarkRequests(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		for _, requests := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("callers=%d/requests=%d", callers, requests), func(b *testing.B) {
				c := open(b, client.Config{Servers: []string{server(b)}, Requests: requests})
				b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
				b.ResetTimer()
				done := benchtest.Start(b)
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if _, err := c.Schedule(b.Context(), client.Message{Channel: "inbox:x", Delay: time.Hour, Payload: []byte("1")}); err != nil {
							b.Error(err)
						}
					}
				})
				done(b.N)
			})
		}
	}
}
