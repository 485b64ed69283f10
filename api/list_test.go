package api

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// page has the parts of a page that a reader relies on.
type page struct {
	Messages []struct {
		ScheduleID string `json:"scheduleId"`
	} `json:"messages"`
	NextCursor *string `json:"nextCursor"`
}

func pageOf(a *answer) (ids string, next *string) {
	a.t.Helper()
	var p page
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.status != 200 {
		a.t.Fatal(a.status, a.body, err)
	}
	for _, m := range p.Messages {
		ids += m.ScheduleID + " "
	}
	return strings.TrimSpace(ids), p.NextCursor
}

func TestListPages(t *testing.T) {
	r := newRig(t)
	for i := range 7 {
		r.send("POST", "/v1/messages", fmt.Sprintf(`{"scheduleId":"m%d","channel":"inbox:c%d","executionTime":"2027-01-31T12:0%d:00Z","payload":1}`, i, i%2, 9-i))
	}
	r.settle("m5", postdate.Delivered)
	list := func(query string) (string, *string) { return pageOf(r.send("GET", "/v1/messages?"+query, "")) }
	for query, want := range map[string]string{
		"":                 "m6 m5 m4 m3 m2 m1 m0",
		"status=PENDING":   "m6 m4 m3 m2 m1 m0",
		"status=DELIVERED": "m5",
		"channel=inbox:c1": "m5 m3 m1",
		"from=2027-01-31T12:05:00Z&to=2027-01-31T13:07:00%2B01:00": "m4 m3",
		"status=CANCELLED": "",
	} {
		if got, next := list(query); got != want || next != nil {
			t.Errorf("%s: %q, %v", query, got, next)
		}
	}
	var all []string
	query := "status=PENDING&limit=4"
	for {
		ids, next := list(query)
		all = append(all, ids)
		if next == nil {
			break
		}
		query = "status=PENDING&limit=1&cursor=" + *next // the limit may change on the way
	}
	if got := strings.Join(all, "|"); got != "m6 m4 m3 m2|m1|m0" {
		t.Errorf("pages %s", got)
	}
	r.send("GET", "/v1/messages?status=CANCELLED", "").want(200, `{"messages":[]}`)
	first := r.send("GET", "/v1/messages?limit=4", "")
	if !strings.HasSuffix(first.body, `","searchedUntil":"2027-01-31T12:06:00.000Z"}`) {
		t.Errorf("the page does not say how far the list has come: %s", first.body)
	}
}

// TestListRecurring lists series, or what is sent once, with the other filters and page by page.
func TestListRecurring(t *testing.T) {
	r := newRig(t)
	for i := range 6 {
		when := `"executionTime":"2027-01-31T12:00:00Z"`
		if i%2 == 0 {
			when = `"recurrence":{"every":"PT1H","start":"2027-01-31T12:00:00Z"}`
		}
		r.send("POST", "/v1/messages", fmt.Sprintf(`{"scheduleId":"m%d","channel":"inbox:c%d",%s,"payload":1,"labels":["l%d"]}`, i, i%3, when, i/4)).is(201)
	}
	r.send("DELETE", "/v1/messages/m2", "").is(200)
	for query, want := range map[string]string{
		"recurring=true":                   "m0 m2 m4",
		"recurring=false":                  "m1 m3 m5",
		"recurring=true&status=PENDING":    "m0 m4",
		"recurring=true&status=CANCELLED":  "m2",
		"recurring=true&channel=inbox:c1":  "m4",
		"recurring=false&channel=inbox:c1": "m1",
		"recurring=true&label=l1":          "m4",
		"recurring=true&idPrefix=m1":       "",
	} {
		ids, next := pageOf(r.send("GET", "/v1/messages?"+query, ""))
		found := strings.Fields(ids) // those at the same time come by their buckets
		slices.Sort(found)
		if strings.Join(found, " ") != want || next != nil {
			t.Errorf("%s: %q, %v", query, found, next)
		}
	}
	one, next := pageOf(r.send("GET", "/v1/messages?recurring=true&limit=2", ""))
	two, end := pageOf(r.send("GET", "/v1/messages?recurring=true&cursor="+*next, ""))
	if all := strings.Fields(one + " " + two); len(all) != 3 || end != nil {
		t.Errorf("pages %q and %q, %v", one, two, end)
	}
}

