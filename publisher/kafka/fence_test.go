package kafka_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/publishertest"
)

func newFenced(t *testing.T, address, prefix string, buckets ...int) *kafka.Publisher {
	t.Helper()
	p := newPublisher(t, kafka.Config{Seeds: []string{address}, Fenced: true, TransactionPrefix: prefix, PublishTimeout: timeout})
	gain(t, p, buckets...)
	return p
}

func gain(t *testing.T, p *kafka.Publisher, buckets ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for err := p.Gained(ctx, buckets); err != nil; err = p.Gained(ctx, buckets) {
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestFencedConformance(t *testing.T) {
	address := kafkatest.URI(t)
	h := harness(address, kafkatest.NewClient(t, address))
	h.New = func(t *testing.T) publisher.Publisher { return newFenced(t, address, publishertest.Unique("x"), 0) }
	publishertest.Run(t, h)
}

// wire is a connection to a broker that stands still before a request of one kind, as if its
// process did.
type wire struct {
	mu      sync.Mutex
	key     kmsg.Key
	stopped chan struct{} // closed when it stands still; nil: it never does
	onward  chan struct{}
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	return &wireConn{c, w}, err
}

func (w *wire) stopAt(key kmsg.Key) (stopped <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.key, w.stopped, w.onward = key, make(chan struct{}), make(chan struct{})
	return w.stopped
}

func (w *wire) goOn() { close(w.onward) }

type wireConn struct {
	net.Conn
	w *wire
}

// Write recognises a request's kind by its first bytes, after its length.
func (c *wireConn) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	stop := c.w.stopped != nil && kmsg.Key(binary.BigEndian.Uint16(b[4:])) == c.w.key
	if stop {
		close(c.w.stopped)
		c.w.stopped = nil
	}
	c.w.mu.Unlock()
	if stop {
		<-c.w.onward
	}
	return c.Conn.Write(b)
}

// SetWriteDeadline does nothing: a process that stands still writes when it wakes.
func (c *wireConn) SetWriteDeadline(time.Time) error { return nil }

// An owner that stands still between its records and their commit, and is replaced meanwhile,
// never shows them to readers of committed records, and is told that surely none of them was
// delivered. The new owner publishes the same messages.
func TestZombieIsNeverSeen(t *testing.T) {
	address, topic, prefix := kafkatest.URI(t), publishertest.Unique("t"), publishertest.Unique("x")
	client := kafkatest.NewClient(t, address)
	client.CreateTopic(topic, 3, nil)
	channel := postdate.Channel("kafka:" + topic)
	fencedBuckets := make(chan int, 1)

	// The elder owner reaches the cluster through a wire that stops at its commit.
	w := &wire{}
	elder := publishertest.Closing(t, newPublisher(t, kafka.Config{
		Seeds: []string{address}, Fenced: true, TransactionPrefix: prefix, OnFenced: func(b int) { fencedBuckets <- b },
		Dial: w.dial, PublishTimeout: time.Minute,
	}))
	gain(t, elder, 0)
	for _, r := range elder.Publish(context.Background(), channel, publishertest.Batch("before", 10)) {
		if r.Outcome != publisher.Confirmed {
			t.Fatalf("%v: %s", r.Outcome, r.Reason)
		}
	}
	stopped := w.stopAt(kmsg.EndTxn)
	var zombie []publisher.Result
	var wg sync.WaitGroup
	wg.Go(func() { zombie = elder.Publish(context.Background(), channel, publishertest.Batch("m", 10)) })
	<-stopped
	if n := len(counted(client.TakeAll(topic, kafkatest.ReadUncommitted))); n != 20 {
		t.Errorf("%d messages are in the log, want those of the open transaction too: 20", n)
	}

	younger := publishertest.Closing(t, newFenced(t, address, prefix, 0))
	w.goOn()
	wg.Wait()
	for _, r := range zombie {
		if r.Outcome != publisher.Down || !strings.Contains(r.Reason, "another node has taken bucket 0 over") {
			t.Errorf("the zombie is told %v: %s", r.Outcome, r.Reason)
		}
	}
	if b := <-fencedBuckets; b != 0 {
		t.Errorf("bucket %d is said to be fenced", b)
	}
	for _, r := range elder.Publish(context.Background(), channel, publishertest.Batch("later", 10)) {
		if r.Outcome != publisher.Down {
			t.Errorf("the zombie's next batch is %v: %s", r.Outcome, r.Reason)
		}
	}
	again := publishertest.Batch("m", 10)
	for i := range again {
		again[i].PossibleDuplicate, again[i].Attempt = true, 2
	}
	for _, r := range younger.Publish(context.Background(), channel, again) {
		if r.Outcome != publisher.Confirmed {
			t.Errorf("the owner's batch is %v: %s", r.Outcome, r.Reason)
		}
	}
	seen := counted(client.Take(topic, 20, kafkatest.ReadCommitted))
	for id, n := range seen {
		if n != 1 || strings.HasPrefix(id, "later") {
			t.Errorf("%s is seen %d times", id, n)
		}
	}
	if len(seen) != 20 {
		t.Errorf("%d messages are seen, want 20", len(seen))
	}

	comesBack(t, elder, younger, channel)
}

// counted returns how often each id is there. An aborted try leaves its records in the log, so
// uncommitted reads count more than the messages.
func counted(records []*kgo.Record) map[string]int {
	counts := map[string]int{}
	for _, r := range records {
		counts[string(r.Key)]++
	}
	return counts
}

// comesBack hands bucket 0 over in the regular way.
func comesBack(t *testing.T, elder, younger *kafka.Publisher, channel postdate.Channel) {
	t.Helper()
	younger.Lost([]int{0})
	if r := younger.Publish(context.Background(), channel, publishertest.Batch("lost", 1))[0]; r.Outcome != publisher.Down {
		t.Errorf("a bucket that was lost: %v: %s", r.Outcome, r.Reason)
	}
	gain(t, elder, 0)
	if r := elder.Publish(context.Background(), channel, publishertest.Batch("back", 1))[0]; r.Outcome != publisher.Confirmed {
		t.Errorf("a bucket that came back: %v: %s", r.Outcome, r.Reason)
	}
}

// Each step of a transaction fails in each way, and the outcome of each message is true for
// readers of committed records.
func TestTransactionsThatFail(t *testing.T) {
	for _, c := range []struct {
		key   kmsg.Key
		err   *kerr.Error
		count int
		want  publisher.Outcome
	}{
		{kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions, 2, publisher.Confirmed},
		{kmsg.AddPartitionsToTxn, kerr.InvalidTxnState, 1, publisher.Confirmed},
		{kmsg.AddPartitionsToTxn, kerr.TopicAuthorizationFailed, -1, publisher.Refused},
		{kmsg.Produce, kerr.NotLeaderForPartition, 1, publisher.Confirmed},
		{kmsg.Produce, kerr.NotEnoughReplicas, -1, publisher.Down},
		{kmsg.Produce, kerr.NotEnoughReplicasAfterAppend, -1, publisher.Down},
		{kmsg.Produce, kerr.InvalidProducerEpoch, 1, publisher.Confirmed},
		{kmsg.Produce, kerr.TopicAuthorizationFailed, -1, publisher.Refused},
		{kmsg.EndTxn, kerr.CoordinatorNotAvailable, 1, publisher.Confirmed},
		{kmsg.EndTxn, kerr.InvalidTxnState, 1, publisher.Confirmed},
	} {
		t.Run(c.key.Name()+" "+c.err.Message, func(t *testing.T) {
			f := newFake(t, 1, 2, nil)
			p := publishertest.Closing(t, newFenced(t, f.ListenAddrs()[0], "x", 0))
			before := f.publish(p, "before", 3)
			fault := f.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: c.err, Count: c.count, TopLevel: c.key == kmsg.EndTxn})
			results := f.publish(p, "m", 3)
			fault.Remove()
			for _, r := range append(before, f.publish(p, "after", 3)...) {
				if r.Outcome != publisher.Confirmed {
					t.Errorf("before or after the fault: %v: %s", r.Outcome, r.Reason)
				}
			}
			counts := f.counts()
			for i, r := range results {
				if r.Outcome != c.want {
					t.Errorf("%v: %s", r.Outcome, r.Reason)
				}
				if n := counts[fmt.Sprint("m-", i)]; (n == 1) != (c.want == publisher.Confirmed) || n > 1 {
					t.Errorf("seen %d times", n)
				}
			}
		})
	}
}

