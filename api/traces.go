package api

import (
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/internal/tracing"
)

// traceOf returns the trace context that goes with the messages of a request.
func traceOf(ctx *fasthttp.RequestCtx) (traceparent, tracestate string) {
	return sentTrace(&ctx.Request.Header)
}

// sentTrace returns the trace context that came with a request; "": none.
func sentTrace(h *fasthttp.RequestHeader) (traceparent, tracestate string) {
	if parent := h.Peek(tracing.HeaderParent); len(parent) > 0 {
		return tracing.Checked(parent, h.PeekAll(tracing.HeaderState)...)
	}
	return "", ""
}
