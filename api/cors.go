package api

import (
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// Web pages of other origins may use the API if an operator has listed their origin: browsers ask for that (CORS).
// It lets nobody in by itself: a page has to send a key like everybody else. Cookies count for nothing here, so
// answers never allow credentials.

// anyOrigin stands for all origins in [Config.Origins].
const anyOrigin = "*"

const (
	corsHeaders = "Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-Match, If-None-Match, " +
		"Postdate-Tenant, Traceparent, Tracestate, X-Request-Id"
	corsExposed = "Accept-Encoding, Allow, ETag, Link, Location, RateLimit, RateLimit-Policy, Retry-After, " +
		"WWW-Authenticate, X-Request-Id"
	corsMaxAge = "7200" // seconds, the most that browsers keep
)

// CheckOrigins says what is wrong with the origins of web pages that may use the API.
func CheckOrigins(origins []string) error {
	for _, origin := range origins {
		if origin == anyOrigin {
			if len(origins) > 1 {
				return postdate.E(postdate.KindInvalid, "* stands for all origins: leave the others out")
			}
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
			origin != u.Scheme+"://"+u.Host || strings.Contains(u.Host, "*") {
			return postdate.E(postdate.KindInvalid, "%q is not an origin: write it like https://app.example or "+
				"http://localhost:3000, with no path, or * for all", origin)
		}
		if port := u.Port(); strings.HasSuffix(u.Host, ":") || u.Scheme == "http" && port == "80" ||
			u.Scheme == "https" && port == "443" {
			return postdate.E(postdate.KindInvalid, "%q has a port that browsers leave out: write %s", origin,
				u.Scheme+"://"+strings.TrimSuffix(strings.TrimSuffix(u.Host, port), ":"))
		}
		if lower := strings.ToLower(origin); origin != lower {
			return postdate.E(postdate.KindInvalid, "browsers write origins in lower case: write %q as %s",
				origin, lower)
		}
	}
	return nil
}

// listedOrigin returns the origin of the page that sent a request, if that may use the API; "": it may not, or it was
// no page.
func (s *Server) listedOrigin(h *fasthttp.RequestHeader) string {
	sent := h.PeekAll(fasthttp.HeaderOrigin)
	if len(sent) != 1 || len(sent[0]) == 0 {
		return ""
	}
	if origin := string(sent[0]); s.config.Origins[0] == anyOrigin || slices.Contains(s.config.Origins, origin) {
		return origin
	}
	return ""
}

// preflight answers a browser that asks whether a page may make a call, and reports whether it was such a question.
// The question carries no key. Allow lists the methods of the path.
func (s *Server) preflight(ctx *fasthttp.RequestCtx) bool {
	allow := ctx.Response.Header.Peek(fasthttp.HeaderAllow)
	if len(allow) == 0 || s.listedOrigin(&ctx.Request.Header) == "" ||
		len(ctx.Request.Header.Peek(fasthttp.HeaderAccessControlRequestMethod)) == 0 {
		return false
	}
	h := &ctx.Response.Header
	h.SetBytesV(fasthttp.HeaderAccessControlAllowMethods, allow)
	h.Set(fasthttp.HeaderAccessControlAllowHeaders, corsHeaders)
	h.Set(fasthttp.HeaderAccessControlMaxAge, corsMaxAge)
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	return true
}

// allowOrigin lets the page that sent a request read the answer, if its origin is listed.
func (s *Server) allowOrigin(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	shown := anyOrigin
	if s.config.Origins[0] != anyOrigin {
		h.Set(fasthttp.HeaderVary, fasthttp.HeaderOrigin)
		shown = s.listedOrigin(&ctx.Request.Header)
	}
	if shown != "" {
		h.Set(fasthttp.HeaderAccessControlAllowOrigin, shown)
		h.Set(fasthttp.HeaderAccessControlExposeHeaders, corsExposed)
	}
}
