package tracing

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const notSampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

// What is sampled is what OpenTelemetry's own samplers sample.
func TestSampler(t *testing.T) {
	for _, ratio := range []float64{0, 1e-9, 0.01, 0.5, 1} {
		for ours, theirs := range map[Sampler]sdk.Sampler{
			{Ratio: ratio}:                    sdk.TraceIDRatioBased(ratio),
			{Ratio: ratio, ParentBased: true}: sdk.ParentBased(sdk.TraceIDRatioBased(ratio)),
		} {
			for i := range 2000 {
				from := contextOf([]string{"", parent, notSampled}[i%3])
				id := newTraceID()
				if i%5 == 0 {
					id = trace.TraceID{15: byte(rand.Uint32())}
				}
				ctx := trace.ContextWithRemoteSpanContext(context.Background(), from)
				want := theirs.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: id}).Decision == sdk.RecordAndSample
				if got := ours.Samples(from, id); got != want {
					t.Fatalf("%+v, %s, from %v: %t, want %t", ours, id, from, got, want)
				}
			}
		}
	}
}

// A span is a child of its context, or links to it, and one that is not sampled is not started.
func TestStart(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans), sdk.WithIDGenerator(fixed{})).Tracer("t")
	all, none := New(tracer, Sampler{ParentBased: true, Ratio: 1}), New(tracer, Sampler{ParentBased: true})
	begin := time.Unix(1800000000, 0)
	if (*Tracer)(nil).Start(Span{}) != nil || none.Start(Span{}) != nil || none.Start(Span{Traceparent: notSampled}) != nil || all.Start(Span{Traceparent: notSampled, Linked: true}) != nil {
		t.Error("a span is started that is not sampled")
	}
	child := none.Start(Span{Traceparent: parent, Tracestate: "a=1", Begin: begin, Kind: trace.SpanKindServer})
	linked := none.Start(Span{Traceparent: parent, Tracestate: "a=1", Linked: true})
	all.Start(Span{})
	if p, s := Texts(child.SpanContext()); p != parent[:36]+"0102030405060708-01" || s != "a=1" || TraceIDIn(p) != parent[3:35] {
		t.Errorf("the child is %s, %s", p, s)
	}
	if linked.SpanContext().TraceID() == child.SpanContext().TraceID() || !linked.SpanContext().TraceID().IsValid() {
		t.Errorf("the linked one is %v", linked.SpanContext())
	}
	started := spans.Started()
	if len(started) != 3 || started[0].Parent().SpanID().String() != parent[36:52] || !started[0].Parent().IsRemote() || started[0].StartTime() != begin || len(started[0].Links()) != 0 ||
		started[0].SpanKind() != trace.SpanKindServer || started[1].Parent().IsValid() || len(started[1].Links()) != 1 ||
		started[1].Links()[0].SpanContext.TraceState().String() != "a=1" || len(started[2].Links()) != 0 || started[2].Parent().IsValid() {
		t.Errorf("%+v", started)
	}
}

type fixed struct{}

func (fixed) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, _ := TraceID(ctx)
	return id, trace.SpanID{1}
}

func (fixed) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	return trace.SpanID{1, 2, 3, 4, 5, 6, 7, 8}
}

// FuzzClip: whatever a text is, a span's is short, and in UTF-8.
func FuzzClip(f *testing.F) {
	f.Add(strings.Repeat("x", 255) + "äöü")
	f.Add("\xff\xfe")
	f.Fuzz(func(t *testing.T, s string) {
		got := Clip(s)
		if !utf8.ValidString(got) || len(got) > 3*textBytesMax || utf8.ValidString(s) && (!strings.HasPrefix(s, got) || len(s) <= textBytesMax && got != s) {
			t.Fatalf("%q becomes %q", s, got)
		}
	})
}

// FuzzContextOf: whatever a traceparent is, it is read or it is not.
func FuzzContextOf(f *testing.F) {
	f.Add(parent)
	f.Add(strings.Repeat("x", 55))
	f.Fuzz(func(t *testing.T, s string) {
		c := contextOf(s)
		if p, _ := Checked([]byte(s)); (p != "") && (!c.IsValid() || c.TraceID().String() != TraceIDIn(s)) {
			t.Fatalf("%q is %v", s, c)
		}
	})
}

func BenchmarkNotSampled(b *testing.B) {
	tracer := New(nil, Sampler{ParentBased: true})
	b.ReportAllocs()
	for b.Loop() {
		if tracer.Start(Span{Traceparent: notSampled, Tracestate: "a=1"}) != nil || tracer.Start(Span{}) != nil {
			b.Fatal("sampled")
		}
	}
}