// A bucket that could not be fenced publishes nothing until it is.
func TestNotFencedYet(t *testing.T) {
	f := newFake(t, 1, 1, nil)
	p := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: f.ListenAddrs(), Fenced: true, PublishTimeout: timeout}))
	fault := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1, TopLevel: true})
	err := p.Gained(context.Background(), []int{0, 1})
	if postdate.KindOf(err) != postdate.KindUnavailable || err == nil || !strings.Contains(err.Error(), "fenced 0 of 2 buckets") || !strings.Contains(err.Error(), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED") {
		t.Errorf("gained: %v", err)
	}
	if r := f.publish(p, "m", 1)[0]; r.Outcome != publisher.Down || !strings.Contains(r.Reason, "bucket 0 is not fenced") {
		t.Errorf("%v: %s", r.Outcome, r.Reason)
	}
	fault.Remove()
	gain(t, p, 0)
	if r := f.publish(p, "m", 1)[0]; r.Outcome != publisher.Confirmed {
		t.Errorf("%v: %s", r.Outcome, r.Reason)
	}
}

// The answer to a commit is lost: the next try learns the outcome.
func TestLostCommit(t *testing.T) {
	f := newFake(t, 1, 2, nil)
	p := publishertest.Closing(t, newFenced(t, f.ListenAddrs()[0], "x", 0, 1))
	f.publish(p, "before", 1)
	f.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.drop.Store(true)
		f.DropControl()
		return nil, nil, false
	})
	for _, r := range f.publish(p, "m", 20) {
		if r.Outcome != publisher.Confirmed {
			t.Errorf("%v: %s", r.Outcome, r.Reason)
		}
	}
	for id, n := range f.counts() {
		if n != 1 {
			t.Errorf("%s is seen %d times", id, n)
		}
	}
}

