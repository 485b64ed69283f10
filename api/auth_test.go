package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/publisher/inbox"
	"github.com/postdate/postdate/store"
)

const adminKey = "an-administrator-of-32-characters"

// withKeys makes the rig ask for keys, which lie in its store.
func withKeys(c *Config) {
	c.Keys = auth.NewKeeper(auth.Config{Store: c.Messages.(*fakeStore), AdminKey: adminKey, Now: c.Now, Log: c.Log})
}

// bearer is the header with a key.
func bearer(key string) string { return "Authorization: Bearer " + key }

// key makes a key with some scopes, for all channels.
func (r *rig) key(tenant string, scopes ...auth.Scope) string {
	r.t.Helper()
	return r.keyFor(auth.Wish{Tenant: tenant, Scopes: scopes})
}

func (r *rig) keyFor(w auth.Wish) string {
	r.t.Helper()
	_, text, err := r.server.config.Keys.Create(context.Background(), w)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// callOf is a request for a route that is no more than complete, so that its answer tells
// whether the caller was let in.
func callOf(r route) (path, body string) {
	path = strings.NewReplacer("{id}", "x", "{name}", "x", "{tenant}", "x").Replace(r.path)
	if r.method == "POST" || r.method == "PUT" || r.method == "PATCH" {
		body = "{}"
	}
	return path, body
}

// Each operation needs the scope that the document names, and nobody else gets in: with each
// single scope it is allowed exactly if that is its own, or admin.
func TestEveryOperationNeedsItsScope(t *testing.T) {
	r := newRig(t, withKeys)
	documented := operations(loadDocument(t))
	keys := map[auth.Scope]string{}
	for _, scope := range auth.Scopes {
		keys[scope] = r.key("acme", scope)
	}
	used := map[auth.Scope]bool{}
	for _, route := range routes {
		name := route.method + " " + route.path
		operation := documented[name]
		path, body := callOf(route)
		if route.need == public {
			if operation.Security != nil {
				t.Errorf("%s needs no key, and its document says %v", name, *operation.Security)
			}
			if a := r.send(route.method, path, body); a.status == 401 || a.status == 403 {
				t.Errorf("%s without a key: %d", name, a.status)
			}
			continue
		}
		scopes := []string{string(route.need)}
		if route.need == anyKey {
			scopes = nil
		}
		if s := operation.Security; s == nil || len(*s) != 1 || !slices.Equal((*s)[0]["bearer"], scopes) {
			t.Errorf("%s needs %s, and its document says %v", name, route.need, s)
		}
		used[route.need] = true
		methods := []string{route.method}
		if route.method == "GET" {
			methods = append(methods, "HEAD")
		}
		for _, method := range methods {
			if a := r.send(method, path, body); a.status != 401 {
				t.Errorf("%s without a key: %d %s", name, a.status, a.body)
			}
			for scope, key := range keys {
				a := r.send(method, path, body, bearer(key))
				in, want := a.status != 401 && a.status != 403, route.need == anyKey || scope == route.need || scope == auth.Admin
				if in != want {
					t.Errorf("%s with %s: %d %s", name, scope, a.status, a.body)
				}
				if !in && method != "HEAD" {
					a.problem(403, Forbidden, "has no scope "+string(route.need))
				}
			}
		}
	}
	for _, scope := range auth.Scopes {
		if !used[scope] {
			t.Errorf("no operation needs %s", scope)
		}
	}
}

func TestRefusedKeys(t *testing.T) {
	r := newRig(t, withKeys)
	expiring := r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.Admin}, ExpiresAt: testNow + 1000})
	r.send("GET", "/v1/messages", "", bearer(expiring)).want(200, `{"messages":[]}`)
	r.pass(time.Second)
	for header, part := range map[string]string{
		"X: y": "needs a key", "Authorization: Basic x": "not understood", bearer("pd_wrong"): "nobody has this key",
		bearer(expiring): "the key " + expiring[3:15] + " has expired",
	} {
		for _, path := range []string{"/v1/messages", "/nowhere", "/metrics"} {
			a := r.send("GET", path, "", header).problem(401, Unauthorized, part)
			if got := a.header.Get("WWW-Authenticate"); got != "Bearer" {
				t.Errorf("WWW-Authenticate: %q", got)
			}
		}
	}
	r.send("GET", "/nowhere", "", bearer(adminKey)).problem(404, NoSuchPath)
	r.send("DELETE", "/v1/messages", "", bearer(adminKey)).problem(405, MethodNotAllowed)
	for _, secret := range []string{expiring[16:], "pd_wrong", adminKey} {
		if strings.Contains(r.log.String(), secret) {
			t.Errorf("the log shows %s", secret)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	r := newRig(t, withKeys, func(c *Config) { c.MetricsOpen = true })
	if a := r.send("GET", "/metrics", ""); a.status != 200 {
		t.Errorf("/metrics: %d", a.status)
	}
	r.send("GET", "/v1/cluster", "").problem(401, Unauthorized)
}

// The rest of a large body is not waited for if the request has no key.
func TestStrangersBodiesAreNotRead(t *testing.T) {
	r := newRig(t, withKeys)
	body := make(neverEnds)
	defer close(body)
	begun := strings.NewReader(strings.Repeat(" ", 64<<10))
	req, err := http.NewRequest("POST", r.url+"/v1/messages/batch", io.MultiReader(begun, body))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 1 << 20
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 401 {
		t.Errorf("it was answered %d", res.StatusCode)
	}
}

// neverEnds is the rest of a body, of which nothing comes.
type neverEnds chan struct{}

func (n neverEnds) Read([]byte) (int, error) { <-n; return 0, context.Canceled }

func TestMakeListAndRevokeKeys(t *testing.T) {
	r := newRig(t, withKeys)
	a := r.send("POST", "/v1/keys", `{"tenant":"acme","scopes":["sched:w","sched:w","sched:r"],"channels":["inbox:a*"],"expires":"90d"}`, bearer(adminKey))
	var made struct{ ID, Key string }
	if err := json.Unmarshal([]byte(a.body), &made, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(a.body, err)
	}
	shown := `"id":"` + made.ID + `","tenant":"acme","scopes":["sched:w","sched:r"],"channels":["inbox:a*"],"createdAt":"2027-01-30T12:00:00.000Z","expiresAt":"2027-04-30T12:00:00.000Z"`
	a.want(201, `{`+shown+`,"key":"`+made.Key+`"}`)
	r.send("GET", "/v1/keys", "", bearer(adminKey)).want(200, `{"keys":[{`+shown+`}]}`)
	r.send("GET", "/v1/messages", "", bearer(made.Key)).want(200, `{"messages":[]}`)
	r.send("GET", "/v1/keys", "", bearer(adminKey)).want(200, `{"keys":[{`+shown+`,"lastUsedAt":"2027-01-30T12:00:00.000Z"}]}`)
	r.send("DELETE", "/v1/keys/"+made.ID, "", bearer(adminKey)).want(200, `{"id":"`+made.ID+`","revoked":true}`)
	r.send("GET", "/v1/messages", "", bearer(made.Key)).problem(401, Unauthorized, "revoked")
	r.send("DELETE", "/v1/keys/"+made.ID, "", bearer(adminKey)).problem(404, NoSuchKey)
	r.send("DELETE", "/v1/keys/admin-key", "", bearer(adminKey)).problem(400, InvalidParameter, "--admin-key")
	r.send("GET", "/v1/keys", "", bearer(adminKey)).want(200, `{"keys":[]}`)
	for _, line := range []string{"an API key was made", "an API key was revoked"} {
		if !regexp.MustCompile(line + `" key=` + made.ID + `.* by=admin-key remote=127`).MatchString(r.log.String()) {
			t.Errorf("the log does not say %s:\n%s", line, r.log)
		}
	}
	if strings.Contains(r.log.String(), made.Key[16:]) {
		t.Error("the log shows the key's secret")
	}
}

// After an unknown outcome the answer says which key to look for.
func TestKeyOfUnknownOutcome(t *testing.T) {
	r := newRig(t, withKeys)
	r.store.err = postdate.E(postdate.KindUnknown, "no answer")
	a := r.send("POST", "/v1/keys", `{"tenant":"acme","scopes":["admin"]}`, bearer(adminKey)).problem(504, UnknownOutcome, "Revoke it")
	if !regexp.MustCompile(`key [a-z0-9]{12} may be there`).MatchString(a.body) {
		t.Errorf("it names no key: %s", a.body)
	}
	r.send("DELETE", "/v1/keys/abc", "", bearer(adminKey)).problem(504, UnknownOutcome, "404 means")
	r.store.err = errors.New("a fault")
	for method, want := range map[string]string{"POST": "Revoke it", "DELETE": "404 means", "GET": "nothing was changed"} {
		path, body := "/v1/keys", ""
		switch method {
		case "POST":
			body = `{"tenant":"acme","scopes":["admin"]}`
		case "DELETE":
			path = "/v1/keys/abc"
		}
		if a := r.send(method, path, body, bearer(adminKey)).problem(500, Internal, want); strings.Contains(a.body, "scheduleId") {
			t.Errorf("%s: it speaks of messages: %s", method, a.body)
		}
	}
	r.store.err = postdate.E(postdate.KindExists, "taken")
	if a := r.send("POST", "/v1/keys", `{"tenant":"acme","scopes":["admin"]}`, bearer(adminKey)).problem(409, Exists, "nothing was done"); strings.Contains(a.body, "message") {
		t.Errorf("it speaks of messages: %s", a.body)
	}
}

func TestWrongKeys(t *testing.T) {
	r := newRig(t, withKeys)
	for _, test := range []struct{ body, pointer, part string }{
		{`{"scopes":["admin"]}`, "/tenant", "tenant is empty"},
		{`{"tenant":"a b","scopes":["admin"]}`, "/tenant", "forbidden character"},
		{`{"tenant":"a"}`, "/scopes", "scopes is missing"},
		{`{"tenant":"a","scopes":[]}`, "/scopes", "scopes is missing"},
		{`{"tenant":"a","scopes":["sched:r","sched"]}`, "/scopes/1", "there are sched:r, sched:w, channels:w, ops:r and admin"},
		{`{"tenant":"a","scopes":["admin"],"channels":["inbox:a",""]}`, "/channels/1", "between 1 and 256"},
		{`{"tenant":"a","scopes":["admin"],"channels":["acme"]}`, "/channels/0", "matches no channel"},
		{`{"tenant":"a","scopes":["admin"],"channels":["*"` + strings.Repeat(`,"*"`, 32) + `]}`, "/channels", "at most 32"},
		{`{"tenant":"a","scopes":["admin"],"expires":"soon"}`, "/expires", "like 90d or 12h"},
		{`{"tenant":"a","scopes":["admin"],"expires":"0d"}`, "/expires", "more than 0"},
		{`{"tenant":"a","scopes":["admin"],"expires":"-1h"}`, "/expires", "more than 0"},
		{`{"tenant":"a","scopes":["admin"],"expires":"999999d"}`, "/expires", "like 90d"},
		{`{"tenant":"a","scopes":["admin"],"expiresAt":"2027-01-30T12:00:00Z"}`, "/expiresAt", "is past"},
		{`{"tenant":"a","scopes":["admin"],"expiresAt":"2028-01-01T00:00:00Z","expires":"1d"}`, "/expires", "exclude each other"},
	} {
		r.send("POST", "/v1/keys", test.body, bearer(adminKey)).problem(400, InvalidField, `"pointer":"`+test.pointer+`"`, test.part)
	}
	r.send("POST", "/v1/keys", `{"tenant":"a","scope":["admin"]}`, bearer(adminKey)).problem(400, UnknownField, `"suggestion":"scopes"`)
	open := newRig(t)
	open.send("GET", "/v1/keys", "").problem(400, NotSupported, "--admin-key")
	open.send("POST", "/v1/keys", `{"tenant":"a","scopes":["admin"]}`).problem(400, NotSupported, "--admin-key")
	open.send("DELETE", "/v1/keys/a", "").problem(400, NotSupported, "--admin-key")
}

// A key for some channels schedules to no others, changes no others and reads no other inbox.
func TestKeysForSomeChannels(t *testing.T) {
	r := newRig(t, withKeys)
	key := bearer(r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages, auth.ReadMessages, auth.ChangeChannels}, Channels: []string{"inbox:te*", "rabbitmq:acme-*"}}))
	free := bearer(r.key("acme", auth.WriteMessages))
	const no = "is not for the channel inbox:other: it is for inbox:te*, rabbitmq:acme-*"
	to := func(channel string) string { return strings.Replace(order("a"), "inbox:test", channel, 1) }
	for _, call := range [][2]string{{"POST", "/v1/messages"}, {"PUT", "/v1/messages/a"}} {
		r.send(call[0], call[1], to("inbox:other"), key).problem(403, Forbidden, no, `"pointer":"/channel"`)
		r.send(call[0], call[1], to("kafka:other"), key).problem(403, Forbidden) // and not whether there is a Kafka
	}
	if len(r.store.Rows) != 0 {
		t.Errorf("%d messages were scheduled", len(r.store.Rows))
	}
	for _, channel := range []string{"inbox:te", "inbox:test", "rabbitmq:acme-orders/a.b"} {
		id := strings.NewReplacer(":", "-", "/", "-").Replace(channel)
		if a := r.send("PUT", "/v1/messages/"+id, strings.Replace(to(channel), `"scheduleId":"a",`, "", 1), key); a.status != 201 {
			t.Errorf("%s: %d %s", channel, a.status, a.body)
		}
	}
	batch := r.send("POST", "/v1/messages/batch", "["+to("inbox:other")+","+order("b")+"]", key)
	if batch.status != 200 || !strings.Contains(batch.body, "forbidden") || !strings.Contains(batch.body, no) || !strings.Contains(batch.body, `"scheduleId":"b","bucket"`) || strings.Contains(batch.body, `"scheduleId":"a","bucket"`) {
		t.Errorf("the batch: %d %s", batch.status, batch.body)
	}
	if a := r.send("POST", "/v1/messages", to("inbox:other"), free); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.send("PATCH", "/v1/messages/a", `{"delay":"1s"}`, key).problem(403, Forbidden, no)
	if a := r.send("PATCH", "/v1/messages/b", `{"delay":"1s"}`, key); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.send("GET", "/v1/inbox/other", "", key).problem(403, Forbidden, no)
	r.send("POST", "/v1/inbox/other/consumers/te/receive", "", key).problem(403, Forbidden, no)
	r.send("POST", "/v1/inbox/other/consumers/te/ack", `{"receipts":[]}`, key).problem(403, Forbidden, no)
	r.send("POST", "/v1/inbox/test/consumers/other/receive", "{}", key).want(200, `{"messages":[]}`)
	r.send("GET", "/v1/inbox/test", "", key).want(200, `{"messages":[],"nextCursor":"0"}`)
	r.send("PATCH", "/v1/channels", `{"channel":"inbox:other","paused":true}`, key).problem(403, Forbidden, no)
	const failing = `"failureChannel":"inbox:other"`
	r.send("PATCH", "/v1/channels", `{"channel":"inbox:test",`+failing+`}`, key).problem(403, Forbidden, no, `"pointer":"/failureChannel"`)
	r.send("PATCH", "/v1/messages/b", `{`+failing+`}`, key).problem(403, Forbidden, no, `"pointer":"/failureChannel"`)
	r.send("POST", "/v1/messages", `{"channel":"inbox:test","delay":"1s","payload":1,`+failing+`}`, key).problem(403, Forbidden, no, `"pointer":"/failureChannel"`)
	if a := r.send("GET", "/v1/messages/a", "", key); a.status != 200 {
		t.Errorf("a message of another channel is not shown: %d", a.status)
	}
	if a := r.send("DELETE", "/v1/messages/a", "", key); a.status != 200 {
		t.Errorf("a message of another channel cannot be cancelled: %d", a.status)
	}
}

