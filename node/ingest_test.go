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

// TestKafkaTasks: records in JSON and in Avro insert, update and delete tasks of a whole node, beside POST /schedulers;
// their messages arrive in the topics that they name, and a restarted node goes on where it was.
func TestKafkaTasks(t *testing.T) {
	address := kafkatest.URI(t)
	broker := kafkatest.NewClient(t, address)
	name := fmt.Sprint("tasks-", time.Now().UnixNano())
	for _, topic := range []string{"", ".postdate-rejected", "-json", "-avro", "-http"} {
		broker.CreateTopic(name+topic, 1, nil)
	}
	c := config(t)
	c.Kafka, c.Ingest = node.Kafka{Seeds: []string{address}}, []string{"task+kafka:" + name}
	n, api := start(t, c)
	json := func(action, data string) *kgo.Record {
		return &kgo.Record{Topic: name, Value: fmt.Appendf(nil, `{"host":"default","name":"json","action":%q,"frequency":{"timeUnit":"MILLISECONDS","time":200},"topic":"%s-json","data":%s}`, action, name, data)}
	}
	text := func(s string) string { return string(rune(2*len(s))) + s }
	avro := &kgo.Record{Topic: name, Value: []byte("\x00\x00\x00\x00\x07" + text("default") + text("avro") + "\x00" + "\x02\x02\x02" + text(name+"-avro") + "\x00" + "\x02\x02" + text("k") + text("v") + "\x00")}
	send(t, address, json("INSERT", `{"n": 1}`), avro, json("INSERT", "9"), json("UPDATE", `{"n": 2}`))
	if _, err := api.DefineTask(patient(t), client.Task{Host: "default", Name: "http", Action: client.InsertTask, Topic: name + "-http", Frequency: &client.TaskFrequency{TimeUnit: "SECONDS", Time: 1}}); err != nil {
		t.Fatal(err)
	}
	arrives := func(task, unit, data string, count int) {
		t.Helper()
		seen := map[string]bool{}
		for _, r := range broker.Take(name+"-"+task, count, kafkatest.ReadCommitted) {
			if string(r.Key) != task || header(r, "task-host") != "default" || header(r, "task-name") != task || header(r, "task-unit") != unit ||
				header(r, "postdate-schedule-id") != "task:"+task || header(r, "postdate-source") != "" || seen[header(r, "message-id")] {
				t.Errorf("%s: %s %s %v", testrun.Broken, r.Key, r.Value, r.Headers)
			}
			if seen[header(r, "message-id")] = true; string(r.Value) != data && (task != "json" || string(r.Value) != `{"n": 1}`) {
				t.Errorf("%s: it carries %s", task, r.Value)
			}
		}
	}
	arrives("json", "MILLISECONDS", `{"n": 2}`, 5)
	arrives("avro", "SECONDS", `{"k":"v"}`, 2)
	arrives("http", "SECONDS", "null", 2)
	if rs := broker.Take(name+".postdate-rejected", 1, kafkatest.ReadCommitted); !strings.Contains(header(rs[0], "postdate-rejected-reason"), "already") {
		t.Errorf("%s is rejected: %v", rs[0].Value, rs[0].Headers)
	}
	are := func(want string) {
		t.Helper()
		got := ""
		for late := time.Now().Add(patience); got != want && time.Now().Before(late); time.Sleep(10 * time.Millisecond) {
			got = ""
			for task, err := range api.Tasks(patient(t), "", "") {
				if err != nil {
					t.Fatal(err)
				}
				got += task.Name + "/" + string(task.Action) + " "
			}
		}
		if got != want {
			t.Fatalf("the tasks are %s, want %s", got, want)
		}
	}
	if _, err := api.DefineTask(patient(t), client.Task{Host: "default", Name: "http", Action: client.DeleteTask}); err != nil {
		t.Fatal(err)
	}
	send(t, address, json("DELETE", "0"))
	are("avro/INSERT ")
	stop(t, n)
	_, api = start(t, c)
	send(t, address, json("INSERT", `{"n": 2}`)) // it comes after all that was read before
	are("avro/INSERT json/INSERT ")
	if rs := broker.TakeAll(name+".postdate-rejected", kafkatest.ReadCommitted); len(rs) > 1 {
		t.Errorf("%s: after the restart, %s was rejected again", testrun.Broken, rs[1].Value)
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
		"--ingest a@etf1+kafka:in2: the schedules of kafka:in are of the tenant a, too, and":       {"a@etf1+kafka:in", "a@etf1+kafka:in2"},
		"": {"a@rabbitmq:in", "b@kafka:in", "b@rabbitmq:in2", "a@rabbitmq:in.postdate-rejected", "a@etf1+kafka:in3", "b@etf1+kafka:in4"},
	} {
		c := node.DefaultConfig()
		c.RabbitMQ, c.Kafka.Seeds, c.Ingest = "amqp://127.0.0.1/", []string{"127.0.0.1:9092"}, sources
		if err := c.Validate(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v", sources, err)
		}
	}
}
