package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/auth"
)

// bodyRoomBytes is the room in a single message's body besides its payload in base64:
// enough for 64 headers at their limits, and escapes.
const bodyRoomBytes = 384 << 10

// drainTime bounds how long the server reads and drops the rest of a body that it does
// not take.
const drainTime = 2 * time.Second

// Server answers the HTTP API. It is safe for concurrent use.
type Server struct {
	config  Config
	http    *fasthttp.Server
	metrics *metrics

	// polls is cancelled at shutdown, which ends every long poll.
	polls    context.Context
	endPolls context.CancelFunc
	draining atomic.Bool
	polling  atomic.Int64 // how many long polls wait
	conns    *conns
	bodies   budget
	audit    *audit
	calls    bounded // of the store
}

// New makes a server. It fails if the Config is not valid.
func New(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	audit := newAudit(config.Log)
	s := &Server{config: config, metrics: newMetrics(config.Registry), audit: audit,
		conns: newConns(config.ConnectionsMax, config.TLS, audit)}
	s.calls.most = config.StoreTimeout
	s.bodies.give(config.BodiesBytesMax)
	s.bodies.half = config.BodiesBytesMax / 2
	s.polls, s.endPolls = context.WithCancel(context.Background())
	s.http = &fasthttp.Server{
		Name:                         "postdate",
		Handler:                      s.router().Handler,
		ErrorHandler:                 s.brokenRequest,
		StreamRequestBody:            true,
		HeaderReceived:               headReceived,
		Concurrency:                  2 * config.ConnectionsMax, // the listener bounds them
		ReadBufferSize:               config.HeaderBytesMax,
		ReadTimeout:                  config.ReadTimeout,
		WriteTimeout:                 config.WriteTimeout,
		IdleTimeout:                  config.IdleTimeout,
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		// What it logs quotes requests, with the keys in them.
		SecureErrorLogMessage: true,
		Logger:                slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	return s, nil
}

// Serve answers requests on l until Shutdown, and then returns nil.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(&listener{l, s.conns}) }

// Shutdown accepts no new connections and ends long polls early. It returns when every
// request in flight is answered, or with ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	s.endPolls()
	ended := make(chan struct{})
	var closing sync.WaitGroup
	closing.Go(func() { s.conns.closeFresh(ended) })
	err := s.http.ShutdownWithContext(ctx)
	close(ended)
	closing.Wait()
	return err
}

// handler answers one call: it writes the response or returns a Problem.
type handler func(*Server, *fasthttp.RequestCtx) *Problem

// route is one call of the API.
type route struct {
	method, path string
	handle       handler
	need         auth.Scope // what the caller's key must be for
}

// noRoute is the path of what is no call, in the metrics.
const noRoute = "none"