// withInboxes has the store's own inboxes.
func withInboxes(c *Config) {
	c.Inbox = inbox.New(c.Messages.(*fakeStore), nil, c.Now, slog.New(slog.DiscardHandler))
}

// Whatever tenant B asks for about tenant A's messages, ids and inboxes, it finds nothing, and
// changes nothing.
func TestTenantsAreSeparate(t *testing.T) {
	r := newRig(t, withKeys, withInboxes)
	scopes := []auth.Scope{auth.ReadMessages, auth.WriteMessages, auth.ChangeChannels, auth.Operate}
	a, b := bearer(r.key("a", scopes...)), bearer(r.key("b", scopes...))
	r.send("POST", "/v1/messages", order("x"), a)
	r.send("POST", "/v1/messages", order("y"), a)
	letter := store.InboxMessage{Tenant: "a", Inbox: "x", ScheduleID: "secret-of-a", ExecutionTime: testNow, DeliveredAt: testNow, Attempt: 1, ContentType: "application/json", Payload: []byte("1")}
	if err := r.store.AppendInbox(t.Context(), []store.InboxMessage{letter}); err != nil {
		t.Fatal(err)
	}
	before := r.send("GET", "/v1/messages", "", a)
	other := strings.Replace(order("x"), "1}", `"of b"}`, 1)
	// What each operation of the API answers to b. Those left out have no tenant.
	for call, want := range map[string]struct {
		path, body string
		status     int
		part       string
	}{
		"GET /v1/messages":                                   {"/v1/messages", "", 200, `{"messages":[]}`},
		"GET /v1/messages/{id}":                              {"/v1/messages/x", "", 404, "not-found"},
		"DELETE /v1/messages/{id}":                           {"/v1/messages/x", "", 404, "not-found"},
		"PATCH /v1/messages/{id}":                            {"/v1/messages/x", `{"delay":"1s"}`, 404, "not-found"},
		"POST /v1/messages/{id}/trigger":                     {"/v1/messages/x/trigger", "", 404, "not-found"},
		"POST /v1/messages/cancel":                           {"/v1/messages/cancel", `{"scheduleIds":["x","y"]}`, 200, `"status":404`},
		"GET /v1/upcoming":                                   {"/v1/upcoming", "", 200, `{"slots":[{`},
		"GET /v1/failures":                                   {"/v1/failures", "", 200, `{"groups":[],"exact":true}`},
		"GET /v1/jobs/{id}":                                  {"/v1/jobs/x", "", 404, "no-such-job"},
		"POST /v1/messages/redrive":                          {"/v1/messages/redrive", `{"scheduleIds":["x","y"]}`, 200, `"status":404`},
		"POST /v1/messages/purge":                            {"/v1/messages/purge", `{"scheduleIds":["x","y"]}`, 200, `"status":404`},
		"GET /schedulers":                                    {"/schedulers", "", 200, "[]"},
		"POST /schedulers":                                   {"/schedulers", `{"host":"a","name":"x","action":"DELETE"}`, 403, "the tenant b"},
		"GET /v1/inbox/{name}":                               {"/v1/inbox/x", "", 200, `{"messages":[],`},
		"POST /v1/inbox/{name}/consumers/{consumer}/receive": {"/v1/inbox/x/consumers/w/receive", "{}", 200, `{"messages":[]}`},
		"POST /v1/inbox/{name}/consumers/{consumer}/ack":     {"/v1/inbox/x/consumers/w/ack", `{"receipts":["` + receiptOf("a", "x", "w", 1) + `"]}`, 200, "is not one of this consumer"},
		"POST /v1/messages":                                  {"/v1/messages", other, 201, "PENDING"}, // the id is free
		"POST /v1/messages/batch":                            {"/v1/messages/batch", "[" + strings.Replace(other, `"x"`, `"y"`, 1) + "]", 200, `"created":true`},
		"PUT /v1/messages/{id}":                              {"/v1/messages/z", strings.Replace(other, `"scheduleId":"x",`, "", 1), 201, "PENDING"},
		"GET /v1/keys":                                       {"/v1/keys", "", 403, "scope admin"},
		"POST /v1/keys":                                      {"/v1/keys", "{}", 403, "scope admin"},
		"DELETE /v1/keys/{id}":                               {"/v1/keys/x", "", 403, "scope admin"},
	} {
		if method, _, _ := strings.Cut(call, " "); method == "POST" && want.status == 201 || method == "PUT" || strings.HasSuffix(call, "batch") {
			defer func() { // after those that find nothing
				if got := r.send(method, want.path, want.body, b); got.status != want.status || !strings.Contains(got.body, want.part) {
					t.Errorf("%s: %d %s", call, got.status, got.body)
				}
				r.send("GET", "/v1/messages", "", a).want(200, before.body)
			}()
			continue
		}
		method, _, _ := strings.Cut(call, " ")
		got := r.send(method, want.path, want.body, b)
		if got.status != want.status || !strings.Contains(got.body, want.part) || strings.Contains(got.body, "secret-of-a") {
			t.Errorf("%s: %d %s", call, got.status, got.body)
		}
	}
	r.send("GET", "/v1/messages", "", a).want(200, before.body)
}

