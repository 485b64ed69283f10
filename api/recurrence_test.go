package api

import (
	"strings"
	"testing"

	"github.com/postdate/postdate"
)

// A preview answers what a rule says, from just after now, or from a time on.
func TestPreview(t *testing.T) {
	r := newRig(t) // at 2027-01-30T12:00:00Z
	for _, c := range []struct{ body, want string }{
		{`{"recurrence":{"every":"PT30M"},"count":2}`,
			`{"time":"2027-01-30T12:30:00.000Z"},{"time":"2027-01-30T13:00:00.000Z"}`},
		{`{"recurrence":{"every":"100ms","anchor":"2027-01-30T12:00:00Z"},"from":"2027-01-30T12:00:00.000Z","count":1}`,
			`{"time":"2027-01-30T12:00:00.000Z"}`},
		{`{"recurrence":{"every":"P1D","start":"2027-02-01T08:00:00+01:00","end":"2027-02-02T08:00:00+01:00"}}`,
			`{"time":"2027-02-01T07:00:00.000Z"},{"time":"2027-02-02T07:00:00.000Z"}`},
		{`{"recurrence":{"every":"P1D","maxRuns":1,"jitter":"1h","misfire":"fire_all","misfireAfter":"5m"}}`,
			`{"time":"2027-01-31T12:00:00.000Z"}`},
		{`{"recurrence":{"every":"P1D","anchor":null,"cron":null,"end":"2027-01-30T12:00:00Z"},"from":null,"count":null}`, ``},
		{`{"recurrence":{"cron":"30 2 * * *","timezone":"Europe/Berlin"},"from":"2027-03-28T00:00:00+01:00","count":2}`,
			`{"time":"2027-03-28T01:00:00.000Z","remark":"2027-03-28 02:30 does not exist: the clock goes from 02:00 to 03:00"},` +
				`{"time":"2027-03-29T00:30:00.000Z"}`},
		{`{"recurrence":{"cron":"30 2 * * *","timezone":"Europe/Berlin","gap":"skip","overlap":"both"},"from":"2027-03-28T00:00:00+01:00","count":1}`,
			`{"time":"2027-03-29T00:30:00.000Z","remark":"the clock goes from 2027-03-28 02:00 to 03:00: what recurs between is left out"}`},
		{`{"recurrence":{"cron":"30 2 31 10 *","timezone":"Europe/Berlin","overlap":"second"},"count":1}`,
			`{"time":"2027-10-31T01:30:00.000Z","remark":"02:30 comes twice: this is the second"}`},
	} {
		r.send("POST", "/v1/recurrences/preview", c.body).want(200, `{"occurrences":[`+c.want+`]}`)
	}
	for _, c := range []struct {
		body string
		want int
	}{
		{`{"recurrence":{"cron":"* * * * *","timezone":"UTC"}}`, 10},
		{`{"recurrence":{"cron":"* * * * *","timezone":"UTC"},"count":1000}`, 1000},
		{`{"recurrence":{"cron":"0 0 29 2 *","timezone":"UTC"},"count":1000}`, 24}, // in a hundred years
	} {
		a := r.send("POST", "/v1/recurrences/preview", c.body)
		if n := strings.Count(a.body, `"time"`); n != c.want {
			t.Errorf("%s: %d occurrences, want %d", c.body, n, c.want)
		}
	}
}

