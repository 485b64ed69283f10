package node_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
)

// A message to a host that does not resolve waits as long as its policy says, although it has
// only one attempt, and then fails with the reason.
func TestAHostThatNeverResolves(t *testing.T) {
	_, api := start(t, config(t))
	began := time.Now()
	for id, wait := range map[string]time.Duration{"short": 2 * time.Second, "long": 0} {
		m := client.Message{
			ScheduleID: id, Channel: "https://nowhere.invalid/" + id, Delay: time.Millisecond, Payload: []byte("1"),
			Retry: &client.Retry{MaxAttempts: 1, MaxParked: wait},
		}
		if s, err := api.Schedule(t.Context(), m); err != nil || !s.Created {
			t.Fatal(s, err)
		}
	}
	err := nodetest.Poll(patient(t), func() (bool, error) {
		m, err := api.Get(t.Context(), "short")
		return m.Status == "DELIVERY_FAILED", err
	})
	short, _ := api.Get(t.Context(), "short")
	if err != nil || short.Attempts != 0 || !strings.HasPrefix(short.LastError, "its channel was down for longer than retry.maxParked, 2s; last error: ") {
		t.Fatalf("%+v, %v", short, err)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it failed after %s", took)
	}
	t.Log(short.LastError)
	long, err := api.Get(t.Context(), "long")
	if err != nil || long.Status != "PENDING" || long.Parked == "" {
		t.Errorf("the one that may wait for a day: %+v, %v", long, err)
	}
	if err := api.Cancel(t.Context(), "long"); err != nil {
		t.Errorf("its cancel: %v", err)
	}
}

// A message for a broker that the node is not configured for waits, and the log says once why.
func TestABrokerThatIsNotThereAnyMore(t *testing.T) {
	c := config(t)
	c.Kafka.Seeds = []string{"127.0.0.1:1"}
	before, api := start(t, c)
	for _, id := range []string{"a", "b"} {
		m := client.Message{ScheduleID: id, Channel: "kafka:" + id, Delay: time.Millisecond, Payload: []byte("1")}
		if s, err := api.Schedule(t.Context(), m); err != nil || !s.Created {
			t.Fatal(s, err)
		}
	}
	stop(t, before)
	c.Kafka.Seeds = nil
	var told nodetest.Log
	c.Log = slog.New(slog.NewTextHandler(&told, nil))
	_, api = start(t, c)
	for _, id := range []string{"a", "b"} {
		err := nodetest.Poll(patient(t), func() (bool, error) {
			m, err := api.Get(t.Context(), id)
			return strings.Contains(m.LastError, "names a broker that this node does not have"), err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(told.String(), "messages wait for a broker that this node does not have"); n != 1 {
		t.Errorf("the log tells it %d times, want 1:\n%s", n, told.String())
	}
}
