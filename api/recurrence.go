package api

import (
	"reflect"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
)

// recurrenceBody says when a message recurs, as on the wire.
type recurrenceBody struct {
	Every        *string `json:"every"`
	Anchor       *string `json:"anchor"`
	Cron         *string `json:"cron"`
	Timezone     *string `json:"timezone"`
	Start        *string `json:"start"`
	End          *string `json:"end"`
	MaxRuns      *int    `json:"maxRuns"`
	Jitter       *string `json:"jitter"`
	Misfire      *string `json:"misfire"`
	MisfireAfter *string `json:"misfireAfter"`
	Gap          *string `json:"gap"`
	Overlap      *string `json:"overlap"`
}

// previewBody asks when a message would recur.
type previewBody struct {
	Recurrence *recurrenceBody `json:"recurrence"`
	From       *string         `json:"from"`
	Count      *int            `json:"count"`
}

var (
	recurrenceFields = fieldsOf(reflect.TypeFor[recurrenceBody]())
	previewFields    = fieldsOf(reflect.TypeFor[previewBody]())
)

// previewDefault is how many occurrences a preview shows if the client does not say.
const previewDefault = 10

// postPreview answers the next occurrences of a rule, as far ahead as a delay may be.
func (s *Server) postPreview(ctx *fasthttp.RequestCtx) *Problem {
	var body previewBody
	if p := s.singleBody(ctx, &body, contentTypeJSON); p != nil {
		return p
	}
	rule, before, count, p := body.read(s.config.Now())
	if p != nil {
		return p
	}
	until := before.Add(postdate.DelayMax)
	b := append(begin(ctx), `{"occurrences":[`...)
	for i := range count {
		at, ok := rule.After(before)
		if !ok || at > until {
			break
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"time":`...)
		b = appendText(b, at.String())
		if remark := rule.Remark(before, at); remark != "" {
			b = appendMember(b, "remark", remark)
		}
		b = append(b, '}')
		before = at
	}
	return finish(ctx, fasthttp.StatusOK, append(b, `]}`...))
}

// read returns the rule, the time after which occurrences are asked for, and how many at most.
func (b *previewBody) read(now postdate.Time) (rule *recurrence.Rule, before postdate.Time, count int, p *Problem) {
	before, count = now, previewDefault
	if b.From != nil {
		from, err := postdate.ParseTime(*b.From)
		if err != nil {
			return nil, 0, 0, fieldProblem("/from", err)
		}
		before = from - 1
	}
	if b.Count != nil {
		if count = *b.Count; count < 1 || count > postdate.PreviewMax {
			return nil, 0, 0, fieldProblem("/count", invalid("count is %d: it must be between 1 and %d", count,
				postdate.PreviewMax))
		}
	}
	if b.Recurrence == nil {
		return nil, 0, 0, fieldProblem("/recurrence", invalid(`give a recurrence, such as {"every": "PT10S"}`))
	}
	given, p := b.Recurrence.read()
	if p != nil {
		return nil, 0, 0, p
	}
	rule, err := recurrence.Parse(given, now)
	if err != nil {
		return nil, 0, 0, recurrenceProblem(err)
	}
	if given.MaxRuns != 0 {
		count = min(count, given.MaxRuns)
	}
	return rule, before, count, nil
}

// read turns the body into a Recurrence, of which every field by itself is well formed.
func (b *recurrenceBody) read() (r postdate.Recurrence, p *Problem) {
	for _, p := range []*Problem{
		readField("every", b.Every, &r.Every, parsePositive),
		readField("anchor", b.Anchor, &r.Anchor, postdate.ParseTime),
		readField("cron", b.Cron, &r.Cron, notEmpty),
		readField("timezone", b.Timezone, &r.Timezone, notEmpty),
		readField("start", b.Start, &r.Start, postdate.ParseTime),
		readField("end", b.End, &r.End, postdate.ParseTime),
		readField("jitter", b.Jitter, &r.Jitter, ParseDuration),
		readField("misfire", b.Misfire, &r.Misfire, postdate.ParseMisfire),
		readField("misfireAfter", b.MisfireAfter, &r.MisfireAfter, parsePositive),
		readField("gap", b.Gap, &r.Gap, postdate.ParseGap),
		readField("overlap", b.Overlap, &r.Overlap, postdate.ParseOverlap),
	} {
		if p != nil {
			return r, p
		}
	}
	if r.MisfireAfter == postdate.MisfireAfterDefault {
		r.MisfireAfter = 0 // as if it were left out
	}
	if b.MaxRuns != nil {
		if r.MaxRuns = *b.MaxRuns; r.MaxRuns < 1 {
			return r, fieldProblem("/recurrence/maxRuns", invalid("maxRuns is %d: it must be at least 1; leave it out "+
				"for no limit", r.MaxRuns))
		}
	}
	return r, nil
}

// readField reads the text of a field of a recurrence, if it is given.
func readField[T any](name string, text *string, to *T, parse func(string) (T, error)) *Problem {
	if text == nil {
		return nil
	}
	value, err := parse(*text)
	if err != nil {
		return fieldProblem("/recurrence/"+name, err)
	}
	*to = value
	return nil
}

// parsePositive is ParseDuration for what may not be 0.
func parsePositive(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err == nil && d <= 0 {
		err = invalid("%q must be more than 0", clip(text))
	}
	return d, err
}

func notEmpty(text string) (string, error) {
	if text == "" {
		return "", invalid("this is empty: leave it out, or give it a value")
	}
	return text, nil
}
