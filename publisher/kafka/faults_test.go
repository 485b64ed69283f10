package kafka_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/proctest"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/publishertest"
)

// fake is a cluster in this process that fails on demand.
type fake struct {
	*kfake.Cluster
	client kafkatest.Client
	topic  string
	drop   atomic.Bool // the next answer is lost with its connection
}

func newFake(t *testing.T, brokers, partitions int, config map[string]string) *fake {
	t.Helper()
	f := &fake{topic: "t"}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(brokers), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return &lossy{l, f}, err
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	f.Cluster, f.client = cluster, kafkatest.NewClient(t, cluster.ListenAddrs()[0])
	f.client.CreateTopic(f.topic, partitions, config)
	return f
}

// lossy loses an answer on demand.
type lossy struct {
	net.Listener
	f *fake
}

func (l *lossy) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lossyConn{c, l.f}, nil
}

type lossyConn struct {
	net.Conn
	f *fake
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.f.drop.CompareAndSwap(true, false) {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (f *fake) publisher(t *testing.T, timeout time.Duration) *kafka.Publisher {
	return publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: f.ListenAddrs(), PublishTimeout: timeout}))
}

func (f *fake) publish(p publisher.Publisher, prefix string, n int) []publisher.Result {
	return p.Publish(context.Background(), postdate.Channel("kafka:"+f.topic), publishertest.Batch(prefix, n))
}

// counts returns how often each id is in the topic.
func (f *fake) counts() map[string]int {
	counts := map[string]int{}
	for _, r := range f.client.TakeAll(f.topic, kafkatest.ReadCommitted) {
		counts[string(r.Key)]++
	}
	return counts
}

// Each of the broker's errors has its outcome, and the outcome of each message is true of the
// topic: confirmed is there once, refused and down are not.
func TestEachErrorHasItsOutcome(t *testing.T) {
	for _, c := range []struct {
		err   *kerr.Error
		count int // how often the broker says so; -1: always
		want  publisher.Outcome
		there int // how often each message is in the topic
	}{
		{kerr.NotEnoughReplicas, -1, publisher.Down, 0},
		{kerr.NotEnoughReplicasAfterAppend, 1, publisher.Unknown, 1},
		{kerr.TopicAuthorizationFailed, -1, publisher.Refused, 0},
		{kerr.InvalidTimestamp, -1, publisher.Refused, 0},
		{kerr.RequestTimedOut, 1, publisher.Confirmed, 1}, // appended: the second try is recognised
		{kerr.NotLeaderForPartition, 1, publisher.Confirmed, 1},
		{kerr.NotLeaderForPartition, -1, publisher.Unknown, 0},
		{kerr.LeaderNotAvailable, 2, publisher.Confirmed, 1},
		{kerr.UnknownTopicOrPartition, 1, publisher.Confirmed, 1}, // the metadata know it
		{kerr.UnknownProducerID, 1, publisher.Confirmed, 1},
		{kerr.OutOfOrderSequenceNumber, 1, publisher.Confirmed, 1},
		{kerr.KafkaStorageError, 1, publisher.Confirmed, 1},
		{kerr.UnknownServerError, -1, publisher.Unknown, 0},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			f := newFake(t, 1, 1, nil)
			p := f.publisher(t, 5*time.Second)
			before := f.publish(p, "before", 3)
			fault := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: c.err, Count: c.count})
			for _, r := range f.publish(p, "m", 3) {
				if r.Outcome != c.want || r.Permanent || r.Outcome != publisher.Confirmed && !strings.Contains(r.Reason, c.err.Message) {
					t.Errorf("%v, permanent %t: %s", r.Outcome, r.Permanent, r.Reason)
				}
			}
			fault.Remove()
			for _, r := range append(before, f.publish(p, "after", 3)...) {
				if r.Outcome != publisher.Confirmed {
					t.Errorf("before or after the fault: %v: %s", r.Outcome, r.Reason)
				}
			}
			counts := f.counts()
			for id, want := range map[string]int{"before-1": 1, "m-0": c.there, "m-2": c.there, "after-1": 1} {
				if counts[id] != want {
					t.Errorf("%s is %d times in the topic, want %d", id, counts[id], want)
				}
			}
		})
	}
}

// A message that is too large for the topic fails alone and permanently, however many others
// are in its batch.
func TestTooLargeFailsAlone(t *testing.T) {
	f := newFake(t, 1, 1, map[string]string{"max.message.bytes": "4000"})
	p := f.publisher(t, timeout)
	batch := publishertest.Batch("m", 100)
	batch[41].Message.Payload = make([]byte, 5000)
	for i, r := range p.Publish(context.Background(), "kafka:t", batch) {
		if i == 41 && (r.Outcome != publisher.Refused || !r.Permanent || !strings.HasPrefix(r.Reason, "MESSAGE_TOO_LARGE")) {
			t.Errorf("the large one is %v, permanent %t: %s", r.Outcome, r.Permanent, r.Reason)
		} else if i != 41 && r.Outcome != publisher.Confirmed {
			t.Errorf("message %d is %v: %s", i, r.Outcome, r.Reason)
		}
	}
	if n := len(f.counts()); n != 99 {
		t.Errorf("%d messages are in the topic", n)
	}
}

