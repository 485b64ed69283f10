package api

import (
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/console"
)

// getConsole sends the page of the console.
func (s *Server) getConsole(ctx *fasthttp.RequestCtx) *Problem { return s.sendConsole(ctx, "") }

// getConsoleFile sends a file of the console, or the page at any other path below it.
func (s *Server) getConsoleFile(ctx *fasthttp.RequestCtx) *Problem {
	return s.sendConsole(ctx, ctx.UserValue("path").(string))
}

func (s *Server) sendConsole(ctx *fasthttp.RequestCtx, path string) *Problem {
	file, ok := console.Open(path)
	if !ok {
		return &Problem{Type: NoSuchPath, Detail: "the console has no file " + clip(path) +
			": this node may be of another version than the page; load the page again"}
	}
	h := &ctx.Response.Header
	h.SetContentType(file.ContentType)
	h.Set(fasthttp.HeaderCacheControl, file.CacheControl)
	h.Set(fasthttp.HeaderContentSecurityPolicy, console.Policy(nil))
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	h.Set(fasthttp.HeaderReferrerPolicy, "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAcceptEncoding)
	body := file.Body
	if ctx.Request.Header.HasAcceptEncoding("gzip") {
		h.SetContentEncoding("gzip")
		body = file.Gzip
	}
	ctx.SetBody(body)
	return nil
}
