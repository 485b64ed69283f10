package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/api/ingest"
	"github.com/postdate/postdate/api/ingest/rabbitmq"
	"github.com/postdate/postdate/publisher/publishertest"
	publish "github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
	"github.com/postdate/postdate/store/storetest"
)

const patience = 3 * time.Minute // bounds a hang

func start(t *testing.T, m *storetest.Faulty, c rabbitmq.Config) *rabbitmq.Source {
	t.Helper()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	taker, err := ingest.NewTaker(ingest.Config{Messages: m, Log: c.Log, Intake: api.Intake{
		Buckets: 8, CheckChannel: func(c postdate.Channel) error {
			if c.Broker() != "rabbitmq" {
				return postdate.E(postdate.KindInvalid, "there is no broker %s", c.Broker())
			}
			return nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Taker = taker
	s, err := rabbitmq.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *rabbitmq.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// left returns how many messages are in a queue without consumers, once the broker has
// noticed that they are gone and has requeued what they had in hand.
func left(t *testing.T, client rabbitmqtest.Client, queue string) int {
	t.Helper()
	eventually(t, "the broker sees that nobody consumes", func() bool { return client.Consumers(queue) == 0 })
	return client.Len(queue)
}

// eventually polls for a condition that has no signal.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// send publishes to an exchange, with confirms.
func send(t *testing.T, url, exchange, key string, ps ...amqp.Publishing) {
	t.Helper()
	ch := rabbitmqtest.Confirming(t, url)
	var confirms []*amqp.DeferredConfirmation
	for _, p := range ps {
		p.DeliveryMode = amqp.Persistent
		c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, p)
		if err != nil {
			t.Fatal(err)
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		if !c.Wait() {
			t.Fatal("the broker has not confirmed")
		}
	}
}

func delayed(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, Body: []byte(id), Headers: amqp.Table{"x-delay": int32(3_600_000)}}
}

func TestTakesFromQueues(t *testing.T) {
	const count = 2_000
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			queue, m := publishertest.Unique(kind), storetest.NewFaulty()
			client.Declare(queue, map[string]any{"x-queue-type": kind})
			client.Declare(queue+".postdate-rejected", nil)
			var ps []amqp.Publishing
			for i := range count {
				switch id := fmt.Sprint("m-", i); i % 10 {
				case 0:
					ps = append(ps, amqp.Publishing{Body: fmt.Appendf(nil, `{"scheduleId":%q,"channel":"rabbitmq:x","delay":"1h","payload":1}`, id)})
				case 1:
					ps = append(ps, amqp.Publishing{MessageId: id, Body: []byte("says nothing")})
				default:
					ps = append(ps, delayed(id))
				}
			}
			send(t, url, "", queue, ps...)
			s := start(t, m, rabbitmq.Config{URL: url, Queue: queue, Channel: "rabbitmq:out/{routing-key}"})
			eventually(t, "all is taken", func() bool { return m.Count() == count*9/10 })
			stop(t, s)
			if n := left(t, client, queue); n != 0 {
				t.Errorf("%d messages are still in the queue", n)
			}
			rejected := client.TakeAll(queue + ".postdate-rejected")
			if len(rejected) != count/10 {
				t.Fatalf("%d messages are rejected, want %d", len(rejected), count/10)
			}
			d := rejected[0]
			if reason, _ := d.Headers["postdate-rejected-reason"].(string); !strings.Contains(reason, "does not say when") || string(d.Body) != "says nothing" || d.MessageId == "" || d.DeliveryMode != amqp.Persistent {
				t.Errorf("%+v", d)
			}
			for id, r := range m.All(t) {
				want := "rabbitmq:out/" + queue
				if string(r.Payload) == "1" {
					want = "rabbitmq:x"
				} else if string(r.Payload) != id {
					t.Errorf("%s carries %q", id, r.Payload)
				}
				if string(r.Channel) != want || r.MayRepeat {
					t.Errorf("%s goes to %s, marked: %v", id, r.Channel, r.MayRepeat)
				}
			}
		})
	}
}

// Everything fails in turn, above all between write and acknowledgement. In the end,
// each message is stored once, and the queue is empty.
func TestNothingIsLostAndNothingTwice(t *testing.T) {
	const count = 1_000
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			queue, m := publishertest.Unique(kind), storetest.NewFaulty()
			client.Declare(queue, map[string]any{"x-queue-type": kind})
			// If RabbitMQ 3.10 is killed within seconds, it loses the place of a new quorum
			// queue's log, and the queue comes back empty and without a leader.
			broker.Control("eval", "catch dets:sync(ra_directory_reverse).")
			fill := func(part int) {
				var ps []amqp.Publishing
				for i := range count {
					ps = append(ps, delayed(fmt.Sprintf("p%d-%d", part, i)))
				}
				send(t, broker.URL, "", queue, ps...)
			}
			failing := func(kind postdate.Kind, written bool) {
				m.Set(func(calls int) (error, bool) {
					if calls%3 != 0 {
						return nil, true
					}
					return postdate.E(kind, "the test says so"), written
				})
			}
			failing(postdate.KindUnknown, true)
			fill(0)
			c := rabbitmq.Config{URL: broker.URL, Queue: queue, Channel: "rabbitmq:x", Prefetch: 200}
			s := start(t, m, c)
			eventually(t, "some is taken", func() bool { return m.Count() > 100 })
			broker.CloseAllConnections()
			failing(postdate.KindUnavailable, false)
			eventually(t, "the first part is taken", func() bool { return m.Count() == count })
			fill(1)
			eventually(t, "some is taken", func() bool { return m.Count() > count+100 })
			broker.Kill()
			broker.Restart()
			eventually(t, "the second part is taken", func() bool { return m.Count() == 2*count })
			fill(2)
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // immediately: what is in hand stays in the queue
			_ = s.Close(ctx)
			s = start(t, m, c)
			eventually(t, "the third part is taken", func() bool { return m.Count() == 3*count })
			stop(t, s)
			// Messages that were cut off after their write, or waited, are redelivered.
			m.Set(nil)
			left(t, client, queue)
			s = start(t, m, c)
			eventually(t, "the rest is in hand", func() bool { return client.Len(queue) == 0 })
			stop(t, s)
			if n := left(t, client, queue); n != 0 {
				t.Errorf("%d messages are still in the queue", n)
			}
			if n := len(m.All(t)); n != 3*count {
				t.Errorf("%d messages are there, want %d", n, 3*count)
			}
		})
	}
}

