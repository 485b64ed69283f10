package api

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

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
