package api

import (
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// listBytesMax is the size at which a page ends early: a payload may grow sixfold in JSON.
const listBytesMax = 16 << 20

func (s *Server) listMessages(ctx *fasthttp.RequestCtx) *Problem {
	args, p := query(ctx, "status", "channel", "label", "idPrefix", "recurring", "from", "to", "limit", "cursor")
	if p != nil {
		return p
	}
	q, p := listQuery(args, s.tenantOf(ctx), s.config.Buckets)
	if p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	page, err := s.config.Messages.List(storeCtx, q)
	if err != nil {
		return s.failed(ctx, "list", err, "")
	}
	b := append(begin(ctx), `{"messages":[`...)
	next := page.Next
	for i := range page.Records {
		r := &page.Records[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRecord(b, r)
		if len(b) > listBytesMax && i+1 < len(page.Records) {
			next = &store.ListPosition{ExecutionTime: r.ExecutionTime, Bucket: r.Bucket, ScheduleID: r.ScheduleID}
			break
		}
	}
	b = append(b, ']')
	if next != nil {
		b = appendMember(b, "nextCursor", cursorOf(&q, next))
		b = appendTime(b, "searchedUntil", next.ExecutionTime)
	}
	return finish(ctx, fasthttp.StatusOK, append(b, '}'))
}

// listQuery reads the parameters of a list.
func listQuery(args *fasthttp.Args, tenant string, buckets int) (store.ListQuery, *Problem) {
	q := store.ListQuery{Tenant: tenant}
	var err error
	if args.Has("status") {
		if q.Status, err = postdate.ParseStatus(string(args.Peek("status"))); err != nil {
			return q, parameterProblem("status", err)
		}
	}
	if args.Has("channel") {
		if q.Channel, err = postdate.ParseChannel(string(args.Peek("channel"))); err != nil {
			return q, parameterProblem("channel", err)
		}
	}
	if args.Has("label") {
		q.Label = string(args.Peek("label"))
		if err := postdate.CheckLabel(q.Label); err != nil {
			return q, parameterProblem("label", err)
		}
	}
	if args.Has("idPrefix") {
		q.IDPrefix = string(args.Peek("idPrefix"))
		if err := postdate.CheckIDPrefix(q.IDPrefix); err != nil {
			return q, parameterProblem("idPrefix", err)
		}
	}
	if args.Has("recurring") {
		switch text := string(args.Peek("recurring")); text {
		case "true":
			q.Recurring = store.OnlyRecurring
		case "false":
			q.Recurring = store.NotRecurring
		default:
			return q, parameterProblem("recurring", invalid("recurring %q is neither true, for what recurs, "+
				"nor false, for what does not: leave it out for both", clip(text)))
		}
	}
	var p *Problem
	if q.From, p = timeOf(args, "from"); p != nil {
		return q, p
	}
	if q.To, p = timeOf(args, "to"); p != nil {
		return q, p
	}
	if q.From != 0 && q.To != 0 && q.From >= q.To {
		return q, parameterProblem("to", invalid("to %s must lie after from, which is %s", q.To, q.From))
	}
	if q.Limit, p = limitOf(args, limitDefault, postdate.ListLimitMax); p != nil {
		return q, p
	}
	if args.Has("cursor") {
		if q.After, err = parseCursor(&q, string(args.Peek("cursor")), buckets); err != nil {
			return q, parameterProblem("cursor", err)
		}
	}
	return q, nil
}