// Two keys on one connection: each request is judged by its own.
func TestOneConnectionTwoTenants(t *testing.T) {
	r := newRig(t, withKeys)
	a, b := bearer(r.key("a", auth.WriteMessages, auth.ReadMessages)), bearer(r.key("b", auth.ReadMessages))
	r.send("POST", "/v1/messages", order("x"), a)
	for range 5 {
		r.send("GET", "/v1/messages/x", "", b).problem(404, NotFound)
		if got := r.send("GET", "/v1/messages/x", "", a); got.status != 200 {
			t.Fatal(got.body)
		}
		r.send("GET", "/v1/messages/x", "").problem(401, Unauthorized)
	}
}

// Each refused request is in the log, with why and whose key, and a flood of them is only
// counted.
func TestAudit(t *testing.T) {
	r := newRig(t, withKeys)
	for _, token := range []string{"https://b.example/T0/token-7%zz", "https:///token-7", "HTTPS://b.example?token-7", "https://token-7@b.example/"} {
		if shown := postdate.Channel(token).Shown(); strings.Contains(shown, "token-7") {
			t.Errorf("%s is shown as %s", token, shown)
		}
	}
	key := r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages, auth.ChangeChannels}, Channels: []string{"https://a.example/*", "inbox:a"}})
	r.send("GET", "/v1/messages/x?secret=1", "", bearer(key))
	r.send("POST", "/v1/messages", strings.Replace(order("a"), "inbox:test", "https://b.example/token-7", 1), bearer(key))
	r.send("PATCH", "/v1/channels", `{"channel":"inbox:a","paused":true}`, bearer(key))
	log := r.log.String()
	id := key[3:15]
	for _, line := range []string{
		`a request was refused" reason="the key ` + id + ` has no scope sched:r, .*" status=403 method=GET route=/v1/messages/{id} remote=127\.0\.0\.1:\d+ key=` + id,
		`a request was refused" reason="the key is not for the channel https://b.example" status=403 method=POST route=/v1/messages remote=\S+ key=` + id,
		`a channel was changed" tenant=acme channel=inbox:a paused=true maxPerSecond=0 maxInFlight=0 failureChannel="" by=` + id,
	} {
		if !regexp.MustCompile(line).MatchString(log) {
			t.Errorf("no line %s in\n%s", line, log)
		}
	}
	if strings.Contains(log, "token-7") || strings.Contains(log, "secret") || strings.Contains(log, key[16:]) {
		t.Errorf("the log shows a secret:\n%s", log)
	}
}

