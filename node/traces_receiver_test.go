package node_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/postdate/postdate/node"
)

// traceCollector is a collector in the test's process, for both protocols of OpenTelemetry.
type traceCollector struct {
	collector.UnimplementedTraceServiceServer
	t testing.TB

	mu    sync.Mutex
	spans []*otlp.ResourceSpans // one for each span
	keys  []string              // the header x-key of each call
	more  chan struct{}         // closed and replaced when spans come
}

// collect starts a receiver, and points the variables of OpenTelemetry to it.
func collect(t testing.TB, protocol string) *traceCollector {
	t.Helper()
	r := &traceCollector{t: t, more: make(chan struct{})}
	url := ""
	if protocol == "grpc" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		collector.RegisterTraceServiceServer(server, r)
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		url = "http://" + l.Addr().String()
	} else {
		server := httptest.NewServer(r)
		t.Cleanup(server.Close)
		url = server.URL
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=s%20t")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	return r
}

// Export is a call by gRPC.
func (r *traceCollector) Export(ctx context.Context, m *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	from, _ := metadata.FromIncomingContext(ctx)
	r.note(m, strings.Join(from.Get("x-key"), ","))
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP is a call by HTTP.
func (r *traceCollector) ServeHTTP(w http.ResponseWriter, call *http.Request) {
	body, err := io.ReadAll(call.Body)
	if call.Header.Get("Content-Encoding") == "gzip" {
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(plain)
		}
	}
	var m collector.ExportTraceServiceRequest
	if err != nil || call.Method != "POST" || call.URL.Path != "/v1/traces" || call.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, &m) != nil {
		r.t.Errorf("%s %s, %v", call.Method, call.URL, err)
		return
	}
	r.note(&m, call.Header.Get("x-key"))
	w.Header().Set("Content-Type", "application/x-protobuf")
	answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
	_, _ = w.Write(answer)
}

func (r *traceCollector) note(m *collector.ExportTraceServiceRequest, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, key)
	for _, of := range m.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				r.spans = append(r.spans, &otlp.ResourceSpans{Resource: of.Resource, SchemaUrl: of.SchemaUrl,
					ScopeSpans: []*otlp.ScopeSpans{{Scope: scope.Scope, SchemaUrl: scope.SchemaUrl, Spans: []*otlp.Span{span}}}})
			}
		}
	}
	close(r.more)
	r.more = make(chan struct{})
}

func spanIn(of *otlp.ResourceSpans) *otlp.Span { return of.ScopeSpans[0].Spans[0] }

// take waits for the first span with this name, and takes it out.
func (r *traceCollector) take(name string) *otlp.ResourceSpans {
	r.t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		at := slices.IndexFunc(r.spans, func(of *otlp.ResourceSpans) bool { return spanIn(of).Name == name })
		more := r.more
		if at >= 0 {
			of := r.spans[at]
			r.spans = slices.Delete(r.spans, at, at+1)
			r.mu.Unlock()
			return of
		}
		names := r.names()
		r.mu.Unlock()
		select {
		case <-more:
		case <-late:
			r.t.Fatalf("no span is named %q: there are %q", name, names)
		}
	}
}

// names are those of the spans that were not taken. The lock is held.
func (r *traceCollector) names() (names []string) {
	for _, of := range r.spans {
		names = append(names, spanIn(of).Name)
	}
	return names
}

// left fails the test if spans came that nobody has taken.
func (r *traceCollector) left() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if names := r.names(); len(names) > 0 {
		r.t.Errorf("there are also spans named %q", names)
	}
}

// contextOf is a span's context as a traceparent.
func contextOf(of *otlp.ResourceSpans) string {
	s := spanIn(of)
	return "00-" + hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId) + "-01"
}

// wanted is all of a span but its ids and times.
type wanted struct {
	name       string
	kind       otlp.Span_SpanKind
	parent     string // a traceparent; "": it is a root
	state      string
	link       string // a traceparent; the exporter leaves its tracestate out
	failed     bool
	reason     string
	attributes map[string]any
}

