package kafka_test

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// This is why the package does not use the library's producer. If one caller leaves, the
// library fails every record of the partition with that caller's error, including the records
// of other callers and those that it has never written, and does not say which these are. So
// all of them would be Unknown: no channel could be parked without marking its messages. And
// the option that lets a caller leave does not work with transactions. If this test fails, the
// library has changed, and the package may no longer need a producer of its own.
func TestWhyNotTheLibrarysProducer(t *testing.T) {
	f := newFake(t, 1, 1, nil)
	client, err := kgo.NewClient(kgo.SeedBrokers(f.ListenAddrs()...), kgo.AllowIdempotentProduceCancellation())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	written, release := make(chan struct{}), make(chan struct{})
	f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(written)
		f.SleepControl(func() { <-release })
		return nil, nil, false
	})
	results := map[string]chan error{"leaves": make(chan error, 1), "stays": make(chan error, 1)}
	produce := func(ctx context.Context, key string) {
		client.Produce(ctx, &kgo.Record{Topic: f.topic, Key: []byte(key)}, func(_ *kgo.Record, err error) { results[key] <- err })
	}
	ctx, leave := context.WithCancel(t.Context())
	produce(ctx, "leaves")
	<-written
	produce(t.Context(), "stays") // waits for the answer to the first
	leave()
	for key, result := range results {
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("the record that %s: %v, want %v", key, err, context.Canceled)
		}
	}
	close(release)
	if n := f.counts()["stays"]; n != 0 {
		t.Errorf("the record that was never written is %d times in the topic", n)
	}
	_, err = kgo.NewClient(kgo.SeedBrokers(f.ListenAddrs()...), kgo.AllowIdempotentProduceCancellation(), kgo.TransactionalID("x"))
	if err == nil {
		t.Error("the option can be had with transactions")
	}
}
