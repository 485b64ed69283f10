package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/node/nodetest"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
)

// A Kafka topic is a source of schedules: a record with JSON makes a message or
// replaces it, one without a value cancels it, a bad one goes to the topic of
// rejected records.
func TestIngestFromKafka(t *testing.T) {
	address := kafkatest.URI(t)
	topics := kafkatest.NewClient(t, address)
	in := fmt.Sprintf("in-%d", time.Now().UnixNano())
	topics.CreateTopic(in, 4, nil)
	topics.CreateTopic(in+".postdate-rejected", 1, nil)
	c := config(t)
	c.Kafka, c.Ingest = node.Kafka{Seeds: []string{address}}, []string{"kafka:" + in + "=inbox:from-kafka"}
	_, client := start(t, c)
	producer, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(in))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	send := func(key, value string, headers ...kgo.RecordHeader) {
		t.Helper()
		r := &kgo.Record{Key: []byte(key), Value: []byte(value), Headers: headers}
		if value == "" {
			r.Value = nil
		}
		if err := producer.ProduceSync(patient(t), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	send("a", `{"scheduleId": "a", "channel": "inbox:from-kafka", "delay": "1h", "payload": 1}`)
	send("a", `{"scheduleId": "a", "channel": "inbox:from-kafka", "delay": "1ms", "payload": 2}`)
	send("b", `{"scheduleId": "b", "channel": "inbox:from-kafka", "delay": "1h", "payload": 1}`)
	send("b", "")
	send("c", "any bytes", kgo.RecordHeader{Key: "x-delay", Value: []byte("5")})
	send("d", `{"channel": "nowhere:x"}`)
	err = nodetest.Poll(patient(t), func() (bool, error) {
		delivered, err := client.List("DELIVERED")
		if err != nil || len(delivered) < 2 {
			return false, err
		}
		cancelled, err := client.List("CANCELLED")
		return len(cancelled) == 1 && cancelled[0].ScheduleID == "b", err
	})
	if err != nil {
		delivered, _ := client.List("")
		t.Fatalf("%v; there are %+v", err, delivered)
	}
	var payloads []string
	follow(t, client, "from-kafka", func(a nodetest.Arrival) { payloads = append(payloads, string(a.Payload)) })()
	if got := strings.Join(payloads, " "); !strings.Contains(got, "2") || len(payloads) != 2 {
		t.Errorf("arrived: %s", got)
	}
	if rejected := topics.Take(in+".postdate-rejected", 1, kafkatest.ReadCommitted); string(rejected[0].Key) != "d" {
		t.Errorf("rejected: %+v", rejected[0])
	}
}

// What cannot be a source is refused with a sentence.
func TestBadIngest(t *testing.T) {
	for text, want := range map[string]string{
		"amqp:in":           "not of the form",
		"rabbitmq":          "not of the form",
		"kafka:":            "not of the form",
		"rabbitmq:in":       "--rabbitmq",
		"kafka:in=inbox:a":  "--kafka",
		"rabbitmq:=inbox:a": "not of the form",
	} {
		c := config(t)
		c.Ingest = []string{text}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		n, err := node.Start(ctx, c)
		cancel()
		if err == nil {
			stop(t, n)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--ingest %s: %v, want %q", text, err, want)
		}
	}
}
