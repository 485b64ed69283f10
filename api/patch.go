package api

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
)

// A change of a series waits until the occurrence that is on its way is settled: it looks after
// inFlightLook, then half as often each time, at least each inFlightLookMax, until inFlightWait is over. It tries
// again inFlightTries times.
const (
	inFlightLook    = 10 * time.Millisecond
	inFlightLookMax = 100 * time.Millisecond
	inFlightWait    = time.Second
	inFlightTries   = 4
)

func (s *Server) patchMessage(ctx *fasthttp.RequestCtx) *Problem {
	key, p := s.pathKey(ctx, postdate.CheckScheduleID)
	if p == nil {
		p = refuseHeaders(ctx, "it creates no message", "If-None-Match")
	}
	if p != nil {
		return p
	}
	var change changeBody
	raw, p := s.bodyOf(ctx, s.singleBytesMax(), "application/merge-patch+json", contentTypeJSON)
	if p == nil {
		p = decodeBody(raw, &change)
	}
	if p != nil {
		return p
	}
	body := change.messageBody
	rule, p := patchOfRule(raw)
	if p == nil {
		p = patchable(&body)
	}
	if p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	rounds, tries, until := 0, 0, time.Now().Add(inFlightWait)
	for {
		answer, err := s.patchOnce(ctx, storeCtx, key, &body, rule)
		switch {
		case err == nil:
			return answer.write(ctx, fasthttp.StatusOK)
		case postdate.KindOf(err) == postdate.KindConflict && rounds < replaceRoundsMax:
			rounds++
		case tries < inFlightTries && s.awaitSettled(storeCtx, key, err, until):
			tries++
		default:
			return s.failed(ctx, "patch", err, key.ScheduleID)
		}
	}
}

// patchOnce reads the message and changes it. The caller tries again if somebody else changed it in between, and
// if an occurrence is on its way.
func (s *Server) patchOnce(ctx *fasthttp.RequestCtx, storeCtx context.Context, key postdate.Key,
	body *messageBody, rule map[string]jsontext.Value) (scheduled, error) {
	old, err := s.config.Messages.Get(storeCtx, key)
	if err != nil {
		return scheduled{}, err
	}
	if p := mayChange(ctx, &old); p != nil {
		return scheduled{}, p
	}
	c := s.checker(ctx)
	if old.Recurrence != nil {
		c.now = s.config.Passed() // what is over by then is skipped
		switch mere := body.mereSwitch(); {
		case old.Status.Final() || old.Ending:
			return scheduled{}, tooLate(key.ScheduleID, old.State)
		case mere && *body.Paused == old.Paused:
			return answerOf(&old), nil
		case mere && *body.Paused:
			return s.pause(storeCtx, old)
		}
	}
	next, p := c.patched(body, rule, &old)
	if p != nil {
		return scheduled{}, p
	}
	return s.replace(storeCtx, next, old, c.now)
}

// awaitSettled waits until the occurrence for which a change was too late is settled, and says whether to try
// again. It is false at once if err says something else.
func (s *Server) awaitSettled(ctx context.Context, key postdate.Key, err error, until time.Time) bool {
	p, is := err.(*Problem)
	if !is || p.inFlight == 0 {
		return false
	}
	for pause := inFlightLook; time.Now().Add(pause).Before(until); pause = min(2*pause, inFlightLookMax) {
		time.Sleep(pause)
		r, err := s.config.Messages.Get(ctx, key)
		if err != nil || r.Occurrence != p.inFlight || r.Parked || r.AttemptTime == postdate.Far || r.Ending {
			return true
		}
	}
	return false
}

// pause pauses a series, also while an occurrence is on its way.
func (s *Server) pause(ctx context.Context, r postdate.Record) (scheduled, error) {
	if err := s.config.Messages.Pause(ctx, r.Key, r.Version); err != nil {
		return scheduled{}, s.ended(ctx, &r, err)
	}
	r.Paused = true
	return answerOf(&r), nil
}

// ended turns KindTooLate, the error of a call for the series that was read, into a Problem that says how the
// series stands now. It leaves other errors.
func (s *Server) ended(ctx context.Context, read *postdate.Record, err error) error {
	if postdate.KindOf(err) != postdate.KindTooLate {
		return err
	}
	present, err := s.config.Messages.Get(ctx, read.Key)
	if err != nil {
		return err
	}
	return tooLate(present.ScheduleID, present.State)
}

// mereSwitch says whether a change of a series is a pause or a resume, and nothing else.
func (b *messageBody) mereSwitch() bool {
	return b.Paused != nil && b.Channel == "" && len(b.Payload) == 0 && b.Recurrence == nil &&
		b.ExecutionTime == nil && b.Delay == nil && b.Labels == nil && !b.FailureChannel.given
}

