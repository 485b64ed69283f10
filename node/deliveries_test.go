package node

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/tracing"
	"github.com/postdate/postdate/publisher"
)

// A span says of a delivery what the conventions ask for, bounded, and nothing that the message carries.
func TestAttributesOfADelivery(t *testing.T) {
	long := strings.Repeat("x", 300)
	own := func(more map[string]string) map[string]string {
		all := map[string]string{"postdate.tenant": "t", "postdate.schedule.id": "id", "postdate.attempt": "2", "postdate.possible_duplicate": "true", "postdate.lateness_ms": "5", "postdate.outcome": "unknown", "error.type": "unknown"}
		maps.Copy(all, more)
		return all
	}
	messaging := func(system, destination string, more ...string) map[string]string {
		all := map[string]string{"messaging.system": system, "messaging.destination.name": destination, "messaging.operation.type": "send", "messaging.operation.name": "send", "messaging.message.id": "id", "messaging.message.body.size": "3"}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	hook := func(scheme, address, port string) map[string]string {
		return map[string]string{"http.request.method": "POST", "url.scheme": scheme, "server.address": address, "server.port": port}
	}
	for _, test := range []struct {
		channel, key string
		headers      []postdate.Header
		name         string
		want         map[string]string
	}{
		{"inbox:box", "", nil, "send box", messaging("postdate", "box")},
		{"rabbitmq:q", "", nil, "send q", messaging("rabbitmq", "q", "messaging.rabbitmq.destination.routing_key", "q")},
		{"rabbitmq:x/a.b/c", "", nil, "send x:a.b/c", messaging("rabbitmq", "x:a.b/c", "messaging.rabbitmq.destination.routing_key", "a.b/c")},
		{"rabbitmq:/q", "", nil, "send q", messaging("rabbitmq", "q", "messaging.rabbitmq.destination.routing_key", "q")},
		{"rabbitmq:x/", "", nil, "send x", messaging("rabbitmq", "x")},
		{"kafka:t", "k", nil, "send t", messaging("kafka", "t", "messaging.kafka.message.key", "k")},
		{"kafka:t", "", nil, "send t", messaging("kafka", "t", "messaging.kafka.message.key", "id")},
		{"kafka:t", "", []postdate.Header{{Name: postdate.HeaderNoKey, Value: "true"}}, "send t", messaging("kafka", "t")},
		{"kafka:t", "\xff" + long, nil, "send t", messaging("kafka", "t", "messaging.kafka.message.key", "\uFFFD"+long[:255])},
		{"https://user:secret@h.example/secret?secret", "", nil, "send https://h.example", hook("https", "h.example", "443")},
		{"HTTP://h.example:81/secret", "", nil, "send http://h.example:81", hook("http", "h.example", "81")},
		{"http://[::1]/secret", "", nil, "send http://[::1]", hook("http", "::1", "80")},
		{"http:secret", "", nil, "send http", hook("http", "", "80")},
	} {
		m := postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: "id"}, Channel: postdate.Channel(test.channel), ExecutionTime: 400, Payload: []byte("abc"),
			PartitionKey: test.key, Headers: append(test.headers, postdate.Header{Name: "a", Value: "secret"})}
		d := delivery{postdate.Delivery{Message: &m, Attempt: 2, PossibleDuplicate: true}, 1000, time.UnixMilli(1005), publisher.Result{Outcome: publisher.Unknown, Reason: "r"}}
		got := map[string]string{}
		for _, kv := range d.attributes() {
			if _, twice := got[string(kv.Key)]; twice || kv.Value.Type() == attribute.EMPTY {
				t.Errorf("%s: %s stands twice", test.channel, kv.Key)
			}
			got[string(kv.Key)] = kv.Value.String()
		}
		if want := own(test.want); !maps.Equal(got, want) {
			t.Errorf("%s\ngot  %v\nwant %v", test.channel, got, want)
		}
		kind := trace.SpanKindProducer
		if strings.HasPrefix(strings.ToLower(test.channel), "http") {
			kind = trace.SpanKindClient
		}
		if s := d.span(); "send "+destination(m.Channel) != test.name || s.Kind != kind || !s.Linked {
			t.Errorf("%s: %+v", test.channel, s)
		}
	}
}

