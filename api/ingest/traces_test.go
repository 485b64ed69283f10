package ingest

import (
	"errors"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/tracing"
)

const (
	producer   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	notSampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

// tracedWorld is a world whose Taker samples what has a sampled parent.
func tracedWorld(t *testing.T) (*world, *tracetest.SpanRecorder) {
	w, spans := newWorld(t), tracetest.NewSpanRecorder()
	w.taker.config.Source = "rabbitmq:orders"
	w.taker.config.Tracer = tracing.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("t"), tracing.Sampler{ParentBased: true})
	return w, spans
}

// A command has one span, however often it is tried, and its message goes on with the span's context. What is not
// sampled goes on with its producer's.
func TestSpanOfACommand(t *testing.T) {
	w, spans := tracedWorld(t)
	down := true
	w.fault = func(*postdate.Message) (error, bool) {
		if down {
			return postdate.E(postdate.KindUnavailable, "down"), false
		}
		return nil, true
	}
	commands := []*Command{
		{Body: []byte("abc"), Headers: headers("x-delay", "100", "Traceparent", producer, "Tracestate", "a=1"), Channel: "rabbitmq:q", MessageID: "one"},
		{Body: []byte("abc"), Headers: headers("x-delay", "100", "traceparent", notSampled, "tracestate", "a=1"), Channel: "rabbitmq:q", MessageID: "two"},
		{Body: []byte("?"), Headers: headers("traceparent", producer), MessageID: "three"},
		{Body: []byte("?"), Headers: headers("traceparent", "?"), MessageID: "four"},
	}
	for range 3 {
		w.taker.Take(t.Context(), commands)
		down = false
	}
	ended := map[string]sdk.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		got := map[string]string{}
		for _, kv := range s.Attributes() {
			got[string(kv.Key)] = kv.Value.String()
		}
		id := got["messaging.message.id"]
		want := map[string]string{"messaging.system": "rabbitmq", "messaging.destination.name": "orders", "messaging.operation.type": "process", "messaging.operation.name": "process",
			"messaging.message.body.size": "3", "messaging.message.id": "one", "postdate.tenant": "default", "postdate.outcome": "scheduled", "postdate.schedule.id": "one"}
		if id == "three" {
			delete(want, "postdate.schedule.id")
			maps.Copy(want, map[string]string{"messaging.message.body.size": "1", "messaging.message.id": "three", "postdate.outcome": "bad", "error.type": "bad"})
		}
		if !maps.Equal(got, want) || s.Name() != "process orders" || s.SpanKind() != trace.SpanKindConsumer || (s.Status().Code == codes.Error) != (id == "three") {
			t.Errorf("%s %v %v: %v", s.Name(), s.SpanKind(), s.Status(), got)
		}
		ended[id] = s
	}
	if len(spans.Started()) != 2 || len(ended) != 2 {
		t.Fatalf("%d spans were started, and %d ended", len(spans.Started()), len(ended))
	}
	parent, state := tracing.Texts(ended["one"].SpanContext())
	for id, want := range map[string][2]string{"one": {parent, state}, "two": {notSampled, "a=1"}} {
		r, err := w.Mem.Get(t.Context(), w.taker.config.Intake.Key(id))
		if err != nil || r.Traceparent != want[0] || r.Tracestate != want[1] {
			t.Errorf("%s has %q, %q (%v), want %q", id, r.Traceparent, r.Tracestate, err, want)
		}
	}
	if state != "a=1" || ended["one"].Parent().SpanID().String() != producer[36:52] {
		t.Errorf("the span is of %v, with %q", ended["one"].Parent(), state)
	}
}

// A task goes on with the context of its command's span, too.
func TestSpanOfATask(t *testing.T) {
	w, spans := tracedWorld(t)
	w.taker.config.Tasks = true
	c := &Command{Body: []byte(`{"host":"default","name":"a","action":"INSERT","frequency":{"timeUnit":"HOURS","time":1},"topic":"t","data":1}`), Headers: headers("traceparent", producer)}
	if r := w.taker.Take(t.Context(), []*Command{c}); r[0].Outcome != Done {
		t.Fatal(errors.New(r[0].Reason))
	}
	parent, _ := tracing.Texts(spans.Ended()[0].SpanContext())
	if r, err := w.Mem.Get(t.Context(), w.taker.config.Intake.Key("task:a")); err != nil || r.Traceparent != parent {
		t.Errorf("the task has %q, %v, want %q", r.Traceparent, err, parent)
	}
}

// A tracestate may stand in many headers. One that is too long is dropped, and costs no more than its length.
func TestTracestateInManyHeaders(t *testing.T) {
	var c traceContext
	for range 100_000 {
		c.take(tracing.HeaderState, "a=1")
	}
	if n := len(c.state); n <= postdate.TracestateBytesMax || n > postdate.TracestateBytesMax+10 {
		t.Errorf("%d bytes are kept", n)
	}
	if _, state := tracing.Checked([]byte(producer), []byte(c.state)); state != "" {
		t.Errorf("the tracestate is %q", state)
	}
}
