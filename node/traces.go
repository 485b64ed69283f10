package node

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/postdate/postdate/internal/tracing"
)

// flushMax bounds how long the stop of a node waits until a collector has taken what is left.
const flushMax = 3 * time.Second

// exportFailedEvery is how often the log says that a collector takes nothing.
const exportFailedEvery = time.Minute

// traces sends spans to a collector. Nothing waits for that: what does not fit into its queue is dropped.
type traces struct {
	tracer   *tracing.Tracer
	provider *sdk.TracerProvider
	quit     context.CancelFunc
	log      *slog.Logger
}

// openTraces starts to trace, if that is wanted. Nothing is connected yet: a collector may come later.
func openTraces(ctx context.Context, c Config) (*traces, error) {
	if !c.Traces {
		return nil, nil
	}
	s, err := readTraceSettings()
	if err != nil || s.off {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "postdate"),
			attribute.String("service.version", c.Version), attribute.String("service.instance.id", c.NodeID)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, invalid("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	var to sdk.SpanExporter
	if s.grpc {
		to, err = otlptracegrpc.New(ctx)
	} else {
		to, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, invalid("--traces: the OTEL_ variables name no collector to send to: %w", err)
	}
	life, quit := context.WithCancel(context.Background())
	e := &exporter{SpanExporter: to, life: life, log: c.Log, failed: rate.Sometimes{Interval: exportFailedEvery}}
	provider := sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithBatcher(e), sdk.WithIDGenerator(ids{}),
		sdk.WithSampler(sdk.AlwaysSample())) // what is not sampled is not started
	tracer := provider.Tracer("github.com/postdate/postdate", trace.WithInstrumentationVersion(c.Version))
	return &traces{tracer: tracing.New(tracer, s.sampler), provider: provider, quit: quit, log: c.Log}, nil
}

// tracerOf returns what makes spans; nil: nothing does.
func (t *traces) tracerOf() *tracing.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

// close sends what is left, for as long as there is time.
func (t *traces) close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushMax)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last traces were not sent: the collector did not take them in time",
			"error", withoutPaths(err))
	}
	t.quit()
}

// exporter says now and then that a collector takes nothing, and gives up when the node is closed.
type exporter struct {
	sdk.SpanExporter
	life   context.Context
	log    *slog.Logger
	failed rate.Sometimes
}

// ExportSpans implements sdk.SpanExporter. Spans that cannot be sent are lost.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.failed.Do(func() {
			e.log.Warn("traces cannot be sent, and are dropped: this line comes at most once a minute",
				"spans", len(spans), "error", withoutPaths(err))
		})
	}
	return nil
}

var collectorURL = regexp.MustCompile(`(https?://)(?:[^/\s"@]*@)?([^/\s"]+)[^\s"]*`)

// withoutPaths is what the log shows of an exporter's error. It quotes the collector's URL, in which a token may stand,
// and its answer, which may be long.
func withoutPaths(err error) string {
	return tracing.Clip(collectorURL.ReplaceAllString(err.Error(), "$1$2"))
}

// ids gives a trace the id for which it was decided that it is sampled.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, _ := tracing.TraceID(ctx)
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for n := rand.Uint64(); !id.IsValid(); n = rand.Uint64() {
		for i := range id {
			id[i] = byte(n >> (8 * i))
		}
	}
	return id
}
