package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
)

// header returns a record's header, or "".
func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Messages due over ten seconds go to a topic of eight partitions while the broker is killed
// and comes back: nothing is lost, nothing is early by the broker's own clock, and duplicates
// are marked. A message for a missing topic fails by its policy and delays nothing.
func TestKafkaCrash(t *testing.T) {
	t.Parallel() // its brokers are its own, and it waits for what is due
	t.Run("plain", func(t *testing.T) { kafkaCrash(t, false) })
	t.Run("fenced", func(t *testing.T) { kafkaCrash(t, true) })
}

func kafkaCrash(t *testing.T, fenced bool) {
	const count, over, ahead = 20_000, 10 * time.Second, 6 * time.Second
	broker := kafkatest.Start(t)
	topics := kafkatest.NewClient(t, broker.Address)
	topics.CreateTopic("orders", 8, map[string]string{"message.timestamp.type": "LogAppendTime"})
	c := config(t)
	c.Kafka = node.Kafka{Seeds: []string{broker.Address}, Fenced: fenced}
	_, api := start(t, c)
	began := time.Now()
	due := map[string]time.Time{}
	for first := 0; first < count; first += 2000 {
		batch := make([]client.Message, 2000)
		for i := range batch {
			id := fmt.Sprintf("k-%05d", first+i)
			due[id] = began.Add(ahead + time.Duration(first+i)*over/count).Truncate(time.Millisecond)
			batch[i] = client.Message{ScheduleID: id, Channel: "kafka:orders", ExecutionTime: due[id], Payload: fmt.Append(nil, first+i)}
		}
		results, err := api.ScheduleAll(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Problem != nil {
				t.Fatalf("%+v", *r.Problem)
			}
		}
	}
	lost := client.Message{ScheduleID: "nowhere", Channel: "kafka:no-such-topic", ExecutionTime: began.Add(ahead), Payload: []byte("1"), Retry: &client.Retry{MaxAttempts: 2, MinBackoff: 100 * time.Millisecond}}
	if s, err := api.Schedule(t.Context(), lost); err != nil || !s.Created {
		t.Fatal(s, err)
	}
	<-time.After(time.Until(began.Add(ahead + over/2))) // half of the messages are due
	broker.Kill()
	broker.Restart()
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	if m, err := api.Get(t.Context(), "nowhere"); err != nil || m.Status != "DELIVERY_FAILED" || m.Attempts != 2 {
		t.Errorf("the message for a topic that is not there: %+v, %v", m, err)
	}
	marked, twice := accountRecords(t, topics.TakeAll("orders", kafkatest.ReadCommitted), due)
	t.Logf("%d messages; %d records marked, %d messages twice", count, marked, twice)
}

// accountRecords compares what arrived with what was scheduled.
func accountRecords(t *testing.T, records []*kgo.Record, due map[string]time.Time) (marked, twice int) {
	t.Helper()
	arrived := map[string]int{}
	for _, r := range records {
		id := header(r, "postdate-schedule-id")
		at, known := due[id]
		if !known || string(r.Key) != id || header(r, "message-id") != id {
			t.Fatalf("a record with key %q and id %q: nobody scheduled it", r.Key, id)
		}
		if r.Timestamp.Before(at) {
			t.Errorf("%s: %s was appended at %s: it is due at %s", testrun.Broken, id, nodetest.At(r.Timestamp), nodetest.At(at))
		}
		isMarked := header(r, "postdate-possible-duplicate") == "true"
		if isMarked {
			marked++
		}
		if arrived[id]++; arrived[id] == 2 {
			twice++
		}
		if arrived[id] > 1 && !isMarked {
			t.Errorf("%s: %s came again, and is not marked", testrun.Broken, id)
		}
	}
	missing := 0
	for id := range due {
		if arrived[id] == 0 {
			if missing++; missing <= 5 {
				t.Errorf("%s: %s is lost", testrun.Broken, id)
			}
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d are lost", missing, len(due))
	}
	return marked, twice
}
