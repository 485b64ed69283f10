package api

import (
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/postdate/postdate/internal/tracing"
)

// traceOf returns the trace context that goes with the messages of a request: that of the request's span, or if the
// request is not sampled, the one that it came with.
func (s *Server) traceOf(ctx *fasthttp.RequestCtx) (traceparent, tracestate string) {
	if span := s.spanOf(ctx); span != nil {
		return tracing.Texts(span.SpanContext())
	}
	return sentTrace(&ctx.Request.Header)
}

// sentTrace returns the trace context that came with a request; "": none.
func sentTrace(h *fasthttp.RequestHeader) (traceparent, tracestate string) {
	if parent := h.Peek(tracing.HeaderParent); len(parent) > 0 {
		return tracing.Checked(parent, h.PeekAll(tracing.HeaderState)...)
	}
	return "", ""
}

// spanKey is where a request's span is among its user values.
const spanKey = "postdate span"

// spanOf returns a request's span; nil: it has none.
func (s *Server) spanOf(ctx *fasthttp.RequestCtx) trace.Span {
	if s.config.Tracer == nil {
		return nil
	}
	return spanIn(ctx)
}

func spanIn(ctx *fasthttp.RequestCtx) trace.Span {
	span, _ := ctx.UserValue(spanKey).(trace.Span)
	return span
}

// notTraced are the calls that machines make all the time.
var notTraced = []string{"/healthz", "/readyz", "/metrics"}

// startSpan starts a request's span.
func (s *Server) startSpan(ctx *fasthttp.RequestCtx, path string, begin time.Time) {
	if s.config.Tracer != nil {
		s.start(ctx, path, begin)
	}
}

func (s *Server) start(ctx *fasthttp.RequestCtx, path string, begin time.Time) {
	if slices.Contains(notTraced, path) {
		return
	}
	parent, state := sentTrace(&ctx.Request.Header)
	span := s.config.Tracer.Start(tracing.Span{Kind: trace.SpanKindServer, Begin: begin,
		Traceparent: parent, Tracestate: state})
	if span != nil {
		ctx.SetUserValue(spanKey, span)
		span.SetName(spanName(string(ctx.Method()), path))
		span.SetAttributes(s.request(ctx, path).attributes()...)
	}
}

// endSpan ends a request's span, if it has one.
func (s *Server) endSpan(ctx *fasthttp.RequestCtx) {
	if span := s.spanOf(ctx); span != nil {
		s.end(ctx, span)
	}
}

func (s *Server) end(ctx *fasthttp.RequestCtx, span trace.Span) {
	if s.config.Keys == nil || identityOf(ctx) != nil {
		span.SetAttributes(attribute.String("postdate.tenant", s.tenantOf(ctx)))
	}
	status := ctx.Response.StatusCode()
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= fasthttp.StatusInternalServerError {
		span.SetAttributes(attribute.String("error.type", strconv.Itoa(status)))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// noteWait notes in a request's span that it is a long poll: its time says nothing of the node's.
func (s *Server) noteWait(ctx *fasthttp.RequestCtx) {
	if span := s.spanOf(ctx); span != nil {
		span.SetAttributes(attribute.Bool("postdate.long_poll", true))
	}
}

// idsOf returns what each line of the log about a request has: its id, and that of its trace, sampled or not, if
// it has one.
func idsOf(ctx *fasthttp.RequestCtx) []any {
	ids := []any{"requestId", requestIDOf(ctx)}
	parent, _ := sentTrace(&ctx.Request.Header)
	if span := spanIn(ctx); span != nil {
		parent, _ = tracing.Texts(span.SpanContext())
	}
	if parent != "" {
		ids = append(ids, "traceId", tracing.TraceIDIn(parent))
	}
	return ids
}

// request is what a span says of a request. What the client chose is clipped. No header's value is in it but the
// named ones, nor the query.
type request struct {
	method, route string // route is noRoute where there is none
	path          string
	scheme        string
	host          string // the Host header
	client        string // the other side's address
	userAgent     string
	id            string
}

func (s *Server) request(ctx *fasthttp.RequestCtx, route string) request {
	r := request{method: string(ctx.Method()), route: route, path: string(ctx.Path()), scheme: "http",
		host: string(ctx.Host()), client: ctx.RemoteIP().String(), userAgent: string(ctx.UserAgent()),
		id: requestIDOf(ctx)}
	if s.config.TLS != nil {
		r.scheme = "https"
	}
	return r
}

// methods are those that OpenTelemetry's conventions know by name, of those that HTTP has.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}

// spanName is the method and the route. A name must not be of a client's making.
func spanName(method, route string) string {
	if !slices.Contains(methods, method) {
		method = "HTTP"
	}
	if route == noRoute {
		return method
	}
	return method + " " + route
}

// attributes are those that the conventions for HTTP name. A path that is no call's is left out: nobody knows what is
// in it.
func (r request) attributes() []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 12)
	text := func(key, value string) {
		if value != "" {
			all = append(all, attribute.String(key, tracing.Clip(value)))
		}
	}
	if slices.Contains(methods, r.method) {
		text("http.request.method", r.method)
	} else {
		text("http.request.method", "_OTHER")
		text("http.request.method_original", r.method)
	}
	if r.route != noRoute {
		text("http.route", r.route)
		text("url.path", r.path)
	}
	text("url.scheme", r.scheme)
	host, port, err := net.SplitHostPort(r.host)
	if err != nil {
		host, port = r.host, ""
	}
	text("server.address", host)
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		all = append(all, attribute.Int("server.port", int(n)))
	}
	text("client.address", r.client)
	text("user_agent.original", r.userAgent)
	text("postdate.request.id", r.id)
	return all
}
