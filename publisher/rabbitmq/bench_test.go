package rabbitmq_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// BenchmarkPublish compares the publisher with amqp091 used as its manual says, with a window
// of 500 deferred confirms, in the same run: 256 B, persistent, confirmed, to a durable classic
// queue. The broker is the bottleneck and uses the remaining cores, so each result also shows
// this side's CPU time per message.
func BenchmarkPublish(b *testing.B) {
	url := rabbitmqtest.URL(b)
	client := rabbitmqtest.NewClient(b, url)
	client.Declare("bench", nil)

	b.Run("bare", func(b *testing.B) { benchBare(b, url) })
	for _, callers := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("publisher/callers=%d", callers), func(b *testing.B) { benchPublisher(b, url, callers) })
	}
}

func benchBare(b *testing.B, url string) {
	ch := rabbitmqtest.Confirming(b, url)
	const window = 500
	body := make([]byte, 256)
	var open []*amqp.DeferredConfirmation
	done := benchtest.Start(b)
	for b.Loop() {
		if n := len(open); n >= window && !open[n-window].Wait() {
			b.Fatal("nack")
		}
		m := message(fmt.Sprint(len(open)), body)
		dc, err := ch.PublishWithDeferredConfirm("", "bench", true, false, amqp.Publishing{
			Headers: amqp.Table{
				publisher.HeaderScheduleID: m.ScheduleID, publisher.HeaderExecutionTime: m.ExecutionTime.String(), publisher.HeaderAttempt: int32(1),
			},
			MessageId: m.ScheduleID, ContentType: m.ContentType, Timestamp: m.ExecutionTime.Std(), DeliveryMode: amqp.Persistent, Body: body,
		})
		if err != nil {
			b.Fatal(err)
		}
		open = append(open, dc)
	}
	for _, dc := range open[max(0, len(open)-window):] {
		dc.Wait()
	}
	done(len(open))
}

func benchPublisher(b *testing.B, url string, callers int) {
	p, err := rabbitmq.New(rabbitmq.Config{URL: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close(context.Background())
	body := make([]byte, 256)
	const size = 250
	batches := make(chan []postdate.Delivery, callers)
	failed := make(chan publisher.Result, callers)
	done := benchtest.Start(b)
	for range callers {
		go func() {
			var bad publisher.Result
			for batch := range batches {
				for _, r := range p.Publish(context.Background(), "rabbitmq:bench", batch) {
					if r.Outcome != publisher.Confirmed {
						bad = r
					}
				}
			}
			failed <- bad
		}()
	}
	n := 0
	var batch []postdate.Delivery
	for b.Loop() {
		batch = append(batch, postdate.Delivery{Message: message(fmt.Sprint(n), body), Attempt: 1})
		n++
		if len(batch) == size {
			batches <- batch
			batch = nil
		}
	}
	batches <- batch
	close(batches)
	for range callers {
		if bad := <-failed; bad.Outcome != 0 {
			b.Fatalf("%v: %s", bad.Outcome, bad.Reason)
		}
	}
	done(n)
}

func message(id string, payload []byte) *postdate.Message {
	return &postdate.Message{
		Key:           postdate.Key{Tenant: postdate.DefaultTenant, ScheduleID: id},
		ExecutionTime: 1_800_000_000_123, Payload: payload, ContentType: "application/json",
	}
}
