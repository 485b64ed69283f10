package api

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-jose/go-jose/v4"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/oidctest"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
)

// saidInWords are rules that the document has in the descriptions of these schemas: as schemas,
// they would keep generators from making clients. The tests in clients read them too.
//
//go:embed testdata/words.json
var saidInWords []byte

// withWords returns the document with the rules that it says in words.
func withWords(t *testing.T) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var words map[string]map[string]any
	if err := json.Unmarshal(saidInWords, &words); err != nil {
		t.Fatal(err)
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name, rules := range words {
		schema := schemas[name].(map[string]any)
		for keyword, rule := range rules {
			if schema[keyword] != nil || schema["description"] == nil {
				t.Errorf("%s has %s already, or no words", name, keyword)
			}
			schema[keyword] = rule
		}
	}
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// loadDocument reads the document, with what it says in words. It closes the schemas that are neither
// closed nor open there, so that it catches an answer with a member that the document does not have.
func loadDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(withWords(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, schema := range doc.Components.Schemas {
		if len(schema.Value.Properties) > 0 && schema.Value.AdditionalProperties.Has == nil {
			closed := false
			schema.Value.AdditionalProperties.Has = &closed
		}
	}
	return doc
}

// operations returns the document's operations by "METHOD path".
func operations(doc *openapi3.T) map[string]*openapi3.Operation {
	all := map[string]*openapi3.Operation{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			all[method+" "+path] = operation
		}
	}
	return all
}

func TestProblemTypesAreTheDocuments(t *testing.T) {
	var documented []string
	for _, kind := range loadDocument(t).Components.Schemas["ProblemType"].Value.Enum {
		documented = append(documented, kind.(string))
	}
	var known []string
	for kind := range problemKinds {
		known = append(known, ProblemPrefix+string(kind))
	}
	// Generators that know it take the names of constants from here.
	names := loadDocument(t).Components.Schemas["ProblemType"].Value.Extensions["x-enum-varnames"].([]any)
	for i, kind := range documented {
		want := strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(kind, ProblemPrefix), "-", "_"))
		if i >= len(names) || names[i] != want {
			t.Errorf("the name of %s is not %s, in %v", kind, want, names)
		}
	}
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(known, documented) {
		t.Errorf("known      %q\ndocumented %q", known, documented)
	}
}

func TestRoutesAreTheDocuments(t *testing.T) {
	var served []string
	for _, route := range routes {
		served = append(served, route.method+" "+route.path)
	}
	slices.Sort(served)
	documented := slices.Sorted(maps.Keys(operations(loadDocument(t))))
	if !slices.Equal(served, documented) {
		t.Errorf("served     %q\ndocumented %q", served, documented)
	}
}

// contract sends requests, checks them and their answers against the document,
// and records which answers it saw.
type contract struct {
	*rig
	doc    *openapi3.T
	router routers.Router
	seen   map[string]bool // "METHOD path status"
}

// call sends a request and expects the status. If that is a success, the document
// must allow the request itself.
func (c *contract) call(status int, method, path, body string, headers ...string) {
	c.t.Helper()
	c.send(status, "", method, path, body, headers...)
}

// inWords is call, for a request that the document allows in words only, which begin so.
func (c *contract) inWords(words string, status int, method, path, body string, headers ...string) {
	c.t.Helper()
	c.send(status, words, method, path, body, headers...)
}

// mergePatch is call, with the other media type of a change. The document has it in words, since
// generators make no client of two.
func (c *contract) mergePatch(path, body string) {
	c.t.Helper()
	c.call(200, "PATCH", path, body)
	c.inWords(" Content-Type: application/merge-patch+json is taken too.", 200, "PATCH", path, body, "Content-Type: application/merge-patch+json")
}

