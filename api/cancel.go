package api

import (
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func (s *Server) deleteMessage(ctx *fasthttp.RequestCtx) *Problem {
	key, p := s.pathKey(ctx)
	if p != nil {
		return p
	}
	storeCtx, cancel := s.storeContext()
	defer cancel()
	result := s.config.Messages.Cancel(storeCtx, []postdate.Key{key}, s.config.Now())[0]
	if p := s.cancelled(key, result); p != nil {
		return p
	}
	return finish(ctx, fasthttp.StatusOK, appendResult(begin(ctx), key.ScheduleID, postdate.Cancelled, nil))
}

// cancelled turns the result of one cancel into its Problem, if any, and counts it.
func (s *Server) cancelled(key postdate.Key, result store.Cancelled) *Problem {
	switch {
	case result.Err == nil:
		if result.Changed { // else an earlier request did it
			s.metrics.of(key.Tenant).cancelled.Inc()
		}
		return nil
	case postdate.KindOf(result.Err) == postdate.KindTooLate:
		s.metrics.of(key.Tenant).tooLate.Inc()
		return tooLate(key.ScheduleID, result.State)
	}
	return s.failed("cancel", result.Err, key.ScheduleID)
}

// postCancel cancels many messages. Each succeeds or fails alone.
func (s *Server) postCancel(ctx *fasthttp.RequestCtx) *Problem {
	if p := noQuery(ctx); p != nil {
		return p
	}
	raw, p := s.bodyOf(ctx, postdate.BatchBytesMax, contentTypeJSON)
	if p != nil {
		return p
	}
	var body cancelBody
	if p := decodeBody(raw, &body); p != nil {
		return p
	}
	switch n := len(body.ScheduleIDs); {
	case body.ScheduleIDs == nil:
		return fieldProblem("/scheduleIds", invalid("scheduleIds is missing: give an array of ids"))
	case n > postdate.CancelItemsMax:
		return fieldProblem("/scheduleIds", postdate.E(postdate.KindTooLarge,
			"%d ids are too many: at most %d are allowed in one request; split it", n, postdate.CancelItemsMax))
	}
	problems := make([]*Problem, len(body.ScheduleIDs))
	places := make([]int, 0, len(body.ScheduleIDs))
	keys := make([]postdate.Key, 0, len(body.ScheduleIDs))
	tenant := s.tenantOf(ctx)
	for i, id := range body.ScheduleIDs {
		if err := postdate.CheckScheduleID(id); err != nil {
			problems[i] = fieldProblem("", err)
			continue
		}
		places = append(places, i)
		keys = append(keys, bucket.KeyOf(tenant, id, s.config.Buckets))
	}
	if len(keys) > 0 {
		storeCtx, cancel := s.storeContext()
		defer cancel()
		for i, result := range s.config.Messages.Cancel(storeCtx, keys, s.config.Now()) {
			problems[places[i]] = s.cancelled(keys[i], result)
		}
	}
	b := append(begin(ctx), `{"results":[`...)
	for i, id := range body.ScheduleIDs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendResult(b, shownID(id), postdate.Cancelled, problems[i])
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}
