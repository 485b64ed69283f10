package node

import (
	"context"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/tracing"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/rabbitmq"
)

// traced publishes a batch, and makes a span of each delivery that is sampled.
func (l *loop) traced(ctx context.Context, e poller.Publish) []publisher.Result {
	if l.tracer == nil {
		return l.publish(ctx, e)
	}
	return l.publishTraced(ctx, e)
}

// publishTraced makes the spans once the outcomes are known: until then tracing does nothing. All deliveries of a
// batch have its times, because their publisher answers for all of them.
func (l *loop) publishTraced(ctx context.Context, e poller.Publish) []publisher.Result {
	batch := make([]delivery, len(e.Batch))
	begin := time.Now()
	for i, it := range e.Batch {
		batch[i] = delivery{Delivery: it.Delivery, due: it.Begins, begin: begin}
	}
	results := l.publish(ctx, e)
	l.trace(batch, results, time.Now())
	return results
}

// trace makes the spans of a batch. Whatever goes wrong with them, the outcomes are told.
func (l *loop) trace(batch []delivery, results []publisher.Result, end time.Time) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("spans of deliveries could not be made", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	for i := range batch {
		d := &batch[i]
		d.result = results[i]
		if span := l.tracer.Start(d.span()); span != nil {
			d.end(span, end)
		}
	}
}

// delivery is what a span says of one attempt to publish a message.
type delivery struct {
	postdate.Delivery
	due    postdate.Time // of an occurrence, with its jitter
	begin  time.Time
	result publisher.Result
}

// span links to the trace in which the message was scheduled: days may lie between. The message keeps the context
// that it came with, so this span is nobody's parent.
func (d *delivery) span() tracing.Span {
	m := d.Message
	s := tracing.Span{Kind: trace.SpanKindProducer, Begin: d.begin,
		Traceparent: m.Traceparent, Tracestate: m.Tracestate, Linked: true}
	if isURL(m.Channel) {
		s.Kind = trace.SpanKindClient
	}
	return s
}

func (d *delivery) end(span trace.Span, at time.Time) {
	span.SetName(tracing.Clip("send " + destination(d.Message.Channel)))
	span.SetAttributes(d.attributes()...)
	if d.result.Outcome != publisher.Confirmed {
		span.SetStatus(codes.Error, tracing.Clip(d.result.Reason))
	}
	span.End(trace.WithTimestamp(at))
}

// attributes are those that the conventions for messaging name, of a webhook those for HTTP, and Postdate's own. What
// the message carries is not in them, nor are a webhook's path and query, in which tokens stand.
func (d *delivery) attributes() []attribute.KeyValue {
	m := d.Message
	late := postdate.WallOf(d.begin) - d.due
	all := append(target(m),
		attribute.String("postdate.tenant", m.Tenant),
		attribute.String("postdate.schedule.id", tracing.Clip(m.SeriesID())),
		attribute.Int("postdate.attempt", d.Attempt),
		attribute.Bool("postdate.possible_duplicate", d.PossibleDuplicate),
		attribute.Int64("postdate.lateness_ms", max(int64(late), 0)),
		attribute.String("postdate.outcome", d.result.Outcome.String()))
	if d.result.Outcome != publisher.Confirmed {
		all = append(all, attribute.String("error.type", d.result.Outcome.String()))
	}
	return all
}

// target says where a message goes to.
func target(m *postdate.Message) []attribute.KeyValue {
	text := func(key, value string) attribute.KeyValue { return attribute.String(key, tracing.Clip(value)) }
	if isURL(m.Channel) {
		return webhookTarget(m.Channel)
	}
	system := m.Channel.Broker()
	if system == "inbox" {
		system = "postdate"
	}
	all := []attribute.KeyValue{
		text("messaging.system", system),
		text("messaging.destination.name", destination(m.Channel)),
		text("messaging.operation.type", "send"),
		text("messaging.operation.name", "send"),
		text("messaging.message.id", m.ScheduleID),
		attribute.Int("messaging.message.body.size", len(m.Payload)),
	}
	switch system {
	case "rabbitmq":
		if _, key := rabbitmq.ExchangeAndKey(m.Channel); key != "" {
			all = append(all, text("messaging.rabbitmq.destination.routing_key", key))
		}
	case "kafka":
		if key, has := kafka.RecordKey(m); has {
			all = append(all, text("messaging.kafka.message.key", key))
		}
	}
	return all
}

func webhookTarget(c postdate.Channel) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("http.request.method", "POST"),
		attribute.String("url.scheme", strings.ToLower(c.Broker()))}
	u, err := url.Parse(c.Shown())
	if err != nil {
		return all
	}
	all = append(all, attribute.String("server.address", tracing.Clip(u.Hostname())))
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case err == nil:
		all = append(all, attribute.Int("server.port", int(port)))
	case strings.EqualFold(c.Broker(), "https"):
		all = append(all, attribute.Int("server.port", 443))
	default:
		all = append(all, attribute.Int("server.port", 80))
	}
	return all
}

func isURL(c postdate.Channel) bool {
	return strings.EqualFold(c.Broker(), "https") || strings.EqualFold(c.Broker(), "http")
}

// destination is the name of a channel's destination, as the conventions have it: on RabbitMQ that of the exchange and
// the routing key, of which one may be missing.
func destination(c postdate.Channel) string {
	switch {
	case isURL(c):
		return c.Shown()
	case c.Broker() != "rabbitmq":
		return c.Target()
	}
	exchange, key := rabbitmq.ExchangeAndKey(c)
	if exchange != "" && key != "" {
		return exchange + ":" + key
	}
	return exchange + key
}
