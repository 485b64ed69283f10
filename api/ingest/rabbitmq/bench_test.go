package rabbitmq_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/api/ingest"
	"github.com/postdate/postdate/api/ingest/rabbitmq"
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// BenchmarkIngest takes messages of 256 bytes from a queue into the embedded store.
// Each is durable before it is acknowledged.
func BenchmarkIngest(b *testing.B) {
	url := rabbitmqtest.URL(b)
	client := rabbitmqtest.NewClient(b, url)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, kind := range []string{"classic", "quorum"} {
		b.Run(kind, func(b *testing.B) {
			queue := publishertest.Unique(kind)
			client.Declare(queue, map[string]any{"x-queue-type": kind})
			client.Declare(queue+".postdate-rejected", nil)
			ch := rabbitmqtest.Confirming(b, url)
			var last *amqp.DeferredConfirmation
			var err error
			for i := range b.N {
				last, err = ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{
					MessageId: fmt.Sprint("m-", i), DeliveryMode: amqp.Persistent, Body: make([]byte, 256), Headers: amqp.Table{"x-delay": int32(3_600_000)},
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			if !last.Wait() {
				b.Fatal("not confirmed")
			}
			config := pebble.DefaultConfig(b.TempDir())
			config.Buckets, config.Log = 64, log
			s, err := pebble.Open(config)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var count atomic.Int64
			all := make(chan struct{})
			taker, err := ingest.NewTaker(ingest.Config{
				Messages: store.Coalesce(s), Log: log, Intake: api.Intake{Buckets: 64},
				Scheduled: func(int, postdate.Time) {
					if count.Add(1) == int64(b.N) {
						close(all)
					}
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			source, err := rabbitmq.Start(context.Background(), rabbitmq.Config{URL: url, Queue: queue, Channel: "rabbitmq:x", Taker: taker, Log: log})
			if err != nil {
				b.Fatal(err)
			}
			<-all
			if err := source.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			if n := client.Len(queue); n != 0 {
				b.Errorf("%d messages are still in the queue", n)
			}
		})
	}
}