func TestAuditOfAFlood(t *testing.T) {
	log := &nodetest.Log{}
	a := newAudit(slog.New(slog.NewTextHandler(log, nil)))
	var ctx fasthttp.RequestCtx
	begin := time.Now()
	for i := range 1000 {
		a.refused(&ctx, "/v1/messages", &Problem{Type: Forbidden}, begin.Add(time.Duration(i)*time.Microsecond))
	}
	if n := strings.Count(log.String(), "was refused"); n != refusalsMax || strings.Contains(log.String(), "notLogged") {
		t.Errorf("%d lines for 1000 refusals:\n%s", n, log)
	}
	for range 2 {
		a.refused(&ctx, "/v1/messages", &Problem{Type: Forbidden}, begin.Add(time.Second))
	}
	for range 1000 {
		a.noHandshake(&net.TCPAddr{}, errors.New("no certificate"), begin)
	}
	if n := strings.Count(log.String(), "a TLS handshake was refused"); n != refusalsMax {
		t.Errorf("%d lines for 1000 handshakes", n)
	}
	if strings.Count(log.String(), fmt.Sprint("notLogged=", 1000-refusalsMax)) != 1 || strings.Count(log.String(), "notLogged") != 1 {
		t.Errorf("what was left out is not counted once:\n%s", log)
	}
}