// routes are all calls. GET also serves HEAD.
var routes = []route{
	{"POST", "/v1/messages", (*Server).postMessage, auth.WriteMessages},
	{"GET", "/v1/messages", (*Server).listMessages, auth.ReadMessages},
	{"POST", "/v1/messages/batch", (*Server).postBatch, auth.WriteMessages},
	{"POST", "/v1/messages/cancel", (*Server).postCancel, auth.WriteMessages},
	{"POST", "/v1/messages/redrive", (*Server).postRedrive, auth.WriteMessages},
	{"POST", "/v1/messages/purge", (*Server).postPurge, auth.WriteMessages},
	{"GET", "/v1/messages/{id}", (*Server).getMessage, auth.ReadMessages},
	{"PUT", "/v1/messages/{id}", (*Server).putMessage, auth.WriteMessages},
	{"PATCH", "/v1/messages/{id}", (*Server).patchMessage, auth.WriteMessages},
	{"DELETE", "/v1/messages/{id}", (*Server).deleteMessage, auth.WriteMessages},
	{"POST", "/v1/messages/{id}/trigger", (*Server).postTrigger, auth.WriteMessages},
	{"GET", "/v1/jobs/{id}", (*Server).getJob, auth.ReadMessages},
	{"GET", "/v1/upcoming", (*Server).getUpcoming, auth.ReadMessages},
	{"GET", "/v1/failures", (*Server).getFailures, auth.ReadMessages},
	{"POST", "/v1/recurrences/preview", (*Server).postPreview, auth.ReadMessages},
	{"POST", "/schedulers", (*Server).postTask, auth.WriteMessages},
	{"GET", "/schedulers", (*Server).getTasks, auth.ReadMessages},
	{"GET", "/v1/inbox/{name}", (*Server).getInbox, auth.ReadMessages},
	{"POST", "/v1/inbox/{name}/consumers/{consumer}/receive", (*Server).postReceive, auth.ReadMessages},
	{"POST", "/v1/inbox/{name}/consumers/{consumer}/ack", (*Server).postAck, auth.ReadMessages},
	{"GET", "/v1/channels", (*Server).getChannels, auth.Operate},
	{"PATCH", "/v1/channels", (*Server).patchChannel, auth.ChangeChannels},
	{"GET", "/v1/cluster", (*Server).getCluster, auth.Operate},
	{"GET", "/v1/stats", (*Server).getStats, auth.Operate},
	{"GET", "/v1/whoami", (*Server).whoAmI, anyKey},
	{"GET", "/v1/keys", (*Server).getKeys, auth.Admin},
	{"POST", "/v1/keys", (*Server).postKey, auth.Admin},
	{"DELETE", "/v1/keys/{id}", (*Server).deleteKey, auth.Admin},
	{"GET", "/v1/tenants", (*Server).getTenants, auth.Admin},
	{"PATCH", "/v1/tenants/{tenant}", (*Server).patchTenant, auth.Admin},
	{"GET", "/healthz", (*Server).getHealth, public},
	{"GET", "/readyz", (*Server).getReady, public},
	{"GET", "/metrics", (*Server).getMetrics, auth.Operate},
	{"GET", "/openapi.json", (*Server).getOpenAPI, public},
}

func (s *Server) router() *router.Router {
	r := router.New()
	r.RedirectTrailingSlash, r.RedirectFixedPath = false, false
	r.HandleOPTIONS = false // its answer would pass the door by, and leave the body unread
	nothing := s.measured(noRoute, anyKey, func(_ *Server, ctx *fasthttp.RequestCtx) *Problem {
		return &Problem{Type: NoSuchPath, Detail: "there is nothing at " + clip(string(ctx.Path())) +
			": the calls are described at /openapi.json"}
	})
	redirect := s.measured(consolePath, public, (*Server).redirectToConsole)
	r.NotFound = func(ctx *fasthttp.RequestCtx) {
		if s.leadsToConsole(ctx) { // beside a route for /console the router takes none for /console/
			redirect(ctx)
			return
		}
		nothing(ctx)
	}
	notAllowed := s.measured(noRoute, anyKey, func(_ *Server, ctx *fasthttp.RequestCtx) *Problem {
		return &Problem{Type: MethodNotAllowed, Detail: clip(string(ctx.Path())) + " does not take " +
			clip(string(ctx.Method())) + "; it takes " + string(ctx.Response.Header.Peek("Allow"))}
	})
	r.MethodNotAllowed = func(ctx *fasthttp.RequestCtx) {
		allow := strings.Split(string(ctx.Response.Header.Peek("Allow")), ", ") // the router adds OPTIONS
		allow = slices.DeleteFunc(allow, func(method string) bool { return method == fasthttp.MethodOptions })
		ctx.Response.Header.Set("Allow", strings.Join(allow, ", "))
		notAllowed(ctx)
	}
	for _, route := range slices.Concat(routes, s.config.Console.routes()) {
		if route.path == "/metrics" && s.config.MetricsOpen {
			route.need = public
		}
		handle := s.measured(route.path, route.need, route.handle)
		r.Handle(route.method, route.path, handle)
		if route.method == fasthttp.MethodGet {
			r.Handle(fasthttp.MethodHead, route.path, handle)
		}
	}
	return r
}

