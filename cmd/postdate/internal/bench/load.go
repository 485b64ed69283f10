package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// loader sends requests. It uses fasthttp's client, so that measuring leaves as much of the
// machine as possible to the server.
type loader struct {
	http          *fasthttp.HostClient
	base          string // the URL before every path
	authorization string // the header; "": none
	channel       string
	pool          []byte // random letters; payloads are slices of it
	payload       int    // bytes per payload
	retries       atomic.Int64
}

const (
	answerTimeout = time.Minute
	// tries and retryPause repeat a request over a few seconds. That is safe, because the
	// client chooses the ids.
	tries      = 10
	retryPause = 200 * time.Millisecond

	cancelBatch = postdate.CancelItemsMax
	poolBytes   = 64 << 10
)

func newLoader(c Config) (*loader, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a server", c.Server)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	l := &loader{
		http: &fasthttp.HostClient{
			Addr:  net.JoinHostPort(u.Hostname(), port),
			IsTLS: u.Scheme == "https", TLSConfig: c.TLS,
			// one more for the inbox's reader
			MaxConns:                      c.Callers + 1,
			ReadTimeout:                   answerTimeout,
			WriteTimeout:                  answerTimeout,
			NoDefaultUserAgentHeader:      true,
			DisableHeaderNamesNormalizing: true,
		},
		base: strings.TrimSuffix(c.Server, "/"), channel: c.Channel, payload: c.Payload,
	}
	if c.APIKey != "" {
		l.authorization = "Bearer " + c.APIKey
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"
	l.pool = make([]byte, poolBytes+c.Payload)
	for i := range l.pool {
		l.pool[i] = letters[rand.IntN(len(letters))]
	}
	return l, nil
}

// do sends a request, repeats it while the server does not answer or is overloaded, and passes
// the body of a 2xx answer to use, which must not keep it.
func (l *loader) do(ctx context.Context, method, path string, body []byte, use func([]byte) error) error {
	for try := 1; ; try++ {
		again, err := l.once(method, path, body, use)
		if err == nil || !again || try == tries || ctx.Err() != nil {
			return err
		}
		l.retries.Add(1)
		if err := sleepUntil(ctx, time.Now().Add(retryPause)); err != nil {
			return err
		}
	}
}

func (l *loader) once(method, path string, body []byte, use func([]byte) error) (again bool, err error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(l.base + path)
	req.Header.SetMethod(method)
	if l.authorization != "" {
		req.Header.Set("Authorization", l.authorization)
	}
	if body != nil {
		req.Header.SetContentType("application/json")
		req.SetBodyRaw(body)
	}
	if err := l.http.Do(req, resp); err != nil {
		return true, fmt.Errorf("no answer from %s: %w", l.base, err)
	}
	status := resp.StatusCode()
	switch {
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return true, refused(method, path, resp)
	case status < 200 || status >= 300:
		return false, refused(method, path, resp)
	case use != nil:
		return false, use(resp.Body())
	}
	return false, nil
}

func refused(method, path string, resp *fasthttp.Response) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	if err := json.Unmarshal(resp.Body(), &problem); err != nil || problem.Detail == "" {
		problem.Detail = http.StatusText(resp.StatusCode())
	}
	return fmt.Errorf("%s %s: %d: %s", method, path, resp.StatusCode(), problem.Detail)
}

// appendMessage appends the request body for message i of g.
func (l *loader) appendMessage(b []byte, g *group, i int) []byte {
	b = append(b, `{"scheduleId":"`...)
	b = append(b, g.id(i)...)
	b = append(b, `","channel":"`...)
	b = append(b, l.channel...)
	b = append(b, `","executionTime":"`...)
	b = postdate.WallOf(g.dueAt(i)).AppendText(b)
	b = append(b, `","payload":"`...)
	from := int(scatter(i, poolBytes))
	b = append(b, l.pool[from:from+l.payload-len(`""`)]...)
	return append(b, `"}`...)
}

func (l *loader) schedule(ctx context.Context, g *group, i int) error {
	body := l.appendMessage(make([]byte, 0, l.payload+256), g, i)
	return l.do(ctx, http.MethodPost, "/v1/messages", body, nil)
}

func (l *loader) scheduleBatch(ctx context.Context, g *group, first, end int) error {
	body := make([]byte, 0, (end-first)*(l.payload+256))
	body = append(body, '[')
	for i := first; i < end; i++ {
		if i > first {
			body = append(body, ',')
		}
		body = l.appendMessage(body, g, i)
	}
	body = append(body, ']')
	return l.do(ctx, http.MethodPost, "/v1/messages/batch", body, allDone)
}

// allDone looks for a refused item in the answer to a batch. Besides errors, results hold only
// ids and statuses, so the name alone is enough.
func allDone(answer []byte) error {
	at := bytes.Index(answer, []byte(`"error"`))
	if at < 0 {
		return nil
	}
	return fmt.Errorf("an item of a batch was refused: %.300s", answer[at:])
}

func (l *loader) cancel(ctx context.Context, id string) error {
	return l.do(ctx, http.MethodDelete, "/v1/messages/"+id, nil, nil)
}

func (l *loader) cancelBatch(ctx context.Context, g *group, first, end int) error {
	ids := make([]string, 0, end-first)
	for i := first; i < end; i++ {
		ids = append(ids, g.id(i))
	}
	body, err := json.Marshal(map[string][]string{"scheduleIds": ids})
	if err != nil {
		return err
	}
	return l.do(ctx, http.MethodPost, "/v1/messages/cancel", body, allDone)
}