func TestListRefuses(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.send("POST", "/v1/messages", order(fmt.Sprint("m", i)))
	}
	_, next := pageOf(r.send("GET", "/v1/messages?limit=1", ""))
	for query, parts := range map[string][]string{
		"statuz=PENDING":                  {`"parameter":"statuz"`, `"suggestion":"status"`},
		"x=1":                             {`"parameter":"x"`, "known are status, channel"},
		"status=pending":                  {`"parameter":"status"`, "PENDING"},
		"status=PENDING&status=DELIVERED": {"stands twice"},
		"channel=x":                       {`"parameter":"channel"`},
		"label=":                          {`"parameter":"label"`, "empty"},
		"label=a%2Fb":                     {`"parameter":"label"`, "forbidden character"},
		"label=a&label=b":                 {`"parameter":"label"`, "stands twice"},
		"idPrefix=":                       {`"parameter":"idPrefix"`, "leave it out"},
		"idPrefix=a+b":                    {`"parameter":"idPrefix"`, "forbidden character"},
		"idPrefix=a%2Fb":                  {`"parameter":"idPrefix"`, "the time of an occurrence"},
		"recurring=":                      {`"parameter":"recurring"`, "neither true"},
		"recurring=True":                  {`"parameter":"recurring"`, "leave it out for both"},
		"recurring=true&recurring=true":   {`"parameter":"recurring"`, "stands twice"},
		"from=today":                      {`"parameter":"from"`, "RFC 3339"},
		"from=2027-01-31T12:00:00+01:00":  {`"parameter":"from"`, "%2B"},
		"from=2027-01-31T12:00:00Z&to=2027-01-31T12:00:00Z": {`"parameter":"to"`, "after from"},
		"limit=0":                              {`"parameter":"limit"`, "1000"},
		"limit=1001":                           {`"parameter":"limit"`},
		"limit=ten":                            {`"parameter":"limit"`},
		"cursor=":                              {`"parameter":"cursor"`},
		"cursor=AAAA":                          {`"parameter":"cursor"`, "begin without one"},
		"cursor=" + *next + "A":                {`"parameter":"cursor"`},
		"cursor=" + *next + "&status=PENDING":  {`"parameter":"cursor"`, "other filters"},
		"cursor=" + *next + "&recurring=false": {`"parameter":"cursor"`, "other filters"},
		"cursor=" + *next + "&from=2020-01-01T00:00:00Z": {`"parameter":"cursor"`},
	} {
		r.send("GET", "/v1/messages?"+query, "").problem(400, InvalidParameter, parts...)
	}
}

// TestListBoundsAPage checks that payloads that are large in JSON end a page early, and that the
// reader gets the rest.
func TestListBoundsAPage(t *testing.T) {
	r := newRig(t)
	large := bytes.Repeat([]byte{1}, 1<<20) // 6 MiB in JSON
	for i := range 5 {
		id := fmt.Sprint("m", i)
		m := postdate.Message{Key: keyOf(id), Channel: "inbox:a", ExecutionTime: testNow + postdate.Time(i),
			Encoding: postdate.EncodingText, Payload: large}
		r.store.Insert(t.Context(), []postdate.Message{m})
	}
	ids, next := pageOf(r.send("GET", "/v1/messages", ""))
	if ids != "m0 m1 m2" || next == nil {
		t.Fatalf("%q, %v", ids, next)
	}
	ids, next = pageOf(r.send("GET", "/v1/messages?cursor="+url.QueryEscape(*next), ""))
	if ids != "m3 m4" || next != nil {
		t.Fatalf("%q, %v", ids, next)
	}
}

// TestListGoesOnAfterAShortPage checks that a list ends only where a page has no cursor.
func TestListGoesOnAfterAShortPage(t *testing.T) {
	r := newRig(t)
	r.store.list = func(q store.ListQuery) (store.ListPage, error) {
		if q.After == nil {
			return store.ListPage{Next: &store.ListPosition{ExecutionTime: 5, Bucket: 63, ScheduleID: "m"}}, nil
		}
		if *q.After != (store.ListPosition{ExecutionTime: 5, Bucket: 63, ScheduleID: "m"}) {
			t.Errorf("after %v", q.After)
		}
		return store.ListPage{}, nil
	}
	ids, next := pageOf(r.send("GET", "/v1/messages", ""))
	if ids != "" || next == nil {
		t.Fatal("the list ended")
	}
	if _, next = pageOf(r.send("GET", "/v1/messages?cursor="+*next, "")); next != nil {
		t.Error("the list did not end")
	}
}

