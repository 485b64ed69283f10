package api

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

// refusalsMax is how many refused requests are logged in a second, and how many handshakes. Of
// the others only the number is, so that nobody can fill a disk with them.
const refusalsMax = 10

// audit logs who was refused and what administrators did, without secrets.
type audit struct {
	log        *slog.Logger
	requests   pace
	handshakes pace // apart: whoever has no certificate hides no refused request
}

// pace says what is logged of what others can do as often as they like.
type pace struct {
	limit  *rate.Limiter
	silent atomic.Int64 // what was not logged since the last one that was
}

func newAudit(log *slog.Logger) *audit {
	limit := func() *rate.Limiter { return rate.NewLimiter(refusalsMax, refusalsMax) }
	return &audit{log: log, requests: pace{limit: limit()}, handshakes: pace{limit: limit()}}
}

// warn logs a refusal, or counts it if there are too many.
func (a *audit) warn(of *pace, now time.Time, what string, attributes ...any) {
	if !of.limit.AllowN(now, 1) {
		of.silent.Add(1)
		return
	}
	if silent := of.silent.Swap(0); silent > 0 {
		attributes = append(attributes, "notLogged", silent)
	}
	a.log.Warn("api: "+what, attributes...)
}

// refused logs a request for a route that was refused for what p says. The path may have a key
// in it.
func (a *audit) refused(ctx *fasthttp.RequestCtx, route string, p *Problem, now time.Time) {
	attributes := []any{"reason", orElse(p.why, p.Detail), "status", p.HTTPStatus(),
		"method", clip(string(ctx.Method())), "route", route, "remote", ctx.RemoteAddr().String()}
	if p.keyID != "" {
		attributes = append(attributes, "key", p.keyID)
	}
	a.warn(&a.requests, now, "a request was refused", append(attributes, idsOf(ctx)...)...)
}

// noHandshake logs that TLS was not agreed on, whichever side refused the other. A connection
// that just ended, or stalled, is no refusal: load balancers make such ones to see who listens.
func (a *audit) noHandshake(remote net.Addr, err error, now time.Time) {
	var network *net.OpError
	if errors.Is(err, io.EOF) || errors.As(err, &network) && !strings.HasSuffix(network.Op, " error") {
		return // Go's TLS names an alert "remote error" or "local error", and what TCP says "read" or "write"
	}
	a.warn(&a.handshakes, now, "a TLS handshake was refused",
		"reason", clipTo(err.Error(), 300), "remote", remote.String())
}

// did logs what an administrator did.
func (a *audit) did(ctx *fasthttp.RequestCtx, what string, attributes ...any) {
	by := "anybody" // nobody is asked who they are
	if i := identityOf(ctx); i != nil {
		by = i.KeyID
	}
	attributes = append(attributes, "by", by, "remote", ctx.RemoteAddr().String())
	a.log.Info("api: "+what, append(attributes, idsOf(ctx)...)...)
}
