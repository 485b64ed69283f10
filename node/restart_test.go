package node_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/proctest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// insistent schedules a message until it is answered, like a client whose node restarts: always
// with the same id, which makes it safe.
func insistent(t *testing.T, c *nodetest.Client, ledger *account.Ledger, id string, in time.Duration) {
	due := nodetest.In(in)
	ledger.Sent(id, "inbox:all", due)
	m := client.Message{ScheduleID: id, Channel: "inbox:all", ExecutionTime: due, Payload: []byte("1")}
	err := nodetest.Poll(patient(t), func() (bool, error) {
		_, err := c.Schedule(t.Context(), m)
		if nodetest.NoAnswer(err) || nodetest.NotNow(err) && !client.MayBeDone(err) {
			return false, nil // down, or about to be
		}
		return true, err
	})
	if err != nil {
		t.Errorf("%s: %v", id, err)
		return
	}
	ledger.Scheduled(id, account.Done, time.Now())
}

// An orderly restart under load does not show in what arrives: nothing is lost, nothing comes
// twice, and nothing is even marked.
func TestRestartUnderLoad(t *testing.T) {
	const restarts, callers = 5, 16
	c := config(t)
	n, api := start(t, c)
	ledger := nodetest.NewLedger()
	end := follow(t, api, "all", nodetest.Into(ledger))
	over := make(chan struct{})
	var load sync.WaitGroup
	random := testrun.Random(t)
	for caller := range callers {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
					in := 50*time.Millisecond + time.Duration(random.Int64N(int64(1500*time.Millisecond)))
					insistent(t, api, ledger, fmt.Sprintf("m-%d-%d", caller, i), in)
				}
			}
		})
	}
	tokens := map[int]uint64{}
	for range restarts {
		<-time.After(time.Second) // under load
		noteTokens(t, api, tokens)
		stop(t, n)
		var err error
		if n, err = node.Start(patient(t), c); err != nil {
			t.Fatal(err)
		}
		api.Move(n.Addr())
	}
	t.Cleanup(func() { stop(t, n) })
	close(over)
	load.Wait()
	noteTokens(t, api, tokens)
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	end()
	if r := nodetest.Settle(t, ledger); r.Accepted < restarts*callers {
		t.Errorf("only %d messages: that was no load", r.Accepted)
	}
}

// noteTokens compares every bucket's token with the one before: it grows by one with each
// owner.
func noteTokens(t *testing.T, c *nodetest.Client, last map[int]uint64) {
	t.Helper()
	view, err := c.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range view.Buckets {
		if before, known := last[b.Bucket]; known && b.Token != before+1 {
			t.Errorf("%s: bucket %d: token %d after %d", testrun.Broken, b.Bucket, b.Token, before)
		}
		if b.Owner == "" {
			t.Errorf("bucket %d has no owner", b.Bucket)
		}
		last[b.Bucket] = b.Token
	}
}

// A node whose broker cannot be reached stops in an orderly way, and what waits for that broker
// arrives, unmarked, when a later run reaches it.
func TestStopWhileChannelIsDown(t *testing.T) {
	const count = 50
	url := rabbitmqtest.URL(t)
	broker := rabbitmqtest.NewClient(t, url)
	queue := fmt.Sprint("restart-", time.Now().UnixNano())
	broker.Declare(queue, nil)
	c := config(t)
	c.RabbitMQ = "amqp://guest:guest@" + proctest.Closed(t) + "/"
	n, api := start(t, c)
	for i := range count {
		s, err := api.Schedule(t.Context(), client.Message{ScheduleID: fmt.Sprint("m-", i), Channel: "rabbitmq:" + queue, Delay: time.Millisecond, Payload: fmt.Append(nil, i)})
		if err != nil || !s.Created {
			t.Fatal(s, err)
		}
	}
	awaitParked(t, api, count)
	stop(t, n)

	c.RabbitMQ = url
	_, api = start(t, c)
	ids := map[string]bool{}
	for _, d := range broker.Take(queue, count, patience) {
		if d.Headers["postdate-possible-duplicate"] != nil {
			t.Errorf("%s: %s is marked", testrun.Broken, d.MessageId)
		}
		if d.Headers["postdate-attempt"] != int32(1) {
			t.Errorf("%s: attempt %v; waiting for a channel is none", d.MessageId, d.Headers["postdate-attempt"])
		}
		ids[d.MessageId] = true
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	if left := broker.Len(queue); len(ids) != count || left != 0 {
		t.Errorf("%d of %d messages arrived, and %d more", len(ids), count, left)
	}
}

// awaitParked waits until count messages are parked.
func awaitParked(t *testing.T, c *nodetest.Client, count int) {
	t.Helper()
	parked := 0
	err := nodetest.Poll(patient(t), func() (bool, error) {
		parked = 0
		for m, err := range c.List(t.Context(), client.Filter{Status: client.Pending}) {
			if err != nil {
				return false, err
			}
			if m.Parked != "" {
				parked++
			}
		}
		return parked >= count, nil
	})
	if err != nil {
		t.Fatalf("%d of %d messages are parked: %v", parked, count, err)
	}
}