// Whether the other end of a span's relation is known to be remote, and is so.
const sampledFlag, remoteKnown, isRemote = 1, 1 << 8, 1 << 9

// whole compares everything of a span with what is wanted: what is there besides fails, too. began is from when on it
// may have begun.
func whole(t testing.TB, of *otlp.ResourceSpans, began time.Time, w wanted) {
	t.Helper()
	got := proto.Clone(of).(*otlp.ResourceSpans)
	s := spanIn(got)
	begin, end := time.Unix(0, int64(s.StartTimeUnixNano)), time.Unix(0, int64(s.EndTimeUnixNano))
	if begin.Before(began) || end.Before(begin) || end.After(time.Now()) || len(s.TraceId) != 16 || len(s.SpanId) != 8 {
		t.Errorf("%s: from %s to %s, trace %x, span %x", s.Name, begin, end, s.TraceId, s.SpanId)
	}
	id := func(text string, from, to int) []byte { b, _ := hex.DecodeString(text[from:to]); return b }
	span := &otlp.Span{Name: w.name, Kind: w.kind, TraceId: s.TraceId, SpanId: s.SpanId, StartTimeUnixNano: s.StartTimeUnixNano, EndTimeUnixNano: s.EndTimeUnixNano,
		Attributes: attributesOf(w.attributes), Status: &otlp.Status{}, Flags: sampledFlag | remoteKnown, TraceState: w.state}
	if w.parent != "" {
		span.TraceId, span.ParentSpanId, span.Flags = id(w.parent, 3, 35), id(w.parent, 36, 52), span.Flags|isRemote
	}
	if w.link != "" {
		span.Links = []*otlp.Span_Link{{TraceId: id(w.link, 3, 35), SpanId: id(w.link, 36, 52), Flags: sampledFlag | remoteKnown | isRemote}}
		if bytes.Equal(s.TraceId, span.Links[0].TraceId) {
			t.Errorf("%s is in the trace that it links to", s.Name)
		}
	}
	if w.failed {
		span.Status = &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: w.reason}
	}
	want := &otlp.ResourceSpans{
		Resource: &resource.Resource{Attributes: attributesOf(map[string]any{
			"service.name": "postdate", "service.version": "1.2.3", "service.instance.id": "test", "deployment.environment.name": "a b",
			"telemetry.sdk.language": "go", "telemetry.sdk.name": "opentelemetry", "telemetry.sdk.version": sdkVersion,
		})},
		SchemaUrl:  got.SchemaUrl, // that of the SDK's own attributes
		ScopeSpans: []*otlp.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "github.com/postdate/postdate", Version: "1.2.3"}, Spans: []*otlp.Span{span}}},
	}
	for _, kvs := range [][]*common.KeyValue{s.Attributes, got.Resource.Attributes} {
		slices.SortFunc(kvs, func(a, b *common.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", prototext.Format(got), prototext.Format(want))
	}
}

func attributesOf(all map[string]any) (kvs []*common.KeyValue) {
	for key, value := range all {
		v := &common.AnyValue{}
		switch value := value.(type) {
		case string:
			v.Value = &common.AnyValue_StringValue{StringValue: value}
		case int:
			v.Value = &common.AnyValue_IntValue{IntValue: int64(value)}
		case bool:
			v.Value = &common.AnyValue_BoolValue{BoolValue: value}
		}
		kvs = append(kvs, &common.KeyValue{Key: key, Value: v})
	}
	slices.SortFunc(kvs, func(a, b *common.KeyValue) int { return cmp.Compare(a.Key, b.Key) })
	return kvs
}

// attribute is one of a span's attributes, as a number or a text.
func attribute(of *otlp.ResourceSpans, key string) any {
	for _, kv := range spanIn(of).Attributes {
		if kv.Key == key {
			if n, is := kv.Value.Value.(*common.AnyValue_IntValue); is {
				return int(n.IntValue)
			}
			return kv.Value.GetStringValue()
		}
	}
	return nil
}

// traced is a configuration of a node that traces.
func traced(t testing.TB) node.Config {
	c := config(t)
	c.Traces, c.Version = true, "1.2.3"
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a%20b")
	return c
}
