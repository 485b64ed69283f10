package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
)

// load publishes from several callers until it is ended, and records the results.
type load struct {
	t    *testing.T
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	outcomes map[string]publisher.Outcome // by id; every id is published once
	reasons  map[string]bool
	moved    *sync.Cond
}

func startLoad(t *testing.T, p publisher.Publisher, topic string) *load {
	l := &load{t: t, stop: make(chan struct{}), outcomes: map[string]publisher.Outcome{}, reasons: map[string]bool{}}
	l.moved = sync.NewCond(&l.mu)
	for caller := range 4 {
		l.wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				batch := batchOf(fmt.Sprintf("c%d-b%d", caller, n), 50)
				results := p.Publish(context.Background(), postdate.Channel("kafka:"+topic), batch)
				l.note(batch, results)
				if results[0].Outcome == publisher.Down {
					time.Sleep(20 * time.Millisecond) // as a caller that parks the channel would
				}
			}
		})
	}
	l.until(publisher.Confirmed, 500)
	return l
}

func (l *load) note(batch []postdate.Delivery, results []publisher.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range results {
		l.outcomes[batch[i].Message.ScheduleID] = r.Outcome
		if r.Reason != "" && len(l.reasons) < 20 {
			l.reasons[r.Reason] = true
		}
	}
	l.moved.Broadcast()
}

func (l *load) countLocked(o publisher.Outcome) (n int) {
	for _, have := range l.outcomes {
		if have == o {
			n++
		}
	}
	return n
}

// until waits for n more results of an outcome.
func (l *load) until(o publisher.Outcome, n int) {
	l.t.Helper()
	late := time.AfterFunc(time.Minute, func() { l.mu.Lock(); defer l.mu.Unlock(); l.moved.Broadcast() })
	defer late.Stop()
	start := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for want := l.countLocked(o) + n; l.countLocked(o) < want; l.moved.Wait() {
		if time.Since(start) >= time.Minute {
			l.t.Fatalf("%d results are %v after a minute, want %d; reasons: %v", l.countLocked(o), o, want, l.reasons)
		}
	}
}

func (l *load) end() { close(l.stop); l.wg.Wait() }

// account compares the load with the topic: confirmed is there, once; unknown at most once,
// because nothing was published twice; refused and down are not.
func (l *load) account(inTopic []*kgo.Record) {
	l.t.Helper()
	seen := map[string]int{}
	for _, r := range inTopic {
		seen[string(r.Key)]++
	}
	for id, o := range l.outcomes {
		switch n := seen[id]; {
		case o == publisher.Confirmed && n != 1:
			l.t.Errorf("%s is confirmed and %d times in the topic", id, n)
		case o == publisher.Unknown && n > 1, (o == publisher.Refused || o == publisher.Down) && n > 0:
			l.t.Errorf("%s is %v and %d times in the topic", id, o, n)
		}
	}
	var counts []string
	for o := publisher.Confirmed; o <= publisher.Unknown; o++ {
		counts = append(counts, fmt.Sprintf("%d %v", l.countLocked(o), o))
	}
	l.t.Logf("%s; reasons %v", strings.Join(counts, ", "), l.reasons)
}

func batchOf(prefix string, n int) []postdate.Delivery {
	batch := make([]postdate.Delivery, n)
	for i := range batch {
		batch[i] = postdate.Delivery{Attempt: 1, Message: &postdate.Message{
			Key:           postdate.Key{Tenant: postdate.DefaultTenant, ScheduleID: fmt.Sprintf("%s-%d", prefix, i)},
			ExecutionTime: 1_800_000_000_123, Payload: make([]byte, 256), ContentType: "application/octet-stream",
		}}
	}
	return batch
}

// The broker is stopped, killed and paused, each under load, and every message is accounted
// for.
func TestBrokerComesAndGoes(t *testing.T) {
	broker := kafkatest.Start(t)
	client := kafkatest.NewClient(t, broker.Address)
	plain := closing(t, newPublisher(t, kafka.Config{Seeds: []string{broker.Address}, PublishTimeout: 4 * time.Second}))
	fenced := closing(t, newFenced(t, broker.Address, "x", 0))
	for _, c := range []struct {
		name string
		p    *kafka.Publisher
		away func(l *load)
	}{
		{"stopped", plain, func(*load) { broker.Stop(); broker.Restart() }},
		{"killed", plain, func(*load) { broker.Kill(); broker.Restart() }},
		{"killed, fenced", fenced, func(*load) { broker.Kill(); broker.Restart() }},
		{"paused", plain, func(l *load) { broker.Pause(); l.until(publisher.Unknown, 1); broker.Cont() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			topic := unique("t")
			client.CreateTopic(topic, 4, nil)
			l := startLoad(t, c.p, topic)
			c.away(l)
			l.until(publisher.Confirmed, 500)
			l.end()
			l.account(client.Take(topic, l.countLocked(publisher.Confirmed), kafkatest.ReadCommitted))
			if n := l.countLocked(publisher.Refused); n > 0 {
				t.Errorf("%d messages are refused, and nothing was wrong with them: %v", n, l.reasons)
			}
		})
	}
}
