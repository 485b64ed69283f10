package api

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const (
	upcomingDefault = time.Hour // the range if the client does not say where it ends
	upcomingSlots   = 60        // about so many slots if the client does not say how long they are
)

func (s *Server) getUpcoming(ctx *fasthttp.RequestCtx) *Problem {
	args, p := query(ctx, "from", "to", "step", "channel")
	if p != nil {
		return p
	}
	q, p := upcomingQuery(args, s.tenantOf(ctx), s.config.Now())
	if p != nil {
		return p
	}
	slots, err := s.config.Messages.Upcoming(s.calls.begin(), q)
	if err != nil {
		return s.failed(ctx, "look at what is upcoming", err, "")
	}
	return finish(ctx, fasthttp.StatusOK, appendUpcoming(begin(ctx), slots, q.Channel == ""))
}

// upcomingQuery reads the parameters of a look at what is upcoming.
func upcomingQuery(args *fasthttp.Args, tenant string, now postdate.Time) (q store.UpcomingQuery, p *Problem) {
	q.Tenant = tenant
	if args.Has("channel") {
		var err error
		if q.Channel, err = postdate.ParseChannel(string(args.Peek("channel"))); err != nil {
			return q, parameterProblem("channel", err)
		}
	}
	if q.From, p = timeOf(args, "from"); p != nil {
		return q, p
	}
	if !args.Has("from") {
		q.From = now
	}
	if q.To, p = timeOf(args, "to"); p != nil {
		return q, p
	}
	if !args.Has("to") {
		q.To = q.From.Add(upcomingDefault)
	}
	if q.From >= q.To {
		return q, parameterProblem("to", invalid("to %s must lie after from, which is %s", q.To, q.From))
	}
	if q.Step, p = stepOf(args, q.To-q.From); p != nil {
		return q, p
	}
	if n := q.Slots(); n > postdate.UpcomingMax {
		return q, parameterProblem("step", invalid("with a step of %s the range has %s, and at most %d are allowed: "+
			"take a longer step or a shorter range", q.Step, countOf(n, "slot"), postdate.UpcomingMax))
	}
	return q, nil
}

// steps are the lengths of slots that people count in. Beyond the last, they are whole days.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day,
}

const (
	day = 24 * time.Hour

	stepMax = 100_000 * day
)

// stepOf reads the parameter step. Without it a step is a sixtieth of the range, or the next length that people count
// in.
func stepOf(args *fasthttp.Args, whole postdate.Time) (time.Duration, *Problem) {
	if !args.Has("step") {
		least := time.Duration(whole) * (time.Millisecond / upcomingSlots)
		for _, step := range steps {
			if step >= least {
				return step, nil
			}
		}
		return (least + day - 1).Truncate(day), nil
	}
	text := string(args.Peek("step"))
	step, err := ParseDuration(text)
	switch {
	case err == nil && step < time.Second:
		err = invalid("step %q is too short: it must be at least 1s", clip(text))
	case err == nil && step > stepMax:
		err = invalid("step %q is too long: it must be at most %s", clip(text), countOf(int(stepMax/day), "day"))
	}
	if err != nil {
		return 0, parameterProblem("step", err)
	}
	return (step + time.Millisecond - 1).Truncate(time.Millisecond), nil
}

// appendUpcoming appends the slots, each with its channels if these are wanted.
func appendUpcoming(b []byte, slots []store.UpcomingSlot, channels bool) []byte {
	b = append(b, `{"slots":[`...)
	for i := range slots {
		slot := &slots[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"from":"`...)
		b = append(slot.From.AppendText(b), `","count":`...)
		b = strconv.AppendInt(b, slot.Count, 10)
		b = append(b, `,"exact":`...)
		b = strconv.AppendBool(b, slot.Exact)
		if channels {
			b = appendChannelCounts(append(b, `,"channels":`...), slot.Channels)
		}
		b = append(b, '}')
	}
	return append(b, `]}`...)
}

func appendChannelCounts(b []byte, counts []store.ChannelCount) []byte {
	b = append(b, '[')
	for i, c := range counts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"channel":`...)
		b = appendText(b, c.Channel)
		b = append(b, `,"count":`...)
		b = strconv.AppendInt(b, c.Count, 10)
		b = append(b, '}')
	}
	return append(b, ']')
}