// A key changes no message of a channel that it is not for, in whatever way.
func TestKeysLeaveOtherChannelsMessages(t *testing.T) {
	r := newRig(t, withKeys)
	key := r.keyFor(auth.Wish{Tenant: postdate.DefaultTenant, Scopes: []auth.Scope{auth.WriteMessages}, Channels: []string{"inbox:mine-*"}})
	r.send("PUT", "/v1/messages/x", order("x"), bearer(adminKey))
	r.send("PATCH", "/v1/messages/x", `{"payload":2}`, bearer(key)).problem(403, Forbidden)
	r.send("PUT", "/v1/messages/x", strings.Replace(order("x"), "inbox:test", "inbox:mine-1", 1), bearer(key)).problem(403, Forbidden)
	if a := r.send("GET", "/v1/messages/x", "", bearer(adminKey)); !strings.Contains(a.body, `"channel":"inbox:test"`) {
		t.Error(a.body)
	}
}

// revokedMeanwhile is a store in which another node revokes a key, and this one looks, before
// the answer to its creation is here.
type revokedMeanwhile struct {
	*fakeStore
	look func() error
}

func (s *revokedMeanwhile) CreateKey(ctx context.Context, key store.APIKey) error {
	if err := s.fakeStore.CreateKey(ctx, key); err != nil {
		return err
	}
	if err := s.RevokeKey(ctx, key.ID); err != nil {
		return err
	}
	return s.look()
}