// patchable refuses a change that changes nothing.
func patchable(b *messageBody) *Problem {
	if len(b.Payload) == 0 {
		if b.ContentType != "" {
			return fieldProblem("/contentType", invalid("contentType goes with a payload: give both"))
		}
		if b.PayloadEncoding != "" {
			return fieldProblem("/payloadEncoding", invalid("payloadEncoding goes with a payload: give both"))
		}
		if b.ExecutionTime == nil && b.Delay == nil && b.Channel == "" && b.Recurrence == nil && b.Paused == nil &&
			b.Labels == nil && !b.FailureChannel.given {
			return fieldProblem("", invalid("nothing to change: give executionTime or delay, payload, channel, labels "+
				"or failureChannel; of a series recurrence, payload, channel, labels, failureChannel or paused"))
		}
	}
	return nil
}

// patched returns what becomes of old with b's changes. The content type stays if b has none.
func (c *checker) patched(b *messageBody, rule map[string]jsontext.Value,
	old *postdate.Record) (next postdate.Record, p *Problem) {
	m := old.Message
	if b.Channel != "" {
		if m.Channel, p = c.channel(b.Channel, "/channel"); p != nil {
			return next, p
		}
	}
	if b.FailureChannel.given {
		m.FailureChannel, p = c.failureChannel(b.FailureChannel, m.Channel)
	} else {
		p = checkFailureChannel(m.FailureChannel, m.Channel)
	}
	if p != nil {
		return next, p
	}
	if len(b.Payload) > 0 {
		if p := c.payload(b, &m); p != nil {
			return next, p
		}
	}
	if b.Labels != nil {
		if p := b.labels(&m); p != nil {
			return next, p
		}
	}
	if old.Recurrence != nil {
		return c.patchedSeries(b, rule, old, m)
	}
	if b.Recurrence != nil || b.Paused != nil {
		return next, &Problem{Type: NotSupported, ScheduleID: old.ScheduleID, Detail: "the message does not recur, " +
			"so it has no recurrence to change and cannot be paused: to make it a series, replace it with PUT"}
	}
	when, p := c.when(b, &m)
	if p != nil {
		return next, p
	}
	if when == "" {
		when = m.ExecutionTime.String()
	}
	m.Digest = postdate.DigestOf(&m, when)
	return postdate.NewRecord(m, old.Version+1), checkExpiry(&m)
}

// patchedSeries is patched of a series. m is its message with another payload or channel.
func (c *checker) patchedSeries(b *messageBody, rule map[string]jsontext.Value, old *postdate.Record,
	m postdate.Message) (next postdate.Record, p *Problem) {
	switch err := invalid("the message recurs: change its recurrence instead, or trigger an occurrence out of turn"); {
	case b.ExecutionTime != nil:
		return next, fieldProblem("/executionTime", err)
	case b.Delay != nil:
		return next, fieldProblem("/delay", err)
	}
	pointer := "/paused"
	if b.Recurrence != nil {
		pointer = "/recurrence"
		if m.Recurrence, p = mergedRecurrence(old.Recurrence, rule); p != nil {
			return next, p
		}
	}
	m.Digest = postdate.DigestOf(&m, "")
	paused := old.Paused
	if b.Paused != nil {
		paused = *b.Paused
	}
	next, err := recurrence.Change(old, m, paused, c.now)
	if err != nil {
		return next, fieldProblem(pointer, err)
	}
	return next, nil
}

// patchOfRule returns the fields of the recurrence in the body of a PATCH, those that are null too; nil: none.
func patchOfRule(raw []byte) (rule map[string]jsontext.Value, p *Problem) {
	var fields map[string]jsontext.Value
	if p := jsonProblem(json.Unmarshal(raw, &fields), &fields); p != nil {
		return nil, p
	}
	if p := unpatchable(fields); p != nil {
		return nil, p
	}
	if given := fields["recurrence"]; given != nil {
		p = jsonProblem(json.Unmarshal(given, &rule), &rule)
	}
	return rule, p
}

