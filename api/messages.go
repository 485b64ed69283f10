package api

import (
	"context"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// replaceRoundsMax bounds how often a change is tried again because another request
// changed the same message in between.
const replaceRoundsMax = 8

func (s *Server) postMessage(ctx *fasthttp.RequestCtx) *Problem {
	raw, key, p := s.postedBody(ctx, s.singleBytesMax(), contentTypeJSON)
	var body messageBody
	if p == nil {
		p = decodeBody(raw, &body)
	}
	if p != nil {
		return p
	}
	if key != "" && body.ScheduleID == nil {
		body.ScheduleID = idOfKey(key, 0)
	}
	messages := make([]postdate.Message, 1)
	m := &messages[0]
	m.Traceparent, m.Tracestate = s.traceOf(ctx)
	c := s.checker(ctx)
	p, expiring := c.named(&body, s.tenantOf(ctx), s.config.Buckets, m)
	storeCtx := s.calls.begin()
	first, repeated := s.replayed(storeCtx, m, expiring)
	if p != nil && !repeated {
		return p
	}
	if key != "" {
		if p := s.noteKey(ctx, storeCtx, key, raw); p != nil {
			return p
		}
	}
	if repeated {
		return first.write(ctx, fasthttp.StatusOK)
	}
	result := s.config.Messages.Insert(storeCtx, messages)[0]
	if result.Err != nil {
		return s.failed(ctx, "insert", result.Err, m.ScheduleID)
	}
	return s.noteInsert(storeCtx, m, result).write(ctx, statusOf(result))
}

// postedBody returns the body of a request that schedules messages, and its Idempotency-Key ("": it has none).
func (s *Server) postedBody(ctx *fasthttp.RequestCtx, bytesMax int,
	types ...string) (raw []byte, key string, p *Problem) {
	if p = noQuery(ctx); p == nil && hasHeader(ctx, "Idempotency-Key") {
		key, p = idempotencyKey(ctx)
	}
	if p != nil {
		return nil, "", p
	}
	raw, p = s.bodyOf(ctx, bytesMax, types...)
	return raw, key, p
}

// replayed looks up the answer to an earlier, identical request, if this one would expire before
// its execution time or has no occurrence left, and so is valid only as a repetition.
func (s *Server) replayed(ctx context.Context, m *postdate.Message, expiring bool) (scheduled, bool) {
	if !expiring {
		return scheduled{}, false
	}
	r, err := s.config.Messages.Get(ctx, m.Key)
	if err != nil {
		return scheduled{}, false
	}
	return firstAnswer(&r, m.Digest)
}

// firstAnswer is the answer to a request that made a message, or made it what it is, and comes again.
func firstAnswer(r *postdate.Record, d postdate.Digest) (answer scheduled, repeated bool) {
	if r.Digest == d {
		return answerOf(r), true
	}
	at, repeated := r.Repeats(d)
	answer = answerOf(r)
	answer.executionTime, answer.version = at, "" // whoever asks has not seen the version that is there
	return answer, repeated
}

// noteInsert tells the bucket's owner, counts the message and returns the answer. It tells
// the owner of a repetition too: the first request may have failed between insert and here.
func (s *Server) noteInsert(ctx context.Context, m *postdate.Message, result store.Inserted) scheduled {
	if result.Status == postdate.Pending {
		s.config.Scheduled(m.Bucket, result.ExecutionTime)
	}
	if result.Created {
		s.metrics.countScheduled(m.Tenant, m.Channel.Broker())
	}
	answer := scheduled{key: m.Key, executionTime: result.ExecutionTime, status: result.Status}
	if m.Recurrence != nil {
		answer.executionTime, answer.ending = s.insertedSeries(ctx, m, result)
	}
	return answer
}

// answerOf is the answer about a message that is there.
func answerOf(r *postdate.Record) scheduled {
	return scheduled{r.Key, shownTime(&r.Message), r.Status, versionOf(&r.State), isEnding(r)}
}

func statusOf(result store.Inserted) int {
	if result.Created {
		return fasthttp.StatusCreated
	}
	return fasthttp.StatusOK
}

func (s *Server) getMessage(ctx *fasthttp.RequestCtx) *Problem {
	key, p := s.pathKey(ctx, postdate.CheckMessageID)
	if p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	r, err := s.config.Messages.Get(storeCtx, key)
	if err != nil {
		return s.failed(ctx, "get", err, key.ScheduleID)
	}
	if err := s.lookUpRetried(storeCtx, &r); err != nil {
		return s.failed(ctx, "get", err, key.ScheduleID)
	}
	setETag(ctx, versionOf(&r.State))
	b := appendRecord(begin(ctx), &r)
	return finish(ctx, fasthttp.StatusOK, append(appendLog(b[:len(b)-1], r.Log), '}'))
}

func (s *Server) putMessage(ctx *fasthttp.RequestCtx) *Problem {
	key, p := s.pathKey(ctx, postdate.CheckScheduleID)
	if p == nil {
		p = checkCreates(ctx)
	}
	if p != nil {
		return p
	}
	var body messageBody
	if p := s.singleBody(ctx, &body, contentTypeJSON); p != nil {
		return p
	}
	if body.ScheduleID != nil && *body.ScheduleID != key.ScheduleID {
		return fieldProblem("/scheduleId", invalid("scheduleId %q in the body is not the one in the path, %q: "+
			"leave it out, or make them equal", clip(*body.ScheduleID), key.ScheduleID))
	}
	m := postdate.Message{Key: key}
	m.Traceparent, m.Tracestate = s.traceOf(ctx)
	c := s.checker(ctx)
	p, expiring := c.message(&body, &m)
	storeCtx := s.calls.begin()
	// A delay counts from this request, also if it came before; with If-Match it comes again for want of an answer.
	moves := body.Delay != nil && !hasHeader(ctx, "If-Match")
	repeatable := !moves && !creates(ctx)
	if p != nil && !expiring {
		return p
	}
	for range replaceRoundsMax {
		answer, status, err := s.putOnce(ctx, storeCtx, m, repeatable, p)
		if err == nil {
			return answer.write(ctx, status)
		}
		if !raced(err) {
			return s.failed(ctx, "put", err, key.ScheduleID)
		}
	}
	return s.failed(ctx, "put", postdate.E(postdate.KindConflict, "others keep changing the message"), key.ScheduleID)
}

// putOnce creates the message or replaces the existing one. A repeatable request that comes again changes nothing; if
// it comes so late that it can be nothing else, tooLate is its Problem. The caller tries again if raced says so of the
// error.
func (s *Server) putOnce(ctx *fasthttp.RequestCtx, storeCtx context.Context,
	m postdate.Message, repeatable bool, tooLate *Problem) (scheduled, int, error) {
	r, err := s.config.Messages.Get(storeCtx, m.Key)
	switch {
	case err == nil && r.Digest == m.Digest && repeatable:
		if r.Status == postdate.Pending {
			s.config.Scheduled(r.Bucket, r.ExecutionTime)
		}
		return answerOf(&r), fasthttp.StatusOK, nil
	case tooLate != nil:
		return scheduled{}, 0, tooLate
	case postdate.KindOf(err) == postdate.KindNotFound:
		if p := precondition(ctx, nil); p != nil {
			return scheduled{}, 0, p
		}
		result := s.config.Messages.Insert(storeCtx, []postdate.Message{m})[0]
		switch {
		case result.Err != nil:
			return scheduled{}, 0, result.Err
		case !result.Created:
			return scheduled{}, 0, store.ErrChanged(m.Key) // somebody else was quicker
		}
		return s.noteInsert(storeCtx, &m, result), fasthttp.StatusCreated, nil
	case err != nil:
		return scheduled{}, 0, err
	}
	if p := mayReplace(ctx, &r); p != nil {
		return scheduled{}, 0, p
	}
	from := max(m.CreatedAt, r.Series.Passed()) // this node's clock may be behind that of the one that sent it
	m.CreatedAt = r.CreatedAt
	if err := recurrence.Begin(&m, from); err != nil {
		return scheduled{}, 0, fieldProblem("/recurrence", err)
	}
	answer, err := s.replace(storeCtx, postdate.NewRecord(m, r.Version+1), r, from)
	return answer, fasthttp.StatusOK, err
}

// replace replaces old by next, as was asked for at a given time, and tells the bucket's owner.
func (s *Server) replace(ctx context.Context, next, old postdate.Record, at postdate.Time) (scheduled, error) {
	next.Original, next.Moved = old.Origin(), old.MovedBy(&next.Message, at)
	present, err := s.config.Messages.Replace(ctx, next, old)
	if postdate.KindOf(err) == postdate.KindTooLate {
		return scheduled{}, tooLate(next.ScheduleID, present.State)
	}
	if err != nil {
		return scheduled{}, err
	}
	s.config.Scheduled(next.Bucket, next.AttemptTime)
	return answerOf(&next), nil
}

// raced says whether err means that another request changed the message in between:
// nothing was done, and the next try may end differently.
func raced(err error) bool {
	switch postdate.KindOf(err) {
	case postdate.KindConflict, postdate.KindExists, postdate.KindNotFound:
		return true
	}
	return false
}

// pathKey returns the key of the message that the path names. Such a call takes no parameters.
func (s *Server) pathKey(ctx *fasthttp.RequestCtx, check func(id string) error) (postdate.Key, *Problem) {
	if p := noQuery(ctx); p != nil {
		return postdate.Key{}, p
	}
	id, p := pathName(ctx, "id", check)
	if p != nil {
		return postdate.Key{}, p
	}
	return bucket.KeyOf(s.tenantOf(ctx), id, s.config.Buckets), nil
}

// pathName returns a segment of the path, decoded and checked. It is a copy: the
// router's own string lies in the request's buffer.
func pathName(ctx *fasthttp.RequestCtx, parameter string, check func(string) error) (string, *Problem) {
	raw, _ := ctx.UserValue(parameter).(string)
	name, err := url.PathUnescape(strings.Clone(raw))
	if err != nil {
		return "", parameterProblem(parameter,
			invalid("%s %q is not percent-encoded rightly: write a percent sign as %%25", parameter, clip(raw)))
	}
	if err := check(name); err != nil {
		return "", parameterProblem(parameter, err)
	}
	return name, nil
}
