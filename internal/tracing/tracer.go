package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
)

// Tracer starts spans, where they are sampled. A nil Tracer starts none.
type Tracer struct {
	tracer  trace.Tracer // samples all that it starts
	sampler Sampler
}

// New makes a Tracer. tracer must sample everything, and take the ids of traces from [TraceID].
func New(tracer trace.Tracer, sampler Sampler) *Tracer { return &Tracer{tracer, sampler} }

// Sampler says which traces are sampled. It is decided once, before anything else is done for a span.
type Sampler struct {
	ParentBased bool    // what has a context is sampled as that is
	Ratio       float64 // how much of the rest, from 0 to 1
}

// Samples says whether a span with this context is sampled. Of one that begins a trace, id is the trace's.
func (s Sampler) Samples(from trace.SpanContext, id trace.TraceID) bool {
	if s.ParentBased && from.IsValid() {
		return from.IsSampled()
	}
	return s.Ratio >= 1 || binary.BigEndian.Uint64(id[8:])>>1 < uint64(max(s.Ratio, 0)*(1<<63))
}

// Span is what a span is to begin with.
type Span struct {
	Kind  trace.SpanKind
	Begin time.Time
	// The trace context that it comes from; "": none.
	Traceparent, Tracestate string
	// Linked: the span begins a trace, with a link to the context. Else it is a child of it.
	Linked bool
}

// Start starts a span, or returns nil: it is not sampled. The caller names it: a name costs something, and most are
// not sampled.
func (t *Tracer) Start(s Span) trace.Span {
	if t == nil {
		return nil
	}
	from := contextOf(s.Traceparent)
	id := from.TraceID()
	if s.Linked || !from.IsValid() {
		id = newTraceID()
	}
	if !t.sampler.Samples(from, id) {
		return nil
	}
	if state, err := trace.ParseTraceState(s.Tracestate); err == nil {
		from = from.WithTraceState(state)
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(s.Kind), trace.WithTimestamp(s.Begin)}
	ctx := context.WithValue(context.Background(), traceIDKey{}, id)
	switch {
	case !from.IsValid():
	case s.Linked:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	default:
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	}
	_, span := t.tracer.Start(ctx, "", options...)
	return span
}

type traceIDKey struct{}

// TraceID returns the id of the trace that a span begins, for which it was decided that it is sampled.
func TraceID(ctx context.Context) (id trace.TraceID, ok bool) {
	id, ok = ctx.Value(traceIDKey{}).(trace.TraceID)
	return id, ok
}

func newTraceID() (id trace.TraceID) {
	binary.BigEndian.PutUint64(id[:8], rand.Uint64()|1) // zero is no id
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// contextOf reads a traceparent that was checked. Of "" and of any other text it makes a context that is not valid.
func contextOf(traceparent string) trace.SpanContext {
	var c trace.SpanContextConfig
	var flags [1]byte
	if len(traceparent) != lengthOfParent {
		return trace.SpanContext{}
	}
	_, err := hex.Decode(c.TraceID[:], []byte(traceparent[traceAt:spanAt-1]))
	_, err2 := hex.Decode(c.SpanID[:], []byte(traceparent[spanAt:flagsAt-1]))
	_, err3 := hex.Decode(flags[:], []byte(traceparent[flagsAt:]))
	if err != nil || err2 != nil || err3 != nil {
		return trace.SpanContext{}
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0]), true
	return trace.NewSpanContext(c)
}

// TraceIDIn returns the id of the trace that a traceparent names; "": it names none.
func TraceIDIn(traceparent string) string {
	if len(traceparent) != lengthOfParent {
		return ""
	}
	return traceparent[traceAt : spanAt-1]
}

// Texts returns the context of a span as headers carry it.
func Texts(c trace.SpanContext) (traceparent, tracestate string) {
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String(),
		c.TraceState().String()
}

// textBytesMax bounds a text in a span: whoever sends a request chooses some of them.
const textBytesMax = 256

// Clip returns what a span shows of a text: its beginning, in UTF-8. With anything else no span of its batch could
// be sent.
func Clip(s string) string {
	if len(s) > textBytesMax {
		end := textBytesMax
		for end > textBytesMax-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
