package api

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"
)

// refusalsMax is how many refused requests are logged in a second. Of the others only the
// number is, so that nobody can fill a disk with them.
const refusalsMax = 10

// audit logs who was refused and what administrators did, without secrets.
type audit struct {
	log    *slog.Logger
	pace   *rate.Limiter
	silent atomic.Int64 // refusals that were not logged since the last one that was
}

func newAudit(log *slog.Logger) *audit {
	return &audit{log: log, pace: rate.NewLimiter(refusalsMax, refusalsMax)}
}

// refused logs a request for a route that was refused for what p says. The path may have a key
// in it.
func (a *audit) refused(ctx *fasthttp.RequestCtx, route string, p *Problem, now time.Time) {
	if !a.pace.AllowN(now, 1) {
		a.silent.Add(1)
		return
	}
	attributes := []any{"reason", orElse(p.why, p.Detail), "status", p.HTTPStatus(),
		"method", clip(string(ctx.Method())), "route", route, "remote", ctx.RemoteAddr().String()}
	if p.keyID != "" {
		attributes = append(attributes, "key", p.keyID)
	}
	if silent := a.silent.Swap(0); silent > 0 {
		attributes = append(attributes, "notLogged", silent)
	}
	a.log.Warn("api: a request was refused", attributes...)
}

// did logs what an administrator did.
func (a *audit) did(ctx *fasthttp.RequestCtx, what string, attributes ...any) {
	by := "anybody" // nobody is asked who they are
	if i := identityOf(ctx); i != nil {
		by = i.KeyID
	}
	a.log.Info("api: "+what, append(attributes, "by", by, "remote", ctx.RemoteAddr().String())...)
}
