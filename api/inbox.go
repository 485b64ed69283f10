package api

import (
	"context"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// getInbox answers with an inbox's messages after a cursor. If the client asks for it,
// it waits for the first one.
func (s *Server) getInbox(ctx *fasthttp.RequestCtx) *Problem {
	args, p := query(ctx, "after", "limit", "wait")
	if p != nil {
		return p
	}
	name, p := pathInbox(ctx)
	if p != nil {
		return p
	}
	limit, p := limitOf(args, limitDefault, postdate.InboxLimitMax)
	if p != nil {
		return p
	}
	wait, p := waitOf(args)
	if p != nil {
		return p
	}
	after := string(args.Peek("after"))
	done, p := s.poll(ctx, wait)
	if p != nil {
		return p
	}
	defer done()
	readCtx, cancel := context.WithTimeout(s.polls, wait+s.config.StoreTimeout)
	defer cancel()
	messages, next, err := s.config.Inbox.Read(readCtx, store.InboxRead{
		Tenant: s.tenantOf(ctx), Inbox: name, After: after, Limit: limit, Wait: wait,
	})
	if s.polls.Err() != nil && err != nil {
		messages, next, err = nil, after, nil // shutting down: the reader continues on another node
	}
	if postdate.KindOf(err) == postdate.KindInvalid {
		return parameterProblem("after", err)
	}
	if err != nil {
		return s.failed(ctx, "read inbox", err, "")
	}
	if next == "" {
		next = after
	}
	b := append(begin(ctx), `{"messages":[`...)
	for i := range messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInboxMessage(b, &messages[i])
	}
	b = append(b, ']')
	b = appendMember(b, "nextCursor", next)
	return finish(ctx, fasthttp.StatusOK, append(b, '}'))
}

// pathInbox is the inbox that the path names, if the caller may read it.
func pathInbox(ctx *fasthttp.RequestCtx) (string, *Problem) {
	name, p := pathName(ctx, "name", func(name string) error {
		_, err := postdate.ParseChannel("inbox:" + name)
		return err
	})
	if p == nil {
		p = mayUse(identityOf(ctx), postdate.Channel("inbox:"+name), "")
	}
	return name, p
}

// poll counts one that waits, unless it is too many, until done is called. Those that wait are not closed to make
// room, so they may not take all of it.
func (s *Server) poll(ctx *fasthttp.RequestCtx, wait time.Duration) (done func(), p *Problem) {
	if wait <= 0 {
		return func() {}, nil
	}
	s.noteWait(ctx)
	done = func() { s.polling.Add(-1) }
	if s.polling.Add(1) > int64(s.config.ConnectionsMax/2) {
		done()
		return nil, &Problem{Type: Unavailable, retryAfter: 1,
			Detail: "too many clients wait for messages of inboxes: ask again in a moment, or without wait"}
	}
	return done, nil
}

// waitOf reads the parameter wait.
func waitOf(args *fasthttp.Args) (time.Duration, *Problem) {
	if !args.Has("wait") {
		return 0, nil
	}
	wait, err := parseWait(string(args.Peek("wait")))
	if err != nil {
		return 0, parameterProblem("wait", err)
	}
	return wait, nil
}

func parseWait(text string) (time.Duration, error) {
	wait, err := ParseDuration(text)
	if err == nil && (wait < 0 || wait > postdate.InboxWaitMax) {
		err = invalid("wait must be between 0s and %s: to wait longer, ask again", postdate.InboxWaitMax)
	}
	return wait, err
}