// send is call, or inWords if there are words.
func (c *contract) send(status int, words, method, path, body string, headers ...string) {
	c.t.Helper()
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	for name, value := range params { // the router leaves them escaped
		if params[name], err = url.PathUnescape(value); err != nil {
			c.t.Fatal(err)
		}
	}
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if text := fmt.Sprint(route.Operation.Description, requestDescription(route.Operation)); words != "" {
		if !strings.Contains(text, words) {
			c.t.Errorf("the document does not say of %s %s: %s", method, path, words)
		}
	} else if status < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			c.t.Errorf("the document does not allow %s %s %s: %v", method, path, body, err)
		}
		if body != "" {
			req.Body = io.NopCloser(strings.NewReader(body))
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if res.StatusCode != status {
		c.t.Fatalf("%s %s: %d %s, want %d", method, path, res.StatusCode, text, status)
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(text)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		c.t.Errorf("the document does not know %s %s: %d %s: %v", method, path, status, text, err)
	}
	c.seen[fmt.Sprintf("%s %s %d", method, route.Path, status)] = true
}

// requestDescription returns what the document says of an operation's JSON body.
func requestDescription(o *openapi3.Operation) string {
	if o.RequestBody == nil {
		return ""
	}
	return o.RequestBody.Value.Content["application/json"].Schema.Value.Description
}

// TestAnswersAreTheDocuments makes every call of the document answer with every
// status that the document names, and checks each answer against the document.
func TestAnswersAreTheDocuments(t *testing.T) {
	doc := loadDocument(t)
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	issuer := oidctest.New(t)
	issuer.Away.Store(true)
	withTokens := func(c *Config) {
		c.Tokens = auth.NewTokens(auth.Issuer{URL: issuer.URL, Audience: "postdate", TenantClaim: "tenant", ScopeClaim: "scope",
			Now: c.Now, Log: c.Log})
	}
	c := &contract{rig: newRig(t, withKeys, withTokens, withSlowTenant), doc: doc, router: router, seen: map[string]bool{}}
	c.successes()
	c.refusals()
	c.strangers()
	c.limited()
	c.unjudged(string(oidctest.Sign(t, oidctest.KeyFor(t, jose.ES256, "a"), issuer.Claims(testNow.Std()))))
	c.failures()
	for name, operation := range operations(doc) {
		for status := range operation.Responses.Map() {
			if !c.seen[name+" "+status] {
				t.Errorf("no request was answered with what is documented: %s %s", name, status)
			}
		}
	}
}