// A message arrives with all properties that its application set, even if it was
// rejected in between and put back once the cause was removed.
func TestPropertiesSurvive(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	in, out, exchange := publishertest.Unique("in"), publishertest.Unique("out"), publishertest.Unique("delayed")
	client.Declare(in, nil)
	client.Declare(in+".postdate-rejected", nil)
	client.Declare(out, nil)
	client.Bind(exchange, "topic", "#", in)
	sent := amqp.Publishing{
		MessageId: "m/1", ContentType: "application/x-order", ContentEncoding: "identity", CorrelationId: "c", ReplyTo: "answers", Type: "order",
		AppId: "shop", Expiration: "60000", Priority: 5, Timestamp: time.Unix(1_700_000_000, 0), Body: []byte{0, 1, 0xff},
		Headers: amqp.Table{
			"x-delay": int32(50), "text": "grüezi", "lines": "a\nb", "int": int32(-5), "long": int64(1) << 40, "short": int16(3), "byte": byte(7), "flag": true,
			"double": 1.25, "when": time.Unix(1_600_000_000, 0).UTC(), "raw": []byte{0, 1}, "none": nil, "table": amqp.Table{"a": int32(1)}, "array": []any{"x", int32(2)},
			"x-death": []any{amqp.Table{"count": int64(1)}},
		},
	}
	send(t, url, exchange, out, sent)
	s := start(t, storetest.NewFaulty(), rabbitmq.Config{URL: url, Queue: in}) // without a channel
	eventually(t, "it is rejected", func() bool { return client.Len(in+".postdate-rejected") == 1 })
	stop(t, s)
	back := client.Take(in+".postdate-rejected", 1, patience)[0]
	if back.Expiration != "" {
		t.Error("a rejected message expires")
	}
	send(t, url, exchange, out, amqp.Publishing{
		MessageId: back.MessageId, ContentType: back.ContentType, ContentEncoding: back.ContentEncoding, CorrelationId: back.CorrelationId, ReplyTo: back.ReplyTo,
		Type: back.Type, AppId: back.AppId, Priority: back.Priority, Timestamp: back.Timestamp, Body: back.Body, Headers: back.Headers,
	})
	m := storetest.NewFaulty()
	s = start(t, m, rabbitmq.Config{URL: url, Queue: in, Channel: "rabbitmq:" + out})
	eventually(t, "it is taken", func() bool { return m.Count() == 1 })
	stop(t, s)

	p, err := publish.New(publish.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.Background())
	var scheduled postdate.Record
	for _, r := range m.All(t) {
		scheduled = r
	}
	if rs := p.Publish(context.Background(), scheduled.Channel, []postdate.Delivery{{Message: &scheduled.Message, Attempt: 1}}); rs[0].Reason != "" {
		t.Fatal(rs)
	}
	got := client.Take(out, 1, patience)[0]
	want := maps.Clone(sent.Headers)
	delete(want, "x-death")
	want["x-delay"], want["table"], want["array"] = int32(-50), `{"a":1}`, `["x",2]`
	for name, value := range got.Headers {
		if when, ok := value.(time.Time); ok {
			got.Headers[name] = when.UTC()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got.Headers)) {
		if strings.HasPrefix(name, "postdate-") {
			delete(got.Headers, name)
		}
	}
	if !reflect.DeepEqual(got.Headers, want) {
		t.Errorf("headers:\n got %#v\nwant %#v", got.Headers, want)
	}
	if got.MessageId != sent.MessageId || got.ContentType != sent.ContentType || got.ContentEncoding != sent.ContentEncoding || got.CorrelationId != sent.CorrelationId ||
		got.ReplyTo != sent.ReplyTo || got.Type != sent.Type || got.AppId != sent.AppId || got.Expiration != sent.Expiration || got.Priority != sent.Priority ||
		!got.Timestamp.Equal(sent.Timestamp) || string(got.Body) != string(sent.Body) {
		t.Errorf("got %+v", got)
	}
}

