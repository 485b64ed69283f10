package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Config configures a client. Each field has a default.
type Config struct {
	// Servers are the addresses of one node or of several nodes of one cluster, such as
	// "http://10.0.0.1:8080" or "10.0.0.1:8080". Default: POSTDATE_SERVER, else
	// "http://127.0.0.1:8080".
	Servers []string
	// HTTP makes the requests and handles TLS, proxies and credentials. Redirects are not
	// followed unless its CheckRedirect says so. Default: a new http.Client.
	HTTP *http.Client
	// APIKey is sent as the credential, as Authorization: Bearer. Default: POSTDATE_API_KEY.
	APIKey string
	// Tenant is the tenant for which an administrator's key acts. Default: POSTDATE_AS_TENANT,
	// else the key's own.
	Tenant string
	// Header is sent with every request.
	Header http.Header
	// AnswerTimeout bounds one try, not counting a long poll's wait. Default: 40 s, which is
	// longer than a node takes to give up.
	AnswerTimeout time.Duration
	// RetryFor is how long after its first try a call may be tried again. Default: 1 min.
	// Negative: no retries. The call's context may end it sooner.
	RetryFor time.Duration
	// Log is told what Consume cannot return. Default: slog.Default().
	Log *slog.Logger
	// Requests bounds the concurrent requests for gathered schedules, and likewise those for
	// gathered cancels. The more there are, the fewer calls share one. Default: 2, which
	// BenchmarkRequests shows to be good.
	Requests int
}

// Client uses one server until it fails, then the next. It is safe for concurrent use.
type Client struct {
	config    Config
	servers   []string // without a slash at the end
	http      *http.Client
	current   atomic.Uint64 // modulo len(servers): the server in use; grows when that fails
	schedules gatherer
	cancels   gatherer
}

// New makes a client. It does not connect yet.
func New(config Config) (*Client, error) {
	config = config.withEnvironment()
	c := &Client{config: config}
	for _, server := range config.Servers {
		if !strings.Contains(server, "://") {
			server = "http://" + server
		}
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, fmt.Errorf("%q is not the address of a server: write it like http://127.0.0.1:8080", server)
		}
		server = strings.TrimSuffix(server, "/")
		if strings.HasSuffix(server, "/v1") {
			return nil, fmt.Errorf("%q has the path of the API's calls: write it without /v1", server)
		}
		c.servers = append(c.servers, server)
	}
	c.http = &http.Client{}
	if config.HTTP != nil {
		*c.http = *config.HTTP
	} else {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 64
		c.http.Transport = transport
	}
	if c.http.CheckRedirect == nil { // a redirect may turn a POST into a GET
		c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	if c.config.AnswerTimeout == 0 {
		c.config.AnswerTimeout = 40 * time.Second
	}
	if c.config.RetryFor == 0 {
		c.config.RetryFor = time.Minute
	}
	if c.config.Log == nil {
		c.config.Log = slog.Default()
	}
	if c.config.Requests <= 0 {
		c.config.Requests = 2
	}
	c.schedules = gatherer{together: scheduleMany, client: c,
		alone: func(ctx context.Context, i *item) (Scheduled, error) {
			return c.scheduleOnce(ctx, Call{Method: http.MethodPost, Path: "/v1/messages", Body: i.body})
		}}
	c.cancels = gatherer{together: cancelMany, client: c,
		alone: func(ctx context.Context, i *item) (Scheduled, error) {
			return c.scheduleOnce(ctx, Call{Method: http.MethodDelete, Path: messagePath(i.id)})
		}}
	return c, nil
}

// withEnvironment returns c with what the environment says of empty fields.
func (c Config) withEnvironment() Config {
	if len(c.Servers) == 0 {
		c.Servers = []string{cmp.Or(os.Getenv("POSTDATE_SERVER"), "http://127.0.0.1:8080")}
	}
	c.APIKey = cmp.Or(c.APIKey, os.Getenv("POSTDATE_API_KEY"))
	c.Tenant = cmp.Or(c.Tenant, os.Getenv("POSTDATE_AS_TENANT"))
	return c
}

// Close closes idle connections. Calls in progress may continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Server returns the address of the server that the next call tries first.
func (c *Client) Server() string { return c.servers[c.current.Load()%uint64(len(c.servers))] }

