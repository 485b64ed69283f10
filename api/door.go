package api

import (
	"bytes"
	"net"
	"strings"

	"github.com/valyala/fasthttp"
)

// refuse returns why a request is not even looked at; nil: it is.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, route string) *Problem {
	if fault := framingFault(&ctx.Request.Header); fault != "" {
		ctx.SetConnectionClose()
		return &Problem{Type: BadRequest, Detail: fault}
	}
	if !s.config.Loopback {
		return nil
	}
	return s.fromElsewhere(&ctx.Request.Header, route)
}

// fromElsewhere refuses what a browser sends to this machine for a web page of another
// one. Such a page can send requests here, and with a name of its own that it lets point
// to 127.0.0.1 it can read the answers (DNS rebinding). The rule for Sec-Fetch-Site and
// Origin is that of net/http's CrossOriginProtection, for all methods. A page whose origin is listed comes in, but
// not under a name that it has chosen for this machine. To the console's page links may lead from anywhere: it
// says nothing about this node.
func (s *Server) fromElsewhere(h *fasthttp.RequestHeader, route string) *Problem {
	const remedy = "; if a proxy before this node asks who comes in, start it with --insecure"
	host := string(h.Host())
	if len(host) > 0 && !IsLoopback(host) {
		return &Problem{Type: Forbidden, Detail: "the Host " + clip(host) +
			" is neither localhost nor a loopback address: ask for localhost or 127.0.0.1" + remedy}
	}
	if route == consolePath || route == consolePage || len(s.config.Origins) > 0 && s.listedOrigin(h) != "" {
		return nil
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
		"a node that asks nobody who they are serves none but those that --cors-origin lists" + remedy}
}

// IsLoopback reports whether a host, with a port or without one, stands for this machine alone. A
// name other than localhost counts as not: what it resolves to may change.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.EqualFold(host, "localhost") || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}

// framingFault says what is wrong with the lines of a request's head, as they came, by
// RFC 9112; "" if nothing is. Each of these faults lets a proxy and this server see
// different requests in the same bytes, so a connection with one is closed.
func framingFault(h *fasthttp.RequestHeader) string {
	var lengths, codings int
	for line := range bytes.Lines(h.RawHeaders()) {
		line, whole := bytes.CutSuffix(line, []byte("\r\n"))
		if len(line) == 0 && whole {
			break
		}
		name, value, colon := bytes.Cut(line, []byte(":"))
		switch {
		case !whole:
			return "a header's line ends with LF alone: end it with CR LF"
		case line[0] == ' ' || line[0] == '\t':
			return "a header goes on in a second line: write it in one"
		case !colon || bytes.ContainsAny(name, " \t"):
			return "a header's name has a space or no colon after it: write Name: value"
		case bytes.EqualFold(name, []byte("Content-Length")):
			lengths++
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			codings++
			if !bytes.EqualFold(bytes.Trim(value, " \t"), []byte("chunked")) {
				return "the only Transfer-Encoding is chunked: send that, or Content-Length"
			}
		}
	}
	switch {
	case lengths > 0 && codings > 0:
		return "Content-Length and Transfer-Encoding exclude each other: send one of them"
	case lengths > 1 || codings > 1:
		return "Content-Length or Transfer-Encoding stands twice: send it once"
	case codings > 0 && !h.IsHTTP11():
		return "HTTP/1.0 has no Transfer-Encoding: send Content-Length"
	}
	return ""
}
