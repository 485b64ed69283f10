package api

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// Bodies may come compressed by gzip (Content-Encoding). Answers are not compressed.

// inflaters are gzip readers between two bodies: a new one costs 40 KiB. They are Go's own: that of
// klauspost/compress, which fasthttp uses, takes a body that ends in the head of a second member for whole.
var inflaters = sync.Pool{New: func() any { return new(gzip.Reader) }}

// gzipBytesMax bounds a compressed body: with what it holds, it fits into [Config.BodiesBytesMax].
const gzipBytesMax = postdate.BatchBytesMax / 2

// codedBody is bodyBytes of a request with a Content-Encoding.
func (s *Server) codedBody(ctx *fasthttp.RequestCtx, bytesMax int) ([]byte, *Problem) {
	compressed, p := isGzip(ctx)
	switch {
	case p != nil:
		return nil, p
	case !compressed:
		return s.bodyBytes(ctx, bytesMax)
	}
	body, p := s.bodyBytes(ctx, min(bytesMax, gzipBytesMax))
	if p != nil || len(body) == 0 {
		return body, p
	}
	return s.inflated(ctx, body, bytesMax)
}

// isGzip reports whether a request's body is compressed, or why its coding is not supported.
func isGzip(ctx *fasthttp.RequestCtx) (bool, *Problem) {
	named := ctx.Request.Header.PeekAll(fasthttp.HeaderContentEncoding)
	coding := string(bytes.Join(named, []byte(", ")))
	switch strings.ToLower(coding) {
	case "", "identity":
		return false, nil
	case "gzip", "x-gzip": // RFC 9110 holds them equal
		return true, nil
	}
	ctx.Response.Header.Set(fasthttp.HeaderAcceptEncoding, "gzip")
	return false, &Problem{Type: UnsupportedContent, Detail: "a body with Content-Encoding " + clip(coding) +
		" is not supported: send it with gzip, or uncompressed"}
}

// inflated returns what a body of gzip holds, of at most bytesMax bytes. Like the body itself it counts against the
// budget, so a small body can neither take more memory than a large one nor keep the node busy for longer. The first
// preloadBytes are free.
func (s *Server) inflated(ctx *fasthttp.RequestCtx, body []byte, bytesMax int) ([]byte, *Problem) {
	z := inflaters.Get().(*gzip.Reader)
	defer inflaters.Put(z)
	if err := z.Reset(bytes.NewReader(body)); err != nil {
		return nil, badGzip(err)
	}
	plain := make([]byte, 0, preloadBytes)
	for {
		if len(plain) == cap(plain) {
			var p *Problem
			if plain, p = s.grown(ctx, plain, -1, bytesMax); p != nil {
				return nil, p
			}
		}
		n, err := z.Read(plain[len(plain):cap(plain)])
		plain = plain[:len(plain)+n]
		switch {
		case len(plain) > bytesMax:
			return nil, tooLarge("uncompressed more than "+countOf(bytesMax, "byte"), bytesMax)
		case err == io.EOF:
			return plain, nil
		case err != nil:
			return nil, badGzip(err)
		}
	}
}

func badGzip(err error) *Problem {
	what := "it is damaged"
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		what = "it ends too early"
	case errors.Is(err, gzip.ErrHeader):
		what = "it, or what stands after it, does not begin as gzip does"
	}
	return &Problem{Type: BadRequest, Detail: "the body is not gzip, as its Content-Encoding says: " + what +
		"; compress it, or leave Content-Encoding out"}
}