func (c *contract) successes() {
	full := `{"scheduleId":"full","channel":"rabbitmq:orders","delay":"PT15M","payload":"AA==","payloadEncoding":"base64","contentType":"image/png","headers":{"h":"1"},"key":"k","priority":"high","labels":["a","b"],"expiresAt":"2027-02-01T00:00:00Z","retry":{"maxAttempts":3,"minBackoff":"1s","maxBackoff":"PT1M","maxParked":"PT24H"},"failureChannel":"inbox:failed"}`
	c.call(201, "POST", "/v1/messages", order("a"), "Traceparent: x")
	c.call(200, "POST", "/v1/messages", order("a"))
	c.call(201, "POST", "/v1/messages", full)
	c.call(201, "PUT", "/v1/messages/put", order("put"))
	c.call(200, "PUT", "/v1/messages/put", order("put"))
	c.call(200, "PATCH", "/v1/messages/put", `{"delay":"PT1H","payload":null}`)
	c.call(200, "PATCH", "/v1/messages/put", `{"labels":["a"]}`)
	c.call(200, "PATCH", "/v1/messages/put", `{"labels":null}`)
	c.mergePatch("/v1/messages/put", `{"executionTime":"2027-03-01T00:00:00Z"}`)
	c.mergePatch("/v1/messages/put", `{"failureChannel":"inbox:failed"}`)
	c.mergePatch("/v1/messages/put", `{"failureChannel":null}`)
	for _, state := range []postdate.State{
		{Status: postdate.Pending, AttemptTime: testNow}, {Status: postdate.Pending, Parked: true, LastError: "down"},
		{Status: postdate.Delivered, SettledAt: testNow, PossibleDuplicate: true}, {Status: postdate.DeliveryFailed, SettledAt: testNow, LastError: "refused"},
		{Status: postdate.Cancelled, SettledAt: testNow},
	} {
		c.store.set(keyOf("full"), func(r *postdate.Record) { r.State = state })
		c.call(200, "GET", "/v1/messages/full", "")
	}
	c.call(200, "GET", "/v1/messages?status=PENDING&channel=inbox:test&label=a&idPrefix=f&recurring=false&from=2027-01-01T00:00:00Z&to=2028-01-01T00:00:00Z&limit=1", "")
	c.series()
	c.call(200, "DELETE", "/v1/messages/a", "")
	c.call(201, "POST", "/schedulers", task("INSERT"))
	c.call(200, "POST", "/schedulers", strings.Replace(task("UPDATE"), "1801396800000", `"2027-03-01T00:00:00Z"`, 1))
	c.call(200, "GET", "/schedulers?host=default&unit=SECONDS&limit=1", "")
	c.call(200, "GET", "/schedulers?name=sweep", "")
	c.call(200, "POST", "/schedulers", task("DELETE"))
	c.call(200, "POST", "/v1/messages/batch", "["+order("b")+","+full+"]")
	c.inWords("An item that is no Schedule fails alone.", 200, "POST", "/v1/messages/batch", "["+order("b")+`,{"x":1},7]`)
	c.inWords("NDJSON (Content-Type: application/x-ndjson)", 200, "POST", "/v1/messages/batch", order("b")+"\n{", "Content-Type: application/x-ndjson")
	c.call(200, "POST", "/v1/messages/cancel", `{"scheduleIds":["b","none","x y"]}`)
	c.call(202, "POST", "/v1/messages/cancel", `{"filter":{"label":"a","idPrefix":"a","channel":"inbox:test","from":"2027-01-01T00:00:00Z","to":"2028-01-01T00:00:00Z"}}`)
	c.jobs()
	c.failed()
	c.inbox.messages = []store.InboxMessage{
		{ScheduleID: "a", ExecutionTime: testNow, DeliveredAt: testNow, Attempt: 1, ContentType: "application/json", Payload: []byte("null")},
		{ScheduleID: "b", ExecutionTime: testNow, DeliveredAt: testNow, Attempt: 2, PossibleDuplicate: true, ContentType: "image/png", Encoding: postdate.EncodingBase64, Headers: []postdate.Header{{Name: "h", Value: "1"}}},
		{ScheduleID: "b/2027-01-30T12:00:00.000Z!7", ExecutionTime: testNow, DeliveredAt: testNow, Attempt: 1, ContentType: "application/json", Payload: []byte("1")},
	}
	c.call(200, "GET", "/v1/inbox/test?limit=5&wait=PT1S", "")
	c.call(200, "POST", "/v1/inbox/test/consumers/a/receive", "{}")
	c.call(200, "POST", "/v1/inbox/test/consumers/a/receive", `{"limit":2,"wait":"PT1S","visibility":"12h"}`)
	c.call(200, "POST", "/v1/inbox/test/consumers/a/ack", `{"receipts":["x","`+receiptOf("default", "test", "a", 1)+`","`+receiptOf("default", "test", "a", 2)+`"]}`)
	c.call(200, "GET", "/v1/failures?channel=inbox:test&from=2027-01-01T00:00:00Z&to=2028-01-01T00:00:00Z", "")
	c.call(200, "GET", "/v1/upcoming", "")
	c.call(200, "GET", "/v1/upcoming?from=2027-01-01T00:00:00Z&to=2028-01-01T00:00:00Z&step=P1D&channel=inbox:test", "")
	c.call(200, "POST", "/v1/recurrences/preview", `{"recurrence":{"every":"PT1S"}}`)
	c.call(200, "POST", "/v1/recurrences/preview", `{"recurrence":{"cron":"30 2 * * *","timezone":"Europe/Berlin"},"from":"2027-03-27T00:00:00Z","count":3}`)
	c.call(201, "POST", "/v1/keys", `{"tenant":"acme","scopes":["sched:r","ops:r"]}`)
	c.call(201, "POST", "/v1/keys", `{"tenant":"acme","scopes":["admin"],"channels":["*"],"expires":"90d"}`)
	key := c.key("acme", auth.Admin)
	c.call(200, "GET", "/v1/keys", "", "Authorization: Bearer "+key)
	c.call(200, "DELETE", "/v1/keys/"+key[3:15], "")
	c.call(200, "PATCH", "/v1/channels", `{"channel":"inbox:test","paused":true,"maxPerSecond":0.5}`)
	c.mergePatch("/v1/channels", `{"channel":"inbox:b","maxInFlight":3}`)
	c.mergePatch("/v1/channels", `{"channel":"inbox:b","failureChannel":"inbox:failed"}`)
	c.mergePatch("/v1/channels", `{"channel":"inbox:test","failureChannel":null}`)
	c.call(200, "PATCH", "/v1/tenants/acme", `{"requestsPerSecond":0.5,"pendingMax":7,"weight":2}`)
	c.mergePatch("/v1/tenants/acme", `{"requestsPerSecond":null}`)
	for _, path := range []string{"/v1/tenants", "/v1/channels", "/v1/cluster", "/v1/stats", "/v1/whoami", "/healthz", "/readyz", "/metrics", "/openapi.json"} {
		c.call(200, "GET", path, "")
	}
}