// The broker accepts a batch and its answer is lost: the second try learns that, and makes no
// duplicate.
func TestLostAnswer(t *testing.T) {
	f := newFake(t, 1, 1, nil)
	p := f.publisher(t, timeout)
	f.publish(p, "before", 1)
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.drop.Store(true)
		f.DropControl()
		return nil, nil, false
	})
	for _, r := range f.publish(p, "m", 20) {
		if r.Outcome != publisher.Confirmed {
			t.Errorf("%v: %s", r.Outcome, r.Reason)
		}
	}
	counts := f.counts()
	for id, n := range counts {
		if n != 1 {
			t.Errorf("%s is %d times in the topic", id, n)
		}
	}
	if len(counts) != 21 {
		t.Errorf("%d messages are in the topic", len(counts))
	}
}

// Once a caller is told that the outcome is unknown, the message is never sent again; later
// messages are.
func TestUnknownIsNotSentLater(t *testing.T) {
	f := newFake(t, 1, 1, nil)
	p := f.publisher(t, 20*time.Second)
	f.publish(p, "before", 1)
	held, release := make(chan struct{}), make(chan struct{})
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(held)
		f.SleepControl(func() { <-release })
		return nil, net.ErrClosed, true // not appended, and the connection is lost
	})
	ctx, cancel := context.WithCancel(context.Background())
	var results, beside []publisher.Result
	var wg sync.WaitGroup
	wg.Go(func() { results = p.Publish(ctx, "kafka:t", publishertest.Batch("m", 3)) })
	<-held
	wg.Go(func() { beside = f.publish(p, "beside", 3) }) // waits behind the first
	cancel()
	for _, r := range p.Publish(ctx, "kafka:t", publishertest.Batch("late", 1)) {
		if r.Outcome != publisher.Down {
			t.Errorf("an ended context: %v: %s", r.Outcome, r.Reason)
		}
	}
	waitFor(t, func() bool { return p.State().Phase == publisher.Connected })
	time.AfterFunc(50*time.Millisecond, func() { close(release) }) // the outcomes hold in any order
	wg.Wait()
	for _, r := range results {
		if r.Outcome != publisher.Unknown {
			t.Errorf("a caller that left while the broker was silent: %v: %s", r.Outcome, r.Reason)
		}
	}
	for _, r := range append(beside, f.publish(p, "after", 3)...) {
		if r.Outcome != publisher.Confirmed {
			t.Errorf("beside or after: %v: %s", r.Outcome, r.Reason)
		}
	}
	counts := f.counts()
	for id, want := range map[string]int{"m-0": 0, "m-1": 0, "beside-0": 1, "beside-2": 1, "after-2": 1, "late-0": 0} {
		if counts[id] != want {
			t.Errorf("%s is %d times in the topic, want %d", id, counts[id], want)
		}
	}
}

// Partitions move between brokers while messages are in flight; nothing is lost, and
// nothing comes twice.
func TestLeadersMove(t *testing.T) {
	f := newFake(t, 3, 6, nil)
	p := f.publisher(t, timeout)
	l := publishertest.StartLoad(t, p, postdate.Channel("kafka:"+f.topic))
	for range 10 {
		f.ShufflePartitionLeaders()
		l.Until(publisher.Confirmed, 200)
	}
	l.End()
	l.Account(idsOf(f.client.TakeAll(f.topic, kafkatest.ReadCommitted)))
	l.AllConfirmed()
}

// A topic created after it was refused is found; a topic that is deleted is refused.
func TestTopicsComeAndGo(t *testing.T) {
	address, topic := kafkatest.URI(t), publishertest.Unique("t")
	client := kafkatest.NewClient(t, address)
	p := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: []string{address}}))
	publish := func() publisher.Result {
		return p.Publish(context.Background(), postdate.Channel("kafka:"+topic), publishertest.Batch("m", 1))[0]
	}
	if r := publish(); r.Outcome != publisher.Refused || r.Permanent || !strings.HasPrefix(r.Reason, "UNKNOWN_TOPIC_OR_PARTITION") {
		t.Errorf("a missing topic: %v, permanent %t: %s", r.Outcome, r.Permanent, r.Reason)
	}
	for range 2 {
		client.CreateTopic(topic, 2, nil)
		waitFor(t, func() bool { return publish().Outcome == publisher.Confirmed })
		client.DeleteTopic(topic)
		if r := publish(); r.Outcome != publisher.Refused || r.Permanent || !strings.HasPrefix(r.Reason, "UNKNOWN_TOPIC_OR_PARTITION") {
			t.Errorf("a deleted topic: %v, permanent %t: %s", r.Outcome, r.Permanent, r.Reason)
		}
	}
}

