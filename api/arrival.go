package api

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// A body is read as it arrives: what a client only announces takes no memory.

// preloadBytes is how much of a body fasthttp reads before the handler runs. It counts
// against no budget, so that small requests are served whatever large ones do.
const preloadBytes = 8 << 10

// budget is what is left of a number of bytes, and what each tenant has of it. Where tenants are
// known, each may have half of it, or a single body of any size: slow batches of one must not keep
// out all others.
type budget struct {
	left    atomic.Int64
	half    int
	tenants sync.Map // of *atomic.Int64
}

// share is what a tenant has of the budget.
func (b *budget) share(tenant string) *atomic.Int64 {
	if has, ok := b.tenants.Load(tenant); ok {
		return has.(*atomic.Int64)
	}
	has, _ := b.tenants.LoadOrStore(tenant, &atomic.Int64{})
	return has.(*atomic.Int64)
}

// take takes n bytes, and reports whether there were so many.
func (b *budget) take(n int) bool {
	if b.left.Add(int64(-n)) >= 0 {
		return true
	}
	b.give(n)
	return false
}

func (b *budget) give(n int) { b.left.Add(int64(n)) }

// takenKey is the user value that holds how many bytes of the budget a request has.
const takenKey = "taken"

// bodyBytes returns the whole body, of at most bytesMax bytes. The request keeps its
// share of the budget until it is answered.
func (s *Server) bodyBytes(ctx *fasthttp.RequestCtx, bytesMax int) ([]byte, *Problem) {
	announced := ctx.Request.Header.ContentLength()
	if announced > bytesMax {
		return nil, tooLarge(countOf(announced, "byte"), bytesMax)
	}
	if !isLong(ctx) {
		return ctx.Request.Body(), nil
	}
	var body []byte
	if announced >= 0 && announced <= preloadBytes {
		body = make([]byte, 0, announced)
	}
	for {
		if len(body) == cap(body) && len(body) != announced {
			var p *Problem
			if body, p = s.grown(ctx, body, announced, bytesMax); p != nil {
				return nil, p
			}
		}
		askForBody(ctx)
		n, err := ctx.RequestBodyStream().Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > bytesMax:
			return nil, tooLarge("more than "+countOf(bytesMax, "byte"), bytesMax)
		case len(body) == announced, announced < 0 && errors.Is(err, io.EOF):
			_ = ctx.Request.CloseBodyStream()
			if !mayAnswer(ctx) {
				return nil, cutOff(ctx)
			}
			return body, nil
		case err != nil:
			ctx.SetConnectionClose()
			return nil, arrivalProblem(err)
		}
	}
}

// grown returns body with room for more, which it takes from the budget. announced is its whole length; -1: nobody
// has said.
func (s *Server) grown(ctx *fasthttp.RequestCtx, body []byte, announced, bytesMax int) ([]byte, *Problem) {
	size := max(4*preloadBytes, 2*cap(body))
	if announced > 0 {
		size = min(size, announced)
	}
	size = min(size, bytesMax+1)
	if !s.takeFor(ctx, size-cap(body)) {
		return nil, &Problem{Type: Unavailable, retryAfter: 1, Detail: "the bodies of other requests take " +
			"all the memory for bodies, or the tenant's half of it, at present; surely nothing was done: " +
			"repeat the request in a moment"}
	}
	return append(make([]byte, 0, size), body...), nil
}

// isLong reports whether a body may have to be waited for.
func isLong(ctx *fasthttp.RequestCtx) bool {
	announced := ctx.Request.Header.ContentLength()
	return ctx.Request.IsBodyStream() && (announced < 0 || announced > preloadBytes || ctx.Request.MayContinue())
}

// takeFor takes n bytes of the budget for a request.
func (s *Server) takeFor(ctx *fasthttp.RequestCtx, n int) bool {
	taken, _ := ctx.UserValue(takenKey).(int)
	if i := identityOf(ctx); i != nil {
		has := int(s.bodies.share(i.Tenant).Add(int64(n)))
		if alone := has == taken+n; has > s.bodies.half && !alone {
			s.giveShare(ctx, n)
			return false
		}
	}
	if !s.bodies.take(n) {
		s.giveShare(ctx, n)
		return false
	}
	ctx.SetUserValue(takenKey, taken+n)
	return true
}

// giveShare gives back n bytes of a tenant's share.
func (s *Server) giveShare(ctx *fasthttp.RequestCtx, n int) {
	if i := identityOf(ctx); i != nil {
		s.bodies.share(i.Tenant).Add(int64(-n))
	}
}

// leave ends a request: it gives back its share of the budget. What is left of its body
// is dropped for a moment, so that the answer reaches a client that writes everything
// before it reads, and the connection ends.
func (s *Server) leave(ctx *fasthttp.RequestCtx) {
	if taken, ok := ctx.UserValue(takenKey).(int); ok {
		s.bodies.give(taken)
		s.giveShare(ctx, taken)
	}
	if !isLong(ctx) || endUnasked(ctx) {
		return
	}
	ctx.SetConnectionClose()
	if ctx.Conn().SetReadDeadline(time.Now().Add(drainTime)) == nil {
		_, _ = io.Copy(io.Discard, ctx.RequestBodyStream())
	}
}

func tooLarge(length string, bytesMax int) *Problem {
	return &Problem{Type: TooLarge, Detail: "the body is " + length + " long: at most " + countOf(bytesMax, "byte") +
		" are allowed; put large payloads elsewhere and send a reference, or split a batch"}
}

// arrivalProblem says why a request did not arrive whole.
func arrivalProblem(err error) *Problem {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &Problem{Type: RequestTimeout, Detail: "the request did not arrive whole in time: send it faster"}
	}
	return &Problem{Type: BadRequest, Detail: "the request is not well-formed HTTP/1.1"}
}

// mayAnswer notes that a request is whole. If it returns false, the connection is being closed to
// make room, and nothing may be done.
func mayAnswer(ctx *fasthttp.RequestCtx) bool {
	c := connOf(ctx.Conn())
	return c == nil || c.answer()
}

// cutOff is the answer on a connection that is being closed to make room. It may arrive.
func cutOff(ctx *fasthttp.RequestCtx) *Problem {
	ctx.SetConnectionClose()
	return &Problem{Type: Unavailable, retryAfter: 1, Detail: "the node has too many connections; surely nothing " +
		"was done: repeat the request in a moment"}
}

// answered notes that a request is done. From now on the connection waits: for the client to
// take the answer, then for its next request.
func answered(ctx *fasthttp.RequestCtx) {
	if c := connOf(ctx.Conn()); c != nil {
		c.wait()
	}
}

// takesBody reports whether the calls of a request's method read a body.
func takesBody(ctx *fasthttp.RequestCtx) bool { return ctx.IsPost() || ctx.IsPut() || ctx.IsPatch() }
