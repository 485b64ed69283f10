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

// mayChange returns the Problem of a request to change r with a key that is not for its channel, or with an
// If-Match that does not name its version.
func mayChange(ctx *fasthttp.RequestCtx, r *postdate.Record) *Problem {
	if p := mayUse(identityOf(ctx), r.Channel, ""); p != nil {
		return p
	}
	return precondition(ctx, r)
}

// precondition returns the Problem of a request whose If-Match does not name the version of r. r is nil if
// there is no message.
func precondition(ctx *fasthttp.RequestCtx, r *postdate.Record) *Problem {
	if len(ctx.Request.Header.PeekAll("If-None-Match")) > 0 {
		return &Problem{Type: NotSupported, Detail: "If-None-Match is not supported here: to create a message " +
			"and replace none, POST it; to change only the version that was read, send If-Match"}
	}
	fields := ctx.Request.Header.PeekAll("If-Match")
	if len(fields) == 0 {
		return nil
	}
	p := &Problem{Type: PreconditionFailed, Detail: "there is no message of which If-Match could name a version"}
	if r == nil {
		return p
	}
	version := versionOf(&r.State)
	for _, field := range fields {
		for tag := range strings.SplitSeq(string(field), ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || tag == `"`+version+`"` {
				return nil
			}
		}
	}
	p.ScheduleID, p.Detail = r.ScheduleID, "the message has version "+version+", which If-Match does not name "+
		"(in double quotes, as ETag has it): if somebody changed it, read it with GET, and decide anew"
	return p
}