func TestInbox(t *testing.T) {
	r := newRig(t)
	r.inbox.messages = []store.InboxMessage{
		{ScheduleID: "a", ExecutionTime: testNow, DeliveredAt: testNow + 1, Attempt: 1, ContentType: "application/json", Payload: []byte(`{"a": 1}`)},
		{ScheduleID: "b", ExecutionTime: testNow, DeliveredAt: testNow + 2, Attempt: 2, PossibleDuplicate: true, ContentType: "text/plain", Encoding: postdate.EncodingText, Payload: []byte("a\"\n"), Headers: []postdate.Header{{Name: "h", Value: "1"}, {Name: "i", Value: "\\"}}},
		{ScheduleID: "c", ExecutionTime: testNow, DeliveredAt: testNow + 3, Attempt: 1, ContentType: "application/octet-stream", Encoding: postdate.EncodingBase64, Payload: []byte("\xff\x00")},
	}
	r.send("GET", "/v1/inbox/test?limit=2", "").want(200, `{"messages":[`+
		`{"scheduleId":"a","executionTime":"2027-01-30T12:00:00.000Z","deliveredAt":"2027-01-30T12:00:00.001Z","attempt":1,"contentType":"application/json","payload":{"a": 1},"headers":{}},`+
		`{"scheduleId":"b","executionTime":"2027-01-30T12:00:00.000Z","deliveredAt":"2027-01-30T12:00:00.002Z","attempt":2,"possibleDuplicate":true,"contentType":"text/plain","payload":"a\"\n","headers":{"h":"1","i":"\\"}}`+
		`],"nextCursor":"2"}`)
	r.send("GET", "/v1/inbox/test?after=2&wait=30s", "").want(200, `{"messages":[`+
		`{"scheduleId":"c","executionTime":"2027-01-30T12:00:00.000Z","deliveredAt":"2027-01-30T12:00:00.003Z","attempt":1,"contentType":"application/octet-stream","payloadEncoding":"base64","payload":"/wA=","headers":{}}`+
		`],"nextCursor":"3"}`)
	r.send("GET", "/v1/inbox/test?after=3&wait=10ms", "").want(200, `{"messages":[],"nextCursor":"3"}`)
	for path, parts := range map[string][]string{
		"test?wait=31s":   {`"parameter":"wait"`, "30s"},
		"test?wait=-1s":   {`"parameter":"wait"`},
		"test?wait=soon":  {`"parameter":"wait"`},
		"test?limit=1001": {`"parameter":"limit"`},
		"test?after=x":    {`"parameter":"after"`, "not a cursor"},
		"test?afer=1":     {`"suggestion":"after"`},
		"a%20b":           {`"parameter":"name"`, "forbidden character"},
		"%F0%28":          {`"parameter":"name"`},
	} {
		r.send("GET", "/v1/inbox/"+path, "").problem(400, InvalidParameter, parts...)
	}
	r.inbox.err = postdate.E(postdate.KindUnavailable, "down")
	r.send("GET", "/v1/inbox/test", "").problem(503, Unavailable)
}

// TestCursorOfPrefix: a cursor goes on only where ids begin as they did, and those of before there were prefixes
// stay valid.
func TestCursorOfPrefix(t *testing.T) {
	at := store.ListPosition{ExecutionTime: testNow, Bucket: 3, ScheduleID: "a"}
	queries := []store.ListQuery{{Tenant: "acme", Channel: "inbox:a"}, {Tenant: "acme", Channel: "inbox:a", IDPrefix: "a"},
		{Tenant: "acme", Channel: "inbox:a", IDPrefix: "ab"}, {Tenant: "acmea", Channel: "inbox:a"},
		{Tenant: "acme", Channel: "inbox:a", Recurring: store.OnlyRecurring}, {Tenant: "acme", Channel: "inbox:a", Recurring: store.NotRecurring},
		{Tenant: "acme", Channel: "inbox:a", IDPrefix: "a", Recurring: store.OnlyRecurring}, {Tenant: "acme", Channel: "inbox:a", Label: "a", Recurring: store.OnlyRecurring}}
	if got, want := cursorOf(&queries[0], &at), "AYxcVgegll_GgNzds7Y0A2E"; got != want {
		t.Errorf("a cursor without a prefix is %q, and was %q", got, want)
	}
	for i := range queries {
		cursor := cursorOf(&queries[i], &at)
		for j := range queries {
			got, err := parseCursor(&queries[j], cursor, testBuckets)
			if i == j && (err != nil || *got != at) || i != j && err == nil {
				t.Errorf("a cursor of %+v in %+v: %+v, %v", queries[i], queries[j], got, err)
			}
		}
	}
}

// TestCursorBeforeAllIDs: a page that ends among messages of other tenants has a cursor without an id.
func TestCursorBeforeAllIDs(t *testing.T) {
	q := &store.ListQuery{Tenant: "acme"}
	at := store.ListPosition{ExecutionTime: testNow, Bucket: 3}
	if got, err := parseCursor(q, cursorOf(q, &at), testBuckets); err != nil || *got != at {
		t.Errorf("%+v, %v, want %+v", got, err, at)
	}
}
