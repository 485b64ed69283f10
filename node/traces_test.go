package node_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/sdk"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

var sdkVersion = sdk.Version()

const unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"

// sent makes a request with headers, and returns the answer's status.
func sent(t *testing.T, n *node.Node, method, path, body string, headers ...string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(patient(t), method, "http://"+n.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// requestSpan is what a span of a request is to be.
func requestSpan(n *node.Node, method, route, path string, status int) wanted {
	port := n.Addr()[strings.LastIndexByte(n.Addr(), ':')+1:]
	number, _ := strconv.Atoi(port)
	return wanted{name: method + " " + route, kind: otlp.Span_SPAN_KIND_SERVER, attributes: map[string]any{
		"http.request.method": method, "http.route": route, "url.path": path, "url.scheme": "http", "server.address": "127.0.0.1", "server.port": number,
		"client.address": "127.0.0.1", "user_agent.original": "test/1", "http.response.status_code": status, "postdate.request.id": "request-1", "postdate.tenant": "default"}}
}

// TestTraces compares whole spans of a request and of its deliveries, through an inbox and to a webhook, which fails
// once. The message goes on with the request's context.
func TestTraces(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(strings.ReplaceAll(protocol, "/", "-"), func(t *testing.T) { traces(t, protocol) })
	}
}

func traces(t *testing.T, protocol string) {
	r := collect(t, protocol)
	c := traced(t)
	c.Webhook.Allow = []string{"127.0.0.1"}
	n, api := start(t, c)
	began := time.Now()
	if got := sent(t, n, "POST", "/v1/messages", `{"scheduleId":"a","channel":"inbox:box","delay":"0s","payload":"secret-payload","headers":{"mine":"secret-header"}}`,
		"Traceparent", traceparent, "Tracestate", "congo=1", "User-Agent", "test/1", "X-Request-Id", "request-1", "Authorization", "Bearer secret-key"); got != 201 {
		t.Fatal(got)
	}
	request := r.take("POST /v1/messages")
	w := requestSpan(n, "POST", "/v1/messages", "/v1/messages", 201)
	w.parent, w.state = traceparent, "congo=1"
	whole(t, request, began, w)
	delivered := r.take("send box")
	lateness := attribute(delivered, "postdate.lateness_ms")
	w = wanted{name: "send box", kind: otlp.Span_SPAN_KIND_PRODUCER, link: contextOf(request), attributes: map[string]any{
		"messaging.system": "postdate", "messaging.destination.name": "box", "messaging.operation.type": "send", "messaging.operation.name": "send",
		"messaging.message.id": "a", "messaging.message.body.size": 16, "postdate.tenant": "default", "postdate.schedule.id": "a", "postdate.attempt": 1,
		"postdate.possible_duplicate": false, "postdate.lateness_ms": lateness, "postdate.outcome": "confirmed"}}
	whole(t, delivered, began, w)
	page, err := api.ReadInbox(patient(t), "box", client.InboxRead{})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].Headers["traceparent"] != contextOf(request) || page.Messages[0].Headers["tracestate"] != "congo=1" {
		t.Errorf("%+v, %v", page, err)
	}
	webhookTraces(t, r, n)
	for _, key := range r.keys {
		if key != "s t" {
			t.Errorf("the collector was sent the key %q", key)
		}
	}
	for _, of := range r.spans {
		if text := fmt.Sprint(of); strings.Contains(text, "secret") {
			t.Errorf("a span tells a secret: %s", text)
		}
	}
}