// unpatchable refuses fields that PATCH cannot change, and a patch that removes a field: in a merge patch null does,
// and an empty text says nothing else. A payload of null is one, and labels and the failure channel may go.
func unpatchable(fields map[string]jsontext.Value) *Problem {
	for _, name := range []string{"scheduleId", "headers", "key", "expiresAt", "retry", "priority"} {
		if _, given := fields[name]; !given {
			continue
		}
		remedy := "replace the whole message with PUT"
		if name == "scheduleId" {
			remedy = "schedule the message under the other id, and cancel this one"
		}
		return fieldProblem("/"+name, invalid("%s cannot be changed with PATCH: %s", name, remedy))
	}
	for _, name := range patchFields {
		value := fields[name]
		remedy := "leave it out, or give it another value"
		switch name {
		case "payload", "labels", "failureChannel":
			continue
		case "recurrence":
			remedy = "cancel the series, or replace it with PUT"
		case "contentType", "payloadEncoding":
			remedy = "leave it out, or replace the message with PUT"
		}
		switch {
		case len(value) > 0 && value.Kind() == 'n':
			return fieldProblem("/"+name, invalid("%s cannot be removed: %s", name, remedy))
		case string(value) == `""`:
			return fieldProblem("/"+name, invalid("%s is empty: %s", name, remedy))
		}
	}
	return nil
}

// mergedRecurrence is a rule after a patch was merged into it, as RFC 7396 says: fields that are null go, and
// those that are not given stay.
func mergedRecurrence(old *postdate.Recurrence, patch map[string]jsontext.Value) (*postdate.Recurrence, *Problem) {
	var shown struct {
		Recurrence map[string]jsontext.Value `json:"recurrence"`
	}
	text := append([]byte("{"), appendRecurrence(nil, old)[1:]...)
	if p := jsonProblem(json.Unmarshal(append(text, '}'), &shown), &shown); p != nil {
		return nil, p
	}
	merged := shown.Recurrence
	for name, value := range patch {
		if value.Kind() == 'n' {
			delete(merged, name)
		} else {
			merged[name] = value
		}
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return nil, jsonProblem(err, &merged)
	}
	var body recurrenceBody
	if p := decodeBody(text, &body); p != nil {
		return nil, p
	}
	given, p := body.read()
	if p != nil {
		return nil, p
	}
	if _, err := recurrence.Parse(given, 0); err != nil {
		return nil, recurrenceProblem(invalid("%w (a field that is not given stays; null removes one)", err))
	}
	return &given, nil
}

// triggerPause bounds the pause before another try to trigger.
const triggerPause = 10 * time.Millisecond

// postTrigger begins an occurrence of a series out of turn.
func (s *Server) postTrigger(ctx *fasthttp.RequestCtx) *Problem {
	key, p := s.pathKey(ctx, postdate.CheckScheduleID)
	if p == nil {
		p = refuseHeaders(ctx, "it begins an occurrence each time it comes, so look at the series' history before you "+
			"repeat it", "Idempotency-Key", "If-None-Match")
	}
	if p != nil {
		return p
	}
	raw, p := s.bodyOf(ctx, s.singleBytesMax(), contentTypeJSON)
	if p == nil && len(raw) > 0 {
		p = decodeBody(raw, &noFields{})
	}
	if p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	for range replaceRoundsMax {
		answer, err := s.triggerOnce(ctx, storeCtx, key)
		if err == nil {
			return answer.write(ctx, fasthttp.StatusCreated)
		}
		if postdate.KindOf(err) != postdate.KindConflict {
			return s.failed(ctx, "trigger", err, key.ScheduleID)
		}
		time.Sleep(rand.N(triggerPause)) // those that come together all want the same moment
	}
	return s.failed(ctx, "trigger", postdate.E(postdate.KindConflict, "others keep changing the message"),
		key.ScheduleID)
}

// triggerOnce reads the series and begins an occurrence. The caller tries again if the series was changed in
// between.
func (s *Server) triggerOnce(ctx *fasthttp.RequestCtx, storeCtx context.Context,
	key postdate.Key) (answer scheduled, err error) {
	r, err := s.config.Messages.Get(storeCtx, key)
	if err != nil {
		return answer, err
	}
	if p := mayChange(ctx, &r); p != nil {
		return answer, p
	}
	if r.Recurrence == nil {
		return answer, &Problem{Type: NotSupported, ScheduleID: key.ScheduleID, Detail: "the message does not recur, " +
			`so it has only one time: to send it now, PATCH it with {"delay": "0s"}`}
	}
	at, err := recurrence.Extra(&r, s.config.Passed())
	if err != nil {
		return answer, err
	}
	if err := s.config.Messages.Trigger(storeCtx, key, r.Version, at); err != nil {
		return answer, s.ended(storeCtx, &r, err)
	}
	s.config.Scheduled(key.Bucket, at)
	s.metrics.countScheduled(key.Tenant, r.Channel.Broker())
	extra := r.Alone(at)
	return scheduled{key: extra.Key, executionTime: at, status: postdate.Pending}, nil
}
