package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
)

// TestKafkaSchedules: records create, replace and cancel messages of a whole node; HTTP shows
// them; due messages arrive in the topics that they name; and a restarted node takes no record
// twice.
func TestKafkaSchedules(t *testing.T) {
	address := kafkatest.URI(t)
	broker := kafkatest.NewClient(t, address)
	name := fmt.Sprint("commands-", time.Now().UnixNano())
	broker.CreateTopic(name, 2, nil)
	broker.CreateTopic(name+".postdate-rejected", 1, nil)
	broker.CreateTopic(name+"-out", 1, nil)
	c := config(t)
	c.Kafka, c.Ingest = node.Kafka{Seeds: []string{address}}, []string{"kafka:" + name + "=kafka:" + name + "-out"}
	n, api := start(t, c)
	command := func(id, payload, delay string) *kgo.Record {
		return &kgo.Record{Topic: name, Key: []byte(id), Value: fmt.Appendf(nil, `{"scheduleId":%q,"delay":%q,"payload":%s}`, id, delay, payload)}
	}
	send(t, address,
		command("later", `1`, "1h"), command("changed", `1`, "1h"), command("changed", `2`, "1s"), command("withdrawn", `1`, "1h"),
		&kgo.Record{Topic: name, Key: []byte("withdrawn")}, &kgo.Record{Topic: name, Key: []byte("bad"), Value: []byte("?")},
		&kgo.Record{Topic: name, Key: []byte("k"), Value: []byte("raw"), Headers: []kgo.RecordHeader{{Key: "x-delay", Value: []byte("1000")}, {Key: "mine", Value: []byte("yes")}}},
	)
	for _, r := range broker.Take(name+"-out", 2, kafkatest.ReadCommitted) {
		switch string(r.Key) {
		case "changed":
			if string(r.Value) != "2" {
				t.Errorf("changed carries %s", r.Value)
			}
		case "k":
			if string(r.Value) != "raw" || header(r, "mine") != "yes" || header(r, "x-delay") != "-1000" || header(r, "postdate-source") != "" {
				t.Errorf("%s %v", r.Value, r.Headers)
			}
		default:
			t.Errorf("%s has arrived", r.Key)
		}
	}
	if rs := broker.Take(name+".postdate-rejected", 1, kafkatest.ReadCommitted); string(rs[0].Key) != "bad" || header(rs[0], "postdate-rejected-reason") == "" {
		t.Errorf("%s is rejected: %v", rs[0].Key, rs[0].Headers)
	}
	for id, want := range map[string]client.Status{"later": client.Pending, "withdrawn": client.Cancelled} {
		for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // the other partition may be slower
			m, err := api.Get(t.Context(), id)
			if err == nil && m.Status == want {
				break
			}
			if err != nil && client.TypeOf(err) != client.NotFound || time.Now().After(late) {
				t.Fatalf("%s is %s: %v", id, m.Status, err)
			}
		}
	}
	stop(t, n)
	_, api = start(t, c)
	send(t, address, command("marker", `1`, "0s"))
	rs := broker.Take(name+"-out", 3, kafkatest.ReadCommitted)
	if last := rs[2]; string(last.Key) != "marker" {
		t.Errorf("%s: %s has arrived again", testrun.Broken, last.Key)
	}
	if err := api.Cancel(t.Context(), "later"); err != nil {
		t.Error(err)
	}
}

func send(t *testing.T, address string, rs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Two sources may not take from the same place, nor one tenant what another one's was refused.
func TestSourcesThatCannotBe(t *testing.T) {
	for want, sources := range map[string][]string{
		"--ingest b@rabbitmq:in: another --ingest takes from rabbitmq:in too":                      {"a@rabbitmq:in", "b@rabbitmq:in"},
		"--ingest kafka:in=kafka:b: another --ingest takes from kafka:in too":                      {"kafka:in=kafka:a", "kafka:in=kafka:b"},
		"--ingest b@kafka:in.postdate-rejected: what is rejected from kafka:in is of the tenant a": {"b@kafka:in.postdate-rejected", "a@kafka:in"},
		"": {"a@rabbitmq:in", "b@kafka:in", "b@rabbitmq:in2", "a@rabbitmq:in.postdate-rejected"},
	} {
		c := node.DefaultConfig()
		c.RabbitMQ, c.Kafka.Seeds, c.Ingest = "amqp://127.0.0.1/", []string{"127.0.0.1:9092"}, sources
		if err := c.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v", sources, err)
		}
	}
}
