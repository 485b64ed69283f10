package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/client"
)

var postdateProgram = program{name: "postdate", variable: "POSTDATE_BIN", folder: "..", source: "./cmd/postdate",
	versionArgs: []string{"version"}}

const readyRequest = "GET /readyz HTTP/1.0\r\n\r\n"

const postdateSettings = "embedded store; inbox, read by one long poll; "

var postdateEntries = []entry{
	{"postdate", beforeAnswer,
		postdateSettings + "one HTTP request for each single call",
		postdateProgram, func() peer { return &postdatePeer{} }},
	{"postdate-client", beforeAnswer,
		postdateSettings + "the Go client gathers concurrent single calls into shared requests",
		postdateProgram, func() peer { return &postdateClientPeer{} }},
}

// postdateClientPeer makes all calls with the Go client.
type postdateClientPeer struct {
	client *client.Client
}

func (p *postdateClientPeer) command(address, dir string) (command, error) {
	return command{
		args: []string{"serve", "--http", address, "--store", "pebble:" + filepath.Join(dir, "store")},
		send: readyRequest, want: "200 OK",
	}, nil
}

func (p *postdateClientPeer) connect(_ context.Context, address string) (err error) {
	// A failed call is not repeated here, so that the reader comes back at once when a server is started again.
	p.client, err = client.New(client.Config{Servers: []string{address}, RetryFor: -1})
	return err
}

func postdateID(id uint64) string { return fmt.Sprintf("m%d", id) }

func postdateMessage(m item) client.Message {
	return client.Message{ScheduleID: postdateID(m.id), Channel: "inbox:due", ExecutionTime: m.due,
		ContentType: "text/plain", Payload: m.payload}
}

func (p *postdateClientPeer) schedule(ctx context.Context, m item) error {
	_, err := p.client.Schedule(ctx, postdateMessage(m))
	return err
}

func (p *postdateClientPeer) scheduleAll(ctx context.Context, items []item) error {
	messages := make([]client.Message, len(items))
	for i, m := range items {
		messages[i] = postdateMessage(m)
	}
	return scheduleMessages(ctx, p.client, messages)
}

// scheduleMessages schedules messages in one batch, of which all have to be taken.
func scheduleMessages(ctx context.Context, c *client.Client, messages []client.Message) error {
	results, err := c.ScheduleAll(ctx, messages)
	if err != nil {
		return err
	}
	return firstProblem(results)
}

func firstProblem(results []client.Result) error {
	for _, r := range results {
		if r.Problem != nil {
			return r.Problem
		}
	}
	return nil
}

func (p *postdateClientPeer) cancelAll(ctx context.Context, ids []uint64) error {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = postdateID(id)
	}
	results, err := p.client.CancelAll(ctx, names)
	if err != nil {
		return err
	}
	return firstProblem(results)
}

func (p *postdateClientPeer) cancel(ctx context.Context, id uint64) error {
	return p.client.Cancel(ctx, postdateID(id))
}

func (p *postdateClientPeer) consume(ctx context.Context, handle func([]byte)) error {
	go follow(ctx, p.client, "due", handle)
	return nil
}

// follow reads an inbox until ctx ends. The cursor of the next read acknowledges a page.
func follow(ctx context.Context, c *client.Client, inbox string, handle func([]byte)) {
	for cursor := ""; ctx.Err() == nil; {
		for page, err := range c.Follow(ctx, inbox, cursor) {
			cursor = page.NextCursor
			if err != nil {
				_ = sleep(ctx, 20*time.Millisecond) // the loop sees that ctx ended
			}
			for _, m := range page.Messages {
				handle(m.Payload)
			}
		}
	}
}

func (p *postdateClientPeer) close() {
	if p.client != nil {
		p.client.Close()
	}
}

// postdatePeer makes one request for each single call, as a program in any language does. It uses
// fasthttp for them, because the client of net/http takes more of the processor than the server.
type postdatePeer struct {
	postdateClientPeer
	http *fasthttp.HostClient
}

func (p *postdatePeer) connect(ctx context.Context, address string) error {
	p.http = &fasthttp.HostClient{Addr: address, MaxConns: callers, MaxIdemponentCallAttempts: 1}
	return p.postdateClientPeer.connect(ctx, address)
}

func (p *postdatePeer) schedule(ctx context.Context, m item) error {
	body, err := json.Marshal(struct {
		ScheduleID    string    `json:"scheduleId"`
		Channel       string    `json:"channel"`
		ExecutionTime time.Time `json:"executionTime"`
		ContentType   string    `json:"contentType"`
		Payload       string    `json:"payload"`
	}{postdateID(m.id), "inbox:due", m.due, "text/plain", string(m.payload)})
	if err != nil {
		return err
	}
	return p.call(ctx, http.MethodPost, "/v1/messages", body, http.StatusCreated)
}

func (p *postdatePeer) cancel(ctx context.Context, id uint64) error {
	return p.call(ctx, http.MethodDelete, "/v1/messages/"+postdateID(id), nil, http.StatusOK)
}

// call makes one request and checks its status.
func (p *postdatePeer) call(ctx context.Context, method, path string, body []byte, want int) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI("http://" + p.http.Addr + path)
	request.Header.SetMethod(method)
	if body != nil {
		request.Header.SetContentType("application/json")
		request.SetBodyRaw(body)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(callTimeout)
	}
	if err := p.http.DoDeadline(request, response, deadline); err != nil {
		return err
	}
	if response.StatusCode() != want {
		return fmt.Errorf("%s %s answers %d: %s", method, path, response.StatusCode(), response.Body())
	}
	return nil
}

func (p *postdatePeer) close() {
	if p.http != nil {
		p.http.CloseIdleConnections()
	}
	p.postdateClientPeer.close()
}
