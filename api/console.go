package api

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/console"
)

// Console is what the console's pages learn before anybody has logged in. Nothing in it is secret.
type Console struct {
	Version string // of the node
	Login   *Login // nil: people need a key, if anybody is asked
}

// Login is how people log in to the console: with OpenID Connect's authorization code, and PKCE in place of a secret.
type Login struct {
	Issuer   string        // its URL
	ClientID string        // the console's, a public client there
	Audience string        // what tokens must be for
	Scope    string        // what to ask for, with spaces between
	TokenURL func() string // where the issuer gives out tokens; "": that is not known yet
}

const (
	consolePath = "/console"              // where the console is
	consolePage = consolePath + "/{page}" // what its page draws
)

// routes are the console's own, which are no calls of the API.
func (c *Console) routes() []route {
	if c == nil {
		return nil
	}
	return []route{
		{"GET", "/console/config.json", (*Server).getConsoleConfig, public},
		{"GET", consolePath, (*Server).getConsolePage, public},
		{"GET", consolePage, (*Server).getConsolePage, public},
		{"GET", "/console/assets/{asset}", (*Server).getConsoleAsset, public},
	}
}

// getConsolePage sends the page, which draws what its path names.
func (s *Server) getConsolePage(ctx *fasthttp.RequestCtx) *Problem {
	return s.sendConsole(ctx, console.Page())
}

// leadsToConsole reports whether a browser that asks for this is sent to the console.
func (s *Server) leadsToConsole(ctx *fasthttp.RequestCtx) bool {
	path := string(ctx.Path())
	return s.config.Console != nil && (ctx.IsGet() || ctx.IsHead()) && (path == "/" || path == consolePath+"/")
}

func (s *Server) redirectToConsole(ctx *fasthttp.RequestCtx) *Problem {
	ctx.Response.Header.Set(fasthttp.HeaderLocation, consolePath)
	ctx.SetStatusCode(fasthttp.StatusSeeOther) // no browser keeps it: the node may come without a console
	return nil
}

func (s *Server) getConsoleAsset(ctx *fasthttp.RequestCtx) *Problem {
	name := ctx.UserValue("asset").(string)
	file, ok := console.Asset(name)
	if !ok {
		return &Problem{Type: NoSuchPath, Detail: "the console has no file " + clip(name) +
			": this node may be of another version than the page; load the page again"}
	}
	return s.sendConsole(ctx, file)
}

func (s *Server) sendConsole(ctx *fasthttp.RequestCtx, file console.File) *Problem {
	h := &ctx.Response.Header
	h.SetContentType(file.ContentType)
	h.Set(fasthttp.HeaderCacheControl, file.CacheControl)
	h.Set(fasthttp.HeaderContentSecurityPolicy, console.Policy(s.config.Console.connectOrigins()))
	h.Set(fasthttp.HeaderReferrerPolicy, "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	ownOrigin(h)
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAcceptEncoding)
	body := file.Body
	if ctx.Request.Header.HasAcceptEncoding("gzip") {
		h.SetContentEncoding("gzip")
		body = file.Gzip
	}
	ctx.SetBody(body)
	return nil
}

func (s *Server) getConsoleConfig(ctx *fasthttp.RequestCtx) *Problem {
	c := s.config.Console
	b := append(begin(ctx), `{"keys":`...)
	b = strconv.AppendBool(b, s.config.Keys != nil)
	b = appendMember(b, "version", c.Version)
	if l := c.Login; l != nil {
		b = append(b, `,"login":{"issuer":`...)
		b = appendText(b, l.Issuer)
		b = appendMember(b, "clientId", l.ClientID)
		b = appendMember(b, "scope", l.Scope)
		b = appendMember(b, "audience", l.Audience)
		if resource := l.resource(); resource != "" {
			b = appendMember(b, "resource", resource)
		}
		b = append(b, '}')
	}
	ctx.Response.Header.Set(fasthttp.HeaderCacheControl, "no-store")
	ownOrigin(&ctx.Response.Header)
	return finish(ctx, fasthttp.StatusOK, append(b, '}'))
}

// ownOrigin keeps pages of other origins from loading a file, as whatever.
func ownOrigin(h *fasthttp.ResponseHeader) {
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// resource is the audience as a resource of RFC 8707, for issuers that know that parameter and not audience; "": it is
// no URL. Issuers ignore the parameter that they do not know, except Entra ID, which refuses a resource: there
// audiences are no URLs.
func (l *Login) resource() string {
	if originOf(l.Audience) == "" {
		return ""
	}
	return l.Audience
}

// connectOrigins are the origins besides the node's own to which the console's pages may connect. The issuer's token
// endpoint may have another origin than the issuer.
func (c *Console) connectOrigins() (origins []string) {
	if c.Login == nil {
		return nil
	}
	for _, address := range []string{c.Login.Issuer, c.Login.TokenURL()} {
		if origin := originOf(address); origin != "" && !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	return origins
}

// originOf returns the origin of a URL; "": it has none that can stand in a Content-Security-Policy, where some
// characters would end it.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		strings.ContainsAny(u.Host, "*;,'\"") {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
