package kafka_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/api/ingest"
	"github.com/postdate/postdate/api/ingest/kafka"
	publish "github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/store/storetest"
)

const patience = 3 * time.Minute // bounds a hang

func start(t *testing.T, m *storetest.Faulty, address, topic string) *kafka.Source {
	t.Helper()
	return startForm(t, m, address, topic, "")
}

func startForm(t *testing.T, m *storetest.Faulty, address, topic, form string) *kafka.Source {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	taker, err := ingest.NewTaker(ingest.Config{Messages: m, Log: log, Intake: api.Intake{Buckets: 8}, Etf1: form == ingest.FormEtf1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := kafka.Start(context.Background(), kafka.Config{
		Connect: publish.Config{Seeds: []string{address}}.Connect(), Topic: topic, Group: topic, Channel: "kafka:out-{key}", Taker: taker, Log: log, Compacted: form == ingest.FormEtf1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *kafka.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// crash ends a source without a chance to commit its work in progress.
func crash(s *kafka.Source) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Close(ctx)
}

func shown(r postdate.Record) string { return fmt.Sprintf("%s %s %s", r.Payload, r.Channel, r.Status) }

// eventually polls for a condition that has no signal.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// on runs a test on an in-process broker and on a real one.
func on(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("kfake", func(t *testing.T) {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		test(t, cluster.ListenAddrs()[0])
	})
	t.Run("real", func(t *testing.T) { test(t, kafkatest.URI(t)) })
}

func record(partition int32, key string, value any, headers ...string) *kgo.Record {
	r := &kgo.Record{Partition: partition, Key: []byte(key)}
	if value != nil {
		r.Value = fmt.Append(nil, value)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

func upsert(partition int32, id string, payload int) *kgo.Record {
	return record(partition, id, fmt.Sprintf(`{"scheduleId":%q,"delay":"1h","channel":"kafka:x","payload":%d}`, id, payload))
}

func produce(t *testing.T, address, topic string, rs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
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

// together produces records in a transaction: readers see them all at once.
func together(t *testing.T, address, topic string, rs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

// committed returns the sum of the group's committed offsets.
func committed(t *testing.T, address, topic string) (sum int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = topic
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = topic
	req.Groups = append(req.Groups, group)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := req.RequestWith(ctx, cl)
	if err != nil { // a new broker's coordinator is not available immediately
		return 0
	}
	for _, g := range resp.Groups {
		for _, topic := range g.Topics {
			for _, p := range topic.Partitions {
				sum += max(p.Offset, 0)
			}
		}
	}
	return sum
}

func TestTakesRecords(t *testing.T) {
	on(t, func(t *testing.T, address string) {
		client, topic, m := kafkatest.NewClient(t, address), publishertest.Unique("t"), storetest.NewFaulty()
		client.CreateTopic(topic, 3, nil)
		client.CreateTopic(topic+".postdate-rejected", 1, nil)
		produce(t, address, topic,
			upsert(0, "a", 1), upsert(0, "a", 2), upsert(1, "b", 1), record(1, "b", nil), upsert(2, "c", 1),
			record(0, "k", "hello", "x-delay", "3600000", "postdate-schedule-id", "d", "content-type", "text/plain"),
			record(1, "k", "again", "x-delay", "3600000", "message-id", "e"),
			record(2, "k", "nameless", "x-delay", "3600000"),
			record(2, "", "no key", "x-delay", "3600000", "postdate-schedule-id", "f"),
			record(2, "nobody", nil), record(2, "k", "says nothing", "mine", "yes"),
		)
		s := start(t, m, address, topic)
		eventually(t, "all is committed", func() bool { return committed(t, address, topic) == 11 })
		eventually(t, "it is ready", func() bool { return s.Ready() == nil })
		stop(t, s)
		var got []string
		for id, r := range m.All(t) {
			if strings.HasPrefix(id, topic+":2:1:") {
				id = "placed"
			}
			got = append(got, id+" "+shown(r))
		}
		slices.Sort(got)
		want := []string{
			"a 2 kafka:x PENDING", "b 1 kafka:x CANCELLED", "c 1 kafka:x PENDING", "d hello kafka:out-k PENDING",
			"e again kafka:out-k PENDING", "placed nameless kafka:out-k PENDING",
		}
		if !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
		reasons := map[string]string{}
		for _, r := range client.TakeAll(topic+".postdate-rejected", kafkatest.ReadCommitted) {
			headers := map[string]string{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			reasons[headers["postdate-rejected-from"]] = fmt.Sprintf("%s %s %s: %.28s", r.Key, r.Value, headers["mine"], headers["postdate-rejected-reason"])
		}
		if want := map[string]string{
			topic + "/2/2": " no key : it does not say where to: gi", topic + "/2/3": "nobody  : nothing was cancelled: there",
			topic + "/2/4": "k says nothing yes: it does not say when: give i",
		}; !maps.Equal(reasons, want) {
			t.Errorf("rejected:\n got %q\nwant %q", reasons, want)
		}
	})
}

// A topic of kafka-message-scheduler holds what was replaced, cancelled or delivered until it is compacted. Nothing of
// that is scheduled, even for an instant: it may be due, and would be delivered before the record that replaces it is
// read. What is due all the same is marked when the topic is read for the first time, and only then.
func TestCompactedTopic(t *testing.T) {
	on(t, func(t *testing.T, address string) {
		client, topic, m := kafkatest.NewClient(t, address), publishertest.Unique("t"), storetest.NewFaulty()
		client.CreateTopic(topic, 2, map[string]string{"cleanup.policy": "compact"})
		client.CreateTopic(topic+".postdate-rejected", 1, nil)
		stamp := time.Now().Truncate(time.Second)
		schedule := func(partition int32, key, value string, in time.Duration) *kgo.Record {
			r := record(partition, key, value, "scheduler-epoch", fmt.Sprint(stamp.Add(in).Unix()), "scheduler-target-topic", "x")
			r.Timestamp = stamp
			return r
		}
		receipt := schedule(0, "delivered", "1", -time.Minute)
		receipt.Value = nil
		receipt.Headers = append(receipt.Headers, kgo.RecordHeader{Key: "scheduler-timestamp", Value: fmt.Append(nil, stamp.Unix())})
		raced := *receipt // the key was scheduled again while it was delivered
		raced.Key = []byte("raced")
		rs := []*kgo.Record{
			schedule(0, "delivered", "1", -time.Minute), receipt, schedule(0, "raced", "1", -time.Minute), schedule(0, "raced", "2", time.Hour), &raced,
			schedule(0, "cancelled", "1", -time.Minute), record(0, "cancelled", nil), schedule(0, "replaced", "1", -time.Minute),
			schedule(0, "bad", "1", -time.Minute), schedule(0, "due", "1", -time.Minute), schedule(0, "again", "1", -time.Minute), schedule(0, "old", "1", -25*time.Hour),
			schedule(1, "later", "1", time.Hour),
		}
		for i := range 3_000 { // more than one poll
			rs = append(rs, schedule(0, fmt.Sprint("many-", i%1000), fmt.Sprint(i), time.Hour))
		}
		rs = append(rs, schedule(0, "replaced", "2", time.Hour), record(0, "bad", "2", "scheduler-epoch", "never"))
		produce(t, address, topic, rs...)
		s := startForm(t, m, address, topic, ingest.FormEtf1)
		eventually(t, "all is committed", func() bool { return committed(t, address, topic) == int64(len(rs)) })
		if n := m.Count(); n != 1005 {
			t.Errorf("%d messages were made", n)
		}
		produce(t, address, topic, schedule(0, "again", "2", 0), schedule(1, "later", "2", time.Hour), record(0, "raced", nil))
		eventually(t, "what comes later is committed", func() bool { return committed(t, address, topic) == int64(len(rs))+3 })
		together(t, address, topic, schedule(1, "withdrawn", "1", -time.Second), record(1, "withdrawn", nil), schedule(1, "last", "1", time.Hour))
		eventually(t, "what comes at a time is there", func() bool { return m.Count() == 1006 })
		stop(t, s)
		// with the transaction's end, which is committed only with what follows it
		before := committed(t, address, topic)
		produce(t, address, topic, schedule(1, "down", "1", -time.Second), schedule(1, "down", "2", -time.Second))
		s = startForm(t, m, address, topic, ingest.FormEtf1)
		eventually(t, "what came meanwhile is committed", func() bool { return committed(t, address, topic) == before+3 })
		stop(t, s)
		var got []string
		for id, r := range m.All(t) {
			if !strings.HasPrefix(id, "many-") {
				got = append(got, fmt.Sprint(id, " ", shown(r), " ", r.MayRepeat))
			} else if i, n := 0, 0; true {
				if _, err := fmt.Sscanf(id+" "+string(r.Payload), "many-%d %d", &i, &n); err != nil || n != i+2000 {
					t.Errorf("%s is %s", id, r.Payload)
				}
			}
		}
		slices.Sort(got)
		if want := []string{
			"again 2 kafka:x PENDING false", "down 2 kafka:x PENDING false", "due 1 kafka:x PENDING true", "last 1 kafka:x PENDING false", "later 2 kafka:x PENDING false", "raced 2 kafka:x CANCELLED false", "replaced 2 kafka:x PENDING false",
		}; !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
		var reasons []string
		for _, r := range client.TakeAll(topic+".postdate-rejected", kafkatest.ReadCommitted) {
			reasons = append(reasons, string(r.Key)+" "+string(r.Value))
		}
		if slices.Sort(reasons); !slices.Equal(reasons, []string{"bad 2", "old 1"}) {
			t.Errorf("rejected: %q", reasons)
		}
	})
}

// A node stops in the middle of a first read. The next one begins anew, so what is left is marked, too.
func TestFirstReadIsInterrupted(t *testing.T) {
	const count = 2_500 // more than two polls
	on(t, func(t *testing.T, address string) {
		client, topic, m := kafkatest.NewClient(t, address), publishertest.Unique("t"), storetest.NewFaulty()
		client.CreateTopic(topic, 1, nil)
		client.CreateTopic(topic+".postdate-rejected", 1, nil)
		due := fmt.Sprint(time.Now().Add(-time.Minute).Unix())
		var rs []*kgo.Record
		for i := range count {
			rs = append(rs, record(0, fmt.Sprint("k-", i), "v", "scheduler-epoch", due, "scheduler-target-topic", "x"))
		}
		produce(t, address, topic, rs...)
		polls := 0
		m.Set(func(int) (error, bool) {
			if polls++; polls > 1 {
				return postdate.E(postdate.KindUnavailable, "the test says so"), false
			}
			return nil, true
		})
		s := startForm(t, m, address, topic, ingest.FormEtf1)
		eventually(t, "some is there", func() bool { return m.Count() > 0 })
		stop(t, s)
		if n := committed(t, address, topic); n != 0 {
			t.Errorf("%d records are committed", n)
		}
		m.Set(nil)
		s = startForm(t, m, address, topic, ingest.FormEtf1)
		eventually(t, "all is committed", func() bool { return committed(t, address, topic) == count })
		stop(t, s)
		marked := 0
		for _, r := range m.All(t) {
			if r.MayRepeat {
				marked++
			}
		}
		if marked != count {
			t.Errorf("%d of %d are marked", marked, count)
		}
	})
}

// Without a topic of rejected records, a bad record stops its own partition only.
// Nothing after it is committed, and the partition continues once the topic exists.
func TestRejectedTopicIsMissing(t *testing.T) {
	on(t, func(t *testing.T, address string) {
		client, topic, m := kafkatest.NewClient(t, address), publishertest.Unique("t"), storetest.NewFaulty()
		client.CreateTopic(topic, 2, nil)
		produce(t, address, topic, upsert(0, "a", 1), record(0, "k", "bad"), upsert(0, "b", 1), upsert(1, "c", 1))
		s := start(t, m, address, topic)
		eventually(t, "it says what is missing", func() bool {
			err := s.Ready()
			return err != nil && strings.Contains(err.Error(), topic+".postdate-rejected\" for rejected records does not exist: create it")
		})
		produce(t, address, topic, upsert(1, "d", 1))
		eventually(t, "the other partition goes on", func() bool { return committed(t, address, topic) == 3 })
		client.CreateTopic(topic+".postdate-rejected", 1, nil)
		eventually(t, "all is committed", func() bool { return committed(t, address, topic) == 5 })
		eventually(t, "it says that all is well", func() bool { return s.Ready() == nil })
		stop(t, s)
		if n := m.Count(); n != 4 {
			t.Errorf("%d messages are there, want 4", n)
		}
		if n := len(client.TakeAll(topic+".postdate-rejected", kafkatest.ReadCommitted)); n != 1 {
			t.Errorf("%d records are rejected, want 1", n)
		}
	})
}

// The store fails between write and answer, members crash, others join. In the end,
// each message is stored once, with the content of its last record.
func TestNothingIsLostAndNothingTwice(t *testing.T) {
	const count = 1_500
	on(t, func(t *testing.T, address string) {
		client, topic, m := kafkatest.NewClient(t, address), publishertest.Unique("t"), storetest.NewFaulty()
		client.CreateTopic(topic, 3, nil)
		client.CreateTopic(topic+".postdate-rejected", 1, nil)
		var rs []*kgo.Record
		for i := range count {
			id, p := fmt.Sprint("m-", i), int32(i%3)
			rs = append(rs, upsert(p, id, 1))
			switch i % 5 {
			case 0:
				rs = append(rs, upsert(p, id, 2))
			case 1:
				rs = append(rs, record(p, "k", "placed", "x-delay", "3600000"))
			}
		}
		produce(t, address, topic, rs[:count]...)
		m.Set(func(calls int) (error, bool) {
			switch calls % 3 {
			case 0:
				return postdate.E(postdate.KindUnknown, "the test says so"), true
			case 1:
				return postdate.E(postdate.KindUnavailable, "the test says so"), false
			}
			return nil, true
		})
		first := start(t, m, address, topic)
		eventually(t, "some is there", func() bool { return m.Count() > count/10 })
		crash(first)
		second := start(t, m, address, topic)
		produce(t, address, topic, rs[count:]...)
		eventually(t, "the group goes on", func() bool { return committed(t, address, topic) > 0 })
		third := start(t, m, address, topic)
		m.Set(nil)
		eventually(t, "all is committed", func() bool { return committed(t, address, topic) == int64(len(rs)) })
		stop(t, second)
		stop(t, third)
		all := m.All(t)
		if want := count + count/5; len(all) != want {
			t.Errorf("%d messages are there, want %d", len(all), want)
		}
		for i := range count {
			want := "1 kafka:x PENDING"
			if i%5 == 0 {
				want = "2 kafka:x PENDING"
			}
			if got := shown(all[fmt.Sprint("m-", i)]); got != want {
				t.Errorf("m-%d is %q, want %q", i, got, want)
			}
		}
	})
}

// The broker is killed and restarted while records are taken.
func TestBrokerIsKilled(t *testing.T) {
	const count = 3_000
	broker := kafkatest.Start(t)
	client, topic, m := kafkatest.NewClient(t, broker.Address), publishertest.Unique("t"), storetest.NewFaulty()
	client.CreateTopic(topic, 3, nil)
	client.CreateTopic(topic+".postdate-rejected", 1, nil)
	var rs []*kgo.Record
	for i := range count {
		rs = append(rs, upsert(int32(i%3), fmt.Sprint("m-", i), 1))
	}
	produce(t, broker.Address, topic, rs...)
	m.Set(func(int) (error, bool) {
		time.Sleep(20 * time.Millisecond) // the broker is to die in the middle
		return nil, true
	})
	s := start(t, m, broker.Address, topic)
	eventually(t, "some is there", func() bool { return m.Count() > 0 })
	broker.Kill()
	broker.Restart()
	produce(t, broker.Address, topic, upsert(0, "last", 1))
	eventually(t, "all is committed", func() bool { return committed(t, broker.Address, topic) == count+1 })
	stop(t, s)
	if n := len(m.All(t)); n != count+1 {
		t.Errorf("%d messages are there, want %d", n, count+1)
	}
}

func TestConfigIsRefusedInWords(t *testing.T) {
	taker, err := ingest.NewTaker(ingest.Config{Messages: storetest.NewFaulty(), Intake: api.Intake{Buckets: 8}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []kafka.Config{
		{Taker: taker}, {Topic: "t"}, {Topic: strings.Repeat("t", 249), Taker: taker}, {Topic: "t", Taker: taker, Channel: "kafka:{routing-key}"},
	} {
		if _, err := kafka.Start(context.Background(), c); err == nil || postdate.KindOf(err) == postdate.KindInternal && c.Taker != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