func webhookTraces(t *testing.T, r *traceCollector, n *node.Node) {
	var mu sync.Mutex
	var headers []http.Header
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, call *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if headers = append(headers, call.Header); len(headers) == 1 {
			w.WriteHeader(500)
		}
	}))
	defer hook.Close()
	began := time.Now()
	body := fmt.Sprintf(`{"scheduleId":"hook","channel":"%s/secret-token?key=secret","delay":"0s","payload":1,"retry":{"minBackoff":"10ms"}}`, hook.URL)
	if got := sent(t, n, "POST", "/v1/messages", body, "Traceparent", traceparent); got != 201 {
		t.Fatal(got)
	}
	request := r.take("POST /v1/messages")
	address, _ := url.Parse(hook.URL)
	port, _ := strconv.Atoi(address.Port())
	for attempt := 1; attempt <= 2; attempt++ {
		of := r.take("send " + hook.URL)
		w := wanted{name: "send " + hook.URL, kind: otlp.Span_SPAN_KIND_CLIENT, link: contextOf(request), attributes: map[string]any{
			"http.request.method": "POST", "url.scheme": "http", "server.address": "127.0.0.1", "server.port": port,
			"postdate.tenant": "default", "postdate.schedule.id": "hook", "postdate.attempt": attempt, "postdate.possible_duplicate": false,
			"postdate.lateness_ms": attribute(of, "postdate.lateness_ms"), "postdate.outcome": "confirmed"}}
		if attempt == 1 {
			w.failed, w.reason = true, spanIn(of).Status.Message
			w.attributes["postdate.outcome"], w.attributes["error.type"] = "refused", "refused"
			if !strings.Contains(w.reason, "500") || strings.Contains(w.reason, "secret") {
				t.Errorf("the reason is %q", w.reason)
			}
		}
		whole(t, of, began, w)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, h := range headers {
		if h.Get("traceparent") != contextOf(request) || h.Get("tracestate") != "" {
			t.Errorf("%s: the webhook got %v", testrun.Broken, h)
		}
	}
}

