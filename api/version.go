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

// creates says whether a PUT is only to create a message, and to replace none.
func creates(ctx *fasthttp.RequestCtx) bool {
	return hasHeader(ctx, "If-None-Match")
}

func hasHeader(ctx *fasthttp.RequestCtx, name string) bool {
	return len(ctx.Request.Header.PeekAll(name)) > 0
}

// checkCreates returns the Problem of a PUT whose If-None-Match says something else than that.
func checkCreates(ctx *fasthttp.RequestCtx) *Problem {
	fields := ctx.Request.Header.PeekAll("If-None-Match")
	if len(fields) == 0 || len(fields) == 1 && string(fields[0]) == "*" {
		return nil
	}
	return &Problem{Type: InvalidParameter, Parameter: "If-None-Match", Detail: "If-None-Match can only be *, " +
		"which creates a message and replaces none: to replace only the version that was read, send If-Match"}
}

// mayReplace returns the Problem of a PUT that is not to replace r.
func mayReplace(ctx *fasthttp.RequestCtx, r *postdate.Record) *Problem {
	if !creates(ctx) {
		return mayChange(ctx, r)
	}
	return &Problem{Type: PreconditionFailed, ScheduleID: r.ScheduleID, Detail: "there is such a message already, " +
		"and If-None-Match asks for none: to replace it, leave If-None-Match out"}
}

// precondition returns the Problem of a request whose If-Match does not name the version of r. r is nil if
// there is no message.
func precondition(ctx *fasthttp.RequestCtx, r *postdate.Record) *Problem {
	fields := ctx.Request.Header.PeekAll("If-Match")
	if len(fields) == 0 {
		return nil
	}
	p := &Problem{Type: PreconditionFailed, Detail: "there is no message of which If-Match could name a version: " +
		"to create one, leave If-Match out"}
	if r == nil {
		return p
	}
	version := versionOf(&r.State)
	quoted := strconv.Quote(version)
	for _, field := range fields {
		for tag := range strings.SplitSeq(string(field), ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || tag == quoted {
				return nil
			}
		}
	}
	p.ScheduleID = r.ScheduleID
	p.Detail = "the message has version " + version + ", which If-Match does not name: it would be " + quoted +
		", with the quotes, as ETag has it; if somebody changed the message, read it with GET, and decide anew"
	return p
}

// refuseHeaders refuses headers that the call would ignore, and that the client relies on.
func refuseHeaders(ctx *fasthttp.RequestCtx, why string, names ...string) *Problem {
	for _, name := range names {
		if hasHeader(ctx, name) {
			return &Problem{Type: NotSupported, Detail: "this call takes no " + name + ": " + why}
		}
	}
	return nil
}

// unconditional refuses a condition on a call that changes something else than a single message that may be there.
func unconditional(ctx *fasthttp.RequestCtx, path string) *Problem {
	if ctx.IsGet() || ctx.IsHead() || path == noRoute || strings.HasPrefix(path, "/v1/messages/{id}") {
		return nil
	}
	return refuseHeaders(ctx, "to change a message only at the version that was read, PUT or PATCH it; else leave the "+
		"header out", "If-Match", "If-None-Match")
}
