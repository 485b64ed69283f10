package api

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
)

// fakeTenants keeps the settings in memory.
type fakeTenants struct {
	set map[string]store.TenantSettings
	err error
}

func (f *fakeTenants) ListTenants(_ context.Context, others []string) (all []Tenant, err error) {
	names := slices.AppendSeq(slices.Clone(others), maps.Keys(f.set))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		all = append(all, f.tenant(name))
	}
	slices.SortFunc(all, func(a, b Tenant) int { return strings.Compare(a.Name, b.Name) })
	return all, f.err
}

func (f *fakeTenants) tenant(name string) Tenant {
	return Tenant{Name: name, Limits: quota.Limits{PendingMax: 7, Weight: 1}.With(f.set[name]), Set: f.set[name], Usage: store.Usage{Messages: 3, Bytes: 40, Channels: 2}}
}

func (f *fakeTenants) ChangeTenant(_ context.Context, name string, change func(*store.TenantSettings)) (Tenant, error) {
	if f.err != nil {
		return Tenant{}, f.err
	}
	s := f.set[name]
	s.Tenant = name
	change(&s)
	f.set[name] = s
	return f.tenant(name), nil
}

func TestTenants(t *testing.T) {
	r := newRig(t)
	for _, step := range []struct{ body, want, set string }{
		{`{"requestsPerSecond":0.5,"weight":3}`, `"requestsPerSecond":0.5,"messagesPerSecond":0,"pendingMax":7,"bytesMax":0,"channelsMax":0,"weight":3`,
			`"requestsPerSecond","weight"`},
		{`{"pendingMax":0,"bytesMax":100}`, `"requestsPerSecond":0.5,"messagesPerSecond":0,"pendingMax":0,"bytesMax":100,"channelsMax":0,"weight":3`,
			`"requestsPerSecond","pendingMax","bytesMax","weight"`},
		{`{"pendingMax":null,"weight":null}`, `"requestsPerSecond":0.5,"messagesPerSecond":0,"pendingMax":7,"bytesMax":100,"channelsMax":0,"weight":1`,
			`"requestsPerSecond","bytesMax"`},
	} {
		r.send("PATCH", "/v1/tenants/acme", step.body).want(200, `{"tenant":"acme",`+step.want+`,"pending":3,"bytes":40,"channels":2,"set":[`+step.set+`]}`)
	}
	if a := r.send("GET", "/v1/tenants", ""); !strings.HasPrefix(a.body, `{"tenants":[{"tenant":"acme","requestsPerSecond":0.5,`) {
		t.Error(a.status, a.body)
	}
	for body, words := range map[string]string{
		`{}`: "nothing to change", `{"weight":0}`: "between 1 and 1000", `{"weight":1001}`: "between 1 and 1000", `{"pendingMax":-1}`: "at least 0",
		`{"requestsPerSecond":1e7}`: "between 0.000001 and 1000000, not 1e+07", `{"messagesPerSecond":-1}`: "between 0", `{"bytesMax":"x"}`: "bytesMax", `{"weights":1}`: "weights",
		`{"messagesPerSecond":5e-324}`: "between 0.000001", `{"messagesPerSecond":1e400}`: "1e400 at /messagesPerSecond is too large",
		`{"pendingMax":"10"}`: "a whole number was expected at /pendingMax, not a string", `{"pendingMax":1.5}`: "a whole number was expected at /pendingMax, not 1.5",
		`{"pendingMax":9223372036854775808}`: "9223372036854775808 at /pendingMax is too large", `{"requestsPerSecond":true}`: "a number was expected",
	} {
		if a := r.send("PATCH", "/v1/tenants/acme", body); a.status != 400 || !strings.Contains(a.body, words) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := r.send("PATCH", "/v1/tenants/a%40b%2Cc", `{"weight":1}`); a.status != 200 || !strings.Contains(a.body, `"tenant":"a@b,c"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.send("PATCH", "/v1/tenants/acme", `{"pendingmax":1}`); !strings.Contains(a.body, `"suggestion":"pendingMax"`) {
		t.Error(a.body)
	}
	r.send("PATCH", "/v1/tenants/a%20b", `{"weight":1}`).problem(400, InvalidParameter, "forbidden character")
}

// A tenant's rate is its own. What is refused says when to come again, and neither health checks nor
// administrators have a rate.
func TestRateOfRequests(t *testing.T) {
	at := time.Unix(1_900_000_000, 0)
	r := newRig(t, withKeys, func(c *Config) {
		c.Quota = quota.NewKeeper(quota.Limits{RequestsPerSecond: 2}, c.Messages.(*fakeStore), func() int { return 1 }, func() time.Time { return at })
	})
	a, b := bearer(r.key("a", auth.ReadMessages)), bearer(r.key("b", auth.ReadMessages))
	for _, left := range []string{`"requests";r=1;t=1`, `"requests";r=0;t=1`} {
		got := r.send("GET", "/v1/messages/none", "", a)
		if got.status != 404 || got.header.Get("RateLimit") != left || got.header.Get("RateLimit-Policy") != `"requests";q=2;w=1` {
			t.Errorf("%d with %v", got.status, got.header)
		}
	}
	got := r.send("GET", "/v1/messages/none", "", a)
	got.problem(429, Limited, `"limit":"requestsPerSecond"`)
	if got.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
	r.send("GET", "/v1/messages/none", "", b).problem(404, NotFound, "")
	for range 5 {
		for _, path := range []string{"/healthz", "/v1/keys"} {
			if got := r.send("GET", path, "", bearer(adminKey)); got.status != 200 || got.header.Get("RateLimit") != "" {
				t.Errorf("%s: %d with %v", path, got.status, got.header)
			}
		}
	}
	at = at.Add(time.Second)
	r.send("GET", "/v1/messages/none", "", a).problem(404, NotFound, "")
}

// At its limit a tenant gets 429, in a batch for each message that goes beyond.
func TestPendingLimit(t *testing.T) {
	r := newRig(t, func(c *Config) {
		keeper := quota.NewKeeper(quota.Limits{PendingMax: 2}, c.Messages.(*fakeStore), func() int { return 1 }, time.Now)
		c.Messages = keeper.Hold(c.Messages)
	})
	later := `{"scheduleId":"ID","channel":"inbox:a","executionTime":"2099-01-01T00:00:00Z","payload":1}`
	item := func(id string) string { return strings.Replace(later, "ID", id, 1) }
	if got := r.send("POST", "/v1/messages", item("a")); got.status != 201 {
		t.Errorf("%d %s", got.status, got.body)
	}
	got := r.send("POST", "/v1/messages/batch", "["+item("b")+","+item("c")+"]")
	if got.status != 200 || !strings.Contains(got.body, `"created":true`) || !strings.Contains(got.body, `"status":429`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	got = r.send("POST", "/v1/messages", item("d"))
	got.problem(429, Limited, "pendingMax")
	if got.header.Get("Retry-After") != "10" {
		t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
	if got := r.send("DELETE", "/v1/messages/a", ""); got.status != 200 {
		t.Errorf("a cancel at the limit: %d %s", got.status, got.body)
	}
	if got := r.send("POST", "/v1/messages", item("d")); got.status != 201 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// A tenant's slow bodies leave room for another tenant's.
func TestBodiesOfOneTenant(t *testing.T) {
	r := newRig(t, withKeys, func(c *Config) { c.BodiesBytesMax = 2 * postdate.BatchBytesMax })
	a, b := bearer(r.key("a", auth.WriteMessages)), bearer(r.key("b", auth.WriteMessages))
	head := "POST /v1/messages/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + a + "\r\nContent-Length: 60000000\r\n\r\n["
	slow := r.dial()
	slow.write(head + strings.Repeat(" ", 40_000_000))
	for r.server.bodies.left.Load() > int64(r.server.config.BodiesBytesMax)-40_000_000 {
		time.Sleep(time.Millisecond) // the node reads
	}
	large := "[" + strings.Repeat(" ", 40_000_000) + "]"
	r.send("POST", "/v1/messages/batch", large, a).problem(503, Unavailable, "the tenant's half")
	r.send("POST", "/v1/messages/batch", large, b).want(200, `{"results":[]}`)
	slow.write(strings.Repeat(" ", 60_000_000-40_000_000-2) + "]")
	slow.read().want(200, `{"results":[]}`)
	r.send("POST", "/v1/messages/batch", large, a).want(200, `{"results":[]}`)
	if has := r.server.bodies.share("a").Load(); has != 0 {
		t.Errorf("%d bytes are not given back", has)
	}
}

// withQuota gives the rig a keeper, before its store too.
func withQuota(l quota.Limits, at *time.Time) func(*Config) {
	return func(c *Config) {
		c.Quota = quota.NewKeeper(l, c.Messages.(*fakeStore), func() int { return 1 }, func() time.Time { return *at })
		c.Messages = c.Quota.Hold(c.Messages)
	}
}

// Over its rate of messages a tenant is told so before its body is read, in a batch too, and what
// schedules nothing goes on.
func TestRateOfMessages(t *testing.T) {
	at := time.Unix(1_900_000_000, 0)
	r := newRig(t, withQuota(quota.Limits{RequestsPerSecond: 100, MessagesPerSecond: 0.25}, &at))
	got := r.send("POST", "/v1/messages/batch", "["+order("a")+","+order("b")+"]")
	if got.status != 200 || strings.Count(got.body, `"created":true`) != 2 {
		t.Fatalf("a batch larger than the rate: %d %s", got.status, got.body)
	}
	if policy, left := got.header.Get("RateLimit-Policy"), got.header.Get("RateLimit"); policy != `"requests";q=100;w=1, "messages";q=1;w=4` || left != `"requests";r=99;t=1, "messages";r=0;t=8` {
		t.Errorf("its fields are %s and %s", policy, left)
	}
	conn := r.dial()
	head := " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	for _, call := range []string{"POST /v1/messages", "PUT /v1/messages/a", "PATCH /v1/messages/a", "POST /v1/messages/batch", "POST /v1/messages/a/trigger"} {
		conn.write(call + head + "Content-Length: 3\r\n\r\n{x}")
		got := conn.read().problem(429, Limited, "messagesPerSecond", "surely nothing was done")
		if got.header.Get("Retry-After") != "8" {
			t.Errorf("%s: Retry-After is %q", call, got.header.Get("Retry-After"))
		}
	}
	conn.write("GET /v1/messages/a" + head + "\r\n") // on the same connection
	conn.read().want(200, r.send("GET", "/v1/messages/a", "").body)
	for _, call := range [][2]string{{"DELETE", "/v1/messages/a"}, {"POST", "/v1/messages/cancel"}} {
		if got := r.send(call[0], call[1], map[string]string{"POST": `{"scheduleIds":["b"]}`}[call[0]]); got.status != 200 {
			t.Errorf("%v: %d %s", call, got.status, got.body)
		}
	}
	begun := r.dial()
	begun.write("POST /v1/messages/batch" + head + "Content-Length: 60000000\r\n\r\n[" + strings.Repeat(" ", 10_000))
	begun.read().problem(429, Limited)
	at = at.Add(8 * time.Second)
	if got := r.send("POST", "/v1/messages", order("c")); got.status != 201 {
		t.Errorf("after the wait: %d %s", got.status, got.body)
	}
}

// Who watches a node has no rate.
func TestMetricsHaveNoRate(t *testing.T) {
	at := time.Unix(1_900_000_000, 0)
	r := newRig(t, withQuota(quota.Limits{RequestsPerSecond: 1}, &at))
	for range 3 {
		if got := r.send("GET", "/metrics", ""); got.status != 200 {
			t.Errorf("/metrics: %d", got.status)
		}
	}
}

// A tenant that has no more than a key is listed, and one is found however its name is written.
func TestTenantsWithKeys(t *testing.T) {
	r := newRig(t, withKeys)
	r.key("new", auth.ReadMessages)
	if a := r.send("GET", "/v1/tenants", "", bearer(adminKey)); !strings.Contains(a.body, `{"tenants":[{"tenant":"new",`) {
		t.Error(a.status, a.body)
	}
	if a := r.send("PATCH", "/v1/tenants/%6eew", `{"weight":2}`, bearer(adminKey)); !strings.Contains(a.body, `"tenant":"new"`) {
		t.Error(a.status, a.body)
	}
}