func TestAKeyThatIsRevokedWhileItIsMade(t *testing.T) {
	s := &revokedMeanwhile{fakeStore: newFakeStore()}
	k := auth.NewKeeper(auth.Config{Store: s, AdminKey: adminKey, Now: func() postdate.Time { return testNow }})
	s.look = func() error { return k.Look(t.Context()) }
	_, text, err := k.Create(t.Context(), auth.Wish{Tenant: "a", Scopes: []auth.Scope{auth.Admin}})
	if err == nil {
		err = k.Look(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, refusal := k.Authenticate([]byte("Bearer " + text)); refusal == auth.Accepted {
		t.Error("a revoked key is accepted")
	}
}

// An administrator acts for the tenant that a header names, and nobody else does.
func TestAnAdministratorActsForATenant(t *testing.T) {
	r := newRig(t, withKeys)
	forAcme := "Postdate-Tenant: acme"
	admin, acme, other := bearer(adminKey), bearer(r.key("acme", auth.ReadMessages, auth.Operate)), bearer(r.key("other", auth.ReadMessages, auth.WriteMessages))
	if a := r.send("POST", "/v1/messages", order("a"), admin, forAcme); a.status != 201 {
		t.Fatal(a.status, a.body)
	}
	r.send("GET", "/v1/messages/a", "", admin).problem(404, NotFound, "")
	for _, who := range [][]string{{acme}, {admin, forAcme}} {
		if a := r.send("GET", "/v1/messages/a", "", who...); a.status != 200 {
			t.Errorf("%v: %d %s", who, a.status, a.body)
		}
	}
	r.send("GET", "/v1/messages/a", "", other, forAcme).problem(403, Forbidden, "Postdate-Tenant")
	r.send("GET", "/v1/messages/a", "", admin, "Postdate-Tenant: a b").problem(400, BadRequest, "Postdate-Tenant")
	r.send("GET", "/v1/messages/a", "", admin, "Postdate-Tenant: ").problem(400, BadRequest, "Postdate-Tenant")
	r.send("GET", "/v1/messages/a", "", admin, forAcme, "Postdate-Tenant: other").problem(400, BadRequest, "twice")
	if a := r.send("PATCH", "/v1/channels", `{"channel":"inbox:a","paused":true}`, admin, forAcme); a.status != 200 {
		t.Fatal(a.status, a.body)
	}
	if a := r.send("GET", "/v1/channels", "", admin); strings.Contains(a.body, "inbox:a") {
		t.Errorf("it is paused for the administrator's own tenant: %s", a.body)
	}
	if a := r.send("GET", "/v1/channels", "", acme); !strings.Contains(a.body, `"channel":"inbox:a","paused":true`) {
		t.Errorf("the tenant sees %s", a.body)
	}
	open := newRig(t)
	open.send("GET", "/v1/messages/a", "", forAcme).problem(400, BadRequest, "only tenant is default")
}
