package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// Recurrence says when a message recurs: by Every, or by Cron in a Timezone. Zero fields are left out
// of the request, and defaults out of answers.
type Recurrence struct {
	Every  time.Duration // at least 100 ms
	Anchor time.Time     // the first possible occurrence of Every, from which the others are counted

	Cron     string // five or six fields, or a name such as @hourly
	Timezone string // a name of the IANA database, such as Europe/Berlin

	Start, End   time.Time     // the first and the last moment that may be an occurrence
	MaxRuns      int           // occurrences
	Jitter       time.Duration // each occurrence begins later by a part of it
	Misfire      string        // what could not begin in time: fire_once (the default), fire_all or skip
	MisfireAfter time.Duration // how late an occurrence may begin; 0: one minute
	Gap          string        // of local times that do not exist: after or skip; "": by the rule
	Overlap      string        // of local times that come twice: first, second or both; "": by the rule
}

// recurrenceWire is a Recurrence in the API's form.
type recurrenceWire struct {
	Every        string    `json:"every,omitempty"`
	Anchor       time.Time `json:"anchor,omitzero"`
	Cron         string    `json:"cron,omitempty"`
	Timezone     string    `json:"timezone,omitempty"`
	Start        time.Time `json:"start,omitzero"`
	End          time.Time `json:"end,omitzero"`
	MaxRuns      int       `json:"maxRuns,omitempty"`
	Jitter       string    `json:"jitter,omitempty"`
	Misfire      string    `json:"misfire,omitempty"`
	MisfireAfter string    `json:"misfireAfter,omitempty"`
	Gap          string    `json:"gap,omitempty"`
	Overlap      string    `json:"overlap,omitempty"`
}

// MarshalJSON encodes r in the API's form.
func (r Recurrence) MarshalJSON() ([]byte, error) {
	return json.Marshal(recurrenceWire{durationText(r.Every), r.Anchor, r.Cron, r.Timezone, r.Start, r.End, r.MaxRuns,
		durationText(r.Jitter), r.Misfire, durationText(r.MisfireAfter), r.Gap, r.Overlap})
}

// wholeRule is a rule that replaces another one in a change: fields that it does not have are null.
type wholeRule map[string]json.RawMessage

// ruleFields are the fields of a rule in the API.
var ruleFields = []string{"every", "anchor", "cron", "timezone", "start", "end", "maxRuns", "jitter", "misfire",
	"misfireAfter", "gap", "overlap"}

func wholeRuleOf(r *Recurrence) (whole wholeRule, err error) {
	if r == nil {
		return nil, nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	for _, field := range ruleFields {
		if whole[field] == nil {
			whole[field] = json.RawMessage("null")
		}
	}
	return whole, nil
}

// UnmarshalJSON decodes r from the API's form.
func (r *Recurrence) UnmarshalJSON(b []byte) error {
	var wire recurrenceWire
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	every, everyErr := parseISO(wire.Every)
	jitter, jitterErr := parseISO(wire.Jitter)
	misfireAfter, misfireErr := parseISO(wire.MisfireAfter)
	*r = Recurrence{
		Every: every, Anchor: wire.Anchor, Cron: wire.Cron, Timezone: wire.Timezone, Start: wire.Start, End: wire.End,
		MaxRuns: wire.MaxRuns, Jitter: jitter, Misfire: wire.Misfire, MisfireAfter: misfireAfter, Gap: wire.Gap,
		Overlap: wire.Overlap,
	}
	return errors.Join(everyErr, jitterErr, misfireErr)
}

// parseISO parses a duration in ISO 8601. In hours, minutes and seconds, as the API answers, that is Go's
// form in capitals. "" is zero.
func parseISO(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	return time.ParseDuration(strings.ToLower(strings.TrimPrefix(text, "PT")))
}

// Series is how a message that recurs stands.
type Series struct {
	Paused  bool      `json:"paused"`  // no occurrence begins until it is resumed
	Ending  bool      `json:"ending"`  // it was cancelled too late for an occurrence, and ends with that
	Last    time.Time `json:"last"`    // the last occurrence in History
	Next    time.Time `json:"next"`    // the occurrence that follows; zero: none does, or the series is paused
	Fired   int64     `json:"fired"`   // occurrences that were begun, given up, or triggered
	Failed  int64     `json:"failed"`  // of these, those that were not delivered and are not tried again
	Skipped int64     `json:"skipped"` // those never begun, by the misfire policy, a pause, a change of the rule or a cancel
	History []Outcome `json:"history"` // the last twenty, the latest at the end
}

// Outcome is what became of an occurrence, or of several that were skipped together.
type Outcome struct {
	ExecutionTime time.Time `json:"executionTime"`
	// Status is PENDING for an occurrence that is tried again, or was triggered, as a message of its own. Get
	// says how that stands; List says that it was so.
	Status   Status    `json:"status"`
	At       time.Time `json:"at"` // when that was so
	Attempts int       `json:"attempts"`
	Skipped  int64     `json:"skipped"` // of status SKIPPED: how many, from this one on
}

// Occurrence is a time at which a message would recur.
type Occurrence struct {
	Time   time.Time `json:"time"`
	Remark string    `json:"remark"` // what clocks that are set change here, in English; "": nothing
}

// Preview returns the first count occurrences of a rule that are not before from. If from is zero, they
// come after now; if count is 0, they are ten. They are fewer if the rule ends before. What is wrong with a
// rule is a problem of type InvalidField.
func (c *Client) Preview(ctx context.Context, r Recurrence, from time.Time, count int) ([]Occurrence, error) {
	body, err := json.Marshal(struct {
		Recurrence Recurrence `json:"recurrence"`
		From       time.Time  `json:"from,omitzero"`
		Count      int        `json:"count,omitempty"`
	}{r, from, count})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Occurrences []Occurrence `json:"occurrences"`
	}
	_, err = c.do(ctx, Call{Method: http.MethodPost, Path: "/v1/recurrences/preview", Body: body, Repeatable: true},
		&answer)
	return answer.Occurrences, err
}
