// Package nodetest is for tests of whole nodes: a client that talks to a node over HTTP like
// any other client, a follower of an inbox, and what settles the account of both.
//
// Only [Settle] fails a test by itself; calls return errors, because a killed node does not
// answer.
package nodetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// Client talks to a node, whose address may change when it restarts. It is safe for concurrent
// use.
type Client struct {
	address atomic.Pointer[string]
	http    *http.Client
}

// NewClient makes a client of the node at address, host:port.
func NewClient(address string) *Client {
	c := &Client{http: &http.Client{
		Timeout:   40 * time.Second, // longer than the longest poll
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}}
	c.Move(address)
	return c
}

// Move changes the node's address.
func (c *Client) Move(address string) { c.address.Store(&address) }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is a response with its body read.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// Problem is an error as the API describes it.
type Problem struct {
	Type          string `json:"type"`
	Title         string `json:"title"`
	Status        int    `json:"status"`
	Detail        string `json:"detail"`
	Pointer       string `json:"pointer"`
	Suggestion    string `json:"suggestion"`
	ScheduleID    string `json:"scheduleId"`
	MessageStatus string `json:"messageStatus"`
}

// Problem decodes the answer as a Problem; the zero Problem if it is none.
func (a Answer) Problem() (p Problem) {
	_ = json.Unmarshal(a.Body, &p)
	return p
}

// Into decodes the answer's JSON.
func (a Answer) Into(v any) error { return json.Unmarshal(a.Body, v) }

func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Code, a.Body) }

// Do makes one request; headers are "Name", "value", …. A body is JSON unless a header says
// otherwise. After an error, which means that there is no complete answer, the request may have
// been carried out or not.
func (c *Client) Do(method, path string, body []byte, headers ...string) (Answer, error) {
	req, err := http.NewRequest(method, "http://"+*c.address.Load()+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.http.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	read, err := io.ReadAll(res.Body)
	return Answer{Code: res.StatusCode, Header: res.Header, Body: read}, err
}

// Message is the body that schedules a message. Empty fields are left out.
type Message struct {
	ScheduleID      string            `json:"scheduleId,omitempty"`
	Channel         string            `json:"channel,omitempty"`
	ExecutionTime   string            `json:"executionTime,omitempty"`
	Delay           string            `json:"delay,omitempty"`
	Payload         any               `json:"payload,omitempty"`
	PayloadEncoding string            `json:"payloadEncoding,omitempty"`
	ContentType     string            `json:"contentType,omitempty"`
	Headers         map[string]string `json:"headers,omitempty"`
	ExpiresAt       string            `json:"expiresAt,omitempty"`
	Retry           *Retry            `json:"retry,omitempty"`
}

// Retry is a message's own policy.
type Retry struct {
	MaxAttempts int    `json:"maxAttempts,omitempty"`
	MinBackoff  string `json:"minBackoff,omitempty"`
	MaxParked   string `json:"maxParked,omitempty"`
}

// At formats a time as in a message: to the millisecond, rounded down.
func At(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Schedule schedules one message.
func (c *Client) Schedule(m Message) (Answer, error) {
	return c.send(http.MethodPost, "/v1/messages", m)
}

// Patch changes a message.
func (c *Client) Patch(id string, m Message) (Answer, error) {
	return c.send(http.MethodPatch, "/v1/messages/"+id, m)
}

// Cancel cancels one message.
func (c *Client) Cancel(id string) (Answer, error) {
	return c.Do(http.MethodDelete, "/v1/messages/"+id, nil)
}

func (c *Client) send(method, path string, body any) (Answer, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return Answer{}, err
	}
	return c.Do(method, path, b)
}

// BatchResult is the result of one item of a batch.
type BatchResult struct {
	ScheduleID string   `json:"scheduleId"`
	Status     string   `json:"status"`
	Error      *Problem `json:"error"`
}

// Batch schedules messages in one call.
func (c *Client) Batch(ms []Message) ([]BatchResult, error) {
	a, err := c.send(http.MethodPost, "/v1/messages/batch", ms)
	if err != nil {
		return nil, err
	}
	var answer struct{ Results []BatchResult }
	if err := json.Unmarshal(a.Body, &answer); err != nil || a.Code != http.StatusOK || len(answer.Results) != len(ms) {
		return nil, fmt.Errorf("a batch of %d was answered with %s", len(ms), a)
	}
	return answer.Results, nil
}

// Shown is a message as GET shows it.
type Shown struct {
	ScheduleID        string    `json:"scheduleId"`
	Channel           string    `json:"channel"`
	Status            string    `json:"status"`
	ExecutionTime     time.Time `json:"executionTime"`
	Attempts          int       `json:"attempts"`
	Parked            string    `json:"parked"`
	LastError         string    `json:"lastError"`
	PossibleDuplicate bool      `json:"possibleDuplicate"`
}

// Get reads a message; its status is "" if there is none.
func (c *Client) Get(id string) (Shown, error) {
	var m Shown
	a, err := c.Do(http.MethodGet, "/v1/messages/"+id, nil)
	switch {
	case err != nil:
		return m, err
	case a.Code == http.StatusNotFound:
		return m, nil
	case a.Code != http.StatusOK:
		return m, fmt.Errorf("GET %s: %s", id, a)
	}
	return m, json.Unmarshal(a.Body, &m)
}

// List reads all messages with the status; "": all messages.
func (c *Client) List(status string) ([]Shown, error) {
	var all []Shown
	query := url.Values{"limit": {"1000"}}
	if status != "" {
		query.Set("status", status)
	}
	for {
		a, err := c.Do(http.MethodGet, "/v1/messages?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Messages   []Shown
			NextCursor string
		}
		if err := json.Unmarshal(a.Body, &page); err != nil || a.Code != http.StatusOK {
			return nil, fmt.Errorf("list: %s", a)
		}
		all = append(all, page.Messages...)
		if page.NextCursor == "" {
			return all, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// AwaitNonePending returns when no message is PENDING any more.
func (c *Client) AwaitNonePending(ctx context.Context) error {
	return Poll(ctx, func() (bool, error) {
		pending, err := c.List("PENDING")
		return len(pending) == 0, err
	})
}

// Poll calls done regularly, for what gives no signal, until it returns true or an error.
func Poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", context.Cause(ctx))
		}
	}
}

// Metric reads one series without labels from /metrics.
func (c *Client) Metric(name string) (float64, error) {
	a, err := c.Do(http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(a.Body) {
		if value, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no series %s", name)
}

// Cluster is the part of GET /v1/cluster that tests use.
type Cluster struct {
	Node    string
	Members []struct{ Node, Address, State string }
	Buckets []struct {
		Bucket int
		Owner  string
		Token  uint64
	}
}

// Cluster reads GET /v1/cluster.
func (c *Client) Cluster() (Cluster, error) {
	var view Cluster
	a, err := c.Do(http.MethodGet, "/v1/cluster", nil)
	if err == nil {
		err = json.Unmarshal(a.Body, &view)
	}
	return view, err
}
