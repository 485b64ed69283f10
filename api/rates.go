package api

import (
	"fmt"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/quota"
)

// paced runs a handler if its tenant's rates have something left, and says in the answer what they have
// then. What needs no key, what administrators do, and metrics have no rate, so that a node can always
// be watched and limits can always be raised.
func (s *Server) paced(ctx *fasthttp.RequestCtx, path string, need auth.Scope, handle handler) *Problem {
	if s.config.Quota == nil || need == public || need == auth.Admin || path == "/metrics" {
		return handle(s, ctx)
	}
	tenant := s.tenantOf(ctx)
	schedules := need == auth.WriteMessages && takesBody(ctx) && path != "/v1/messages/cancel" &&
		path != "/v1/messages/purge"
	var p *Problem
	if err := s.config.Quota.Request(tenant, schedules); err != nil {
		p, _ = storeProblem(err, "")
	} else {
		p = handle(s, ctx)
	}
	requests, messages := s.config.Quota.Paces(tenant)
	addPace(ctx, "requests", requests)
	addPace(ctx, "messages", messages)
	return p
}

// addPace adds an item about a rate to the answer's fields of draft-ietf-httpapi-ratelimit-headers.
func addPace(ctx *fasthttp.RequestCtx, name string, pace *quota.Pace) {
	if pace != nil {
		addItem(ctx, "RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", name, pace.Burst, seconds(pace.Window)))
		addItem(ctx, "RateLimit", fmt.Sprintf("%q;r=%d;t=%d", name, pace.Left, seconds(pace.Full)))
	}
}

func addItem(ctx *fasthttp.RequestCtx, field, item string) {
	if before := ctx.Response.Header.Peek(field); len(before) > 0 {
		item = string(before) + ", " + item
	}
	ctx.Response.Header.Set(field, item)
}

// seconds are a time in whole seconds, rounded up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
