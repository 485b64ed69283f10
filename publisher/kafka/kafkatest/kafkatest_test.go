package kafkatest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/publisher/kafka/kafkatest"
)

// Tests rely on this: the address stays, durable data stays, a paused broker does not answer,
// and the broker used is reported.
func TestBrokerStopsKillsAndRestarts(t *testing.T) {
	told := filepath.Join(t.TempDir(), "parts")
	t.Setenv("POSTDATE_TEST_PARTS", told)
	broker := kafkatest.Start(t)
	client := kafkatest.NewClient(t, broker.Address)
	client.CreateTopic("t", 3, nil)
	produce := func(value string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		cl, err := kgo.NewClient(kgo.SeedBrokers(broker.Address), kgo.RequestRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr()
	}
	for n, end := range []func(){broker.Stop, broker.Kill} {
		if err := produce("x"); err != nil {
			t.Fatal(err)
		}
		end()
		broker.Restart()
		if records := client.Take("t", n+1, kafkatest.ReadCommitted); len(records) != n+1 {
			t.Fatalf("%d records of %d are left", len(records), n+1)
		}
	}
	broker.Pause()
	if err := produce("y"); err == nil {
		t.Error("a paused broker answers")
	}
	broker.Cont()
	text, err := os.ReadFile(told)
	if err != nil || !strings.HasPrefix(string(text), "kafka 4.") {
		t.Errorf("told %q, %v", text, err)
	}
}
