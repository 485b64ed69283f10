package api

import (
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// refusalsMax is how many refused requests are logged in a second. Of the others only the
// number is, so that nobody can fill a disk with them.
const refusalsMax = 10

// audit logs who was refused and what administrators did, without secrets.
type audit struct {
	log *slog.Logger

	mu     sync.Mutex
	since  time.Time // when the present second began
	logged int       // refusals in it
	silent int       // refusals that were not logged
}

// refused logs a request that was refused for what p says.
func (a *audit) refused(ctx *fasthttp.RequestCtx, p *Problem) {
	silent, ok := a.mayLog(time.Now())
	if !ok {
		return
	}
	attributes := []any{"reason", orElse(p.why, p.Detail), "status", p.HTTPStatus(),
		"method", clip(string(ctx.Method())), "path", clip(string(ctx.Path())), "remote", ctx.RemoteAddr().String()}
	if p.keyID != "" {
		attributes = append(attributes, "key", p.keyID)
	}
	if silent > 0 {
		attributes = append(attributes, "notLogged", silent)
	}
	a.log.Warn("api: a request was refused", attributes...)
}

// mayLog says whether one more refusal may be logged, and how many were not since the last one
// that was. The time is monotonic.
func (a *audit) mayLog(now time.Time) (silent int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.since) >= time.Second {
		a.since, a.logged = now, 0
	}
	if a.logged == refusalsMax {
		a.silent++
		return 0, false
	}
	a.logged++
	silent, a.silent = a.silent, 0
	return silent, true
}

// loggedChannel is a channel as a log shows it: the path of a webhook may hold a token.
func loggedChannel(c postdate.Channel) string {
	if u, err := url.Parse(string(c)); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	return string(c)
}

// did logs what an administrator did.
func (a *audit) did(ctx *fasthttp.RequestCtx, what string, attributes ...any) {
	by := "anybody" // nobody is asked who they are
	if i := identityOf(ctx); i != nil {
		by = i.KeyID
	}
	a.log.Info("api: "+what, append(attributes, "by", by, "remote", ctx.RemoteAddr().String())...)
}
