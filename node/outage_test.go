package node_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// outage is a node with a broker of its own, which suffers outages.
type outage struct {
	broker *rabbitmqtest.Broker
	client *nodetest.Client
}

// TestRabbitMQOutages stops, cuts, alarms and empties a real broker under load.
func TestRabbitMQOutages(t *testing.T) {
	t.Parallel() // its broker is its own, and it waits for outages
	broker := rabbitmqtest.Start(t)
	c := config(t)
	c.RabbitMQ = broker.URL
	_, api := start(t, c)
	o := &outage{broker, api}
	t.Run("stopped", o.stopped)
	t.Run("connections cut", o.cut)
	t.Run("queue deleted", o.deleted)
	t.Run("memory alarm", o.alarmed)
}

// steady schedules about 200 messages a second to a channel until it is ended, and then returns
// which were accepted.
type steady struct {
	mu       sync.Mutex
	accepted []string
	over     chan struct{}
	callers  sync.WaitGroup
}

func startSteady(t *testing.T, c *nodetest.Client, name, channel string) *steady {
	const callers = 4
	s := &steady{over: make(chan struct{})}
	for caller := range callers {
		s.callers.Go(func() {
			tick := time.NewTicker(callers * time.Second / 200)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-s.over:
					return
				case <-tick.C:
				}
				due := nodetest.In(100 * time.Millisecond)
				id := fmt.Sprintf("%s-%d-%d", name, caller, i)
				sent, err := c.Schedule(t.Context(), client.Message{ScheduleID: id, Channel: channel, ExecutionTime: due, Payload: dueJSON(due)})
				if err != nil || !sent.Created {
					t.Errorf("%s: %+v, %v; a broker's trouble is none of the client's", id, sent, err)
					continue
				}
				s.mu.Lock()
				s.accepted = append(s.accepted, id)
				s.mu.Unlock()
			}
		})
	}
	return s
}

func (s *steady) end() []string {
	close(s.over)
	s.callers.Wait()
	return s.accepted
}

func (s *steady) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.accepted)
}

// dueJSON is the payload by which counted knows when a message is due.
func dueJSON(due time.Time) []byte { return fmt.Appendf(nil, "%q", nodetest.At(due)) }

// awaitQueue waits until a queue holds at least n messages.
func awaitQueue(t *testing.T, c rabbitmqtest.Client, queue string, n int) {
	t.Helper()
	if err := nodetest.Poll(patient(t), func() (bool, error) { return c.Len(queue) >= n, nil }); err != nil {
		t.Fatalf("queue %s: %v", queue, err)
	}
}

// settle waits until nothing is pending, and compares the queue with what was accepted: each of
// those at least once, and nothing of never.
func (o *outage) settle(t *testing.T, queue string, accepted, never []string) {
	t.Helper()
	if err := o.client.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	got := counted(t, rabbitmqtest.NewClient(t, o.broker.URL).TakeAll(queue))
	lost := 0
	for _, id := range accepted {
		if got[id] == 0 {
			lost++
			m, err := o.client.Get(t.Context(), id)
			t.Logf("lost: %+v, %v", m, err)
		}
	}
	if lost > 0 {
		t.Errorf("%s: %d of %d messages are lost", testrun.Broken, lost, len(accepted))
	}
	for _, id := range never {
		if got[id] > 0 {
			t.Errorf("%s: %s arrived, though that was ruled out", testrun.Broken, id)
		}
	}
}

// schedule schedules n messages to be delivered now.
func (o *outage) schedule(t *testing.T, name, channel string, n int, more func(*client.Message)) []string {
	t.Helper()
	ms, ids := make([]client.Message, n), make([]string, n)
	for i := range ms {
		ids[i] = fmt.Sprint(name, "-", i)
		due := nodetest.In(0)
		ms[i] = client.Message{ScheduleID: ids[i], Channel: channel, ExecutionTime: due, Payload: dueJSON(due)}
		if more != nil {
			more(&ms[i])
		}
	}
	results, err := o.client.ScheduleAll(t.Context(), ms)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Problem != nil {
			t.Fatalf("%+v", *r.Problem)
		}
	}
	return ids
}

// outageTime is how long the broker is down: 10 s, or as many seconds as
// POSTDATE_OUTAGE_SECONDS says.
func outageTime(t *testing.T) time.Duration {
	text := os.Getenv("POSTDATE_OUTAGE_SECONDS")
	if text == "" {
		return 10 * time.Second
	}
	d, err := time.ParseDuration(text + "s")
	if err != nil || d <= 0 {
		t.Fatalf("POSTDATE_OUTAGE_SECONDS is %q: it must be a number of seconds", text)
	}
	return d
}

// A broker that is down for a while loses nothing and affects no other channel. What waits for
// it can be cancelled with a guarantee, and can expire.
func (o *outage) stopped(t *testing.T) {
	const queue, channel = "stopped", "rabbitmq:stopped"
	broker := rabbitmqtest.NewClient(t, o.broker.URL)
	broker.Declare(queue, nil)
	ledger := nodetest.NewLedger()
	end := follow(t, o.client, "beside", nodetest.Into(ledger))
	load := startSteady(t, o.client, "load", channel)
	awaitQueue(t, broker, queue, 100)
	o.broker.Stop()
	backAt := time.After(outageTime(t))

	parked := o.schedule(t, "parked", channel, 40, nil)
	expiring := o.schedule(t, "expiring", channel, 10, func(m *client.Message) {
		m.ExpiresAt = time.Now().Add(2 * time.Second)
	})
	o.awaitAllParked(t, parked)
	cancelled, rest := o.cancelHalf(t, parked)
	o.beside(t, ledger)
	for _, id := range expiring {
		m := o.awaitFinal(t, id)
		if m.Status != "DELIVERY_FAILED" || !strings.Contains(m.LastError, "expired") {
			t.Errorf("%s, which expired while the broker was down: %+v", id, m)
		}
	}
	<-backAt
	o.broker.Restart()
	awaitQueue(t, broker, queue, load.count()) // and the load goes on
	o.settle(t, queue, append(load.end(), rest...), append(cancelled, expiring...))
	end()
	nodetest.Settle(t, ledger) // which knows of no fault: the broker's outage is not to be seen in the inbox
}