// jobs reads a job that has begun, and one that is done.
func (c *contract) jobs() {
	key := bucket.KeyOf("default", "job", testBuckets)
	job := store.Job{Key: key, Kind: store.JobPurge, CreatedAt: testNow}
	if err := c.store.CreateJob(context.Background(), job); err != nil {
		c.t.Fatal(err)
	}
	c.call(200, "GET", "/v1/jobs/job", "")
	job.Version, job.Done, job.Failed, job.LastError, job.EndedAt = 2, 3, 4, "no", testNow+1
	if done, err := c.store.SetJob(context.Background(), job); err != nil || !done {
		c.t.Fatal(done, err)
	}
	c.call(200, "GET", "/v1/jobs/job", "")
	c.call(202, "POST", "/v1/messages/redrive", `{"filter":{"from":"2027-01-01T00:00:00Z"}}`)
	c.call(202, "POST", "/v1/messages/purge", `{"filter":{"label":"a"}}`)
	c.call(404, "GET", "/v1/jobs/none", "")
	c.call(400, "GET", "/v1/jobs/x%20y", "")
}

// series reads and cancels a series with a history, and an occurrence of it.
func (c *contract) series() {
	c.call(201, "PUT", "/v1/messages/a2", recurring("a2", `{"cron":"30 2 * * *","timezone":"Europe/Berlin","start":"2027-03-27T00:00:00Z","misfire":"skip","gap":"skip"}`))
	c.call(201, "POST", "/v1/messages", recurring("a1", `{"every":"P1D","anchor":"2027-03-27T00:00:00Z","end":"2028-03-27T00:00:00Z","maxRuns":9,"jitter":"1s","misfireAfter":"90s"}`))
	first := c.store.Rows[keyOf("a1")].Record
	alone := first.Alone(first.Occurrence)
	c.store.Put("set", nil, postdate.Record{Message: alone, State: postdate.NewState(&alone, 1)}, nil)
	c.store.set(first.Key, func(r *postdate.Record) {
		r.Series = r.Series.Add(postdate.Outcome{Occurrence: testNow, At: testNow, Skipped: 3})
		r.Series = r.Series.Add(postdate.Outcome{Occurrence: testNow, At: testNow, Status: postdate.Pending, Attempts: 1})
	})
	c.call(200, "PATCH", "/v1/messages/a2", `{"recurrence":{"cron":null,"timezone":null,"gap":null,"every":"PT1H"},"payload":2,"channel":"rabbitmq:b"}`, "If-Match: *")
	c.mergePatch("/v1/messages/a2", `{"paused":true}`)
	c.call(200, "GET", "/v1/messages/a2", "")
	c.call(201, "POST", "/v1/messages/a2/trigger", "")
	c.call(201, "POST", "/v1/messages/a2/trigger", "{}", "If-Match: *")
	c.call(200, "GET", "/v1/messages/a2", "")
	c.call(200, "GET", "/v1/messages/a1", "")
	c.call(200, "GET", "/v1/messages", "")
	c.call(200, "GET", escaped(alone.ScheduleID), "")
	c.call(200, "DELETE", escaped(alone.ScheduleID), "")
	c.call(200, "DELETE", "/v1/messages/a1", "")
	c.store.set(keyOf("a2"), func(r *postdate.Record) { r.Ending = true })
	c.call(200, "GET", "/v1/messages/a2", "")
	c.call(409, "POST", "/v1/messages/a2/trigger", "")
}

