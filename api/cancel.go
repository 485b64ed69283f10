package api

import (
	"context"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func (s *Server) deleteMessage(ctx *fasthttp.RequestCtx) *Problem {
	key, p := s.pathKey(ctx, postdate.CheckMessageID)
	if p != nil {
		return p
	}
	if p := refuseHeaders(ctx, "it cancels whatever version there is; leave the header out", "If-Match",
		"If-None-Match"); p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	result := Cancel(storeCtx, s.config.Messages, []postdate.Key{key}, s.config.Now())[0]
	if p := s.cancelled(ctx, key, result); p != nil {
		return p
	}
	return finish(ctx, fasthttp.StatusOK, appendResult(begin(ctx), key.ScheduleID, postdate.Cancelled, nil))
}

// cancelled turns the result of one cancel into its Problem, if any, and counts it.
func (s *Server) cancelled(ctx *fasthttp.RequestCtx, key postdate.Key, result store.Cancelled) *Problem {
	if result.Changed { // else an earlier request did it
		s.metrics.of(key.Tenant).cancelled.Inc()
	}
	if result.Err == nil {
		return nil
	}
	if postdate.KindOf(result.Err) == postdate.KindTooLate {
		s.metrics.of(key.Tenant).tooLate.Inc()
	}
	return s.failed(ctx, "cancel", cancelError(key.ScheduleID, result), key.ScheduleID)
}

// cancelError is the error of a cancel: a Problem if it came too late.
func cancelError(scheduleID string, result store.Cancelled) error {
	if postdate.KindOf(result.Err) != postdate.KindTooLate {
		return result.Err
	}
	p := tooLate(scheduleID, result.State)
	if result.State.Occurrence != 0 && result.State.Status != postdate.Delivered {
		p.Detail = result.Err.Error() // it says for which occurrence of the series it is too late
	}
	return p
}

// Canceller is the part of a store that cancels.
type Canceller interface {
	Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled
	Retried(ctx context.Context, series postdate.Key) ([]postdate.Key, error)
}

// Cancel cancels messages, and with a series those of its occurrences that are messages of their own, also
// where it comes too late for the series itself. Where delivery of one of these may have begun, the error
// is KindTooLate although the series has ended, and the same cancel again tells more. Each message is
// cancelled once, however often it is named.
func Cancel(ctx context.Context, from Canceller, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	results := from.Cancel(ctx, keys, at)
	done := map[postdate.Key]error{}
	for i := range results {
		r := &results[i]
		if r.State.Occurrence == 0 {
			continue
		}
		err, again := done[keys[i]]
		if !again {
			err = cancelRetried(ctx, from, keys[i], postdate.Far, at)
			done[keys[i]] = err
		}
		if r.Err == nil || postdate.KindOf(err) == postdate.KindUnknown {
			r.Err = err
		}
	}
	return results
}

// cancelRetried cancels the occurrences of a series up to last that are messages of their own.
func cancelRetried(ctx context.Context, from Canceller, series postdate.Key, last, at postdate.Time) error {
	late, err := takeRetried(ctx, from, series, last, at)
	switch {
	case err != nil:
		return unknownRetried(series, err)
	case late != "":
		return postdate.E(postdate.KindTooLate, "the series has ended, but delivery of %q, one of its "+
			"occurrences, may have begun: cancel the series again to see that nothing of it is left", late)
	}
	return nil
}

// takeRetried is cancelRetried, and says for which occurrence it came too late, if for any.
func takeRetried(ctx context.Context, from Canceller, series postdate.Key, last, at postdate.Time) (late string,
	err error) {
	keys, err := from.Retried(ctx, series)
	if err != nil {
		return "", err
	}
	keys = slices.DeleteFunc(keys, func(k postdate.Key) bool { return k.Occurrence() > last })
	if len(keys) == 0 {
		return "", nil
	}
	for i, r := range from.Cancel(ctx, keys, at) {
		switch kind := postdate.KindOf(r.Err); {
		case r.Err == nil || kind == postdate.KindNotFound || kind == postdate.KindTooLate && r.State.Status.Final():
		case kind == postdate.KindTooLate:
			return keys[i].ScheduleID, nil
		default:
			return "", r.Err
		}
	}
	return "", nil
}

// unknownRetried hides the kind of an error that would say that nothing was done.
func unknownRetried(series postdate.Key, err error) error {
	return postdate.E(postdate.KindUnknown, "the series %q has ended; whether its occurrences that are messages "+
		"of their own have, too, is unknown: %w", series.ScheduleID, err)
}

// postCancel cancels many messages. Each succeeds or fails alone.
func (s *Server) postCancel(ctx *fasthttp.RequestCtx) *Problem {
	return s.eachID(ctx, store.JobCancel, postdate.Cancelled, s.cancelEach)
}

func (s *Server) cancelEach(ctx *fasthttp.RequestCtx, storeCtx context.Context, keys []postdate.Key) []*Problem {
	problems := make([]*Problem, len(keys))
	for i, result := range Cancel(storeCtx, s.config.Messages, keys, s.config.Now()) {
		problems[i] = s.cancelled(ctx, keys[i], result)
	}
	return problems
}

// eachID answers a call whose body names messages, or has a filter for a job of that kind. do returns a Problem for
// each key, or nil: then the result has that status.
func (s *Server) eachID(ctx *fasthttp.RequestCtx, kind store.JobKind, status postdate.Status,
	do func(ctx *fasthttp.RequestCtx, storeCtx context.Context, keys []postdate.Key) []*Problem) *Problem {
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
	switch n := len(body.ScheduleIDs.value); {
	case body.Filter.given && body.ScheduleIDs.given:
		return fieldProblem("/filter", invalid("scheduleIds and filter are both there: leave one out"))
	case body.Filter.given:
		return s.startJob(ctx, kind, &body.Filter.value)
	case !body.ScheduleIDs.given:
		return fieldProblem("/scheduleIds", invalid("scheduleIds is missing: give an array of ids, or a filter"))
	case n > postdate.CancelItemsMax:
		return fieldProblem("/scheduleIds", postdate.E(postdate.KindTooLarge,
			"%d ids are too many: at most %d are allowed in one request; split it", n, postdate.CancelItemsMax))
	}
	problems := make([]*Problem, len(body.ScheduleIDs.value))
	places := make([]int, 0, len(body.ScheduleIDs.value))
	keys := make([]postdate.Key, 0, len(body.ScheduleIDs.value))
	tenant := s.tenantOf(ctx)
	for i, id := range body.ScheduleIDs.value {
		if err := postdate.CheckMessageID(id); err != nil {
			problems[i] = fieldProblem("", err)
			continue
		}
		places = append(places, i)
		keys = append(keys, bucket.KeyOf(tenant, id, s.config.Buckets))
	}
	if len(keys) > 0 {
		storeCtx := s.calls.begin()
		for i, p := range do(ctx, storeCtx, keys) {
			problems[places[i]] = p
		}
	}
	b := append(begin(ctx), `{"results":[`...)
	for i, id := range body.ScheduleIDs.value {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendResult(b, shownID(id), status, problems[i])
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}