// What is no rule is refused, with the field that is at fault.
func TestPreviewRefused(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ recurrence, pointer, words string }{
		{`{}`, "", "needs every"},
		{`{"every":"PT0S"}`, "/every", "must be more than 0"},
		{`{"every":"PT0.05S"}`, "/every", "at least 100ms"},
		{`{"every":"P1M"}`, "/every", "whose length varies"},
		{`{"cron":"0 0 * * FRIL","timezone":"UTC"}`, "/cron", "for the day of week"},
		{`{"every":5}`, "/every", `write it like \"15m\"`},
		{`{"every":"1s","cron":"@daily"}`, "", "not both"},
		{`{"every":"1s","anchor":"tomorrow"}`, "/anchor", "RFC 3339"},
		{`{"every":"1s","start":17}`, "/start", "2027-01-31T09:30:00Z"},
		{`{"every":"1s","maxRuns":0}`, "/maxRuns", "at least 1"},
		{`{"every":"1s","maxRuns":-1}`, "/maxRuns", "at least 1"},
		{`{"every":"1s","maxRuns":1000000001}`, "/maxRuns", "maxRuns"},
		{`{"every":"1s","misfire":"fire"}`, "/misfire", "fire_once, fire_all, skip"},
		{`{"every":"1s","misfire":""}`, "/misfire", "is not one of"},
		{`{"every":"1s","misfireAfter":"0s"}`, "/misfireAfter", "more than 0"},
		{`{"every":"1s","jitter":"-1s"}`, "/jitter", "jitter"},
		{`{"cron":"@daily"}`, "", "needs a timezone"},
		{`{"cron":"","timezone":"UTC"}`, "/cron", "empty"},
		{`{"cron":"@daily","timezone":""}`, "/timezone", "empty"},
		{`{"cron":"@daily","timezone":"Local"}`, "/timezone", "unknown"},
		{`{"every":"1s","misfireAfter":"1ns"}`, "/misfireAfter", "whole milliseconds"},
		{`{"every":"1s","overlap":"both"}`, "", "go with cron"},
		{`{"every":"1s","maxRuns":3.0}`, "/maxRuns", "not 3.0: write it in digits alone"},
		{`{"every":"1s","maxRuns":3.5}`, "/maxRuns", "a whole number was expected"},
		{`{"cron":"@daily","timezone":"UTC","gap":"wait"}`, "/gap", "after, skip"},
		{`{"cron":"@daily","timezone":"UTC","overlap":"none"}`, "/overlap", "first, second, both"},
	} {
		body := `{"recurrence":` + c.recurrence + `}`
		a := r.send("POST", "/v1/recurrences/preview", body)
		a.problem(400, InvalidField, `"pointer":"/recurrence`+c.pointer+`"`)
		if !strings.Contains(a.body, c.words) {
			t.Errorf("%s: %s, want %q", body, a.body, c.words)
		}
	}
	for body, words := range map[string]string{
		`{}`: "give a recurrence", `{"recurrence":null}`: "give a recurrence", `{"recurrence":"PT1S"}`: "an object was expected at /recurrence",
		`{"recurrence":{"every":"1s"},"count":0}`: "between 1 and 1000", `{"recurrence":{"every":"1s"},"count":1001}`: "between 1 and 1000",
		`{"recurrence":{"every":"1s"},"from":"now"}`: "RFC 3339", `{"recurrence":{"evry":"1s"}}`: `"suggestion":"every"`,
		`{"recurrence":{"every":"1s"},"form":1}`: `"suggestion":"from"`,
		`{"cron":"@daily","timezone":"UTC"}`:     `\"cron\" is not known here: put it into recurrence`, `[]`: "an object was expected",
	} {
		if a := r.send("POST", "/v1/recurrences/preview", body); a.status != 400 || !strings.Contains(a.body, words) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	r.send("POST", "/v1/recurrences/preview?x=1", `{}`).problem(400, InvalidParameter, "x")
}

// FuzzPreview: whatever is sent is answered with occurrences, or says what is wrong.
func FuzzPreview(f *testing.F) {
	f.Add(`{"recurrence":{"cron":"30 2 * * *","timezone":"Europe/Berlin","gap":"skip"},"from":"2027-03-28T00:00:00+01:00","count":2}`)
	f.Add(`{"recurrence":{"every":"PT1S","anchor":"2027-03-28T00:00:00Z","jitter":"1s","maxRuns":3}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var body previewBody
		if p := decodeBody([]byte(text), &body); p != nil {
			return
		}
		rule, before, count, p := body.read(testNow)
		if p != nil {
			if p.HTTPStatus() != 400 || p.Detail == "" {
				t.Errorf("%s: %+v", text, p)
			}
			return
		}
		if at, ok := rule.After(before); ok && (at <= before || at > postdate.LatestTime) || count < 1 || count > postdate.PreviewMax {
			t.Errorf("%s: %d follows %d, %d times", text, at, before, count)
		}
	})
}