// task is a task definition for the rig's own channels.
func task(action string) string {
	return definition(action, strings.Replace(everyTen, "jobs", "inbox:test", 1))
}

func (c *contract) refusals() {
	c.call(404, "POST", "/schedulers", task("DELETE"))
	c.call(201, "POST", "/schedulers", task("INSERT"))
	c.call(409, "POST", "/schedulers", task("INSERT"))
	c.call(403, "POST", "/schedulers", strings.Replace(task("INSERT"), "default", "acme", 1))
	for _, call := range [][3]string{{"PUT", "", recurring("put", everyHour)}, {"PATCH", "", `{"delay":"1s"}`}, {"POST", "/trigger", ""}} {
		c.call(412, call[0], "/v1/messages/put"+call[1], call[2], `If-Match: "1"`)
	}
	c.call(400, "POST", "/v1/messages/put/trigger", "")
	c.call(400, "DELETE", "/v1/messages/put", "", "If-Match: *")
	c.call(412, "PUT", "/v1/messages/put", order("put"), "If-None-Match: *")
	c.call(201, "POST", "/v1/messages", keyed, "Idempotency-Key: k")
	c.call(200, "POST", "/v1/messages/batch", "["+keyed+"]", "Idempotency-Key: l")
	c.call(422, "POST", "/v1/messages", keyed, "Idempotency-Key: l")
	c.call(422, "POST", "/v1/messages/batch", "[]", "Idempotency-Key: l")
	c.call(404, "POST", "/v1/messages/none/trigger", "")
	c.call(201, "PUT", "/v1/messages/done", order("done"))
	c.settle("done", postdate.Delivered)
	c.call(409, "POST", "/v1/messages", strings.Replace(order("done"), "1}", "2}", 1))
	c.call(409, "PUT", "/v1/messages/done", strings.Replace(order("done"), "1}", "2}", 1))
	c.call(409, "PATCH", "/v1/messages/done", `{"delay":"1s"}`)
	c.call(409, "DELETE", "/v1/messages/done", "")
	for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"PATCH", `{"delay":"1s"}`}} {
		c.call(404, call[0], "/v1/messages/none", call[1])
	}
	for _, call := range [][2]string{
		{"POST", "/v1/messages"}, {"PUT", "/v1/messages/a"}, {"PATCH", "/v1/messages/a"}, {"POST", "/v1/messages/batch"}, {"POST", "/v1/messages/cancel"}, {"POST", "/v1/messages/redrive"}, {"POST", "/v1/messages/purge"}, {"PATCH", "/v1/channels"}, {"POST", "/v1/keys"}, {"PATCH", "/v1/tenants/acme"}, {"POST", "/v1/recurrences/preview"}, {"POST", "/v1/messages/put/trigger"}, {"POST", "/schedulers"}, {"POST", "/v1/inbox/test/consumers/a/receive"}, {"POST", "/v1/inbox/test/consumers/a/ack"},
	} {
		c.call(400, call[0], call[1], `{"x`)
		c.call(400, call[0], call[1], `{"payloat":1}`)
		c.call(415, call[0], call[1], "x", "Content-Type: text/csv")
	}
	large := strings.Repeat("x", postdate.PayloadBytesMax)
	c.call(413, "POST", "/v1/messages", `{"channel":"inbox:test","delay":"1s","payload":"`+large+`"}`)
	c.call(413, "PUT", "/v1/messages/a", `{"channel":"inbox:test","delay":"1s","payload":"`+large+`"}`)
	c.call(413, "PATCH", "/v1/messages/put", `{"payload":"`+large+`"}`)
	c.call(413, "POST", "/v1/messages/put/trigger", `{"payload":"`+large+large+large+`"}`)
	c.call(413, "POST", "/v1/inbox/test/consumers/a/receive", `{"wait":"`+large+large+large+`"}`)
	c.call(413, "POST", "/v1/inbox/test/consumers/a/ack", `{"receipts":["a"`+strings.Repeat(`,"a"`, postdate.InboxLimitMax)+`]}`)
	c.call(413, "POST", "/schedulers", `{"name":"`+large+large+large+`"}`)
	c.call(413, "PATCH", "/v1/channels", `{"channel":"`+large+large+large+`"}`)
	c.call(413, "POST", "/v1/keys", `{"tenant":"`+large+large+large+`"}`)
	c.call(413, "PATCH", "/v1/tenants/acme", `{"tenant":"`+large+large+large+`"}`)
	c.call(413, "POST", "/v1/recurrences/preview", `{"from":"`+large+large+large+`"}`)
	c.call(404, "DELETE", "/v1/keys/none", "")
	c.call(400, "DELETE", "/v1/keys/x%20y", "")
	c.call(413, "POST", "/v1/messages/batch", "[1"+strings.Repeat(",1", postdate.BatchItemsMax)+"]")
	for _, call := range []string{"cancel", "redrive", "purge"} {
		c.call(413, "POST", "/v1/messages/"+call, `{"scheduleIds":["a"`+strings.Repeat(`,"a"`, postdate.CancelItemsMax)+`]}`)
	}
	c.call(400, "GET", "/v1/messages/x%20y", "")
	c.call(400, "DELETE", "/v1/messages/x%20y", "")
	for _, path := range []string{"/v1/messages?x=1", "/v1/upcoming?x=1", "/v1/failures?x=1", "/v1/inbox/test?x=1", "/v1/cluster?x=1", "/v1/stats?x=1", "/v1/channels?x=1", "/v1/whoami?x=1", "/v1/keys?x=1", "/v1/tenants?x=1", "/schedulers?x=1"} {
		c.call(400, "GET", path, "")
	}
}

