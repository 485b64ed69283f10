package node_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestRabbitMQConsumerSees compares what a consumer gets with what the design promises: body,
// properties and headers, all of them.
func TestRabbitMQConsumerSees(t *testing.T) {
	url := rabbitmqtest.URL(t)
	broker := rabbitmqtest.NewClient(t, url)
	name := fmt.Sprint("seen-", time.Now().UnixNano())
	broker.Declare(name, nil)
	broker.Bind(name+"-exchange", "topic", "orders.*.late", name)
	c := config(t)
	c.RabbitMQ = url
	_, api := start(t, c)
	due := time.Now().Add(500 * time.Millisecond).Truncate(time.Millisecond)
	for _, test := range []struct {
		id, channel, content, trace string
		body, contentType           string
		headers                     amqp.Table // the client's own
	}{
		{
			id: "json", channel: name, content: `"payload": {"a":  1.50, "ü": "\u00fc", "a2": [ ]}`,
			body: `{"a":  1.50, "ü": "\u00fc", "a2": [ ]}`, contentType: "application/json",
		},
		{id: "a-json-string", channel: name, content: `"payload": "text"`, body: `"text"`, contentType: "application/json"},
		{id: "null", channel: name, content: `"payload": null`, body: `null`, contentType: "application/json"},
		{
			id: "text", channel: name, content: `"payload": "grüezi \u2603\n", "contentType": "text/plain; charset=utf-8"`,
			body: "grüezi ☃\n", contentType: "text/plain; charset=utf-8",
		},
		{id: "bytes", channel: name, content: `"payload": "AAH+/w==", "payloadEncoding": "base64"`, body: "\x00\x01\xfe\xff", contentType: "application/octet-stream"},
		{id: "typed-bytes", channel: name, content: `"payload": "AAE=", "payloadEncoding": "base64", "contentType": "image/png"`, body: "\x00\x01", contentType: "image/png"},
		{
			id: "exchange", channel: name + "-exchange/orders.eu.late", content: `"payload": 1, "headers": {"Kind": "a b", "x-trace": ""}`, trace: traceparent,
			body: "1", contentType: "application/json", headers: amqp.Table{"Kind": "a b", "x-trace": ""},
		},
	} {
		t.Run(test.id, func(t *testing.T) {
			body := fmt.Sprintf(`{"scheduleId": %q, "channel": "rabbitmq:%s", "executionTime": %q, %s}`, test.id, test.channel, nodetest.At(due), test.content)
			call := client.Call{Method: http.MethodPost, Path: "/v1/messages", Body: []byte(body)}
			if test.trace != "" {
				call.Header = http.Header{"Traceparent": {test.trace}}
			}
			if a, err := api.Do(t.Context(), call); err != nil || a.Status != http.StatusCreated {
				t.Fatal(a.Status, err)
			}
			d := broker.Take(name, 1, patience)[0]
			if now := time.Now(); now.Before(due) {
				t.Errorf("it arrived at %s, due at %s", nodetest.At(now), nodetest.At(due))
			}
			wantHeaders := amqp.Table{"postdate-schedule-id": test.id, "postdate-execution-time": nodetest.At(due), "postdate-attempt": int32(1)}
			maps.Copy(wantHeaders, test.headers)
			if test.trace != "" {
				wantHeaders["traceparent"] = test.trace
			}
			if string(d.Body) != test.body || d.ContentType != test.contentType {
				t.Errorf("got %q as %s, want %q as %s", d.Body, d.ContentType, test.body, test.contentType)
			}
			if d.MessageId != test.id || d.DeliveryMode != amqp.Persistent || !d.Timestamp.Equal(due.Truncate(time.Second)) {
				t.Errorf("message-id %q, delivery mode %d, timestamp %s", d.MessageId, d.DeliveryMode, d.Timestamp)
			}
			if !reflect.DeepEqual(d.Headers, wantHeaders) {
				t.Errorf("headers:\n got %v\nwant %v", d.Headers, wantHeaders)
			}
		})
	}
}

// A message for a missing queue or exchange fails with the broker's own words, after the
// attempts that its policy allows, and delays nothing.
func TestRabbitMQMissingTargets(t *testing.T) {
	const good = 500
	url := rabbitmqtest.URL(t)
	broker := rabbitmqtest.NewClient(t, url)
	queue := fmt.Sprint("there-", time.Now().UnixNano())
	broker.Declare(queue, nil)
	c := config(t)
	c.RabbitMQ = url
	_, api := start(t, c)
	missing := map[string]struct{ channel, words string }{
		"no-queue":    {"rabbitmq:" + queue + "-not", "NO_ROUTE"},
		"no-exchange": {"rabbitmq:" + queue + "-not/key", "NOT_FOUND"},
	}
	due := time.Now().Add(300 * time.Millisecond)
	var ms []client.Message
	for i := range good {
		at := due.Add(time.Duration(i) * time.Millisecond)
		ms = append(ms, client.Message{ScheduleID: fmt.Sprint("good-", i), Channel: "rabbitmq:" + queue, ExecutionTime: at, Payload: fmt.Append(nil, i)})
		for id, target := range missing {
			if i%10 == 0 {
				ms = append(ms, client.Message{
					ScheduleID: fmt.Sprint(id, "-", i), Channel: target.channel, ExecutionTime: at, Payload: fmt.Append(nil, i),
					Retry: &client.Retry{MaxAttempts: 2, MinBackoff: 50 * time.Millisecond},
				})
			}
		}
	}
	if _, err := api.ScheduleAll(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	for id, m := range shown(t, api) {
		kind := id[:strings.LastIndexByte(id, '-')]
		target, bad := missing[kind]
		switch {
		case !bad && m.Status != "DELIVERED":
			t.Errorf("%s is %s: %s", id, m.Status, m.LastError)
		case bad && (m.Status != "DELIVERY_FAILED" || m.Attempts != 2 || !strings.Contains(m.LastError, target.words) || m.PossibleDuplicate):
			t.Errorf("%s: %+v, want DELIVERY_FAILED after 2 attempts with %s", id, m, target.words)
		}
	}
	got := counted(t, broker.TakeAll(queue))
	for i := range good {
		if id := fmt.Sprint("good-", i); got[id] != 1 {
			t.Errorf("%s arrived %d times", id, got[id])
		}
	}
}

// counted counts deliveries by id, in the order of the queue, and fails the test if a second
// one is not marked.
func counted(t *testing.T, deliveries []amqp.Delivery) map[string]int {
	t.Helper()
	times, marked := map[string]int{}, 0
	for _, d := range deliveries {
		mark := d.Headers["postdate-possible-duplicate"]
		if times[d.MessageId]++; times[d.MessageId] > 1 && mark != true {
			t.Errorf("%s: %s arrived again, and is not marked: %v", testrun.Broken, d.MessageId, d.Headers)
		}
		if mark != nil {
			marked++
		}
		var due string
		if err := json.Unmarshal(d.Body, &due); err == nil && due > nodetest.At(time.Now()) {
			t.Errorf("%s: %s, due at %s, is here already", testrun.Broken, d.MessageId, due)
		}
	}
	t.Logf("%d deliveries of %d messages, %d marked", len(deliveries), len(times), marked)
	return times
}
