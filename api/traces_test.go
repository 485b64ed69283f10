package api

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/postdate/postdate/internal/tracing"
)

func shown(all []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range all {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// A span says of a request what the conventions ask for, bounded, and nothing else.
func TestAttributesOfARequest(t *testing.T) {
	long := strings.Repeat("x", 16<<10)
	for _, test := range []struct {
		request
		name string
		want map[string]string
	}{
		{request{method: "POST", route: "/v1/messages", path: "/v1/messages", scheme: "https", host: "h:8080", client: "1.2.3.4", userAgent: "ua", id: "r"}, "POST /v1/messages",
			map[string]string{"http.request.method": "POST", "http.route": "/v1/messages", "url.path": "/v1/messages", "url.scheme": "https", "server.address": "h", "server.port": "8080", "client.address": "1.2.3.4", "user_agent.original": "ua", "postdate.request.id": "r"}},
		{request{method: "GET", route: noRoute, path: "/secret", scheme: "http", host: "[::1]:80"}, "GET",
			map[string]string{"http.request.method": "GET", "url.scheme": "http", "server.address": "::1", "server.port": "80"}},
		{request{method: "BREW" + long, route: noRoute, scheme: "http", host: "h:x"}, "HTTP",
			map[string]string{"http.request.method": "_OTHER", "http.request.method_original": "BREW" + long[:252], "url.scheme": "http", "server.address": "h"}},
		{request{method: "GET", route: "/v1/messages/{id}", path: "/v1/messages/\xff" + long, scheme: "http", host: long, userAgent: long, client: "c"}, "GET /v1/messages/{id}",
			map[string]string{"http.request.method": "GET", "http.route": "/v1/messages/{id}", "url.path": "/v1/messages/\uFFFD" + long[:242], "url.scheme": "http", "server.address": long[:256], "client.address": "c", "user_agent.original": long[:256]}},
	} {
		if got := shown(test.attributes()); !maps.Equal(got, test.want) {
			t.Errorf("got  %v\nwant %v", got, test.want)
		}
		if got := spanName(test.method, test.route); got != test.name {
			t.Errorf("the name is %q, want %q", got, test.name)
		}
	}
}

// A request that fails has a span with an error, and its lines in the log have the ids of the request and of the trace,
// sampled or not.
func TestTraceOfAFailure(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	r := newRig(t, func(c *Config) {
		c.Tracer = tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("t"), tracing.Sampler{ParentBased: true})
	})
	r.store.err = errors.New("broken")
	for i, flags := range []string{"01", "00"} {
		id := fmt.Sprint("mine-", i)
		r.send("GET", "/v1/messages/a", "", "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"+flags, "X-Request-Id: "+id)
		if !strings.Contains(r.log.String(), "requestId="+id+" traceId=4bf92f3577b34da6a3ce929d0e0e4736") {
			t.Errorf("the log says %s", r.log)
		}
		if n := len(spans.Ended()); n != 1 {
			t.Fatalf("%d spans after %d requests", n, i+1)
		}
	}
	r.send("GET", "/v1/messages/a", "", "X-Request-Id: untraced")
	if strings.Count(r.log.String(), "traceId") != 2 || !strings.Contains(r.log.String(), "untraced") {
		t.Errorf("the log says %s", r.log)
	}
	s := spans.Ended()[0]
	if got := shown(s.Attributes()); s.Status().Code != codes.Error || got["error.type"] != got["http.response.status_code"] || got["error.type"][0] != '5' {
		t.Errorf("%v %v", s.Status(), fmt.Sprint(got))
	}
}
