package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

func TestUpcoming(t *testing.T) {
	r := newRig(t)
	for i, at := range []string{"12:00:00Z", "12:00:29.999Z", "12:00:30Z", "12:01:00Z", "12:01:10Z"} {
		r.send("POST", "/v1/messages", fmt.Sprintf(`{"scheduleId":"m%d","channel":"inbox:c%d","executionTime":"2027-01-31T%s","payload":1}`, i, i%2, at))
	}
	const span = "/v1/upcoming?from=2027-01-31T12:00:00Z&to=2027-01-31T12:01:10Z&step=PT30S"
	r.send("GET", span, "").want(200, `{"slots":[`+
		`{"from":"2027-01-31T12:00:00.000Z","count":2,"exact":true,"channels":[{"channel":"inbox:c0","count":1},{"channel":"inbox:c1","count":1}]},`+
		`{"from":"2027-01-31T12:00:30.000Z","count":1,"exact":true,"channels":[{"channel":"inbox:c0","count":1}]},`+
		`{"from":"2027-01-31T12:01:00.000Z","count":1,"exact":true,"channels":[{"channel":"inbox:c1","count":1}]}]}`)
	r.send("GET", span+"&channel=inbox:c1", "").want(200, `{"slots":[`+
		`{"from":"2027-01-31T12:00:00.000Z","count":1,"exact":true},`+
		`{"from":"2027-01-31T12:00:30.000Z","count":0,"exact":true},`+
		`{"from":"2027-01-31T12:01:00.000Z","count":1,"exact":true}]}`)
	if a := r.send("GET", "/v1/upcoming", ""); a.status != 200 || strings.Count(a.body, `"channels":[]`) != 60 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.store.err = postdate.E(postdate.KindUnavailable, "it rests")
	if a := r.send("GET", "/v1/upcoming", ""); a.status != 503 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What the client leaves out has a default that people can count in.
func TestUpcomingDefaults(t *testing.T) {
	const now = postdate.Time(1_800_000_000_000)
	for text, want := range map[string]store.UpcomingQuery{
		"":                               {From: now, To: now + 3_600_000, Step: time.Minute},
		"from=2027-01-31T12:00:00Z":      {From: 1_801_396_800_000, To: 1_801_400_400_000, Step: time.Minute},
		"to=2027-01-15T08:00:30Z":        {From: now, To: now + 30_000, Step: time.Second},
		"to=2027-01-16T08:00:00Z":        {From: now, To: now + 86_400_000, Step: 30 * time.Minute},
		"to=2027-07-15T08:00:00Z":        {From: now, To: now + 181*86_400_000, Step: 4 * 24 * time.Hour},
		"step=90s":                       {From: now, To: now + 3_600_000, Step: 90 * time.Second},
		"step=1.0000001s&channel=inbox:": {},
		"step=PT10.0005S":                {From: now, To: now + 3_600_000, Step: 10_001 * time.Millisecond},
		"step=P7D&channel=inbox:a":       {From: now, To: now + 3_600_000, Step: 7 * 24 * time.Hour, Channel: "inbox:a"},
	} {
		var args fasthttp.Args
		args.Parse(text)
		q, p := upcomingQuery(&args, "acme", now)
		if want == (store.UpcomingQuery{}) {
			if p == nil {
				t.Errorf("%s is taken", text)
			}
			continue
		}
		if want.Tenant = "acme"; p != nil || q != want {
			t.Errorf("%s: %+v, want %+v: %v", text, q, want, p)
		}
	}
}

func TestUpcomingRefuses(t *testing.T) {
	r := newRig(t)
	for query, parts := range map[string][]string{
		"steps=1s":                {`"parameter":"steps"`, `"suggestion":"step"`},
		"x=1":                     {`"parameter":"x"`, "known are from, to, step, channel"},
		"step=999ms":              {`"parameter":"step"`, "at least 1s"},
		"step=-1m":                {`"parameter":"step"`, "at least 1s"},
		"step=1":                  {`"parameter":"step"`, "not a duration"},
		"step=2562047h":           {`"parameter":"step"`, "at most 100,000 days"},
		"step=1s":                 {`"parameter":"step"`, "3,600 slots, and at most 500 are allowed: take a longer step or a shorter range"},
		"channel=a":               {`"parameter":"channel"`},
		"from=now":                {`"parameter":"from"`, "RFC 3339"},
		"to=tomorrow":             {`"parameter":"to"`, "RFC 3339"},
		"step=1m&step":            {"stands twice"},
		"to=2020-01-01T00:00:00Z": {`"parameter":"to"`, "must lie after from"},
		"from=2027-01-31T12:00:00Z&to=2027-01-31T12:00:00Z": {`"parameter":"to"`, "must lie after from"},
	} {
		a := r.send("GET", "/v1/upcoming?"+query, "")
		for _, part := range parts {
			if a.status != 400 || !strings.Contains(a.body, part) {
				t.Errorf("%s: %d %s, want %s", query, a.status, a.body, part)
			}
		}
	}
}
