package api

import (
	"bytes"
	"net"
	"strings"

	"github.com/valyala/fasthttp"
)

// refuse returns why a request is not even looked at; nil: it is.
func (s *Server) refuse(ctx *fasthttp.RequestCtx) *Problem {
	if fault := framingFault(&ctx.Request.Header); fault != "" {
		ctx.SetConnectionClose()
		return &Problem{Type: BadRequest, Detail: fault}
	}
	if !s.config.Loopback {
		return nil
	}
	return fromElsewhere(&ctx.Request.Header)
}

// fromElsewhere refuses what a browser sends to this machine for a web page of another
// one. Such a page can send requests here, and with a name of its own that it lets point
// to 127.0.0.1 it can read the answers (DNS rebinding). The rule for Sec-Fetch-Site and
// Origin is that of net/http's CrossOriginProtection, for all methods.
func fromElsewhere(h *fasthttp.RequestHeader) *Problem {
	const remedy = "; if a proxy before this node asks who comes in, start it with --insecure"
	host := string(h.Host())
	if len(host) > 0 && !isLoopbackHost(host) {
		return &Problem{Type: Forbidden, Detail: "the Host " + clip(host) +
			" is not this machine's own name: ask for localhost or 127.0.0.1" + remedy}
	}
	site, origin := h.Peek("Sec-Fetch-Site"), h.Peek("Origin")
	switch string(site) {
	case "same-origin", "none":
		return nil
	case "":
		_, from, _ := bytes.Cut(origin, []byte("://"))
		if len(origin) == 0 || strings.EqualFold(string(from), host) {
			return nil
		}
	}
	return &Problem{Type: Forbidden, Detail: "a web page of another origin sent this: " +
		"a node that asks nobody who they are serves none" + remedy}
}

// isLoopbackHost reports whether a Host header names this machine.
func isLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}
