package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const serverDefault = "http://127.0.0.1:8080"

// client speaks the HTTP API to one server.
type client struct {
	base string // without a slash at its end
	http *http.Client
}

// requestTimeout is well above the longest long poll (30 s).
const requestTimeout = time.Minute

func newClient(server string) (*client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, usagef("--server: %q is not an address like %s", server, serverDefault)
	}
	return &client{
		base: strings.TrimSuffix(server, "/"),
		http: &http.Client{Timeout: requestTimeout},
	}, nil
}

// problem is an answer of the server that is no success (RFC 9457).
type problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func (p *problem) Error() string {
	switch {
	case p.Detail != "":
		return p.Detail
	case p.Title != "":
		return p.Title
	}
	return fmt.Sprintf("the server answered %d %s", p.Status, http.StatusText(p.Status))
}

// unreachable says that no answer came: the request may have been done or not.
type unreachable struct {
	base string
	err  error
}

func (e *unreachable) Error() string {
	cause := e.err
	var u *url.Error
	if errors.As(cause, &u) {
		cause = u.Err
	}
	return fmt.Sprintf("no answer from %s (%v): is \"postdate serve\" running there? --server names another address", e.base, cause)
}

func (e *unreachable) Unwrap() error { return e.err }

// do sends a request and returns the body of a 2xx answer and its status. body
// is JSON, or nil. Errors are *problem, *unreachable, or ctx's.
func (c *client) do(ctx context.Context, method, path string, body []byte) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(req)
	if err == nil {
		defer answer.Body.Close()
		var text []byte
		if text, err = io.ReadAll(answer.Body); err == nil {
			return text, answer.StatusCode, asProblem(answer.StatusCode, text)
		}
	}
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	return nil, 0, &unreachable{base: c.base, err: err}
}

func asProblem(status int, body []byte) error {
	if status >= 200 && status < 300 {
		return nil
	}
	p := &problem{}
	_ = json.Unmarshal(body, p) // what is no problem+json is told by its status
	p.Status = status
	return p
}

// get decodes the answer to a GET into v, and returns it raw as well.
func (c *client) get(ctx context.Context, path string, v any) ([]byte, error) {
	raw, _, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	return raw, decode(raw, v)
}

// decode reads a server's answer. It passes over fields that a newer server may
// add.
func decode(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("the answer is not what a Postdate server says: %w", err)
	}
	return nil
}

// clientCommand is a command that talks to a server.
type clientCommand struct {
	process process
	server  string
	json    bool // print what the server said instead of a text for people
}

// bind gives cmd the flags that all of these commands share, and runs f with a
// client for the server that they name.
func (c *clientCommand) bind(cmd *cobra.Command, f func(*cobra.Command, *client, []string) error) *cobra.Command {
	cmd.Flags().StringVar(&c.server, "server", serverDefault, "address of the node to ask (or POSTDATE_SERVER)")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := resolve(cmd.Flags(), c.serverOnly()); err != nil {
			return err
		}
		cl, err := newClient(c.server)
		if err != nil {
			return err
		}
		return f(cmd, cl, args)
	})
	return cmd
}

// serverOnly is the one variable that clients read. A POSTDATE_ID or POSTDATE_FROM
// that meant something else would be a trap.
func (c *clientCommand) serverOnly() []string {
	return []string{envName("server") + "=" + environment(c.process.environ)[envName("server")]}
}

// withJSON adds --json to cmd.
func (c *clientCommand) withJSON(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&c.json, "json", false, usage)
}

// printLine writes raw JSON as one line.
func printLine(w io.Writer, raw []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}