// If there is no cluster, messages wait a moment, and the reason is reported.
func TestNobodyThere(t *testing.T) {
	address := proctest.Closed(t)
	p := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: []string{address}}))
	for _, r := range p.Publish(context.Background(), "kafka:t", publishertest.Batch("m", 2)) {
		if r.Outcome != publisher.Down || strings.Contains(r.Reason, "127.0.0.1") || !strings.Contains(r.Reason, "refused") {
			t.Errorf("%v: %s", r.Outcome, r.Reason)
		}
	}
	waitFor(t, func() bool { s := p.State(); return s.Phase == publisher.Lost && strings.Contains(s.Reason, address) })
}

func TestLogin(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.SeedTopics(1, "t"),
		kfake.Superuser("PLAIN", "u", "p"), kfake.Superuser("SCRAM-SHA-256", "u", "p"), kfake.Superuser("SCRAM-SHA-512", "u", "p"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		p := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: c.ListenAddrs(), SASL: &kafka.SASL{Mechanism: mechanism, User: "u", Password: "p"}}))
		if r := p.Publish(context.Background(), "kafka:t", publishertest.Batch("m", 1))[0]; r.Outcome != publisher.Confirmed {
			t.Errorf("%s: %v: %s", mechanism, r.Outcome, r.Reason)
		}
	}
	p := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: c.ListenAddrs(), SASL: &kafka.SASL{Mechanism: "plain", User: "u", Password: "wrong-secret"}}))
	if r := p.Publish(context.Background(), "kafka:t", publishertest.Batch("m", 1))[0]; r.Outcome != publisher.Down || strings.Contains(r.Reason, "wrong-secret") {
		t.Errorf("a wrong password: %v: %s", r.Outcome, r.Reason)
	}
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	for want, c := range map[string]kafka.Config{
		"no Kafka broker":     {},
		"host:port":           {Seeds: []string{"kafka"}},
		"negative":            {Seeds: []string{"kafka:9092"}, PublishTimeout: -1},
		"none of plain":       {Seeds: []string{"kafka:9092"}, SASL: &kafka.SASL{Mechanism: "x", User: "u"}},
		"the Kafka login has": {Seeds: []string{"kafka:9092"}, SASL: &kafka.SASL{Mechanism: "plain"}},
	} {
		if _, err := kafka.New(c); postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	for _, bad := range []postdate.Channel{"kafka:", "kafka:a/b", "kafka:..", "kafka:ü", "rabbitmq:t", postdate.Channel("kafka:" + strings.Repeat("x", 250))} {
		p := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: []string{"127.0.0.1:1"}}))
		if err := p.Check(bad); postdate.KindOf(err) != postdate.KindInvalid || err == nil {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// waitFor polls until so returns true, for what has no signal.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not so after a minute")
		}
	}
}

// A client's own headers keep their order and values, except those that other brokers have
// fields for.
func TestHeadersAndKeys(t *testing.T) {
	f := newFake(t, 1, 1, nil)
	p := f.publisher(t, timeout)
	batch := publishertest.Batch("m", 3)
	batch[2].Message.Headers = []postdate.Header{{Name: postdate.HeaderNoKey, Value: "true"}}
	batch[0].Message.PartitionKey = "customer-7"
	batch[0].Message.Headers = []postdate.Header{{Name: "Message-Id", Value: "forged"}, {Name: "x", Value: ""}}
	batch[1].Message.Payload = nil
	for _, r := range p.Publish(context.Background(), "kafka:t", batch) {
		if r.Outcome != publisher.Confirmed {
			t.Fatalf("%v: %s", r.Outcome, r.Reason)
		}
	}
	records := f.client.TakeAll("t", kafkatest.ReadCommitted)
	if string(records[0].Key) != "customer-7" || string(records[1].Key) != "m-1" || records[2].Key != nil || records[1].Value == nil {
		t.Errorf("keys %q, %q and %q, null value %t", records[0].Key, records[1].Key, records[2].Key, records[1].Value == nil)
	}
	var names []string
	for _, h := range records[0].Headers {
		names = append(names, h.Key)
	}
	if !slices.Equal(names, []string{"message-id", "content-type", "postdate-schedule-id", "postdate-execution-time", "postdate-attempt", "x"}) {
		t.Errorf("headers %v", names)
	}
}
