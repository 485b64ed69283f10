package node_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/node/nodetest"
)

// A message to a host that does not resolve waits for as long as it says, though it has
// but one attempt, and then it fails with the reason.
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
