package node_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/nodetest"
)

// A message to a host that does not resolve waits as long as its policy says, although it has
// only one attempt, and then fails with the reason.
func TestAHostThatNeverResolves(t *testing.T) {
	_, client := start(t, config(t))
	began := time.Now()
	for id, wait := range map[string]string{"short": "PT2S", "long": ""} {
		m := nodetest.Message{
			ScheduleID: id, Channel: "https://nowhere.invalid/" + id, Delay: "1ms", Payload: 1,
			Retry: &nodetest.Retry{MaxAttempts: 1, MaxParked: wait},
		}
		if a, err := client.Schedule(m); err != nil || a.Code != http.StatusCreated {
			t.Fatal(a, err)
		}
	}
	err := nodetest.Poll(patient(t), func() (bool, error) {
		m, err := client.Get("short")
		return m.Status == "DELIVERY_FAILED", err
	})
	short, _ := client.Get("short")
	if err != nil || short.Attempts != 0 || !strings.HasPrefix(short.LastError, "its channel was down for longer than retry.maxParked, 2s; last error: ") {
		t.Fatalf("%+v, %v", short, err)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it failed after %s", took)
	}
	t.Log(short.LastError)
	long, err := client.Get("long")
	if err != nil || long.Status != "PENDING" || long.Parked == "" {
		t.Errorf("the one that may wait for a day: %+v, %v", long, err)
	}
	if a, err := client.Cancel("long"); err != nil || a.Code != http.StatusOK {
		t.Errorf("its cancel answered %v, %v", a, err)
	}
}

// A message for a broker that the node is not configured for waits, and the log says once why.
func TestABrokerThatIsNotThereAnyMore(t *testing.T) {
	c := config(t)
	c.Kafka.Seeds = []string{"127.0.0.1:1"}
	before, client := start(t, c)
	for _, id := range []string{"a", "b"} {
		m := nodetest.Message{ScheduleID: id, Channel: "kafka:" + id, Delay: "1ms", Payload: 1}
		if a, err := client.Schedule(m); err != nil || a.Code != http.StatusCreated {
			t.Fatal(a, err)
		}
	}
	stop(t, before)
	c.Kafka.Seeds = nil
	var told nodetest.Log
	c.Log = slog.New(slog.NewTextHandler(&told, nil))
	_, client = start(t, c)
	for _, id := range []string{"a", "b"} {
		err := nodetest.Poll(patient(t), func() (bool, error) {
			m, err := client.Get(id)
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