// strangers calls each operation that needs a key without one, and with one for something else.
func (c *contract) strangers() {
	reads, writes := c.key("acme", auth.ReadMessages), c.key("acme", auth.WriteMessages)
	for name, operation := range operations(c.doc) {
		if operation.Security == nil {
			continue
		}
		method, path, _ := strings.Cut(name, " ")
		path = strings.NewReplacer("{id}", "x", "{name}", "x", "{consumer}", "x", "{tenant}", "x").Replace(path)
		body := ""
		if operation.RequestBody != nil {
			body = "{}"
		}
		c.call(401, method, path, body, "Authorization: Basic x")
		refused := []string{bearer(reads)}
		switch scopes := (*operation.Security)[0]["bearer"]; {
		case len(scopes) == 0:
			refused = append(refused, "Postdate-Tenant: beta")
		case scopes[0] == string(auth.ReadMessages):
			refused = []string{bearer(writes)}
		}
		c.call(403, method, path, body, refused...)
	}
}

// withSlowTenant gives the tenant slow a single request.
func withSlowTenant(c *Config) {
	rate := 1e-6
	c.Quota = quota.NewKeeper(quota.Limits{}, c.Messages.(*fakeStore), func() int { return 1 }, time.Now)
	c.Quota.Set([]store.TenantSettings{{Tenant: "slow", RequestsPerSecond: &rate}})
}