// Each variable of OpenTelemetry that has a wrong value is an error that names it, without what may be secret.
func TestWrongTraceSettings(t *testing.T) {
	for variable, values := range map[string][]string{
		"OTEL_SDK_DISABLED":                     {"no"},
		"OTEL_TRACES_EXPORTER":                  {"zipkin"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":           {"http/json", "GRPCS"},
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL":    {"x"},
		"OTEL_EXPORTER_OTLP_ENDPOINT":           {"localhost:4317", "http://", "ftp://secret@a", ":secret"},
		"OTEL_EXPORTER_OTLP_HEADERS":            {"secret", "a=secret,secret", "=secret", "a=%zzsecret"},
		"OTEL_EXPORTER_OTLP_TIMEOUT":            {"1s", "0"},
		"OTEL_EXPORTER_OTLP_COMPRESSION":        {"zstd"},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        {"/nowhere", "traces.go"},
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":         {"traces.go"},
		"OTEL_TRACES_SAMPLER":                   {"jaeger_remote"},
		"OTEL_BSP_MAX_QUEUE_SIZE":               {"-1", "x"},
		"OTEL_BSP_SCHEDULE_DELAY":               {"5s"},
		"OTEL_EXPORTER_OTLP_TRACES_INSECURE":    {"x"},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS":     {"secret"},
		"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT":     {"x"},
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE":        {"0"},
		"OTEL_BSP_EXPORT_TIMEOUT":               {"1e9"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":    {"x"},
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": {"traces.go"},
		"OTEL_RESOURCE_ATTRIBUTES":              {"a", "a=%zz"},
	} {
		for _, value := range values {
			t.Run(variable+" "+value, func(t *testing.T) {
				t.Setenv(variable, value)
				if err := (Config{}).validateTraces(); err != nil {
					t.Errorf("without --traces: %v", err)
				}
				err := Config{Traces: true}.validateTraces()
				if err == nil || postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), variable) || strings.Contains(err.Error(), "secret") {
					t.Errorf("%v", err)
				}
			})
		}
	}
	t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
	for _, ratio := range []string{"-1", "2", "x", "NaN"} {
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
		if err := (Config{Traces: true}).validateTraces(); err == nil || !strings.Contains(err.Error(), "OTEL_TRACES_SAMPLER_ARG") {
			t.Errorf("%s: %v", ratio, err)
		}
	}
}

// The sampler is what its variables say.
func TestSamplerSettings(t *testing.T) {
	for _, test := range []struct {
		name, ratio string
		want        tracing.Sampler
	}{
		{"", "", tracing.Sampler{ParentBased: true, Ratio: 1}},
		{"", "0.5", tracing.Sampler{ParentBased: true, Ratio: 1}},
		{"always_on", "", tracing.Sampler{Ratio: 1}},
		{"always_off", "", tracing.Sampler{}},
		{"traceidratio", "0.01", tracing.Sampler{Ratio: 0.01}},
		{"traceidratio", "", tracing.Sampler{Ratio: 1}},
		{"parentbased_always_on", "x", tracing.Sampler{ParentBased: true, Ratio: 1}},
		{"Parentbased_Always_Off", "", tracing.Sampler{ParentBased: true}},
		{" parentbased_traceidratio ", " 0.25 ", tracing.Sampler{ParentBased: true, Ratio: 0.25}},
	} {
		t.Setenv("OTEL_TRACES_SAMPLER", test.name)
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", test.ratio)
		s, err := readTraceSettings()
		if err != nil || s.sampler != test.want || s.off || s.grpc {
			t.Errorf("%q %q: %+v, %v", test.name, test.ratio, s, err)
		}
	}
	for variable, value := range map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "none"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			if traces, err := openTraces(t.Context(), Config{Traces: true}); traces != nil || err != nil {
				t.Errorf("%v, %v", traces, err)
			}
		})
	}
}

// While nothing is traced, the variables of OpenTelemetry mean nothing: other programs may be set by them.
func TestVariablesOfOthers(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if traces, err := openTraces(t.Context(), Config{}); traces != nil || err != nil {
		t.Errorf("%v, %v", traces, err)
	}
}

// The log shows where a collector is, but no token in its address, and not all that it answers.
func TestErrorsOfACollector(t *testing.T) {
	err := fmt.Errorf(`failed to send to https://me:secret@collector.example:4318/secret/v1/traces?secret: 400 (body: %s)`, strings.Repeat("x", 5000))
	got := withoutPaths(err)
	if strings.Contains(got, "secret") || !strings.Contains(got, "https://collector.example:4318 400") || len(got) > 300 {
		t.Errorf("the log shows %s", got)
	}
}

// If a span cannot be made, the outcomes are told all the same.
func TestSpansThatCannotBeMade(t *testing.T) {
	log := &nodetest.Log{}
	l := &loop{tracer: tracing.New(nil, tracing.Sampler{Ratio: 1}), log: slog.New(slog.NewTextHandler(log, nil))}
	l.trace([]delivery{{Delivery: postdate.Delivery{Message: &postdate.Message{}}}}, make([]publisher.Result, 1), time.Now())
	if !strings.Contains(log.String(), "spans of deliveries could not be made") {
		t.Errorf("the log says %s", log)
	}
}
