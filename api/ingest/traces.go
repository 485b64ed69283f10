package ingest

import (
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/tracing"
)

// traceContext is a command's trace context, as it came.
type traceContext struct{ parent, state string }

// take keeps a header that is a part of the context, and says whether it is one. name is in small letters. A
// tracestate may come in several headers.
func (t *traceContext) take(name, value string) bool {
	switch name {
	case tracing.HeaderParent:
		t.parent = value
	case tracing.HeaderState:
		if len(t.state) <= postdate.TracestateBytesMax { // a longer one is not kept
			t.state = strings.TrimPrefix(t.state+","+value, ",")
		}
	default:
		return false
	}
	return true
}

// startSpan starts a command's span as a part of its producer's trace. If it is sampled, the message goes on with the
// span's context. It ends with the command, however often that is tried.
func (t *Taker) startSpan(c *Command) {
	if t.config.Tracer == nil {
		return
	}
	var sent traceContext
	for _, h := range c.Headers {
		sent.take(strings.ToLower(h.Name), h.Value)
	}
	s := tracing.Span{Kind: trace.SpanKindConsumer, Begin: time.Now()}
	s.Traceparent, s.Tracestate = tracing.Checked([]byte(sent.parent), []byte(sent.state))
	if c.span = t.config.Tracer.Start(s); c.span == nil {
		return
	}
	c.span.SetName(tracing.Clip("process " + t.destination()))
	parent, state := tracing.Texts(c.span.SpanContext())
	c.decision.Message.Traceparent, c.decision.Message.Tracestate = parent, state
	if task := c.decision.task; task != nil {
		task.Message.Traceparent, task.Message.Tracestate = parent, state
	}
}

// endSpan ends a command's span, if it has one. reason is for a bad command alone.
func (t *Taker) endSpan(c *Command, how, reason string) {
	if c.span == nil {
		return
	}
	c.span.SetAttributes(t.attributes(c, how)...)
	if how == howBad {
		c.span.SetAttributes(attribute.String("error.type", how))
		c.span.SetStatus(codes.Error, tracing.Clip(reason))
	}
	c.span.End()
	c.span = nil
}

// system and destination are the parts of the source.
func (t *Taker) system() string {
	system, _, _ := strings.Cut(t.config.Source, ":")
	return system
}

func (t *Taker) destination() string {
	_, destination, _ := strings.Cut(t.config.Source, ":")
	return destination
}

// attributes are those that the conventions for messaging name, and Postdate's own. What the command carries is not
// in them.
func (t *Taker) attributes(c *Command, how string) []attribute.KeyValue {
	text := func(key, value string) attribute.KeyValue { return attribute.String(key, tracing.Clip(value)) }
	all := []attribute.KeyValue{
		text("messaging.system", t.system()),
		text("messaging.destination.name", t.destination()),
		text("messaging.operation.type", "process"),
		text("messaging.operation.name", "process"),
		attribute.Int("messaging.message.body.size", len(c.Body)),
		text("postdate.tenant", t.config.Intake.Tenant),
		text("postdate.outcome", how),
	}
	if c.MessageID != "" {
		all = append(all, text("messaging.message.id", c.MessageID))
	}
	if id := c.decision.Message.ScheduleID; id != "" {
		all = append(all, text("postdate.schedule.id", id))
	}
	if c.Place.Topic != "" {
		all = append(all, attribute.Int64("messaging.kafka.offset", c.Place.Offset),
			text("messaging.destination.partition.id", strconv.Itoa(int(c.Place.Partition))))
		if c.Key != "" {
			all = append(all, text("messaging.kafka.message.key", c.Key))
		}
	}
	return all
}