// Call is one call of the API at the level of HTTP.
type Call struct {
	Method string
	Path   string      // with its query, such as /v1/messages?limit=10
	Body   []byte      // JSON, unless Header has another Content-Type; nil: none
	Header http.Header // in addition to the Config's
	// Repeatable says that it is safe to do the call twice. It is then also tried again if
	// it may have been done. A GET is always repeatable.
	Repeatable bool
	// Wait is how long the server may wait before it answers.
	Wait time.Duration
}

// Answer is a server's response.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte

	asked time.Time // when the request was begun to which this is the answer
}

// Do makes a call for which there is no method, or whose raw answer is wanted. It also
// returns the answer if the error is a *Problem.
func (c *Client) Do(ctx context.Context, call Call) (Answer, error) { return c.do(ctx, call, nil) }

// do makes a call and reads the answer's JSON into to, unless that is nil.
func (c *Client) do(ctx context.Context, call Call, to any) (a Answer, err error) {
	err = c.retry(ctx, call.Repeatable || call.Method == http.MethodGet, func() error {
		a, err = c.try(ctx, call, to)
		return err
	})
	return a, err
}

// get makes a GET call and decodes its answer.
func get[T any](ctx context.Context, c *Client, path string) (to T, err error) {
	_, err = c.do(ctx, Call{Method: http.MethodGet, Path: path}, &to)
	return to, err
}

// try makes one request. If it fails and another server may do better, the next goes there.
func (c *Client) try(ctx context.Context, call Call, to any) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, &NoAnswer{Err: err}
	}
	current := c.current.Load()
	server := c.servers[current%uint64(len(c.servers))]
	asked := time.Now()
	a, err := c.request(ctx, server, call)
	a.asked = asked
	switch {
	case err != nil && passing(err) && ctx.Err() == nil:
		c.current.CompareAndSwap(current, current+1)
	case err == nil && to != nil:
		if err := json.Unmarshal(a.Body, to); err != nil {
			return a, garbled(server, call.Method != http.MethodGet, err)
		}
	}
	return a, err
}

// garbled returns the error for an answer that makes no sense.
func garbled(server string, mayBeDone bool, err error) error {
	return &NoAnswer{Server: server, MayBeDone: mayBeDone, Err: fmt.Errorf("%w: %w", ErrGarbled, err)}
}

// answerBytesMax is well above the largest page.
const answerBytesMax = 256 << 20

// request sends call to server. An error response becomes a *Problem, any other failure a
// *NoAnswer.
func (c *Client) request(ctx context.Context, server string, call Call) (Answer, error) {
	timeout := c.config.AnswerTimeout + call.Wait
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, call.Method, server+call.Path, bytes.NewReader(call.Body))
	if err != nil {
		return Answer{}, err
	}
	if call.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.config.Tenant != "" {
		req.Header.Set("Postdate-Tenant", c.config.Tenant)
	}
	if c.config.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.APIKey)
	}
	for _, header := range []http.Header{c.config.Header, call.Header} {
		for name, values := range header {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for name, values := range req.Header { // the transport would refuse it with an error like those of connections
		if slices.ContainsFunc(values, func(value string) bool { return strings.ContainsFunc(value, isControl) }) {
			return Answer{}, fmt.Errorf("the header %s has a line break or another control character: nothing was sent",
				name)
		}
	}
	var sent, refused atomic.Bool // a transport may dial in the background
	req = req.WithContext(httptrace.WithClientTrace(limited, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err != nil {
				refused.Store(true)
			}
		},
	}))
	res, err := c.http.Do(req)
	if err == nil {
		defer res.Body.Close()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(res.Body, answerBytesMax)); err == nil {
			a := Answer{Status: res.StatusCode, Header: res.Header, Body: body}
			return a, problemOf(a)
		}
	}
	var dial *net.OpError
	connected := (!errors.As(err, &dial) || dial.Op != "dial") && (sent.Load() || !refused.Load()) &&
		!isRefusal(err)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // its text would repeat the address
	}
	if limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("none within %v", timeout)
	}
	return Answer{}, &NoAnswer{Server: server, MayBeDone: connected && call.Method != http.MethodGet, Err: err}
}

// isControl reports whether HTTP forbids a character in a header's value.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isRefusal reports whether the server has refused the client's certificate. In TLS 1.3 the
// client may learn that when it has sent its request, which the server has not read.
func isRefusal(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "remote error" &&
		strings.Contains(network.Err.Error(), "certificate")
}