// measured wraps a handler: it lets it run if the request may come in, writes its
// Problem, recovers from its panic, and counts and times the call.
func (s *Server) measured(path string, need auth.Scope, handle handler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		begin := time.Now()
		identify(ctx)
		s.startSpan(ctx, path, begin)
		if ctx.Request.MayContinue() {
			restoreLength(ctx)
		}
		var p *Problem
		refused := false
		if (isLong(ctx) && takesBody(ctx)) || mayAnswer(ctx) {
			p = s.refuse(ctx, path)
			if refused = p != nil; !refused && !(ctx.IsOptions() && len(s.config.Origins) > 0 && s.preflight(ctx)) {
				p = s.guarded(ctx, path, need, handle)
			}
		} else {
			p = cutOff(ctx)
		}
		if p != nil {
			if refused || p.Type == Unauthorized || p.Type == Forbidden {
				s.audit.refused(ctx, path, p, begin)
			}
			p.write(ctx)
		}
		if len(s.config.Origins) > 0 {
			s.allowOrigin(ctx)
		}
		s.leave(ctx)
		answered(ctx)
		s.endSpan(ctx)
		s.metrics.observe(path, string(ctx.Method()), ctx.Response.StatusCode(), time.Since(begin))
	}
}

// guarded runs a handler if the caller's key is for it, and turns a panic into a Problem.
func (s *Server) guarded(ctx *fasthttp.RequestCtx, path string, need auth.Scope, handle handler) (p *Problem) {
	defer func() {
		if cause := recover(); cause != nil {
			id := requestIDOf(ctx)
			s.config.Log.With(idsOf(ctx)...).Error("api: a handler panicked", "method", string(ctx.Method()),
				"path", string(ctx.Path()), "cause", cause, "stack", string(debug.Stack()))
			ctx.Response.Reset()
			ctx.Response.Header.Set(requestIDHeader, id)
			p, _ = storeProblem(errors.New("panic"), "")
		}
	}()
	if p := s.admit(ctx, need); p != nil {
		return p
	}
	if p := unconditional(ctx, path); p != nil {
		return p
	}
	return s.paced(ctx, path, need, handle)
}

// singleBytesMax is how large the body of a single message may be.
func (s *Server) singleBytesMax() int {
	return s.config.PayloadBytesMax/3*4 + bodyRoomBytes
}

// brokenRequest answers input that could not be read as a request.
func (s *Server) brokenRequest(ctx *fasthttp.RequestCtx, err error) {
	p := arrivalProblem(err)
	var tooSmall *fasthttp.ErrSmallBuffer
	if errors.As(err, &tooSmall) {
		p = &Problem{Type: HeadersTooLarge, Detail: "the request's line and headers are too large: " +
			"send fewer or shorter ones"}
	}
	ctx.Response.Reset()
	identify(ctx)
	p.write(ctx)
	s.metrics.observe(noRoute, "none", p.HTTPStatus(), 0)
}

// sharedParts is into how many parts a bound is divided: calls that begin in the same part end together.
const sharedParts = 16

// bounded bounds calls of the store by time. A context and a timer for each call cost more than all its checks.
type bounded struct {
	most time.Duration // how long a call may take; each may take at least 15/16 of that

	mu    sync.Mutex
	ctx   context.Context // of the calls that begin before until
	until time.Time
	end   context.CancelFunc // of ctx, kept for go vet. Nobody calls it: the timer ends ctx
}

// begin returns the context of a call that begins now. It does not end with the client's connection: a write that has
// begun is completed.
func (b *bounded) begin() context.Context {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now.Before(b.until) {
		b.until = now.Add(b.most / sharedParts)
		b.ctx, b.end = context.WithDeadline(context.Background(), now.Add(b.most))
	}
	return b.ctx
}

// failed turns an error of the store into a Problem, and logs it if an operator has to
// know of it.
func (s *Server) failed(ctx *fasthttp.RequestCtx, doing string, err error, scheduleID string) *Problem {
	p, logged := storeProblem(err, scheduleID)
	if logged {
		s.config.Log.With(idsOf(ctx)...).Error("api: the store failed", "doing", doing, "scheduleId", scheduleID,
			"error", err)
	}
	return p
}