// BenchmarkPublish measures the price of fencing: batches of 500 small messages for one topic
// of four partitions, from eight callers, spread over buckets, with fencing and without.
func BenchmarkPublish(b *testing.B) {
	if os.Getenv("POSTDATE_TEST_PARTS") != "" {
		b.Skip("not a test")
	}
	for _, buckets := range []int{0, 1, 8, 64} {
		name := fmt.Sprintf("fenced, %d buckets", buckets)
		if buckets == 0 {
			name = "unfenced"
		}
		b.Run(name, func(b *testing.B) {
			address, topic := kafkatest.URI(b), publishertest.Unique("t")
			kafkatest.NewClient(b, address).CreateTopic(topic, 4, nil)
			p, err := kafka.New(kafka.Config{Seeds: []string{address}, Fenced: buckets > 0, TransactionPrefix: publishertest.Unique("x"), Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close(context.Background())
			var all []int
			for n := range buckets {
				all = append(all, n)
			}
			start := time.Now()
			if err := p.Gained(context.Background(), all); err != nil {
				b.Fatal(err)
			}
			gain := time.Since(start)
			const size = 500
			work := make(chan int)
			var wg sync.WaitGroup
			for caller := range 8 {
				wg.Go(func() {
					for n := range work {
						batch := publishertest.Batch(fmt.Sprintf("c%d-%d", caller, n), size)
						for i := range batch {
							batch[i].Message.Bucket = i % max(1, buckets)
						}
						for _, r := range p.Publish(context.Background(), postdate.Channel("kafka:"+topic), batch) {
							if r.Outcome != publisher.Confirmed {
								b.Errorf("%v: %s", r.Outcome, r.Reason)
							}
						}
					}
				})
			}
			b.ResetTimer()
			for n := range b.N {
				work <- n
			}
			close(work)
			wg.Wait()
			b.ReportMetric(float64(gain.Milliseconds()), "ms/gain")
			b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