// limited calls each operation that has a rate as a tenant that has used its own.
func (c *contract) limited() {
	key := "Authorization: Bearer " + c.key("slow", auth.Admin)
	c.call(200, "GET", "/v1/channels", "", key)
	for name, operation := range operations(c.doc) {
		if operation.Responses.Value("429") == nil {
			continue
		}
		method, path, _ := strings.Cut(name, " ")
		body := ""
		if operation.RequestBody != nil {
			body = "{}"
		}
		c.call(429, method, strings.NewReplacer("{id}", "x", "{name}", "x", "{consumer}", "x").Replace(path), body, key)
	}
}

// unjudged calls each operation that needs a key with a token of an issuer that is away.
func (c *contract) unjudged(token string) {
	for name, operation := range operations(c.doc) {
		if operation.Responses.Value("401") != nil {
			method, path, _ := strings.Cut(name, " ")
			body := ""
			if operation.RequestBody != nil {
				body = "{}"
			}
			c.call(503, method, strings.NewReplacer("{id}", "x", "{name}", "x", "{consumer}", "x", "{tenant}", "x").Replace(path), body, bearer(token))
		}
	}
}

func (c *contract) failures() {
	for kind, status := range map[postdate.Kind]int{
		postdate.KindInternal: 500, postdate.KindUnavailable: 503, postdate.KindUnknown: 504, postdate.KindFull: 507,
	} {
		c.store.err = postdate.E(kind, "inner")
		c.inbox.err = postdate.E(kind, "inner")
		c.channels.err = postdate.E(kind, "inner")
		c.tenants.err = postdate.E(kind, "inner")
		c.call(status, "PATCH", "/v1/tenants/acme", `{"weight":2}`)
		c.call(status, "PATCH", "/v1/channels", `{"channel":"inbox:test","paused":true}`)
		c.call(status, "POST", "/v1/keys", `{"tenant":"acme","scopes":["admin"]}`)
		c.call(status, "DELETE", "/v1/keys/x", "")
		c.call(status, "POST", "/v1/messages", order("f"))
		c.call(status, "PUT", "/v1/messages/f", order("f"))
		c.call(status, "PATCH", "/v1/messages/f", `{"delay":"1s"}`)
		c.call(status, "DELETE", "/v1/messages/f", "")
		c.call(status, "POST", "/v1/messages/f/trigger", "")
		c.call(status, "POST", "/schedulers", task("INSERT"))
		for _, call := range []string{"cancel", "redrive", "purge"} {
			c.call(status, "POST", "/v1/messages/"+call, `{"filter":{"label":"a"}}`)
		}
		c.call(status, "POST", "/v1/inbox/test/consumers/a/receive", "{}")
		c.call(status, "POST", "/v1/inbox/test/consumers/a/ack", `{"receipts":["`+receiptOf("default", "test", "a", 1)+`"]}`)
		if status != 507 {
			c.call(status, "GET", "/v1/messages/f", "")
			c.call(status, "GET", "/v1/jobs/f", "")
			c.call(status, "GET", "/v1/upcoming", "")
			c.call(status, "GET", "/v1/failures", "")
			c.call(status, "GET", "/v1/messages", "")
			c.call(status, "GET", "/schedulers", "")
			c.call(status, "GET", "/v1/inbox/test", "")
			c.call(status, "GET", "/v1/channels", "")
			c.call(status, "GET", "/v1/keys", "")
			c.call(status, "GET", "/v1/tenants", "")
		}
	}
	c.mu.Lock()
	c.ready = context.DeadlineExceeded
	c.mu.Unlock()
	c.call(503, "GET", "/readyz", "")
}
