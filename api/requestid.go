package api

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/valyala/fasthttp"
)

// requestIDHeader names a request: in its answer, and in every line of the log that belongs to it.
const requestIDHeader = "X-Request-Id"

// requestIDBytesMax bounds a client's own request id.
const requestIDBytesMax = 128

// identify names a request: by the id that the client sent, if it is fit, else by one that is made. The answer
// carries it from then on.
func identify(ctx *fasthttp.RequestCtx) {
	if sent := ctx.Request.Header.PeekAll(requestIDHeader); len(sent) == 1 && isVisible(sent[0], requestIDBytesMax) {
		ctx.Response.Header.SetBytesV(requestIDHeader, sent[0])
		return
	}
	var room [32]byte
	ctx.Response.Header.SetBytesV(requestIDHeader, appendRequestID(room[:0]))
}

// requestIDOf returns what identify named a request.
func requestIDOf(ctx *fasthttp.RequestCtx) string {
	return string(ctx.Response.Header.Peek(requestIDHeader))
}

// isVisible says whether a header's value is 1 to bytesMax visible ASCII characters.
func isVisible(value []byte, bytesMax int) bool {
	for _, c := range value {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(value) >= 1 && len(value) <= bytesMax
}

// appendRequestID appends a new id: 128 random bits in hex, which need no system call.
func appendRequestID(b []byte) []byte {
	var bits [16]byte
	binary.BigEndian.PutUint64(bits[:8], rand.Uint64())
	binary.BigEndian.PutUint64(bits[8:], rand.Uint64())
	return hex.AppendEncode(b, bits[:])
}