// TestTracesOfBrokers: a command of Kafka continues its producer's trace, and what is delivered to RabbitMQ and Kafka
// links to it, and goes on with its context.
func TestTracesOfBrokers(t *testing.T) {
	r := collect(t, "grpc")
	address, rabbit := kafkatest.URI(t), rabbitmqtest.URL(t)
	topics, queues := kafkatest.NewClient(t, address), rabbitmqtest.NewClient(t, rabbit)
	name := fmt.Sprint("traces-", time.Now().UnixNano())
	for _, topic := range []string{"", ".postdate-rejected", "-out"} {
		topics.CreateTopic(name+topic, 1, nil)
	}
	queues.Declare(name, nil)
	queues.Bind(name+"-x", "topic", "a.b", name)
	c := traced(t)
	c.RabbitMQ, c.Kafka, c.Ingest = rabbit, node.Kafka{Seeds: []string{address}}, []string{"kafka:" + name + "=kafka:" + name + "-out"}
	_, _ = start(t, c)
	began := time.Now()
	command := fmt.Sprintf(`{"scheduleId":"two","channel":"rabbitmq:%s-x/a.b","delay":"1ms","payload":1}`, name)
	headers := []kgo.RecordHeader{{Key: "traceparent", Value: []byte(traceparent)}, {Key: "tracestate", Value: []byte("a=1")}, {Key: "tracestate", Value: []byte("b=2")}}
	send(t, address,
		&kgo.Record{Topic: name, Key: []byte("k"), Value: []byte("raw"), Headers: append(headers, kgo.RecordHeader{Key: "x-delay", Value: []byte("1")}, kgo.RecordHeader{Key: "postdate-schedule-id", Value: []byte("one")})},
		&kgo.Record{Topic: name, Key: []byte("two"), Value: []byte(command), Headers: headers},
		&kgo.Record{Topic: name, Key: []byte("bad"), Value: []byte("?"), Headers: headers})
	processed := []*otlp.ResourceSpans{r.take("process " + name), r.take("process " + name), r.take("process " + name)}
	slices.SortFunc(processed, func(a, b *otlp.ResourceSpans) int {
		return attribute(a, "messaging.kafka.offset").(int) - attribute(b, "messaging.kafka.offset").(int)
	})
	for i, want := range []struct {
		id, key, outcome string
		size             int
	}{{"one", "k", "scheduled", 3}, {"two", "two", "scheduled", len(command)}, {"", "bad", "bad", 1}} {
		of := processed[i]
		w := wanted{name: "process " + name, kind: otlp.Span_SPAN_KIND_CONSUMER, parent: traceparent, state: "a=1,b=2", attributes: map[string]any{
			"messaging.system": "kafka", "messaging.destination.name": name, "messaging.operation.type": "process", "messaging.operation.name": "process",
			"messaging.message.body.size": want.size, "messaging.kafka.offset": i, "messaging.destination.partition.id": "0", "messaging.kafka.message.key": want.key,
			"postdate.tenant": "default", "postdate.outcome": want.outcome}}
		if want.id != "" {
			w.attributes["postdate.schedule.id"] = want.id
		} else {
			w.failed, w.reason, w.attributes["error.type"] = true, spanIn(of).Status.Message, "bad"
			if !strings.Contains(w.reason, "it does not say when") {
				t.Errorf("the reason is %q", w.reason)
			}
		}
		whole(t, of, began, w)
	}
	for i, want := range []struct {
		destination, id string
		size            int
		more            map[string]any
	}{
		{name + "-out", "one", 3, map[string]any{"messaging.system": "kafka", "messaging.kafka.message.key": "k"}},
		{name + "-x:a.b", "two", 1, map[string]any{"messaging.system": "rabbitmq", "messaging.rabbitmq.destination.routing_key": "a.b"}},
	} {
		of := r.take("send " + want.destination)
		w := wanted{name: "send " + want.destination, kind: otlp.Span_SPAN_KIND_PRODUCER, link: contextOf(processed[i]), attributes: map[string]any{
			"messaging.destination.name": want.destination, "messaging.operation.type": "send", "messaging.operation.name": "send",
			"messaging.message.id": want.id, "messaging.message.body.size": want.size, "postdate.tenant": "default", "postdate.schedule.id": want.id, "postdate.attempt": 1,
			"postdate.possible_duplicate": false, "postdate.lateness_ms": attribute(of, "postdate.lateness_ms"), "postdate.outcome": "confirmed"}}
		for key, value := range want.more {
			w.attributes[key] = value
		}
		whole(t, of, began, w)
	}
	got := topics.Take(name+"-out", 1, kafkatest.ReadCommitted)[0]
	if header(got, "traceparent") != contextOf(processed[0]) || header(got, "tracestate") != "a=1,b=2" {
		t.Errorf("%s: the record has %v", testrun.Broken, got.Headers)
	}
	if m := queues.Take(name, 1, patience)[0]; m.Headers["traceparent"] != contextOf(processed[1]) || m.Headers["tracestate"] != "a=1,b=2" {
		t.Errorf("%s: the message has %v", testrun.Broken, m.Headers)
	}
}

// TestTracesOfWhatIsNotSampled: nothing is sent of a request and a delivery whose parent is not sampled, nor of calls
// that machines make, nor of a delivery that was cancelled, and the client's own context goes on as it came. A message without a context is decided by the
// sampler.
func TestTracesOfWhatIsNotSampled(t *testing.T) {
	r := collect(t, "http/protobuf")
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	n, api := start(t, traced(t))
	order := func(id string) string {
		return fmt.Sprintf(`{"scheduleId":%q,"channel":"inbox:box","delay":"0s","payload":1}`, id)
	}
	sent(t, n, "POST", "/v1/messages", order("a"), "Traceparent", unsampled, "Tracestate", "a=1")
	sent(t, n, "POST", "/v1/messages", order("b"))
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		sent(t, n, "GET", path, "", "Traceparent", traceparent)
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	sent(t, n, "GET", "/v1/messages/a", "", "Traceparent", traceparent)
	sent(t, n, "GET", "/v1/inbox/box?wait=1s", "", "Traceparent", traceparent)
	sent(t, n, "PUT", "/v1/messages/c", `{"channel":"inbox:box","delay":"1h","payload":1}`, "Traceparent", traceparent)
	if got := sent(t, n, "DELETE", "/v1/messages/c", "", "Traceparent", traceparent); got != 200 {
		t.Errorf("the cancel is answered %d", got)
	}
	for id, want := range map[string]string{"a": unsampled, "b": ""} {
		m, err := api.Get(patient(t), id)
		if err != nil || m.Traceparent != want {
			t.Errorf("%s has %q, %v", id, m.Traceparent, err)
		}
	}
	for _, name := range []string{"GET /v1/messages/{id}", "PUT /v1/messages/{id}", "DELETE /v1/messages/{id}"} {
		r.take(name)
	}
	if of := r.take("GET /v1/inbox/{name}"); !strings.Contains(fmt.Sprint(of), "postdate.long_poll") {
		t.Errorf("a long poll is not named as one: %v", of)
	}
	stop(t, n)
	r.left()
}

