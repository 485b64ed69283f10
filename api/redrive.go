package api

import (
	"context"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/store"
)

// postRedrive tries messages again that failed. Each succeeds or fails alone.
func (s *Server) postRedrive(ctx *fasthttp.RequestCtx) *Problem {
	return s.eachID(ctx, store.JobRedrive, postdate.Pending, s.redriveEach)
}

func (s *Server) redriveEach(ctx *fasthttp.RequestCtx, storeCtx context.Context, keys []postdate.Key) []*Problem {
	problems := s.mayRedrive(ctx, storeCtx, keys)
	var some []store.Versioned
	var places []int
	for i, key := range keys {
		if problems[i] == nil {
			some, places = append(some, store.Versioned{Key: key}), append(places, i)
		}
	}
	if len(some) == 0 {
		return problems
	}
	for n, r := range s.config.Messages.Redrive(storeCtx, some, s.config.Passed()) {
		key := some[n].Key
		if r.Err == nil { // who repeats the call tells the owner again: the first one may have failed before that
			s.config.Scheduled(key.Bucket, r.State.AttemptTime)
			continue
		}
		p := s.notChanged(ctx, "redrive", r.Err, key.ScheduleID)
		p.Status = r.State.Status
		problems[places[n]] = p
	}
	return problems
}

// mayRedrive are the Problems of those messages that the caller's key is not for: a redrive sends to a channel, and
// to the message's own failure channel if it fails again.
func (s *Server) mayRedrive(ctx *fasthttp.RequestCtx, storeCtx context.Context, keys []postdate.Key) []*Problem {
	problems := make([]*Problem, len(keys))
	identity := identityOf(ctx)
	if !bound(identity) {
		return problems
	}
	errs := make([]error, len(keys))
	store.ReadEach(storeCtx, s.config.Messages, keys, func(i int, r *postdate.Record, err error) {
		if errs[i] = err; err != nil {
			return
		}
		problems[i] = mayUse(identity, r.Channel, "")
		if problems[i] == nil && r.FailureChannel != "" {
			problems[i] = mayUse(identity, r.FailureChannel, "")
		}
	})
	for i, err := range errs {
		if err != nil {
			problems[i] = s.failed(ctx, "redrive", err, keys[i].ScheduleID)
		}
	}
	return problems
}

// mayRedriveWhere refuses a redrive by a filter that goes beyond the channels that the caller's key is for.
func mayRedriveWhere(i *auth.Identity, kind store.JobKind, channel postdate.Channel) *Problem {
	switch {
	case kind != store.JobRedrive || !bound(i):
		return nil
	case channel == "":
		return &Problem{Type: Forbidden, Pointer: "/filter", keyID: i.KeyID, why: "the filter names no channel",
			Detail: clip(i.Credential()) + " is for " + clip(strings.Join(i.Channels, ", ")) +
				", and the filter selects messages of all channels: name one in it"}
	}
	return mayUse(i, channel, "/filter/channel")
}

// bound says whether a key is for some channels only.
func bound(i *auth.Identity) bool { return i != nil && len(i.Channels) > 0 }

// postPurge deletes messages that failed. Each succeeds or fails alone. The status in its result is what the message
// was.
func (s *Server) postPurge(ctx *fasthttp.RequestCtx) *Problem {
	return s.eachID(ctx, store.JobPurge, postdate.DeliveryFailed, s.purgeEach)
}

func (s *Server) purgeEach(ctx *fasthttp.RequestCtx, storeCtx context.Context, keys []postdate.Key) []*Problem {
	problems, some := make([]*Problem, len(keys)), make([]store.Versioned, len(keys))
	for i, key := range keys {
		some[i].Key = key
	}
	for i, err := range s.config.Messages.Purge(storeCtx, some) {
		if err != nil {
			problems[i] = s.notChanged(ctx, "purge", err, keys[i].ScheduleID)
		}
	}
	return problems
}

// notChanged is the Problem of a message that a redrive or a purge left as it is. A conflict is usually with its
// status, and not with somebody else, so the store's own words stay.
func (s *Server) notChanged(ctx *fasthttp.RequestCtx, doing string, err error, scheduleID string) *Problem {
	p := s.failed(ctx, doing, err, scheduleID)
	if p.Type == Conflict {
		p.Detail = err.Error()
	}
	return p
}