// beside sends messages to an inbox and waits until they arrive, while the broker is down.
func (o *outage) beside(t *testing.T, ledger *account.Ledger) {
	t.Helper()
	const count = 200
	due := nodetest.In(200 * time.Millisecond)
	for i := range count {
		ledger.Sent(fmt.Sprint("beside-", i), "inbox:beside", due)
	}
	o.schedule(t, "beside", "inbox:beside", count, func(m *client.Message) { m.ExecutionTime = due })
	for i := range count {
		ledger.Scheduled(fmt.Sprint("beside-", i), account.Done, time.Now())
	}
	if err := nodetest.Poll(patient(t), func() (bool, error) { return ledger.Open() == 0, nil }); err != nil {
		t.Errorf("%d messages to an inbox wait for a broker: %v", ledger.Open(), err)
	}
}

// awaitAllParked waits until these messages are parked.
func (o *outage) awaitAllParked(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		err := nodetest.Poll(patient(t), func() (bool, error) {
			m, err := o.client.Get(t.Context(), id)
			return m.Parked != "", err
		})
		if err != nil {
			m, _ := o.client.Get(t.Context(), id)
			t.Fatalf("%+v is not parked: %v", m, err)
		}
	}
}

// cancelHalf cancels half of what is parked. Only a message that is being sent as a probe may
// be refused.
func (o *outage) cancelHalf(t *testing.T, parked []string) (cancelled, rest []string) {
	t.Helper()
	half := len(parked) / 2
	rest = append(rest, parked[half:]...)
	for _, id := range parked[:half] {
		err := o.client.Cancel(t.Context(), id)
		switch {
		case err == nil:
			cancelled = append(cancelled, id)
		case client.TypeOf(err) == client.TooLate:
			rest = append(rest, id)
		default:
			t.Errorf("%s: %v", id, err)
		}
	}
	if len(cancelled) < half/2 {
		t.Errorf("of %d messages that wait for the broker only %d could be cancelled", half, len(cancelled))
	}
	return cancelled, rest
}

func (o *outage) awaitFinal(t *testing.T, id string) (m client.Record) {
	t.Helper()
	err := nodetest.Poll(patient(t), func() (_ bool, err error) {
		m, err = o.client.Get(t.Context(), id)
		return m.Status != "PENDING", err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Cutting connections under load loses nothing; what was in flight may come twice, marked.
func (o *outage) cut(t *testing.T) {
	const queue, channel = "cut", "rabbitmq:cut"
	broker := rabbitmqtest.NewClient(t, o.broker.URL)
	broker.Declare(queue, nil)
	load := startSteady(t, o.client, "cut", channel)
	for range 3 {
		awaitQueue(t, broker, queue, load.count()+50)
		o.broker.CloseAllConnections()
	}
	awaitQueue(t, broker, queue, load.count()+50)
	o.settle(t, queue, load.end(), nil)
}

// Deleting a queue and creating it again within the retries loses nothing but what was in it,
// and affects no other channel.
func (o *outage) deleted(t *testing.T) {
	const queue, channel = "deleted", "rabbitmq:deleted"
	broker := rabbitmqtest.NewClient(t, o.broker.URL)
	broker.Declare(queue, nil)
	broker.Declare("beside", nil)
	load := startSteady(t, o.client, "queue-beside", "rabbitmq:beside")
	o.schedule(t, "before", channel, 1, nil)
	awaitQueue(t, broker, queue, 1)
	broker.Delete(queue)
	ids := o.schedule(t, "deleted", channel, 50, func(m *client.Message) {
		m.Retry = &client.Retry{MaxAttempts: 100, MinBackoff: 100 * time.Millisecond}
	})
	for _, id := range ids {
		err := nodetest.Poll(patient(t), func() (bool, error) {
			m, err := o.client.Get(t.Context(), id)
			return m.Attempts > 0 && strings.Contains(m.LastError, "NO_ROUTE"), err
		})
		if err != nil {
			t.Fatal(id, err)
		}
	}
	broker.Declare(queue, nil)
	accepted := load.end()
	o.settle(t, queue, ids, nil)
	o.settle(t, "beside", accepted, nil)
}

// While a memory alarm is raised the broker accepts nothing: waiting messages can be cancelled,
// and the others arrive when it is cleared.
func (o *outage) alarmed(t *testing.T) {
	const queue, channel = "alarmed", "rabbitmq:alarmed"
	broker := rabbitmqtest.NewClient(t, o.broker.URL)
	broker.Declare(queue, nil)
	load := startSteady(t, o.client, "alarm", channel)
	awaitQueue(t, broker, queue, 100)
	o.broker.SetMemoryAlarm(true)
	parked := o.schedule(t, "alarm-parked", channel, 40, nil)
	o.awaitAllParked(t, parked)
	cancelled, rest := o.cancelHalf(t, parked)
	o.broker.SetMemoryAlarm(false)
	awaitQueue(t, broker, queue, load.count())
	o.settle(t, queue, append(load.end(), rest...), cancelled)
}
