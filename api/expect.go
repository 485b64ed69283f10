package api

import (
	"bytes"
	"io"
	"time"

	"github.com/valyala/fasthttp"
)

// A client that sends Expect: 100-continue waits with its body until the server says that it takes it. fasthttp
// says so before the handler runs, and begins to read. So three things stand in between: headReceived makes it
// read nothing, conn.Write keeps its 100 back, and bodyBytes sends that when the body is wanted. A request that is
// refused gets its answer alone, and its connection ends, because the body may come all the same.

// goOn is what fasthttp writes, and nothing else of ours ends with it: answers are JSON, or text of lines.
var goOn = []byte("HTTP/1.1 100 Continue\r\n\r\n")

// headReceived is called when the head of a request was read. If the client waits with its body, it says that the body
// comes in chunks, because fasthttp reads none of these by itself. restoreLength undoes that.
func headReceived(h *fasthttp.RequestHeader) (unchanged fasthttp.RequestConfig) {
	if !bytes.EqualFold(h.Peek(fasthttp.HeaderExpect), []byte("100-continue")) {
		return unchanged
	}
	if length := h.ContentLength(); !h.IsHTTP11() || length == 0 || length < -1 { // there is nothing to wait for
		h.Del(fasthttp.HeaderExpect)
		return unchanged
	}
	h.Set(fasthttp.HeaderExpect, "100-continue") // fasthttp knows it in small letters only
	h.SetContentLength(-1)
	return unchanged
}

// restoreLength undoes what headReceived did to the length.
func restoreLength(ctx *fasthttp.RequestCtx) {
	h := &ctx.Request.Header
	h.SetContentLength(lengthIn(h.RawHeaders()))
}

// lengthIn returns the Content-Length in a request's head, which fasthttp has found to be sound; -1: there is none.
func lengthIn(head []byte) int {
	for line := range bytes.Lines(head) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte(fasthttp.HeaderContentLength)) {
			if n, err := fasthttp.ParseUint(bytes.TrimSpace(value)); err == nil {
				return n
			}
		}
	}
	return -1
}

// write writes b to a connection, but keeps a 100 at its end back.
func (c *conn) write(to io.Writer, b []byte) (int, error) {
	rest, is := bytes.CutSuffix(b, goOn)
	if !is {
		return to.Write(b)
	}
	c.keptBack.Store(true)
	if len(rest) > 0 {
		if n, err := to.Write(rest); err != nil {
			return n, err
		}
	}
	return len(b), nil
}

// askForBody tells a client that waits with its body to send it.
func askForBody(ctx *fasthttp.RequestCtx) {
	c := connOf(ctx.Conn())
	if c == nil || !c.keptBack.Swap(false) {
		return
	}
	to := c.Conn
	if secure, is := ctx.Conn().(*secured); is {
		to = secure.Conn
	}
	_ = to.SetWriteDeadline(time.Now().Add(time.Second)) // a failure shows when the body is read
	_, _ = to.Write(goOn)
}

// endUnasked ends the connection of a request whose body was not asked for, and reports whether it was one. The
// client may send the body all the same: it is dropped after the answer, not before, when nobody knows whether
// it comes.
func endUnasked(ctx *fasthttp.RequestCtx) bool {
	c := connOf(ctx.Conn())
	if c == nil || !ctx.Request.MayContinue() || !c.keptBack.Swap(false) {
		return false
	}
	ctx.SetConnectionClose()
	c.lingers.Store(true)
	return true
}

// linger waits, after the last answer, until the client has it and ends the connection too: one that is closed
// while something arrives takes the answer with it.
func (c *conn) linger() {
	half, is := c.Conn.(interface{ CloseWrite() error })
	if is && half.CloseWrite() == nil && c.Conn.SetReadDeadline(time.Now().Add(drainTime)) == nil {
		_, _ = io.Copy(io.Discard, c.Conn)
	}
}