// A queue may be declared late, and the queue of rejected messages may be deleted.
func TestQueuesComeAndGo(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	queue, m := publishertest.Unique("q"), storetest.NewFaulty()
	s := start(t, m, rabbitmq.Config{URL: url, Queue: queue, Channel: "rabbitmq:x"})
	eventually(t, "it says that the queue is missing", func() bool {
		err := s.Ready()
		return err != nil && strings.Contains(err.Error(), "there is no queue")
	})
	client.Declare(queue, nil)
	send(t, url, "", queue, delayed("a"))
	eventually(t, "it is taken", func() bool { return m.Count() == 1 && s.Ready() == nil })
	client.Delete(queue + ".postdate-rejected")
	cc := delayed("cc")
	cc.Headers["CC"] = []any{"elsewhere"}
	send(t, url, "", queue, cc, amqp.Publishing{Body: []byte("bad")})
	eventually(t, "both are put aside, into a queue that is declared anew", func() bool {
		return client.Exists(queue+".postdate-rejected") && client.Len(queue+".postdate-rejected") == 2 && client.Len(queue) == 0
	})
	client.Declare(queue+".postdate-rejected", nil) // deleted with the test
}

// After a crash, the leader of a queue may never answer a consumer while the connection
// stays alive. The test stops the leader's process.
func TestQueueWithoutLeader(t *testing.T) {
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	queue, m := publishertest.Unique("mute"), storetest.NewFaulty()
	client.Declare(queue, map[string]any{"x-queue-type": "quorum"})
	send(t, broker.URL, "", queue, delayed("a"))
	leader := fmt.Sprintf("whereis('%%2F_%s')", queue)
	broker.Control("eval", "sys:suspend("+leader+").")
	s := start(t, m, rabbitmq.Config{URL: broker.URL, Queue: queue, Channel: "rabbitmq:x"})
	eventually(t, "it says that no answer comes", func() bool {
		err := s.Ready()
		return err != nil && strings.Contains(err.Error(), "did not answer")
	})
	broker.Control("eval", "sys:resume("+leader+").")
	eventually(t, "it is taken", func() bool { return m.Count() == 1 })
}

// A quorum queue allows about thirty acknowledgements in flight. The broker holds back any
// more, and drops them when the channel closes. The test stops the queue's process
// meanwhile.
func TestCloseLeavesNothingBehind(t *testing.T) {
	const count = 200
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprint("single active consumer ", single), func(t *testing.T) {
			queue, m := publishertest.Unique("slow"), storetest.NewFaulty()
			client.Declare(queue, map[string]any{"x-queue-type": "quorum", "x-single-active-consumer": single})
			write := make(chan struct{})
			m.Set(func(int) (error, bool) {
				select {
				case <-write:
				case <-t.Context().Done():
				}
				return nil, true
			})
			sent := 0
			more := func(n int) {
				var ps []amqp.Publishing
				for range n {
					ps = append(ps, delayed(fmt.Sprint("m-", sent)))
					sent++
				}
				send(t, broker.URL, "", queue, ps...)
			}
			more(count)
			s := start(t, m, rabbitmq.Config{URL: broker.URL, Queue: queue, Channel: "rabbitmq:x", Prefetch: 2 * count})
			eventually(t, "all is in hand", func() bool { return client.Len(queue) == 0 })
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = s.Close(t.Context())
			}()
			waiting := 0
			eventually(t, "the consumer is cancelled", func() bool {
				more(1)
				waiting = client.Len(queue)
				return waiting > 0
			})
			broker.Control("eval", fmt.Sprintf("L = whereis('%%2F_%s'), sys:suspend(L), spawn(fun() -> timer:sleep(3000), sys:resume(L) end).", queue))
			close(write)
			<-closed
			if m.Count() < sent-waiting {
				t.Errorf("%d messages are written, and %d were in hand", m.Count(), sent-waiting)
			}
			if n, want := left(t, client, queue), sent-m.Count(); n != want {
				t.Errorf("%d messages are still in the queue, want %d", n, want)
			}
		})
	}
}

func TestConfigIsRefusedInWords(t *testing.T) {
	taker, err := ingest.NewTaker(ingest.Config{Messages: storetest.NewFaulty(), Intake: api.Intake{Buckets: 8}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []rabbitmq.Config{
		{URL: "http://user:secret@host", Queue: "q", Taker: taker}, {URL: "amqp://host", Taker: taker}, {URL: "amqp://host", Queue: "q"},
		{URL: "amqp://host", Queue: "q", Taker: taker, Prefetch: -1}, {URL: "amqp://host", Queue: "q", Taker: taker, Channel: "rabbitmq:{key}"},
	} {
		s, err := rabbitmq.Start(context.Background(), c)
		if err == nil {
			stop(t, s)
			t.Errorf("%+v is accepted", c)
		} else if strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}
