package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// failWith makes a message fail at a time.
func (r *rig) failWith(id, lastError string, at postdate.Time) {
	r.store.set(keyOf(id), func(rec *postdate.Record) {
		rec.Status, rec.SettledAt, rec.Attempts, rec.LastError = postdate.DeliveryFailed, at, 1, lastError
	})
}

func TestFailures(t *testing.T) {
	r := newRig(t)
	r.send("GET", "/v1/failures", "").want(200, `{"groups":[],"exact":true}`)
	for i := range 9 {
		r.send("POST", "/v1/messages", fmt.Sprintf(`{"scheduleId":"m%d","channel":"inbox:c%d","executionTime":"2027-01-31T12:0%d:00Z","payload":1}`, i, i%2, i)).is(201)
	}
	for id, at := range map[string]postdate.Time{"m1": 9, "m3": 7, "m5": 8} {
		r.failWith(id, "no \"route\"\x00", testNow+at)
	}
	r.failWith("m0", "no \"route\"\x00", testNow+3)
	r.failWith("m2", "down 1", testNow+3)
	r.failWith("m4", "down 2", testNow+4)
	r.settle("m6", postdate.Delivered)
	r.settle("m8", postdate.Cancelled)
	group := func(channel, lastError string, count int, first, last postdate.Time, example string) string {
		return fmt.Sprintf(`{"channel":"inbox:%s","lastError":"%s","count":%d,"exact":true,"firstFailedAt":"%s","lastFailedAt":"%s","example":"%s"}`,
			channel, lastError, count, testNow+first, testNow+last, example)
	}
	const route = `no \"route\"\u0000`
	ones := group("c1", route, 3, 7, 9, "m1")
	all := strings.Join([]string{ones, group("c0", "down 2", 1, 4, 4, "m4"), group("c0", "down 1", 1, 3, 3, "m2"), group("c0", route, 1, 3, 3, "m0")}, ",")
	for query, groups := range map[string]string{
		"":                          all,
		"channel=inbox:c1":          ones,
		"channel=inbox:c":           "",
		"from=2027-01-31T12:05:00Z": group("c1", route, 1, 8, 8, "m5"),
		"to=2027-01-31T12:01:00Z":   group("c0", route, 1, 3, 3, "m0"),
		"from=2027-01-31T12:01:00Z&to=2027-01-31T12:05:00Z&channel=inbox:c1": group("c1", route, 2, 7, 9, "m1"),
	} {
		if a := r.send("GET", "/v1/failures?"+query, ""); a.status != 200 || a.body != `{"groups":[`+groups+`],"exact":true}` {
			t.Errorf("%s: %d %s, want %s", query, a.status, a.body, groups)
		}
	}
	for query, parameter := range map[string]string{
		"status=PENDING": "status", "limit=1": "limit", "channel=x": "channel", "from=today": "from", "to=1": "to",
		"from=2027-01-31T12:00:00Z&to=2027-01-31T12:00:00Z": "to",
	} {
		r.send("GET", "/v1/failures?"+query, "").problem(400, InvalidParameter, `"parameter":"`+parameter+`"`)
	}
	r.store.err = postdate.E(postdate.KindUnavailable, "it rests")
	r.send("GET", "/v1/failures", "").problem(503, Unavailable)
}

// What was not looked at makes the answer inexact, and what is looked at is bounded.
func TestFailuresAreBounded(t *testing.T) {
	r := newRig(t)
	pages, endless := 0, true
	r.store.list = func(q store.ListQuery) (page store.ListPage, _ error) {
		if q.Status != postdate.DeliveryFailed || !q.StatesOnly || q.Limit != failurePage || q.Channel != "" ||
			pages > 0 && q.After.ExecutionTime != postdate.Time(pages) {
			t.Errorf("page %d is asked for by %+v", pages, q)
		}
		for i := range q.Limit {
			rec := postdate.Record{Message: postdate.Message{Key: keyOf("m"), Channel: postdate.Channel(fmt.Sprint("inbox:", i%2))}}
			rec.LastError, rec.SettledAt = fmt.Sprint("error ", i%300), testNow
			page.Records = append(page.Records, rec)
		}
		if pages++; endless || pages < failurePages {
			page.Next = &store.ListPosition{ExecutionTime: postdate.Time(pages)}
		}
		return page, nil
	}
	ask := func(query string) (groups []int, exact []bool) {
		t.Helper()
		pages = 0
		var f struct {
			Groups []struct {
				Count int  `json:"count"`
				Exact bool `json:"exact"`
			} `json:"groups"`
			Exact bool `json:"exact"`
		}
		a := r.send("GET", "/v1/failures"+query, "")
		if err := json.Unmarshal([]byte(a.body), &f); err != nil || a.status != 200 || pages != failurePages {
			t.Fatal(a.status, pages, err)
		}
		for _, g := range f.Groups {
			groups, exact = append(groups, g.Count), append(exact, g.Exact)
		}
		return groups, append(exact, f.Exact)
	}
	groups, exact := ask("")
	if len(groups) != postdate.FailureGroupsMax || !slices.IsSortedFunc(groups, func(a, b int) int { return b - a }) || slices.Contains(exact, true) {
		t.Errorf("groups %v, exact %v", groups, exact)
	}
	endless = false
	if groups, exact = ask(""); len(groups) != postdate.FailureGroupsMax || !exact[0] || exact[len(groups)] {
		t.Errorf("with more groups than fit: %v, exact %v", groups, exact)
	}
	if groups, exact = ask("?channel=inbox:1"); len(groups) != 150 || !exact[0] || !exact[len(groups)] {
		t.Errorf("of one channel: %v, exact %v", groups, exact)
	}
}
