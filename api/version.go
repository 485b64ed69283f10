package api

import (
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
)

// versionOf is the version of a message that answers show and If-Match names. It changes with every change
// by a client; deliveries leave it.
func versionOf(s *postdate.State) string {
	version := strconv.FormatUint(s.Version, 10)
	if s.Paused {
		version += "p" // a pause leaves the number, because it may come while an occurrence is on its way
	}
	return version
}

// setETag sets the answer's ETag, if the version is known.
func setETag(ctx *fasthttp.RequestCtx, version string) {
	if version != "" {
		ctx.Response.Header.Set("ETag", `"`+version+`"`)
	}
}

// mayChange returns the Problem of a request to change r with a key that is not for its channel, or under a
// condition that does not hold.
func mayChange(ctx *fasthttp.RequestCtx, r *postdate.Record) *Problem {
	if p := mayUse(identityOf(ctx), r.Channel, ""); p != nil {
		return p
	}
	return precondition(ctx, r)
}

// creates says whether a request is only to create a message, and to replace none.
func creates(ctx *fasthttp.RequestCtx) bool {
	return len(ctx.Request.Header.PeekAll("If-None-Match")) > 0
}

// precondition returns the Problem of a request whose If-Match does not name the version of r, or whose
// If-None-Match does. r is nil if there is no message.
func precondition(ctx *fasthttp.RequestCtx, r *postdate.Record) *Problem {
	match, named := tags(ctx, "If-Match", r)
	noneMatch, excluded := tags(ctx, "If-None-Match", r)
	p := &Problem{Type: PreconditionFailed}
	switch {
	case match && r == nil:
		p.Detail = "there is no message of which If-Match could name a version"
	case match && !named:
		p.ScheduleID = r.ScheduleID
		p.Detail = "the message has version " + versionOf(&r.State) + ", which If-Match does not name (in double " +
			"quotes and without W/, as ETag has it): if somebody changed it, read it with GET, and decide anew"
	case noneMatch && excluded:
		p.ScheduleID = r.ScheduleID
		p.Detail = "there is such a message already, with version " + versionOf(&r.State) + ", and If-None-Match " +
			"lets it be left alone: to replace it, leave If-None-Match out"
	default:
		return nil
	}
	return p
}

// tags says whether a request has a header that lists entity tags, and whether one of them is that of r.
func tags(ctx *fasthttp.RequestCtx, header string, r *postdate.Record) (given, has bool) {
	fields := ctx.Request.Header.PeekAll(header)
	for _, field := range fields {
		for tag := range strings.SplitSeq(string(field), ",") {
			tag = strings.TrimSpace(tag)
			has = has || r != nil && (tag == "*" || tag == `"`+versionOf(&r.State)+`"`)
		}
	}
	return len(fields) > 0, has
}

// unconditional refuses a condition on a request that is about no single message that may be there.
func unconditional(ctx *fasthttp.RequestCtx) *Problem {
	for _, header := range []string{"If-Match", "If-None-Match"} {
		if len(ctx.Request.Header.PeekAll(header)) > 0 {
			return &Problem{Type: NotSupported, Detail: header + " names versions of one message, and this call " +
				"takes none: to change a message only at the version that was read, PUT or PATCH it"}
		}
	}
	return nil
}