// TestTracesAfterARestart: the link is to the trace of the request that came before the restart.
func TestTracesAfterARestart(t *testing.T) {
	r := collect(t, "grpc")
	c := traced(t)
	n, _ := start(t, c)
	body := fmt.Sprintf(`{"scheduleId":"a","channel":"inbox:box","executionTime":%q,"payload":1}`, nodetest.At(time.Now().Add(3*time.Second)))
	if got := sent(t, n, "PUT", "/v1/messages/a", body, "Tracestate", "a=1"); got != 201 {
		t.Fatal(got)
	}
	stop(t, n)
	request := r.take("PUT /v1/messages/{id}")
	start(t, c)
	of := r.take("send box")
	if links := spanIn(of).Links; len(links) != 1 || !bytes.Equal(links[0].SpanId, spanIn(request).SpanId) || !bytes.Equal(links[0].TraceId, spanIn(request).TraceId) {
		t.Errorf("%v does not link to %v", of, request)
	}
}

// TestTracesOfABatch: each of ten thousand deliveries has a span.
func TestTracesOfABatch(t *testing.T) {
	const count = 10_000
	r := collect(t, "grpc")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", strconv.Itoa(2*count))
	n, api := start(t, traced(t))
	items := make([]string, count)
	for i := range items {
		items[i] = fmt.Sprintf(`{"scheduleId":"%d","channel":"inbox:box","delay":"0s","payload":1}`, i)
	}
	if got := sent(t, n, "POST", "/v1/messages/batch", "["+strings.Join(items, ",")+"]"); got != 200 {
		t.Fatal(got)
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	request := r.take("POST /v1/messages/batch")
	seen := map[any]bool{}
	for range count {
		of := r.take("send box")
		seen[attribute(of, "messaging.message.id")] = true
		if links := spanIn(of).Links; len(links) != 1 || !bytes.Equal(links[0].SpanId, spanIn(request).SpanId) {
			t.Fatalf("%v does not link to the request", of)
		}
	}
	if len(seen) != count {
		t.Errorf("%d messages have spans", len(seen))
	}
}

// TestTracesToNobody: a collector that hangs, or that is not there, holds up neither requests nor deliveries nor the
// stop, and the log says so once.
func TestTracesToNobody(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	absent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	absent.Close()
	for name, address := range map[string]string{"hangs": hangs.Addr().String(), "absent": absent.Addr().String()} {
		for _, protocol := range []string{"grpc", "http/protobuf"} {
			t.Run(name+" "+protocol[:4], func(t *testing.T) {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
				t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
				t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "5")
				t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
				t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "200")
				said := &nodetest.Log{}
				c := traced(t)
				c.Log = slog.New(slog.NewTextHandler(said, nil))
				n, api := start(t, c)
				for i := range 100 {
					if _, err := api.Schedule(patient(t), client.Message{ScheduleID: fmt.Sprint(i), Channel: "inbox:box", ExecutionTime: time.Now(), Payload: []byte("1")}); err != nil {
						t.Fatal(err)
					}
				}
				if err := api.AwaitNonePending(patient(t)); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				stop(t, n)
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("the stop took %s", took)
				}
				if text := said.String(); strings.Count(text, "traces cannot be sent") != 1 {
					t.Errorf("the log says %s", text)
				}
			})
		}
	}
}
